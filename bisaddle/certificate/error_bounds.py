"""How far the gradients of a certificate can be from the exact ones, because its two solves left residuals."""

import numpy as np

from bisaddle.oracle.implicit import DENSE_LIMIT, Implicit, norm
from bisaddle.oracle.kernels import Vector, power_passes, shortfall


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
        # a Hessian whose least eigenvalue is lost in rounding cannot be certified, whatever the norms say
        y_error = np.nan if np.isnan(mu_g) else y_error
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
