"""Arrays filled up and placed on a mesh: along which axes, up to which length."""

from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from bisaddle.devices import Order, put, replicated, whole

# what shards go along
KINDS = ("tasks", "rows")


def require_kind(kind: Any) -> None:
    if kind not in KINDS:
        raise ValueError(f'a mesh goes along "tasks" or "rows", given {kind!r}')


def kind_of(mesh: Mesh) -> str:
    if not isinstance(mesh, Mesh) or len(mesh.axis_names) != 1:
        raise ValueError(f"a mesh with one axis is needed, given {mesh!r}; use parallel.mesh")
    require_kind(mesh.axis_names[0])
    return mesh.axis_names[0]


def split_axes(data: PyTree, kind: str) -> list[int | None]:
    """Along which axis each array of the data is split, None for those that are not."""
    own = getattr(data, "row_axes", None) if kind == "rows" else None
    paths = jax.tree_util.tree_leaves_with_path(data)
    if own == {}:
        raise ValueError(
            'these data hold no rows, only sums over them; split them by "tasks", or make them with form="rows"'
        )
    if own is not None:
        return [own.get(jax.tree_util.keystr(path).lstrip(".")) for path, _ in paths]
    count = task_count(data)
    if kind == "rows":
        count = max(leaf.shape[0] for _, leaf in paths if np.ndim(leaf))
    return [0 if np.ndim(leaf) and leaf.shape[0] == count else None for _, leaf in paths]


def spread(axes: PyTree, data: PyTree) -> list[int | None]:
    """axes, a tree that ends where it says the same of all below it, as a list with one for each array of the data."""
    known = lambda node: node is None or isinstance(node, int)
    try:
        spread = jax.tree.map(lambda axis, below: [axis] * len(jax.tree.leaves(below)), axes, data, is_leaf=known)
    except ValueError as error:
        raise ValueError(f"axes must have the structure of the data, or end above it: {error}") from error
    return jax.tree.leaves(spread, is_leaf=lambda node: node is None)


def sharded(data: PyTree, axes: list[int | None], mesh: Mesh, shards: int) -> PyTree:
    """The arrays filled up along their axes and placed."""
    name, (leaves, form) = kind_of(mesh), jax.tree.flatten(data)
    fills = getattr(data, "filled_with", {})
    paths = [jax.tree_util.keystr(path).lstrip(".") for path, _ in jax.tree_util.tree_leaves_with_path(data)]

    def one(path: str, leaf: Any, axis: int | None) -> Any:
        if axis is None:
            return put(leaf, replicated(mesh))
        if not 0 <= axis < np.ndim(leaf):
            raise ValueError(f"an array of shape {np.shape(leaf)} has no axis {axis}")
        length = upwards(leaf.shape[axis], shards)
        spec = PartitionSpec(*(None,) * axis, name)
        return put(filled(whole(leaf), axis, length, fills.get(path, 0)), NamedSharding(mesh, spec))

    return form.unflatten(map(one, paths, leaves, axes))


def upwards(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def filled(array: np.ndarray, axis: int, length: int, value: Any = 0) -> np.ndarray:
    if array.shape[axis] == length:
        return array
    room = [(0, 0)] * array.ndim
    room[axis] = (0, length - array.shape[axis])
    return np.pad(array, room, constant_values=value)


def by_task(leaf: Any, data: PyTree, mesh: Mesh) -> Any:
    """A part of the start where its task is, if it has one along its first axis; else everywhere."""
    own = np.ndim(leaf) > 0 and leaf.shape[0] == task_count(data)
    return put(leaf, NamedSharding(mesh, PartitionSpec(mesh.axis_names[0])) if own else replicated(mesh))


def task_count(data: PyTree) -> int:
    """How many tasks the data have: entries along the first axis of most arrays."""
    lengths = [leaf.shape[0] for leaf in jax.tree.leaves(data) if np.ndim(leaf)]
    if not lengths:
        raise ValueError("there is no array in the data that could be split")
    return max(lengths, key=lengths.count)


def ordered(data: PyTree, order: Order) -> PyTree:
    if not hasattr(data, "order"):
        raise ValueError(
            "deterministic=True needs data with a field `order`, and f and g that take their sums with it: "
            "multitask.regression has one; for functions of your own see docs/parallel.md"
        )
    return data._replace(order=order)


def with_mask(data: PyTree) -> PyTree:
    """Data of bs.apps with a 1 for each task, which those that are filled up do not get."""
    if getattr(data, "real", data) is not None:
        return data
    return data._replace(real=np.ones(task_count(data)))
