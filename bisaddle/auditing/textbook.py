"""Projections and linear minimisation over well-known sets, as a textbook has them: NumPy, one vector or matrix a time.

Nothing here is shared with bisaddle.sets, and nothing is tuned: sorting and bracketed roots instead of Newton's method,
full decompositions instead of Krylov spaces.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import rel_entr, wrightomega

Vector = np.ndarray


def project_l2(v: Vector, radius: float) -> Vector:
    largest = np.max(np.abs(v), initial=0.0)
    if largest == 0:
        return v
    length = largest * np.linalg.norm(v / largest)
    return v if length <= radius else radius * (v / largest) / np.linalg.norm(v / largest)


def lmo_l2(d: Vector, radius: float) -> Vector:
    largest = np.max(np.abs(d), initial=0.0)
    return np.zeros_like(d) if largest == 0 else -radius * (d / largest) / np.linalg.norm(d / largest)


def project_simplex(v: Vector, radius: float) -> Vector:
    """max(v - t, 0) with the sum radius, t by sorting."""
    centred = v - np.max(v)
    ordered = np.sort(centred)[::-1]
    thresholds = (np.cumsum(ordered) - radius) / np.arange(1, v.size + 1)
    t = thresholds[np.flatnonzero(ordered > thresholds)[-1]]
    return np.maximum(centred - t, 0.0)


def lmo_simplex(d: Vector, radius: float) -> Vector:
    vertex = np.zeros_like(d)
    vertex[np.argmin(d)] = radius
    return vertex


def project_l1(v: Vector, radius: float) -> Vector:
    return v if np.sum(np.abs(v)) <= radius else np.sign(v) * project_simplex(np.abs(v), radius)


def lmo_l1(d: Vector, radius: float) -> Vector:
    vertex, place = np.zeros_like(d), np.argmax(np.abs(d))
    vertex[place] = -radius if d[place] > 0 else radius
    return vertex


def project_unit_simplex(v: Vector, radius: float) -> Vector:
    clipped = np.maximum(v, 0.0)
    return clipped if np.sum(clipped) <= radius else project_simplex(v, radius)


def lmo_unit_simplex(d: Vector, radius: float) -> Vector:
    return lmo_simplex(d, radius if np.min(d) < 0 else 0.0)


def project_capped(v: Vector, cap: Vector, total: float) -> Vector:
    """clip(v - t, 0, cap) with the sum `total`, for a total within reach of the caps."""
    if np.sum(cap) <= total:
        return np.array(cap)
    clipped = lambda t: np.clip(v - t, 0.0, cap)
    t = _root(lambda t: np.sum(clipped(t)) - total, np.min(v - cap), np.max(v))
    inside = (v - t > 0) & (v - t < cap)
    if np.any(inside):  # the sum is linear in t around the root
        t += (np.sum(clipped(t)) - total) / np.sum(inside)
    return clipped(t)


def lmo_capped(d: Vector, cap: Vector, total: float) -> Vector:
    order = np.argsort(d, kind="stable")
    before = np.cumsum(cap[order]) - cap[order]
    answer = np.zeros_like(d)
    answer[order] = np.clip(total - before, 0.0, cap[order])
    return answer


def project_kl(v: Vector, reference: Vector, radius: float) -> Vector:
    """p + weight log(p / reference) = v - t; t by a root for the sum 1, weight by one for the divergence."""

    def tilted(weight: float) -> Vector:
        pull = v / weight + np.log(reference) - np.log(weight)
        of = lambda t: weight * wrightomega(pull - t / weight)
        low = np.min(v - 1 + weight * np.log(reference))
        high = np.max(v - 1 / v.size + weight * np.log(v.size * reference))
        p = of(_root(lambda t: np.sum(of(t)) - 1, low, high))
        return p / np.sum(p)

    return _on_the_boundary(v, tilted, lambda p: float(np.sum(rel_entr(p, reference))), radius)


def lmo_kl(d: Vector, reference: Vector, radius: float) -> Vector:
    """The reference tilted: proportional to reference exp(-d / t), t the root that gives the divergence."""
    height, cheapest = d - np.min(d), d == np.min(d)

    def tilted(logarithm: float) -> Vector:
        weights = reference * np.exp(-height / np.exp(logarithm))
        return weights / np.sum(weights)

    return _tilt(tilted, cheapest, height, reference, lambda p: float(np.sum(rel_entr(p, reference))), radius)


def project_chi_square(v: Vector, reference: Vector, radius: float) -> Vector:
    """p = max(0, (v - t + weight) / (1 + weight / reference)), with two roots as for the KL ball."""

    def tilted(weight: float) -> Vector:
        of = lambda t: np.maximum(v - t + weight, 0.0) / (1 + weight / reference)
        low = np.min(v + weight - (1 + weight / reference))
        p = of(_root(lambda t: np.sum(of(t)) - 1, low, np.max(v + weight)))
        return p / np.sum(p)

    return _on_the_boundary(v, tilted, lambda p: _chi_square(p, reference), radius)


def lmo_chi_square(d: Vector, reference: Vector, radius: float) -> Vector:
    """Proportional to reference max(t - d, 0), t the root that gives the divergence."""
    height, cheapest = d - np.min(d), d == np.min(d)

    def tilted(logarithm: float) -> Vector:
        weights = reference * np.maximum(1 - height / np.exp(logarithm), 0.0)
        return weights / np.sum(weights)

    return _tilt(tilted, cheapest, height, reference, lambda p: _chi_square(p, reference), radius)


def prox_entropy(v: Vector, weight: float, radius: float) -> Vector:
    """argmin weight sum p log p + |p - v|^2 / 2 over the simplex: p + weight log p = v - t, t a root for the sum."""
    of = lambda t: weight * wrightomega((v - t) / weight - np.log(weight))
    each = radius / v.size
    low = np.min(v) - radius - weight * np.log(radius)
    p = of(_root(lambda t: np.sum(of(t)) - radius, low, np.max(v) - each - weight * np.log(each)))
    return radius * p / np.sum(p)


def project_singular(V: Vector, values: Callable[[Vector], Vector]) -> Vector:
    """U diag(values(s)) W' for the singular values s."""
    U, s, Wt = np.linalg.svd(V, full_matrices=False)
    moved = values(s)
    return V if np.array_equal(moved, s) else (U * moved) @ Wt


