"""The direction of a step for a large x: the same as in coordinates.py, in few copies of x.

Pairs are kept in float32, and vectors in the face are made anew wherever they are needed, one or two at a time: what
they are asked for is their products with each other, and one sum of them.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import Pair, Space, lower_triangle, outward
from bisaddle.oracle.kernels import Vector
from bisaddle.sets.flat import FlatSet
from bisaddle.sets.flat_base import Linear


class Half(NamedTuple):
    """A vector in half of its memory: scale times entries of float32, the largest of which is 1."""

    scale: float
    entries: Vector

    @classmethod
    def of(cls, v: Vector) -> "Half":
        scale = largest(v)
        if not 0 < scale < np.inf:
            return cls(scale, np.zeros(v.size, np.float32))
        entries = np.empty(v.size, np.float32)
        return cls(scale, np.divide(v, scale, out=entries, casting="same_kind"))

    def full(self, dtype: np.dtype) -> Vector:
        return np.multiply(self.entries, self.scale, dtype=dtype)


def largest(v: Vector) -> float:
    """The largest absolute entry; NaN if there is one."""
    return max(float(v.max()), -float(v.min())) if v.size else 0.0


def halved(s: Vector, q: Vector) -> Pair:
    """A pair as it is kept."""
    return Half.of(s), Half.of(q)


def times(v: "Vector | Half", factor: float) -> "Vector | Half":
    """A vector as a pair keeps it, multiplied."""
    return v._replace(scale=v.scale * factor) if isinstance(v, Half) else v.dtype.type(factor) * v


def face_direction(
    space: "Space | FlatSet", z: Vector, Gz: Vector, tau: float, pairs: Collection[Pair]
) -> tuple[Vector, Vector]:
    """(d0, d) as coordinates.face_direction has them."""
    to = Gz * -tau
    to += z
    face = space.face(to)
    del to
    d0 = face.point - z
    along: Linear | None = face.along
    bend: Linear | None = face.bend
    del face
    if not pairs:
        return d0, d0
    dtype = d0.dtype

    def in_face(v: Vector) -> Vector:
        assert along is not None
        return along(v[None])[0]

    def s_of(pair: Pair) -> Vector:
        return in_face(pair[0].full(dtype))

    def q_of(pair: Pair) -> Vector:
        q = in_face(pair[1].full(dtype))
        if bend is not None:
            q = q + bend(s_of(pair)[None])[0] / tau
        return q

    def right() -> Vector:
        v = in_face(d0)
        if bend is not None:
            v = v + bend(v[None])[0]
        return v

    newton = _two_loops(right, s_of, q_of, list(pairs), tau)
    if newton is None:
        return d0, d0
    inside = in_face(d0)
    t = outward(newton, inside, d0) if bend is None else 0.0
    newton -= inside
    del inside
    newton += d0 if t == 0 else (1 - t) * d0
    if t:
        newton -= (t * tau) * Gz
    newton += z
    along = bend = None  # they hold what they need of the face
    return d0, minus(space.project(newton), z)


def _two_loops(
    right: Callable[[], Vector],
    s_of: Callable[[Pair], Vector],
    q_of: Callable[[Pair], Vector],
    pairs: list[Pair],
    tau: float,
) -> Vector | None:
    """B right / tau as coordinates.two_loops has it, over the pairs with curvature; None if there is none."""
    usable, curvature = [], []
    for pair in pairs:
        found, size = _curvature(s_of(pair), q_of(pair))
        if found > const.FACE_CURVATURE * size:
            usable.append(pair)
            curvature.append(found)
    if not usable:
        return None
    count, c = len(usable), np.array(curvature)
    against = lambda v: np.array([[float(s_of(pair) @ v), float(q_of(pair) @ v)] for pair in usable]).T
    sv, qv = against(right()) / tau
    table = [against(q_of(pair)) for pair in usable]
    products, squares = (np.stack([column[i] for column in table], axis=1) for i in range(2))
    products = np.where(lower_triangle(count), products, 0.0)
    # v - a @ q, scaled, and then + b @ s: of all these only the products with q are needed
    a = np.linalg.solve(products, sv)
    scale = c[0] / squares[0, 0] if squares[0, 0] > 0 else c[0]
    b = np.linalg.solve(products.T, c * a - scale * (qv - squares @ a))
    v = right() * (scale / tau)
    for pair, factor, weight in zip(usable, -scale * a, b, strict=True):
        v += factor * q_of(pair)
        v += weight * s_of(pair)
    return v


def _curvature(s: Vector, q: Vector) -> tuple[float, float]:
    """<s, q>, and |s| |q|."""
    return float(s @ q), float(s @ s) ** 0.5 * float(q @ q) ** 0.5


def minus(a: Vector, b: Vector) -> Vector:
    """a - b in the place of a, which nobody else needs; in another where it cannot be changed."""
    return np.subtract(a, b, out=a if a.flags.writeable else None)
