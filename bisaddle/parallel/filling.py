"""Functions for data whose tasks were filled up, and lower levels that are solved task by task."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice, product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from bisaddle.devices import held_here, put, replicated, whole
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.separable import Separable, both_ways
from bisaddle.parallel.placing import filled, kind_of, sharded, split_axes, task_count, upwards, with_mask
from bisaddle.problem import Derivatives, Point, Problem
from bisaddle.programs import Program

# ways to fill up x that are tried
MOST_CHOICES = 64


class Filled(eqx.Module):
    """A function of a problem whose data have tasks that were filled up: x, theta and y get zeros for them.

    counts: the number of entries along the first axis of each array of the point as it is, and as the function wants
    it; None for those that stay. answer: of which of the arguments it gives the gradient; None for a number.
    """

    function: Callable
    counts: tuple = eqx.field(static=True)
    answer: int | None = eqx.field(static=True, default=None)

    def __call__(self, *arguments: PyTree) -> PyTree:
        *point, data = arguments
        grown = lambda part, counts: jax.tree.map(_grown, part, _like(part, counts))
        filled = map(grown, point, self.counts)
        found = self.function(*filled, data)
        if self.answer is None:
            return found
        return jax.tree.map(_cut, found, _like(found, self.counts[self.answer]))


def _like(part: PyTree, counts: tuple) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(part), counts)


def _grown(leaf: Any, count: tuple[int, int]) -> Any:
    if count[0] == count[1]:
        return leaf
    return jnp.pad(leaf, [(0, count[1] - count[0])] + [(0, 0)] * (leaf.ndim - 1))


def _cut(leaf: Any, count: tuple[int, int]) -> Any:
    return leaf if count[0] == count[1] else leaf[: count[0]]


def by_tasks(problem: Problem, start: Point, axes: list[int | None], mesh: Mesh, shards: int) -> Problem:
    """Data split by tasks; where they were filled up, functions that fill up x, theta and y."""
    tasks = task_count(problem.data)
    more = upwards(tasks, shards)
    if tasks == more:
        return replace(problem, data=sharded(problem.data, axes, mesh, shards))
    data = with_mask(problem.data)
    if data is not problem.data:  # it counts the tasks, which every device is to know without asking
        data, axes = data._replace(real=filled(data.real, 0, more)), split_axes(data, "tasks")
        axes[jax.tree.leaves(data._replace(real="here"), is_leaf=lambda leaf: leaf == "here").index("here")] = None
    data = sharded(data, axes, mesh, shards)
    grows = lambda leaf: (tasks, more) if np.ndim(leaf) and leaf.shape[0] == tasks else (0, 0)
    x, theta, y = (tuple(map(grows, jax.tree.leaves(part))) for part in (start.x, start.theta, start.y))
    # an x for all tasks may happen to be as long as there are tasks: then f and g do not take it filled up
    choices = product(*(((tasks, more), (0, 0)) if count[0] else ((0, 0),) for count in x))
    made = (_with_filled(problem, data, (choice, theta, y)) for choice in islice(choices, MOST_CHOICES))
    found = next((one for one in made if _fits(one, start)), None)
    if found is None:
        raise ValueError(f"f and g do not take {more} tasks in place of {tasks}; write them for any number of tasks")
    return found


def _with_filled(problem: Problem, data: PyTree, counts: tuple) -> Problem:
    x, theta, y = counts
    # of each function what it takes, and of what it gives the gradient
    takes = {"f_x": (counts, 0), "f_theta": (counts, 1), "f_y": (counts, 2), "g_theta": ((x, theta), 1)}
    takes |= {"g_theta_theta": ((x, theta, theta), 1), "g_theta_x": ((x, theta, theta), 0)}
    by_hand = {name: getattr(problem.derivatives, name) for name in takes}
    made = {name: Filled(function, *takes[name]) for name, function in by_hand.items() if function is not None}
    return replace(
        problem,
        upper=Filled(problem.upper, counts),
        lower=None if problem.lower is None else Filled(problem.lower, (x, theta)),
        data=data,
        derivatives=Derivatives(**made),
    )


def _fits(problem: Problem, start: Point) -> bool:
    """Whether f and g take what they are given."""
    try:
        jax.eval_shape(problem.upper, start.x, start.theta, start.y, problem.data)
        if problem.lower is not None:
            jax.eval_shape(problem.lower, start.x, start.theta, problem.data)
    except Exception:  # whatever a function of the user's raises
        return False
    return True


def check_same(problem: Problem, placed: Problem, start: Point, mesh: Mesh) -> None:
    """ValueError unless f, g and their gradients in theta are, at the start, what they were before the filling up."""
    kind = kind_of(mesh)

    def values(functions: Problem, x: PyTree, theta: PyTree, y: PyTree) -> list:
        found = [jax.value_and_grad(functions.upper, (0, 1, 2))(x, theta, y, functions.data)]
        if functions.lower is not None:
            found.append(jax.grad(functions.lower, 1)(x, theta, functions.data))
        return jax.tree.leaves(found)

    # away from the start, where much is zero
    moved = jax.tree.map(lambda leaf: leaf + 0.01 * jnp.arange(1, leaf.size + 1).reshape(leaf.shape) / leaf.size, start)
    point = jax.tree.map(held_here, (moved.x, moved.theta, moved.y))
    before = jax.jit(values)(problem, *point)
    after = jax.jit(values, out_shardings=replicated(mesh))(
        placed, *jax.tree.map(lambda leaf: put(leaf, replicated(mesh)), point)
    )
    for one, other in zip(before, after, strict=True):
        one, other = whole(one), whole(other)
        if not _near(other, one):
            raise ValueError(
                f"filling up the {kind} has changed f or g: a weight for each of the {kind} is needed in the data, 1 "
                "everywhere, which becomes 0 where it is filled up, and by which f and g multiply and count; or use a "
                f"number of {kind} that {mesh.size} divides"
            )


def apart(problem: Problem, placed: Problem, start: Point, mesh: Mesh, each: bool) -> Problem | None:
    """The placed problem with a lower level of whose tasks each device takes its own; None if they touch each other.

    each: every task is solved for itself.
    """
    tasks, lower, padded = task_count(problem.data), placed.lower, task_count(placed.data)
    of_tasks = lambda leaf: np.ndim(leaf) > 0 and leaf.shape[0] == tasks
    if lower is None or problem.lower is None or not all(map(of_tasks, jax.tree.leaves(start.theta))):
        return None
    in_data = tuple(bool(any(leaf.sharding.spec)) for leaf in jax.tree.leaves(placed.data))
    if isinstance(lower, Filled):
        choices = [tuple(count[0] != count[1] for count in lower.counts[0])]
    else:
        own = map(of_tasks, jax.tree.leaves(start.x))
        choices = list(islice(product(*((True, False) if flag else (False,) for flag in own)), MOST_CHOICES))
    for in_x in choices:
        marked = Separable(lower, problem.lower, problem.derivatives, in_data, in_x, padded, each=each)
        means = _stand_apart(replace(placed, lower=marked), start, mesh)
        if means:
            return replace(placed, lower=replace(marked, mean=means[0]))
    return None


def _stand_apart(placed: Problem, start: Point, mesh: Mesh) -> list[bool]:
    """Whether the tasks of each device have derivatives of g as they have among all: [False]; as a mean: [True]."""
    kernels = Kernels(placed, start)
    drawn = np.random.default_rng(0)
    # away from the start, where much is zero, and what lies between tasks may be
    x, theta = (v + 0.01 * drawn.uniform(size=v.size).astype(v.dtype) for v in kernels.flat(start)[:2])
    v = drawn.normal(size=theta.size).astype(theta.dtype)
    signs = drawn.choice([-1.0, 1.0], size=kernels.theta.first_axis)
    leaves = (np.broadcast_to(signs.reshape(-1, *(1,) * (len(shape) - 1)), shape) for shape in kernels.theta.shapes)
    flips = kernels.theta.ravel(list(leaves))
    try:
        found = Program(both_ways, "whether tasks stand apart", kernels.part)(x, theta, v, flips)
    except Exception:  # whatever a function of the user's raises on other shapes
        return []
    alone, among, flipped = found[:3], found[3:6], found[6]
    if not _near(flipped, flips * among[1]):
        return []
    if all(map(_near, alone, among)):
        return [False]
    return [True] if all(_near(one / mesh.size, other) for one, other in zip(alone, among, strict=True)) else []


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    rounding = float(np.sqrt(np.finfo(one.dtype).eps)) * np.max(np.abs(other), initial=0.0)
    return bool(np.max(np.abs(one - other), initial=0.0) <= rounding)
