"""Problems and data over the devices of a mesh."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from bisaddle.devices import Order, held_here
from bisaddle.parallel.filling import apart, by_tasks, check_same
from bisaddle.parallel.placing import (
    by_task,
    filled,
    kind_of,
    ordered,
    require_kind,
    sharded,
    split_axes,
    spread,
    with_mask,
)
from bisaddle.problem import Point, Problem


def mesh(kind: str = "tasks", devices: Sequence[Any] | None = None) -> Mesh:
    """All devices of all processes in a row, to split tasks or rows over. devices: only these."""
    require_kind(kind)
    if devices is not None and not len(devices):
        raise ValueError("a mesh needs a device at least, given none; use None for all of them")
    return Mesh(np.array(jax.devices() if devices is None else list(devices)), (kind,))


def shard_tasks(data: PyTree, mesh: Mesh) -> PyTree:
    """Data over a mesh task by task: every array whose first axis has as many entries as there are tasks.

    The number of tasks is that of the most arrays; other arrays go to every device whole. Tasks that do not divide
    evenly are filled up with empty ones, zeros, which `shard` knows how to leave out: use that, unless there are none.
    """
    data = with_mask(data)
    return sharded(data, split_axes(data, "tasks"), mesh, mesh.size)


def shard_rows(data: PyTree, mesh: Mesh, axes: PyTree = None) -> PyTree:
    """Data over a mesh row by row. axes: which axis of an array has the rows, as jax.vmap takes in_axes; None: whole.

    Without axes, every array has its rows along its first axis that is as long as the longest array; data of bs.apps
    know their own. Rows that do not divide evenly are filled up with zeros. For that to change nothing, keep a
    weight for each row in the data, 1 everywhere: it becomes 0 where a row is filled up.
    """
    return sharded(data, split_axes(data, "rows") if axes is None else spread(axes, data), mesh, mesh.size)


def shard(
    problem: Problem,
    start: Point,
    mesh: Mesh,
    axes: PyTree = None,
    *,
    shards: int | None = None,
    deterministic: bool = False,
    separable: bool | None = None,
) -> tuple[Problem, Point]:
    """The problem with its data over the mesh, by tasks or by rows as its axis is named, and the start.

    The answers are those of one device: where tasks or rows are filled up, f and g at the start are compared with what
    they were, and ValueError says so if they differ. x, theta and y keep their shapes. axes: as shard_rows takes them.
    shards: a multiple of the number of devices to fill up to, None for that number; with the same one, a run can be
    taken up on another number of devices. deterministic: sums in a fixed order, shard by shard, so that with the same
    number of shards the digits are the same on any number of devices and processes; for this, data need a field
    `order`, as those of multitask.regression have. separable: None looks whether g is a sum over tasks, or their mean,
    of functions of the task's own data and theta and of x, written for any number of tasks; then each device takes the
    products of its own tasks, and steps are those of one device. True demands it, and solves the lower level of every
    task for itself, with nothing to send before it is done; steps differ then. False does not look.
    """
    kind, shards = kind_of(mesh), mesh.size if shards is None else shards
    if not isinstance(shards, int) or shards < 1 or shards % mesh.size:
        raise ValueError(f"shards must be a multiple of the {mesh.size} devices of the mesh, given {shards!r}")
    if deterministic and separable:
        raise ValueError("deterministic=True sums over the tasks in order, separable=True not at all; use one of them")
    axes = split_axes(problem.data, kind) if axes is None else spread(axes, problem.data)
    order = Order(kind, shards, mesh)
    given = replace(problem, data=ordered(problem.data, order)) if deterministic else problem
    if kind == "rows":
        placed = replace(given, data=sharded(given.data, axes, mesh, shards))
    else:
        placed = by_tasks(given, start, axes, mesh, shards)
    if any(a.shape != b.shape for a, b in zip(*map(jax.tree.leaves, (problem.data, placed.data)), strict=False)):
        check_same(problem, placed, start, mesh)
    elif kind == "tasks" and not deterministic:
        start = jax.tree.map(lambda leaf: by_task(leaf, problem.data, mesh), start)
    # in a fixed order, what is computed outside of the shards is so on all devices
    may = kind == "tasks" and not deterministic and separable is not False
    found = apart(problem, placed, start, mesh, each=bool(separable)) if may else None
    if separable and found is None:
        raise ValueError(
            "separable=True is for a g that is split by tasks, without a fixed order: a sum over tasks, or their mean, "
            "each of its own data and theta, and theta with the tasks along its first axis. This one is not: the "
            "derivatives of g from the tasks of each device alone are not those of all"
        )
    return placed if found is None else found, start


def load(read: Callable[[int, int], PyTree], count: int, mesh: Mesh) -> PyTree:
    """Data of which every process reads its own part: read(begin, end) gives the rows, or the tasks, from begin to end.

    count: how many there are. read is asked for what belongs to this process only, and must give arrays with
    end - begin entries along their first axis, none where begin = end. What does not divide evenly is filled up with
    zeros.
    """
    each = -(-count // mesh.size)
    sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
    mine = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
    places = {device: i for i, device in enumerate(mesh.devices.flat)}
    parts = []
    for device in mine:
        begin, end = (min(edge * each, count) for edge in (places[device], places[device] + 1))
        part = jax.tree.map(np.asarray, read(begin, end))
        if any(leaf.shape[:1] != (end - begin,) for leaf in jax.tree.leaves(part)):
            raise ValueError(f"read({begin}, {end}) must give arrays of {end - begin} entries along their first axis")
        parts.append(jax.tree.map(lambda leaf, to=device: jax.device_put(filled(leaf, 0, each), to), part))
    whole_shape = lambda leaf: (each * mesh.size, *leaf.shape[1:])
    joined = lambda *leaves: jax.make_array_from_single_device_arrays(whole_shape(leaves[0]), sharding, list(leaves))
    return jax.tree.map(joined, *parts)


def gather(tree: PyTree) -> PyTree:
    """A Result, a Point or other arrays with all of every array on this host; every process has to ask for it."""
    return jax.tree.map(held_here, tree)
