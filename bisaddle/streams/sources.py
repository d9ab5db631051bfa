"""Where chunks of rows come from: arrays and memory maps, Parquet files; and a thread that reads one ahead."""

import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

# bytes of a chunk, where nobody has said how many rows it has: large enough to hide a read, small beside any memory
CHUNK_BYTES = 2**24

Item = TypeVar("Item")


def rows(features: Any, targets: Any, task: Any = None, *, size: int | None = None) -> Iterator[tuple]:
    """(features, targets) or (features, targets, task) of `size` rows at a time; None: as many as 16 MB hold.

    The arrays may be memory maps (np.load(file, mmap_mode="r"), np.memmap): a chunk is copied, and the pages that were
    read for it are given back.
    """
    arrays = [array for array in (features, targets, task) if array is not None]
    found = {np.shape(array)[:1] for array in arrays}
    if len(found) != 1 or np.ndim(features) != 2 or any(np.ndim(array) != 1 for array in arrays[1:]):
        shapes = ", ".join(str(np.shape(array)) for array in arrays)
        raise ValueError(f"features (n, d), targets (n,) and task (n,) are needed, given {shapes}")
    step = rows_of(features[:1].nbytes) if size is None else whole("size", size)
    return (tuple(taken(array, at, at + step) for array in arrays) for at in range(0, len(features), step))


def parquet(
    paths: str | os.PathLike | Sequence,
    features: Sequence[str],
    target: str,
    task: str | None = None,
    *,
    size: int | None = None,
) -> Iterator[tuple]:
    """The same from columns of Parquet files, one file after the other, by pyarrow (extra `parquet`).

    features, target, task: names of columns. A missing entry becomes NaN, which `gram` refuses.
    """
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError('Parquet files need pyarrow; use pip install "bisaddle[parquet]"') from error
    paths = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if isinstance(features, str) or not features:
        raise ValueError(f"features must be a list of names of columns, given {features!r}")
    names = [*features, target, *([] if task is None else [task])]
    step = rows_of(8 * len(names)) if size is None else whole("size", size)

    def chunks() -> Iterator[tuple]:
        for path in paths:
            with ParquetFile(path) as file:
                missing = [name for name in names if name not in file.schema_arrow.names]
                if missing:
                    there = ", ".join(file.schema_arrow.names[:10])
                    raise ValueError(f"{path} has no column {missing[0]!r}; it has {there}")
                for batch in file.iter_batches(batch_size=step, columns=names):
                    columns = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in names}
                    table = np.column_stack([np.asarray(columns[name], np.float64) for name in features])
                    yield (table, *(columns[name] for name in names[len(features) :]))

    return chunks()


def taken(array: Any, start: int, end: int) -> np.ndarray:
    """A copy of these rows; pages of a memory map that they came from no longer count as this process's own."""
    copy = np.array(array[start:end])
    base = getattr(array, "_mmap", None)
    # a map with copy-on-write pages has changes that live nowhere else
    if isinstance(base, mmap.mmap) and getattr(array, "mode", "c") != "c" and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
    return copy


def reader() -> ThreadPoolExecutor:
    """A thread that reads; every new one would have memory of its own, which is not given back for long."""
    return ThreadPoolExecutor(1, "bisaddle-read")


def ahead(items: Iterable[Item], thread: ThreadPoolExecutor) -> Iterator[Item]:
    """The same items, each made by the thread while the one before is used."""
    source, end = iter(items), object()
    coming = thread.submit(next, source, end)
    try:
        while (item := coming.result()) is not end:
            coming = thread.submit(next, source, end)
            yield item  # pyright: ignore[reportReturnType]
            del item  # or two would be kept while a third is read
    finally:
        coming.cancel()


def rows_of(row_bytes: int) -> int:
    return max(1, CHUNK_BYTES // max(row_bytes, 1))


def whole(name: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, given {value!r}")
    return int(value)
