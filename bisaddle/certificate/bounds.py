"""What can still be wrong with a gap: errors of its gradients, a worse y elsewhere, a corner that hides a part of x."""

import numpy as np

from bisaddle.oracle.implicit import DENSE_LIMIT, Implicit, norm
from bisaddle.oracle.kernels import Kernels, Upper, Vector, power_passes, shortfall
from bisaddle.sets.flat import FlatSet

# steps of the ascent to the worst value
ASCENT_STEPS = 1000
# a gradient this much smaller than the one at another y counts as none
NOTHING = 1e-6
# points whose mean lies amidst a set
SPREAD = 16


def gradient_errors(
    solved: Implicit, mu_g: float | None, matrices: bool, passes: int | None = None
) -> tuple[float, float]:
    """Bounds on the errors of Gx and of Gy, for theta and w that solve their equations up to residuals.

        delta = Hess^-1 g_theta to first order, theta - theta*;     J = d/dtheta (Gx, linear residual, Gy) at fixed w
        Gy - grad_y L = J_y delta,      Gx - grad_x L = J_x delta + g_theta_x Hess^-1 (J_r delta + linear residual)

    matrices: the norms of these two maps are taken as they stand, from their matrices; else they are bounded by |J|,
    |g_theta_x| and 1 / mu_g, which may be far more. mu_g: None where it is not known. passes: of the power iterations
    behind those norms; fewer are cheaper, and the bound is larger by what they may have missed.
    """
    kernels, upper = solved.kernels, solved.upper
    rounding = 8 * kernels.eps
    if not kernels.has_lower:
        return rounding * norm(upper.f_x), rounding * norm(upper.f_y)
    if mu_g is None:
        mu_g = solved.hessian.least
    x, theta, y, w = solved.x, solved.theta, solved.y, solved.w
    # theta* lies within |g_theta| / mu_g of theta: J is taken at both ends of that step down the gradient, or at one
    # where they are so near that it is the same
    ends = [theta, theta - solved.g_theta / theta.dtype.type(mu_g)]
    near = solved.lower_residual / mu_g <= kernels.eps**0.5 * (1 + norm(theta))
    ends = np.stack(ends[:1] if near and kernels.heavy else ends)
    lower = solved.lower_residual + 4 * kernels.eps * norm(solved.hessian.product(theta))
    linear = solved.linear_residual + 4 * kernels.eps * norm(upper.f_theta)
    if matrices:
        hessian = solved.hessian
        inverse, cross = hessian.inverse, hessian.cross
        through = np.concatenate(
            [_through(J, inverse, cross, x.size) for J in kernels.bends(x, theta, y, w, ends)], axis=1
        )
        C = 2 * _matrix_norm(cross)
        y_error = 2 * _matrix_norm(through) * lower
        x_error = y_error + 2 * _matrix_norm(inverse @ cross) * linear
        # nothing can be certified with a least eigenvalue that is lost in rounding, or by matrices that are not g's
        y_error = np.nan if np.isnan(mu_g) or not solved.matrices_agree() else y_error
    else:
        cross_norm, bend_norm = kernels.norms(x, theta, y, w, ends, passes)
        factor = max(2.0, shortfall(theta.size, passes or power_passes(theta.size)))
        C, J, delta = factor * cross_norm, factor * bend_norm, lower / mu_g
        y_error = J * delta
        x_error = J * delta + C / mu_g * (J * delta + linear)
    x_error += rounding * (norm(upper.f_x) + C * norm(w))
    return x_error, y_error + rounding * norm(upper.f_y)


def can_have_matrices(solved: Implicit) -> bool:
    return solved.theta.size <= DENSE_LIMIT


def _through(J: Vector, inverse: Vector, cross: Vector, x_size: int) -> Vector:
    """From g_theta to the errors of Gx and Gy; rows are images of unit vectors."""
    moved = inverse @ J
    size = len(inverse)
    G, r, f_y = moved[:, :x_size], moved[:, x_size : x_size + size], moved[:, x_size + size :]
    return np.concatenate([G + (r @ inverse) @ cross, f_y], axis=1)


