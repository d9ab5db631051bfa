"""How stationary a point is, trusting nothing but the problem.

To read in this order: certifier (the gap, and certify), bounds (how far it can be off, the worst value over y, and the
corners of Y where a gap of 0 says nothing), noise (rounding inside f and g), consistency (whether their derivatives are
theirs), witnesses (what shows that a problem is not of its class).
"""

from bisaddle.certificate.certifier import Certificate as Certificate, Gap as Gap, certify as certify
