"""Whether f is concave in y, and its worst value over Y, from many points of Y."""

from dataclasses import dataclass

import numpy as np

from bisaddle.auditing.arrays import Arrays
from bisaddle.auditing.lower import EPS, Witness
from bisaddle.auditing.regions import Region
from bisaddle.auditing.textbook import Vector

# points of Y whose pairs are compared, those of them with a Hessian, and those from which f climbs
POINTS, HESSIANS, CLIMBERS = 48, 6, 4
CLIMB_STEPS = 300


@dataclass(frozen=True)
class Concavity:
    """witness: a direction of Y with positive curvature, or None. worst_value: the largest f - h that was found."""

    witness: Witness | None
    worst_value: float


def look_at_y(arrays: Arrays, region: Region, x: Vector, theta: Vector, y: Vector) -> Concavity:
    """f over Y for fixed x and theta: its Hessians, its first-order bounds between all pairs of points, its maximum."""
    rng = np.random.default_rng(0)
    points = np.vstack([y, region.nearest(y), region.points(rng, y, POINTS)])
    found = arrays.several(x, theta, points)
    size = float(np.max(np.linalg.norm(points - points[0], axis=1)))
    # what rounding can do to f, and the curvature that it can feign over a set of this size
    noise = 256 * EPS * (_magnitude(arrays, x, theta, points[:HESSIANS]) + float(np.max(np.abs(found.values))))
    bend = noise / size**2 if size > 0 else np.inf
    witness = _by_hessians(arrays, x, theta, points, bend) or _by_pairs(points, found.values, found.slopes, noise)
    heights = found.values - np.array([region.penalty(point) for point in points])
    starts = points[np.concatenate([[0], np.argsort(-heights[1:])[: CLIMBERS - 1] + 1])]
    return Concavity(witness, max(float(np.max(heights)), _climb(arrays, region, x, theta, starts)))


def _magnitude(arrays: Arrays, x: Vector, theta: Vector, points: Vector) -> float:
    """The size of what f adds up, often far more than f: the largest sum of |v_i df/dv_i| over x, theta and y."""
    found = []
    for y in points:
        at = arrays.gradients(x, theta, y, np.zeros_like(theta))
        parts = ((x, at.f_x), (theta, at.f_theta), (y, at.f_y))
        found.append(sum(float(np.sum(np.abs(v * slope))) for v, slope in parts))
    return max(found)


def _by_hessians(arrays: Arrays, x: Vector, theta: Vector, points: Vector, bend: float) -> Witness | None:
    """The direction of the largest eigenvalue among the Hessians on the span of Y - Y, if it is positive."""
    _, sizes, directions = np.linalg.svd(points - np.mean(points, axis=0), full_matrices=False)
    basis = directions[sizes > 1e-9 * max(float(sizes[0]), np.finfo(float).tiny)]
    best: Witness | None = None
    for hessian in arrays.bends(x, theta, points[:HESSIANS]) if len(basis) else ():
        within = basis @ hessian @ basis.T
        if not np.all(np.isfinite(within)):
            continue
        values, vectors = np.linalg.eigh(within)
        threshold = bend + 1e-9 * float(np.max(np.abs(values)))
        if values[-1] > threshold and (best is None or values[-1] > best.curvature):
            best = Witness(basis.T @ vectors[:, -1], float(values[-1]))
    return best


def _by_pairs(points: Vector, values: Vector, slopes: Vector, noise: float) -> Witness | None:
    """The segment on which f rises most above the first-order bound f(a) + <f_y(a), b - a>, if it does."""
    steps = points[None] - points[:, None]
    excess = values[None] - values[:, None] - np.einsum("id,ijd->ij", slopes, steps)
    squares = np.sum(steps**2, axis=2)
    curvatures = np.where(excess > noise, 2 * excess, 0) / np.maximum(squares, 1e-300)
    i, j = np.unravel_index(int(np.argmax(np.nan_to_num(curvatures))), curvatures.shape)
    if not curvatures[i, j] > 0:
        return None
    return Witness(steps[i, j] / squares[i, j] ** 0.5, float(curvatures[i, j]))


def _climb(arrays: Arrays, region: Region, x: Vector, theta: Vector, starts: Vector) -> float:
    """The largest f - h that proximal ascent reaches from several starts, side by side, each with its own curvature."""
    best = np.array([region.nearest(start) for start in starts])
    before, momentum, curvature = best, 1.0, np.ones(len(best))
    record = -np.inf
    for _ in range(CLIMB_STEPS):
        following = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
        ahead = best + (momentum - 1) / following * (best - before)
        at = arrays.several(x, theta, ahead)
        curvature = 0.7 * curvature
        while True:
            targets = ahead + at.slopes / curvature[:, None]
            moved = np.array([region.moved(t, 1 / c) for t, c in zip(targets, curvature, strict=True)])
            step = moved - ahead
            there = arrays.several(x, theta, moved)
            bends = np.sum((at.slopes - there.slopes) * step, axis=1) > curvature * np.sum(step**2, axis=1)
            if not np.any(bends) or not np.max(curvature) < 1e30:
                break
            curvature = np.where(bends, 2 * curvature, curvature)
        record = max(record, *(there.values - np.array([region.penalty(point) for point in moved])))
        overshot = np.sum((ahead - moved) * (moved - best)) > 0
        before, best, momentum = best, moved, 1.0 if overshot else following
        if not np.max(np.linalg.norm(step, axis=1)) > 4 * EPS * (1 + np.max(np.linalg.norm(best, axis=1))):
            break
    return float(record)
