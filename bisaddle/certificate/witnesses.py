"""What shows that a problem is not of its class: a direction along which g is not convex, or f not concave in y."""

from itertools import pairwise

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from bisaddle.oracle.implicit import Implicit, norm, normal, unit
from bisaddle.oracle.kernels import Kernels, Upper, Vector
from bisaddle.oracle.spectra import krylov
from bisaddle.sets.flat import FlatSet

# products of Lanczos's method in search of a negative eigenvalue; with much data each is a pass over it
PRODUCTS, HEAVY_PRODUCTS = 64, 16
# a given mu_g may exceed the least curvature by this share: users round
SHARE = 1e-6
# points of Y among which f is tried for concavity: far ones, of which mixtures are made; directions close to each
FAR, HEAVY_FAR = 6, 2
NEAR, HEAVY_NEAR = 4, 2
# of the way from y to other points, for those close to it
CLOSE = 1e-2


class Witness(eqx.Module):
    """direction, along which a second derivative is `curvature` (for a unit direction); needed: what it should be."""

    direction: PyTree
    curvature: float
    needed: str = eqx.field(static=True)


Found = tuple[Vector, float, str]


def lower_witness(solved: Implicit, mu_g: float | None) -> Found | None:
    """A direction v along which g is less convex than it has to be, confirmed by a product of g's own derivatives.

        v' g_theta_theta v < mu_g |v|^2 where mu_g was given;     v' g_theta_theta v <= 0, up to rounding, where not

    With a matrix, by its eigenvalues. Else by Lanczos's method, from a random vector and from where conjugate gradients
    met a direction without curvature. With k products an eigenvalue that lies below all of the others by more than a
    share s of the spectrum's width is missed with a probability of at most 1.65 sqrt(n) exp(-sqrt(s) (2k - 1))
    (Kuczynski and Wozniakowski): for n = 1000, k = 64 and s = 2 % it is 1e-6.
    """
    kernels, hessian = solved.kernels, solved.hessian
    if not kernels.has_lower:
        return None
    size, eps = solved.theta.size, kernels.eps
    if hessian.dense:
        candidates = [_least_of_matrix(hessian.matrix)]
    else:
        limit = min(size, HEAVY_PRODUCTS if kernels.heavy else PRODUCTS)
        starts = [(normal(solved.theta, 7), limit)]
        if hessian.stopped is not None:
            starts.append((hessian.stopped[0], min(size, hessian.stopped[1] + 1)))
        candidates = [_least_of_products(hessian.product, start, most) for start, most in starts]
    for v, largest in candidates:
        if v is None:
            continue
        v = v.astype(kernels.dtype)
        curvature = float(v @ solved.products_of(v).hessian[0]) / float(v @ v)
        lost = 8 * size**0.5 * eps * largest  # rounding of that quotient
        if mu_g is not None and curvature < (1 - SHARE) * mu_g - lost:
            return v, curvature, f"mu_g = {mu_g:.6g} was given"
        if mu_g is None and curvature <= lost:
            return v, curvature, "g has to be strongly convex in theta"
    return None


def _least_of_matrix(matrix: Vector) -> tuple[Vector | None, float]:
    """A unit vector along which the matrix is least, and its largest eigenvalue."""
    if not np.all(np.isfinite(matrix)):
        return None, np.nan
    values, vectors = np.linalg.eigh(matrix)
    return vectors[:, 0], float(values[-1])


def _least_of_products(product, start: Vector, limit: int) -> tuple[Vector | None, float]:
    *_, space = krylov(product, start.size, start.dtype, limit, start)
    if not np.all(np.isfinite([space.diagonal, space.off])):
        return None, np.nan
    off = space.off[:-1]
    v, largest = _least_of_matrix(np.diag(space.diagonal) + np.diag(off, 1) + np.diag(off, -1))
    return None if v is None else v @ space.basis, largest


def upper_witness(
    kernels: Kernels, x: Vector, theta: Vector, y: Vector, here: Upper, gradient_noise: float = 0.0
) -> tuple[Found | None, float]:
    """A direction between two points of Y along which f is convex, and the largest value of f - h that was met.

    For concave f, <f_y(b) - f_y(a), b - a> <= 0 and f(b) <= f(a) + <f_y(a), b - a> for all a and b in Y. Both are tried
    for every pair of: y, its best response, points far apart, and points close to y, to those and to means of them, in
    directions that follow the curvature of f (a Krylov space of f_yy, from differences of f_y). What is no more than
    rounding does not count. Nothing is asked of an f that is linear in y, as its program tells.
    """
    y_set = kernels.y_set
    if y_set is None or kernels.linear_in_y:
        return None, -np.inf
    tried = _Tried(kernels, x, theta)
    if tried.add(y, here) is None:
        return None, -np.inf
    directions = HEAVY_NEAR if kernels.heavy else NEAR
    best, *others = y_set.best_response(y, here.f_y)[1], *_far_points(y_set, y, HEAVY_FAR if kernels.heavy else FAR)
    centres = [y]
    if not kernels.quadratic_in_y:  # or it bends everywhere as it does here
        for point in (best, *others):
            tried.add(point)
        if not kernels.heavy:
            centres += [best, *others]
        # each far point mixed with the one before it and with y
        centres += [(0.2 * y + 0.3 * a + 0.5 * b).astype(y.dtype) for a, b in pairwise((best, *others))]
    middle = np.mean([y, best, *others], axis=0).astype(y.dtype)
    for centre in centres:
        _look_around(tried, y_set, centre, middle, directions)
    found = tried.witness(gradient_noise)
    if found is not None and kernels.quadratic_in_y:  # higher values may lie far off
        for point in (best, *others):
            tried.add(point)
    penalties = [y_set.penalty(point) for point in tried.points]
    return found, float(np.max(np.array(tried.values) - penalties))


