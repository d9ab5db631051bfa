"""Adaptive: no step size to choose. Multiplier steps in y, face quasi-Newton steps in x, warm inner solves."""

from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.methods.adaptive_start import begin
from bisaddle.methods.adaptive_state import CENTRE, REFINE, SAFEGUARD, TRIAL, AdaptiveLook, AdaptiveState, change, only
from bisaddle.methods.base import EITHER, About, Counts, Method, unaliased
from bisaddle.methods.coordinates import Space
from bisaddle.methods.face_step import face_direction
from bisaddle.methods.inner_solves import Evaluation, Memory, evaluate, where
from bisaddle.problem import Point, Problem
from bisaddle.sets.base import Leaf, as_leaf, traced
from bisaddle.validate import check_problem_at

TRIES = 30
STALE = 100  # steps of x at one centre
IDLE = 40  # centres without a smaller gap


class Adaptive(Method):
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
    unroll: ClassVar[int] = 1
    look_every: ClassVar[int] = 10

    def init(self, problem: Problem, start: Point) -> AdaptiveState:
        check_problem_at(problem, start)
        self.check(problem)
        return begin(self.tol, problem, Point(*(unaliased(part) for part in (start.x, start.theta, start.y))))

    def step(self, problem: Problem, state: AdaptiveState) -> AdaptiveState:  # pyright: ignore[reportIncompatibleMethodOverride]
        space = Space(problem.x_set, state.x, state.chart)
        refining = state.mode == REFINE
        z = jnp.where(state.mode == TRIAL, state.z + state.length * state.d, state.z)
        x = space.x_of(z)
        accuracy = jnp.where(refining, state.target, state.accuracy)
        c_low = jnp.where(refining, 0.01 * state.c_low, state.c_low)
        stays = state.mode != TRIAL
        found = evaluate(problem, x, state.warm, state.memory, stays, state.y0, state.mu, accuracy, c_low, state.cost)
        # the memory is large, and branches would copy it
        state = change(state, k=state.k + 1, cost=found.cost, memory=Memory(None, None))
        tried = Tried(z, x, found, space.pull(found.Gx), space.pull(state.Gx))
        cases = [partial(case, problem, state, tried) for case in (_tried, _refined, _centred, _safeguarded)]
        state, settled = lax.switch(state.mode, cases)
        state = lax.cond(settled, partial(_plan, problem), lambda state: state, state)
        return change(state, memory=found.memory)

    def counts(self, problem: Problem, state: AdaptiveLook) -> Counts:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Counts(*(int(count) for count in state.cost))

    def recorded(self, state: AdaptiveState) -> AdaptiveLook:  # pyright: ignore[reportIncompatibleMethodOverride]
        return AdaptiveLook(state.k, state.x, state.theta, state.y, state.w, state.gap, state.cost)

    def gap_estimate(self, state: AdaptiveLook) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        return state.gap


def _as_tol(value) -> Leaf:
    tol = as_leaf(value, "Adaptive tol")
    if not traced(tol) and not np.all(np.isfinite(tol) & (np.asarray(tol) > 0)):
        raise ValueError(f"Adaptive: tol must be finite and > 0, given {value}")
    return tol


class Tried(NamedTuple):
    """An evaluation at a place: Gz, its gradient in the coordinates, and at_state, that of the state."""

    z: Array
    x: PyTree
    found: Evaluation
    Gz: Array
    at_state: Array

    @property
    def value(self) -> Array:
        return self.found.value

    @property
    def finite(self) -> Array:
        return jnp.isfinite(self.found.value) & jnp.all(jnp.isfinite(self.Gz))


def _moved(state: AdaptiveState, tried: Tried, **changes) -> AdaptiveState:
    """The state at the place that was tried, with what was found there."""
    place = {"z": tried.z, "x": tried.x, **tried.found.inner._asdict()}
    here = {"value": tried.value, "Gx": tried.found.Gx, "warm": tried.found.inner}
    return change(state, **place, **here, **changes)


def _tried(problem: Problem, state: AdaptiveState, tried: Tried) -> tuple[AdaptiveState, Array]:
    """The line search: a point that is low enough becomes x, another one shortens the step."""
    expected, size = state.length * state.slope, jnp.maximum(1, jnp.abs(state.value))
    top = jnp.max(state.history)
    armijo = tried.value <= top + 1e-4 * expected
    # where rounding hides a decrease, the slope tells
    wolfe = (jnp.abs(expected) < 1e-8 * size) & (tried.value <= top + 1e-9 * size)
    wolfe = wolfe & (tried.Gz @ state.d <= 0.8 * jnp.abs(state.slope))
    return lax.cond(tried.finite & (armijo | wolfe), _accept, _shorten, state, tried)


