"""theta*(x) and v(x, y) by dense factorisations, with a look at the curvature of g on the way."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

from bisaddle.auditing.arrays import Arrays, Lower
from bisaddle.auditing.textbook import Vector

EPS = float(np.finfo(np.float64).eps)
NEWTON_STEPS = 100
HALVINGS = 40
# steps that are still taken after curvature that is not positive: the verdict stands, the rest is for the reader
STEPS_AFTER = 5


class Witness(NamedTuple):
    """A direction, and the curvature along it, d'H d / |d|^2, that should not have this sign or size."""

    direction: Vector
    curvature: float


@dataclass
class Curvature:
    """The least eigenvalue of the Hessians looked at so far, and what of it may be rounding."""

    least: float = np.inf
    direction: Vector | None = None
    rounding: float = 0.0

    def look(self, hessian: Vector) -> float:
        """The least eigenvalue of this one."""
        if not np.all(np.isfinite(hessian)):
            self.least = np.nan
            return np.nan
        values, vectors = eigh(hessian, subset_by_index=[0, 0])
        if values[0] < self.least:
            self.least, self.direction = float(values[0]), vectors[:, 0]
        self.rounding = max(self.rounding, 4 * len(hessian) * EPS * float(np.linalg.norm(hessian)))
        return float(values[0])

    @property
    def positive(self) -> bool:
        return bool(self.least > self.rounding)


@dataclass(frozen=True)
class LowerSolution:
    """theta where g is stationary, its Hessian there, and the least curvature met from the point's own theta on."""

    theta: Vector
    at: Lower
    least: float
    curvature: Curvature

    def solve(self, right: Vector) -> Vector:
        """Hessian^-1 right, refined once; NaN where the Hessian is singular to rounding or worse."""
        if self._factor is None:
            return np.full(right.size, np.nan)
        first = cho_solve(self._factor, right)
        return first + cho_solve(self._factor, right - self.at.hessian @ first)

    @cached_property
    def _factor(self) -> Any:
        try:
            return cho_factor(self.at.hessian) if self.least > 0 else None
        except LinAlgError:
            return None


def solve_lower(arrays: Arrays, x: Vector, theta: Vector) -> LowerSolution:
    """Newton's method from theta with steps halved until they help, until rounding stops it.

    Where the Hessian is not positive definite it is shifted until it is: the answer is then a stationary point of g,
    and the curvature tells that this is not enough.
    """
    curvature = Curvature()
    at = arrays.lower(x, theta)
    least = curvature.look(at.hessian)
    left = NEWTON_STEPS
    while left > 0 and np.isfinite(least) and np.linalg.norm(at.slope) > 0:
        left = min(left - 1, NEWTON_STEPS if curvature.positive else STEPS_AFTER)
        step = _newton_step(at, least)
        better = _line_search(arrays, x, theta, at, step)
        if better is None:
            break
        fraction, there = better
        # a step in the last digits that no longer halves the gradient is rounding
        at_rounding = np.linalg.norm(step) <= 1e-8 * (1 + np.linalg.norm(theta))
        done = at_rounding and np.linalg.norm(there.slope) > 0.5 * np.linalg.norm(at.slope)
        theta, at = theta + fraction * step, there
        least = curvature.look(at.hessian)
        if done:
            break
    return LowerSolution(theta, at, least, curvature)


def _newton_step(at: Lower, least: float) -> Vector:
    size = float(np.linalg.norm(at.hessian))
    shift = 0.0 if least > len(at.slope) * EPS * size else 1e-3 * size - 2 * min(least, 0.0) + np.finfo(float).tiny
    return -cho_solve(cho_factor(at.hessian + shift * np.eye(at.slope.size)), at.slope)


def _line_search(arrays: Arrays, x: Vector, theta: Vector, at: Lower, step: Vector) -> tuple[float, Lower] | None:
    """The first fraction of the step that lowers g or |g_theta|; None if none does."""
    descent, slope = float(at.slope @ step), float(np.linalg.norm(at.slope))
    fraction = 1.0
    for _ in range(HALVINGS):
        there = arrays.lower(x, theta + fraction * step)
        lower = there.g < at.g + 1e-4 * fraction * descent
        flatter = np.linalg.norm(there.slope) < (1 - 1e-4 * fraction) * slope
        if np.all(np.isfinite(there.slope)) and (lower or flatter):
            return fraction, there
        fraction *= 0.5
    return None
