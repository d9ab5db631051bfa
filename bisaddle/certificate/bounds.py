"""What can still be wrong with a gap: errors of its gradients, a worse y elsewhere, a corner that hides a part of x."""

from typing import Any, NamedTuple

import numpy as np

from bisaddle.certificate.noise import Noise
from bisaddle.oracle.bends import power_passes
from bisaddle.oracle.defined import inside
from bisaddle.oracle.implicit import Implicit, norm, small_lower
from bisaddle.oracle.kernels import Kernels, Upper, Vector
from bisaddle.sets.flat import FlatSet

# steps of the ascent to the worst value
ASCENT_STEPS = 1000
# of what a point's y lacks to the worst value, which may be left
SHARE = 1e-6
# a gradient this much smaller than the one at another y counts as none
NOTHING = 1e-6
# share of the way to the middle of X by which a part of x is moved to see whether y stays
NEAR = 1e-3
# points whose mean lies amidst a set
SPREAD = 16


class Sensitivity(NamedTuple):
    """How much the errors of Gx and of Gy grow with the residuals of theta and w, and what is there without them.

    x_lower, x_linear, y_lower: errors per unit of |g_theta| and of |g_theta_theta w - f_theta|; x, y: rounding.
    """

    x_lower: float
    x_linear: float
    y_lower: float
    x: float
    y: float

    def errors(self, solved: Implicit, noise: Noise) -> tuple[float, float]:
        """Bounds on the errors of Gx and of Gy; noise: rounding inside f and g, where it is more than usual."""
        x_error, y_error = max(self.x, noise.f_x + noise.cross), max(self.y, noise.f_y)
        if not solved.kernels.has_lower:
            return x_error, y_error
        eps = solved.kernels.eps
        lower = solved.lower_residual + max(4 * eps * norm(solved.hessian.product(solved.theta)), noise.g_theta)
        linear = solved.linear_residual + max(4 * eps * solved.f_theta_size, noise.f_theta + noise.hessian)
        return x_error + self.x_lower * lower + self.x_linear * linear, y_error + self.y_lower * lower


def sensitivity(
    solved: Implicit, mu_g: float | None, matrices: bool | None = None, passes: int | None = None
) -> Sensitivity:
    """For theta and w that solve their equations up to residuals.

        delta = Hess^-1 g_theta to first order, theta - theta*;     J = d/dtheta (Gx, linear residual, Gy) at fixed w
        Gy - grad_y L = J_y delta,      Gx - grad_x L = J_x delta - g_theta_x Hess^-1 (J_r delta - linear residual)

    matrices: the norms of these two maps are taken as they stand, from their matrices; else they are bounded by |J|,
    |g_theta_x| and 1 / mu_g, which may be far more; None: where there can be matrices. mu_g: None where it is not
    known. passes: of the power iterations behind those norms; fewer are cheaper, and the bound is larger by what they
    may have missed.
    """
    kernels, upper = solved.kernels, solved.upper
    rounding = 8 * kernels.eps
    if not kernels.has_lower:
        return Sensitivity(0.0, 0.0, 0.0, rounding * solved.f_x_size, rounding * norm(upper.f_y))
    if mu_g is None:
        mu_g = solved.hessian.least
    x, theta, y, w = solved.x, solved.theta, solved.y, solved.w
    # theta* lies within |g_theta| / mu_g of theta: J is taken at both ends of that step down the gradient, or at one
    # where they are so near that it is the same
    near = solved.lower_residual / mu_g <= kernels.eps**0.5 * (1 + norm(theta))
    ends: Any = [theta]
    if not (near and kernels.heavy):
        ends.append(theta - solved.products.g_theta / theta.dtype.type(mu_g))
    ends = ends if kernels.large else np.stack(ends)
    if can_have_matrices(solved) if matrices is None else matrices:
        hessian = solved.hessian
        inverse, cross = hessian.inverse, hessian.cross
        through = np.concatenate(
            [_through(J, inverse, cross, x.size) for J in kernels.bends(x, theta, y, w, ends)], axis=1
        )
        C = 2 * _matrix_norm(cross)
        y_lower = 2 * _matrix_norm(through)
        # nothing can be certified with a least eigenvalue that is lost in rounding, or by matrices that are not g's
        y_lower = np.nan if np.isnan(mu_g) or not solved.matrices_agree() else y_lower
        x_lower, x_linear = y_lower, 2 * _matrix_norm(inverse @ cross)
    else:
        cross_norm, bend_norm = kernels.norms(x, theta, y, w, ends, passes)
        factor = max(2.0, shortfall(theta.size, passes or power_passes(theta.size)))
        C, J = factor * cross_norm, factor * bend_norm
        y_lower, x_linear = J / mu_g, C / mu_g
        x_lower = y_lower + x_linear * y_lower
    x_rounding = rounding * (solved.f_x_size + C * norm(w))
    return Sensitivity(x_lower, x_linear, y_lower, x_rounding, rounding * norm(upper.f_y))