def _accept(state: AdaptiveState, tried: Tried) -> tuple[AdaptiveState, Array]:
    s, q = state.length * state.d, tried.Gz - tried.at_state
    ss, sq, qq = s @ s, s @ q, q @ q
    keep = sq > 1e-12 * jnp.sqrt(ss * qq)
    pairs = where(keep, state.pairs.with_pair(s, q), state.pairs)
    long, short = ss / jnp.where(sq > 0, sq, 1), sq / jnp.where(qq > 0, qq, 1)
    tau = jnp.where(sq > 0, jnp.where(short < 0.5 * long, short, long), jnp.minimum(4 * state.tau, 1e8))
    history = jnp.roll(state.history, 1).at[0].set(tried.value)
    changes = {"pairs": pairs, "tau": jnp.clip(tau, 1e-10, 1e10), "history": history, "age": state.age + 1}
    plain_only = state.plain_only & state.quasi_newton  # until a projected gradient step is taken
    return _moved(state, tried, **changes, plain_only=plain_only), jnp.asarray(True)


def _shorten(state: AdaptiveState, tried: Tried) -> tuple[AdaptiveState, Array]:
    expected = state.length * state.slope
    factor = -0.5 * expected / (tried.value - state.value - expected)
    factor = jnp.where(tried.finite, jnp.clip(jnp.where(jnp.isnan(factor), 0.1, factor), 0.1, 0.5), 0.1)
    tries = state.tries + 1
    give_up_newton = state.quasi_newton & (tries == 3)
    check = (tries == 8) | (tries == 16) | (tries == 24)  # perhaps the gradient is not what the values say
    failed = tries >= TRIES
    state = change(
        state,
        d=jnp.where(give_up_newton, state.d0, state.d),
        length=jnp.where(give_up_newton, 1, factor * state.length),
        slope=jnp.where(give_up_newton, tried.at_state @ state.d0, state.slope),
        quasi_newton=state.quasi_newton & ~give_up_newton,
        plain_only=state.plain_only | give_up_newton,
        tries=tries,
        c_low=jnp.where(check, jnp.maximum(0.1 * state.c_low, 1e-6), state.c_low),
        mode=jnp.where(check, SAFEGUARD, TRIAL),
        warm=where(tried.finite & ~check, tried.found.inner, state.inner),
        age=jnp.where(failed, STALE, state.age),
        tau=jnp.where(failed, 0.1 * state.tau, state.tau),
    )
    return state, failed


def _refined(problem: Problem, state: AdaptiveState, tried: Tried) -> tuple[AdaptiveState, Array]:
    """The acceptance test: the gap at the same x by much more accurate solves."""
    difference = jnp.linalg.norm(tried.Gz - tried.at_state)
    before = state.target
    state = _moved(state, tried, history=state.history.at[0].set(tried.value))
    space = Space(problem.x_set, state.x, state.chart)
    x_gap, _ = space.gap(state.z, state.x, state.Gx, space.vertices(state.Gx))
    good = x_gap + _y_gap(problem, state) + 0.01 * difference <= before
    floor = 100 * jnp.finfo(tried.Gz.dtype).eps
    return change(
        state,
        target=jnp.where(good, jnp.maximum(0.1 * before, floor), before),
        c_low=jnp.where(good, state.c_low, jnp.maximum(0.1 * state.c_low, 1e-8)),
        cost=state.cost.plus(projections=1, lmos=space.lmos),
    ), jnp.asarray(True)


def _centred(problem: Problem, state: AdaptiveState, tried: Tried) -> tuple[AdaptiveState, Array]:
    steepest = jnp.maximum(jnp.max(jnp.abs(tried.Gz)), jnp.finfo(tried.Gz.dtype).tiny)
    tau = jnp.where(state.tau == 0, jnp.minimum(1, 1 / steepest), state.tau)  # at the start
    return _moved(state, tried, history=only(tried.value), age=0, tau=tau), jnp.asarray(True)


def _safeguarded(problem: Problem, state: AdaptiveState, tried: Tried) -> tuple[AdaptiveState, Array]:
    """Value and gradient at x anew, from more accurate solves; the search goes on where it was."""
    history = state.history.at[0].set(jnp.maximum(state.history[0], tried.value))
    slope = tried.Gz @ state.d
    uphill = ~(slope < 0)
    return _moved(state, tried, history=history, slope=slope, mode=TRIAL), uphill


