"""Sketches: short vectors in the place of long ones, of which only lengths and products with each other are asked."""

import numpy as np

# entries of a sketch: sums of some entries of the vector each, with random signs, which have its length within 1 or 2 %
SKETCHED = 2**14


def kept(size: int) -> int:
    return min(size, SKETCHED)


def sketched(v: np.ndarray) -> np.ndarray:
    """A linear map of v that keeps its length; v itself if it is short."""
    if v.size <= SKETCHED:
        return v.astype(np.float64, copy=False)
    rng, sums = np.random.default_rng(5), np.zeros(SKETCHED, np.longdouble)  # so that the sums round less than v does
    for start in range(0, v.size, SKETCHED):
        part = v[start : start + SKETCHED]
        sums[: part.size] += part * rng.choice(np.array([-1, 1], np.int8), part.size)
    return sums.astype(np.float64)
