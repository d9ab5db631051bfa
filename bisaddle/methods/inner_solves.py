"""What Adaptive solves at every x: the lower level, the regularised maximum over y, the linear system; all warm."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.problem import Problem
from bisaddle.trees import Number

NEWTON_STEPS = 50
ASCENT_STEPS = 200


class Cost(NamedTuple):
    """Oracle calls, as arrays: how many there are is decided inside the compiled program."""

    gradients: Array
    hvps: Array
    cross_products: Array
    projections: Array
    lmos: Array

    def plus(
        self,
        gradients: Number = 0,
        hvps: Number = 0,
        cross_products: Number = 0,
        projections: Number = 0,
        lmos: Number = 0,
    ) -> "Cost":
        more = (gradients, hvps, cross_products, projections, lmos)
        return Cost(*(old + jnp.asarray(new, jnp.int32) for old, new in zip(self, more, strict=True)))


class Inner(NamedTuple):
    """The inner variables at some x, from which the next solve starts.

    L_y: the curvature of f in y met last; mu_g: the least curvature of g known of.
    """

    theta: PyTree
    y: PyTree
    w: PyTree
    L_y: Array
    mu_g: Array


class Evaluation(NamedTuple):
    """f_mu(x) = max_y f(x, theta*(x), y) - h(y) - mu/2 |y - y0|^2 and its gradient Gx, up to the accuracy asked for."""

    inner: Inner
    value: Array
    Gx: PyTree
    f_y: PyTree
    cost: Cost


def evaluate(
    problem: Problem, x: PyTree, warm: Inner, y0: PyTree, mu: Array, accuracy: Array, c_low: Array, cost: Cost
) -> Evaluation:
    """theta, y and w to residuals in proportion to the accuracy, then value and gradient.

    |g_theta|, |g_theta_theta w - f_theta| <= c_low accuracy min(1, mu_g),     y residual <= c_low accuracy / 10
    value = f - <w, g_theta> - h(y) - mu/2 |y - y0|^2:    the correction makes its error quadratic in that of theta
    """
    floor = 50 * jnp.finfo(trees.dtype_of(x)).eps
    tight = jnp.maximum(c_low * accuracy * jnp.minimum(1, warm.mu_g), floor)
    theta, g_theta, least, cost = solve_lower(problem, x, warm.theta, tight, cost)
    y, gradients, L_y, cost = ascend(
        problem, x, theta, warm.y, y0, mu, jnp.maximum(0.1 * c_low * accuracy, floor), warm.L_y, cost
    )
    f_x, f_theta, f_y = gradients
    w, Gx, value = None, f_x, oracle.upper_value(problem, x, theta, y)
    if problem.lower is not None:

        def product(v):
            return oracle.hessian_product(problem, x, theta, v)

        residual = trees.subtract(f_theta, product(warm.w))
        w, _, products, ritz = conjugate_gradients(product, warm.w, residual, tight)
        least = jnp.minimum(least, ritz)
        Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
        value = value - trees.dot(w, g_theta)
        cost = cost.plus(hvps=products + 1, cross_products=1)
    if problem.y_set is not None:
        distance = trees.norm(trees.subtract(y, y0))
        value = value - problem.y_set.penalty(y) - 0.5 * mu * distance**2
    return Evaluation(Inner(theta, y, w, L_y, jnp.minimum(warm.mu_g, least)), value, Gx, f_y, cost)


def solve_lower(
    problem: Problem, x: PyTree, theta: PyTree, target: Array, cost: Cost
) -> tuple[PyTree, PyTree, Array, Cost]:
    """(theta, g_theta, least curvature met): Newton's method with conjugate gradients until |g_theta| <= target.

    A step is halved until it shortens the gradient by a tenth of itself; none that does is the rounding floor.
    """
    infinite = jnp.full((), jnp.inf, trees.dtype_of(x))
    if problem.lower is None:
        return theta, None, infinite, cost

    def gradient(theta):
        return oracle.lower_gradient(problem, x, theta)

    def newton(carry):
        theta, g, length, least, cost, _, count = carry
        direction, _, products, ritz = conjugate_gradients(
            lambda v: oracle.hessian_product(problem, x, theta, v),
            trees.zeros_like(theta),
            trees.scale(-1.0, g),
            jnp.maximum(0.5 * target, 1e-3 * length),
        )

        def trial(carry):
            step, _, _, _, tried = carry
            candidate = trees.add_scaled(theta, 0.5 * step, direction)
            candidate_g = gradient(candidate)
            return 0.5 * step, candidate, candidate_g, trees.norm(candidate_g), tried + 1

        untried = (jnp.full_like(length, 2), theta, g, jnp.full_like(length, jnp.inf), jnp.zeros((), jnp.int32))
        _, candidate, candidate_g, new_length, tried = lax.while_loop(
            lambda t: ~(t[3] <= (1 - 0.1 * t[0]) * length) & (t[0] > 1e-6), trial, untried
        )
        better = new_length < length
        theta, g = where(better, (candidate, candidate_g), (theta, g))
        cost = cost.plus(gradients=tried, hvps=products)
        return theta, g, jnp.where(better, new_length, length), jnp.minimum(least, ritz), cost, better, count + 1

    g = gradient(theta)
    carry = (theta, g, trees.norm(g), infinite, cost.plus(gradients=1), jnp.asarray(True), 0)
    theta, g, _, least, cost, _, _ = lax.while_loop(
        lambda c: (c[2] > target) & c[5] & (c[6] < NEWTON_STEPS), newton, carry
    )
    return theta, g, least, cost


def conjugate_gradients(
    product: Callable[[PyTree], PyTree], start: PyTree, residual: PyTree, target: Array
) -> tuple[PyTree, PyTree, Array, Array]:
    """(solution, residual, products, least curvature met), from a start with that residual until it is <= target."""
    limit = 10 * trees.size(start)
    square = trees.dot(residual, residual)

    def unfinished(carry):
        _, _, _, square, _, count, sound = carry
        return (jnp.sqrt(square) > target) & (count < limit) & sound

    def one(carry):
        w, r, p, square, least, count, _ = carry
        Hp = product(p)
        curvature = trees.dot(p, Hp)
        sound = curvature > 0  # or g is not convex here, or nothing is left but rounding
        length = jnp.where(sound, square / jnp.where(sound, curvature, 1), 0)
        w, r = trees.add_scaled(w, length, p), trees.add_scaled(r, -length, Hp)
        new = trees.dot(r, r)
        least = jnp.minimum(least, jnp.where(sound, curvature / trees.dot(p, p), jnp.inf))
        return w, r, trees.add_scaled(r, new / square, p), new, least, count + 1, sound

    start_carry = (start, residual, residual, square, jnp.full_like(square, jnp.inf), jnp.zeros((), jnp.int32))
    w, r, _, _, least, count, _ = lax.while_loop(unfinished, one, (*start_carry, jnp.asarray(True)))
    return w, r, count, least


def ascend(
    problem: Problem,
    x: PyTree,
    theta: PyTree,
    y: PyTree,
    y0: PyTree,
    mu: Array,
    target: Array,
    L_y: Array,
    cost: Cost,
) -> tuple[PyTree, tuple[PyTree, PyTree, PyTree], Array, Cost]:
    """y = argmax f(x, theta, .) - h - mu/2 |. - y0|^2 by projected gradient steps 1 / L; the gradients of f there; L_y.

    L = L_y + mu, L_y the curvature along the last step; for f linear in y that is 0, and one step is exact. A step
    after which the residual has grown doubles L.
    """
    y_set = problem.y_set
    if y_set is None:
        return y, oracle.upper_gradients(problem, x, theta, y), L_y, cost.plus(gradients=1)

    def moved(y, f_y, L):
        """The next y, and the residual at this one."""
        ascent = trees.add_scaled(f_y, -mu, trees.subtract(y, y0))
        new = y_set.prox(trees.add_scaled(y, 1 / L, ascent), 1 / L)
        return new, L * trees.norm(trees.subtract(new, y))

    def one(carry):
        y, gradients, new, residual, L, L_y, count = carry
        new_gradients = oracle.upper_gradients(problem, x, theta, new)
        step = trees.subtract(new, y)
        bend = trees.dot(trees.subtract(gradients[2], new_gradients[2]), step)
        square = trees.dot(step, step)
        L_y = jnp.maximum(jnp.where(square > 0, bend / jnp.where(square > 0, square, 1), L_y), 0)
        rounding = 1e3 * jnp.finfo(square.dtype).eps * trees.norm(gradients[2]) / jnp.sqrt(jnp.maximum(square, 1e-300))
        L_y = jnp.where(L_y <= rounding, 0, L_y)  # f is linear in y as far as can be seen
        following, left = moved(new, new_gradients[2], L_y + mu)
        worse = left > residual
        L = jnp.where(worse, jnp.maximum(2 * L, L_y + mu), L_y + mu)
        following, left = lax.cond(worse, lambda: moved(new, new_gradients[2], L), lambda: (following, left))
        return new, new_gradients, following, left, L, L_y, count + 1

    gradients = oracle.upper_gradients(problem, x, theta, y)
    new, residual = moved(y, gradients[2], L_y + mu)
    carry = (y, gradients, new, residual, L_y + mu, L_y, jnp.zeros((), jnp.int32))
    y, gradients, _, _, _, L_y, count = lax.while_loop(lambda c: (c[3] > target) & (c[6] < ASCENT_STEPS), one, carry)
    return y, gradients, L_y, cost.plus(gradients=count + 1, projections=count + 1)


def where(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
