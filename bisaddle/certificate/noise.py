"""How much the computed f and g are rounded, seen from outside: by moving a little and looking for jitter."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from bisaddle.oracle.implicit import Implicit, norm, normal
from bisaddle.oracle.kernels import Kernels, Products, Upper, Vector
from bisaddle.oracle.sketch import kept, sketched
from bisaddle.sets.flat import FlatSet
from bisaddle.trees import stepped

# lengths of the moves, relative to the size of the point. Cancellation as in (x + 1e12) - 1e12 rounds to steps that are
# longer than a short move, and not seen by it
SHORT, LONG, LONGER = 3e-5, 1e-2, 3e-2
# tried too where more than so many units of rounding were seen: what bends within a long move can be followed from
# shorter ones, along some of which rounding is more than bending; and what is large a short move away is small near by
UNITS, MORE = 1e3, (1e-7, 1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 3e-3)
# tried where that is still so: an entropy bends within a step as long as its smallest entry
FINER = (*(10 ** (-k / 2) for k in range(28, 14, -1)), 10**-6.5, 10**-5.5)
# orders of the differences: from one to the next those of a smooth function shrink, those of rounding do not
ORDERS, HEAVY_ORDERS = (3, 4, 5), (3, 4)
SHRINKS = 0.5
# from a move to one that is r times as long, with r at most NEXT, differences of order k of a smooth function grow by
# r^k, near a pole by more: r^(k + 3) at most, and TWICE that for what they differ from point to point
NEXT, POLE, TWICE = 4.0, 3, 2.0
# in units of rounding of the largest value along a move, what any function has there
ORDINARY = 64
# what is estimated from a few differences may be this much larger
SAFETY = 4.0
TINY = np.finfo(np.float64).tiny
# x, theta and y in one vector; where x or theta is large each by itself: packing them takes a copy
Packed = Vector | tuple[Vector, Vector, Vector]


class Noise(NamedTuple):
    """Estimates of the rounding in f, |f_x|, |f_theta|, |f_y|, g, |g_theta|, |g_theta_theta w| and |g_theta_x w|."""

    value: float = 0.0
    f_x: float = 0.0
    f_theta: float = 0.0
    f_y: float = 0.0
    lower_value: float = 0.0
    g_theta: float = 0.0
    hessian: float = 0.0
    cross: float = 0.0

    @classmethod
    def bounded_by(cls, bound: float) -> "Noise":
        """Where the user says how accurate all of them are."""
        return cls(*[bound] * 8)


class Line(NamedTuple):
    """f and g with their derivatives at equal distances along a line, of which the first point is the certified one.

    moves: the distances, in lengths of the direction (of x, theta and y), in order; slopes[move, point], upper[move,
    point]: how steep f is along the direction, and f, f_x, f_theta, f_y, sketched where they are long; parts: where
    they end; rounding: what `jitter` sees in upper, None where it was not asked for. lower_moves, lower_slopes[move,
    point], lower[move, point]: the same of <g_theta, w>, how steep that is, <g_theta, theta part of the direction>; and
    of g, g_theta, g_theta_theta w, g_theta_x w; None without a lower level.
    """

    direction: Packed
    moves: tuple[float, ...]
    slopes: Vector
    upper: Vector
    parts: Vector
    rounding: Vector | None
    lower_moves: tuple[float, ...] = ()
    lower_slopes: Vector | None = None
    lower: Vector | None = None
    lower_parts: Vector | None = None
    lower_rounding: Vector | None = None


def along_a_line(solved: Implicit, orders: tuple[int, ...] | None = None) -> Line:
    """As many points as an estimate of rounding takes; with much data, as differences of these orders do, if given."""
    kernels, w = solved.kernels, solved.w
    x, theta, y = solved.x, solved.theta, solved.y
    ways = (
        _into(kernels.x_set, x).astype(x.dtype, copy=False),
        _of_length(_length(theta), normal(theta, 4)),
        np.zeros_like(y) if kernels.y_set is None else _into(kernels.y_set, y, 5).astype(y.dtype, copy=False),
    )
    at, direction = packed_for(kernels, x, theta, y), packed_for(kernels, *ways)

    def upper(packed: Packed) -> Vector:
        return _upper_row(*upper_along(kernels, packed, direction))

    def lower(packed: Packed) -> Vector:
        at_x, at_theta, _ = parts_of(kernels, packed)
        return lower_row(solved.products_of(w, at_x, at_theta))

    def lower_row(found: Products) -> Vector:
        return np.concatenate([lower_slopes(found, w, *ways[:2]), [found.value], *_sketched_lower(found)])

    refined = not kernels.heavy and orders is None
    estimated = orders is None
    orders = orders if orders is not None and kernels.heavy else orders_for(kernels)

    def samples(
        function: Callable[[Any], Vector], first: Vector | None, moves: tuple[float, ...], slopes: int
    ) -> tuple[Any, Vector, Vector | None]:
        """The moves, what the function is along them, after so many slopes, and the rounding seen in it."""
        first = function(at) if first is None else first
        sampled_along = lambda moves: _defined(sampled(function, at, direction, moves, orders[-1] + 2, first), slopes)
        rows = sampled_along(moves)
        if not estimated:
            return moves, rows, None
        rounding = jitter(rows[..., slopes:], orders, moves, kernels.eps)
        for others in (MORE, FINER) if refined else ():
            if not norm(rounding) > UNITS * kernels.eps * max(1.0, abs(rows[0, 0, slopes])):
                break
            more = tuple(move for move in others if move < moves[-1])
            rows, order = np.concatenate([rows, sampled_along(more)]), np.argsort(moves + more)
            moves, rows = tuple(float(move) for move in np.array(moves + more)[order]), rows[order]
            rounding = jitter(rows[..., slopes:], orders, moves, kernels.eps)
        return moves, rows, rounding

    # what is known of the point itself is not asked for again; of a large x or theta it was not kept
    kept_all = not (kernels.large and kernels.has_lower)
    known = _upper_row(*_along(kernels, solved.upper, direction)) if kept_all else None
    moves, above, rounding = samples(upper, known, (SHORT,) if kernels.heavy else (SHORT, LONG, LONGER), 1)
    ends = np.cumsum([1, kept(x.size), kept(theta.size)])
    line = Line(direction, moves, above[..., 0], above[..., 1:], ends, rounding)
    if not kernels.has_lower:
        return line
    moves, below, rounding = samples(lower, lower_row(solved.products) if kept_all else None, (SHORT,), 3)
    ends = np.cumsum([1, kept(theta.size), kept(theta.size)])
    return line._replace(
        lower_moves=moves,
        lower_slopes=below[..., :3],
        lower=below[..., 3:],
        lower_parts=ends,
        lower_rounding=rounding,
    )


def packed_for(kernels: Kernels, x: Vector, theta: Vector, y: Vector) -> Packed:
    return (x, theta, y) if kernels.large else np.concatenate([x, theta, y])


def parts_of(kernels: Kernels, packed: Packed) -> Any:
    """x, theta and y again."""
    if isinstance(packed, tuple):
        return packed
    first, second = kernels.x.size, kernels.x.size + kernels.theta.size
    return packed[:first], packed[first:second], packed[second:]


def upper_along(kernels: Kernels, packed: Packed, direction: Packed) -> tuple[float, float, Any]:
    """f, how steep it is along the direction, and its gradients in x, theta and y."""
    if isinstance(packed, tuple):
        return _along(kernels, kernels.upper(*packed), direction)
    found = kernels.packed_upper(packed)
    return float(found[0]), dot(found[1:], direction), parts_of(kernels, found[1:])


def _along(kernels: Kernels, found: Upper, direction: Packed) -> tuple[float, float, Any]:
    """The same of what is known."""
    value, *pieces = found
    if isinstance(direction, tuple):
        return value, sum(map(dot, pieces, direction)), pieces
    return value, dot(np.concatenate(pieces), direction), pieces


def _upper_row(value: float, slope: float, pieces: Any) -> Vector:
    return np.concatenate([[slope, value], *map(sketched, pieces)])


def lower_slopes(found: Products, w: Vector, x_part: Vector | None, theta_part: Vector) -> list[float]:
    """<g_theta, w>, how steep that is along a direction of x and theta, and <g_theta, theta part of the direction>."""
    steep = dot(found.hessian[0], theta_part) + (0.0 if x_part is None else dot(found.cross[0], x_part))
    return [dot(found.g_theta, w), steep, dot(found.g_theta, theta_part)]


def _sketched_lower(found: Products) -> list[Vector]:
    return [sketched(v) for v in (found.g_theta, found.hessian[0], found.cross[0])]


def dot(a: Any, b: Any) -> float:
    return float(a.astype(np.float64, copy=False) @ b.astype(np.float64, copy=False))


def size_of(packed: Packed) -> float:
    """The length of it all."""
    return float(np.linalg.norm([norm(part) for part in packed])) if isinstance(packed, tuple) else norm(packed)


def orders_for(kernels: Kernels) -> tuple[int, ...]:
    return HEAVY_ORDERS if kernels.heavy else ORDERS


def rounding_noise(line: Line) -> Noise:
    """From differences of high order along a line through the point, as Moré and Wild estimate noise.

    For values with errors of deviation s, the differences of order k have mean square binomial(2k, k) s^2.
    """
    assert line.rounding is not None
    sizes = [norm(part) for part in np.split(line.rounding, line.parts)]
    if line.lower_rounding is not None and line.lower_parts is not None:
        sizes += [norm(part) for part in np.split(line.lower_rounding, line.lower_parts)]
    return Noise(*(SAFETY * size for size in sizes))


def sampled(
    function: Callable[[Any], Vector],
    at: Packed,
    direction: Packed,
    moves: tuple[float, ...],
    count: int,
    first: Vector | None = None,
) -> Vector:
    """[move, i]: function(at + i move direction), for so many i; first: function(at), if it is known."""
    first = function(at) if first is None else first
    return np.stack([[first, *(function(moved(at, i * move, direction)) for i in range(1, count))] for move in moves])


def _defined(rows: Vector, value: int) -> Vector:
    """No numbers where the value is none: beyond the pole of a logarithm its derivative 1 / t looks like one."""
    rows[~np.isfinite(rows[..., value])] = np.nan
    return rows


def moved(at: Any, length: float, direction: Any) -> Any:
    """at + length * direction; part by part, if it comes in parts."""
    if isinstance(at, tuple):
        return tuple(stepped(part, length, along) for part, along in zip(at, direction, strict=True))
    return stepped(at, length, direction)


def jitter(rows: Vector, orders: tuple[int, ...], moves: tuple[float, ...], eps: float) -> Vector:
    """The deviation of the rounding in each entry of a function, as samples of it along moves of some lengths show.

    What is seen along a move is no rounding where it has grown from a shorter move as bending does, nor as much of it
    as is usual for values that are larger there: that of the point itself is seen along the shortest.
    """
    seen = _seen(rows, orders, moves, eps)
    if moves[-2:] == (LONG, LONGER):  # what bends a lot within a long move bends less within a shorter one
        seen = np.concatenate([seen[:-2], np.minimum(seen[-2], seen[-1])[None]])
    return np.max(seen, axis=0)


def shortest(moves: tuple[float, ...]) -> int:
    """The place of the shortest move along which digits change as rounding has it."""
    return next(i for i, move in enumerate(moves) if move >= MORE[0])


def _seen(rows: Vector, orders: tuple[int, ...], moves: tuple[float, ...], eps: float) -> Vector:
    """[move, entry]: what may be rounding along each move."""
    weights, starts, powers = _differences(orders)
    rows = rows.astype(np.float64, copy=False)
    sizes = np.max(np.abs(rows), axis=1)
    squares = np.square(np.einsum("dp,mpe->mde", weights, rows))
    deviations = np.sqrt(np.add.reduceat(squares, starts, axis=1))
    smooth = np.all(deviations[:, 1:] < SHRINKS * deviations[:, :-1], axis=1)
    # no number: beyond where the function is defined
    finite = np.isfinite(deviations[:, -1])
    seen = np.where(finite & ~smooth, deviations[:, -1], 0.0)
    if orders == ORDERS:  # along the shortest move what is smooth has next to none, and what is rounded may seem smooth
        seen[0] = np.where(finite[0], deviations[0, -1], 0.0)
    followed = smooth[0]
    for i in range(1, len(moves)):
        longer = moves[i] / moves[i - 1]
        # an exponential grows by more than any power of the way: what it has grown by itself counts besides
        grown = np.maximum(1.0, sizes[i] / np.maximum(longer**2 * sizes[i - 1], TINY))
        most = TWICE * longer**powers * deviations[i - 1] * grown
        bends = followed & (longer < NEXT) & np.all(deviations[i] <= most, axis=0)
        usual = ORDINARY * eps * sizes[i]
        seen[i] = np.where(bends | (seen[i] <= usual), 0.0, seen[i])
        followed = smooth[i] | bends
    return seen


@cache
def _differences(orders: tuple[int, ...]) -> tuple[Vector, Vector, Vector]:
    """Rows that take the differences of each order of values at equal distances, where each order begins, and the
    powers of the way by which they grow near a pole, as a column.

    They are scaled: the squares of an order add up to an estimate of the variance.
    """
    count = orders[-1] + 2
    rows = [
        np.diff(np.eye(count), order, axis=0) / math.sqrt(math.comb(2 * order, order) * (count - order))
        for order in orders
    ]
    return np.concatenate(rows), np.cumsum([0, *map(len, rows)])[:-1], (np.array(orders) + POLE)[:, None]


def _into(a_set: FlatSet, v: Vector, first: int = 0) -> Vector:
    """From v into the set, in every coordinate that can move, as long as v or 1; first: seed, another for each part."""
    if len(a_set.blocks) > 1:
        return np.concatenate([_into(block, v[place], first) for block, place in a_set.blocks])
    reach = v.dtype.type(_length(v))
    away = np.zeros_like(v)
    for seed in range(3):  # the mean of three points, one at a time
        noise = normal(v, first + seed)
        if "project" in a_set.capabilities:
            noise *= reach
            noise += v
            away += a_set.project(noise)
        else:
            away += a_set.lmo(noise)
    away /= 3
    away -= v
    away *= min(1.0, reach / max(norm(away), np.finfo(v.dtype).tiny))
    return away


def _length(v: Vector) -> float:
    return 1.0 + norm(v)


def _of_length(length: float, v: Vector) -> Vector:
    """v made as long as that, in place: a large one has no room for another."""
    v *= length / max(norm(v), np.finfo(v.dtype).tiny)
    return v
