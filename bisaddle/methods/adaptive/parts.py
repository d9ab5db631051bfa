"""What a search of Adaptive holds: a place, its gaps, what it aims for, its centre in y, and how x descends."""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import Pair
from bisaddle.methods.adaptive.inner import Inner
from bisaddle.oracle.kernels import Vector


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
        return bool(self.solved and np.isfinite(self.value) and np.all(np.isfinite(self.Gz)))


class Gaps(NamedTuple):
    """How far a place is from a solution, as its inexact inner variables tell.

    x: of x alone; both: of x and y; size: that of x on the scale of the gradient; shift: mu |y - y0|.
    """

    x: float
    both: float
    size: float
    shift: float


@dataclass
class Aim:
    """target: the gap to work towards; the inner residuals are c_low times the accuracy at most."""

    target: float
    accuracy: float = const.FIRST_ACCURACY
    c_low: float = const.FIRST_C_LOW

    def tighten(self, least: float) -> None:
        self.c_low = max(const.TIGHTER * self.c_low, least)


@dataclass
class Centre:
    """The proximal term mu/2 |y - y0|^2, and how the centres have done so far.

    age: steps of x at this one; shift: mu |y - y0| when x had followed the one before; best: the smallest gap at the
    end of a centre; idle: centres since then.
    """

    y0: Vector
    mu: float
    age: int = 0
    shift: float = np.inf
    best: float = np.inf
    idle: int = 0

    def move(self, y: Vector, stationary: bool, gaps: Gaps) -> None:
        """y0 <- y if x has followed the centre; mu by how many steps of x that took."""
        idle = 0 if gaps.both < const.SMALLER_GAP * self.best else self.idle + 1
        # centres that go round in circles are given up for good: y0 stays, and mu -> 0 (docs/adaptive.md, 6)
        circling = max(idle, self.idle) >= const.IDLE
        if circling:
            self.mu /= const.MU_FACTOR if stationary else 1
        elif not stationary:
            self.mu = const.MU_FACTOR * self.mu
        elif self.age > const.SLOW:
            self.mu = const.MU_FACTOR * self.mu
        elif gaps.shift > const.LITTLE_PROGRESS * self.shift and self.age <= const.QUICK:
            self.mu = self.mu / const.MU_FACTOR
        least, most = const.MU_LIMITS
        self.mu = min(max(self.mu, least), most)
        if stationary:
            self.shift = gaps.shift
            if not circling:
                self.y0 = y
        self.best = min(self.best, gaps.both)
        self.idle = const.IDLE if circling else idle


@dataclass
class Descent:
    """What the steps of x leave behind for the next one.

    tau: length of the projected gradient step; pairs: of the last steps, newest first; values: the last ones of f_mu at
    this centre; plain_only: no quasi-Newton step until a projected gradient step has succeeded.
    """

    tau: float = 0.0
    pairs: deque[Pair] = field(default_factory=lambda: deque(maxlen=const.PAIRS))
    values: list[float] = field(default_factory=list)
    plain_only: bool = False

    def low_enough(self, here: Place, trial: Place, d: Vector, expected: float) -> bool:
        """Whether the trial, a step along d with this expected change of f_mu, may be accepted."""
        if not trial.sound:
            return False
        top, size = max(self.values), max(1.0, abs(here.value))
        if trial.value <= top + const.DECREASE * expected:
            return True
        # where rounding hides a decrease, the slope tells
        eps = float(np.finfo(here.Gz.dtype).eps)
        share, rise = max(const.HIDDEN, const.HIDDEN_ROUNDING * eps), max(const.HIDDEN_RISE, const.RISE_ROUNDING * eps)
        hidden = abs(expected) < share * size and trial.value <= top + rise * size
        return hidden and float(trial.Gz @ d) <= const.HIDDEN_SLOPE * abs(float(here.Gz @ d))

    def accept(self, here: Place, trial: Place, s: Vector, quasi_newton: bool) -> None:
        """Learn from a step s that was low enough."""
        q = trial.Gz - here.Gz
        ss, sq, qq = float(s @ s), float(s @ q), float(q @ q)
        if sq > const.PAIR_CURVATURE * (ss * qq) ** 0.5:
            self.pairs.appendleft((s, q))
        tau = min(const.TAU_GROWTH * self.tau, const.MOST_GROWN_TAU)
        if sq > 0:
            long, short = ss / sq, sq / qq
            tau = short if short < const.SHORT_TAU * long else long
        least, most = const.TAU_LIMITS
        self.tau = min(max(tau, least), most)
        self.values = [*self.values[-const.HISTORY + 1 :], trial.value]
        self.plain_only = self.plain_only and quasi_newton


def most_pairs(size: int, itemsize: int) -> int:
    """How many pairs of vectors of this size are kept: fewer where they would take much memory."""
    fitting = const.PAIR_BYTES // (2 * size * itemsize)
    return min(max(const.LEAST_PAIRS, fitting), const.PAIRS)


def shorter(here: Place, trial: Place, expected: float) -> float:
    """The factor on a step that was not low enough: to the minimum of a parabola, within limits."""
    least, most = const.SHORTEN
    if not trial.sound or not expected < 0:
        return least
    rise = trial.value - here.value - expected
    return most if rise == 0 else min(max(-0.5 * expected / rise, least), most)


def reach_share(step: float, x: float) -> float:
    """The share of a step of this length that may be taken from weights of length x.

    All of it from x = 0, where weights have no scale yet; from small weights the steps grow as fast as these do.
    """
    return 1.0 if x == 0 or not step > const.LAYER_REACH * x else const.LAYER_REACH * x / step
