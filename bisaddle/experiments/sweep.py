"""All values of nu of a method in one compiled program: the steps, and the points to be measured."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import programs
from bisaddle.methods.base import Method, State
from bisaddle.problem import Point, Problem

# records that a compiled block holds; the host looks at progress and Ctrl-C between blocks
BLOCK = 100


def begin(problem: Problem, start: Point, methods: list[Method], lanes: int) -> tuple[Method, State]:
    """The methods as one, their numbers with a leading axis, padded to `lanes` with the last, and the first states.

    One program serves every sweep with as many lanes; the first state does not depend on the step sizes.
    """
    methods = [*methods, *(lanes - len(methods)) * methods[-1:]]
    state = methods[0].init(problem, start)
    together = jax.tree.map(_joined, *methods)
    return together, jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], lanes, axis=0), state)


def _joined(*leaves: Any) -> Any:
    """The numbers of the methods side by side; arrays (a spectrum) are the same for all, and stay as they are."""
    return np.stack([np.asarray(leaf) for leaf in leaves]) if np.ndim(leaves[0]) == 0 else leaves[0]


def block(
    problem: Problem, methods: Method, states: State, every: int, records: int, effort: int = 2
) -> tuple[State, PyTree]:
    """`records` times `every` steps of each method; the states at the end, and (x, y) after each record.

    The points come in a buffer of length BLOCK along the second axis, after the lanes. effort: of the compiler.
    """
    arguments = (*programs.on_device((problem, methods, states)), np.int64(every), np.int64(records))
    return programs.cached(_block, "a sweep", *arguments, effort=effort)(*arguments)


def _block(problem: Problem, methods: Method, states: State, every: Array, records: Array) -> tuple[State, PyTree]:
    # what all lanes share is not mapped over: a product with it is one product of matrices
    axes = jax.tree.map(lambda leaf: 0 if leaf.ndim == 1 else None, methods)
    step = jax.vmap(lambda method, state: method.step(problem, state), in_axes=(axes, 0))
    points = (states.x, states.y)
    buffer = jax.tree.map(lambda leaf: jnp.zeros((leaf.shape[0], BLOCK, *leaf.shape[1:]), leaf.dtype), points)

    def one_record(i, carry):
        states, buffer = carry
        states = lax.fori_loop(0, every, lambda _, states: step(methods, states), states)
        return states, jax.tree.map(lambda rows, leaf: rows.at[:, i].set(leaf), buffer, (states.x, states.y))

    return lax.fori_loop(0, records, one_record, (states, buffer))


def lane(tree: Any, i: int) -> Any:
    """One lane of a stacked pytree."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[i], tree)
