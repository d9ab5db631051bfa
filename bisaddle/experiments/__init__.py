"""The paper's experiments and your own: TOML files, one runner, results as plain JSON."""

from bisaddle.lazy import lazy

__getattr__, __dir__, __all__ = lazy(__name__)
