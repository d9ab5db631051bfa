"""What shows that a problem is not of its class: a direction along which g is not convex, or f not concave in y."""

from collections.abc import Callable
from itertools import pairwise

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from bisaddle.oracle.implicit import Implicit, norm, normal, unit
from bisaddle.oracle.kernels import LARGE, Kernels, Products, Upper, Vector
from bisaddle.oracle.spectra import krylov, least_vector, tridiagonal
from bisaddle.sets.flat import FlatSet
from bisaddle.trees import aligned

# products of Lanczos's method in search of a negative eigenvalue; with much data each is a pass over it
PRODUCTS, HEAVY_PRODUCTS = 64, 16
# a given mu_g may exceed the least curvature by this share: users round
SHARE = 1e-6
# points of Y among which f is tried for concavity: far ones, of which mixtures are made; directions close to each
FAR, HEAVY_FAR = 6, 2
NEAR, HEAVY_NEAR = 4, 2
# times as many close to y itself; and directions for an f that is quadratic in y, which needs them in one place only
FIRST = 4
ALL, HEAVY_ALL = 40, 16
# of the size of y or Y, for points close to it
CLOSE = 1e-2
# numbers in the differences of points that are taken at once
PAIRS = 2**20
# in units of rounding, what cancelling terms may leave
ROUNDINGS = 64
STRONGLY_CONVEX = "g has to be strongly convex in theta"


class Witness(eqx.Module):
    """direction, along which a second derivative is `curvature` (for a unit direction); needed: what it should be."""

    direction: PyTree
    curvature: float
    needed: str = eqx.field(static=True)


Found = tuple[Vector, float, str]


def lower_witness(solved: Implicit, mu_g: float | None, own: Vector, gradient_noise: float = 0.0) -> Found | None:
    """A direction v along which g is less convex than it has to be, confirmed by derivatives of g itself.

        v' g_theta_theta v < mu_g |v|^2 where mu_g was given;     v' g_theta_theta v <= 0, up to rounding, where not
        <g_theta(b) - g_theta(a), b - a> < 0, or g(b) < g(a) + <g_theta(a), b - a>, for v = b - a

    The first at theta*(x). With a matrix, by its eigenvalues. Else by inverse iteration, and by Lanczos's method from a
    random vector and from where conjugate gradients met a direction without curvature. With k products an eigenvalue
    that lies below all of the others by more than a share s of the spectrum's width is missed with a probability of at
    most 1.65 sqrt(n) exp(-sqrt(s) (2k - 1)) (Kuczynski and Wozniakowski): for n = 1000, k = 64 and s = 2 % it is 1e-6.
    The second for all pairs of places around theta*(x); own: the point's theta, one of them.
    """
    if not solved.kernels.has_lower:
        return None
    found, low = _less_convex(solved, mu_g)
    return found or _bent_elsewhere(solved, own, low, gradient_noise)


def _less_convex(solved: Implicit, mu_g: float | None) -> tuple[Found | None, Vector | None]:
    """A witness at theta*(x), or None; and the first of the directions, which others may begin with."""
    candidates = _low_directions(solved, mu_g)
    for v, largest in candidates:
        if v is None:
            continue
        v = v.astype(solved.kernels.dtype, copy=False)
        curvature = float(v @ solved.products_of(v).hessian[0]) / float(v @ v)
        lost = _lost(v.size, solved.kernels.eps, largest)
        if mu_g is not None and curvature < (1 - SHARE) * mu_g - lost:
            return (v, curvature, f"mu_g = {mu_g:.6g} was given"), v
        if mu_g is None and curvature <= lost:
            return (v, curvature, STRONGLY_CONVEX + _beyond(lost, largest) * (curvature > 0)), v
    return None, None if solved.theta.size > LARGE else candidates[0][0]


def _beyond(lost: float, largest: float) -> str:
    """For a curvature that is positive, as far as can be told."""
    return (
        f" beyond rounding, which is {lost:.1e} where the largest curvature is {largest:.1e} (other units of theta, a "
        "ridge term or float64 help)"
    )


