"""The product of sets over a pytree."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle.sets.base import ConvexSet


class Product(ConvexSet):
    """{v : v[leaf] in sets[leaf] for every leaf}, sets a pytree (dict, tuple, list) of sets

    Every oracle is one call per block; the diameter is the root of the sum of squares.
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

    @property
    def capabilities(self) -> frozenset[str]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return frozenset.intersection(*(block.capabilities for block in self.blocks))

    def project(self, v: PyTree) -> PyTree:
        return self._map(lambda block, leaf: block.project(leaf), v)

    def lmo(self, direction: PyTree) -> PyTree:
        return self._map(lambda block, leaf: block.lmo(leaf), direction)

    def violation(self, v: PyTree) -> Array:
        return self._root_sum_squares(lambda block, leaf: block.violation(leaf), v)

    def diameter(self, v: PyTree) -> Array:
        return self._root_sum_squares(lambda block, leaf: block.diameter(leaf), v)

    def misfit(self, v: PyTree) -> str | None:
        structure = jax.tree.structure(self.sets, is_leaf=_is_set)
        try:
            parts = structure.flatten_up_to(v)
        except (ValueError, TypeError):
            return f"Product has structure {structure}, given {jax.tree.structure(v)}; use the same keys and nesting"
        paths = [
            jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(self.sets, is_leaf=_is_set)
        ]
        for path, block, part in zip(paths, self.blocks, parts, strict=True):
            reason = block.misfit(part)
            if reason is not None:
                return f"{path}: {reason}"
        return None

    def _map(self, function, v: PyTree) -> PyTree:
        return jax.tree.map(function, self.sets, v, is_leaf=_is_set)

    def _root_sum_squares(self, function, v: PyTree) -> Array:
        return jnp.sqrt(sum(jnp.square(part) for part in jax.tree.leaves(self._map(function, v))))


def _is_set(node) -> bool:
    return isinstance(node, ConvexSet)
