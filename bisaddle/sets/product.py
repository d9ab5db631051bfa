"""The product of sets over a pytree."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.sets.base import ConvexSet, Derived
from bisaddle.showing import described
from bisaddle.trees import Number


class Product(ConvexSet):
    """{v : v[leaf] in sets[leaf] for every leaf}, sets a pytree (dict, tuple, list) of sets

    project: one call per block; lmo: one call per block. The diameter is the root of the sum of squares.
    """

    capabilities = Derived(lambda self: frozenset.intersection(*(block.capabilities for block in self.blocks)))
    tolerance = Derived(lambda self: max(block.tolerance for block in self.blocks))
    estimates = Derived(lambda self: frozenset.union(*(block.estimates for block in self.blocks)))

    sets: PyTree

    def __check_init__(self):
        blocks = jax.tree.leaves(self.sets, is_leaf=_is_set)
        if not blocks or not all(_is_set(block) for block in blocks):
            other = next((block for block in blocks if not _is_set(block)), None)
            given = "nothing" if other is None else described(other)
            raise ValueError(f"Product takes a dict, tuple or list with a set of bs.sets for every part, given {given}")

    @property
    def blocks(self) -> list[ConvexSet]:
        return jax.tree.leaves(self.sets, is_leaf=_is_set)

    @property
    def structure(self) -> Any:
        """The structure of the pytree, with a leaf for every block."""
        return jax.tree.structure(self.sets, is_leaf=_is_set)

    def split(self, *values: PyTree) -> list[tuple]:
        """(block, its part of each value) for every block."""
        return list(zip(self.blocks, *map(self.structure.flatten_up_to, values), strict=True))

    def join(self, parts: Iterable[PyTree]) -> PyTree:
        """The value with these parts, one for every block."""
        return self.structure.unflatten(parts)

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
        keys = jax.random.split(key, len(self.blocks))
        return self.join([block.sample(k, s) for k, (block, s) in zip(keys, self.split(shape), strict=True)])

    def prox(self, v: PyTree, step: Number) -> PyTree:
        return self._map(lambda block, leaf: block.prox(leaf, step), v)

    def penalty(self, v: PyTree) -> Array:
        return jnp.sum(jnp.stack(jax.tree.leaves(self._map(lambda block, leaf: block.penalty(leaf), v))))

    def project_error(self, v: PyTree, p: PyTree) -> Array:
        return _hypotenuse(block.project_error(a, b) for block, a, b in self.split(v, p))

    def prox_error(self, v: PyTree, p: PyTree, step: Number) -> Array:
        return _hypotenuse(block.prox_error(a, b, step) for block, a, b in self.split(v, p))

    def lmo_error(self, direction: PyTree, s: PyTree) -> Array:
        errors = (block.lmo_error(d, u) for block, d, u in self.split(direction, s))
        return sum(errors, start=jnp.zeros((), trees.dtype_of(s)))

    def best_response(self, y: PyTree, gradient: PyTree) -> tuple[Array, PyTree]:
        answers = [block.best_response(a, g) for block, a, g in self.split(y, gradient)]
        bounds, points = zip(*answers, strict=True)
        return sum(bounds, start=jnp.zeros((), trees.dtype_of(y))), self.join(points)

    def misfit(self, v: PyTree) -> str | None:
        try:
            parts = self.split(v)
        except (ValueError, TypeError):
            needed, given = (str(form)[len("PyTreeDef(") : -1] for form in (self.structure, jax.tree.structure(v)))
            return f"Product has the parts {needed}, given {given} (* is an array); use the same keys and nesting"
        for path, (block, part) in zip(self._paths, parts, strict=True):
            reason = block.misfit(part)
            if reason is not None:
                return f"{path}: {reason}"
        return None

    def missing(self, oracle: str) -> str:
        for path, block in zip(self._paths, self.blocks, strict=True):
            if oracle not in block.capabilities:
                return f"Product has no {oracle}: {path}: {block.missing(oracle)}"
        return ConvexSet.missing(self, oracle)

    @property
    def _paths(self) -> list[str]:
        leaves = jax.tree_util.tree_leaves_with_path(self.sets, is_leaf=_is_set)
        return [jax.tree_util.keystr(path) for path, _ in leaves]

    def _map(self, function: Callable[[ConvexSet, PyTree], PyTree], v: PyTree) -> PyTree:
        return self.join([function(*part) for part in self.split(v)])

    def _root_sum_squares(self, function, v: PyTree) -> Array:
        return _hypotenuse(jax.tree.leaves(self._map(function, v)))


def _hypotenuse(parts: Iterable[Array]) -> Array:
    return jnp.sqrt(sum(jnp.square(part) for part in parts))


def _is_set(node) -> bool:
    return isinstance(node, ConvexSet)
