"""Worst-task regression as in adaptive_nuclear.py, its map x a matrix in a spectrahedron or a Birkhoff polytope."""

from collections.abc import Callable

import adaptive_nuclear
import numpy as np
from adaptive_dense import onto_simplex
from scipy.optimize import linear_sum_assignment

import bisaddle as bs

# rows and columns of x, tasks
SIZES = {"12 x 12": (12, 20), "40 x 40": (40, 20)}
FAMILIES = [(kind, size) for kind in ("spectrahedron", "Birkhoff") for size in SIZES]


def make(kind: str, size: str, rho: float, seed: int) -> tuple[bs.Problem, bs.Point, Callable]:
    """The truth has rank 3, or is a mean of three permutations; in the spectrahedron half of its trace is allowed."""
    n, T = SIZES[size]
    rng = np.random.default_rng([seed, n])
    if kind == "Birkhoff":
        truth = np.sum([share * np.eye(n)[rng.permutation(n)] for share in (0.5, 0.3, 0.2)], axis=0)
        x_set, check, radius = bs.sets.BirkhoffPolytope(), BirkhoffCheck, 1.0
        start = np.full((n, n), 1 / n)
    else:
        factor = rng.normal(size=(n, 3)) / np.sqrt(n)
        truth = factor @ factor.T
        radius = 0.5 * float(np.trace(truth))
        x_set, check = bs.sets.Spectrahedron(radius), Check
        start = radius / n * np.eye(n)
    d = adaptive_nuclear.tasks(truth, T, rho, rng)
    problem, point = adaptive_nuclear.posed(d, x_set, start)
    return problem, point, check(d, radius)


class Check(adaptive_nuclear.Check):
    """The projection gap in a spectrahedron, by a full eigendecomposition."""

    def onto(self, v: np.ndarray) -> np.ndarray:
        values, q = np.linalg.eigh(0.5 * (v + v.T))
        return (q * (self.radius * onto_simplex(values / self.radius))) @ q.T

    def __call__(self, point) -> float:
        x, y = np.asarray(point.x), np.asarray(point.y)
        Gx, Gy = self.gradients(x, y)
        y_gap, y_outside = (np.linalg.norm(y - onto_simplex(to)) for to in (y + Gy, y))
        outside = max(np.linalg.norm(x - self.onto(x)), y_outside)
        return float(max(np.linalg.norm(x - self.onto(x - Gx)) + y_gap, outside))


class BirkhoffCheck(adaptive_nuclear.Check):
    """The Frank-Wolfe gap in a Birkhoff polytope, by SciPy's assignment."""

    def __call__(self, point) -> float:
        x, y = np.asarray(point.x), np.asarray(point.y)
        Gx, Gy = self.gradients(x, y)
        cheapest = Gx[linear_sum_assignment(Gx)].sum()
        y_gap, y_outside = (np.linalg.norm(y - onto_simplex(to)) for to in (y + Gy, y))
        sums = max(np.max(np.abs(x.sum(axis=axis) - 1)) for axis in (0, 1))
        return float(max(np.sum(Gx * x) - cheapest + y_gap, -x.min(), sums, y_outside))
