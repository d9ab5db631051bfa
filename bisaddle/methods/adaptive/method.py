"""Adaptive: no step size to choose. Multiplier steps in y, face quasi-Newton steps in x, warm inner solves.

The algorithm, with f_mu and the rest of the notation as in the docstring of Adaptive:

    theta, w <- solved roughly at the start x;     y0 <- y;     mu <- the weight at which f_y just reaches across Y
    evaluate f_mu and its gradient at x                 [inner.py: theta*(x), the maximiser y and w are solved for]
    repeat
        gap <- x gap + y gap;     lag <- mu |y - y0|^2;     decrease <- -<grad f_mu, d> for the step d below
        from now on inner solves are as accurate as these ask for
        if gap <= target:
            evaluate f_mu at x with inner solves a hundred times more accurate
            target <- target / 10 if the gap is confirmed, else all later inner solves are ten times more accurate
        else if decrease <= lag / 10, or x gap <= 0.15 target, or 100 steps of x were made with this y0 and mu:
            y0 <- y in the first two cases;     mu <- 4 mu, mu or mu / 4, by how many steps of x it took, pairs with it
            evaluate f_mu at x
        else:
            d0 <- P_X(x - tau grad f_mu) - x;     d <- d0 with its part in the face of X by L-BFGS     [coordinates.py]
            d <- d shortened to |d| <= 0.05 |x| and then to |x + d| <= 1.01 |x|, if f or g has a hidden layer in x
                                                                                       [parts.py, oracle/depends.py]
            evaluate f_mu at x + a d for a = 1 and then shorter steps until it is low enough; after three trials d <- d0
            x <- x + a d;     tau <- the step of Barzilai and Borwein

Where x is small, without a lower level and with f linear in y, second-order steps come first: second.py.
"""

from collections import deque
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from math import isfinite
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import numpy as np

from bisaddle.methods.adaptive import constants as const, second, wide
from bisaddle.methods.adaptive.coordinates import Space, face_direction
from bisaddle.methods.adaptive.first import UNKNOWN, first_scales, reach
from bisaddle.methods.adaptive.found import Inner
from bisaddle.methods.adaptive.inner import Solver, SolverState
from bisaddle.methods.adaptive.parts import (
    Aim,
    Centre,
    Descent,
    Gaps,
    Place,
    growth_share,
    most_pairs,
    reach_share,
    shorter,
)
from bisaddle.methods.base import EITHER, About, HostMethod, Look
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.problem import Problem
from bisaddle.sets.base import Leaf, as_leaf
from bisaddle.sets.flat_base import all_finite
from bisaddle.trees import stepped


