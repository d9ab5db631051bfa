"""Applications: data -> (problem, start)."""

from bisaddle.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
