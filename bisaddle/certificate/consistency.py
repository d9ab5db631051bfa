"""Whether the derivatives that a certificate rests on belong to the functions: by hand, by autodiff, or at a kink."""

from collections.abc import Iterable, Sequence

import numpy as np

from bisaddle.certificate.noise import (
    LONG,
    ORDERS,
    SHORT,
    UNITS,
    Line,
    Noise,
    Packed,
    dot,
    jitter,
    lower_slopes,
    moved,
    packed_for,
    parts_of,
    shortest,
    size_of,
    upper_along,
)
from bisaddle.oracle.implicit import Implicit, norm, normal
from bisaddle.oracle.kernels import Kernels, Products, Vector
from bisaddle.sets.flat import FlatSet

# orders of differences for which a line has enough points for these checks
ENOUGH = (1,)
# changes of a slope that differ by less than this share of themselves are those of a smooth function
EVEN = 0.1
# points along the long move where each takes a pass over much data
FEW = 4
# share of a difference that is none
CLEARLY = 0.2
# what else it may be: of values that do not fit at the point, and of those that do not along a long move
KINK, STEPS = "a kink", "steps (round, floor, int)"


def mismatch(solved: Implicit, line: Line, noise: Noise, stated: float = 0.0) -> str:
    """What speaks against the derivatives at the point, in words; nothing if they fit. stated: noise, by the user.

        f                along the line and back, against <(f_x, f_theta, f_y), direction>
        <g_theta, w>     likewise, against <g_theta_theta w, theta part> + <g_theta_x w, x part>
        g                along the theta part, against <g_theta, direction>

    These are all that the gradients of a certificate are made of. A mistake is seen if it exceeds what the derivative
    itself changes by over a move, 3e-5 of the size of the point (float32: 1e-2 where data are few), or by how uneven
    that change is. The first two are held against the sums of their slopes along the long moves too: a function of
    round(x) goes up in steps, and has no slope on any of them. And values of f that differ from point to point of the
    shortest move by more than rounding can are no values of a function with these slopes.
    The direction of the line is used up.
    """
    of_lower = "" if line.lower is None else _lower_differs(solved, line, noise)
    return _upper_differs(solved, line, noise, stated) or of_lower


def _upper_differs(solved: Implicit, line: Line, noise: Noise, stated: float) -> str:
    kernels, slack, here = solved.kernels, 8 * solved.kernels.eps, solved.upper
    at = packed_for(kernels, solved.x, solved.theta, solved.y)
    size = size_of(at)
    which = line.moves.index(LONG if kernels.eps > 1e-10 and LONG in line.moves else SHORT)
    move = line.moves[which]
    there = size_of(line.direction)
    # each point would be another reading of all files
    drifts, largest = ("", 0.0) if kernels.streamed else _upper_drifts(solved, line, noise.value, at, size)
    back = _turned_back(solved, line.direction, 2 * move)
    kept_x, kept_theta = here.f_x.size == solved.x.size, here.f_theta.size == solved.theta.size
    sizes = [norm(part.astype(np.float64, copy=False)) for part in (here.f_theta, here.f_y)]
    sizes[0] = sizes[0] if kept_theta else solved.f_theta_size
    length = float(np.linalg.norm([solved.f_x_size, *sizes]))
    if kept_x and kept_theta:
        rows = [(here.value, sum(map(dot, (here.f_x, here.f_theta, here.f_y), parts_of(kernels, back))))]
    else:
        rows = [upper_along(kernels, at, back)[:2]]
    rows += [upper_along(kernels, moved(at, i * move, back), back)[:2] for i in (1, 2)]
    values, slopes = np.array(rows).T
    ways = ((line.upper[which, :, 0], line.slopes[which], there), (values, slopes, size_of(back)))
    for i, (seen, said, far) in enumerate(ways):
        # values are off by their own rounding and by that of the places where they are taken
        doubt = noise.value + slack * (float(np.max(np.abs(seen))) + size * length)
        slope_doubt = far * (noise.f_x + noise.f_theta + noise.f_y + slack * length)
        if off := difference(seen, said, move, doubt, slope_doubt):
            if i == 0:
                closer = ((move, *row[:3, 0]) for move, row in zip(line.moves, line.upper, strict=True))
            else:
                value = lambda step: upper_along(kernels, moved(at, step, back), back)[0]
                closer = ((step, seen[0], value(step), value(2 * step)) for step in line.moves)
            if line.moves[0] < SHORT and _fits_closer(closer, off, doubt, slope_doubt):
                continue
            return _words("f", "f_x, f_theta, f_y", *off)
    if line.moves[0] < SHORT and (off := _in_proportion(kernels, at, noise, slack, size, length)):
        return _words("f", "f_x, f_theta, f_y", *off)
    return drifts or ("" if kernels.heavy or kernels.streamed else _jumpy(line, largest, kernels.eps, stated))


