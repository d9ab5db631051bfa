"""What Adaptive solves at every x: the lower level, the regularised maximum over y, the linear system; all warm."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bisaddle.methods.adaptive.inverse import Inverse
from bisaddle.methods.adaptive.recall import Recall
from bisaddle.methods.base import Counts
from bisaddle.oracle.kernels import Kernels, Upper, Vector
from bisaddle.sets.flat import FlatSet

NEWTON_STEPS = 50
ASCENT_STEPS = 200


@dataclass
class Cost:
    """Oracle calls so far."""

    gradients: int = 0
    hvps: int = 0
    cross_products: int = 0
    projections: int = 0
    lmos: int = 0

    def counts(self) -> Counts:
        return Counts(self.gradients, self.hvps, self.cross_products, self.projections, self.lmos)


class Inner(NamedTuple):
    """The inner variables at some x, with g_theta, f and its gradients there; the next solve starts from them.

    L_y: the curvature of f in y met last; mu_g: the least curvature of g known of.
    """

    theta: Vector
    y: Vector
    w: Vector
    g_theta: Vector
    upper: Upper
    L_y: float
    mu_g: float


class Evaluation(NamedTuple):
    """f_mu(x) = max_y f(x, theta*(x), y) - h(y) - mu/2 |y - y0|^2 and its gradient Gx, up to the accuracy asked for."""

    inner: Inner
    value: float
    Gx: Vector

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.value) and np.all(np.isfinite(self.Gx)))


@dataclass
class Solver:
    """Evaluations of f_mu, what they have cost, and what earlier ones are good for: places to begin, an inverse."""

    kernels: Kernels
    y_set: FlatSet | None
    recall: Recall | None
    inverse: Inverse
    cost: Cost = field(default_factory=Cost)

    def evaluate(
        self, x: Vector, warm: Inner, stays: bool, y0: Vector, mu: float, accuracy: float, c_low: float
    ) -> Evaluation:
        """theta, y and w to residuals in proportion to the accuracy, then value and gradient.

        |g_theta|, |g_theta_theta w - f_theta| <= c_low accuracy min(1, mu_g),     y residual <= c_low accuracy / 10
        value = f - <w, g_theta> - h(y) - mu/2 |y - y0|^2:    the correction makes its error quadratic in that of theta
        stays: x is where warm was found, and what is known there is not asked for again; elsewhere what is recalled
        says where to begin.
        """
        kernels, cost, recall = self.kernels, self.cost, self.recall
        floor = 50 * kernels.eps
        tight = max(c_low * accuracy * min(1.0, warm.mu_g), floor)
        theta, g_theta, least, f_known = warm.theta, warm.g_theta, np.inf, stays
        if kernels.has_lower:
            if not stays and recall is not None:
                theta = recall.theta_at(x)
            cost.hvps += self.inverse.renew(x, theta)
            theta, g_theta, products, least = self.solve_lower(x, theta, tight, g_theta if stays else None)
            self.inverse.after(products)
            f_known = stays and products == 0
        upper = warm.upper
        if not f_known:
            upper = kernels.upper(x, theta, warm.y)
            cost.gradients += 1
        y_target = max(0.1 * c_low * accuracy, floor)
        y, upper, L_y = self.ascend(x, theta, warm.y, upper, y0, mu, y_target, warm.L_y)
        w, Gx, value = warm.w, upper.f_x, upper.value
        if kernels.has_lower:
            w = w if recall is None else recall.w_at(x, y)
            inverse = self.inverse.matrices
            solved = kernels.solve(x, theta, upper.f_theta, tight, start=w, inverse=inverse, cross=True)
            w = solved.w
            self.inverse.after(solved.products)
            least = min(least, solved.least)
            Gx = Gx - solved.cross
            value -= float(w @ g_theta)
            cost.hvps += solved.products + 1
            cost.cross_products += 1
        if self.y_set is not None:
            away = y - y0
            value -= self.y_set.penalty(y) + 0.5 * mu * float(away @ away)
        found = Evaluation(Inner(theta, y, w, g_theta, upper, L_y, min(warm.mu_g, least)), value, Gx)
        if recall is not None and found.finite:
            recall.add(x, y, theta, w)
        return found

    def solve_lower(
        self, x: Vector, theta: Vector, target: float, g: Vector | None = None
    ) -> tuple[Vector, Vector, int, float]:
        """(theta, g_theta, products, least curvature met): conjugate gradients until |g_theta| <= target.

        g: g_theta at first, if it is known.

        Where g is not surely quadratic in theta, inside Newton's method: a step is halved until it shortens the
        gradient by a tenth of itself; none that does is the rounding floor.
        """
        kernels, cost = self.kernels, self.cost
        inverse = self.inverse.matrices
        if g is not None and not norm(g) > target:
            return theta, g, 0, np.inf
        # what is left of the system of a quadratic is the gradient; else only a part of it is
        aims = (target, 0.0) if kernels.quadratic else (0.5 * target, 1e-3)
        right = None if g is None else -g
        solved = kernels.solve(x, theta, right, *aims, enough=target, inverse=inverse)
        cost.gradients += g is None
        cost.hvps += solved.products
        if kernels.quadratic:
            return theta + solved.w, -solved.r, solved.products, solved.least
        g = -solved.right
        length, all_products, least = norm(g), 0, np.inf
        for i in range(NEWTON_STEPS):
            if not length > target:
                break
            if i > 0:
                solved = kernels.solve(x, theta, -g, *aims, inverse=inverse)
                cost.hvps += solved.products
            all_products += solved.products
            least = min(least, solved.least)
            step = 2.0
            while True:
                step *= 0.5
                candidate = theta + step * solved.w
                candidate_g = kernels.lower_gradient(x, candidate)
                cost.gradients += 1
                new_length = norm(candidate_g)
                if new_length <= (1 - 0.1 * step) * length or step <= 1e-6:
                    break
            if not new_length < length:
                break
            theta, g, length = candidate, candidate_g, new_length
        return theta, g, all_products, least

    def ascend(
        self, x: Vector, theta: Vector, y: Vector, upper: Upper, y0: Vector, mu: float, target: float, L_y: float
    ) -> tuple[Vector, Upper, float]:
        """y = argmax f(x, theta, .) - h - mu/2 |. - y0|^2 by projected gradient steps 1 / L; f and its gradients; L_y.

        L = L_y + mu, L_y the curvature along the last step; for f linear in y that is 0, and one step is exact. A step
        after which the residual has grown doubles L.
        """
        kernels, cost, y_set = self.kernels, self.cost, self.y_set
        if y_set is None:
            return y, upper, L_y

        def moved(y: Vector, f_y: Vector, L: float) -> tuple[Vector, float]:
            """The next y, and the residual at this one."""
            new = y_set.prox(y + (f_y - mu * (y - y0)) / L, 1 / L)
            return new, L * norm(new - y)

        L = L_y + mu
        new, residual = moved(y, upper.f_y, L)
        cost.projections += 1
        for _ in range(ASCENT_STEPS):
            if not residual > target:
                break
            ahead = kernels.upper(x, theta, new)
            cost.gradients += 1
            cost.projections += 1
            step = new - y
            square = float(step @ step)
            if square > 0:
                L_y = max(float((upper.f_y - ahead.f_y) @ step) / square, 0.0)
            if L_y <= 1e3 * kernels.eps * norm(upper.f_y) / max(square, 1e-300) ** 0.5:
                L_y = 0.0  # f is linear in y as far as can be seen
            y, upper = new, ahead
            new, left = moved(y, upper.f_y, L_y + mu)
            if left > residual:
                L = max(2 * L, L_y + mu)
                new, left = moved(y, upper.f_y, L)
            else:
                L = L_y + mu
            residual = left
        return y, upper, L_y


def norm(v: Vector) -> float:
    return float(v @ v) ** 0.5