def _low_directions(solved: Implicit, mu_g: float | None) -> list[tuple[Vector | None, float]]:
    """Directions along which the Hessian is small, each with its largest eigenvalue, as far as that is known."""
    kernels, hessian, size = solved.kernels, solved.hessian, solved.theta.size
    if hessian.dense:
        return [_least_of_matrix(hessian.matrix)]
    # before the others: where it is stopped, they begin; the estimate of mu_g has taken more passes
    lowest = hessian.lowest(1 if kernels.heavy or mu_g is None else 2, last=True)
    most = min(size, HEAVY_PRODUCTS if kernels.heavy else PRODUCTS)
    starts: list[tuple[Callable[[], Vector], int]] = [(lambda: normal(solved.theta, 7), most)]
    if hessian.stopped is not None:
        begin, products = hessian.stopped
        starts.append((lambda: begin, min(size, products + 1)))
    found = [_least_of_products(hessian.product, start, most, mu_g or 0.0) for start, most in starts]
    if norm(lowest) > 0:  # not 0, nor NaN
        found.append((lowest, found[0][1]))
    return found


def _bent_elsewhere(solved: Implicit, own: Vector, low: Vector | None, noise: float) -> Found | None:
    """A pair of places between which g is not convex: theta*(x), the point's own theta, and some around them.

    For a second basin: where there is one theta*(x) need not be the least.
    """
    theta, kernels = solved.theta, solved.kernels
    if theta.size > LARGE:
        return _bent_on_the_way(solved, own, noise)
    tried = _Tried(lambda theta: _turned(solved.products_of(solved.w, theta=theta)), kernels.eps)
    tried.add(theta, _turned(solved.products))
    size = 1 + norm(theta)
    at_random = size * unit(normal(theta, 11))
    places = [-theta if norm(theta) > 0 else at_random, theta + at_random]
    if not kernels.quadratic:  # or it bends everywhere as it does here
        others = [size * unit(v) for v in (low, solved.w) if v is not None and not kernels.heavy]
        others += [] if kernels.heavy else [0.3 * at_random, 3 * at_random]
        places += [np.zeros_like(theta), own, *(theta + sign * v for v in others for sign in (1, -1))]
    for place in places:
        tried.add(place.astype(theta.dtype))
    found = tried.upward(noise)
    return None if found is None else (found[0].astype(theta.dtype), -found[1], STRONGLY_CONVEX)


def _bent_on_the_way(solved: Implicit, own: Vector, noise: float) -> Found | None:
    """The same from theta*(x) to a few places, of which one is kept at a time: theta is large."""
    theta, here = solved.theta, _turned(solved.products)

    def away(start: Vector | float) -> Vector:
        v = normal(theta, 11)
        v *= v.dtype.type((1 + norm(theta)) / norm(v))
        v += start
        return v

    opposite = lambda: aligned(np.negative, theta) if norm(theta) > 0 else away(0.0)
    for place in (opposite, lambda: away(theta), lambda: own):
        tried = _Tried(lambda theta: _turned(solved.products_of(solved.w, theta=theta)), solved.kernels.eps)
        tried.add(theta, here)
        tried.add(place())
        if (found := tried.upward(noise)) is not None:
            return found[0], -found[1], STRONGLY_CONVEX
        del tried  # before the next place is made
    return None


def _turned(products: Products) -> tuple[float, Vector]:
    """-g, which has to be concave."""
    return -products.value, aligned(np.negative, products.g_theta)


def _least_of_matrix(matrix: Vector) -> tuple[Vector | None, float]:
    """A unit vector along which the matrix is least, and its largest eigenvalue."""
    if not np.all(np.isfinite(matrix)):
        return None, np.nan
    values, vectors = np.linalg.eigh(matrix)
    return vectors[:, 0], float(values[-1])


def _lost(size: int, eps: float, largest: float) -> float:
    """Rounding of a quotient v' H v / v' v, by the largest eigenvalue of H."""
    return 8 * size**0.5 * eps * largest


def _least_of_products(
    product: Callable, begin: Callable[[], Vector], limit: int, below: float
) -> tuple[Vector | None, float]:
    """A vector along which it is small, and the largest value; of a large map none where none is so small."""
    start = begin()
    if start.size > LARGE:
        size, eps = start.size, float(np.finfo(start.dtype).eps)
        del start
        return least_vector(product, begin, limit, lambda most: below + 2 * _lost(size, eps, most))
    *_, space = krylov(product, start.size, start.dtype, limit, start)
    if not np.all(np.isfinite([space.diagonal, space.off])):
        return None, np.nan
    v, largest = _least_of_matrix(tridiagonal(space.diagonal, space.off[:-1]))
    return None if v is None else v @ space.basis, largest


