"""Whether the derivatives that a certificate rests on belong to the functions: by hand, by autodiff, or at a kink."""

import numpy as np

from bisaddle.certificate.noise import LONG, SHORT, Line, Noise, dot, lower_slopes, moved, upper_along
from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Vector

# orders of differences for which a line has enough points for these checks
ENOUGH = (1,)
# changes of a slope that differ by less than this share of themselves are those of a smooth function
EVEN = 0.1


def mismatch(solved: Implicit, line: Line, noise: Noise) -> str:
    """What speaks against the derivatives at the point, in words; nothing if they fit.

        f                along the line and back, against <(f_x, f_theta, f_y), direction>
        <g_theta, w>     likewise, against <g_theta_theta w, theta part> + <g_theta_x w, x part>
        g                along the theta part, against <g_theta, direction>

    These are all that the gradients of a certificate are made of. A mistake is seen if it exceeds what the derivative
    itself changes by over a move, 3e-5 of the size of the point (float32: 1e-2 where data are few), or by how uneven
    that change is.
    """
    found = _upper_differs(solved, line, noise)
    return found or ("" if line.lower is None else _lower_differs(solved, line, noise))


def _upper_differs(solved: Implicit, line: Line, noise: Noise) -> str:
    kernels, slack, here = solved.kernels, 8 * solved.kernels.eps, solved.upper
    parts = solved.x, solved.theta, solved.y
    at = parts if kernels.wide else np.concatenate(parts)
    size = norm(at) if isinstance(at, np.ndarray) else float(np.linalg.norm([norm(part) for part in parts]))
    which = line.moves.index(LONG if kernels.eps > 1e-10 and LONG in line.moves else SHORT)
    move = line.moves[which]
    back = _back(solved, line.direction, 2 * move)
    gradients = here.f_x, here.f_theta, here.f_y
    length = float(np.linalg.norm([norm(part.astype(np.float64, copy=False)) for part in gradients]))
    along = np.split(back, [solved.x.size, solved.x.size + solved.theta.size])
    values, slopes = [here.value], [sum(map(dot, gradients, along))]
    for i in (1, 2):
        value, slope, _ = upper_along(kernels, moved(at, i * move, back), back)
        values.append(value)
        slopes.append(slope)
    ways = (line.upper[which, :, 0], line.slopes[which], line.direction), (np.array(values), np.array(slopes), back)
    for seen, said, direction in ways:
        # values are off by their own rounding and by that of the places where they are taken
        doubt = noise.value + slack * (float(np.max(np.abs(seen))) + size * length)
        slope_doubt = norm(direction) * (noise.f_x + noise.f_theta + noise.f_y + slack * length)
        if off := difference(seen, said, move, doubt, slope_doubt):
            return _words("f", "f_x, f_theta, f_y", *off)
    return ""


def _back(solved: Implicit, direction: Vector, move: float) -> Vector:
    """The other way, as far as the sets go on there: at a border f need not be smooth, or be at all."""
    kernels, size = solved.kernels, solved.x.size
    parts = [-direction[size : size + solved.theta.size]]
    for a_set, v, away in (
        (kernels.x_set, solved.x, direction[:size]),
        (kernels.y_set, solved.y, direction[direction.size - solved.y.size :]),
    ):
        if a_set is None or "project" not in a_set.capabilities:
            parts.append(np.zeros_like(v))
        else:
            to = v.dtype.type(move) * away
            to = a_set.project(np.subtract(v, to, out=to)) - v
            parts.append((to / move).astype(v.dtype, copy=False))
    return np.concatenate([parts[1], parts[0], parts[2]])


def _lower_differs(solved: Implicit, line: Line, noise: Noise) -> str:
    assert line.lower is not None and line.lower_slopes is not None
    x_size, size, slack = solved.x.size, solved.theta.size, 8 * solved.kernels.eps
    # the way back is in theta alone: there g can be compared too, whose derivative in x is not known
    theta_part = -line.direction[x_size : x_size + size]
    back = np.broadcast_to(solved.x.dtype.type(0), x_size), theta_part
    here = solved.products
    values, rows = [here.value], [lower_slopes(here, solved.w, *back)]
    for i in (1, 2):
        found = solved.products_of(solved.w, theta=moved(solved.theta, i * SHORT, theta_part))
        values.append(found.value)
        rows.append(lower_slopes(found, solved.w, *back))
    returning = np.array(rows)
    width, cancelled = norm(solved.w), norm(solved.hessian.product(solved.theta))
    places_off = slack * (norm(solved.x) + norm(solved.theta))
    steep = norm(here.hessian[0]) + norm(here.cross[0])
    doubt = width * (noise.g_theta + slack * cancelled) + places_off * steep
    slope_doubt = norm(line.direction) * (noise.hessian + noise.cross + slack * steep)
    for found in (line.lower_slopes[line.lower_moves.index(SHORT)], returning):
        if off := difference(found[:, 0], found[:, 1], SHORT, doubt, slope_doubt):
            return _words("<g_theta, w>", "g_theta_theta, g_theta_x", *off)
    doubt = noise.lower_value + slack * (float(np.max(np.abs(values))) + norm(solved.theta) * cancelled)
    slope_doubt = norm(theta_part) * (noise.g_theta + slack * cancelled)
    off = difference(np.array(values), returning[:, 2], SHORT, doubt, slope_doubt)
    return _words("g", "g_theta", *off) if off else ""


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
    seen = float(-3 * values[0] + 4 * values[1] - values[2]) / (2 * step)
    changes = np.diff(slopes[1:])
    bend, uneven = float(np.max(np.abs(changes))), float(np.max(np.abs(np.diff(changes)), initial=0.0))
    bend = 2 * (uneven if len(changes) > 2 and uneven < EVEN * bend else bend)
    return (seen, float(slopes[0])) if abs(seen - slopes[0]) > bend + 4 * doubt / step + 2 * slope_doubt else None


def _words(function: str, derivatives: str, seen: float, said: float) -> str:
    return (
        f"{function} changes at a rate of {seen:.6g} along a line through the point, and by {derivatives} it would be "
        f"{said:.6g}: a mistake in them, a stop_gradient, or a kink; bs.check_derivatives tells which"
    )
