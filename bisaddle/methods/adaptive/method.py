"""Adaptive: no step size to choose. Multiplier steps in y, face quasi-Newton steps in x, warm inner solves."""

from collections.abc import Iterator
from typing import ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from bisaddle.methods.adaptive.coordinates import Space
from bisaddle.methods.adaptive.face import Pairs, face_direction
from bisaddle.methods.adaptive.inner import Inner, Solver, norm
from bisaddle.methods.adaptive.inverse import Inverse
from bisaddle.methods.adaptive.recall import Recall
from bisaddle.methods.adaptive.start import first_look, first_weight, least_curvature
from bisaddle.methods.base import EITHER, About, HostMethod, Look
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.problem import Problem
from bisaddle.sets.base import Leaf, as_leaf

HISTORY = 10  # values that a line search compares with
TRIES = 30
SAFEGUARDS = (8, 16, 24)  # tries after which the gradient is looked at anew
STALE = 100  # steps of x at one centre
IDLE = 40  # centres without a smaller gap


class Adaptive(HostMethod):
    """A method without step sizes: only a gap to reach.

        f_mu(x) = max_{y in Y} f(x, theta*(x), y) - mu/2 |y - y0|^2,     grad f_mu = f_x - g_theta_x w at the maximiser
        x:   spectral projected gradient on f_mu, its part in the face of X by L-BFGS, nonmonotone line search
        y0 <- the maximiser, once x is as stationary as y0 allows: drives the y gap to 0 at fixed mu
        theta, w:  Newton-CG and CG from where earlier places point, as accurate as the gap asks for

    One step is one evaluation of f_mu and its gradient. tol: the gap to work towards; when it is reached (checked by
    a hundred times more accurate inner solves) the method goes on towards a tenth of it.
    Where the lower level is small, or made of small parts that do not touch (tasks along the first axis of theta), an
    inverse Hessian is computed once the solves have taken as much, and preconditions the following ones.
    Blocks of x_set without a projection move by the weights of atoms that their LMO delivers, all weights corrected in
    every step; large NuclearBalls and Spectrahedra by the leading part of a decomposition.
    It is driven from the host: its decisions are plain Python, and only f, g and their derivatives are compiled. So it
    has no step for a jit or vmap of your own.
    Needs: on every block of x_set a projection or an LMO, a projection on y_set; f concave in y, g strongly convex in
    theta; no constants, mu_g if known.
    Promises: limit points of the steps of x at fixed y0, mu and exact inner solves are stationary for f_mu; the y gap
    is at most mu |y - y0|. That the recentring converges is observed, not proved: docs/adaptive.md. The problem and its
    gap are those of  [AYH25]; the method is ours.
    """

    tol: Leaf = eqx.field(converter=lambda tol: _as_tol(tol), default=1e-6)
    name: ClassVar[str] = "Adaptive"
    about: ClassVar[About] = About(
        problems=("bilevel saddle", "saddle", "bilevel"),
        x_oracle=EITHER,
        loops="double",
        second_order="CG for the lower step and for w, half of all calls or more; 1 cross",
        complexity="none proved; limit points stationary for each f_mu",
        steps="none to choose",
        reference="AYH25",
    )

    def looks(self, problem: Problem, kernels: Kernels, x: Vector, theta: Vector, y: Vector) -> Iterator[Look]:
        yield from Search(problem, kernels, x, theta, y, float(self.tol)).steps()


def _as_tol(value) -> Leaf:
    tol = as_leaf(value, "Adaptive tol")
    if tol.shape != () or not (np.isfinite(tol) and tol > 0):
        raise ValueError(f"Adaptive: tol must be finite and > 0, given {value}")
    return tol


class Place(NamedTuple):
    """A point that was looked at: coordinates z of x, inner variables, value and gradient of f_mu; Gz: that in z."""

    z: Vector
    x: Vector
    inner: Inner
    value: float
    Gx: Vector
    Gz: Vector

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.value) and np.all(np.isfinite(self.Gz)))