def _plan(problem: Problem, state: AdaptiveState) -> AdaptiveState:
    """From an accepted point: what to evaluate next."""
    space = Space(problem.x_set, state.x, state.chart)
    vertices = space.vertices(state.Gx)
    if space.has_atoms:
        chart, z, grew = space.grown(state.z, state.x, state.Gx, vertices)
        pairs = state.pairs._replace(filled=jnp.where(grew, 0, state.pairs.filled))
        state = change(state, chart=chart, z=z, pairs=pairs)
        space = Space(problem.x_set, state.x, state.chart)
    x_gap, size = space.gap(state.z, state.x, state.Gx, vertices)
    shift = state.mu * trees.norm(trees.subtract(state.y, state.y0)) if problem.y_set is not None else 0 * x_gap
    gap = x_gap + _y_gap(problem, state)
    accuracy = size + 0.1 * shift + 0.1 * state.target
    state = change(state, gap=gap, accuracy=accuracy, cost=state.cost.plus(projections=2, lmos=space.lmos))
    stationary = x_gap <= 0.3 * jnp.maximum(shift, 0.5 * state.target)
    choice = jnp.where(gap <= state.target, 0, jnp.where(stationary | (state.age >= STALE), 1, 2))
    refine = lambda state: change(state, mode=REFINE, warm=state.inner)
    centre = partial(_recentre, problem, stationary, shift)
    return lax.switch(choice, [refine, centre, partial(_aim, space, size)], state)


def _recentre(problem: Problem, stationary: Array, shift: Array, state: AdaptiveState) -> AdaptiveState:
    """y0 <- y if x has followed it; mu by how many steps of x that took."""
    mu, first, age = state.mu, state.first_mu, state.age
    if problem.y_set is None:
        return change(state, mode=CENTRE, warm=state.inner, plain_only=True, age=0)
    lower = jnp.where((shift > 0.5 * state.last_shift) & (age <= 10), jnp.maximum(mu / 4, 1e-6 * first), mu)
    new = jnp.where(stationary, jnp.where(age > 30, 4 * mu, lower), jnp.minimum(4 * mu, 1e12 * first))
    # centres that go round in circles are given up: y0 stays, and mu -> 0 (docs/adaptive.md, 6)
    idle = jnp.where(state.gap < 0.9 * state.best, 0, state.idle + 1)
    circling = (idle >= IDLE) | (state.idle >= IDLE)
    new = jnp.where(circling, jnp.where(stationary, mu / 4, mu), new)
    pairs = state.pairs._replace(filled=jnp.where(new == mu, state.pairs.filled, 0))
    return change(
        state,
        mode=CENTRE,
        warm=state.inner,
        mu=new,
        y0=where(stationary & ~circling, state.y, state.y0),
        last_shift=jnp.where(stationary, shift, state.last_shift),
        pairs=pairs,
        best=jnp.minimum(state.best, state.gap),
        idle=jnp.where(circling, IDLE, idle),
    )


def _aim(space: Space, size: Array, state: AdaptiveState) -> AdaptiveState:
    """The direction of the next search; size: how far x is from stationary, on the scale of the gradient."""
    Gz = space.pull(state.Gx)
    d0, newton = face_direction(space.project, state.z, Gz, state.tau, state.pairs)
    slope = Gz @ newton
    descends = jnp.all(jnp.isfinite(newton)) & (slope <= -1e-6 * jnp.linalg.norm(newton) * size)
    quasi_newton = descends & (state.pairs.filled > 0) & ~state.plain_only
    d = jnp.where(quasi_newton, newton, d0)
    return change(
        state,
        mode=TRIAL,
        warm=state.inner,
        d=d,
        d0=d0,
        length=1.0,
        slope=Gz @ d,
        tries=0,
        quasi_newton=quasi_newton,
        cost=state.cost.plus(projections=2),
    )


def _y_gap(problem: Problem, state: AdaptiveState) -> Array:
    """|y - P_Y(y + f_y)|"""
    if problem.y_set is None:
        return jnp.zeros_like(state.value)
    ahead = problem.y_set.prox(trees.add_scaled(state.y, 1.0, state.gradients[2]), 1.0)
    return trees.norm(trees.subtract(state.y, ahead))
