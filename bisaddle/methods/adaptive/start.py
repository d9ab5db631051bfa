"""Where Adaptive begins: a rough look at the start, and the first weight of the proximal term in y."""

import numpy as np

from bisaddle.methods.adaptive.coordinates import farthest
from bisaddle.methods.adaptive.inner import Inner, Solver, norm
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.oracle.spectra import extreme_eigenvalues
from bisaddle.problem import Problem
from bisaddle.sets.flat import FlatSet

PRODUCTS = 32  # spent on an estimate of mu_g


def least_curvature(problem: Problem, kernels: Kernels, solver: Solver, x: Vector, theta: Vector) -> float:
    """mu_g as given, or the least eigenvalue of the Hessian at the start, by Lanczos; infinite with no lower level."""
    if not kernels.has_lower:
        return np.inf
    known = problem.constants.mu_g
    if known is not None:
        return max(float(known), kernels.eps)
    solver.cost.hvps += PRODUCTS
    least, _ = extreme_eigenvalues(lambda v: kernels.hessian_product(x, theta, v), theta.size, kernels.dtype, PRODUCTS)
    if not least > 0:
        raise ValueError(
            f"the lower function must be strongly convex in theta, given a Hessian with eigenvalue {least:.3g} at the "
            "start; add a ridge term to it, or use a method with step sizes of its own"
        )
    return max(least, kernels.eps)


def first_look(solver: Solver, x: Vector, theta: Vector, y: Vector, mu_g: float) -> tuple[Inner, Vector]:
    """theta and w at the start, roughly, and the gradient in x there."""
    kernels, cost = solver.kernels, solver.cost
    rough = 1e-2 * min(1.0, mu_g)
    w = g_theta = theta
    if kernels.has_lower:
        theta, g_theta, products, _ = solver.solve_lower(x, theta, rough)
        solver.inverse.after(products)
    upper = kernels.upper(x, theta, y)
    cost.gradients += 1
    Gx = upper.f_x
    if kernels.has_lower:
        solved = kernels.solve(x, theta, upper.f_theta, rough, inverse=solver.inverse.matrices, cross=True)
        w = solved.w
        Gx = Gx - solved.cross
        cost.hvps += solved.products
        cost.cross_products += 1
        solver.inverse.after(solved.products)
    return Inner(theta, y, w, g_theta, upper, 0.0, mu_g), Gx


def first_weight(solver: Solver, x_set: FlatSet, x: Vector, inner: Inner, Gx: Vector) -> float:
    """The weight at which the gradient in y just reaches across Y, here and a tenth of the way to the border of X.

    The second look is for an f_y that happens to favour nobody at the start.
    """
    kernels, cost, y_set = solver.kernels, solver.cost, solver.y_set
    y = inner.y
    assert y_set is not None

    def spread(f_y: Vector) -> float:
        far = 1e6 / max(norm(f_y), 1e-30)
        across = y_set.project(y + far * f_y) - y_set.project(y - far * f_y)
        square = float(across @ across)
        return float(f_y @ across) / square if square > 0 else 0.0

    if "project" in x_set.capabilities:
        border = x_set.project(x - 1e6 / max(norm(Gx), 1e-30) * Gx)
    else:
        border = farthest(x_set, x, Gx)
    probe = 0.1 * border + 0.9 * x
    theta = inner.theta
    if kernels.has_lower:
        g_theta = kernels.lower_gradient(probe, theta)
        cost.gradients += 1
        target = max(1e-2 * min(1.0, inner.mu_g), 0.1 * norm(g_theta))
        theta, *_ = solver.solve_lower(probe, theta, target, g_theta)
    there = kernels.upper(probe, theta, y).f_y
    cost.gradients += 1
    cost.projections += 5
    return max(spread(inner.upper.f_y), spread(there), 1e-8)
