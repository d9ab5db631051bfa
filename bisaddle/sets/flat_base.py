"""FlatSet: a set over flat NumPy vectors, and what follows for every one of them from its oracles."""

import math
from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np

from bisaddle.sets.base import ConvexSet
from bisaddle.trees import Number

# (derivative of the projection) rows -> rows
Linear = Callable[[np.ndarray], np.ndarray]
# lengths whose squares, and the sums of these, neither overflow nor lose digits
_SMALL, _LARGE = 1e-130, 1e130
# entries beyond which a copy of a vector is too much
MANY = 2**17


class Face(NamedTuple):
    """How a projection moves with what it is given, at one place v: D is its derivative there.

    point: project(v). along(rows): each row's part in the range of D. bend(rows): (D^+ - I) row for rows in that range;
    None where `along` is D itself: the border of the set is flat there, or how it bends is not known. For v =
    z - tau G, a step of length tau down the gradient G of a function, bend / tau is what the curvature of the border
    adds to that of the function: the Newton step from z to a stationary point is the d along the face with
    (Hessian + bend / tau) d = D^+ d0 / tau, d0 = point - z. free: D is known to be the identity.
    """

    point: np.ndarray
    along: Linear
    bend: Linear | None = None
    free: bool = False


class FlatSet:
    """A set over flat NumPy vectors: the leaves of its pytree raveled and joined in tree order.

    of: the set; size: entries of the vector. The methods are those of ConvexSet: same answers, same errors, NaN in,
    NaN out, the dtype kept. Answers are new arrays. It is for the host: not for use inside jit.

        face(v)                 project(v), and how it moves with v
        project_error(v, p)     a bound on |p - P(v)|, where p = project(v) and P(v) is the exact projection
        prox_error(v, p, step)  likewise for p = prox(v, step)
        lmo_error(d, s)         a bound on <d, s> - min_{u in S} <d, u>, where s = lmo(d)
        error_is_bound          whether these three are bounds, for every oracle that the set has
        estimates               the oracles for which they are not: what these aim at, or what is seen from outside
    """

    def __init__(self, of: ConvexSet, size: int):
        self.of, self.size = of, size
        self.capabilities = of.capabilities
        self.estimates = of.estimates

    @property
    def blocks(self) -> "list[tuple[FlatSet, slice]]":
        """The innermost blocks of a Product and where they lie; a set that is none is its only block."""
        return [(self, slice(0, self.size))]

    def project(self, v: np.ndarray) -> np.ndarray:
        raise ValueError(self.of.missing("project"))

    def lmo(self, d: np.ndarray) -> np.ndarray:
        raise ValueError(self.of.missing("lmo"))

    def face(self, v: np.ndarray) -> Face:
        raise ValueError(self.of.missing("project"))

    def violation(self, v: np.ndarray) -> float:
        return length(v - self.project(v))

    def diameter(self) -> float:
        raise NotImplementedError

    def prox(self, v: np.ndarray, step: Number) -> np.ndarray:
        return self.project(v)

    def penalty(self, v: np.ndarray) -> float:
        return 0.0

    @property
    def error_is_bound(self) -> bool:
        return not self.estimates

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        return self.of.precision(p) * (length(v) + length(p))

    def prox_error(self, v: np.ndarray, p: np.ndarray, step: Number) -> float:
        return self.project_error(v, p)

    def lmo_error(self, d: np.ndarray, s: np.ndarray) -> float:
        return self.of.precision(s) * length(d) * (length(s) + self.diameter())

    def best_response(self, y: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        if "lmo" in self.capabilities:
            vertex = self.lmo(-gradient)
            return float(gradient.dot(vertex - y)), vertex
        steepness = length(gradient)
        step = self.diameter() / (steepness if steepness > 0 else 1.0)
        moved = self.project(y + step * gradient)
        away = moved - y
        return float(gradient.dot(away)) + steepness * length(away), moved

    def _require(self, oracle: str) -> None:
        if oracle not in self.capabilities:
            raise ValueError(self.of.missing(oracle))


def all_finite(v: np.ndarray) -> bool:
    """Whether no entry is NaN or infinite: argmin and argmax find a NaN first, and are quicker than np.isfinite."""
    return v.size == 0 or (math.isfinite(v[v.argmin()]) and math.isfinite(v[v.argmax()]))


def length(v: np.ndarray) -> float:
    """|v|, which overflows only if it has to."""
    divisor, scaled = scaled_length(v)
    return divisor * scaled


def scaled_length(v: np.ndarray) -> tuple[float, float]:
    """(divisor, |v / divisor|), the divisor 1 unless squares of v would overflow or vanish."""
    if not v.size:
        return 1.0, 0.0
    if v.size > MANY:
        largest = max(float(v.max()), -float(v.min()))
    else:
        sizes = np.abs(v)
        largest = float(sizes[sizes.argmax()])  # the first NaN, if there is one; argmax is several times as fast as max
    if _SMALL < largest < _LARGE and v.dtype == np.float64:
        return 1.0, math.sqrt(v.dot(v))
    if largest == 0 or not largest < math.inf:
        return 1.0, largest
    v = v.astype(np.float64) / largest
    return largest, math.sqrt(v.dot(v))


def slices(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, int, np.ndarray | None]:
    """How many slices along these axes an array has, of what size, and where in it the entries of each lie.

    None for these places: they lie one after the other.
    """
    size = prod(shape)
    if axes == tuple(range(len(shape))):
        return 1, size, None
    moved = np.moveaxis(np.arange(size).reshape(shape), axes, range(len(shape) - len(axes), len(shape)))
    places = moved.reshape(-1, prod(shape[a] for a in axes))
    return *places.shape, None if np.array_equal(places.ravel(), np.arange(size)) else places
