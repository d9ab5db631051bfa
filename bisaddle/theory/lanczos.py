"""Extreme eigenvalues of the lower Hessian to a tolerance, by Lanczos with full reorthogonalisation, and over X."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.oracle.traced import spectrum
from bisaddle.problem import Point, Problem

# the basis is kept in memory
BASIS_BYTES = 2**29
# products with which sampled points are compared before one is looked at closely
SCREENING = 24


@dataclasses.dataclass(frozen=True)
class Extremes:
    """Ritz values from inside the spectrum, their residuals (an eigenvalue lies that near), their vectors, the cost."""

    least: float
    most: float
    least_residual: float
    most_residual: float
    least_vector: np.ndarray
    most_vector: np.ndarray
    products: int


def lanczos(product: Callable[[np.ndarray], np.ndarray], size: int, seed: int, tolerance: float) -> Extremes:
    """Both ends of a symmetric map's spectrum, until each residual is at most tolerance times its value.

    The residual of the least value is compared with that value, so that mu_g is resolved however small it is beside
    L_g: at most `size` products, about sqrt(L_g / mu_g) times a few for a well-spread spectrum.
    """
    limit = min(size, max(32, BASIS_BYTES // (8 * size)))
    basis = np.zeros((min(limit, 64), size))
    diagonal, off = np.zeros(limit), np.zeros(limit)
    vector = np.random.default_rng(seed).normal(size=size)
    basis[0] = vector / np.linalg.norm(vector)
    check = min(limit, 16)
    for i in range(limit):
        image = np.asarray(product(basis[i]))
        rounding = 50 * np.finfo(image.dtype).eps * size**0.5
        image = image.astype(np.float64)
        diagonal[i] = basis[i] @ image
        for _ in range(2):  # twice is enough to keep the basis orthogonal
            image = image - basis[: i + 1].T @ (basis[: i + 1] @ image)
        off[i] = np.linalg.norm(image)
        largest = max(np.max(np.abs(diagonal[: i + 1])), np.max(off[: i + 1]))
        exhausted = off[i] <= rounding * largest
        if i + 1 == check or i + 1 == limit or exhausted:
            (least, first), (most, last) = tridiagonal_ends(diagonal[: i + 1], off[:i])
            left = 0.0 if exhausted or i + 1 == size else off[i]
            low, high = float(left * abs(first[-1])), float(left * abs(last[-1]))
            met = low <= tolerance * abs(least) and high <= tolerance * abs(most)
            if met or exhausted or i + 1 == limit:
                used = basis[: i + 1].T
                return Extremes(least, most, low, high, used @ first, used @ last, i + 1)
            check = min(limit, int(1.3 * check) + 1)
        if i + 1 == len(basis):
            basis = np.concatenate([basis, np.zeros((min(len(basis), limit - len(basis)), size))])
        basis[i + 1] = image / off[i]
    raise AssertionError("the last pass returns")


def tridiagonal_ends(diagonal: np.ndarray, off: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """(value, unit vector) of both ends of a symmetric tridiagonal matrix's spectrum, in time linear in its size.

    Values by multisection on Sturm counts, vectors by inverse iteration from just outside the spectrum, where the
    elimination needs no pivots.
    """
    beside = np.abs(np.r_[off, 0]) + np.abs(np.r_[0, off])
    low, high = np.min(diagonal - beside), np.max(diagonal + beside)
    scale = max(abs(low), abs(high), np.finfo(float).tiny)
    margin = 4 * np.finfo(float).eps * scale
    below, above = np.array([low, low]) - margin, np.array([high, high]) + margin
    wanted = np.array([[1], [len(diagonal)]])  # the least value has one eigenvalue below it, the largest has all
    for _ in range(12):
        shifts = np.linspace(below, above, 64, axis=1)
        enough = _counts(diagonal, off, shifts) >= wanted
        enough[:, 0], enough[:, -1] = False, True
        at = np.argmax(enough, axis=1)
        below, above = shifts[[0, 1], at - 1], shifts[[0, 1], at]
        if np.max(above - below) <= margin:
            break
    values = 0.5 * (below + above)
    least = _inverse_iteration(diagonal - (values[0] - 4 * margin), off)
    most = _inverse_iteration(values[1] + 4 * margin - diagonal, -off)
    return [(float(values[0]), least), (float(values[1]), most)]


def _counts(diagonal: np.ndarray, off: np.ndarray, shifts: np.ndarray) -> np.ndarray:
    """How many eigenvalues lie below each shift: the negative pivots of T - shift."""
    tiny = np.finfo(float).tiny ** 0.5
    pivot = diagonal[0] - shifts
    count = (pivot < 0).astype(int)
    for a, b in zip(diagonal[1:], off**2, strict=True):
        pivot = a - shifts - b / np.where(np.abs(pivot) < tiny, -tiny, pivot)
        count += pivot < 0
    return count


def _inverse_iteration(diagonal: np.ndarray, off: np.ndarray) -> np.ndarray:
    """The unit vector of the least eigenvalue of a positive definite tridiagonal matrix."""
    size, tiny = len(diagonal), np.finfo(float).eps * np.max(np.abs(diagonal))
    pivots = diagonal.tolist()
    beside = off.tolist()
    for i in range(1, size):
        pivots[i] -= beside[i - 1] ** 2 / max(pivots[i - 1], tiny)
    v = [1.0 + 0.1 * (i % 7) for i in range(size)]  # nothing special, so that no vector is orthogonal to it
    for _ in range(4):
        for i in range(1, size):
            v[i] -= beside[i - 1] * v[i - 1] / max(pivots[i - 1], tiny)
        v[-1] /= max(pivots[-1], tiny)
        for i in range(size - 2, -1, -1):
            v[i] = (v[i] - beside[i] * v[i + 1]) / max(pivots[i], tiny)
        length = float(np.linalg.norm(v))
        v = [entry / length for entry in v]
    return np.array(v)


@jax.jit
def _screen(problem: Problem, points: Point) -> tuple[Array, Array]:
    return jax.lax.map(lambda p: spectrum(problem, p.x, p.theta, SCREENING), points)


@jax.jit
def hessian_times(problem: Problem, x: PyTree, theta: PyTree, w: PyTree) -> PyTree:
    return oracle.hessian_product(problem, x, theta, w)


@jax.jit
def _corner_along(problem: Problem, x: PyTree, theta: PyTree, w: PyTree, sign: Array) -> PyTree:
    """The extreme point of X where the linear model of <w, g_theta_theta(x, theta) w> in x is largest (sign > 0)."""
    slope = jax.grad(lambda x: trees.dot(w, oracle.hessian_product(problem, x, theta, w)))(x)
    corner = problem.x_set.lmo(trees.scale(-sign, slope))
    return jax.tree.map(lambda a, b: jnp.where(trees.norm(slope) > 0, a, b), corner, x)


@dataclasses.dataclass(frozen=True)
class LowerSpectrum:
    """mu_g and L_g over the points tried, where each was met and along which direction, residuals, HVPs spent."""

    mu_g: float
    L_g: float
    mu_residual: float
    L_residual: float
    mu_point: Point
    mu_direction: PyTree
    hvps: int
    tried: int


def lower_spectrum(problem: Problem, points: Point, *, tolerance: float = 2e-3, climbs: int = 3) -> LowerSpectrum:
    """The least and the largest eigenvalue of g_theta_theta over sampled points and over corners of X found from them.

    Every point is screened with a few products; the extreme one is resolved to the tolerance; then x moves to the
    corner of X towards which the eigenvalue grows (falls), as long as it does: L_g is often convex in x.
    """
    size = trees.size(jax.tree.map(lambda leaf: leaf[0], points.theta))
    lows, highs = (np.asarray(values) for values in _screen(problem, points))
    tried, hvps = len(lows), len(lows) * min(SCREENING, size)
    at_most = int(np.argmax(highs))
    at_least = int(np.argmin(lows))
    if lows[at_most] <= lows[at_least] + 1e-3 * abs(lows[at_least]):
        at_least = at_most  # one close look serves both ends
    pick = lambda i: jax.tree.map(lambda leaf: leaf[i], points)

    def look(point: Point) -> Extremes:
        nonlocal hvps

        def product(w):
            return np.asarray(ravel_pytree(hessian_times(problem, point.x, point.theta, _shaped(w, point.theta)))[0])

        found = lanczos(product, size, 0, tolerance)
        hvps += found.products
        return found

    looked = {}

    def climb(index: int, sign: float) -> tuple[Extremes, Point]:
        nonlocal tried
        point = pick(index)
        if index not in looked:
            looked[index] = look(point)
        best = looked[index]
        if "lmo" not in problem.x_set.capabilities:
            return best, point
        for _ in range(climbs):
            vector = best.most_vector if sign > 0 else best.least_vector
            w = _shaped(vector, point.theta)
            corner = _corner_along(problem, point.x, point.theta, w, jnp.asarray(sign))
            if float(trees.norm(trees.subtract(corner, point.x))) == 0:
                break
            moved = Point(corner, point.theta, point.y)
            found, tried = look(moved), tried + 1
            gain = found.most - best.most if sign > 0 else best.least - found.least
            if not gain > tolerance * abs(best.most if sign > 0 else best.least):
                break
            best, point = found, moved
        return best, point

    top, _ = climb(at_most, 1.0)
    bottom, where = climb(at_least, -1.0)
    direction = _shaped(bottom.least_vector, where.theta)
    return LowerSpectrum(
        bottom.least, top.most, bottom.least_residual, top.most_residual, where, direction, hvps, tried
    )


def _shaped(vector: np.ndarray, tree: PyTree) -> PyTree:
    """The flat vector in the shape of the tree."""
    return ravel_pytree(tree)[1](jnp.asarray(vector, trees.dtype_of(tree)))
