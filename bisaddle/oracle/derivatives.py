"""Every derivative of the problem: by hand where the problem supplies it, one automatic pass otherwise."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.problem import Functions, Problem
from bisaddle.programs import outside

# all that the derivatives are taken of
Differentiable = Problem | Functions
# functions of which it is known what they took from outside when they were last traced
MOST_KNOWN = 256
_LATEST: dict[Any, int] = {}


def _call(function: Callable, *arguments: PyTree) -> Any:
    """function(*arguments): the user's code is run once for each set of shapes, in however many programs it ends up."""
    return function(*arguments)


call: Any = jax.jit(_call)


def taken(problem: Problem) -> int:
    """What f and g take from outside their arguments, as one number. Traces of what has changed are dropped."""
    functions = problem.upper, problem.lower, *vars(problem.derivatives).values()
    number, form = outside(*functions), jax.tree.structure(functions)
    if _LATEST.get(form, number) != number or len(_LATEST) >= MOST_KNOWN:
        call.clear_cache()
        _LATEST.clear()
    _LATEST[form] = number
    return number


def upper_value(problem: Differentiable, x: PyTree, theta: PyTree, y: PyTree) -> Array:
    return call(problem.upper, x, theta, y, problem.data)


def _upper(problem: Differentiable) -> Callable:
    return lambda x, theta, y: upper_value(problem, x, theta, y)


def _lower(problem: Differentiable) -> Callable:
    return lambda x, theta: call(problem.lower, x, theta, problem.data)


def upper_gradients(problem: Differentiable, x: PyTree, theta: PyTree, y: PyTree) -> tuple[PyTree, PyTree, PyTree]:
    """(f_x, f_theta, f_y), what is not supplied by hand from one backward pass."""
    supplied = (problem.derivatives.f_x, problem.derivatives.f_theta, problem.derivatives.f_y)
    point = (x, theta, y)
    automatic = tuple(i for i in range(3) if supplied[i] is None)
    gradients = list(point)
    if automatic:
        for i, gradient in zip(automatic, jax.grad(_upper(problem), automatic)(*point), strict=True):
            gradients[i] = gradient
    for i, by_hand in enumerate(supplied):
        # an absent variable (None) has no gradient, whatever was supplied
        if by_hand is not None and point[i] is not None:
            gradients[i] = call(by_hand, *point, problem.data)
    return gradients[0], gradients[1], gradients[2]


def upper_value_and_gradients(
    problem: Differentiable, x: PyTree, theta: PyTree, y: PyTree
) -> tuple[Array, tuple[PyTree, PyTree, PyTree]]:
    """f and (f_x, f_theta, f_y), in one pass where nothing is written by hand."""
    by_hand = problem.derivatives
    if by_hand.f_x is by_hand.f_theta is by_hand.f_y is None:
        return jax.value_and_grad(_upper(problem), (0, 1, 2))(x, theta, y)
    return upper_value(problem, x, theta, y), upper_gradients(problem, x, theta, y)


def lower_gradient(problem: Differentiable, x: PyTree, theta: PyTree) -> PyTree:
    """g_theta(x, theta); the empty tree without a lower level."""
    if problem.lower is None:
        return None
    if problem.derivatives.g_theta is not None:
        return call(problem.derivatives.g_theta, x, theta, problem.data)
    return jax.grad(_lower(problem), 1)(x, theta)


def lower_gradient_in_domain(problem: Differentiable, x: PyTree, theta: PyTree) -> PyTree:
    """g_theta(x, theta), NaN where g is no number: outside of its domain a logarithm still has a gradient.

    A gradient written by hand is taken at its word.
    """
    if problem.lower is None or problem.derivatives.g_theta is not None:
        return lower_gradient(problem, x, theta)
    return lower_value_and_gradient(problem, x, theta)[1]


def lower_value_and_gradient(problem: Differentiable, x: PyTree, theta: PyTree) -> tuple[Array, PyTree]:
    """g and g_theta, as lower_gradient_in_domain has it, in one pass where it is not written by hand."""
    if problem.derivatives.g_theta is not None:
        return _lower(problem)(x, theta), lower_gradient(problem, x, theta)
    value, gradient = jax.value_and_grad(_lower(problem), 1)(x, theta)
    return value, jax.tree.map(lambda leaf: jnp.where(jnp.isfinite(value), leaf, jnp.nan), gradient)


def lower_x_gradient(problem: Differentiable, x: PyTree, theta: PyTree) -> PyTree:
    """g_x(x, theta), which only the first-order penalty methods need; 0 without a lower level."""
    if problem.lower is None:
        return trees.zeros_like(x)
    return jax.grad(_lower(problem))(x, theta)


def hessian_product(problem: Differentiable, x: PyTree, theta: PyTree, w: PyTree) -> PyTree:
    """g_theta_theta(x, theta) w, forward over reverse: one tangent through the gradient."""
    if problem.lower is None:
        return None
    if problem.derivatives.g_theta_theta is not None:
        return call(problem.derivatives.g_theta_theta, x, theta, w, problem.data)
    return jax.jvp(lambda t: lower_gradient(problem, x, t), (theta,), (w,))[1]


def cross_product(problem: Differentiable, x: PyTree, theta: PyTree, w: PyTree) -> PyTree:
    """g_theta_x(x, theta) w = d/dx <g_theta(x, theta), w>, in the shape of x.

    Forward over reverse: the tangent of g_x along w, since second derivatives commute.
    """
    if problem.lower is None:
        return trees.zeros_like(x)
    if problem.derivatives.g_theta_x is not None:
        return call(problem.derivatives.g_theta_x, x, theta, w, problem.data)
    g_x = jax.grad(_lower(problem))
    return jax.jvp(lambda t: g_x(x, t), (theta,), (w,))[1]


def second_order_products(problem: Differentiable, x: PyTree, theta: PyTree, w: PyTree) -> tuple[PyTree, PyTree]:
    """(g_theta_x w, g_theta_theta w), in one pass where neither is written by hand."""
    by_hand = problem.derivatives
    if by_hand.g_theta is by_hand.g_theta_theta is by_hand.g_theta_x is None:
        gradient = jax.grad(_lower(problem), (0, 1))
        return jax.jvp(lambda t: gradient(x, t), (theta,), (w,))[1]
    return cross_product(problem, x, theta, w), hessian_product(problem, x, theta, w)