def _in_proportion(
    kernels: Kernels, at: Packed, noise: Noise, slack: float, size: float, length: float
) -> tuple[float, float] | None:
    """The same along a line that moves each entry by a share of itself, for points near a pole.

    A line that leads away from it bends so much that a mistake in other entries is not seen. A large x has no pole that
    was looked for.
    """
    if isinstance(at, tuple):
        return None
    way = at * np.sign(normal(at, 8))
    values, slopes = np.array([upper_along(kernels, moved(at, i * SHORT, way), way)[:2] for i in range(3)]).T
    doubt = noise.value + slack * (float(np.max(np.abs(values))) + size * length)
    return difference(values, slopes, SHORT, doubt, size_of(way) * (slack * length))


def _fits_closer(
    closer: Iterable[tuple[float, ...]], off: tuple[float, float], doubt: float, slope_doubt: float
) -> bool:
    """Whether f has the slope that is said of it along a move so short that a pole near by, of a logarithm, is far off.

    closer: the moves with three values each; one for which rounding leaves too few digits tells nothing.
    """
    seen, said = off
    for step, *values in closer:
        if step < SHORT and 4 * doubt / step + 2 * slope_doubt < CLEARLY * abs(seen - said):
            return abs(steepness(values, step) - said) < CLEARLY * abs(seen - said)
    return False


def _upper_drifts(solved: Implicit, line: Line, noise: float, at: Packed, size: float) -> tuple[str, float]:
    """What speaks against f along the long moves, and how large f is there, or terms of it that cancel."""
    kernels, values, slopes = solved.kernels, line.upper[..., 0], line.slopes
    lengths, moves = np.linalg.norm(line.upper[..., 1:], axis=-1), line.moves
    if kernels.heavy:  # a pass over much data for each point: few of them
        rows = np.array([_row(kernels, moved(at, i * LONG, line.direction), line.direction) for i in range(FEW)])
        values, slopes, lengths, moves = *rows.T[:, None], (LONG,)
    defined = np.isfinite(values) & np.isfinite(lengths)
    # terms that cancel are as large as the gradients along the way tell, over the point and the way from it
    way = size + moves[-1] * size_of(line.direction)
    largest = float(np.max(np.abs(values) + way * lengths, initial=0.0, where=defined))
    doubt = noise + kernels.eps * (64 * largest + 8)  # where all of f cancels, that is no drift either
    for move, seen, said in zip(moves, values, slopes, strict=True):
        if move >= LONG and (off := drift(seen, said, move, doubt)):
            return _words("f", "f_x, f_theta, f_y", *off, why=STEPS), largest
    return "", largest


def _row(kernels: Kernels, packed: Packed, direction: Packed) -> tuple[float, float, float]:
    """f, how steep it is along the direction, and the length of its gradient, of which a large x keeps no copy."""
    value, slope, pieces = upper_along(kernels, packed, direction)
    return value, slope, float(np.linalg.norm([norm(piece) for piece in pieces]))


