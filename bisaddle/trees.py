"""Arithmetic on pytrees; a scalar never changes the dtype of the leaves it scales, and None is the empty tree."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

# what a person may write for a number
Number = float | int | np.number | np.ndarray | Array


def add_scaled(tree: PyTree, scale: Number, direction: PyTree) -> PyTree:
    """tree + scale * direction"""
    return jax.tree.map(lambda a, b: a + _as(scale, a) * b, tree, direction)


def subtract(left: PyTree, right: PyTree) -> PyTree:
    return jax.tree.map(jnp.subtract, left, right)


def scale(factor: Number, tree: PyTree) -> PyTree:
    return jax.tree.map(lambda a: _as(factor, a) * a, tree)


def mix(gamma: Number, new: PyTree, old: PyTree) -> PyTree:
    """gamma * new + (1 - gamma) * old"""
    return jax.tree.map(lambda n, o: _as(gamma, n) * n + (1 - _as(gamma, o)) * o, new, old)


def dot(left: PyTree, right: PyTree) -> Array:
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), left, right)
    return sum(jax.tree.leaves(products), start=jnp.zeros((), dtype_of((left, right))))


def norm(tree: PyTree) -> Array:
    """Euclidean norm over all leaves; 0 for the empty tree."""
    squares = sum((jnp.sum(jnp.square(a)) for a in jax.tree.leaves(tree)), start=jnp.zeros((), dtype_of(tree)))
    return jnp.where(squares == 0, 0, jnp.sqrt(jnp.where(squares == 0, 1, squares)))  # a finite derivative at 0


def zeros_like(tree: PyTree) -> PyTree:
    return jax.tree.map(jnp.zeros_like, tree)


def size(tree: PyTree) -> int:
    return sum(a.size for a in jax.tree.leaves(tree))


def all_finite(tree: PyTree) -> Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(tree)] or [jnp.asarray(True)]))


def dtype_of(tree: PyTree) -> jnp.dtype:
    leaves = jax.tree.leaves(tree)
    return jnp.result_type(*leaves) if leaves else jnp.result_type(float)


def content_hash(tree: PyTree) -> int:
    """A hash of a module that holds arrays: jax.jit(module.method) needs one. Equal arrays on a device may differ."""
    leaves, structure = jax.tree.flatten(tree)
    return hash((structure, *(leaf.tobytes() if isinstance(leaf, np.ndarray) else id(leaf) for leaf in leaves)))


def random_like(key: Array, tree: PyTree) -> PyTree:
    """Independent standard normal entries in the shape of `tree`."""
    leaves, treedef = jax.tree.flatten(tree)
    keys = jax.random.split(key, max(len(leaves), 1))
    return treedef.unflatten([jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=False)])


def _as(number, leaf):
    return jnp.asarray(number).astype(leaf.dtype)
