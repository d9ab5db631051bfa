"""The lower level and its linear system solved as accurately as rounding allows, on the host."""

from functools import cached_property

import numpy as np

from bisaddle.oracle.kernels import Kernels, Upper, Vector

# up to this many lower variables the Hessian is formed and factorised; beyond, conjugate gradients
DENSE_LIMIT = 128
NEWTON_STEPS = 100


class Hessian:
    """g_theta_theta and g_theta_x at (x, theta), as matrices: row i is the image of e_i.

    A Hessian that is not positive definite has an inverse of NaN, never a quiet wrong one.
    """

    def __init__(self, kernels: Kernels, x: Vector, theta: Vector):
        columns, self.cross = kernels.columns(x, theta)
        self.matrix = 0.5 * (columns + columns.T)

    @cached_property
    def inverse(self) -> Vector:
        try:
            np.linalg.cholesky(self.matrix)
            return np.linalg.inv(self.matrix)
        except np.linalg.LinAlgError:
            return np.full_like(self.matrix, np.nan)

    @cached_property
    def least(self) -> float:
        """The smallest eigenvalue; NaN if it is not positive, or lost in rounding."""
        if not np.all(np.isfinite(self.matrix)):
            return np.nan
        values = np.linalg.eigvalsh(self.matrix)
        return _above_rounding(float(values[0]), float(values[-1]), self.matrix)


class Implicit:
    """theta*(x) and v(x, y) = g_theta_theta^-1 f_theta, and what is left of their equations, all at the refined theta.

        lower_residual = |g_theta|,     linear_residual = |g_theta_theta w - f_theta|,     Gx = f_x - g_theta_x w

    accuracy: the residual norm to reach in both solves; 0 goes on until rounding stops it. w: where the linear solve
    starts, if anything is known. Without a lower level theta and w have no entries.
    """

    def __init__(
        self, kernels: Kernels, x: Vector, theta: Vector, y: Vector, accuracy: float = 0.0, w: Vector | None = None
    ):
        self.kernels, self.x, self.y, self.accuracy = kernels, x, y, accuracy
        # a pass over much data costs more than a small factorisation saves
        self.dense = theta.size <= DENSE_LIMIT and not kernels.heavy
        self._hessian: Hessian | None = None
        self.theta, self.w, self.g_theta = theta, theta, theta
        self.lower_residual = self.linear_residual = 0.0
        if kernels.has_lower:
            self._solve_lower()
        self.upper: Upper = kernels.upper(x, self.theta, y)
        self.Gx = self.upper.f_x
        if kernels.has_lower:
            self._solve_adjoint(w)
            self.Gx = self.Gx - self.cross_product(self.w)

    def hessian(self) -> Hessian:
        """At the solution."""
        if self._hessian is None:
            self._hessian = Hessian(self.kernels, self.x, self.theta)
        return self._hessian

    def product(self, v: Vector) -> Vector:
        """g_theta_theta v"""
        return v @ self.hessian().matrix if self.dense else self.kernels.hessian_product(self.x, self.theta, v)

    def cross_product(self, v: Vector) -> Vector:
        """g_theta_x v"""
        return v @ self.hessian().cross if self.dense else self.kernels.cross_product(self.x, self.theta, v)

    def solve(self, right: Vector, residual: float) -> Vector:
        """g_theta_theta^-1 right, by the matrix, or up to the residual by conjugate gradients."""
        if self.dense:
            return right @ self.hessian().inverse
        return self.kernels.solve(self.x, self.theta, right, residual).w

    def _solve_lower(self) -> None:
        """theta with |g_theta| <= accuracy, or as small as rounding lets it be.

        Newton's method on the gradient norm: strong convexity makes -Hess^-1 g_theta a descent direction for it, so
        that halving the step is a safeguard that needs no function values.
        """
        kernels, x, target = self.kernels, self.x, self.accuracy
        g = kernels.lower_gradient(x, self.theta)
        residual, moved = norm(g), False
        for _ in range(NEWTON_STEPS):
            if residual <= target:
                break
            direction = self.solve(g, max(0.3 * target, 1e-3 * residual))
            step = 2.0
            while True:
                step *= 0.5
                candidate = self.theta - step * direction
                candidate_g = kernels.lower_gradient(x, candidate)
                candidate_residual = norm(candidate_g)
                if candidate_residual <= (1 - 0.1 * step) * residual or step <= 1e-6:
                    break
            better = candidate_residual < residual
            # near the rounding floor, a full Newton step that does not even halve the gradient has met it
            slow = step == 1 and candidate_residual > 0.5 * residual
            if better:
                self.theta, g, residual = candidate, candidate_g, candidate_residual
                if not kernels.quadratic:
                    self._hessian = None
                moved = True
            # cancellation in g_theta = Hess theta - ... leaves about this much
            floor = 2 * kernels.eps * norm(self.product(self.theta))
            target = max(self.accuracy, floor)
            if not better or (slow and candidate_residual <= 1e3 * floor):
                break
        if moved:  # g_theta_x has changed, even where g_theta_theta has not
            self._hessian = None
        self.g_theta, self.lower_residual = g, residual

    def _solve_adjoint(self, w: Vector | None) -> None:
        """w with g_theta_theta w = f_theta, refined twice, and the norm of the residual that is left."""
        f_theta = self.upper.f_theta
        root = self.kernels.eps**0.5
        self.w = np.zeros_like(f_theta) if w is None else w
        r = f_theta if w is None else f_theta - self.product(w)
        for _ in range(3):  # half the digits each time, which conjugate gradients can always deliver
            if norm(r) <= self.accuracy:
                break
            self.w = self.w + self.solve(r, max(0.5 * self.accuracy, root * norm(r)))
            r = f_theta - self.product(self.w)
        self.linear_residual = norm(r)

    def least_curvature(self) -> float:
        """An estimate of the smallest eigenvalue of g_theta_theta; NaN if not positive.

        From the matrix where there is one. Else by inverse iteration: Lanczos would look past a single tiny eigenvalue
        of a large Hessian; solving with it does not.
        """
        if self.dense:
            return self.hessian().least
        rng = np.random.default_rng(2)
        v, top = (unit(rng.normal(size=self.theta.size).astype(self.theta.dtype)) for _ in range(2))
        passes, residual = (3, 1e-2) if self.kernels.heavy else (4, 1e-3)
        for _ in range(passes):
            v = unit(self.solve(v, residual))
        for _ in range(2):  # its order of magnitude is enough
            top = unit(self.product(top))
        return _above_rounding(float(v @ self.product(v)), norm(self.product(top)), self.theta)


def _above_rounding(least: float, largest: float, like: Vector) -> float:
    rounding = 100 * like.shape[0] * float(np.finfo(like.dtype).eps) * largest
    return least if least > rounding else np.nan


def unit(v: Vector) -> Vector:
    length = norm(v)
    return v / length if length > 0 else v


def norm(v: Vector) -> float:
    return float(v @ v) ** 0.5
