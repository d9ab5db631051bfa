"""Balls of a divergence around a distribution over flat float64 vectors, in NumPy: nothing is compiled."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from bisaddle.sets.flat_base import Face, Linear, all_finite, length
from bisaddle.sets.flat_forms import VectorForm, in_dtype, nearest_on_simplex
from bisaddle.sets.probability import ChiSquareBall, KLBall

_EPS, _TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
# a divergence this near to the radius, relative to it, and a sum this near to 1 will do: the last step squares both
_ENOUGH = 1e-3 * _EPS**0.5
_LEAST = 1e-4 * _EPS  # weights below move p by less than rounding does
_FURTHEST = -1e305  # as good as minus infinity, and it can be calculated with
_WIDEST = 0.9 * math.log(np.finfo(np.float64).max)


class _Trial(NamedTuple):
    """The p that sums to 1 for a weight, and what its neighbours follow from."""

    weight: float
    t: float
    p: np.ndarray
    response: np.ndarray
    total: float  # of the response
    slope: np.ndarray
    mean: float  # of the slope, weighted by the response
    centred: np.ndarray  # the slope less its mean
    value: float  # the divergence, and its decrease by the weight
    spread: float


class DivergenceForm(VectorForm):
    """{p : p >= 0, sum p = 1, sum q_i f(p_i / q_i) <= radius}: the searches of sets/divergences.py, in NumPy.

    A subclass writes, for its f: at(v, weight), the function t -> (p, response) with p + weight f'(p / q) = v - t and
    response the derivative of p with respect to v; slope(p), which is f'(p / q); value(p, slope), the divergence;
    vertex_slope, f'(1 / q); restriction(mass), the divergence of q restricted to coordinates of that mass.
    """

    radius: float
    vertex_slope: np.ndarray

    def __init__(self, of: KLBall | ChiSquareBall, shape: tuple[int, ...], dtype: np.dtype):
        super().__init__(of, shape)
        self.q = np.asarray(of.reference).astype(dtype).reshape(-1).astype(np.float64)
        self.ones = np.ones(self.length)

    def at(self, v: np.ndarray, weight: float) -> Callable[[float], tuple[np.ndarray, np.ndarray]]:
        raise NotImplementedError

    def slope(self, p: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def value(self, p: np.ndarray, slope: np.ndarray) -> float:
        raise NotImplementedError

    def restriction(self, mass: float) -> float:
        raise NotImplementedError

    def tilted(self, cost: np.ndarray, q: np.ndarray) -> np.ndarray:
        """argmin <cost, p>, not yet normalised, for costs that span [0, 1] and a q that may vanish."""
        raise NotImplementedError

    def one_project(self, v: np.ndarray) -> np.ndarray:
        return self._solve(v)[0]

    def face(self, v: np.ndarray) -> Face:
        if not all_finite(v):
            return Face(self.project(v), lambda rows: np.full(rows.shape, np.nan))
        if self.one:
            p, response, centred = self._solve(v)
            return Face(p, _tangent(response, centred))
        p, response, centred = (np.stack(part) for part in zip(*map(self._solve, self.rows(v)), strict=True))
        inside = _tangent(response, centred)
        return Face(self.flat(p), lambda rows: self.flat(inside(self.rows(rows))))

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        """Rounding, and what the divergence is off the radius, or may be, over its slope along the set."""
        error = self.rounding * (length(v) + length(p))
        return math.hypot(error, *map(self._overshoot, self.rows(v), self.rows(p))) if all_finite(v) else math.nan

    def _overshoot(self, v: np.ndarray, p: np.ndarray) -> float:
        _, response, centred = self._solve(v)
        normal = response * centred
        spread = float(normal.dot(centred))
        if spread == 0:  # the projection onto the simplex lies within the radius
            return 0.0
        slope = self.slope(p)
        rounding = 4 * _EPS * float(np.abs(p * slope).dot(self.ones) + p.dot(self.ones) + self.q.dot(self.ones))
        return 2 * length(normal) / spread * (abs(self.value(p, slope) - self.radius) + rounding)

    def _solve(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The projection p, and of its derivative: the response of each entry, and the normal of the ball, centred."""
        with np.errstate(all="ignore"):  # infinities are met by limits
            nearest = nearest_on_simplex(v, 1.0)
            if self.value(nearest, self.slope(nearest)) <= self.radius:
                return nearest, (nearest > 0).astype(np.float64), np.zeros(v.shape)
            return self._boundary(np.maximum(v - v[v.argmax()], _FURTHEST))

    def _boundary(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """_solve where the divergence is the radius, for v whose largest entry is 0.

        p = at(v, weight)(t): t makes p sum to 1, the weight, searched on a logarithmic scale, makes the divergence the
        radius. One linear step then removes what both searches left over.
        """
        radius = self.radius
        last = None

        def log_excess(log_weight: float) -> tuple[float, float]:
            """log(divergence / radius) and its derivative."""
            nonlocal last
            last = self._trial(v, math.exp(log_weight), last)
            rounding = 4 * _EPS * float(np.abs(last.p * last.slope).dot(self.ones))
            if abs(last.value - radius) <= max(rounding, _ENOUGH * radius):
                return 0.0, 0.0
            return math.log(last.value / radius), -last.weight * last.spread / last.value

        # far away p - q is nearly q (v - mean) / weight
        guess = math.sqrt(float(self.q.dot((v - self.q.dot(v)) ** 2)) / (2 * radius))
        # the divergence is at most (range of v + 1) / weight
        most = min((1 - float(v[v.argmin()])) / radius, 1e307)
        found = decreasing_root(log_excess, math.log(_LEAST), math.log(max(most, 2 * _LEAST)), _log(guess))
        if last is None or last.weight != math.exp(found):
            last = self._trial(v, math.exp(found), last)
        surplus = float(last.p.dot(self.ones)) - 1
        step = (last.value - radius - last.mean * surplus) / _positive(last.spread)
        p = last.p - last.response * (surplus / last.total + last.centred * step)
        return np.maximum(p, 0.0), np.where(p > 0, last.response, 0.0), last.centred

    def _trial(self, v: np.ndarray, weight: float, last: "_Trial | None") -> "_Trial":
        """The p of a weight: Newton's method for the t with sum p = 1, from where the last trial has it."""
        at, off = self.at(v, weight), v - self.q
        # where one coordinate alone reaches 1 the sum is at least 1; and some p_i is at least q_i, some at most
        single = v - 1 - weight * self.vertex_slope
        least = max(float(single[single.argmax()]), float(off[off.argmin()]))
        if last is not None:
            t = last.t - last.mean * (weight - last.weight)
        else:  # of f'(p / q) = p / q - 1, whose p may be negative
            share = self.q / (self.q + weight)
            t = float(share.dot(off) / share.dot(self.ones))
        t = min(max(t, least), float(off[off.argmax()]))
        p, response = at(t)
        total = _positive(float(response.dot(self.ones)))
        for _ in range(100):  # the sum is convex in t: after one step it is at least 1, and t only grows
            surplus = float(p.dot(self.ones)) - 1
            following = max(t + surplus / total, least)
            if abs(surplus) <= _ENOUGH or following == t:
                break
            t = following
            p, response = at(t)
            total = _positive(float(response.dot(self.ones)))
        slope = self.slope(p)
        mean = float(response.dot(slope)) / total
        centred = slope - mean
        value, spread = max(self.value(p, slope), _TINY), float(response.dot(centred * centred))
        return _Trial(weight, t, p, response, total, slope, mean, centred, value, spread)

    def one_lmo(self, d: np.ndarray) -> np.ndarray:
        first = int(d.argmin())
        lowest = float(d[first])
        with np.errstate(all="ignore"):
            cheapest = d == lowest
            vertex = np.zeros(d.shape)
            vertex[first] = 1.0
            # where all the cheapest together lie within the radius, so does the answer: the first breaks the tie
            if self.restriction(float(self.q[cheapest].sum())) <= self.radius:
                if self.restriction(float(self.q[first])) <= self.radius:
                    return vertex
                p = self.tilted(1 - vertex, np.where(cheapest, self.q, 0.0))
            else:
                cost = 0.5 * d - 0.5 * lowest  # halves do not overflow, and are exact: the cheapest stay at 0
                p = self.tilted(cost / cost[cost.argmax()], self.q)
        return p / p.sum()


class KLForm(DivergenceForm):
    """KLBall: f(x) = x log x - x + 1, p a Wright omega function of v."""

    def __init__(self, of: KLBall, shape: tuple[int, ...], dtype: np.dtype):
        from scipy.special import wrightomega  # here, since it takes a quarter of a second

        super().__init__(of, shape, dtype)
        self.omega = wrightomega
        self.radius = in_dtype(of.radius, dtype)
        self.log_q = np.log(self.q)
        self.vertex_slope = -self.log_q
        self.mass = float(self.q.sum())

    def at(self, v: np.ndarray, weight: float) -> Callable[[float], tuple[np.ndarray, np.ndarray]]:
        start = v / weight
        start += self.log_q
        start -= math.log(weight)

        def p(t: float) -> tuple[np.ndarray, np.ndarray]:
            omega = self.omega(start - t / weight)
            return weight * omega, omega / (1 + omega)

        return p

    def slope(self, p: np.ndarray) -> np.ndarray:
        # where p vanished its logarithm multiplies a zero
        return np.log(np.maximum(p, _TINY)) - self.log_q

    def value(self, p: np.ndarray, slope: np.ndarray) -> float:
        return float(p.dot(slope) - p.dot(self.ones)) + self.mass

    def restriction(self, mass: float) -> float:
        return -math.log(mass)

    def one_diameter(self) -> float:
        return _within_simplex(2 * math.sqrt(self.radius), self.length)

    def tilted(self, cost: np.ndarray, q: np.ndarray) -> np.ndarray:
        log_q = np.log(q)

        def at(log_tilt: float) -> tuple[np.ndarray, float]:
            exponents = log_q - math.exp(log_tilt) * cost
            top = float(exponents[exponents.argmax()])
            p = np.exp(exponents - top)
            total = float(p.sum())
            return p / total, math.log(total) + top

        def log_deficit(log_tilt: float) -> tuple[float, float]:
            p, log_total = at(log_tilt)
            tilt, mean = math.exp(log_tilt), float(p.dot(cost))
            value = max(-tilt * mean - log_total, _TINY)
            spread = float(p.dot((cost - mean) ** 2))
            return math.log(self.radius) - math.log(value), -tilt * (tilt * spread / value)

        mean = q.dot(cost)
        guess = math.sqrt(2 * self.radius / max(float(q.dot((cost - mean) ** 2)), _TINY))
        # a tilt beyond these separates, or mixes, any two costs that differ at all
        return at(decreasing_root(log_deficit, -0.1 * _WIDEST, _WIDEST, _log(guess)))[0]


class ChiSquareForm(DivergenceForm):
    """ChiSquareBall: f(x) = (x - 1)^2 / 2, of half the radius."""

    def __init__(self, of: ChiSquareBall, shape: tuple[int, ...], dtype: np.dtype):
        super().__init__(of, shape, dtype)
        self.whole_radius = in_dtype(of.radius, dtype)
        self.radius = 0.5 * self.whole_radius
        self.vertex_slope = 1 / self.q - 1

    def at(self, v: np.ndarray, weight: float) -> Callable[[float], tuple[np.ndarray, np.ndarray]]:
        share, start = self.q / (self.q + weight), v + weight

        def p(t: float) -> tuple[np.ndarray, np.ndarray]:
            above = start - t
            return share * np.maximum(above, 0.0), share * (above > 0)

        return p

    def slope(self, p: np.ndarray) -> np.ndarray:
        return p / self.q - 1

    def value(self, p: np.ndarray, slope: np.ndarray) -> float:
        return 0.5 * float((p - self.q).dot(slope))

    def restriction(self, mass: float) -> float:
        return 0.5 / mass - 0.5

    def one_diameter(self) -> float:
        return _within_simplex(2 * math.sqrt(self.whole_radius * float(self.q.max())), self.length)

    def tilted(self, cost: np.ndarray, q: np.ndarray) -> np.ndarray:
        """q max(level - cost, 0): the search only has to find what stays positive; then the level has a closed form."""

        def log_excess(log_level: float) -> tuple[float, float]:
            scaled = cost * math.exp(-log_level)
            share = np.maximum(1 - scaled, 0.0)
            weighted = q * share
            first, second = float(weighted.sum()), float(weighted.dot(share))
            # d share / d log level = scaled where it is positive
            slope = 2 * float(weighted.dot(scaled)) / second - 2 * float((q * (share > 0)).dot(scaled)) / first
            return math.log(second) - 2 * math.log(first) - math.log1p(self.whole_radius), slope

        level = math.exp(decreasing_root(log_excess, -_WIDEST, 0.1 * _WIDEST, 0.0))
        active = cost < level
        kept = np.where(active, q, 0.0)
        mass = float(kept.sum())
        scaled = np.where(active, cost / level, 0.0)
        centred = scaled - float(kept.dot(scaled)) / mass
        variance = float(kept.dot(centred**2)) / mass
        tilt = math.sqrt(max(mass * (1 + self.whole_radius) - 1, 0.0) / _positive(variance))
        return kept * np.maximum(1 - tilt * centred, 0.0)


def decreasing_root(function: Callable[[float], tuple[float, float]], low: float, high: float, guess: float) -> float:
    """t in [low, high] with value 0, for a nonincreasing function t -> (value, derivative); the nearer end if none.

    sets/roots.py in Python: Newton's method in a shrinking bracket, secants of its ends, halving. As long as one end
    has not been visited, Newton's steps may grow while they halve the value; where they do not, steps of four times
    the length look for that end. NaN: NaN.
    """
    t = min(max(guess, low), high)
    at_low, at_high, before = math.inf, -math.inf, math.inf
    length, widths, was_left = high - low, (math.inf,) * 3, False
    for _ in range(300):
        value, slope = function(t)
        if value == 0 or value != value:
            return t if value == 0 else value
        left = value > 0
        if left:
            low, at_low, at_high = t, value, 0.5 * at_high if was_left else at_high
        else:
            high, at_high, at_low = t, value, at_low if was_left else 0.5 * at_low
        one_sided = math.isinf(at_low) or math.isinf(at_high)
        following = t - value / slope if slope < 0 else math.nan
        shrinks = abs(following - t) <= 0.5 * length or (one_sided and abs(value) <= 0.5 * before)
        if not (low < following < high and shrinks):
            far = t + math.copysign(4 * length, value)
            following = far if one_sided else low + (high - low) * (at_low / (at_low - at_high))
            if not (low < following < high and (one_sided or high - low <= 0.5 * widths[2])):
                following = low + 0.5 * (high - low)
        if following in (low, high, t):
            return following
        widths, length, was_left, before = (high - low, *widths[:2]), abs(following - t), left, abs(value)
        t = following
    return t


def _tangent(response: np.ndarray, centred: np.ndarray) -> Linear:
    """The derivative of the projection: what each entry gains, less what leaves the sum, or crosses the boundary."""
    total = response.sum(axis=-1, keepdims=True)
    share = response / np.where(total > 0, total, 1.0)
    normal = response * centred
    spread = (normal * centred).sum(axis=-1, keepdims=True)
    across = normal / np.where(spread > 0, spread, 1.0)

    def inside(rows: np.ndarray) -> np.ndarray:
        summed, crossing = ((part * rows).sum(axis=-1, keepdims=True) for part in (share, across))
        return response * (rows - summed - centred * crossing)

    return inside


def _within_simplex(bound: float, size: int) -> float:
    return min(bound, math.sqrt(2.0)) if size > 1 else 0.0


def _log(number: float) -> float:
    return math.log(number) if number > 0 else -math.inf


def _positive(number: float) -> float:
    return number if number > 0 else 1.0
