"""The scales with which Adaptive begins: the first mu, and over which length f changes, by what is near the start."""

from typing import NamedTuple

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import far, farthest
from bisaddle.methods.adaptive.found import Inner
from bisaddle.methods.adaptive.inner import Solver
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Vector


class First(NamedTuple):
    """The scales of the start. range: of f over Y, as f_y tells; slope: that by the width of Y; mu: by its square."""

    mu: float
    slope: float
    range: float


UNKNOWN = First(1.0, 0.0, 0.0)


def reach(change: float, slope: float, x: Vector) -> float:
    """The length over which f changes by so much, as its slope tells; a few lengths of x at most, and no rounding."""
    size = norm(x)
    length = max(change / slope, np.finfo(x.dtype).eps ** 0.5 * size) if change > 0 else size
    return min(length, const.LONGEST * size or length) or 1.0


def first_scales(solver: Solver, x: Vector, inner: Inner, Gx: Vector) -> First:
    """The weight mu at which the gradient in y just reaches across Y, here or at a probe down the gradient in x.

    The probe counts only for an f_y that happens to be nearly the same for all y at the start: a weight from farther
    away is too large here, and has x descend along a mean of functions that may have no minimum. It lies a tenth of the
    way to the border of X, and no farther than |x| or than f takes to change by its range over Y; one whose lower level
    could not be solved tells nothing. Where f_y is the same for all y at the start it differs in proportion to the way
    from there, and the weight is that of the place where x is going: the minimum of the parabola through the values.
    """
    kernels, cost, y = solver.kernels, solver.cost, inner.y
    y_set = kernels.y_set
    assert y_set is not None
    diameter = y_set.diameter()

    def scales(f_y: Vector) -> First:
        across = y_set.project(y + far(y_set, f_y)) - y_set.project(y - far(y_set, f_y))
        width, change = norm(across), float(f_y @ across)
        # an f_y that is the same in all entries, say, still differs across Y by its rounding, and points anywhere
        none = const.ROUNDING * kernels.eps * norm(f_y) * max(width, diameter if np.isfinite(diameter) else 0.0)
        return First(change / width**2, change / width, change) if none < change < np.inf else First(0.0, 0.0, 0.0)

    at_start = scales(inner.upper.f_y)
    way = farthest(kernels.x_set, x, Gx) - x
    longest = max(norm(x), reach(at_start.range, max(norm(Gx), const.TINIEST), x))
    probe = x + min(const.PROBE, longest / max(norm(way), const.TINY)) * way
    theta, known = inner.theta, True
    if kernels.has_lower:
        g_theta = kernels.lower_gradient(probe, theta)
        cost.gradients += 1
        target = max(const.FIRST_RESIDUAL * min(1.0, inner.mu_g), const.PROBE_RESIDUAL * norm(g_theta))
        theta, g_theta, *_ = solver.solve_lower(probe, theta, target, g_theta)
        known = norm(g_theta) <= target
    there = kernels.upper(probe, theta, y) if known else inner.upper
    cost.gradients += known
    cost.projections += 5
    at_probe = scales(there.f_y)
    if at_start.mu > const.PROBE_LESS * at_probe.mu:
        return at_start
    expected = float(Gx @ (probe - x))
    bend = there.value - inner.upper.value - expected
    further = -0.5 * expected / bend if bend > 0 else 1.0  # times the way to the probe
    most = max(norm(way) / max(norm(probe - x), const.TINY), 1.0)
    return at_probe._replace(mu=min(max(further, 1.0), most) * at_probe.mu) if at_probe.mu > 0 else UNKNOWN
