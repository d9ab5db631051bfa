"""A preconditioner for small lower levels: the inverse of a Hessian met before, bought when it has earned its price."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.problem import Problem

MOST = 256  # variables in a block; beyond, a product with the inverse is no longer cheap beside one with the Hessian
ENTRIES = 2**20  # of all inverses together
FREE = 2  # iterations that a solve may take with the best preconditioner
NEVER = -(2**30)


class Inverse(NamedTuple):
    """matrices: g_theta_theta^-1 at some earlier place, the identity at first; excess: what solves have taken since.

    One matrix for all of theta, or, where that is too large, one for each entry along the first axis of its leaves: the
    tasks of a problem whose lower levels do not touch each other. Whether that is so is tried.
    """

    matrices: Array
    excess: Array

    @classmethod
    def unknown(cls, theta: PyTree) -> "Inverse | None":
        """None where theta is too large."""
        blocks = _blocks(theta)
        if blocks is None:
            return None
        unit = jnp.eye(trees.size(theta) // blocks, dtype=trees.dtype_of(theta))
        return cls(jnp.tile(unit, (blocks, 1, 1)), jnp.zeros((), jnp.int32))

    def times(self, v: PyTree) -> PyTree:
        return _shaped(_times(self.matrices, _rows(v, len(self.matrices))), v)

    def after(self, products: Array) -> "Inverse":
        """One solve later: the products beyond those that are always needed count."""
        return self._replace(excess=self.excess + jnp.maximum(products - FREE, 0).astype(jnp.int32))

    def renewed(self, problem: Problem, x: PyTree, theta: PyTree) -> tuple["Inverse", Array]:
        """At (x, theta), if the excess has reached the price of a product for each variable of a block; what was paid.

        So never more than as much again is spent on inverses as the solves have taken too much.
        """
        blocks, size, _ = self.matrices.shape
        price = size + (blocks > 1)
        due = self.excess >= price

        def product(v):
            return _rows(oracle.hessian_product(problem, x, theta, _shaped(v, theta)), blocks)

        def build():
            unit = jnp.eye(size, dtype=self.matrices.dtype)
            columns = jax.vmap(lambda e: product(jnp.tile(e, (blocks, 1))))(unit)
            hessians = columns.transpose(1, 0, 2)
            hessians = 0.5 * (hessians + hessians.transpose(0, 2, 1))
            inverses = jax.vmap(lambda hessian: cho_solve(cho_factor(hessian), unit))(hessians)
            sound = jnp.all(jnp.isfinite(inverses))
            separate = jnp.asarray(True)
            if blocks > 1:
                v = jax.random.normal(jax.random.key(0), (blocks, size), unit.dtype)
                Hv = product(v)
                error = jnp.linalg.norm(Hv - _times(hessians, v))
                separate = error <= jnp.sqrt(jnp.finfo(unit.dtype).eps) * jnp.linalg.norm(Hv)
            symmetric = 0.5 * (inverses + inverses.transpose(0, 2, 1))
            excess = jnp.where(separate, 0, NEVER).astype(jnp.int32)
            return Inverse(jnp.where(sound & separate, symmetric, self.matrices), excess)

        return lax.cond(due, build, lambda: self), jnp.where(due, price, 0)


def _blocks(theta: PyTree) -> int | None:
    leaves = jax.tree.leaves(theta)
    size = trees.size(theta)
    if 0 < size <= MOST:
        return 1
    first = {leaf.shape[0] if leaf.ndim else 1 for leaf in leaves}
    blocks = first.pop() if len(first) == 1 else 0
    fits = blocks > 1 and size // blocks <= MOST and size * (size // blocks) <= ENTRIES
    return blocks if fits else None


def _times(matrices: Array, v: Array) -> Array:
    return jnp.einsum("bj,bji->bi", v, matrices)  # symmetric: by columns is the faster way round


def _rows(tree: PyTree, blocks: int) -> Array:
    return jnp.concatenate([leaf.reshape(blocks, -1) for leaf in jax.tree.leaves(tree)], axis=1)


def _shaped(rows: Array, like: PyTree) -> PyTree:
    leaves, form = jax.tree.flatten(like)
    sizes = [leaf.size // len(rows) for leaf in leaves]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [rows[:, end - size : end] for end, size in zip(ends, sizes, strict=True)]
    return jax.tree.unflatten(form, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])