def shortfall(size: int, passes: int) -> float:
    """How many times a norm can exceed what a power iteration on A'A has found.

    After k passes from a unit v with <v, u>^2 = s along the leading vector u, at least s^(1 / 4k) |A| is found; s is
    about 1 / size, and taken for a 4096th of that.
    """
    return (4096 * size) ** (1 / (4 * passes))


def can_have_matrices(solved: Implicit) -> bool:
    return small_lower(solved.kernels) and not solved.kernels.wide  # their rows are as long as x


def _through(J: Vector, inverse: Vector, cross: Vector, x_size: int) -> Vector:
    """From g_theta to the errors of Gx and Gy; rows are images of unit vectors."""
    moved = inverse @ J
    size = len(inverse)
    G, r, f_y = moved[:, :x_size], moved[:, x_size : x_size + size], moved[:, x_size + size :]
    return np.concatenate([G - (r @ inverse) @ cross, f_y], axis=1)


def _matrix_norm(rows: Vector) -> float:
    square = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    if not np.all(np.isfinite(square)):
        return np.nan
    return max(float(np.linalg.eigvalsh(square)[-1]), 0.0) ** 0.5


class Told(NamedTuple):
    """What an ascent in y needs of f at a place: not the gradients in x and theta, which may be large."""

    value: float
    f_y: Vector
    steepness: float


def worst_value(
    kernels: Kernels, y_set: FlatSet, x: Vector, theta: Vector, y: Vector, here: Upper | Told, accuracy: float = 0.0
) -> tuple[float, float, float]:
    """max over Y of f(x, theta, .) - h, what the number given may still lack, and |f_theta| there; here: f at y.

    Accelerated projected (proximal) ascent with a curvature search and restarts, all decided by gradients of f, and
    stopped by y_set.best_response: the Frank-Wolfe gap, or max_s <f_y, s - y> + h(y) - h(s), which bounds the rest
    for concave f, at the accuracy, at a share of what y lacks, or at rounding. For f linear in y the first best
    response is the answer.
    """

    def told(at: Upper) -> Told:
        return Told(at.value, at.f_y, norm(at.f_theta))

    def upper(y: Vector) -> Told:
        return told(kernels.upper(x, theta, y))

    def value(y: Vector, at: Told) -> float:
        return at.value - y_set.penalty(y)

    nearest = y_set.project(y)
    here = here if isinstance(here, Told) else told(here)
    start = here if norm(nearest - y) == 0 else upper(nearest)
    rest, vertex = y_set.best_response(nearest, start.f_y)
    own = value(nearest, start)
    threshold = max(accuracy, SHARE * rest, 50 * kernels.eps * (1 + abs(own)))
    best, at, curvature = nearest, start, 1.0
    if rest > threshold:  # for f linear in y the vertex is the maximiser, and no ascent is needed
        vertex, there = inside(upper, nearest, vertex)
        curvature = norm(there.f_y - start.f_y) / max(norm(vertex - nearest), kernels.eps)  # a first guess
        rest_there, _ = y_set.best_response(vertex, there.f_y)
        if rest_there < rest:
            best, at, rest = vertex, there, rest_there
    previous, momentum, curvature = best, 1.0, max(curvature, 1e-12)
    for _ in range(ASCENT_STEPS):
        if not rest > threshold:
            break
        next_momentum = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
        ahead = y_set.project(best + (momentum - 1) / next_momentum * (best - previous))
        ahead, there = inside(upper, best, ahead)
        g = there.f_y
        tries = 0
        while True:
            moved, at = inside(upper, ahead, y_set.prox(ahead + g / curvature, 1 / curvature))
            step = moved - ahead
            bend = float((g - at.f_y) @ step)
            if bend <= (1 + 1e-9) * curvature * float(step @ step) or not curvature < 1e30:
                break
            curvature, tries = 2 * curvature, tries + 1
        curvature *= 0.7 if tries == 0 else 1.0  # a longer step is tried only after one that was short enough at once
        # momentum that carries y past the maximum is dropped: a restart keeps the rate of strongly concave f
        overshot = float((ahead - moved) @ (moved - best)) > 0
        best, previous, momentum = moved, best, 1.0 if overshot else next_momentum
        rest, _ = y_set.best_response(best, at.f_y)
    # the point's own y may be higher still if f is not concave
    rest = max(rest, 0.0) + _response_error(y_set, best, at.f_y)
    return float(np.maximum(value(best, at), own)), rest, at.steepness


