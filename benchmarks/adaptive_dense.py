"""An independent check of a point in NumPy: dense solves, derivatives by complex steps, projections by sorting.

It shares nothing with bisaddle but the order of the leaves of a point.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from scipy.optimize import brentq
from scipy.special import wrightomega

TINY = 1e-30  # of a complex step: no difference is taken, so nothing cancels


class Dense(NamedTuple):
    """f(x, theta, y) and g_theta(x, theta) on flat vectors, real or complex; g_theta None: no lower level.

    Leaves of a point are joined in the order of jax.tree.leaves: keys of a dict sorted.
    """

    upper: Callable
    lower_gradient: Callable | None
    project_x: Callable
    project_y: Callable

    def __call__(self, point) -> float:
        """The gap of the point's (x, y) at the exact theta*(x), sigma = tau = 1, and how far x and y are outside."""
        x, theta, y = (_flat(part) for part in (point.x, point.theta, point.y))
        theta = self.solve_lower(x, theta)
        Gx, Gy = self.gradients(x, theta, y)
        x_gap = np.linalg.norm(x - self.project_x(x - Gx))
        y_gap = np.linalg.norm(y - self.project_y(y + Gy))
        outside = max(np.linalg.norm(x - self.project_x(x)), np.linalg.norm(y - self.project_y(y)))
        return float(max(x_gap + y_gap, outside))

    def solve_lower(self, x: np.ndarray, theta: np.ndarray) -> np.ndarray:
        """theta*(x) by Newton's method with dense Hessians, halving steps, until the gradient stops falling."""
        g_theta = self.lower_gradient
        if g_theta is None:
            return theta
        residual = g_theta(x, theta)
        for _ in range(100):
            step = np.linalg.solve(jacobian(lambda t: g_theta(x, t), theta), residual)
            length = 1.0
            while length > 1e-6:
                new = theta - length * step
                new_residual = g_theta(x, new)
                if np.linalg.norm(new_residual) < (1 - 0.1 * length) * np.linalg.norm(residual):
                    break
                length /= 2
            else:
                return theta
            theta, residual = new, new_residual
        if np.linalg.norm(residual) <= 1e-13 * (1 + np.linalg.norm(theta)):  # falling by rounding alone
            return theta
        raise ArithmeticError("Newton's method for the lower level did not end")

    def gradients(self, x: np.ndarray, theta: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f_x - g_theta_x' w with g_theta_theta w = f_theta, and f_y."""
        f_x = gradient(lambda x: self.upper(x, theta, y), x)
        f_y = gradient(lambda y: self.upper(x, theta, y), y)
        g_theta = self.lower_gradient
        if g_theta is None:
            return f_x, f_y
        f_theta = gradient(lambda t: self.upper(x, t, y), theta)
        hessian = jacobian(lambda t: g_theta(x, t), theta)
        cross = jacobian(lambda x: g_theta(x, theta), x)
        w = np.linalg.solve(hessian, f_theta)
        w += np.linalg.solve(hessian, f_theta - hessian @ w)
        return f_x - cross.T @ w, f_y


def _flat(tree) -> np.ndarray:
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.asarray(leaf, dtype=float).ravel() for leaf in leaves]) if leaves else np.zeros(0)


def jacobian(function: Callable, at: np.ndarray) -> np.ndarray:
    """Columns d function / d at_j, by complex steps."""
    columns = []
    for j in range(at.size):
        moved = at.astype(complex)
        moved[j] += 1j * TINY
        columns.append(np.imag(function(moved)) / TINY)
    return np.stack(columns, axis=-1)


gradient = jacobian


# --- projections ------------------------------------------------------------------------------------------------------


def onto_simplex(v: np.ndarray) -> np.ndarray:
    falling = np.sort(v)[::-1]
    thresholds = (np.cumsum(falling) - 1) / np.arange(1, v.size + 1)
    active = np.flatnonzero(falling > thresholds)[-1]
    return np.maximum(v - thresholds[active], 0)


def onto_simplices(v: np.ndarray, count: int) -> np.ndarray:
    return np.concatenate([onto_simplex(part) for part in np.split(v, count)])


def onto_l1(v: np.ndarray, radius: float) -> np.ndarray:
    if np.sum(np.abs(v)) <= radius:
        return v
    return np.sign(v) * radius * onto_simplex(np.abs(v) / radius)


def onto_l2(v: np.ndarray, radius: float) -> np.ndarray:
    return v * min(1.0, radius / max(np.linalg.norm(v), 1e-300))


def onto_kl(v: np.ndarray, reference: np.ndarray, radius: float) -> np.ndarray:
    """p + weight log(p / reference) = v - t, where t makes the sum 1 and the weight the divergence the radius."""

    def divergence(p):
        return np.sum(np.where(p > 0, p * np.log(np.maximum(p, 1e-300) / reference), 0))

    def at(log_weight):
        weight = np.exp(log_weight)

        def entries(t):
            return weight * wrightomega((v - t) / weight + np.log(reference / weight))

        low, high = np.min(v) - 2 - 100 * weight, np.max(v) + 2 + 100 * weight
        return entries(brentq(lambda t: np.sum(entries(t)) - 1, low, high, xtol=1e-15, maxiter=500))

    nearest = onto_simplex(v)
    # a point of the ball is its own projection: a divergence at the radius up to rounding is within
    if divergence(nearest) <= radius * (1 + 1e-13):
        return nearest
    return at(brentq(lambda s: divergence(at(s)) - radius, np.log(1e-12), np.log(1e8), xtol=1e-14))
