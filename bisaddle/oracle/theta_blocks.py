"""Blocks of theta along its first axis, each with a matrix of its own in a preconditioner."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.trees import Shape

Vector = np.ndarray
# variables in a block (beyond, a product with a matrix is no longer cheap beside one with the Hessian), and entries of
# all matrices together
MOST = 256
ENTRIES = 2**20


def matrix_blocks(theta: Shape, apart: bool = False) -> int:
    """How many matrices hold a preconditioner: 1 for all of theta, one for each entry along its first axis, or 0."""
    if theta.size <= MOST and not apart:
        return int(theta.size > 0)
    blocks = theta.first_axis
    fits = blocks > 1 and theta.size // blocks <= MOST and theta.size * (theta.size // blocks) <= ENTRIES
    return blocks if fits else 0


def unit_rows(theta: Shape, blocks: int, size: int) -> Vector:
    """Row i: 1 in entry i of every block, the rows of a block in the order of `block_order`."""
    rows = np.zeros((size, blocks, size), theta.dtype)
    rows[np.arange(size), :, np.arange(size)] = 1
    order = block_order(theta, blocks)
    flat = np.empty((size, theta.size), theta.dtype)
    flat[:, order] = rows.reshape(size, -1)
    return flat


def block_order(theta: Shape, blocks: int) -> np.ndarray:
    """Where the entries of a flat theta lie, block after block along the first axis of its leaves."""
    if blocks <= 1:
        return np.arange(theta.size)
    leaves = jax.tree.leaves(theta.tree(np.arange(theta.size)))
    return np.concatenate([np.asarray(leaf).reshape(blocks, -1) for leaf in leaves], axis=1).astype(int).ravel()


def preconditioner(theta: Shape, matrices: Array) -> Callable[[Array], Array]:
    """r -> z of flat vectors, each block by its own matrix; r itself where there is none."""
    blocks, order = len(matrices), block_order(theta, len(matrices))
    straight = bool(np.all(order == np.arange(theta.size)))

    def preconditioned(r: Array) -> Array:
        if not blocks:
            return r
        rows = (r if straight else r[order]).reshape(blocks, -1)
        z = jnp.einsum("bj,bji->bi", rows, matrices).ravel()  # symmetric: by columns is the faster way round
        return z if straight else jnp.zeros_like(r).at[order].set(z)

    return preconditioned
