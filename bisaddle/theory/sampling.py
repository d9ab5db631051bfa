"""Points of a set, and of the problem, to try a property on."""

import dataclasses
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.oracle.traced import solve_lower
from bisaddle.problem import Constants, Point, Problem
from bisaddle.sets.base import ConvexSet


def sample_set(convex_set: ConvexSet, key: Array, like: PyTree) -> PyTree:
    """One point of the set: an extreme point half of the time, else a random mixture of three of them.

    Lipschitz constants are often reached at extreme points, and random interior points of a large set are all alike.
    """
    keys = jax.random.split(key, 5)
    corners = [_corner(convex_set, k, like) for k in keys[:3]]
    weights = jax.random.exponential(keys[3], (3,))  # uniform on the simplex when divided by their sum
    weights = weights / jnp.sum(weights)
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


class Samples(NamedTuple):
    """Points stacked along a first axis, and theta*(x) at each of them (None without a lower level)."""

    points: Point
    solved: PyTree


def bare(problem: Problem) -> Problem:
    """The problem without its constants, so that what is compiled for it does not depend on which of them are known."""
    return dataclasses.replace(problem, constants=Constants())


@partial(jax.jit, static_argnames="count")
def sampled(problem: Problem, key: Array, point: Point, count: int) -> Samples:
    """The given point and count - 1 others: x in X, y in Y, theta between theta*(x) and the given one.

    That is where a run from the given theta would be. A lower level without a minimiser leaves theta as given.
    """

    def one(arguments):
        i, key = arguments
        x_key, y_key, theta_key = jax.random.split(key, 3)
        given = lambda new, old: jax.tree.map(lambda a, b: jnp.where(i == 0, b, a), new, old)
        x = given(sample_set(problem.x_set, x_key, point.x), point.x)
        y = None if problem.y_set is None else given(sample_set(problem.y_set, y_key, point.y), point.y)
        if problem.lower is None:
            return Samples(Point(x, None, y), None)
        solved, residual = solve_lower(problem, x, point.theta, 1e-8)
        solved = jax.tree.map(lambda a, b: jnp.where(jnp.isfinite(residual), a, b), solved, point.theta)
        between = trees.mix(jax.random.uniform(theta_key), point.theta, solved)
        return Samples(Point(x, given(between, point.theta), y), solved)

    return jax.lax.map(one, (jnp.arange(count), jax.random.split(key, count)))
