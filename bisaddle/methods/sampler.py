"""Sampler: mini-batches of rows or tasks of `data`; the sampler without batches gives everything."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle.problem import Problem
from bisaddle.showing import Shown

# a batch of up to n / FEW rows is drawn by itself, a larger one from a permutation of all n
FEW = 4
# up to so many, comparing each with each takes less time than sorting them
SMALL = 256


class Batch(eqx.Module):
    """`size` of the n rows of some arrays in data, drawn uniformly, all these arrays getting the same rows.

    leaves(data)   one array or several (a tuple or a part of data), each with n rows along `axis`
    counts(data)   one array or a tuple: multiplied by size / n, for functions that divide a sum over rows by a number
                   kept in data; functions that take the mean over the rows need none
    replace        True draws with replacement: as unbiased, a little noisier

    The sampled f and g are unbiased when they are means over the rows, or sums divided by such counts. Tasks are rows
    as well: stack them along an axis, keep their numbers in data as one more leaf, as in theta[data["task"]], and
    sample both.
    """

    leaves: Callable = eqx.field(static=True)
    size: int = eqx.field(static=True)
    axis: int = eqx.field(static=True, default=0)
    counts: Callable | None = eqx.field(static=True, default=None)
    replace: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if self.size < 1:
            raise ValueError(f"Batch: size must be a whole number >= 1, given {self.size}")

    def rows(self, data: PyTree) -> int:
        """n; ValueError unless all the arrays have it and size <= n."""
        try:
            arrays = jax.tree.leaves(self.leaves(data))
            found = sorted({array.shape[self.axis] for array in arrays})
        except Exception as error:
            raise ValueError(
                f"Batch: leaves must pick arrays of data with an axis {self.axis}, given one that fails with "
                f'{type(error).__name__}: {error}; use such as lambda data: (data["rows"], data["targets"])'
            ) from error
        if len(found) != 1:
            raise ValueError(f"Batch: the arrays must have as many rows along axis {self.axis}, given {found}")
        if self.size > found[0] and not self.replace:
            raise ValueError(f"Batch: size must be at most the number of rows {found[0]}, given {self.size}")
        return found[0]

    def blocks(self, data: PyTree) -> int:
        """The number of batches of consecutive rows that data falls into; ValueError if it does not."""
        n = self.rows(data)
        if n % self.size:
            raise ValueError(
                f"Batch: size must divide the number of rows for a method that remembers its batches, given "
                f"{self.size} and {n} rows; use another size, or leave out {n % self.size} rows"
            )
        return n // self.size

    def take(self, data: PyTree, rows: Array) -> PyTree:
        """data with these rows only."""
        n = self.rows(data)
        data = _at(self.leaves, data, lambda array: jnp.take(array, rows, axis=self.axis))
        return data if self.counts is None else _at(self.counts, data, lambda count: count * (len(rows) / n))

    def draw(self, key: Array, data: PyTree) -> PyTree:
        n = self.rows(data)
        if self.replace:
            return self.take(data, jax.random.randint(key, (self.size,), 0, n))
        if self.size == n:
            return data
        return self.take(data, distinct_rows(key, n, self.size))

    def block(self, i: Array, data: PyTree) -> PyTree:
        """Rows i size, ..., (i + 1) size - 1."""
        return self.take(data, i * self.size + jnp.arange(self.size))


class Sampler(Shown):
    """Stochastic oracles: f on batches of `upper`, g on batches of `lower`, drawn anew wherever a method samples.

        Sampler(upper=Batch(lambda d: d["valid"], 8), lower=Batch(lambda d: (d["train"], d["targets"]), 32))

    A tuple of batches is drawn one after the other: tasks along axis 0, then rows along axis 1. Without batches the
    function is evaluated on everything, and Sampler() is the deterministic oracle.
    """

    upper: tuple[Batch, ...] = eqx.field(converter=lambda batches: _several(batches), default=())
    lower: tuple[Batch, ...] = eqx.field(converter=lambda batches: _several(batches), default=())

    @property
    def everything(self) -> bool:
        return not (self.upper or self.lower)

    def check(self, problem: Problem) -> None:
        """ValueError unless the batches fit the data."""
        for batches in (self.upper, self.lower):
            data = problem.data
            for batch in batches:
                n = batch.rows(data)
                data = jax.eval_shape(lambda data, b=batch, n=n: b.take(data, jnp.arange(b.size) % n), data)

    def for_upper(self, problem: Problem, key: Array) -> Problem:
        """The problem whose f is sampled."""
        return _with_data(problem, _drawn(self.upper, key, problem.data)) if self.upper else problem

    def for_lower(self, problem: Problem, key: Array) -> Problem:
        """The problem whose g is sampled."""
        return _with_data(problem, _drawn(self.lower, key, problem.data)) if self.lower else problem


def distinct_rows(key: Array, n: int, size: int) -> Array:
    """`size` different numbers from 0 to n - 1, each set of so many as likely as any other, in a time free of n.

    Numbers that repeat an earlier one are drawn again until none does. Nothing is ever asked of a number but whether it
    equals another one, so that no set can be likelier than another.
    """
    if size > n // FEW:  # a permutation of all of them is no more work then
        return jax.random.choice(key, n, (size,), replace=False)

    def unfinished(carry):
        return jnp.any(carry[2])

    def redraw(carry):
        key, rows, repeats = carry
        key, fresh = jax.random.split(key)
        rows = jnp.where(repeats, jax.random.randint(fresh, (size,), 0, n), rows)
        return key, rows, _repeats(rows)

    every = jnp.ones(size, bool)
    return jax.lax.while_loop(unfinished, redraw, (key, jnp.zeros(size, int), every))[1]


def _repeats(rows: Array) -> Array:
    """Which entries equal an earlier one."""
    if rows.size <= SMALL:
        return jnp.any(jnp.tril(rows[:, None] == rows, -1), axis=1)
    order = jnp.argsort(rows, stable=True)
    ordered = rows[order]
    return jnp.zeros(rows.size, bool).at[order[1:]].set(ordered[1:] == ordered[:-1])


def with_block(problem: Problem, batches: tuple[Batch, ...], i: Array) -> Problem:
    """The problem on the i-th block of its only batch; the problem itself without a batch."""
    return _with_data(problem, batches[0].block(i, problem.data)) if batches else problem


def _drawn(batches: tuple[Batch, ...], key: Array, data: PyTree) -> PyTree:
    for batch, batch_key in zip(batches, jax.random.split(key, len(batches)), strict=True):
        data = batch.draw(batch_key, data)
    return data


def _at(pick: Callable, data: PyTree, change: Callable) -> PyTree:
    """data with the arrays changed that are picked, leaf by leaf: a tuple in data is a node, not a list of leaves."""
    return eqx.tree_at(lambda data: jax.tree.leaves(pick(data)), data, replace_fn=change)


def _with_data(problem: Problem, data: PyTree) -> Problem:
    return eqx.tree_at(lambda p: p.data, problem, data)


def _several(given) -> tuple:
    return tuple(given) if isinstance(given, tuple | list) else (given,)