class Adaptive(HostMethod):
    """A method without step sizes: you choose only the gap to reach.

        f_mu(x) = max_{y in Y} f(x, theta*(x), y) - mu/2 |y - y0|^2,     grad f_mu = f_x - g_theta_x w at the maximiser
        x:   spectral projected gradient on f_mu, with L-BFGS inside the face of X and a nonmonotone line search
        y0 <- the maximiser, once x is as stationary as y0 allows: this drives the y gap to 0 at fixed mu
        theta, w:  Newton-CG and CG from a prediction by earlier points, as accurate as the gap requires

    One step is one evaluation of f_mu and its gradient. tol: the gap to aim for. Once it is reached (checked with inner
    solves a hundred times more accurate), the method aims for a tenth of it.
    Where the lower level is small, or made of small independent parts (tasks along the first axis of theta), an inverse
    Hessian is computed once the solves have cost as much, and preconditions later ones.
    Blocks of x_set without a projection are weighted sums of atoms from their LMO, with all weights corrected in every
    step; large NuclearBalls and Spectrahedra use the leading part of a decomposition.
    It is driven from the host: its decisions are plain Python, and only f, g and their derivatives are compiled. So it
    has no step for your own jit or vmap.
    Needs: on every block of x_set a projection or an LMO, a projection on y_set; f concave in y, g strongly convex in
    theta; no constants, but mu_g helps if known.
    Other units of x, y or f change no step, but for what they make of tol.
    Promises: limit points of the steps of x at fixed y0, mu and exact inner solves are stationary for f_mu; the y gap
    is at most mu |y - y0|. The recentring is observed to converge, not proved to: docs/adaptive.md. The problem and its
    gap are from  [AYH25]; the method is ours.
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

    resumable: ClassVar[bool] = True

    def looks(
        self, problem: Problem, kernels: Kernels, x: Vector, theta: Vector, y: Vector, state: Any = None
    ) -> Iterator[Look]:
        search = Search(kernels, x)
        if state is None:
            return search.from_start(x, theta, y, problem.constants.mu_g, float(self.tol))
        search.restore(state)
        return search.looks()


def _as_tol(value) -> Leaf:
    tol = as_leaf(value, "Adaptive tol")
    if tol.shape != () or not (np.isfinite(tol) and tol > 0):
        raise ValueError(f"Adaptive: tol must be finite and > 0, given {value}")
    return tol


class Search:
    """One run. here: the last accepted place; gaps: at the last measure; k: evaluations of f_mu so far."""

    def __init__(self, kernels: Kernels, x: Vector):
        self.kernels, self.solver, self.space = kernels, Solver(kernels), Space(kernels.x_set, x)
        self.k = 0
        self.second: second.Second | None = None  # while second-order steps are made
        self.ahead: tuple[Vector, Vector, float, bool] | None = None  # the next direction, once it is known

    def from_start(self, x: Vector, theta: Vector, y: Vector, mu_g: Any, tol: float) -> Iterator[Look]:
        """The first Look, and all others. mu_g: as known, or None."""
        self._begin(x, theta, y, mu_g, tol)
        del x, theta, y  # a copy less of each while the run lasts
        yield self._measured()
        yield from self.looks()

    def _begin(self, x: Vector, theta: Vector, y: Vector, mu_g: Any, tol: float) -> None:
        inner, Gx = self.solver.begin(x, theta, y, mu_g)
        first = UNKNOWN if self.kernels.y_set is None else first_scales(self.solver, x, inner, Gx)
        self.here = Place(self.space.first(x), x, inner, 0.0, Gx, self.space.pull(Gx))
        pairs = deque(maxlen=most_pairs(self.here.z.size, x.itemsize))
        self.aim = Aim(tol, const.FIRST_ACCURACY * inner.slope, const.FIRST_ACCURACY * first.slope, first.slope)
        # what a step promises says little, in a network, of how far the minimum is
        self.centre = Centre(y, first.mu, by_gap=self.kernels.has_hidden_layer)
        self.descent = Descent(pairs=pairs, scale=max(first.range, abs(inner.upper.value)))
        if not (second.suits(self) and second.begin(self, const.FIRST_TAU * reach(first.range, norm(Gx) or 1.0, x))):
            self._evaluate_centre()
        slope = norm(self.here.Gz) or norm(self.here.Gx) or 1.0  # a start at 0 is an atom without a gradient
        length = reach(first.range, slope, x)
        self.descent.tau = self.descent.first_tau = const.FIRST_TAU * length / slope
        self.descent.far_tau = const.FIRST_TAU * max(length, norm(x)) / slope

    def looks(self) -> Iterator[Look]:
        """One Look after every further evaluation of f_mu."""
        while True:
            if self.second is not None:
                yield from second.steps(self)
                yield self._measured()
                continue
            gaps, target = self.gaps, self.aim.target
            stationary = self._followed() or gaps.x <= const.STATIONARY_TARGET * target
            if gaps.both <= target:
                self._refine()
            elif stationary or self.centre.age >= const.STALE:
                self._move_centre(stationary)
                self._evaluate_centre()
            else:
                yield from self._line_search()
            yield self._measured()

    def _followed(self) -> bool:
        """Whether x has followed the centre; Frank-Wolfe gaps, of first order, are compared with mu |y - y0| diam Y."""
        gaps, y_set = self.gaps, self.kernels.y_set
        if y_set is None:
            return False
        shift = (self.centre.mu * gaps.lag) ** 0.5
        if self.centre.by_gap:
            return gaps.x <= const.STATIONARY_GAP * shift
        share = const.STATIONARY_CAREFUL if self.centre.careful else const.STATIONARY
        if gaps.decrease > share * gaps.lag or (self.centre.careful and gaps.size > const.RISEN * self.centre.lowered):
            return False
        return gaps.beyond <= const.STATIONARY_VERTEX * shift * y_set.diameter()

    def state(self) -> "SearchState":
        """All that the next step depends on, as it is now."""
        own = (self.k, self.here, self.gaps, self.aim, self.centre, self.descent, self.second)
        return SearchState(*deepcopy(own), self.solver.state(), self.space.atoms())

    def restore(self, state: "SearchState") -> None:
        if not isinstance(state, SearchState):
            raise ValueError(f"the state of an Adaptive is needed, given {type(state).__name__}")
        self.k, self.here, self.gaps, self.aim, self.centre, self.descent, self.second, solver, atoms = state
        self.solver.restore(solver)
        self.space.restore(atoms)
        z, x, inner = self.here.z, self.here.x, self.here.inner
        sizes = [part.size for part in (z, x, inner.theta, inner.y)]
        needed = [self.space.first(x).size, self.kernels.x.size, self.kernels.theta.size, self.kernels.y.size]
        if sizes != needed:
            raise ValueError(f"z, x, theta and y of the sizes {needed} are needed, found {sizes}")

    def _measured(self) -> Look:
        """Between two steps: the only looks from which a run can be taken up again."""
        if self.second is None:
            self._measure()
        else:
            second.measure(self)
        return self._look()._replace(state=self.state)

    def _look(self) -> Look:
        here, gaps, y_set = self.here, self.gaps, self.kernels.y_set
        inner = here.inner
        value = inner.upper.value - (0.0 if y_set is None else y_set.penalty(inner.y))
        counts = self.solver.cost.counts()
        return Look(self.k, here.x, inner.theta, inner.y, inner.w, gaps.x, gaps.both - gaps.x, value, counts)

    def _evaluate(self, z: Vector, x: Vector, warm: Inner, stays: bool, aim: Aim) -> Place:
        residuals = aim.residuals(warm)
        found = self.solver.evaluate(x, warm, stays, self.centre.y0, self.centre.mu, residuals)
        self.k += 1
        return Place(z, x, found.inner, found.value, found.Gx, self.space.pull(found.Gx), found.solved)

    def _evaluate_at(self, z: Vector, warm: Inner) -> Place:
        return self._evaluate(z, self.space.x_of(z), warm, False, self.aim)

    def _evaluate_again(self, aim: Aim) -> None:
        """f_mu where x is; what is known there is kept."""
        self.here = self._evaluate(self.here.z, self.here.x, self.here.inner, True, aim)

    def _evaluate_centre(self) -> None:
        """f_mu where x is, with the centre and weight as they are now; values of another f_mu do not count."""
        self._evaluate_again(self.aim)
        self.descent.values = [self.here.value]
        self.centre.age = 0

    def _gaps(self) -> tuple[Gaps, list[Vector | None]]:
        """The gaps here, and the vertices that tell those of blocks without a projection."""
        here, inner, y_set = self.here, self.here.inner, self.kernels.y_set
        vertices = self.space.vertices(here.Gx)
        self.solver.cost.lmos += self.space.lmos
        ahead = d0, _, slope, _ = self._direction()
        # a large x, of which few pairs are kept, has no room for them: they are found again
        self.ahead = ahead if self.descent.pairs.maxlen == const.PAIRS else None
        del ahead, _
        self.solver.cost.projections += 2
        x_gap, size, beyond = self.space.gap(here.x, here.Gx, vertices, d0, self.descent.tau)
        decrease = max(-slope, 0.0)
        if y_set is None:
            return Gaps(x_gap, x_gap, size, decrease, 0.0), vertices
        y_gap = norm(inner.y - y_set.prox(inner.y + inner.upper.f_y, 1.0))
        away = inner.y - self.centre.y0
        return Gaps(x_gap, x_gap + y_gap, size, decrease, self.centre.mu * float(away @ away), beyond), vertices

    def _direction(self) -> tuple[Vector, Vector, float, bool]:
        """(d0, d, slope along d, whether d is a quasi-Newton step): d is d0 where the other is of no use."""
        descent, here = self.descent, self.here
        given = self.space, here.z, here.Gz, descent.tau, descent.pairs
        if descent.pairs.maxlen == const.PAIRS:
            d0, d = face_direction(*given, self.space.units if descent.pairs else None)
        else:
            d0, d = wide.face_direction(*given)
        slope = float(here.Gz @ d)
        least = const.STEEP * norm(d) * norm(d0) / descent.tau
        sound = isfinite(slope) and all_finite(d) and slope <= -least
        if sound and descent.pairs and not descent.plain_only:
            return d0, d, slope, True
        slope = float(here.Gz @ d0)
        # where its terms cancel, rounding may hide it; a projection has at least the other one
        return d0, d0, slope if slope < 0 else -float(d0 @ d0) / descent.tau, False

    def _plain_direction(self) -> Vector:
        return wide.plain_direction(self.space, self.here.z, self.here.Gz, self.descent.tau)

    def _measure(self) -> None:
        """The gaps here and the accuracy that they ask for; vertices become atoms where they promise enough."""
        self.gaps, vertices = self._gaps()
        self.solver.cost.projections += 2
        gaps, here = self.gaps, self.here
        self.aim.follow(gaps, self.centre.mu)
        z = self.space.grow(here.z, here.x, here.Gx, vertices)
        if z is not None:
            self.descent.pairs.clear()  # they belong to other coordinates
            self.here = here._replace(z=z, Gz=self.space.pull(here.Gx))
            self.ahead = None

    def _refine(self) -> None:
        """The acceptance test: the gap at the same x by much more accurate solves."""
        aim, before = self.aim, self.here
        self._evaluate_again(replace(aim, accuracy=aim.target, y_accuracy=aim.target, c_low=const.REFINED * aim.c_low))
        self.descent.values[-1] = self.here.value
        gaps, _ = self._gaps()
        self.solver.cost.projections += 1
        if gaps.both + const.DISTRUST * norm(self.here.Gz - before.Gz) <= aim.target:
            aim.target = max(const.NEXT_TARGET * aim.target, const.TARGET_ROUNDING * self.kernels.eps)
        else:
            aim.tighten(const.LEAST_C_LOW)

    def _move_centre(self, stationary: bool) -> None:
        if self.kernels.y_set is None:  # without a centre to move, only the kind of step can be changed
            self.descent.plain_only = True
            return
        mu, gaps = self.centre.mu, self.gaps
        if not np.isfinite(self.centre.best[0]):  # a start far away may have had values that mean nothing here
            now = max(abs(self.here.value), gaps.decrease, gaps.lag)
            self.descent.scale = min(self.descent.scale, now)
        near = gaps.both - gaps.x <= const.STATIONARY_TARGET * self.aim.target
        self.centre.move(self.here.inner.y, stationary, gaps, near)
        if self.centre.mu == mu:
            return
        if self.kernels.has_hidden_layer:  # whose limits on steps were chosen without them
            self.descent.pairs.clear()
        else:
            self.descent.rescale(mu / self.centre.mu)

    def _line_search(self) -> Iterator[Look]:
        """To the next accepted place. The Look after the last evaluation is left to the caller, who measures first."""
        descent = self.descent
        d0, d, slope, quasi_newton = self.ahead or self._direction()
        roomy = descent.pairs.maxlen == const.PAIRS
        d0 = d0 if roomy or not quasi_newton else None  # of a large x it is found again if it is needed
        d, slope = self._within_reach(d, slope)
        length, warm = 1.0, self.here.inner
        for number in range(1, const.MOST_TRIALS + 1):
            trial = self._evaluate_at(stepped(self.here.z, length, d), warm)
            if descent.low_enough(self.here, trial, d, length * slope):
                descent.accept(self.here, trial, d if length == 1 else wide.scaled(d, length), length, quasi_newton)
                self.here = trial
                self.centre.age += 1
                return
            # all but f and its gradients, which are those of another x
            warm = trial.inner._replace(upper=self.here.inner.upper) if trial.sound else self.here.inner
            share = shorter(self.here, trial, length * slope)
            del trial  # a large one, while the next is made
            if quasi_newton and number == const.QUASI_NEWTON_TRIALS:
                del d
                d0 = self._plain_direction() if d0 is None else d0
                length, (d, slope) = 1.0, self._within_reach(d0, float(self.here.Gz @ d0))
                quasi_newton, descent.plain_only = False, True
            else:
                length *= share
            if number < const.MOST_TRIALS:
                yield self._look()
            if number in const.RECHECKS:
                self.aim.tighten(const.LEAST_C_LOW_TRIALS)
                self._evaluate_again(self.aim)
                descent.values[-1] = max(descent.values[-1], self.here.value)
                slope, warm = float(self.here.Gz @ d), self.here.inner
                if not slope < 0:
                    return
                yield self._look()
        self.centre.age = const.STALE  # another mu may help
        descent.tau *= const.TAU_AFTER_FAILURE

    def _within_reach(self, d: Vector, slope: float) -> tuple[Vector, float]:
        """d and its slope, shortened where x holds the weights of a network: they turn a little, and grow even less."""
        if not self.kernels.has_hidden_layer:
            return d, slope
        space, z, size = self.space, self.here.z, norm(self.here.x)
        share = reach_share(norm(space.x_of(d)), size)
        d, slope = share * d, share * slope
        back = growth_share(norm(space.x_of(z + d)), size)
        if back == 1:
            return d, slope
        pulled = space.project(back * (z + d)) - z  # what turns the weights is kept
        self.solver.cost.projections += 1
        new = float(self.here.Gz @ pulled)
        small = growth_share(norm(space.x_of(z + pulled)), size) >= const.GROWTH_ROUNDING  # surely if 0 is in X
        if small and new <= -const.STEEP * norm(pulled) * self.gaps.size:
            return pulled, new
        rest = const.LAYER_GROWTH / const.LAYER_REACH
        return rest * d, rest * slope


class SearchState(NamedTuple):
    """What a Search remembers from one step to the next."""

    k: int
    here: Place
    gaps: Gaps
    aim: Aim
    centre: Centre
    descent: Descent
    second: second.Second | None
    solver: SolverState
    atoms: list[tuple[Vector, Vector]]
