"""More rows than memory: Gram matrices in one pass over chunks, and chunks for the stochastic methods."""

from typing import TYPE_CHECKING

from bisaddle.lazy import lazy

if TYPE_CHECKING:
    from bisaddle.streams.chunks import Chunks as Chunks
    from bisaddle.streams.grams import Gram as Gram, gram as gram
    from bisaddle.streams.sources import parquet as parquet, rows as rows

_NAMES = {"chunks": ("Chunks",), "grams": ("Gram", "gram"), "sources": ("parquet", "rows")}

__getattr__, __dir__ = lazy(__name__, _NAMES)
