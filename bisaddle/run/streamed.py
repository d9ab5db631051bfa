"""A run whose data are streamed: what it needs of the problem, the method and the chunks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from bisaddle.methods.base import HostMethod, Method, public_methods
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.streamed import StreamedKernels
from bisaddle.oracle.validate import require_problem
from bisaddle.problem import Point, Problem, described
from bisaddle.streams.chunks import Chunks, Reader


def streamed(problem: Problem, method: Method | None, data: Any) -> tuple[Problem, Chunks | None]:
    """The problem on its first chunk, and all chunks with what it has beside them; ValueError if it cannot be.

    data: None leaves the problem as it is.
    """
    if data is None:
        return problem, None
    if not isinstance(data, Chunks):
        raise ValueError(
            f"data must be a bs.streams.Chunks, given {described(data)}; what fits into memory is Problem(data=...)"
        )
    require_problem(problem)
    _require_streaming(method)
    chunks = data.beside(problem.data)
    return replace(problem, data=chunks.data(0)), chunks


def _require_streaming(method: Method | None) -> None:
    if method is not None and (not isinstance(method, Method) or method.streams):
        return  # what is no method is refused elsewhere
    able = ", ".join(name for name, kind in public_methods().items() if kind.streams)
    name = "Adaptive" if method is None else method.name
    asks = "remembers its batches" if hasattr(method, "sampler") else "asks for all rows in every step"
    if method is None or isinstance(method, HostMethod):
        asks = "is driven by values of f and g over all rows"
    raise ValueError(
        f"{name} {asks}, and takes no data=chunks; use one of {able}, or for least squares bs.streams.gram, which "
        "every method can follow"
    )


def kernels_of(problem: Problem, point: Point, chunks: Chunks | None) -> Kernels:
    return Kernels(problem, point) if chunks is None else StreamedKernels(problem, point, chunks)


@contextmanager
def reading(chunks: Chunks | None) -> Iterator[Reader | None]:
    """with reading(chunks) as reader: its thread ends with it."""
    if chunks is None:
        yield None
        return
    reader = Reader(chunks)
    try:
        yield reader
    finally:
        reader.close()
