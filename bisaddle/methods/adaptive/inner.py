"""What Adaptive solves at every x: the lower level, the regularised maximum over y, the linear system for w.

`Solver` does it; `Recall` says where a solve begins, `Inverse` preconditions it.
"""

from copy import deepcopy
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.climb import climb
from bisaddle.methods.adaptive.found import Cost, Evaluation, Inner, Lower, Residuals
from bisaddle.methods.adaptive.inverse import Inverse
from bisaddle.methods.adaptive.recall import Recall
from bisaddle.methods.base import NotStronglyConvex
from bisaddle.oracle.defined import inside, is_number
from bisaddle.oracle.implicit import newton_step, norm
from bisaddle.oracle.kernels import LARGE, Kernels, Solve, Upper, Vector
from bisaddle.oracle.sketch import kept, sketched
from bisaddle.oracle.spectra import extreme_eigenvalues
from bisaddle.sets.flat_base import all_finite
from bisaddle.sets.flat_compiled import is_plain
from bisaddle.trees import aligned


class Solver:
    """Evaluations of f_mu, what they have cost, and what earlier ones are good for: recall and inverse.

    recall: None without a lower level, and where it would take too much memory; slopes: f_y at earlier x, in the place
    of theta; None where f is not linear in y, and for a large x or y.
    """

    def __init__(self, kernels: Kernels):
        self.kernels = kernels
        self.cost = Cost()
        self.inverse = Inverse(kernels)
        entries = (kept(kernels.x.size) if kernels.wide else kernels.x.size) + kernels.y.size + 2 * kernels.theta.size
        # in a network steps are long, and what was found before them foretells little more than the last does
        recalls = not kernels.has_hidden_layer
        self.recall = Recall() if recalls and kernels.has_lower and const.RECALLED_ENTRIES // entries > 2 else None
        # a large x would fill the memory with copies of itself, and only products of its moves are asked for
        self.short = sketched if kernels.wide else lambda x: x
        fits = const.RECALLED * (kernels.x.size + kernels.y.size) <= const.RECALLED_INPUTS
        self.slopes = Recall() if recalls and fits and kernels.y_set is not None and kernels.linear_in_y else None
        # a penalty is no part of f, and the memory for a large x has no room for two of its gradients
        plain = kernels.y_set is not None and all(is_plain(block.of) for block, _ in kernels.y_set.blocks)
        self.climbs = plain and not kernels.wide

    def state(self) -> "SolverState":
        """What later evaluations depend on, as it is now."""
        inverse = self.inverse
        return SolverState(
            *deepcopy((self.cost, self.recall, self.slopes)),
            inverse.excess,
            inverse.apart,
            np.asarray(inverse.matrices),
        )

    def restore(self, state: "SolverState") -> None:
        if state.matrices.shape != self.kernels.identity.shape:
            raise ValueError(
                f"matrices of shape {self.kernels.identity.shape} are needed, found {state.matrices.shape}"
            )
        self.cost, self.recall, self.slopes, self.inverse.excess, self.inverse.apart, _ = state
        self.inverse.matrices = self.kernels.put(state.matrices)

    def begin(self, x: Vector, theta: Vector, y: Vector, known: Any) -> tuple[Inner, Vector]:
        """theta and w at the start, roughly, and the gradient in x there. known: mu_g, or None."""
        kernels = self.kernels
        nowhere = np.zeros_like(theta) if theta.any() else None
        mu_g = self._least_curvature(x, theta, known)
        # so far away that g is no number, or rounding hides how it bends
        if nowhere is not None and not 0 < mu_g < np.inf:
            theta, nowhere = nowhere, None
            mu_g = self._least_curvature(x, theta, known)
        if mu_g <= 0:
            raise NotStronglyConvex
        target = const.FIRST_RESIDUAL * min(1.0, mu_g)
        w = g_theta = theta
        if kernels.has_lower:
            theta, g_theta, products, least, _ = self.solve_lower(x, theta, target, last=nowhere)
            mu_g = mu_g if kernels.quadratic else min(mu_g, least)  # far from theta* g may bend as nowhere else
            self.inverse.after(products)
        upper = kernels.upper(x, theta, y)
        self.cost.gradients += 1
        Gx = upper.f_x
        if kernels.has_lower:
            upper, right = self._apart(upper)
            solved = self._solve_adjoint(x, theta, right, target * norm(right))
            w = solved.w
            Gx = Gx - solved.cross
            del solved, right
        if self.recall is not None:
            self.recall.add(self.short(x), y, theta, w)
        slope = norm(upper.f_x) + distance(upper.f_x, Gx)
        return Inner(theta, y, w, self._if_short(g_theta), self._kept(upper), 0.0, mu_g, slope), Gx

    def _least_curvature(self, x: Vector, theta: Vector, known: Any) -> float:
        """mu_g as known, or the least eigenvalue of g_theta_theta by Lanczos, or 0; infinite with no lower level."""
        kernels, products = self.kernels, min(const.LANCZOS_PRODUCTS, self.kernels.theta.size)
        if not kernels.has_lower:
            return np.inf
        if known is not None:
            return max(float(known), kernels.eps)
        product = lambda v: kernels.hessian_product(x, theta, v)
        least, _ = extreme_eigenvalues(product, theta.size, kernels.dtype, products)
        self.cost.hvps += products
        return float(np.maximum(least, kernels.eps)) if not least <= 0 else 0.0  # NaN stays NaN

    def evaluate(self, x: Vector, warm: Inner, stays: bool, y0: Vector, mu: float, residuals: Residuals) -> Evaluation:
        """theta, y and w up to these residuals, or as far as rounding allows; then value and gradient.

            value = f - <w, g_theta> - h(y) - mu/2 |y - y0|^2

        The term <w, g_theta> makes the error of the value quadratic in that of theta. stays: x is where warm was found,
        and what is known there is not asked for again; at another x the solves begin where recall says.
        """
        kernels, recall, y_set = self.kernels, self.recall, self.kernels.y_set
        tight = max(residuals.theta, const.ROUNDING * kernels.eps)
        theta, known, solved = warm.theta, warm.upper if stays else None, True
        lower, least = Lower(theta, warm.g_theta), warm.mu_g
        short = x if recall is None else self.short(x)
        if kernels.has_lower:
            self.cost.hvps += self.inverse.renew(x, theta)  # at a theta that was solved for: a guess may be anywhere
            if not stays and recall is not None:
                theta = recall.theta_at(short)
            there = warm.g_theta if stays and warm.g_theta.size == theta.size else None
            lower = self.solve_lower(x, theta, tight, there, warm.theta)
            theta, least = lower.theta, min(least, lower.least)
            solved = is_solved(lower.g_theta, tight, lower.least, warm.theta)
            self.inverse.after(lower.products)
            known = known if lower.products == 0 else None
        warm = warm if stays else self._foreseen(x, warm, y0, mu)
        y, upper, L_y = self.ascend(x, theta, warm, known, y0, mu, residuals.y)
        # they were not kept, and y is where it was
        if upper.f_x.size < x.size or upper.f_theta.size < theta.size:
            upper = kernels.upper(x, theta, y)
            self.cost.gradients += 1
        w, Gx, value, left = warm.w, upper.f_x, upper.value, lower.left if lower.products else warm.left
        if kernels.has_lower:
            upper, right = self._apart(upper)
            size = norm(right)
            tight = max(residuals.w, const.RELATIVE_ROUNDING * kernels.eps * size)
            # where one product is enough from 0, the residual of a guess would be a second one
            start = None if left * size <= tight else w if recall is None else recall.w_at(short, y)
            adjoint = self._solve_adjoint(x, theta, right, tight, start)
            least = min(least, adjoint.least)
            w = adjoint.w
            Gx = Gx - adjoint.cross
            solved = solved and norm(adjoint.r) <= max(tight, const.UNSOLVED * size)
            del adjoint, right  # whose cross product is as long as x
            value -= float(w @ lower.g_theta)
        if y_set is not None:
            away = y - y0
            value -= y_set.penalty(y) + 0.5 * mu * float(away @ away)
        if solved and isfinite(value) and all_finite(Gx):
            if recall is not None:
                recall.add(short, y, theta, w)
            if self.slopes is not None and not (stays and self.slopes.filled):  # one row for each x
                self.slopes.add(x, y[:0], upper.f_y, y[:0])
        slope = max(warm.slope, norm(upper.f_x) + distance(upper.f_x, Gx))
        inner = Inner(theta, y, w, self._if_short(lower.g_theta), self._kept(upper), L_y, least, slope, left)
        return Evaluation(inner, value, Gx, solved)

    def _kept(self, upper: Upper) -> Upper:
        """f and its gradients as they are kept: of a large x without f_x, where the gradient of f_mu is another vector.

        And of a large theta without f_theta. They are asked for again only where neither x nor y moves.
        """
        upper = upper._replace(f_theta=self._if_short(upper.f_theta))
        return upper._replace(f_x=np.zeros(0)) if self.kernels.wide and self.kernels.has_lower else upper

    def _if_short(self, v: Vector) -> Vector:
        """A vector of theta as it is kept: a large one is not."""
        return np.zeros(0, v.dtype) if v.size > LARGE else v

    def _apart(self, upper: Upper) -> tuple[Upper, Vector]:
        """f_theta as a right side, which is all that is left of a large one: it is used up."""
        if not self.kernels.one_large:
            return upper, upper.f_theta
        return upper._replace(f_theta=np.zeros(0)), aligned(np.positive, upper.f_theta)

    def solve_lower(
        self, x: Vector, theta: Vector, target: float, g: Vector | None = None, last: Vector | None = None
    ) -> Lower:
        """theta by conjugate gradients until |g_theta| <= target.

        Where g is not surely quadratic in theta, inside Newton's method, until no step shortens the gradient: then
        rounding is all that is left of it. g: g_theta to begin with, if it is known. last: another theta to begin with,
        for which theta is given up if it does not do at once and has the longer gradient.
        """
        kernels, inverse = self.kernels, self.inverse.matrices
        if g is None and kernels.one_large:  # which a solve would keep in one more copy
            g = kernels.lower_gradient(x, theta)
            self.cost.gradients += 1
        if g is not None and not norm(g) > target:
            return Lower(theta, g)
        # the residual of the system of a quadratic is the new gradient; else the gradient has a remainder besides
        aims = (target, 0.0) if kernels.quadratic else (const.NEWTON_SHARE * target, const.NEWTON_RELATIVE)
        right = None if g is None else aligned(np.negative, g)
        solved = kernels.solve(x, theta, right, *aims, enough=target, inverse=inverse, spend=True)
        self.cost.gradients += g is None
        self.cost.hvps += solved.products
        if kernels.quadratic:
            one = solved.products == 1 and not kernels.has_hidden_layer  # a network ends elsewhere with other digits
            left = norm(solved.r) / max(norm(solved.right if g is None else g), const.TINIEST) if one else np.inf
            del g, right
            new = aligned(np.add, theta, solved.w)
            return Lower(new, aligned(np.negative, solved.r), solved.products, solved.least, left)
        g, products, least = -solved.right if g is None else g, 0, np.inf
        solved, right = solved._replace(r=g[:0], right=g[:0]), None
        length = norm(g)
        for i in range(const.NEWTON_STEPS):
            if last is not None and (not np.isfinite(length) or (i == const.DOUBT and length > target)):
                there = kernels.lower_gradient(x, last)
                self.cost.gradients += 1
                if norm(there) < length or not np.isfinite(length):
                    theta, g, length, solved = last, there, norm(there), None
            if not length > target:
                break
            if solved is None:
                solved = kernels.solve(x, theta, aligned(np.negative, g), *aims, inverse=inverse, spend=True)
                self.cost.hvps += solved.products
            products += solved.products
            least = min(least, solved.least)
            new, new_g, _, gradients = newton_step(kernels, x, theta, solved.w, length)
            self.cost.gradients += gradients
            if not norm(new_g) < length:
                break
            theta, g, length, solved = new, new_g, norm(new_g), None
        return Lower(theta, g, products, least)

    def _solve_adjoint(
        self, x: Vector, theta: Vector, f_theta: Vector, target: float, start: Vector | None = None
    ) -> Solve:
        """w with |g_theta_theta w - f_theta| <= target, and g_theta_x w."""
        inverse = self.inverse.matrices
        solved = self.kernels.solve(x, theta, f_theta, target, start=start, inverse=inverse, cross=True, spend=True)
        self.cost.hvps += solved.products + (start is not None)
        self.cost.cross_products += 1
        self.inverse.after(solved.products)
        return solved

    def _foreseen(self, x: Vector, warm: Inner, y0: Vector, mu: float) -> Inner:
        """The same with the y that f_y at earlier places lets one expect at another x.

        Near them f_y is nearly affine in x, and where f is linear in y the maximiser follows from it without a call.
        """
        if self.slopes is None or not self.slopes.filled:
            return warm
        assert self.kernels.y_set is not None
        y = self.kernels.y_set.prox(y0 + self.slopes.theta_at(x) / mu, 1 / mu)
        return warm._replace(y=y) if all_finite(y) else warm

    def _y_target(self, asked: float, f_y: Vector, mu: float) -> float:
        """The residual that y may leave: what is asked for or rounding allows, and little of what there can be.

        No y of Y leaves more than mu times its diameter, however large f_y is and however much x promises.
        """
        assert self.kernels.y_set is not None
        rounding = const.RELATIVE_ROUNDING * self.kernels.eps * norm(f_y)
        return min(max(asked, rounding), const.Y_FAR * mu * self.kernels.y_set.diameter())

    def _highest(self, f_y: Vector, y: Vector, y0: Vector, mu: float, asked: float) -> Vector:
        """The maximiser for an f linear in y with this slope, or y if its residual is small enough."""
        assert self.kernels.y_set is not None
        self.cost.projections += 1
        new = self.kernels.y_set.prox(y + (f_y - mu * (y - y0)) / mu, 1 / mu)
        return y if mu * norm(new - y) <= self._y_target(asked, f_y, mu) else new

    def ascend(
        self, x: Vector, theta: Vector, warm: Inner, known: Upper | None, y0: Vector, mu: float, asked: float
    ) -> tuple[Vector, Upper, float]:
        """y = argmax f(x, theta, .) - h - mu/2 |. - y0|^2 by projected gradient steps 1 / L; f and its gradients; L_y.

        L = L_y + mu, where L_y is the curvature of f along the last step. An f linear in y has none, and one step is
        exact. After a step with which the residual has grown, L is doubled. known: f and its gradients at warm.y, if
        they are; asked: see _y_target.
        """
        cost, y_set, y, L_y = self.cost, self.kernels.y_set, warm.y, warm.L_y
        cost.gradients += known is None
        slopes = self.kernels.slopes(x, theta) if known is None else None
        if slopes is not None:
            y = self._highest(slopes.f_y, y, y0, mu, asked)
            return y, self.kernels.upper_by(slopes, y), 0.0
        upper, known = self.kernels.upper(x, theta, y) if known is None else known, None
        if y_set is None:
            return y, upper, L_y
        target = self._y_target(asked, upper.f_y, mu)

        def moved(y: Vector, f_y: Vector, L: float) -> tuple[Vector, float]:
            """The next y, and the residual at this one."""
            new = y_set.prox(y + (f_y - mu * (y - y0)) / L, 1 / L)
            return new, L * norm(new - y)

        L = L_y + mu
        new, residual = moved(y, upper.f_y, L)
        cost.projections += 1
        if self.kernels.linear_in_y and residual > target:
            cost.gradients += 1
            del upper  # whose f_x a large x has no room for
            return new, self.kernels.upper(x, theta, new), 0.0
        if not is_number(upper):  # nor is it with another y: x is beyond where f is defined
            return y, upper, L_y

        def evaluate(y: Vector) -> Upper:
            cost.gradients += 1
            cost.projections += 1
            return self.kernels.upper(x, theta, y)

        for count in range(const.ASCENT_STEPS):
            if not residual > target:
                break
            if count == const.CLIMB_AFTER and self.climbs:
                y, upper, L = climb(evaluate, y_set, y, upper, y0, mu, L, target)
                return y, upper, L - mu
            f_y = upper.f_y
            del upper
            new, upper = inside(evaluate, y, new)
            step = new - y
            square = float(step @ step)
            if square > 0:
                L_y = max(float((f_y - upper.f_y) @ step) / square, 0.0)
            if L_y <= const.LINEAR_ROUNDING * self.kernels.eps * norm(f_y) / max(square, const.TINIEST) ** 0.5:
                L_y = 0.0
            y = new
            new, left = moved(y, upper.f_y, L_y + mu)
            if left > residual:
                L = max(2 * L, L_y + mu)
                new, left = moved(y, upper.f_y, L)
            else:
                L = L_y + mu
            residual = left
        return y, upper, L_y


def distance(a: Vector, b: Vector) -> float:
    """|a - b|, of large vectors piece by piece."""
    if a.size <= const.PIECE:
        return norm(a - b)
    pieces = range(0, a.size, const.PIECE)
    return norm(np.array([norm(a[i : i + const.PIECE] - b[i : i + const.PIECE]) for i in pieces]))


def is_solved(g: Vector, target: float, least: float, theta: Vector) -> bool:
    """Whether |g_theta| has met its target, or leaves theta so close to theta* that only rounding can be in the way.

    least: the least curvature met, by which the distance to theta* is judged; theta: one that was solved for before.
    """
    return norm(g) <= max(target, const.UNSOLVED * least * norm(theta))


class SolverState(NamedTuple):
    """What a Solver remembers from one evaluation to the next."""

    cost: Cost
    recall: Recall | None
    slopes: Recall | None
    excess: float
    apart: int
    matrices: Vector
