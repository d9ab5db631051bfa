"""More rows than memory: Gram matrices in one pass over chunks, and chunks for the stochastic methods."""

from bisaddle.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
