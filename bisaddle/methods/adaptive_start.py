"""Where Adaptive begins: a rough look at the start, and the first weight of the proximal term in y."""

import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.coordinates import farthest
from bisaddle.methods.inner_solves import Cost, Inner, conjugate_gradients, solve_lower
from bisaddle.problem import Point, Problem


def first_look(problem: Problem, start: Point, mu_g: Array, cost: Cost) -> tuple[Inner, PyTree, PyTree, Cost]:
    """theta and w at the start, roughly, and the gradients there."""
    x, y = start.x, start.y
    rough = 1e-2 * jnp.minimum(1, mu_g)
    theta, _, _, cost = solve_lower(problem, x, start.theta, rough, cost)
    f_x, f_theta, f_y = oracle.upper_gradients(problem, x, theta, y)
    cost, w, Gx = cost.plus(gradients=1), None, f_x
    if problem.lower is not None:
        product = lambda v: oracle.hessian_product(problem, x, theta, v)
        w, _, products, _ = conjugate_gradients(product, trees.zeros_like(theta), f_theta, rough)
        Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
        cost = cost.plus(hvps=products, cross_products=1)
    return Inner(theta, y, w, jnp.zeros_like(mu_g), mu_g), Gx, f_y, cost


def first_weight(
    problem: Problem, start: Point, theta: PyTree, Gx: PyTree, f_y: PyTree, mu_g: Array, cost: Cost
) -> tuple[Array, Cost]:
    """The weight at which the gradient in y just reaches across Y, here and a tenth of the way to the border of X.

    The second look is for an f_y that happens to favour nobody at the start.
    """
    y, y_set = start.y, problem.y_set
    assert y_set is not None

    def spread(f_y):
        far = 1e6 / jnp.maximum(trees.norm(f_y), 1e-30)
        across = trees.subtract(
            y_set.project(trees.add_scaled(y, far, f_y)), y_set.project(trees.add_scaled(y, -far, f_y))
        )
        square = trees.dot(across, across)
        return jnp.where(square > 0, trees.dot(f_y, across) / jnp.where(square > 0, square, 1), 0)

    if "project" in problem.x_set.capabilities:
        far = 1e6 / jnp.maximum(trees.norm(Gx), 1e-30)
        border = problem.x_set.project(trees.add_scaled(start.x, -far, Gx))
    else:
        border = farthest(problem.x_set, start.x, Gx)
    probe = trees.mix(0.1, border, start.x)
    if problem.lower is not None:
        away = trees.norm(oracle.lower_gradient(problem, probe, theta))
        target = jnp.maximum(1e-2 * jnp.minimum(1, mu_g), 0.1 * away)
        theta, _, _, cost = solve_lower(problem, probe, theta, target, cost.plus(gradients=1))
    there = oracle.upper_gradients(problem, probe, theta, y)[2]
    mu = jnp.maximum(jnp.maximum(spread(f_y), spread(there)), 1e-8)
    return mu, cost.plus(gradients=1, projections=5)