def upper_witness(
    kernels: Kernels, x: Vector, theta: Vector, y: Vector, here: Upper, gradient_noise: float = 0.0
) -> tuple[Found | None, float]:
    """A direction between two points of Y along which f is convex, and the largest value of f - h that was met.

    For concave f, <f_y(b) - f_y(a), b - a> <= 0 and f(b) <= f(a) + <f_y(a), b - a> for all a and b in Y. Both are tried
    for every pair of: y, its best response, points far apart, and points close to y, to those and to means of them, in
    directions that follow the curvature of f (a Krylov space of f_yy, from differences of f_y). Where f bends most is
    followed to the border of Y, and looked around there. What is no more than rounding does not count. An f that is
    linear in y, as its program tells, has only its values looked at, and one that is quadratic all of its curvature in
    one place.
    """
    y_set = kernels.y_set
    if y_set is None:
        return None, -np.inf

    terms = [0.0]  # not of `tried`, which would hold itself by this function, and a large theta until later

    def evaluate(y: Vector) -> tuple[float, Vector]:
        found = kernels.upper(x, theta, y)
        # of this order are the terms of f, which may cancel in its value and in f_y
        terms.append(norm(found.f_x) * norm(x) + norm(found.f_theta) * norm(theta))
        return found.value, found.f_y

    tried = _Tried(evaluate, kernels.eps)
    if tried.add(y, (here.value, here.f_y)) is None:
        return None, -np.inf
    points = [y_set.best_response(y, here.f_y)[1], *_far_points(y_set, y, HEAVY_FAR if kernels.heavy else FAR)]
    for point in points:
        tried.add(point)
    if not kernels.linear_in_y:
        _look_for_curvature(kernels, tried, y_set, y, points)
    found = tried.upward(gradient_noise, max(terms))
    penalties = [y_set.penalty(point) for point in tried.points]
    highest = float(np.max(np.array(tried.values) - penalties))
    return None if found is None else (found[0].astype(kernels.dtype), found[1], "f has to be concave in y"), highest


def _look_for_curvature(kernels: Kernels, tried: "_Tried", y_set: FlatSet, y: Vector, points: list[Vector]) -> None:
    """Points close to y, to the others and to means of them, and where f bends most of all."""
    # of the simplex and others like it the first is on no side, and so is the mean
    middle = np.mean([y_set.project(np.zeros_like(y)), y, *points], axis=0).astype(y.dtype)
    length = min(y_set.diameter(), 1.0 + norm(y))
    if (
        kernels.quadratic_in_y
    ):  # it bends everywhere alike: one place with room on all sides, and all that is seen there
        count = HEAVY_ALL if kernels.heavy else ALL
        _look_around(tried, y_set, middle, middle, kernels.eps**0.25 * length, count)
        return
    centres = [y] if kernels.heavy else [y, *points]
    # each far point mixed with the one before it and with y
    centres += [(0.2 * y + 0.3 * a + 0.5 * b).astype(y.dtype) for a, b in pairwise(points)]
    count = HEAVY_NEAR if kernels.heavy else NEAR
    looks = [
        _look_around(tried, y_set, centre, middle, CLOSE * length, count * (FIRST if i == 0 else 1))
        for i, centre in enumerate(centres)
    ]
    most = max((look for look in looks if look is not None), key=lambda look: look[0], default=None)
    if most is None:
        return
    for end in _ends(y_set, y, most[1]):
        tried.add(end)
        if not kernels.heavy:
            _look_around(tried, y_set, end, middle, CLOSE * length, count)