def _response_error(y_set: FlatSet, y: Vector, gradient: Vector) -> float:
    """What the oracle behind a best response may have left out of the rest."""
    vertex = y_set.best_response(y, gradient)[1]
    if "lmo" in y_set.capabilities:
        return y_set.lmo_error(-gradient, vertex)
    return norm(gradient) * y_set.project_error(vertex, vertex)


def free_parts(kernels: Kernels, x: Vector, theta: Vector, y: Vector, Gx: Vector, in_corner: bool) -> tuple[str, ...]:
    """The parts of x that the point's y has no opinion on: their gradient is 0 here and wherever they are moved.

    theta: theta*(x). Only a y in a corner (one that maximises its own linearisation) is looked at; a part that f
    never depends on, as far as a look at another x and y tells, is not meant.
    """
    if kernels.y_set is None or not in_corner:
        return ()
    parts = kernels.x.named_slices
    norms = lambda Gx: np.array([norm(Gx[place]) for _, place in parts])
    sizes = norms(Gx)
    if not np.any(sizes <= NOTHING**0.5):  # none can be free, and that is known without another solve
        return ()
    amidst_x, amidst_y = _amidst(kernels.x_set, x), _amidst(kernels.y_set, y)
    usual = norms(Implicit(kernels, amidst_x, theta, amidst_y).Gx)
    small = (usual > 0) & (sizes <= NOTHING * usual)
    if not np.any(small):
        return ()
    # the other x differs in the parts without a gradient only: what holds those in place stays
    other = x.copy()
    for (_, place), is_small in zip(parts, small, strict=True):
        if is_small:
            other[place] = amidst_x[place]
    free = small & (norms(Implicit(kernels, other, theta, y).Gx) <= NOTHING * usual)
    # in a corner with a face of its own y stays when x moves a little; on the surface of a ball, say, the y gap rises
    stays = lambda place: _y_stays(kernels, x, theta, y, place, amidst_x)
    return tuple(name or "x" for (name, place), is_free in zip(parts, free, strict=True) if is_free and stays(place))


def _y_stays(kernels: Kernels, x: Vector, theta: Vector, y: Vector, place: slice, amidst_x: Vector) -> bool:
    """Whether y is as good when this part of x is moved a little: the y gap takes no part in the change of f_y."""
    y_set = kernels.y_set
    assert y_set is not None
    near = x.copy()
    near[place] += NEAR * (amidst_x[place] - x[place])
    here, there = (Implicit(kernels, at, theta, y).upper.f_y for at in (x, near))
    gap = lambda f_y: norm(y - y_set.prox(y + f_y, 1.0))
    # on a ball a long f_y turns y by the angle that it turns by itself, and no gap exceeds the diameter
    diameter = y_set.diameter()
    turn = norm(there - here) / max(norm(there), norm(here), diameter)
    return gap(there) - gap(here) <= NOTHING**0.5 * diameter * min(turn, 1.0)


def _amidst(a_set: FlatSet, v: Vector) -> Vector:
    """The mean of points of the set that lie far apart: on no side of it."""
    noise = np.random.default_rng(0).normal(size=(SPREAD, v.size)).astype(v.dtype)
    if "project" in a_set.capabilities:
        reach = 1e3 * (1 + a_set.diameter())
        return np.mean([a_set.project(v + reach * direction) for direction in noise], axis=0)
    return np.mean([a_set.lmo(direction) for direction in noise], axis=0)
