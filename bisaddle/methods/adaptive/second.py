"""Second-order steps of Adaptive, for a small x without a lower level: few, each from all second derivatives of f."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.found import Inner
from bisaddle.methods.adaptive.model import Model, Step, minimised
from bisaddle.methods.adaptive.parts import Gaps, Place
from bisaddle.methods.base import Look
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Upper, Vector
from bisaddle.sets.flat import FlatSet
from bisaddle.sets.flat_base import all_finite
from bisaddle.sets.prox import Penalty

if TYPE_CHECKING:
    from bisaddle.methods.adaptive.method import Search


@dataclass
class Second:
    """What second-order steps know besides the place and the centre.

    f_x_x, f_x_y: at the place, f_x_x for the y that its model foresaw. radius: how far the model is trusted; good: it
    has foretold the last step well; floor: a mu with which x was slow, below which mu does not fall for now; used:
    evaluations so far; lost: steps that rounding has spoilt; unsolved: models in a row whose minimum was not found;
    first_mu: the weight at the start.
    """

    f_x_x: Vector
    f_x_y: Vector
    radius: float
    good: bool = True
    floor: float = 0.0
    used: int = 1
    lost: int = 0
    unsolved: int = 0
    first_mu: float = 1.0


def suits(search: "Search") -> bool:
    """Whether x is small enough for them, f surely linear in y, and both sets project."""
    kernels, y_set = search.kernels, search.kernels.y_set
    if kernels.streamed or kernels.heavy or kernels.has_lower or y_set is None or kernels.dtype != np.float64:
        return False
    if kernels.x.size > const.SECOND_ENTRIES or kernels.part.x.mesh is not None or search.space.lmos:
        return False
    plain = not any(isinstance(block.of, Penalty) for block, _ in y_set.blocks)
    return plain and kernels.linear_in_y and not kernels.has_hidden_layer


def begin(search: "Search", length: float) -> bool:
    """Second derivatives at the start; False if f has none. length: how far the model is trusted at first."""
    here, centre = search.here, search.centre
    y = _set_of(search).project(centre.y0 + here.inner.upper.f_y / centre.mu)
    try:
        _, *matrices = _expanded(search, here.x, y)
    except (TypeError, ValueError, NotImplementedError):  # a derivative of the user's own that JAX cannot differentiate
        return False
    if not _all_finite(matrices):
        return False
    search.second = Second(*matrices, radius=length, first_mu=centre.mu)
    search.k += 1
    _recentre(search)
    return True


def measure(search: "Search") -> None:
    """The gaps where x is: y is the exact maximiser there, and gradients are as exact as f."""
    here, y_set = search.here, _set_of(search)
    away = here.inner.y - search.centre.y0
    x_gap = norm(here.x - search.space.project(here.x - here.Gx))
    y_gap = norm(here.inner.y - y_set.project(here.inner.y + here.inner.upper.f_y))
    search.solver.cost.projections += 2
    search.gaps = Gaps(x_gap, x_gap + y_gap, x_gap, 0.0, search.centre.mu * float(away @ away))


def steps(search: "Search") -> Iterator[Look]:
    """To the next accepted place. The Look after the last evaluation is left to the caller, who measures first."""
    second, here = search.second, search.here
    assert second is not None
    if search.gaps.both <= search.aim.target:
        search.aim.target = max(const.NEXT_TARGET * search.aim.target, const.TARGET_ROUNDING * search.kernels.eps)
    model, step = _foreseen(search)
    here = search.here
    held = norm(step.d) >= const.SECOND_BORDER * second.radius
    second.unsolved = 0 if held or step.left <= const.SECOND_LEFT else second.unsolved + 1
    if second.unsolved >= const.SECOND_UNSOLVED:
        search.centre.mu = second.first_mu  # that of now was for a model that knows the pieces of f_mu
        give_up(search)
        return
    for _ in range(const.SECOND_REFUSED):
        # most steps are accepted: all that they need then is asked for at once
        upper, *matrices = _expanded(search, here.x + step.d, step.y)
        search.k += 1
        second.used += 1
        highest = y, value = _highest(search, upper, step.y)
        decrease, rounding = here.value - value, const.SECOND_ROUNDING * search.kernels.eps * abs(here.value)
        hidden = step.decrease <= rounding and abs(decrease) <= rounding
        sound = isfinite(value) and all_finite(upper.f_x) and step.decrease > 0
        low = sound and (hidden or decrease > const.DECREASE * step.decrease)
        if low and _all_finite(matrices):
            second.f_x_x, second.f_x_y = matrices
            _accept(search, step, upper, highest, None if hidden else decrease / step.decrease)
            if hidden:
                measured = search.gaps
                measure(search)
                if search.gaps.both > measured.both:
                    _less_rounded(search)
            if second.used >= const.SECOND_MOST or second.lost > const.SECOND_LOST:
                give_up(search)
            return
        second.radius = const.SECOND_SHORTER * norm(step.d)
        if not second.radius > search.kernels.eps * norm(here.x):
            break
        yield search._look()
        step = minimised(model, search.space, here.x, second.radius)
    give_up(search)


def _foreseen(search: "Search") -> tuple[Model, Step]:
    """The model and its step, at a centre that x has not followed yet: others are left behind at once.

    What is known at x serves every centre: f_x at another y follows from f_x_y. Where the model was right about the
    last step and this one is easily found, mu may be much smaller: y then follows the model, not the centre.
    """
    second, centre, y_set = search.second, search.centre, _set_of(search)
    assert second is not None
    if centre.age >= const.SECOND_SLOW:
        second.floor = centre.mu
        centre.mu *= const.MU_FACTOR
        _recentre(search)
    lowered, number = False, 0
    while True:
        inner = search.here.inner
        model = Model(y_set, inner.upper, second.f_x_x, second.f_x_y, inner.y, centre.y0, centre.mu)
        step = minimised(model, search.space, search.here.x, second.radius)
        away, rounding = inner.y - centre.y0, search.kernels.eps * norm(inner.upper.f_y)
        lag = centre.mu * float(away @ away)
        # where rounding decides whether x has followed, y must not run ahead of it
        lost = step.decrease <= rounding * norm(inner.y)
        if lag == 0 or number >= (1 if lost else const.SECOND_CENTRES - 1):
            return model, step
        if not lost and 2 * step.decrease > const.STATIONARY * lag:
            return model, step
        number += 1
        centre.y0 = inner.y
        lower = centre.mu / const.SECOND_MU
        enough = const.TARGET_SHARE * search.aim.target
        # an error of f_y moves y by 1 / mu of it, and the gradient in x by f_x_y times that
        errs = min(norm(second.f_x_y.ravel()) / enough, const.SECOND_LEAST / y_set.diameter()) * rounding
        least = max(second.floor, enough / y_set.diameter(), errs)
        if second.good and not lowered and step.rounds <= const.SECOND_EASY and lower > least:
            centre.mu, lowered = lower, True
        else:
            second.floor *= const.SECOND_FORGOTTEN
        _recentre(search)


def _less_rounded(search: "Search") -> None:
    """A larger mu after a step that rounding has spoilt: with it f_y moves y less, and its rounding too."""
    second, centre = search.second, search.centre
    assert second is not None
    centre.y0 = search.here.inner.y
    centre.mu *= const.SECOND_MU
    second.floor = centre.mu
    second.lost += 1
    _recentre(search)


def _accept(search: "Search", step: Step, upper: Upper, highest: tuple[Vector, float], ratio: float | None) -> None:
    """Move, once the second derivatives there are known; ratio: of the decrease to the one promised, None if hidden.

    They are those at the y of the model: the maximiser itself jumps from face to face where mu is small.
    """
    second, here = search.second, search.here
    assert second is not None
    second.good = ratio is None or ratio > const.SECOND_GOOD
    length = norm(step.d)
    held = length >= const.SECOND_BORDER * second.radius
    if ratio is not None and ratio < const.SECOND_POOR:
        second.radius = const.SHORTEN[1] * length
    elif second.good:
        second.radius = max(second.radius, _longer(ratio) * length)
    x, inner = here.x + step.d, here.inner._replace(y=step.y, upper=upper)
    search.here = Place(x, x, inner, 0.0, upper.f_x, upper.f_x)
    age = search.centre.age + (not held)  # where the radius holds x back, another mu would not help it
    _recentre(search, highest)
    search.centre.age = age


def _longer(ratio: float | None) -> float:
    """How many times as far as the last step the model may be trusted: its error grows as the square of the length."""
    if ratio is None or ratio == 1:
        return const.SECOND_LONGER
    trusted = (const.SECOND_TRUSTED / abs(ratio - 1)) ** 0.5
    return min(max(trusted, const.SECOND_LONGER), const.SECOND_LONGEST)


def _recentre(search: "Search", highest: tuple[Vector, float] | None = None) -> None:
    """y, value and gradient of f_mu where x is, for the centre and weight as they are now: no call is needed."""
    second, here = search.second, search.here
    assert second is not None
    inner: Inner = here.inner
    y, value = _highest(search, inner.upper, inner.y) if highest is None else highest
    step = y - inner.y
    f_x = inner.upper.f_x + second.f_x_y @ step
    upper = Upper(inner.upper.value + float(inner.upper.f_y @ step), f_x, inner.upper.f_theta, inner.upper.f_y)
    inner = inner._replace(y=y, upper=upper, slope=max(inner.slope, norm(f_x)))
    search.here = Place(here.z, here.x, inner, value, f_x, f_x)
    search.centre.age = 0


def _highest(search: "Search", upper: Upper, y: Vector) -> tuple[Vector, float]:
    """The maximiser and f_mu, from f and f_y at any y: f is linear in it."""
    centre = search.centre
    best = _set_of(search).project(centre.y0 + upper.f_y / centre.mu)
    search.solver.cost.projections += 1
    away = best - centre.y0
    return best, upper.value + float(upper.f_y @ (best - y)) - 0.5 * centre.mu * float(away @ away)


def give_up(search: "Search") -> None:
    """The other steps go on from here."""
    second = search.second
    assert second is not None
    bend = float(np.abs(second.f_x_x).sum(axis=0).max())
    stiff = norm(second.f_x_y.ravel()) ** 2 / search.centre.mu
    search.descent.tau = 1 / max(bend + stiff, const.TINIEST)
    search.second = None
    search._evaluate_centre()


def _expanded(search: "Search", x: Vector, y: Vector) -> tuple[Upper, Vector, Vector]:
    search.solver.cost.gradients += 1
    search.solver.cost.hvps += x.size
    return search.kernels.curvature(x, search.here.inner.theta, y)


def _all_finite(matrices: Sequence[Vector]) -> bool:
    return all(all_finite(matrix.ravel()) for matrix in matrices)


def _set_of(search: "Search") -> FlatSet:
    assert search.kernels.y_set is not None
    return search.kernels.y_set
