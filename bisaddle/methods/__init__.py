"""Methods: each owns one step; bisaddle.solve owns the loop. `table()` lists them."""

from bisaddle.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
