"""What a search of Adaptive holds: a place, its gaps, what it aims for, its centre in y, and how x descends."""

from collections import deque
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import Pair
from bisaddle.methods.adaptive.found import Inner, Residuals
from bisaddle.methods.adaptive.wide import halved, times
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Vector
from bisaddle.sets.flat_base import all_finite


class Place(NamedTuple):
    """Where f_mu was evaluated: coordinates z of x, inner variables there, value, gradient in x and in z.

    solved: the inner solves have met their accuracy. A place is sound if it can be believed.
    """

    z: Vector
    x: Vector
    inner: Inner
    value: float
    Gx: Vector
    Gz: Vector
    solved: bool = True

    @property
    def sound(self) -> bool:
        return self.solved and isfinite(self.value) and all_finite(self.Gz)


class Gaps(NamedTuple):
    """How far a place is from a solution, as its inexact inner variables tell.

    x: of x alone; both: of x and y. In units of f: decrease, which the next step of x promises for f_mu; lag: what the
    centre holds back, mu |y - y0|^2; beyond: the Frank-Wolfe gaps. In units of the gradient: size, that of x.
    """

    x: float
    both: float
    size: float
    decrease: float
    lag: float
    beyond: float = 0.0


@dataclass
class Aim:
    """target: the gap to work towards; accuracy: what the gradient of f_mu in x may err by, and y_accuracy that in y.

    The inner residuals are c_low times these at most. y_slope: how much f_y differs across Y, as the first mu tells.
    """

    target: float
    accuracy: float = 0.0
    y_accuracy: float = 0.0
    y_slope: float = 0.0
    c_low: float = const.FIRST_C_LOW

    def follow(self, gaps: Gaps, mu: float) -> None:
        """Ask for what these gaps need.

        An error e of f_y moves f_mu by e^2 / mu, which has to be small beside the decrease to be had.
        """
        share = const.LAG_SHARE * (gaps.lag / max(gaps.decrease, const.TINIEST)) ** 0.5
        least = const.TARGET_SHARE * self.target
        self.accuracy = (1 + share) * gaps.size + least
        self.y_accuracy = (mu * (gaps.decrease + const.LAG_SHARE**2 * gaps.lag)) ** 0.5 + least

    def residuals(self, inner: Inner) -> Residuals:
        """What the solves that begin at `inner` may leave.

        theta and w have the relative accuracy that the gradients in x and y ask for; a residual moves them by up to
        1 / mu_g of itself. Without them y is all that an evaluation costs, and is no more accurate than they would be.
        """
        relative = self.accuracy / max(inner.slope, const.TINIEST)
        if self.y_slope > 0:
            relative = min(relative, self.y_accuracy / self.y_slope)
        if not inner.theta.size:
            return Residuals(0.0, 0.0, self.c_low * self.y_accuracy)
        share = self.c_low * relative * inner.mu_g
        return Residuals(share * norm(inner.theta), share * norm(inner.w), const.Y_SHARE * self.c_low * self.y_accuracy)

    def tighten(self, least: float) -> None:
        self.c_low = max(const.TIGHTER * self.c_low, least)


