"""Projections and linear minimisations as one would write them with NumPy and SciPy: the rivals of the sets."""

from collections.abc import Callable

import numpy as np
import scipy.optimize
import scipy.sparse.linalg


def numpy_simplex(v: np.ndarray, radius: float = 1.0) -> np.ndarray:
    descending = np.sort(v)[::-1]
    thresholds = (np.cumsum(descending) - radius) / np.arange(1, v.size + 1)
    return np.maximum(v - thresholds[np.count_nonzero(descending > thresholds) - 1], 0)


def numpy_l1(v: np.ndarray, radius: float = 1.0) -> np.ndarray:
    return v if np.abs(v).sum() <= radius else np.sign(v) * numpy_simplex(np.abs(v), radius)


def numpy_vertex(d: np.ndarray) -> np.ndarray:
    vertex = np.zeros_like(d)
    vertex[np.argmin(d)] = 1.0
    return vertex


def numpy_l1_vertex(d: np.ndarray) -> np.ndarray:
    vertex = np.zeros_like(d)
    best = np.argmax(np.abs(d))
    vertex[best] = -np.sign(d[best])
    return vertex


def numpy_capped(v: np.ndarray, cap: float, total: float = 1.0) -> np.ndarray:
    excess = lambda t: np.clip(v - t, 0, cap).sum() - total
    return np.clip(v - scipy.optimize.brentq(excess, v.min() - cap, v.max(), xtol=1e-15), 0, cap)


def numpy_permutahedron(v: np.ndarray, values: np.ndarray) -> np.ndarray:
    order = np.argsort(-v)
    fitted = scipy.optimize.isotonic_regression(v[order] - np.sort(values)[::-1], increasing=False).x
    answer = np.empty_like(v)
    answer[order] = v[order] - fitted
    return answer


def numpy_kl_tilt(d: np.ndarray, q: np.ndarray, radius: float) -> np.ndarray:
    def tilted(t):
        weights = q * np.exp(-(d - d.min()) * t)
        return weights / weights.sum()

    def excess(t):
        p = tilted(t)
        return np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p / q, 1)), 0)) - radius

    high = 1.0
    while excess(high) < 0 and high < 1e12:
        high *= 2
    return tilted(scipy.optimize.brentq(excess, 0, high, xtol=1e-15))


def numpy_nuclear(v: np.ndarray) -> np.ndarray:
    u, s, w = np.linalg.svd(v, full_matrices=False)
    return (u * numpy_l1(s)) @ w


def numpy_spectrahedron(v: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(0.5 * (v + v.T))
    return (vectors * numpy_simplex(values)) @ vectors.T


def svds_vertex(d: np.ndarray) -> np.ndarray:
    u, _, w = scipy.sparse.linalg.svds(d, k=1, tol=1e-10)
    return -np.outer(u[:, 0], w[0])


def eigsh_vertex(d: np.ndarray) -> np.ndarray:
    _, vectors = scipy.sparse.linalg.eigsh(d, k=1, which="SA", tol=1e-10)
    return np.outer(vectors[:, 0], vectors[:, 0])


def hungarian(d: np.ndarray) -> np.ndarray:
    rows, columns = scipy.optimize.linear_sum_assignment(d)
    answer = np.zeros_like(d)
    answer[rows, columns] = 1
    return answer


def root(excess: Callable[[float], float], low: float, high: float) -> float:
    return scipy.optimize.brentq(excess, low, high, xtol=1e-15)


def numpy_weighted_l1(v: np.ndarray, w: np.ndarray) -> np.ndarray:
    shrunk = lambda t: np.maximum(np.abs(v) - t * w, 0)
    return np.sign(v) * shrunk(root(lambda t: w @ shrunk(t) - 1, 0, np.max(np.abs(v) / w)))


def numpy_section(v: np.ndarray, normal: np.ndarray) -> np.ndarray:
    clipped = lambda t: np.clip(v - t * normal, -1, 1)
    far = np.max((np.abs(v) + 1) / np.abs(normal))
    return clipped(root(lambda t: normal @ clipped(t), -far, far))


def numpy_ellipsoid(v: np.ndarray, axes: np.ndarray) -> np.ndarray:
    shrunk = lambda t: v * axes**2 / (axes**2 + t)
    outside = lambda t: np.sum((shrunk(t) / axes) ** 2) - 1
    return shrunk(root(outside, 0, np.linalg.norm(v) * axes.max()))


def numpy_groups(v: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    lengths = np.sqrt(np.add.reduceat(v * v, starts))
    return v * np.repeat(numpy_l1(lengths) / lengths, width)


def numpy_group_vertex(d: np.ndarray, starts: np.ndarray, width: int) -> np.ndarray:
    squares = np.add.reduceat(d * d, starts)
    first = starts[np.argmax(squares)]
    vertex = np.zeros_like(d)
    vertex[first : first + width] = -d[first : first + width] / np.sqrt(np.max(squares))
    return vertex


def numpy_ordered_vertex(d: np.ndarray, weights: np.ndarray) -> np.ndarray:
    order, totals = np.argsort(-np.abs(d)), np.cumsum(weights)
    last = np.argmax(np.cumsum(np.abs(d)[order]) / totals)
    vertex = np.zeros_like(d)
    vertex[order[: last + 1]] = -np.sign(d[order[: last + 1]]) / totals[last]
    return vertex


def numpy_fantope(v: np.ndarray, k: int) -> np.ndarray:
    values, vectors = np.linalg.eigh(v)
    return (vectors * numpy_capped(values, 1.0, k)) @ vectors.T


def numpy_fantope_vertex(d: np.ndarray, k: int) -> np.ndarray:
    vectors = np.linalg.eigh(d)[1][:, :k]
    return vectors @ vectors.T


def numpy_tv_vertex(d: np.ndarray, q: np.ndarray, radius: float) -> np.ndarray:
    order = np.argsort(-d)
    leaving = np.clip(radius - (np.cumsum(q[order]) - q[order]), 0, q[order])
    p = q.copy()
    p[order] -= leaving
    p[order[-1]] += leaving.sum()
    return p


def numpy_fill(d: np.ndarray, cap: np.ndarray | float, total: float) -> np.ndarray:
    order = np.argsort(d)
    caps = np.broadcast_to(cap, d.shape)[order]
    answer = np.empty_like(d)
    answer[order] = np.clip(total - (np.cumsum(caps) - caps), 0, caps)
    return answer


def linear_program(d: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    return scipy.optimize.linprog(d, A_ub=A, b_ub=b, bounds=(-1, 1), method="highs").x
