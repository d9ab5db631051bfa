"""Degenerate corners: points whose gap vanishes whatever a part of x is, because y sits in a corner of Y."""

import numpy as np

from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.sets.flat import FlatSet

# a gradient this much smaller than the one at another y counts as none
NOTHING = 1e-6
LOOKS = 16


def free_parts(kernels: Kernels, x: Vector, theta: Vector, y: Vector, Gx: Vector, in_corner: bool) -> tuple[str, ...]:
    """The parts of x that the point's y has no opinion on: their gradient is 0 here and wherever they are moved.

    theta: theta*(x). Only a y in a corner (one that maximises its own linearisation) is looked at; a part that f
    never depends on, as far as a look at another x and y tells, is not meant.
    """
    if kernels.y_set is None or not in_corner:
        return ()
    parts = kernels.x.named_slices
    norms = lambda Gx: np.array([norm(Gx[place]) for _, place in parts])
    sizes = norms(Gx)
    small = sizes <= NOTHING**0.5
    if not np.any(small):
        return ()
    # the other x differs in the parts without a gradient only: what holds those in place stays
    amidst_x, amidst_y = _amidst(kernels.x_set, x), _amidst(kernels.y_set, y)
    other = x.copy()
    for (_, place), is_small in zip(parts, small, strict=True):
        if is_small:
            other[place] = amidst_x[place]
    elsewhere = norms(Implicit(kernels, other, theta, y).Gx)
    usual = norms(Implicit(kernels, amidst_x, theta, amidst_y).Gx)
    free = (usual > 0) & (sizes <= NOTHING * usual) & (elsewhere <= NOTHING * usual)
    return tuple(name or "x" for (name, _), is_free in zip(parts, free, strict=True) if is_free)


def _amidst(a_set: FlatSet, v: Vector) -> Vector:
    """The mean of points of the set that lie far apart: on no side of it."""
    noise = np.random.default_rng(0).normal(size=(LOOKS, v.size)).astype(v.dtype)
    if "project" in a_set.capabilities:
        reach = 1e3 * (1 + a_set.diameter())
        return np.mean([a_set.project(v + reach * direction) for direction in noise], axis=0)
    return np.mean([a_set.lmo(direction) for direction in noise], axis=0)