def _jumpy(line: Line, largest: float, eps: float, stated: float) -> str:
    """Whether values along the shortest move jump, beside the largest of all moves; slopes cannot be held against them.

    Half of all digits are left to rounding: where more of them are random, something else is; and what is less than a
    thousand units of rounding has slopes below any tol. stated: by the user.
    """
    first = shortest(line.moves)
    jumps = float(jitter(line.upper[first : first + 1, :, :1], ORDERS, line.moves[first : first + 1], eps)[0])
    if not jumps > max(eps**0.5 * largest, UNITS * eps, stated):
        return ""
    return (
        f"f jumps by {jumps:.2g} from one point to the next, and has values of {largest:.2g} near by: something random "
        "in it, a counter, or the digits of a float; its slopes say nothing of it"
    )


def _turned_back(solved: Implicit, direction: Packed, move: float) -> Packed:
    """The other way, as far as the sets go on there: at a border f need not be smooth, or be at all.

    In the memory of the direction: a large x has no room for both.
    """
    kernels = solved.kernels
    x_part, theta_part, y_part = parts_of(kernels, direction)
    _turn(kernels.x_set, solved.x, x_part, move)
    np.negative(theta_part, out=theta_part)
    _turn(kernels.y_set, solved.y, y_part, move)
    return direction


def _turn(a_set: FlatSet | None, v: Vector, away: Vector, move: float) -> None:
    if a_set is None or "project" not in a_set.capabilities:
        away[:] = 0
        return
    away *= -v.dtype.type(move)
    away += v
    np.subtract(a_set.project(away), v, out=away)
    away /= v.dtype.type(move)


def _lower_differs(solved: Implicit, line: Line, noise: Noise) -> str:
    assert line.lower is not None and line.lower_slopes is not None
    slack, here = 8 * solved.kernels.eps, solved.products
    # the way back is in theta alone: there g can be compared too, whose derivative in x is not known
    theta_part = parts_of(solved.kernels, line.direction)[1]

    def slopes_of(found: Products) -> list[float]:
        value, *steep = lower_slopes(found, solved.w, None, theta_part)
        return [found.value, value, *(-slope for slope in steep)]

    back = lambda step: slopes_of(solved.products_of(solved.w, theta=moved(solved.theta, -step, theta_part)))
    rows, size = [slopes_of(here)], norm(here.hessian[0])
    del here
    rows += [back(SHORT), back(2 * SHORT)]
    values, returning = np.array(rows)[:, 0], np.array(rows)[:, 1:]
    finer = line.lower_moves[0] < SHORT

    def closer(which: int) -> Iterable[tuple[float, ...]]:
        return ((step, rows[0][which], back(step)[which], back(2 * step)[which]) for step in line.lower_moves)

    width, cancelled = norm(solved.w), norm(solved.hessian.product(solved.theta))
    places_off = slack * (norm(solved.x) + norm(solved.theta))
    steep = size + solved.cross_size
    doubt = width * (noise.g_theta + slack * cancelled) + places_off * steep
    slope_doubt = size_of(line.direction) * (noise.hessian + noise.cross + slack * steep)
    forward = ((step, *row[:3, 0]) for step, row in zip(line.lower_moves, line.lower_slopes, strict=True))
    ways = ((line.lower_slopes[line.lower_moves.index(SHORT)], forward), (returning, closer(1)))
    for found, near in ways:
        off = difference(found[:, 0], found[:, 1], SHORT, doubt, slope_doubt)
        if off and not (finer and _fits_closer(near, off, doubt, slope_doubt)):
            return _words("<g_theta, w>", "g_theta_theta, g_theta_x", *off)
    doubt = noise.lower_value + slack * (float(np.max(np.abs(values))) + norm(solved.theta) * cancelled)
    slope_doubt = norm(theta_part) * (noise.g_theta + slack * cancelled)
    off = difference(values, returning[:, 2], SHORT, doubt, slope_doubt)
    if off and not (finer and _fits_closer(closer(0), off, doubt, slope_doubt)):
        return _words("g", "g_theta", *off)
    return "" if solved.kernels.large or solved.kernels.streamed else _lower_drifts(solved, line.direction, noise)


