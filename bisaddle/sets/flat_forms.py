"""The simplex, the norm balls and the box over flat float64 vectors, in NumPy: nothing is compiled."""

import math
from functools import cached_property
from math import prod

import numpy as np

from bisaddle.sets import flat_base
from bisaddle.sets.balls import L1Ball, L2Ball, LinfBall
from bisaddle.sets.base import Leaf, VectorSet, slice_axes
from bisaddle.sets.box import Box
from bisaddle.sets.capped import UnitSimplex
from bisaddle.sets.flat_base import Face, FlatSet, Linear, all_finite, length, scaled_length, slices
from bisaddle.sets.simplex import Simplex

# sizes up to which a loop over Python's floats, or a sort, finds the threshold of a simplex fastest
_LOOP, _SORT = 32, 500
_EPS = float(np.finfo(np.float64).eps)


class ClosedForm(FlatSet):
    """The form of a set whose oracles are closed: their errors are a few roundings of what they are given and give.

    Of sums over n entries, rounding errors add up to about sqrt(n) of them.
    """

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        return self.rounding * (length(v) + length(p))

    def lmo_error(self, d: np.ndarray, s: np.ndarray) -> float:
        return self.rounding * length(d) * length(s)

    @property
    def rounding(self) -> float:
        return (16 + math.sqrt(self.size)) * _EPS