def project_spectrahedron(V: Vector, radius: float) -> Vector:
    values, Q = np.linalg.eigh(0.5 * (V + V.T))
    return (Q * project_simplex(values, radius)) @ Q.T


def lmo_spectrahedron(D: Vector, radius: float) -> Vector:
    _, Q = np.linalg.eigh(0.5 * (D + D.T))
    return radius * np.outer(Q[:, 0], Q[:, 0])


def _chi_square(p: Vector, reference: Vector) -> float:
    return float(np.sum((p - reference) ** 2 / reference))


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """The root of a decreasing function between two ends, which rounding may have put on the wrong side of it."""
    width = max(high - low, 1e-12 * (1 + abs(low)))
    for _ in range(60):
        if function(low) >= 0 >= function(high):
            options: dict[str, Any] = {"xtol": 1e-300, "rtol": 1e-15, "maxiter": 500}
            root: Any = brentq(function, low, high, **options)
            return float(root)
        low, high = low - width * (function(low) < 0), high + width * (function(high) > 0)
        width *= 2
    return float("nan")


def _on_the_boundary(
    v: Vector, tilted: Callable[[float], Vector], divergence: Callable[[Vector], float], radius: float
) -> Vector:
    """The projection onto the simplex if the divergence allows it, else the tilted point with just that divergence."""
    nearest = project_simplex(v, 1.0)
    if divergence(nearest) <= radius:
        return nearest
    logarithm = _root(lambda a: divergence(tilted(np.exp(a))) - radius, -5.0, 5.0)
    return tilted(np.exp(logarithm))


def _tilt(
    tilted: Callable[[float], Vector],
    cheapest: Vector,
    height: Vector,
    reference: Vector,
    divergence: Callable[[Vector], float],
    radius: float,
) -> Vector:
    """The tilted reference with this divergence; all on the cheapest entries where even that is within the radius."""
    limit = np.where(cheapest, reference, 0.0) / np.sum(reference[cheapest])
    if divergence(limit) <= radius:
        return limit
    middle = np.log(np.max(height))
    return tilted(_root(lambda a: divergence(tilted(a)) - radius, middle - 5.0, middle + 5.0))
