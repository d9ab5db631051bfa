"""Small dense algebra on one thread: those of a BLAS wait for each other longer than they work."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread(wanted: bool = True) -> Iterator[None]:
    """with one_blas_thread(): NumPy's and SciPy's BLAS take one thread; afterwards as many as before."""
    if not wanted:
        yield
        return
    with _controller().limit(limits=1, user_api="blas"):
        yield
