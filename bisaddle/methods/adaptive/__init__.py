"""Adaptive, driven from the host: plain Python and NumPy over the compiled programs of bisaddle.oracle.kernels.

To be read in this order:

    method         the algorithm, first in ten lines and then in Python
    parts          what it holds: places, gaps, the centre, the descent
    inner          what is solved at every x, where the solves begin and what preconditions them
    coordinates    the coordinates in which x moves, and the direction of a step
    constants      every number that was chosen rather than derived
"""

from bisaddle.methods.adaptive.method import Adaptive as Adaptive
