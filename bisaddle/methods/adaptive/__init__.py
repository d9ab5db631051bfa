"""Adaptive, driven from the host: plain Python and NumPy over the compiled programs of bisaddle.kernels.

To read in this order: method (the algorithm), inner (what is solved at every x), face (the direction of a step),
coordinates (in which x moves), start (where it begins), recall and inverse (what helps the inner solves).
"""

from bisaddle.methods.adaptive.method import Adaptive as Adaptive