class _Tried:
    """Places with the value and the gradient there of a function that should be concave: evaluate gives both."""

    def __init__(self, evaluate: Callable[[Vector], tuple[float, Vector]], eps: float):
        self.evaluate, self.eps = evaluate, eps
        self.points: list[Vector] = []
        self.values: list[float] = []
        self.gradients: list[Vector] = []

    def add(self, point: Vector, known: tuple[float, Vector] | None = None) -> Vector | None:
        """The gradient there; None where the function is no number, which is not a question of concavity."""
        value, gradient = known or self.evaluate(point)
        if not (np.isfinite(value) and np.all(np.isfinite(gradient))):
            return None
        self.points.append(point)
        self.values.append(value)
        self.gradients.append(gradient)
        return gradient

    def upward(self, noise: float, terms: float = 0.0) -> tuple[Vector, float] | None:
        """Unit direction and curvature of the pair that contradicts concavity most clearly; noise: in gradients.

        terms: the order of the largest term of the function, if it is known; rounding of it is no curvature.
        """
        if len(self.points) < 2:
            return None
        values, (lengths, slopes) = np.array(self.values), self._pairs()
        sizes = np.array([norm(gradient.astype(np.float64, copy=False)) for gradient in self.gradients])
        rounding = self.eps ** (2 / 3)
        doubt = (rounding * (sizes[:, None] + sizes[None]) + 10 * noise) * lengths + ROUNDINGS * self.eps * terms
        # <f_y(b) - f_y(a), b - a>, and twice what f(b) has above its tangent at a: |b - a|^2 times a curvature each
        bends = -slopes.T - slopes - doubt
        heights = np.abs(values)
        above = values[None] - values[:, None] - slopes - rounding * (heights[None] + heights[:, None])
        excess = np.maximum(bends, 2 * (above - doubt))
        excess[lengths == 0] = -np.inf
        a, b = np.unravel_index(int(np.argmax(excess)), excess.shape)
        if not excess[a, b] > 0:
            return None
        return (self.points[b] - self.points[a]) / lengths[a, b], float(excess[a, b] / lengths[a, b] ** 2)

    def _pairs(self) -> tuple[Vector, Vector]:
        """[a, b]: |b - a|, and <gradient at a, b - a>."""
        count = len(self.points)
        lengths, slopes = np.empty((2, count, count))
        if self.points[0].size > min(LARGE, PAIRS // count):  # one at a time
            for a, b in np.ndindex(count, count):
                away = self.points[b].astype(np.float64, copy=False) - self.points[a]
                lengths[a, b], slopes[a, b] = norm(away), float(away @ self.gradients[a])
            return lengths, slopes
        points, gradients = (np.stack(rows).astype(np.float64) for rows in (self.points, self.gradients))
        rows = max(1, PAIRS // points.size)  # at once
        for i in range(0, count, rows):
            away = points[None] - points[i : i + rows, None]  # [a, b] = b - a
            lengths[i : i + rows] = np.sqrt(np.einsum("abi,abi->ab", away, away))
            slopes[i : i + rows] = np.einsum("ai,abi->ab", gradients[i : i + rows], away)
        return lengths, slopes


def _far_points(y_set: FlatSet, y: Vector, count: int) -> list[Vector]:
    return [_end(y_set, y, normal(y, 20 + i)) for i in range(count)]


def _ends(y_set: FlatSet, y: Vector, direction: Vector) -> list[Vector]:
    return [_end(y_set, y, direction), _end(y_set, y, -direction)]


def _end(y_set: FlatSet, y: Vector, direction: Vector) -> Vector:
    """A point of Y as far as can be against the direction."""
    if "lmo" in y_set.capabilities:
        return y_set.lmo(direction)
    return y_set.project(y - y.dtype.type(10 * y_set.diameter()) * unit(direction))


def _look_around(
    tried: _Tried, y_set: FlatSet, y: Vector, middle: Vector, length: float, count: int
) -> tuple[float, Vector] | None:
    """Points of Y close to y: along random directions and the changes of f_y, and where these show f to bend most.

    That direction is given back, with the curvature along it.
    """
    length = y.dtype.type(length)
    # a little way inside, so that there is room on all sides
    inward = middle - y
    centre = y + inward * min(1.0, 2 * length / max(norm(inward), np.finfo(y.dtype).tiny))
    base = tried.add(centre)
    if base is None:
        return None
    aways: list[Vector] = []
    changes: list[Vector] = []

    def look(direction: Vector) -> None:
        point = y_set.project(centre + length * unit(direction))
        gradient = tried.add(point)
        if gradient is not None and norm(point - centre) > 1e-3 * length:  # or it leads out of Y, and rounding is left
            aways.append(point - centre)
            changes.append(gradient - base)

    for i in range(min(count, y.size)):
        following = _outside(aways, changes[-1]) if changes else normal(y, 7)
        look(following if norm(following) > 0 else _outside(aways, normal(y, 8 + i)))
    if not aways:
        return None
    # f_yy on the span of the moves, where it maps each of them to its change of f_y
    basis, triangle = np.linalg.qr(np.stack(aways).T)
    bend = basis.T @ np.stack(changes).T @ np.linalg.pinv(triangle)
    values, vectors = np.linalg.eigh(0.5 * (bend + bend.T))
    look(basis @ vectors[:, -1])
    return float(values[-1]), basis @ vectors[:, -1]


def _outside(vectors: list[Vector], v: Vector) -> Vector:
    """The part of v that is orthogonal to the others; 0 where that is rounding."""
    if not vectors:
        return v
    basis, _ = np.linalg.qr(np.stack(vectors).T)
    rest = v - basis @ (basis.T @ v)
    rest = rest - basis @ (basis.T @ rest)
    return rest if norm(rest) > 1e3 * np.finfo(v.dtype).eps * norm(v) else np.zeros_like(v)