@dataclass
class Centre:
    """The proximal term mu/2 |y - y0|^2, and how the centres have done so far.

    age: steps of x at this one; shift: mu |y - y0| when x had followed the one before, infinite if that had another mu;
    best: the smallest shift (in networks the smallest gap), and the least decrease and lag together, at the end of a
    centre; idle: centres since either. slow: the largest mu with which x took too many steps; held: centres that would
    have gone down to it. step, size: y - y0 and the size of the gradient in x at the end of the last centre; lowered:
    that size when mu was lowered last, infinite if it was raised since. raised: the steps of x for which mu was raised,
    until fewer were taken. most: the largest size and shift at the end of a centre. careful: centres were idle, mu is
    not raised any more, and x follows more closely. by_gap: the gap tells whether x has followed, not what is to be
    gained; so it is in networks.
    """

    y0: Vector
    mu: float
    age: int = 0
    shift: float = np.inf
    best: tuple[float, float] = (np.inf, np.inf)
    idle: int = 0
    slow: float = 0.0
    held: int = 0
    step: Vector | None = None
    size: float = np.inf
    lowered: float = np.inf
    raised: int = 0
    most: tuple[float, float] = (0.0, 0.0)
    careful: bool = False
    by_gap: bool = False

    def move(self, y: Vector, stationary: bool, gaps: Gaps, near: bool = False) -> None:
        """y0 <- y if x has followed the centre; mu by how many steps of x that took.

        near: the y gap is small enough as it is; with a smaller mu x would only be slower.
        """
        before = self.mu
        shift = (self.mu * gaps.lag) ** 0.5
        # a smaller mu lowers the second even where y only turns
        measures = gaps.both if self.by_gap else shift, gaps.decrease + gaps.lag
        better = any(new < const.SMALLER_GAP * best for new, best in zip(measures, self.best, strict=True))
        self.idle = 0 if better else self.idle + 1
        # from now on y moves half as far with every centre or mu falls, so that the y gap does (docs/adaptive.md, 6)
        self.careful = self.careful or self.idle >= (const.IDLE_BY_GAP if self.by_gap else const.IDLE)
        slow = not stationary or self.age > const.SLOW
        # x that takes as long with a larger mu is slow for another reason, and the larger mu, which holds less back,
        # would only have it wait longer: then mu stays, and y0 moves all the same
        in_vain = slow and not self.careful and 0 < self.raised <= self.age
        self.raised = self.raised if in_vain else 0
        self.most = max(self.most[0], gaps.size), max(self.most[1], shift)
        little = shift > const.LITTLE_PROGRESS * self.shift
        if self.careful:
            self.mu /= const.MU_FACTOR if stationary and little and not near else 1
        elif slow and not in_vain:
            self.slow, self.held, self.raised = max(self.slow, self.mu), 0, self.age
            self.mu = const.MU_FACTOR * self.mu
        elif little and self.age <= const.QUICK:
            if self.by_gap:
                self.mu /= const.MU_FACTOR
            elif not near and self._goes_on(y - self.y0) and self._holds(gaps.size, shift):
                self._lower()
        least, most = const.MU_LIMITS
        self.mu = min(max(self.mu, least), most)
        if self.mu != before:
            self.lowered = gaps.size if self.mu < before else np.inf
        if stationary or in_vain:
            self.shift = shift if self.mu == before else np.inf
            self.step, self.size, self.y0 = y - self.y0, gaps.size, y
        self.best = min(self.best[0], measures[0]), min(self.best[1], measures[1])

    def _goes_on(self, step: Vector) -> bool:
        """Whether y moves where it moved from the last centre: then it has far to go, and a smaller mu lets it."""
        if self.step is None:
            return True
        return float(step @ self.step) > const.SAME_WAY * float((step @ step) * (self.step @ self.step)) ** 0.5

    def _holds(self, size: float, shift: float) -> bool:
        """Whether x is as stationary as at the last centre and with the last mu; with a smaller one it is less so.

        And has come about as far as y: where x is behind, a smaller mu helps the wrong one.
        """
        if size * self.most[1] > const.AHEAD * shift * self.most[0]:
            return False
        return size * shift <= const.RISEN * self.size * self.shift and size <= const.RISEN * self.lowered

    def _lower(self) -> None:
        """A smaller mu; one that has been too small before is tried again only when centre after centre asks for it."""
        lower = self.mu / const.MU_FACTOR
        if lower > self.slow:
            self.mu = lower
        elif (held := self.held + 1) >= const.HELD:
            self.mu, self.slow, self.held = lower, 0.0, 0
        else:
            self.held = held


