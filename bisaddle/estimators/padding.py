"""Shapes rounded up to a few buckets, so that a handful of compiled programs serve all data. The answers stay the same.

A column of zeros has the coefficient zero, whatever the penalty, and so has a task without rows. A group that stands in
two places shares its weight, and its part of the reference distribution, between them: sums over both are what it would
have alone, and so is the divergence. A row with weight zero is not there.
"""

import numpy as np

from bisaddle.apps.folds import CHUNK, Moments, Rows


def bucket(size: int, least: int = 1, parts: int = 2) -> int:
    """The next multiple of least, and beyond `parts` of them of a part of the power of 2 below, so many to each."""
    power = least * parts
    while power < size:
        power *= 2
    step = max(power // 2 // parts, least)
    return -(-size // step) * step


def width_of(columns: int) -> int:
    """So many are room for the columns and the 1 of the intercept."""
    return bucket(columns + 1, 8) if columns < 32 else bucket(columns + 1, 4, 8)


def room(rows: int, columns: int) -> tuple[int, int, int]:
    """(chunks, rows of each, columns) in which the rows and the 1 of the intercept have room."""
    if rows <= CHUNK:
        return 1, bucket(rows, 128), width_of(columns)
    return bucket(-(-rows // CHUNK), 1, 16), CHUNK, width_of(columns)


def copies(groups: int) -> np.ndarray:
    """The group in each place."""
    return np.arange(bucket(groups)) % groups


def wide_enough(array: np.ndarray, sizes: dict[int, int]) -> np.ndarray:
    """Zeros behind, along the axes given, up to the sizes given."""
    room = [(0, 0)] * array.ndim
    for axis, size in sizes.items():
        room[axis] = (0, size - array.shape[axis])
    return np.pad(array, room)


def padded_moments(data: Moments, width: int, places: np.ndarray) -> Moments:
    """More columns, and the groups in these places."""
    gram = wide_enough(np.asarray(data.gram)[:, places], {2: width, 3: width})
    cross = wide_enough(np.asarray(data.cross)[:, places], {2: width})
    return Moments(gram, cross, np.asarray(data.square)[:, places], *_spread(data, places))


def padded_rows(data: Rows, places: np.ndarray) -> Rows:
    """The groups in these places."""
    return Rows(data.chunks, places.astype(np.int32), np.asarray(data.outside)[:, places], *_spread(data, places))


def emptied_moments(data: Moments, width: int, tasks: int) -> Moments:
    """More columns, and more tasks, without rows."""
    gram = wide_enough(data.gram, {1: tasks, 2: width, 3: width})
    cross, square = wide_enough(data.cross, {1: tasks, 2: width}), wide_enough(data.square, {1: tasks})
    return Moments(gram, cross, square, *_empty(data, tasks))


def emptied_rows(data: Rows, tasks: int) -> Rows:
    """More tasks, without rows."""
    places = np.arange(tasks, dtype=np.int32)
    return Rows(data.chunks, places, wide_enough(data.outside, {1: tasks}), *_empty(data, tasks))


def _empty(data: Moments | Rows, tasks: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return (
        wide_enough(data.left_out, {1: tasks}),
        wide_enough(data.shares, {0: tasks}),
        wide_enough(data.offset, {0: tasks}),
    )


def _spread(data: Moments | Rows, places: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    shares = np.asarray(data.shares)[places] / np.bincount(places)[places]
    return np.asarray(data.left_out)[:, places], shares, np.asarray(data.offset)[places]


def gathered(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The sum over the places of each group."""
    return np.bincount(places, weights=values)