def _lower_drifts(solved: Implicit, direction: Packed, noise: Noise) -> str:
    """<g_theta, w> along the long move."""
    ways = parts_of(solved.kernels, direction)[:2]
    rows = []
    for i in range(FEW if solved.kernels.heavy else ORDERS[-1] + 2):
        x, theta = moved(solved.x, i * LONG, ways[0]), moved(solved.theta, i * LONG, ways[1])
        rows.append(lower_slopes(solved.products_of(solved.w, x, theta), solved.w, *ways)[:2])
    values, slopes = np.array(rows).T
    width, defined = norm(solved.w), np.isfinite(values)
    terms = width * norm(solved.hessian.product(solved.theta)) + np.max(np.abs(values), initial=0.0, where=defined)
    off = drift(values, slopes, LONG, width * noise.g_theta + 64 * solved.kernels.eps * float(terms))
    return _words("<g_theta, w>", "g_theta_theta, g_theta_x", *off, why=STEPS) if off else ""


def difference(
    values: Vector, slopes: Vector, step: float, doubt: float, slope_doubt: float
) -> tuple[float, float] | None:
    """(how steep the values are at the first of points at distance `step`, the slope said of it) if these differ.

    By (-3 v0 + 4 v1 - v2) / (2 step), which is off by less than the slopes change from one later point to the next, and
    if they change evenly by less than the changes do. The slope of the first is left out of this: it is the one in
    question, and at a kink unlike all others. doubt, slope_doubt: what values and slopes may be off by.
    """
    if not (np.all(np.isfinite(values)) and np.all(np.isfinite(slopes))):  # beyond where the function is defined
        return None
    seen = steepness(values, step)
    changes = np.diff(slopes[1:])
    bend, uneven = float(np.max(np.abs(changes))), float(np.max(np.abs(np.diff(changes)), initial=0.0))
    bend = 2 * (uneven if len(changes) > 2 and uneven < EVEN * bend else bend)
    return (seen, float(slopes[0])) if abs(seen - slopes[0]) > bend + 4 * doubt / step + 2 * slope_doubt else None


def steepness(values: Sequence[float] | Vector, step: float) -> float:
    """At the first of three points."""
    return float(-3 * values[0] + 4 * values[1] - values[2]) / (2 * step)


def drift(values: Vector, slopes: Vector, step: float, doubt: float) -> tuple[float, float] | None:
    """(mean steepness of values at distance `step`, that of their slopes) if these differ; doubt: of a value.

    The slopes are added up by trapezoids. Where a function bends one way between two points, that is off by half of
    what its slope changes by between them, at most; all of it is allowed for, and so is the interval that is off most:
    there may be one step, as steep as it likes, that is smooth from close by.
    """
    count = int(np.argmin(np.append(np.isfinite(values) & np.isfinite(slopes), False)))  # where it is defined
    if count < 3:
        return None
    values, slopes, way = values[:count], slopes[:count], step * (count - 1)
    seen, said = np.diff(values), step * (slopes[1:] + slopes[:-1]) / 2
    bend, off = step * float(np.sum(np.abs(np.diff(slopes)))), seen - said
    left = float(np.sum(off) - off[np.argmax(np.abs(off))])
    return (float(np.sum(seen)) / way, float(np.sum(said)) / way) if abs(left) > bend + 2 * doubt else None


def _words(function: str, derivatives: str, seen: float, said: float, why: str = KINK) -> str:
    return (
        f"{function} changes at a rate of {seen:.6g} along a line through the point, and by {derivatives} it would be "
        f"{said:.6g}: a mistake in them, a stop_gradient, or {why}; bs.check_derivatives tells which"
    )