class _Tried:
    """Points of Y with f and f_y there."""

    def __init__(self, kernels: Kernels, x: Vector, theta: Vector):
        self.kernels, self.x, self.theta = kernels, x, theta
        self.points: list[Vector] = []
        self.values: list[float] = []
        self.gradients: list[Vector] = []

    def add(self, y: Vector, known: Upper | None = None) -> Vector | None:
        """f_y there; None where f is no number, which is not a question of concavity."""
        found = known or self.kernels.upper(self.x, self.theta, y)
        if not (np.isfinite(found.value) and np.all(np.isfinite(found.f_y))):
            return None
        self.points.append(y)
        self.values.append(found.value)
        self.gradients.append(found.f_y)
        return found.f_y

    def witness(self, noise: float) -> Found | None:
        """The pair that contradicts concavity most clearly."""
        points = np.stack(self.points).astype(np.float64)
        values, gradients = np.array(self.values), np.stack(self.gradients).astype(np.float64)
        away = points[None] - points[:, None]  # [a, b] = b - a
        lengths = np.sqrt(np.sum(away**2, axis=-1))
        slopes = np.einsum("ai,abi->ab", gradients, away)
        sizes = np.sqrt(np.sum(gradients**2, axis=-1))
        rounding = self.kernels.eps ** (2 / 3)
        doubt = (rounding * (sizes[:, None] + sizes[None]) + 10 * noise) * lengths
        # <f_y(b) - f_y(a), b - a>, and twice what f(b) has above its tangent at a: |b - a|^2 times a curvature each
        bends = -slopes.T - slopes - doubt
        heights = np.abs(values)
        above = values[None] - values[:, None] - slopes - rounding * (heights[None] + heights[:, None])
        excess = np.maximum(bends, 2 * (above - doubt))
        excess[lengths == 0] = -np.inf
        a, b = np.unravel_index(int(np.argmax(excess)), excess.shape)
        if not excess[a, b] > 0:
            return None
        direction = unit((points[b] - points[a]).astype(self.kernels.dtype))
        return direction, float(excess[a, b] / lengths[a, b] ** 2), "f has to be concave in y"


def _far_points(y_set: FlatSet, y: Vector, count: int) -> list[Vector]:
    noise = [normal(y, 20 + i) for i in range(count)]
    if "lmo" in y_set.capabilities:
        return [y_set.lmo(direction) for direction in noise]
    reach = y.dtype.type(10 * y_set.diameter())
    return [y_set.project(y + reach * unit(direction)) for direction in noise]


def _look_around(tried: _Tried, y_set: FlatSet, y: Vector, middle: Vector, count: int) -> None:
    """Points of Y close to y: along random directions and the changes of f_y, and where these show f to bend most."""
    length = y.dtype.type(CLOSE * min(y_set.diameter(), 1.0 + norm(y)))
    # a little way inside, so that there is room on all sides
    inward = middle - y
    centre = y + inward * min(1.0, 2 * length / max(norm(inward), np.finfo(y.dtype).tiny))
    base = tried.add(centre)
    if base is None:
        return
    aways: list[Vector] = []
    changes: list[Vector] = []

    def look(direction: Vector) -> None:
        point = y_set.project(centre + length * unit(direction))
        gradient = tried.add(point)
        if gradient is not None and norm(point - centre) > 0:
            aways.append(point - centre)
            changes.append(gradient - base)

    for i in range(min(count, y.size)):
        following = _outside(aways, changes[-1]) if changes else normal(y, 7)
        look(following if norm(following) > 0 else _outside(aways, normal(y, 8 + i)))
    if not aways:
        return
    # f_yy on the span of the moves, where it maps each of them to its change of f_y
    basis, triangle = np.linalg.qr(np.stack(aways).T)
    bend = basis.T @ np.stack(changes).T @ np.linalg.pinv(triangle)
    look(basis @ np.linalg.eigh(bend + bend.T)[1][:, -1])


def _outside(vectors: list[Vector], v: Vector) -> Vector:
    """The part of v that is orthogonal to the others; 0 where that is rounding."""
    if not vectors:
        return v
    basis, _ = np.linalg.qr(np.stack(vectors).T)
    rest = v - basis @ (basis.T @ v)
    rest = rest - basis @ (basis.T @ rest)
    return rest if norm(rest) > 1e3 * np.finfo(v.dtype).eps * norm(v) else np.zeros_like(v)
