"""The product of sets over a pytree."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.sets.base import ConvexSet
from bisaddle.trees import Number


class Product(ConvexSet):
    """{v : v[leaf] in sets[leaf] for every leaf}, sets a pytree (dict, tuple, list) of sets

    project: one call per block; lmo: one call per block. The diameter is the root of the sum of squares.
    """

    sets: PyTree

    def __check_init__(self):
        blocks = jax.tree.leaves(self.sets, is_leaf=_is_set)
        if not blocks or not all(_is_set(block) for block in blocks):
            kinds = [type(block).__name__ for block in blocks]
            raise ValueError(f"Product takes a nonempty pytree whose leaves are sets, given leaves of type {kinds}")

    @property
    def blocks(self) -> list[ConvexSet]:
        return jax.tree.leaves(self.sets, is_leaf=_is_set)

    def parts(self, *trees_of_x: PyTree) -> list[tuple[ConvexSet, tuple[PyTree, ...]]]:
        """(block, what each tree holds for it) for every block."""
        structure = jax.tree.structure(self.sets, is_leaf=_is_set)
        columns = [structure.flatten_up_to(tree) for tree in trees_of_x]
        return list(zip(self.blocks, zip(*columns, strict=True), strict=True))

    @property
    def capabilities(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset.intersection(*(block.capabilities for block in self.blocks))

    def project(self, v: PyTree) -> PyTree:
        return self._map(lambda block, leaf: block.project(leaf), self.fitting(v))

    def lmo(self, direction: PyTree) -> PyTree:
        return self._map(lambda block, leaf: block.lmo(leaf), self.fitting(direction))

    def violation(self, v: PyTree) -> Array:
        return self._root_sum_squares(lambda block, leaf: block.violation(leaf), v)

    def diameter(self, v: PyTree) -> Array:
        return self._root_sum_squares(lambda block, leaf: block.diameter(leaf), v)

    def sample(self, key: Array, shape: PyTree) -> PyTree:
        """shape: the pytree of the sets, with a shape for each block."""
        structure = jax.tree.structure(self.sets, is_leaf=_is_set)
        shapes = structure.flatten_up_to(shape)
        keys = jax.random.split(key, len(shapes))
        return structure.unflatten([block.sample(k, s) for block, k, s in zip(self.blocks, keys, shapes, strict=True)])

    def prox(self, v: PyTree, step: Number) -> PyTree:
        return self._map(lambda block, leaf: block.prox(leaf, step), v)

    def penalty(self, v: PyTree) -> Array:
        return jnp.sum(jnp.stack(jax.tree.leaves(self._map(lambda block, leaf: block.penalty(leaf), v))))

    def best_response(self, y: PyTree, gradient: PyTree) -> tuple[Array, PyTree]:
        structure = jax.tree.structure(self.sets, is_leaf=_is_set)
        parts = zip(self.blocks, structure.flatten_up_to(y), structure.flatten_up_to(gradient), strict=True)
        bounds, points = zip(*(block.best_response(a, b) for block, a, b in parts), strict=True)
        return sum(bounds, start=jnp.zeros((), trees.dtype_of(y))), structure.unflatten(points)

    def misfit(self, v: PyTree) -> str | None:
        structure = jax.tree.structure(self.sets, is_leaf=_is_set)
        try:
            parts = structure.flatten_up_to(v)
        except (ValueError, TypeError):
            return f"Product has structure {structure}, given {jax.tree.structure(v)}; use the same keys and nesting"
        for path, block, part in zip(self._paths, self.blocks, parts, strict=True):
            reason = block.misfit(part)
            if reason is not None:
                return f"{path}: {reason}"
        return None

    def missing(self, oracle: str) -> str:
        lacking = [
            f"{path}: {block.missing(oracle)}"
            for path, block in zip(self._paths, self.blocks, strict=True)
            if oracle not in block.capabilities
        ]
        return f"Product has no {oracle}: {lacking[0]}"

    @property
    def _paths(self) -> list[str]:
        leaves = jax.tree_util.tree_leaves_with_path(self.sets, is_leaf=_is_set)
        return [jax.tree_util.keystr(path) for path, _ in leaves]

    def _map(self, function, v: PyTree) -> PyTree:
        return jax.tree.map(function, self.sets, v, is_leaf=_is_set)

    def _root_sum_squares(self, function, v: PyTree) -> Array:
        return jnp.sqrt(sum(jnp.square(part) for part in jax.tree.leaves(self._map(function, v))))


def _is_set(node) -> bool:
    return isinstance(node, ConvexSet)
