"""Data over the devices of a mesh and the processes of a cluster; JAX's own runtime does the rest.

    mesh = parallel.mesh("tasks")                                  all devices of all processes
    problem, start = parallel.shard(problem, start, mesh)          or "rows"
    result = bs.solve(problem, start)

Computation follows the data, and no array of the data is ever gathered. See docs/parallel.md and docs/scale.md.
"""

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, product
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from bisaddle.devices import Order as Order, held_here, put, replicated, total as total, whole
from bisaddle.problem import Derivatives, Point, Problem

# what shards go along
KINDS = ("tasks", "rows")
# seconds without a sign of life after which a process is given up, and to wait for all of them at the start
HEARTBEAT = 10
STARTING = 120
# ways to fill up x that are tried
MOST_CHOICES = 64


def initialize(
    address: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    heartbeat: int = HEARTBEAT,
    timeout: int = STARTING,
) -> None:
    """Join the other processes: jax.distributed.initialize, to be called before anything else of JAX.

    address: host:port of process 0; processes: how many; process: which one this is. None: as Slurm, Open MPI,
    Kubernetes or a cloud's TPU says. heartbeat: seconds after which a process that gives no sign of life is given up,
    and all others end with an error. timeout: seconds to wait for all of them.
    """
    for name, value in (("heartbeat", heartbeat), ("timeout", timeout)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of seconds >= 1, given {value!r}")
    if address is not None and process:
        _wait_for(address, timeout)  # with words: what JAX does when nobody answers is to end the process
    jax.distributed.initialize(
        address,
        processes,
        process,
        initialization_timeout=timeout,
        heartbeat_timeout_seconds=heartbeat,
        shutdown_timeout_seconds=heartbeat,
    )


def mesh(kind: str = "tasks", devices: Sequence[Any] | None = None) -> Mesh:
    """All devices of all processes in a row, to split tasks or rows over. devices: only these."""
    _require_kind(kind)
    return Mesh(np.array(jax.devices() if devices is None else list(devices)), (kind,))


def shard_tasks(data: PyTree, mesh: Mesh) -> PyTree:
    """Data over a mesh task by task: every array whose first axis has as many entries as there are tasks.

    The number of tasks is that of the most arrays; other arrays go to every device whole. Tasks that do not divide
    evenly are filled up with empty ones, zeros, which `shard` knows how to leave out: use that, unless there are none.
    """
    data = _with_mask(data)
    return _sharded(data, _axes(data, "tasks"), mesh, mesh.size)


def shard_rows(data: PyTree, mesh: Mesh, axes: PyTree = None) -> PyTree:
    """Data over a mesh row by row. axes: which axis of an array has the rows, as jax.vmap takes in_axes; None: whole.

    Without axes, every array has its rows along its first axis that is as long as the longest array; data of bs.apps
    know their own. Rows that do not divide evenly are filled up with zeros. For that to change nothing, keep a
    weight for each row in the data, 1 everywhere: it becomes 0 where a row is filled up.
    """
    return _sharded(data, _axes(data, "rows") if axes is None else _spread(axes, data), mesh, mesh.size)


def shard(
    problem: Problem,
    start: Point,
    mesh: Mesh,
    axes: PyTree = None,
    *,
    shards: int | None = None,
    deterministic: bool = False,
) -> tuple[Problem, Point]:
    """The problem with its data over the mesh, by tasks or by rows as its axis is named, and the start.

    The answers are those of one device: where tasks or rows are filled up, f and g at the start are compared with what
    they were, and ValueError says so if they differ. x, theta and y keep their shapes. axes: as shard_rows takes them.
    shards: a multiple of the number of devices to fill up to, None for that number; with the same one, a run can be
    taken up on another number of devices. deterministic: sums in a fixed order, shard by shard, so that with the same
    number of shards the digits are the same on any number of devices and processes; for this, data need a field
    `order`, as those of multitask.regression have.
    """
    kind, shards = _kind(mesh), mesh.size if shards is None else shards
    if not isinstance(shards, int) or shards < 1 or shards % mesh.size:
        raise ValueError(f"shards must be a multiple of the {mesh.size} devices of the mesh, given {shards!r}")
    axes = _axes(problem.data, kind) if axes is None else _spread(axes, problem.data)
    order = Order(kind, shards, mesh)
    given = replace(problem, data=_ordered(problem.data, order)) if deterministic else problem
    if kind == "rows":
        placed = replace(given, data=_sharded(given.data, axes, mesh, shards))
    else:
        placed = _by_tasks(given, start, axes, mesh, shards)
    if any(a.shape != b.shape for a, b in zip(*map(jax.tree.leaves, (problem.data, placed.data)), strict=False)):
        _check_same(problem, placed, start, mesh)
        return placed, start
    return placed, start if kind == "rows" else jax.tree.map(lambda leaf: _by_task(leaf, problem.data, mesh), start)


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
        parts.append(jax.tree.map(lambda leaf, to=device: jax.device_put(_filled(leaf, 0, each), to), part))
    whole_shape = lambda leaf: (each * mesh.size, *leaf.shape[1:])
    joined = lambda *leaves: jax.make_array_from_single_device_arrays(whole_shape(leaves[0]), sharding, list(leaves))
    return jax.tree.map(joined, *parts)


def gather(tree: PyTree) -> PyTree:
    """A Result, a Point or other arrays with all of every array on this host; every process has to ask for it."""
    return jax.tree.map(held_here, tree)


# --- how it is done ---------------------------------------------------------------------------------------------------


def _wait_for(address: str, timeout: float) -> None:
    """RuntimeError if nobody answers at host:port within so many seconds."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"address must be host:port of process 0, given {address!r}")
    end = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"process 0 does not answer at {address} after {timeout} seconds ({error}); see that it is "
                    "started, that the address is its own, and that the port is open"
                ) from error
            time.sleep(0.1)


def _require_kind(kind: Any) -> None:
    if kind not in KINDS:
        raise ValueError(f'a mesh goes along "tasks" or "rows", given {kind!r}')


def _kind(mesh: Mesh) -> str:
    if not isinstance(mesh, Mesh) or len(mesh.axis_names) != 1:
        raise ValueError(f"a mesh with one axis is needed, given {mesh!r}; use parallel.mesh")
    _require_kind(mesh.axis_names[0])
    return mesh.axis_names[0]


def _axes(data: PyTree, kind: str) -> list[int | None]:
    """Along which axis each array of the data is split, None for those that are not."""
    own = getattr(data, "row_axes", None) if kind == "rows" else None
    paths = jax.tree_util.tree_leaves_with_path(data)
    if own == {}:
        raise ValueError(
            'these data hold no rows, only sums over them; split them by "tasks", or make them with form="rows"'
        )
    if own is not None:
        return [own.get(jax.tree_util.keystr(path).lstrip(".")) for path, _ in paths]
    count = _tasks(data)
    if kind == "rows":
        count = max(leaf.shape[0] for _, leaf in paths if np.ndim(leaf))
    return [0 if np.ndim(leaf) and leaf.shape[0] == count else None for _, leaf in paths]


def _spread(axes: PyTree, data: PyTree) -> list[int | None]:
    """axes, a tree that ends where it says the same of all below it, as a list with one for each array of the data."""
    known = lambda node: node is None or isinstance(node, int)
    try:
        spread = jax.tree.map(lambda axis, below: [axis] * len(jax.tree.leaves(below)), axes, data, is_leaf=known)
    except ValueError as error:
        raise ValueError(f"axes must have the structure of the data, or end above it: {error}") from error
    return jax.tree.leaves(spread, is_leaf=lambda node: node is None)


def _sharded(data: PyTree, axes: list[int | None], mesh: Mesh, shards: int) -> PyTree:
    """The arrays filled up along their axes and placed."""
    name, (leaves, form) = _kind(mesh), jax.tree.flatten(data)
    filled = getattr(data, "filled_with", {})
    paths = [jax.tree_util.keystr(path).lstrip(".") for path, _ in jax.tree_util.tree_leaves_with_path(data)]

    def one(path: str, leaf: Any, axis: int | None) -> Any:
        if axis is None:
            return put(leaf, replicated(mesh))
        if not 0 <= axis < np.ndim(leaf):
            raise ValueError(f"an array of shape {np.shape(leaf)} has no axis {axis}")
        length = _upwards(leaf.shape[axis], shards)
        spec = PartitionSpec(*(None,) * axis, name)
        return put(_filled(whole(leaf), axis, length, filled.get(path, 0)), NamedSharding(mesh, spec))

    return form.unflatten(map(one, paths, leaves, axes))


def _upwards(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


def _filled(array: np.ndarray, axis: int, length: int, value: Any = 0) -> np.ndarray:
    if array.shape[axis] == length:
        return array
    room = [(0, 0)] * array.ndim
    room[axis] = (0, length - array.shape[axis])
    return np.pad(array, room, constant_values=value)


def _by_task(leaf: Any, data: PyTree, mesh: Mesh) -> Any:
    """A part of the start where its task is, if it has one along its first axis; else everywhere."""
    own = np.ndim(leaf) > 0 and leaf.shape[0] == _tasks(data)
    return put(leaf, NamedSharding(mesh, PartitionSpec(mesh.axis_names[0])) if own else replicated(mesh))


def _tasks(data: PyTree) -> int:
    """How many tasks the data have: entries along the first axis of most arrays."""
    lengths = [leaf.shape[0] for leaf in jax.tree.leaves(data) if np.ndim(leaf)]
    if not lengths:
        raise ValueError("there is no array in the data that could be split")
    return max(lengths, key=lengths.count)


def _ordered(data: PyTree, order: Order) -> PyTree:
    if not hasattr(data, "order"):
        raise ValueError(
            "deterministic=True needs data with a field `order`, and f and g that take their sums with it: "
            "multitask.regression has one; for functions of your own see docs/parallel.md"
        )
    return data._replace(order=order)


def _with_mask(data: PyTree) -> PyTree:
    """Data of bs.apps with a 1 for each task, which those that are filled up do not get."""
    if getattr(data, "real", data) is not None:
        return data
    return data._replace(real=np.ones(_tasks(data)))


class Filled(eqx.Module):
    """A function of a problem whose data have tasks that were filled up: x, theta and y get zeros for them.

    counts: the number of entries along the first axis of each array of the point as it is, and as the function wants
    it; None for those that stay. answer: of which of the arguments it gives the gradient; None for a number.
    """

    function: Callable
    counts: tuple = eqx.field(static=True)
    answer: int | None = eqx.field(static=True, default=None)

    def __call__(self, *arguments: PyTree) -> PyTree:
        *point, data = arguments
        grown = lambda part, counts: jax.tree.map(_grown, part, _like(part, counts))
        filled = map(grown, point, self.counts)
        found = self.function(*filled, data)
        if self.answer is None:
            return found
        return jax.tree.map(_cut, found, _like(found, self.counts[self.answer]))


def _like(part: PyTree, counts: tuple) -> PyTree:
    return jax.tree.unflatten(jax.tree.structure(part), counts)


def _grown(leaf: Any, count: tuple[int, int]) -> Any:
    if count[0] == count[1]:
        return leaf
    return jnp.pad(leaf, [(0, count[1] - count[0])] + [(0, 0)] * (leaf.ndim - 1))


def _cut(leaf: Any, count: tuple[int, int]) -> Any:
    return leaf if count[0] == count[1] else leaf[: count[0]]


def _by_tasks(problem: Problem, start: Point, axes: list[int | None], mesh: Mesh, shards: int) -> Problem:
    """Data split by tasks; where they were filled up, functions that fill up x, theta and y."""
    tasks = _tasks(problem.data)
    more = _upwards(tasks, shards)
    if tasks == more:
        return replace(problem, data=_sharded(problem.data, axes, mesh, shards))
    data = _with_mask(problem.data)
    data = _sharded(data, _axes(data, "tasks") if data is not problem.data else axes, mesh, shards)
    grows = lambda leaf: (tasks, more) if np.ndim(leaf) and leaf.shape[0] == tasks else (0, 0)
    x, theta, y = (tuple(map(grows, jax.tree.leaves(part))) for part in (start.x, start.theta, start.y))
    # an x for all tasks may happen to be as long as there are tasks: then f and g do not take it filled up
    choices = product(*(((tasks, more), (0, 0)) if count[0] else ((0, 0),) for count in x))
    made = (_with_filled(problem, data, (choice, theta, y)) for choice in islice(choices, MOST_CHOICES))
    found = next((one for one in made if _fits(one, start)), None)
    if found is None:
        raise ValueError(f"f and g do not take {more} tasks in place of {tasks}; write them for any number of tasks")
    return found


def _with_filled(problem: Problem, data: PyTree, counts: tuple) -> Problem:
    x, theta, y = counts
    # of each function what it takes, and of what it gives the gradient
    takes = {"f_x": (counts, 0), "f_theta": (counts, 1), "f_y": (counts, 2), "g_theta": ((x, theta), 1)}
    takes |= {"g_theta_theta": ((x, theta, theta), 1), "g_theta_x": ((x, theta, theta), 0)}
    by_hand = {name: getattr(problem.derivatives, name) for name in takes}
    made = {name: Filled(function, *takes[name]) for name, function in by_hand.items() if function is not None}
    return replace(
        problem,
        upper=Filled(problem.upper, counts),
        lower=None if problem.lower is None else Filled(problem.lower, (x, theta)),
        data=data,
        derivatives=Derivatives(**made),
    )


def _fits(problem: Problem, start: Point) -> bool:
    """Whether f and g take what they are given."""
    try:
        jax.eval_shape(problem.upper, start.x, start.theta, start.y, problem.data)
        if problem.lower is not None:
            jax.eval_shape(problem.lower, start.x, start.theta, problem.data)
    except Exception:  # whatever a function of the user's raises
        return False
    return True


def _check_same(problem: Problem, placed: Problem, start: Point, mesh: Mesh) -> None:
    """ValueError unless f, g and their gradients in theta are, at the start, what they were before the filling up."""
    kind = _kind(mesh)

    def values(functions: Problem, x: PyTree, theta: PyTree, y: PyTree) -> list:
        found = [jax.value_and_grad(functions.upper, (0, 1, 2))(x, theta, y, functions.data)]
        if functions.lower is not None:
            found.append(jax.grad(functions.lower, 1)(x, theta, functions.data))
        return jax.tree.leaves(found)

    # away from the start, where much is zero
    moved = jax.tree.map(lambda leaf: leaf + 0.01 * jnp.arange(1, leaf.size + 1).reshape(leaf.shape) / leaf.size, start)
    point = jax.tree.map(held_here, (moved.x, moved.theta, moved.y))
    before = jax.jit(values)(problem, *point)
    after = jax.jit(values, out_shardings=replicated(mesh))(placed, *(put_all(part, mesh) for part in point))
    for one, other in zip(before, after, strict=True):
        one, other = whole(one), whole(other)
        rounding = float(np.sqrt(np.finfo(one.dtype).eps)) * np.max(np.abs(one), initial=0.0)
        if not np.max(np.abs(one - other), initial=0.0) <= rounding:
            raise ValueError(
                f"filling up the {kind} has changed f or g: a weight for each of the {kind} is needed in the data, 1 "
                "everywhere, which becomes 0 where it is filled up, and by which f and g multiply and count; or use a "
                f"number of {kind} that {mesh.size} divides"
            )


def put_all(tree: PyTree, mesh: Mesh) -> PyTree:
    return jax.tree.map(lambda leaf: put(leaf, replicated(mesh)), tree)
