"""Every derivative of the problem: by hand where the problem supplies it, one automatic pass otherwise."""

import jax
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.problem import Problem


def upper_value(problem: Problem, x: PyTree, theta: PyTree, y: PyTree) -> Array:
    return problem.upper(x, theta, y, problem.data)


def upper_gradients(problem: Problem, x: PyTree, theta: PyTree, y: PyTree) -> tuple[PyTree, PyTree, PyTree]:
    """(f_x, f_theta, f_y), what is not supplied by hand from one backward pass."""
    supplied = (problem.derivatives.f_x, problem.derivatives.f_theta, problem.derivatives.f_y)
    point = (x, theta, y)
    automatic = tuple(i for i in range(3) if supplied[i] is None)
    gradients = list(point)
    if automatic:
        for i, gradient in zip(automatic, jax.grad(problem.upper, automatic)(*point, problem.data), strict=True):
            gradients[i] = gradient
    for i, by_hand in enumerate(supplied):
        # an absent variable (None) has no gradient, whatever was supplied
        if by_hand is not None and point[i] is not None:
            gradients[i] = by_hand(*point, problem.data)
    return gradients[0], gradients[1], gradients[2]


def lower_gradient(problem: Problem, x: PyTree, theta: PyTree) -> PyTree:
    """g_theta(x, theta); the empty tree without a lower level."""
    if problem.lower is None:
        return None
    if problem.derivatives.g_theta is not None:
        return problem.derivatives.g_theta(x, theta, problem.data)
    return jax.grad(problem.lower, 1)(x, theta, problem.data)


def lower_x_gradient(problem: Problem, x: PyTree, theta: PyTree) -> PyTree:
    """g_x(x, theta), which only the first-order penalty methods need; 0 without a lower level."""
    if problem.lower is None:
        return trees.zeros_like(x)
    return jax.grad(problem.lower)(x, theta, problem.data)


def hessian_product(problem: Problem, x: PyTree, theta: PyTree, w: PyTree) -> PyTree:
    """g_theta_theta(x, theta) w, forward over reverse: one tangent through the gradient."""
    if problem.lower is None:
        return None
    if problem.derivatives.g_theta_theta is not None:
        return problem.derivatives.g_theta_theta(x, theta, w, problem.data)
    return jax.jvp(lambda t: lower_gradient(problem, x, t), (theta,), (w,))[1]


def cross_product(problem: Problem, x: PyTree, theta: PyTree, w: PyTree) -> PyTree:
    """g_theta_x(x, theta) w = d/dx <g_theta(x, theta), w>, in the shape of x.

    Forward over reverse: the tangent of g_x along w, since second derivatives commute.
    """
    if problem.lower is None:
        return trees.zeros_like(x)
    if problem.derivatives.g_theta_x is not None:
        return problem.derivatives.g_theta_x(x, theta, w, problem.data)
    g_x = jax.grad(problem.lower)
    return jax.jvp(lambda t: g_x(x, t, problem.data), (theta,), (w,))[1]
