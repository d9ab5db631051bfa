"""The direction of a step for a large x: the same as in coordinates.py, in few copies of x.

Pairs are kept in float32, and vectors in the face are made anew wherever they are needed, one or two at a time: what
they are asked for is their products with each other, and one sum of them.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import Pair, Space, lower_triangle, outward
from bisaddle.oracle.kernels import Vector
from bisaddle.sets.flat import FlatSet
from bisaddle.sets.flat_base import Linear
from bisaddle.trees import stepped


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
    face = space.face(stepped(z, -tau, Gz))
    d0 = face.point - z
    if not pairs:
        return d0, d0
    inside = _InFace(face.along, face.bend, tau, d0.dtype)
    del face
    newton = _two_loops(inside, d0, list(pairs), tau)
    if newton is None:
        return d0, d0
    in_face = inside.along(d0)
    t = outward(newton, in_face, d0) if inside.bend is None else 0.0
    newton -= in_face
    del in_face
    newton += d0 if t == 0 else (1 - t) * d0
    if t:
        newton -= (t * tau) * Gz
    newton += z
    del inside  # it holds what it needs of the face
    return d0, minus(space.project(newton), z)


class _InFace:
    """Pairs as they are in a face: E s, and q = E q + K E s / tau in two terms, of which one is there at a time."""

    def __init__(self, along: Linear, bend: Linear | None, tau: float, dtype: np.dtype):
        self.linear, self.bend, self.tau, self.dtype = along, bend, tau, dtype

    def along(self, v: Vector) -> Vector:
        return self.linear(v[None])[0]

    def s(self, pair: Pair) -> Vector:
        return self.along(pair[0].full(self.dtype))

    def q_terms(self, pair: Pair) -> Iterator[Vector]:
        if self.bend is not None:
            yield scaled(self.bend(self.s(pair)[None])[0], 1 / self.tau)
        yield self.along(pair[1].full(self.dtype))

    def q(self, pair: Pair) -> Vector:
        return _sum(self.q_terms(pair))

    def against(self, pair: Pair, v: Vector) -> tuple[float, float]:
        """<s, v> and <q, v>."""
        # map, unlike a comprehension, has let go of a term when it asks for the next
        return float(self.s(pair) @ v), sum(map(lambda term: float(term @ v), self.q_terms(pair)))

    def right(self, d0: Vector) -> Vector:
        """E d0 + K E d0"""
        v = self.along(d0)
        return v if self.bend is None else _sum(iter((v, self.bend(v[None])[0])))


def _two_loops(inside: _InFace, d0: Vector, pairs: list[Pair], tau: float) -> Vector | None:
    """B right / tau as coordinates.two_loops has it, over the pairs with curvature; None if there is none."""
    usable, curvature = [], []
    for pair in pairs:
        square, found = inside.against(pair, inside.s(pair))
        q = inside.q(pair)
        size = square**0.5 * float(q @ q) ** 0.5
        del q
        if found > const.FACE_CURVATURE * size:
            usable.append(pair)
            curvature.append(found)
    if not usable:
        return None
    count, c = len(usable), np.array(curvature)
    against = lambda v: np.array([inside.against(pair, v) for pair in usable]).T
    sv, qv = against(inside.right(d0)) / tau
    table = [against(inside.q(pair)) for pair in usable]
    products, squares = (np.stack([column[i] for column in table], axis=1) for i in range(2))
    products = np.where(lower_triangle(count), products, 0.0)
    # v - a @ q, scaled, and then + b @ s: of all these only the products with q are needed
    a = np.linalg.solve(products, sv)
    scale = c[0] / squares[0, 0] if squares[0, 0] > 0 else c[0]
    b = np.linalg.solve(products.T, c * a - scale * (qv - squares @ a))
    v = scaled(inside.right(d0), scale / tau)
    for pair, factor, weight in zip(usable, -scale * a, b, strict=True):
        for term in inside.q_terms(pair):
            v += scaled(term, factor)
            del term  # before the next is made
        v += scaled(inside.s(pair), weight)
    return v


def _sum(terms: Iterator[Vector]) -> Vector:
    """Of one or two vectors that nobody else needs."""
    total = next(terms)
    for term in terms:
        total = np.add(total, term, out=term if term.flags.writeable else None)
    return total


def plain_direction(space: "Space | FlatSet", z: Vector, Gz: Vector, tau: float) -> Vector:
    """d0 alone."""
    return minus(space.project(stepped(z, -tau, Gz)), z)


def scaled(v: Vector, factor: float) -> Vector:
    """factor * v in the place of v, likewise."""
    return np.multiply(v, v.dtype.type(factor), out=v if v.flags.writeable else None)


def minus(a: Vector, b: Vector) -> Vector:
    """a - b in the place of a, which nobody else needs; in another where it cannot be changed."""
    return np.subtract(a, b, out=a if a.flags.writeable else None)