class Search:
    """One run.

    here         the last accepted place                                 c_low, accuracy    of the inner solves
    y0, mu       centre and weight of the proximal term in y             age                steps of x at this centre
    target       the gap that the method works towards                   gap, x_gap         as the method sees them
    best         the smallest gap at a centre                            idle               centres since then
    tau          length of the next projected gradient step              history            the last values of f_mu
    plain_only   no quasi-Newton step until a projected gradient step was taken
    """

    def __init__(self, problem: Problem, kernels: Kernels, x: Vector, theta: Vector, y: Vector, tol: float):
        self.kernels = kernels
        recall = Recall() if kernels.has_lower and Recall.fits(x, y, theta, theta) else None
        self.solver = Solver(kernels, kernels.y_set, recall, Inverse(kernels))
        mu_g = least_curvature(problem, kernels, self.solver, x, theta)
        inner, Gx = first_look(self.solver, x, theta, y, mu_g)
        self.y0 = y
        self.mu = self.first_mu = 1.0
        if kernels.y_set is not None:
            self.mu = self.first_mu = first_weight(self.solver, kernels.x_set, x, inner, Gx)
        if recall is not None:
            recall.add(x, y, inner.theta, inner.w)
        self.space = Space(kernels.x_set, x)
        z = self.space.first(x)
        self.here = Place(z, x, inner, 0.0, Gx, self.space.pull(Gx))
        self.k = 0
        self.c_low = self.accuracy = 0.1
        self.target = tol
        self.gap = self.x_gap = self.last_shift = self.best = np.inf
        self.age = self.idle = 0
        self.tau = 0.0
        self.history: list[float] = []
        self.pairs = Pairs()
        self.plain_only = False

    def steps(self) -> Iterator[Look]:
        """One Look after every evaluation of f_mu."""
        self._centre()
        self.tau = min(1.0, 1 / max(float(np.max(np.abs(self.here.Gz))), 1e-300))
        while True:
            size, shift = self._gaps()
            yield self._look()
            stationary = self.x_gap <= 0.3 * max(shift, 0.5 * self.target)
            if self.gap <= self.target:
                self._refine()
            elif stationary or self.age >= STALE:
                self._move_centre(stationary, shift)
                self._centre()
            else:
                yield from self._line_search(size)

    def _look(self) -> Look:
        inner, y_set = self.here.inner, self.kernels.y_set
        value = inner.upper.value - (0.0 if y_set is None else y_set.penalty(inner.y))
        gaps, counts = (self.x_gap, self.gap - self.x_gap), self.solver.cost.counts()
        return Look(self.k, self.here.x, inner.theta, inner.y, inner.w, *gaps, value, counts)

    def _evaluate(self, z: Vector, warm: Inner, accuracy: float, c_low: float) -> Place:
        """f_mu at z; where z is here, what is known there is kept."""
        stays = z is self.here.z
        x = self.here.x if stays else self.space.x_of(z)
        found = self.solver.evaluate(x, warm, stays, self.y0, self.mu, accuracy, c_low)
        self.k += 1
        return Place(z, x, found.inner, found.value, found.Gx, self.space.pull(found.Gx))

    def _evaluate_here(self, accuracy: float, c_low: float) -> Place:
        return self._evaluate(self.here.z, self.here.inner, accuracy, c_low)

    def _gaps(self) -> tuple[float, float]:
        """(the x gap on the scale of the gradient, mu |y - y0|); atoms are added where there are such."""
        here, cost, space = self.here, self.solver.cost, self.space
        vertices = space.vertices(here.Gx)
        if space.has_atoms:
            z = space.grow(here.z, here.x, here.Gx, vertices)
            if z is not None:
                self.pairs.clear()
                self.here = here = here._replace(z=z, Gz=space.pull(here.Gx))
        self.x_gap, size = space.gap(here.z, here.x, here.Gx, vertices)
        shift = self.mu * norm(here.inner.y - self.y0) if self.kernels.y_set is not None else 0.0
        self.gap = self.x_gap + self._y_gap()
        self.accuracy = size + 0.1 * shift + 0.1 * self.target
        cost.projections += 2
        cost.lmos += space.lmos
        return size, shift

    def _y_gap(self) -> float:
        """|y - P_Y(y + f_y)|"""
        y_set, inner = self.kernels.y_set, self.here.inner
        return 0.0 if y_set is None else norm(inner.y - y_set.prox(inner.y + inner.upper.f_y, 1.0))

    def _refine(self) -> None:
        """The acceptance test: the gap at the same x by much more accurate solves."""
        before, self.here = self.here, self._evaluate_here(self.target, 0.01 * self.c_low)
        self.history[-1] = self.here.value
        space, cost = self.space, self.solver.cost
        x_gap, _ = space.gap(self.here.z, self.here.x, self.here.Gx, space.vertices(self.here.Gx))
        cost.projections += 1
        cost.lmos += space.lmos
        if x_gap + self._y_gap() + 0.01 * norm(self.here.Gz - before.Gz) <= self.target:
            self.target = max(0.1 * self.target, 100 * self.kernels.eps)
        else:
            self.c_low = max(0.1 * self.c_low, 1e-8)

    def _centre(self) -> None:
        """f_mu at x with the centre and weight as they are now."""
        self.here = self._evaluate_here(self.accuracy, self.c_low)
        self.history = [self.here.value]
        self.age = 0

    def _move_centre(self, stationary: bool, shift: float) -> None:
        """y0 <- y if x has followed it; mu by how many steps of x that took."""
        if self.kernels.y_set is None:
            self.plain_only = True
            return
        mu, first = self.mu, self.first_mu
        idle = 0 if self.gap < 0.9 * self.best else self.idle + 1
        # centres that go round in circles are given up: y0 stays, and mu -> 0 (docs/adaptive.md, 6)
        circling = max(idle, self.idle) >= IDLE
        if circling:
            mu = mu / 4 if stationary else mu
        elif not stationary:
            mu = min(4 * mu, 1e12 * first)
        elif self.age > 30:
            mu = 4 * mu
        elif shift > 0.5 * self.last_shift and self.age <= 10:
            mu = max(mu / 4, 1e-6 * first)
        if stationary:
            self.last_shift = shift
            if not circling:
                self.y0 = self.here.inner.y
        if mu != self.mu:
            self.pairs.clear()
        self.mu = mu
        self.best = min(self.best, self.gap)
        self.idle = IDLE if circling else idle

    def _line_search(self, size: float) -> Iterator[Look]:
        """To the next accepted place; size: how far x is from stationary, on the scale of the gradient."""
        space, Gz = self.space, self.here.Gz
        d0, d = face_direction(space.linearised, space.project, self.here.z, Gz, self.tau, self.pairs)
        self.solver.cost.projections += 2
        slope = float(Gz @ d)
        descends = np.isfinite(slope) and np.all(np.isfinite(d)) and slope <= -1e-6 * norm(d) * size
        quasi_newton = bool(descends) and len(self.pairs) > 0 and not self.plain_only
        if not quasi_newton:
            d, slope = d0, float(Gz @ d0)
        length, warm = 1.0, self.here.inner
        for tries in range(1, TRIES + 1):
            tried = self._evaluate(self.here.z + length * d, warm, self.accuracy, self.c_low)
            if self._low_enough(tried, d, length * slope):
                self._accept(tried, length * d, quasi_newton)
                return
            warm = tried.inner if tried.finite else self.here.inner
            if quasi_newton and tries == 3:
                d, length, slope = d0, 1.0, float(self.here.Gz @ d0)
                quasi_newton, self.plain_only = False, True
            else:
                length *= self._shorter(tried, length * slope)
            if tries == TRIES:
                break
            yield self._look()
            if tries in SAFEGUARDS:  # perhaps the gradient is not what the values say
                self.c_low = max(0.1 * self.c_low, 1e-6)
                self.here = self._evaluate_here(self.accuracy, self.c_low)
                self.history[-1] = max(self.history[-1], self.here.value)
                slope, warm = float(self.here.Gz @ d), self.here.inner
                if not slope < 0:
                    return
                yield self._look()
        self.age = STALE
        self.tau *= 0.1

    def _low_enough(self, tried: Place, d: Vector, expected: float) -> bool:
        if not tried.finite:
            return False
        top, size = max(self.history), max(1.0, abs(self.here.value))
        if tried.value <= top + 1e-4 * expected:
            return True
        # where rounding hides a decrease, the slope tells
        hidden = abs(expected) < 1e-8 * size and tried.value <= top + 1e-9 * size
        return hidden and float(tried.Gz @ d) <= 0.8 * abs(float(self.here.Gz @ d))

    def _shorter(self, tried: Place, expected: float) -> float:
        """The factor by which a step that was not low enough is shortened: the minimum of a parabola, within limits."""
        rise = tried.value - self.here.value - expected
        if not tried.finite or not expected < 0:
            return 0.1
        return 0.5 if rise == 0 else min(max(-0.5 * expected / rise, 0.1), 0.5)

    def _accept(self, tried: Place, s: Vector, quasi_newton: bool) -> None:
        q = tried.Gz - self.here.Gz
        ss, sq, qq = float(s @ s), float(s @ q), float(q @ q)
        if sq > 1e-12 * (ss * qq) ** 0.5:
            self.pairs.add(s, q)
        tau = min(4 * self.tau, 1e8)
        if sq > 0:
            long, short = ss / sq, sq / qq
            tau = short if short < 0.5 * long else long
        self.tau = min(max(tau, 1e-10), 1e10)
        self.history = [*self.history[-HISTORY + 1 :], tried.value]
        self.age += 1
        self.plain_only = self.plain_only and quasi_newton
        self.here = tried
