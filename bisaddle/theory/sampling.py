"""Points of a set, and of the problem, to try a property on."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.lower import solve_lower
from bisaddle.problem import Point, Problem
from bisaddle.sets.base import ConvexSet


def sample_set(convex_set: ConvexSet, key: Array, like: PyTree) -> PyTree:
    """One point of the set: an extreme point half of the time, else a random mixture of three of them.

    Lipschitz constants are often reached at extreme points, and random interior points of a large set are all alike.
    """
    keys = jax.random.split(key, 5)
    corners = [_corner(convex_set, k, like) for k in keys[:3]]
    weights = jax.random.dirichlet(keys[3], jnp.ones(3))
    weights = jnp.where(jax.random.uniform(keys[4]) < 0.5, jnp.array([1.0, 0.0, 0.0]), weights)
    mixed = trees.scale(weights[0], corners[0])
    for weight, corner in zip(weights[1:], corners[1:], strict=True):
        mixed = trees.add_scaled(mixed, weight, corner)
    return mixed


def _corner(convex_set: ConvexSet, key: Array, like: PyTree) -> PyTree:
    direction = trees.random_like(key, like)
    if "lmo" in convex_set.capabilities:
        return convex_set.lmo(direction)
    return convex_set.project(trees.scale(10 * convex_set.diameter(like), direction))


def sample_point(problem: Problem, key: Array, point: Point) -> Point:
    """x in X, y in Y, and theta between theta*(x) and the given theta, where a run that starts there would be."""
    x_key, y_key, theta_key = jax.random.split(key, 3)
    x = sample_set(problem.x_set, x_key, point.x)
    y = None if problem.y_set is None else sample_set(problem.y_set, y_key, point.y)
    if problem.lower is None:
        return Point(x, None, y)
    solved, residual = solve_lower(problem, x, point.theta, 1e-8)
    # a lower level without a minimiser leaves the given theta
    solved = jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(residual), a, b), solved, point.theta)
    return Point(x, trees.mix(jax.random.uniform(theta_key), point.theta, solved), y)


@partial(jax.jit, static_argnames="count")
def sampled(problem: Problem, key: Array, point: Point, count: int) -> Point:
    """`count` points stacked along a first axis, the given one first."""
    keys = jax.random.split(key, max(count - 1, 1))
    others = jax.lax.map(lambda k: sample_point(problem, k, point), keys)
    return jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest])[:count], point, others)
