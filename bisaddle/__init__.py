"""Saddle-point problems with bilevel structure, on JAX.

    min_{x in X} max_{y in Y} f(x, theta*(x), y)   with   theta*(x) = argmin_theta g(x, theta)

In the order of use: sets, a Problem over them, a method with its StepSizes, solve, and the certificate of its Result.
"""

from bisaddle.lazy import lazy

__version__ = "0.1.0"
__getattr__, __dir__, __all__ = lazy(__name__)
