"""What Adaptive solves at every x: the lower level, the regularised maximum over y, the linear system; all warm."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.dense_inverse import Inverse
from bisaddle.methods.recall import Recall
from bisaddle.problem import Problem
from bisaddle.structure import quadratic_lower
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
    """The inner variables at some x, with g_theta and (f_x, f_theta, f_y) there; the next solve starts from them.

    L_y: the curvature of f in y met last; mu_g: the least curvature of g known of.
    """

    theta: PyTree
    y: PyTree
    w: PyTree
    g_theta: PyTree
    gradients: tuple[PyTree, PyTree, PyTree]
    L_y: Array
    mu_g: Array


class Memory(NamedTuple):
    """What earlier evaluations are good for: places to begin from, and a preconditioner; None where there is no use."""

    recall: Recall | None
    inverse: Inverse | None


class Evaluation(NamedTuple):
    """f_mu(x) = max_y f(x, theta*(x), y) - h(y) - mu/2 |y - y0|^2 and its gradient Gx, up to the accuracy asked for."""

    inner: Inner
    memory: Memory
    value: Array
    Gx: PyTree
    cost: Cost


def evaluate(
    problem: Problem,
    x: PyTree,
    warm: Inner,
    memory: Memory,
    stays: Array,
    y0: PyTree,
    mu: Array,
    accuracy: Array,
    c_low: Array,
    cost: Cost,
) -> Evaluation:
    """theta, y and w to residuals in proportion to the accuracy, then value and gradient.

    |g_theta|, |g_theta_theta w - f_theta| <= c_low accuracy min(1, mu_g),     y residual <= c_low accuracy / 10
    value = f - <w, g_theta> - h(y) - mu/2 |y - y0|^2:    the correction makes its error quadratic in that of theta
    stays: x is where warm was found, and what is known there is not asked for again; elsewhere the memory says where
    to begin.
    """
    recall, inverse = memory
    floor = 50 * jnp.finfo(trees.dtype_of(x)).eps
    tight = jnp.maximum(c_low * accuracy * jnp.minimum(1, warm.mu_g), floor)
    theta, g_theta, least, f_known = warm.theta, None, jnp.full_like(tight, jnp.inf), stays
    if problem.lower is not None:
        if recall is not None:
            theta = where(stays, theta, recall.theta_at(x, theta))
        begin = theta
        g_theta = lax.cond(stays, lambda: warm.g_theta, lambda: oracle.lower_gradient(problem, x, begin))
        cost = cost.plus(gradients=~stays)
        if inverse is not None:
            inverse, products = inverse.renewed(problem, x, theta)
            cost = cost.plus(hvps=products)
        theta, g_theta, products, least, cost = solve_lower(problem, x, theta, g_theta, tight, cost, inverse)
        inverse = None if inverse is None else inverse.after(products)
        f_known = stays & (products == 0)
    gradients = lax.cond(f_known, lambda: warm.gradients, lambda: oracle.upper_gradients(problem, x, theta, warm.y))
    cost = cost.plus(gradients=~f_known)
    y_target = jnp.maximum(0.1 * c_low * accuracy, floor)
    y, gradients, L_y, cost = ascend(problem, x, theta, warm.y, gradients, y0, mu, y_target, warm.L_y, cost)
    f_x, f_theta, _ = gradients
    w, Gx, value = None, f_x, oracle.upper_value(problem, x, theta, y)
    if problem.lower is not None:

        def product(v):
            return oracle.hessian_product(problem, x, theta, v)

        w = warm.w if recall is None else recall.w_at(x, y, warm.w)
        w, _, products, ritz = conjugate_gradients(product, w, trees.subtract(f_theta, product(w)), tight, inverse)
        inverse = None if inverse is None else inverse.after(products)
        least = jnp.minimum(least, ritz)
        Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
        value = value - trees.dot(w, g_theta)
        cost = cost.plus(hvps=products + 1, cross_products=1)
    if problem.y_set is not None:
        distance = trees.norm(trees.subtract(y, y0))
        value = value - problem.y_set.penalty(y) - 0.5 * mu * distance**2
    inner = Inner(theta, y, w, g_theta, gradients, L_y, jnp.minimum(warm.mu_g, least))
    if recall is not None:
        finite = jnp.isfinite(value) & trees.all_finite(Gx)
        recall = where(finite, recall.with_place(x, y, theta, w), recall)
    return Evaluation(inner, Memory(recall, inverse), value, Gx, cost)


def solve_lower(
    problem: Problem,
    x: PyTree,
    theta: PyTree,
    g: PyTree,
    target: Array,
    cost: Cost,
    inverse: Inverse | None = None,
) -> tuple[PyTree, PyTree, Array, Array, Cost]:
    """(theta, g_theta, products, least curvature met): conjugate gradients until |g_theta| <= target, g at first.

    Where g is not surely quadratic in theta, inside Newton's method: a step is halved until it shortens the gradient by
    a tenth of itself; none that does is the rounding floor.
    """

    def step(theta, g, target):
        product = lambda v: oracle.hessian_product(problem, x, theta, v)
        return conjugate_gradients(product, trees.zeros_like(theta), trees.scale(-1.0, g), target, inverse)

    if quadratic_lower(problem, x, theta):  # what is left of the system is the gradient
        direction, residual, products, least = step(theta, g, target)
        theta = trees.add_scaled(theta, 1.0, direction)
        return theta, trees.scale(-1.0, residual), products, least, cost.plus(hvps=products)

    def newton(carry):
        theta, g, length, all_products, least, cost, _, count = carry
        direction, _, products, ritz = step(theta, g, jnp.maximum(0.5 * target, 1e-3 * length))

        def trial(carry):
            step, _, _, _, tried = carry
            candidate = trees.add_scaled(theta, 0.5 * step, direction)
            candidate_g = oracle.lower_gradient(problem, x, candidate)
            return 0.5 * step, candidate, candidate_g, trees.norm(candidate_g), tried + 1

        untried = (jnp.full_like(length, 2), theta, g, jnp.full_like(length, jnp.inf), jnp.zeros((), jnp.int32))
        _, candidate, candidate_g, new_length, tried = lax.while_loop(
            lambda t: ~(t[3] <= (1 - 0.1 * t[0]) * length) & (t[0] > 1e-6), trial, untried
        )
        better = new_length < length
        theta, g = where(better, (candidate, candidate_g), (theta, g))
        length, cost = jnp.where(better, new_length, length), cost.plus(gradients=tried, hvps=products)
        return theta, g, length, all_products + products, jnp.minimum(least, ritz), cost, better, count + 1

    none = jnp.zeros((), jnp.int32)
    carry = (theta, g, trees.norm(g), none, jnp.full_like(target, jnp.inf), cost, jnp.asarray(True), none)
    theta, g, _, products, least, cost, _, _ = lax.while_loop(
        lambda c: (c[2] > target) & c[6] & (c[7] < NEWTON_STEPS), newton, carry
    )
    return theta, g, products, least, cost


def conjugate_gradients(
    product: Callable[[PyTree], PyTree],
    start: PyTree,
    residual: PyTree,
    target: Array,
    inverse: Inverse | None = None,
) -> tuple[PyTree, PyTree, Array, Array]:
    """(solution, residual, products, least curvature met), from a start with that residual until it is <= target."""
    limit = 10 * trees.size(start)
    preconditioned = (lambda r: r) if inverse is None else inverse.times

    def unfinished(carry):
        _, r, _, _, _, count, sound = carry
        return (trees.norm(r) > target) & (count < limit) & sound

    def one(carry):
        w, r, p, square, least, count, _ = carry
        Hp = product(p)
        curvature = trees.dot(p, Hp)
        sound = curvature > 0  # or g is not convex here, or nothing is left but rounding
        length = jnp.where(sound, square / jnp.where(sound, curvature, 1), 0)
        w, r = trees.add_scaled(w, length, p), trees.add_scaled(r, -length, Hp)
        z = preconditioned(r)
        new = trees.dot(r, z)
        least = jnp.minimum(least, jnp.where(sound, curvature / trees.dot(p, p), jnp.inf))
        return w, r, trees.add_scaled(z, new / square, p), new, least, count + 1, sound

    z = preconditioned(residual)
    square = trees.dot(residual, z)
    start_carry = (start, residual, z, square, jnp.full_like(square, jnp.inf), jnp.zeros((), jnp.int32))
    w, r, _, _, least, count, _ = lax.while_loop(unfinished, one, (*start_carry, jnp.asarray(True)))
    return w, r, count, least


def ascend(
    problem: Problem,
    x: PyTree,
    theta: PyTree,
    y: PyTree,
    gradients: tuple[PyTree, PyTree, PyTree],
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
        return y, gradients, L_y, cost

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

    new, residual = moved(y, gradients[2], L_y + mu)
    carry = (y, gradients, new, residual, L_y + mu, L_y, jnp.zeros((), jnp.int32))
    y, gradients, _, _, _, L_y, count = lax.while_loop(lambda c: (c[3] > target) & (c[6] < ASCENT_STEPS), one, carry)
    return y, gradients, L_y, cost.plus(gradients=count, projections=count + 1)


def where(condition: Array, new: PyTree, old: PyTree) -> PyTree:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)