class VectorForm(ClosedForm):
    """The form of a VectorSet: one vector, or the slices of an array as rows, each a vector of its own.

    A subclass writes one_project and one_lmo for a vector, each_project and each_lmo for an array of rows, and
    derivative(v, p), with p = project(v), for both: a function of tangents with more axes in front.
    """

    def __init__(self, of: VectorSet, shape: tuple[int, ...]):
        super().__init__(of, prod(shape))
        self.count, self.length, self.places = slices(shape, slice_axes(of, len(shape)))
        self.one = self.count == 1 and self.places is None

    def rows(self, v: np.ndarray) -> np.ndarray:
        """(..., size) -> (..., slices, size of a slice)"""
        return v.reshape(*v.shape[:-1], self.count, self.length) if self.places is None else v[..., self.places]

    def flat(self, rows: np.ndarray) -> np.ndarray:
        if self.places is None:
            return rows.reshape(*rows.shape[:-2], self.size)
        v = np.empty((*rows.shape[:-2], self.size), rows.dtype)
        v[..., self.places] = rows
        return v

    def project(self, v: np.ndarray) -> np.ndarray:
        return self._answer(self.one_project, self.each_project, v)

    def lmo(self, d: np.ndarray) -> np.ndarray:
        return self._answer(self.one_lmo, self.each_lmo, d)

    def _answer(self, one: Linear, each: Linear, v: np.ndarray) -> np.ndarray:
        if self.one:
            return one(v) if all_finite(v) else np.full(v.shape, np.nan)
        with np.errstate(all="ignore"):
            rows = self.rows(v)
            spoilt = (0.0 * rows).sum(axis=-1, keepdims=True)  # 0, or NaN
            return self.flat(each(np.where(spoilt == 0, rows, 0.0)) + spoilt)

    def face(self, v: np.ndarray) -> Face:
        p = self.project(v)
        if self.one:
            return Face(p, self.derivative(v, p))
        with np.errstate(all="ignore"):
            inside = self.derivative(self.rows(v), self.rows(p))
        return Face(p, lambda rows: self.flat(inside(self.rows(rows))))

    def diameter(self) -> float:
        return self.one_diameter() * math.sqrt(self.count)

    def one_project(self, v: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def one_lmo(self, d: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def one_diameter(self) -> float:
        raise NotImplementedError

    def each_project(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self.one_project(row) for row in rows])

    def each_lmo(self, rows: np.ndarray) -> np.ndarray:
        return np.stack([self.one_lmo(row) for row in rows])

    def derivative(self, v: np.ndarray, p: np.ndarray) -> Linear:
        raise NotImplementedError


class RadiusForm(VectorForm):
    """The form of a VectorSet whose only size is its radius."""

    def __init__(self, of: Simplex | UnitSimplex | L1Ball | L2Ball, shape: tuple[int, ...], dtype: np.dtype):
        super().__init__(of, shape)
        self.radius = in_dtype(of.radius, dtype)


class VertexForm(RadiusForm):
    """A set whose extreme points are 0 but for one entry.

    A subclass writes best(rows), the place of that entry for directions, and value(entries), what stands there, for the
    entries of the directions at these places.
    """

    def best(self, rows: np.ndarray) -> np.ndarray | np.integer:
        return rows.argmin(axis=-1)

    def value(self, entries: np.ndarray | np.floating) -> np.ndarray | float:
        return self.radius

    def one_lmo(self, d: np.ndarray) -> np.ndarray:  # not by each_lmo, whose indexing takes ten times as long
        place = self.best(d)
        vertex = np.zeros(d.shape)
        vertex[place] = self.value(d[place])
        return vertex

    def each_lmo(self, rows: np.ndarray) -> np.ndarray:
        places = np.arange(len(rows)), self.best(rows)
        entries = rows[places]
        vertices = np.zeros(rows.shape)
        vertices[places] = self.value(entries)
        return vertices


class SimplexForm(VertexForm):
    """Simplex: v - t where it is positive, t by a sort or by Newton's method."""

    def one_project(self, v: np.ndarray) -> np.ndarray:
        return nearest_on_simplex(v, self.radius)

    def each_project(self, rows: np.ndarray) -> np.ndarray:
        return nearest_on_simplices(rows, self.radius)

    def one_diameter(self) -> float:
        return math.sqrt(2.0) * self.radius if self.length > 1 else 0.0

    def derivative(self, v: np.ndarray, p: np.ndarray) -> Linear:
        return centring((p > 0).astype(np.float64))


class UnitSimplexForm(SimplexForm):
    """UnitSimplex: a clip, or the simplex."""

    def one_project(self, v: np.ndarray) -> np.ndarray:
        clipped = np.maximum(v, 0.0)
        return clipped if sums_to_at_most(clipped, self.radius) else nearest_on_simplex(v, self.radius)

    def each_project(self, rows: np.ndarray) -> np.ndarray:
        clipped = np.maximum(rows, 0.0)
        inside = clipped.sum(axis=-1, keepdims=True) <= self.radius
        return np.where(inside, clipped, nearest_on_simplices(rows, self.radius))

    def value(self, entries: np.ndarray | np.floating) -> np.ndarray | float:
        return np.where(entries < 0, self.radius, 0.0)

    def one_diameter(self) -> float:
        return math.sqrt(2.0 if self.length > 1 else 1.0) * self.radius

    def derivative(self, v: np.ndarray, p: np.ndarray) -> Linear:
        inside = np.maximum(v, 0.0).sum(axis=-1, keepdims=True) <= self.radius
        passed = 0.5 * (1 + np.sign(v))  # of a clip, at a tie the half of both sides, as JAX has it
        centred = centring((p > 0).astype(np.float64))
        return lambda rows: np.where(inside, passed * rows, centred(rows))


class L1Form(VertexForm):
    """L1Ball: the simplex, on absolute values."""

    def one_project(self, v: np.ndarray) -> np.ndarray:
        sizes = np.abs(v)
        if sums_to_at_most(sizes, self.radius):
            return v.copy()
        p = nearest_on_simplex(sizes, self.radius)
        p *= np.sign(v)
        return p

    def each_project(self, rows: np.ndarray) -> np.ndarray:
        sizes = np.abs(rows)
        outside = np.sign(rows) * nearest_on_simplices(sizes, self.radius)
        return np.where(sizes.sum(axis=-1, keepdims=True) <= self.radius, rows, outside)

    def best(self, rows: np.ndarray) -> np.ndarray | np.integer:
        return np.abs(rows).argmax(axis=-1)

    def value(self, entries: np.ndarray | np.floating) -> np.ndarray | float:
        return np.where(entries > 0, -self.radius, self.radius)

    def one_diameter(self) -> float:
        return 2 * self.radius

    def derivative(self, v: np.ndarray, p: np.ndarray) -> Linear:
        sizes = np.abs(v)
        inside = (sizes.max(axis=-1, keepdims=True) <= self.radius) & (
            np.minimum(sizes, 2 * self.radius).sum(axis=-1, keepdims=True) <= self.radius
        )
        signs, centred = np.sign(v), centring((p != 0).astype(np.float64))
        return lambda rows: np.where(inside, rows, signs * centred(signs * rows))


class L2Form(RadiusForm):
    """L2Ball and FreeBall: a rescaling."""

    def one_project(self, v: np.ndarray) -> np.ndarray:
        divisor, scaled = scaled_length(v)
        if divisor * scaled <= self.radius:
            return v.copy()
        return self._to_sphere(v, divisor, scaled)

    def _to_sphere(self, v: np.ndarray, divisor: float, scaled: float) -> np.ndarray:
        # not v times the quotient of the numbers, which may underflow
        p = v / scaled if divisor == 1 else v / divisor / scaled
        p *= self.radius
        return p

    def each_project(self, rows: np.ndarray) -> np.ndarray:
        units, lengths = directions(rows)
        return np.where(lengths <= self.radius, rows, self.radius * units)

    def one_lmo(self, d: np.ndarray) -> np.ndarray:
        divisor, scaled = scaled_length(d)
        if scaled == 0:
            vertex = np.zeros(d.shape)
            vertex[0] = self.radius
            return vertex
        return self._to_sphere(-d, divisor, scaled)

    def each_lmo(self, rows: np.ndarray) -> np.ndarray:
        units, lengths = directions(rows)
        return self.radius * np.where(lengths == 0, np.arange(self.length) == 0, -units)

    def one_diameter(self) -> float:
        return 2 * self.radius

    def face(self, v: np.ndarray) -> Face:
        p = self.project(v)
        if self.one and np.array_equal(p, v):  # inside: all directions are free, and nothing bends
            return Face(p, np.array, free=True)
        with np.errstate(all="ignore"):
            alone = self.one and v.size > flat_base.MANY  # with fewer copies of it
            units, factors = self._border(v, p) if alone else self._border(self.rows(v), self.rows(p))
        along = lambda rows: self.flat(_across(self.rows(rows), units))
        return Face(p, along, lambda rows: self.flat((1 / factors - 1) * self.rows(rows)))

    def _border(self, v: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray | float]:
        """The unit normals where v projects on the sphere, 0 inside, and the factors radius / |v|, 1 inside."""
        if v.ndim == 1:
            divisor, scaled = scaled_length(v)
            if divisor * scaled <= self.radius:
                return np.zeros_like(v), 1.0
            return p / self.radius, self.radius / divisor / scaled
        units, lengths = directions(v)
        inside = lengths <= self.radius
        return np.where(inside, 0.0, units), np.where(inside, 1.0, self.radius / lengths)


class BoxForm(FlatSet):
    """Box and LinfBall: a clip, which rounds nothing."""

    def __init__(self, of: Box | LinfBall, shape: tuple[int, ...], dtype: np.dtype):
        super().__init__(of, prod(shape))
        lower, upper = (of.lower, of.upper) if isinstance(of, Box) else (-np.asarray(of.radius), of.radius)
        # one number for all entries stays one
        alike = lambda bound: shape if np.ndim(bound) else (1,)
        entries = lambda bound: np.broadcast_to(np.asarray(bound, dtype), alike(bound)).reshape(-1).astype(np.float64)
        self.lower, self.upper = entries(lower), entries(upper)

    def project(self, v: np.ndarray) -> np.ndarray:
        p = np.maximum(v, self.lower)
        return self._or_nan(np.minimum(p, self.upper, out=p), v)

    def lmo(self, d: np.ndarray) -> np.ndarray:
        return self._or_nan(np.where(d > 0, self.lower, self.upper), d)

    def _or_nan(self, answer: np.ndarray, v: np.ndarray) -> np.ndarray:
        return answer if all_finite(v) else np.where(np.isfinite(v), answer, np.nan)

    def face(self, v: np.ndarray) -> Face:
        # 1 inside, 0 outside, at a tie the half of both sides, as JAX has it
        weights, above = v - self.lower, self.upper - v
        for side in (weights, above):  # in place: a large v has little room
            np.sign(side, out=side)
            side += 1
        weights *= above
        weights *= 0.25
        del side, above
        if v.size > flat_base.MANY:
            weights = weights.astype(np.float16)  # which has 0, 1/2 and 1, and an exact product with every other float
        return Face(self.project(v), lambda rows: rows * weights, free=bool(weights[weights.argmin()] == 1))

    def diameter(self) -> float:
        return self._diameter

    @cached_property
    def _diameter(self) -> float:
        return length(np.broadcast_to(self.upper - self.lower, self.size).copy())

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        return 0.0

    def lmo_error(self, d: np.ndarray, s: np.ndarray) -> float:
        return 0.0


def _across(rows: np.ndarray, units: np.ndarray) -> np.ndarray:
    """rows without their parts along the units."""
    if rows.size > flat_base.MANY:  # with as little else as can be
        away = units * np.einsum("...i,...i->...", rows, units)[..., None]
        return np.subtract(rows, away, out=away)
    return rows - units * (units * rows).sum(axis=-1, keepdims=True)


def in_dtype(size: Leaf, dtype: np.dtype) -> float:
    """A size of the set as JAX sees it: in the dtype of the vectors."""
    return float(np.asarray(size).astype(dtype))


def sums_to_at_most(v: np.ndarray, radius: float) -> bool:
    """For v >= 0; a sum of entries that exceed the radius is not formed: it could overflow."""
    return bool(v[v.argmax()] <= radius and np.add.reduce(v) <= radius)


def nearest_on_simplex(v: np.ndarray, radius: float) -> np.ndarray:
    """max(v - t, 0) with t the root of sum max(v - t, 0) = radius; every number formed is within radius of 0."""
    if v.size > _SORT:
        p = v - float(v[v.argmax()])
        left, before, t = p[p > -radius], v.size + 1, -radius
        while left.size < before:  # Newton's method from the left: what is not positive once never becomes so again
            before = left.size
            t = (float(np.add.reduce(left)) - radius) / before
            left = left[left > t]
    else:
        ascending = v.copy()
        ascending.sort()
        top = float(ascending[-1])
        if v.size > _LOOP:
            descending = ascending[::-1] - top
            means = np.add.accumulate(descending)
            means -= radius
            means /= np.arange(1.0, v.size + 1)
            count = int(means.argmax()) + 1
            t = (float(np.add.reduce(descending[:count])) - radius) / count  # in pairs, which rounds less
        else:
            t, total, count = -math.inf, 0.0, 0
            for entry in reversed(ascending.tolist()):
                entry -= top
                if entry <= t:
                    break
                total += entry
                count += 1
                t = (total - radius) / count
        p = v - top
    p -= t
    return np.maximum(p, 0.0, out=p)


def nearest_on_simplices(rows: np.ndarray, radius: float) -> np.ndarray:
    """nearest_on_simplex for every row, by one sort of each."""
    ascending = np.sort(rows, axis=-1)
    top = ascending[..., -1:]
    means = np.add.accumulate(np.maximum(ascending[..., ::-1] - top, -radius), axis=-1)
    t = ((means - radius) / np.arange(1.0, rows.shape[-1] + 1)).max(axis=-1, keepdims=True)
    return np.maximum(rows - top - t, 0.0)


def centring(active: np.ndarray) -> Linear:
    """rows -> rows minus their mean over the active entries, and 0 at the others."""
    share = active / np.maximum(active.sum(axis=-1, keepdims=True), 1)
    return lambda rows: active * (rows - (share * rows).sum(axis=-1, keepdims=True))


def directions(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """row / |row| and |row|, for every row."""
    divisor = np.abs(rows).max(axis=-1, keepdims=True)
    divisor = np.where((divisor > 0) & (divisor < math.inf), divisor, 1.0)
    rows = rows / divisor
    scaled = np.sqrt(np.square(rows).sum(axis=-1, keepdims=True))
    return rows / np.where(scaled == 0, 1.0, scaled), divisor * scaled
