"""How stationary a point is, trusting nothing but the problem.

To read in this order: certifier (the gap, and certify), error_bounds (how far it can be off), worst_value (the maximum
over y), degenerate (corners of Y where a gap of 0 says nothing).
"""

from bisaddle.certificate.certifier import Certificate as Certificate
from bisaddle.certificate.certifier import certify as certify