def _matrix_norm(rows: Vector) -> float:
    square = rows @ rows.T if rows.shape[0] <= rows.shape[1] else rows.T @ rows
    if not np.all(np.isfinite(square)):
        return np.nan
    return max(float(np.linalg.eigvalsh(square)[-1]), 0.0) ** 0.5


def worst_value(
    kernels: Kernels, y_set: FlatSet, x: Vector, theta: Vector, y: Vector, here: Upper, accuracy: float = 0.0
) -> tuple[float, float]:
    """max over Y of f(x, theta, .) - h, and an upper bound on what the number given still lacks; here: f at y.

    Accelerated projected (proximal) ascent with a curvature search and restarts, all decided by gradients of f, and
    stopped by y_set.best_response: the Frank-Wolfe gap, or max_s <f_y, s - y> + h(y) - h(s), which bounds the rest
    for concave f, at the accuracy or at rounding. For f linear in y the first best response is the answer.
    """

    def upper(y: Vector) -> Upper:
        return kernels.upper(x, theta, y)

    def value(y: Vector, at: Upper) -> float:
        return at.value - y_set.penalty(y)

    nearest = y_set.project(y)
    start = here if norm(nearest - y) == 0 else upper(nearest)
    rest, vertex = y_set.best_response(nearest, start.f_y)
    own = value(nearest, start)
    threshold = max(accuracy, 50 * kernels.eps * (1 + abs(own)))
    best, at = nearest, start
    if rest > threshold:  # for f linear in y the vertex is the maximiser, and no ascent is needed
        there = upper(vertex)
        rest_there, _ = y_set.best_response(vertex, there.f_y)
        if rest_there < rest:
            best, at, rest = vertex, there, rest_there
    previous, momentum, curvature = best, 1.0, 1.0
    for _ in range(ASCENT_STEPS):
        if not rest > threshold:
            break
        next_momentum = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
        ahead = y_set.project(best + (momentum - 1) / next_momentum * (best - previous))
        g = upper(ahead).f_y
        curvature *= 0.35  # the search below doubles it: a step may try a third less than the last one needed
        while True:
            curvature *= 2
            moved = y_set.prox(ahead + g / curvature, 1 / curvature)
            step, at = moved - ahead, upper(moved)
            if float((g - at.f_y) @ step) <= curvature * float(step @ step) or not curvature < 1e30:
                break
        # momentum that carries y past the maximum is dropped: a restart keeps the rate of strongly concave f
        overshot = float((ahead - moved) @ (moved - best)) > 0
        best, previous, momentum = moved, best, 1.0 if overshot else next_momentum
        rest, _ = y_set.best_response(best, at.f_y)
    # the point's own y may be higher still if f is not concave
    return float(np.maximum(value(best, at), own)), rest


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
    small = sizes <= NOTHING**0.5
    if not np.any(small):
        return ()
    # the other x differs in the parts without a gradient only: what holds those in place stays
    amidst_x, amidst_y = _amidst(kernels.x_set, x), _amidst(kernels.y_set, y)
    other = x.copy()
    for (_, place), is_small in zip(parts, small, strict=True):
        if is_small:
            other[place] = amidst_x[place]
    elsewhere = norms(Implicit(kernels, other, theta, y).Gx)
    usual = norms(Implicit(kernels, amidst_x, theta, amidst_y).Gx)
    free = (usual > 0) & (sizes <= NOTHING * usual) & (elsewhere <= NOTHING * usual)
    return tuple(name or "x" for (name, _), is_free in zip(parts, free, strict=True) if is_free)


def _amidst(a_set: FlatSet, v: Vector) -> Vector:
    """The mean of points of the set that lie far apart: on no side of it."""
    noise = np.random.default_rng(0).normal(size=(SPREAD, v.size)).astype(v.dtype)
    if "project" in a_set.capabilities:
        reach = 1e3 * (1 + a_set.diameter())
        return np.mean([a_set.project(v + reach * direction) for direction in noise], axis=0)
    return np.mean([a_set.lmo(direction) for direction in noise], axis=0)
