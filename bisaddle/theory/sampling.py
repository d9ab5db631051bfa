"""Points of a set, and of the problem, to try a property on."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.problem import Constants, Point, Problem
from bisaddle.programs import on_device
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


@dataclasses.dataclass(frozen=True)
class Samples:
    """Points to try a property on: points, stacked along a first axis; places, the same as flat (x, theta, y).

    slopes: |f_theta(x, theta*(x), y)| at each of them, none without a lower level. kernels: the programs for them.
    """

    points: Point
    places: list[tuple[Vector, Vector, Vector]]
    slopes: list[float]
    kernels: Kernels

    def point(self, i: int) -> Point:
        return pick(self.points, i)


def pick(stacked: PyTree, i: int) -> PyTree:
    """Entry i of a tree whose leaves are stacked along a first axis."""
    return jax.tree.map(lambda leaf: leaf[i], stacked)


def bare(problem: Problem) -> Problem:
    """The problem without its constants, so that what is compiled for it does not depend on which of them are known."""
    return dataclasses.replace(problem, constants=Constants())


def diameters(problem: Problem, point: Point) -> dict[str, float]:
    """D_X, and D_Y with a max player."""
    found = {"D_X": float(problem.x_set.diameter(point.x))}
    return found if problem.y_set is None else found | {"D_Y": float(problem.y_set.diameter(point.y))}


def sampled(problem: Problem, key: Array, point: Point, count: int) -> Samples:
    """The given point and count - 1 others: x in X, y in Y, theta between theta*(x) and the given one.

    That is where a run from the given theta would be. A lower level without a minimiser leaves theta as given.
    """
    kernels = Kernels(problem, point)
    first = kernels.flat(point)
    xs, ys, weights = jax.device_get(_drawn(problem, key, point, count))
    places, slopes = [], []
    for i in range(count):
        x, y = (first[0], first[2]) if i == 0 else (kernels.x.ravel(pick(xs, i)), kernels.y.ravel(pick(ys, i)))
        theta = first[1]
        if kernels.has_lower:
            with np.errstate(all="ignore"):  # values that are not finite are for check_assumptions to find
                solved = Implicit(kernels, x, theta, y, 1e-8)
            slopes.append(norm(solved.upper.f_theta))
            weight = 1.0 if i == 0 else float(weights[i])
            theta = weight * theta + (1 - weight) * solved.theta
        places.append((x, theta, y))
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(kernels.point(*place) for place in places))
    return Samples(on_device(stacked), places, slopes, kernels)


@partial(jax.jit, static_argnames="count")
def _drawn(problem: Problem, key: Array, point: Point, count: int) -> tuple[PyTree, PyTree, Array]:
    """Of each sample x, y, and how far theta lies towards the given one."""

    def one(key):
        x_key, y_key, theta_key = jax.random.split(key, 3)
        x = sample_set(problem.x_set, x_key, point.x)
        y = None if problem.y_set is None else sample_set(problem.y_set, y_key, point.y)
        return x, y, jax.random.uniform(theta_key)

    return jax.lax.map(one, jax.random.split(key, count))