@dataclass
class Descent:
    """What the steps of x leave behind for the next one.

    tau: length of the projected gradient step, first_tau: the first, far_tau: one with which x moves by a share of its
    length, where that is more; scale: of f at the start, in whose rounding a decrease may hide; pairs: of the last
    steps, newest first; values: the last ones of f_mu at this centre; plain_only: no quasi-Newton step until a
    projected gradient step has succeeded.
    """

    tau: float = 1.0
    first_tau: float = 1.0
    far_tau: float = 1.0
    scale: float = 1.0
    pairs: deque[Pair] = field(default_factory=lambda: deque(maxlen=const.PAIRS))
    values: list[float] = field(default_factory=list)
    plain_only: bool = False

    def low_enough(self, here: Place, trial: Place, d: Vector, expected: float) -> bool:
        """Whether the trial, a step along d with this expected change of f_mu, may be accepted."""
        if not trial.sound:
            return False
        top, size = max(self.values), max(self.scale, abs(here.value))
        if trial.value <= top + const.DECREASE * expected:
            return True
        # where rounding hides a decrease, the slope tells
        eps = float(np.finfo(here.Gz.dtype).eps)
        share, rise = max(const.HIDDEN, const.HIDDEN_ROUNDING * eps), max(const.HIDDEN_RISE, const.RISE_ROUNDING * eps)
        hidden = abs(expected) < share * size and trial.value <= top + rise * size
        return hidden and float(trial.Gz @ d) <= const.HIDDEN_SLOPE * abs(float(here.Gz @ d))

    def rescale(self, stiffer: float) -> None:
        """The pairs for another mu, `stiffer` times smaller: f_mu bends as much as before, so many times, or between.

        Its Hessian has one part without mu and one that is proportional to 1 / mu; the root is off by as much at most
        both ways. Dropped, they left x with a step for its steepest direction alone, which promises too little.
        """
        for i, (s, q) in enumerate(self.pairs):
            self.pairs[i] = s, times(q, stiffer**0.5)

    def accept(self, here: Place, trial: Place, s: Vector, length: float, quasi_newton: bool) -> None:
        """Learn from a step s that was low enough; length: relative to the one that was tried first."""
        q = trial.Gz - here.Gz
        ss, sq, qq = float(s @ s), float(s @ q), float(q @ q)
        if sq > const.PAIR_CURVATURE * (ss * qq) ** 0.5:
            if self.pairs.maxlen != const.PAIRS and len(self.pairs) == self.pairs.maxlen:
                self.pairs.pop()  # a large x has no room for one more
            self.pairs.appendleft((s, q) if self.pairs.maxlen == const.PAIRS else halved(s, q))
        else:
            self.pairs.clear()  # f_mu does not bend where they say that it does, and steps by them would not grow
        tau = min(const.TAU_GROWTH * length * self.tau, const.MOST_GROWN_TAU * self.far_tau)
        if sq > 0:
            long, short = ss / sq, sq / qq
            tau = short if short < const.SHORT_TAU * long else long
        least, most = const.TAU_LIMITS
        self.tau = min(max(tau, least * self.first_tau), most * self.far_tau)
        self.values = [*self.values[-const.HISTORY + 1 :], trial.value]
        self.plain_only = self.plain_only and quasi_newton


def most_pairs(size: int, itemsize: int) -> int:
    """How many pairs of vectors of this size are kept: fewer where they would take much memory."""
    fitting = const.PAIR_BYTES // (2 * size * itemsize)
    return min(max(const.LEAST_PAIRS, fitting), const.PAIRS)


def shorter(here: Place, trial: Place, expected: float) -> float:
    """The factor on a step that was not low enough: about to the minimum of a parabola, within limits."""
    least, most = const.SHORTEN
    if not trial.sound or not expected < 0:
        return least
    rise = trial.value - here.value - expected
    factor = most if rise == 0 else min(max(-0.5 * expected / rise, least), most)
    return round(const.SHORTEN_PARTS * factor) / const.SHORTEN_PARTS


def reach_share(step: float, x: float) -> float:
    """The share of a step of this length that may be taken from weights of length x.

    All of it from x = 0, where weights have no scale yet; from small weights the steps grow as fast as these do.
    """
    return 1.0 if x == 0 or not step > const.LAYER_REACH * x else const.LAYER_REACH * x / step


def growth_share(end: float, x: float) -> float:
    """The share of the weights at the end of a step, of length end, that brings them back to what x may grow to."""
    return 1.0 if x == 0 or not end > (1 + const.LAYER_GROWTH) * x else (1 + const.LAYER_GROWTH) * x / end
