"""Pytrees as vectors: arithmetic on them, and Shape, how one lies in a flat array. None is the empty tree.

A scalar never changes the dtype of the leaves that it scales.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from bisaddle.devices import everywhere, whole

# what a person may write for a number
Number = float | int | np.number | np.ndarray | Array

# of an array from which on it pays, and a multiple of which XLA wants arrays to begin at
LARGE_BYTES, ALIGNED = 2**20, 64
# entries that are taken at once where a product would be a vector of its own
PIECE = 2**15


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


def room(size: int, dtype: np.dtype) -> np.ndarray:
    """A vector to be filled.

    A large one begins at a multiple of 64 bytes: a program on a CPU then reads it in place. NumPy's own arrays, which
    begin at a multiple of 16, are copied for it.
    """
    bytes = size * dtype.itemsize
    if bytes <= LARGE_BYTES:
        return np.empty(size, dtype)
    memory = np.empty(bytes + ALIGNED, np.uint8)
    first = -memory.ctypes.data % ALIGNED
    return memory[first : first + bytes].view(dtype)


def stepped(v: np.ndarray, length: float, direction: np.ndarray) -> np.ndarray:
    """v + length * direction, with nothing else made on the way."""
    to = np.multiply(direction, v.dtype.type(length), out=room(v.size, v.dtype))
    to += v
    return to


def aligned(operation: Any, v: np.ndarray, *others: Any) -> np.ndarray:
    """operation(v, *others), a ufunc of vectors and numbers, where a program reads it in place."""
    return operation(v, *others, out=room(v.size, v.dtype))


def drawn(size: int, dtype: np.dtype, seed: int) -> np.ndarray:
    """Independent standard normal numbers, drawn in float64, where a program reads them in place."""
    rng, v = np.random.default_rng(seed), room(size, dtype)
    for at in pieces(size):
        v[at] = rng.normal(size=v[at].size)
    return v


def add_to(v: np.ndarray, length: float, direction: np.ndarray) -> None:
    """v += length * direction, in place."""
    factor = v.dtype.type(length)
    for at in pieces(v.size):
        v[at] += factor * direction[at]


def pieces(size: int) -> Iterator[slice]:
    """Of a vector, short enough for a product of one to stay in the cache."""
    return (slice(i, i + PIECE) for i in range(0, size, PIECE))


@jax.tree_util.register_static
@dataclass(frozen=True)
class Shape:
    """How a pytree of arrays lies in one flat vector: its leaves raveled and joined in tree order.

    It is static: as part of a pytree it has no leaves, and equal ones find the same compiled program. Whole numbers
    become floats, and the vector has the dtype that holds all leaves. None is the empty tree.
    """

    structure: Any
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[np.dtype, ...]
    empty: np.dtype = np.dtype(np.float64)  # of the vector of a tree without leaves
    mesh: Mesh | None = None  # on all of whose devices a program wants the vector; None leaves it to the compiler

    @classmethod
    def of(cls, tree: PyTree, empty: np.dtype | None = None) -> "Shape":
        """Of a pytree of arrays, numbers or jax.ShapeDtypeStruct; empty: the dtype where it has no leaves."""
        leaves, structure = jax.tree.flatten(tree)
        shapes = tuple(tuple(np.shape(leaf)) for leaf in leaves)
        return cls(structure, shapes, tuple(map(_dtype, leaves)), empty or _dtype(0.0))

    @cached_property
    def size(self) -> int:
        return sum(prod(shape) for shape in self.shapes)

    @property
    def first_axis(self) -> int:
        """The length of the first axis, if all leaves have the same; else 1."""
        first = {shape[0] if shape else 1 for shape in self.shapes}
        return max(1, first.pop()) if len(first) == 1 else 1

    @cached_property
    def dtype(self) -> np.dtype:
        if len(set(self.dtypes)) > 1:
            return np.dtype(jnp.result_type(*self.dtypes))
        return self.dtypes[0] if self.dtypes else self.empty

    @cached_property
    def structs(self) -> PyTree:
        """The tree, with a jax.ShapeDtypeStruct for each leaf."""
        return self.structure.unflatten(map(jax.ShapeDtypeStruct, self.shapes, self.dtypes))

    def ravel(self, tree: PyTree, own: bool = True) -> np.ndarray:
        """A flat vector with the entries of the tree: a new one or, if not own, one to read that may be the leaf's."""
        leaves = jax.tree.leaves(tree)
        if not own and len(leaves) == 1:
            return np.asarray(whole(leaves[0]), self.dtype).reshape(-1)
        v = room(self.size, self.dtype)
        for (a, b), leaf in zip(self._bounds, leaves, strict=True):
            v[a:b] = whole(leaf).reshape(-1)
        return v

    def tree(self, v: np.ndarray) -> PyTree:
        """The tree whose entries are v, as NumPy arrays: views of v where the dtype is the leaf's."""
        return self.structure.unflatten(
            self._as_leaf(v[a:b], shape, dtype)
            for (a, b), shape, dtype in zip(self._bounds, self.shapes, self.dtypes, strict=True)
        )

    def traced(self, v: Array | np.ndarray) -> PyTree:
        """The tree whose entries are v, inside a program."""
        parts = [v] if len(self.shapes) == 1 else [lax.slice(v, (a,), (b,)) for a, b in self._bounds]
        if self.mesh is not None:
            parts = [everywhere(jnp.asarray(part), self.mesh) for part in parts]
        return self.structure.unflatten(map(self._as_leaf, parts, self.shapes, self.dtypes))

    def per_task(self, rows: Array) -> PyTree:
        """The tree whose leaves have along their first axis what the rows have, one for each: any number of them."""
        widths = [prod(shape[1:]) for shape in self.shapes]
        ends = list(accumulate(widths, initial=0))
        parts = [rows[:, a:b].reshape(-1, *shape[1:]) for a, b, shape in zip(ends, ends[1:], self.shapes, strict=False)]
        return self.structure.unflatten(parts)

    def join(self, tree: PyTree) -> Array:
        """The flat vector of a tree, inside a program."""
        parts = [jnp.ravel(everywhere(leaf, self.mesh)) for leaf in jax.tree.leaves(tree)]
        if len(parts) == 1:
            return parts[0]
        return jnp.concatenate(parts) if parts else jnp.zeros(0, self.dtype)

    @cached_property
    def named_slices(self) -> list[tuple[str, slice]]:
        """Where each leaf lies, by its path in the tree; the path of a tree that is one array is empty."""
        paths = jax.tree_util.tree_leaves_with_path(self.structs)
        places = [slice(a, b) for a, b in self._bounds]
        return [(jax.tree_util.keystr(path), place) for (path, _), place in zip(paths, places, strict=True)]

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        ends = list(accumulate((prod(shape) for shape in self.shapes), initial=0))
        return list(zip(ends[:-1], ends[1:], strict=True))

    @cached_property
    def _mixed(self) -> bool:
        return len(set(self.dtypes)) > 1

    def _as_leaf(self, part: Any, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        # leaves of one dtype keep that of the vector, whatever it is
        return part.reshape(shape).astype(dtype) if self._mixed else part.reshape(shape)


def _dtype(leaf: Any) -> np.dtype:
    """As JAX has it: without jax_enable_x64 a float64 is a float32."""
    given = jax.dtypes.canonicalize_dtype(leaf.dtype if hasattr(leaf, "dtype") else np.asarray(leaf).dtype)
    # what is a float stays one, and to ask JAX for that takes longer than all else here
    return np.dtype(given if given.kind == "f" else jnp.result_type(given, float))
