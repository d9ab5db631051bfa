"""NumPy's algebra on one thread: those of its BLAS wait for each other longer than they work on such vectors."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    """Of the BLAS that NumPy brings, or of every one where it uses the system's. XLA's decompositions keep theirs."""
    every = ThreadpoolController().select(user_api="blas")
    own = [library["filepath"] for library in every.info() if "numpy" in library["filepath"]]
    return every.select(filepath=own) if own else every


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """with one_blas_thread(): NumPy's BLAS takes one thread; afterwards as many as before."""
    with _controller().limit(limits=1):
        yield
