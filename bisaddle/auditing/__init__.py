"""A second opinion on a point, that shares no code with the certificate: dense, slow, in NumPy and SciPy.

To read in this order: checker (Audit, and audit), lower (theta*(x) and the curvature of g), upper (concavity in y and
the worst value), regions and textbook (the sets), arrays (derivatives by autodiff, as arrays), extended
(the same in extended precision: what rounding has changed).
"""

from bisaddle.auditing.checker import Audit as Audit, audit as audit
