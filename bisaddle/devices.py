"""Arrays on several devices and hosts: on which mesh they lie, a copy of all of one, and what all processes agree on.

Nothing here costs anything where all arrays lie on one device.
"""

from collections.abc import Callable, Sequence
from functools import cache, reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree


def mesh_of(tree: PyTree) -> Mesh | None:
    """The mesh that a first array lies on, if it is one of more than one device."""
    for leaf in jax.tree.leaves(tree):
        sharding = getattr(leaf, "sharding", None)
        if isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh) and sharding.mesh.size > 1:
            return sharding.mesh
    return None


def replicated(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def put(array: Any, sharding: NamedSharding) -> Array:
    """An array that every process has all of, placed: each process takes its own part, and none is sent."""
    if isinstance(array, jax.Array) and jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        return jax.device_put(array, sharding)
    array = whole(array)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def placed(tree: PyTree, mesh: Mesh | None) -> PyTree:
    """The arrays of a tree all on the mesh: those that are not there yet in full on every device."""
    if mesh is None:
        return tree
    there = set(mesh.devices.flat)
    on_mesh = lambda leaf: isinstance(leaf, jax.Array) and leaf.sharding.device_set == there
    return jax.tree.map(lambda leaf: leaf if on_mesh(leaf) else put(leaf, replicated(mesh)), tree)


def like(tree: PyTree, places: PyTree) -> PyTree:
    """The arrays of a tree, placed as those of another one of the same structure are."""

    def one(leaf: Any, place: Any) -> Any:
        there = mesh_of(place) is None or getattr(leaf, "sharding", None) == place.sharding
        return leaf if there else put(leaf, place.sharding)

    return jax.tree.map(one, tree, places)


def everywhere(array: Array, mesh: Mesh | None) -> Array:
    """Inside a program: all of an array on every device. Vectors put together of split parts would cost far more."""
    return array if mesh is None else jax.lax.with_sharding_constraint(array, replicated(mesh))


def gathered(tree: PyTree, tasks: int, mesh: Mesh | None) -> PyTree:
    """Inside a program: all of every array that has an entry for each of the tasks on every device.

    They are sent together, and as a sum, with zeros for the entries of other devices: it goes in one collective with
    other sums, where a gather would be one more.
    """
    if mesh is None or mesh.axis_names[0] != "tasks":
        return tree
    leaves, form = jax.tree.flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if leaf.ndim and leaf.shape[0] == tasks]
    if not places:
        return tree
    rows = [leaves[i].reshape(tasks, -1) for i in places]
    ends = np.cumsum([row.shape[1] for row in rows])[:-1].tolist()
    parts = jnp.split(_summed(jnp.concatenate(rows, axis=1), mesh), ends, axis=1)
    for i, part in zip(places, parts, strict=True):
        leaves[i] = part.reshape(leaves[i].shape)
    return form.unflatten(leaves)


def _summed(rows: Array, mesh: Mesh) -> Array:
    count, name = -(-len(rows) // mesh.size) * mesh.size, mesh.axis_names[0]
    filled = jnp.pad(rows, ((0, count - len(rows)), (0, 0)))

    def send(own: Array) -> Array:
        full = jnp.zeros((count, own.shape[1]), own.dtype)
        return jax.lax.psum(
            jax.lax.dynamic_update_slice_in_dim(full, own, jax.lax.axis_index(name) * len(own), 0), name
        )

    at, everywhere = PartitionSpec(name), PartitionSpec()
    summed = jax.shard_map(send, mesh=mesh, in_specs=at, out_specs=everywhere, check_vma=False)
    return summed(filled)[: len(rows)]


@jax.tree_util.register_static
class Order:
    """Sums whose digits do not depend on the number of devices: of `count` parts of equal length, then one by one.

    along: "tasks" or "rows", what the parts are of. mesh: whose devices have them. It is static, and may stand in the
    data: `total` and `in_order` ask for it.
    """

    def __init__(self, along: str, count: int, mesh: Mesh):
        self.along, self.count, self.mesh = along, count, mesh if mesh.size > 1 else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Order) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((self.along, self.count, self.mesh))

    def parts(self, function: Callable, split: Sequence[tuple[Array, int]], common: Sequence[Array] = ()) -> PyTree:
        """function(*part of each array along its axis, *common) of every part, along a new first axis, on all devices.

        The same program makes every part, one after the other, however many of them a device has: only so have they the
        same digits. So every device counts through all parts, and leaves out those of others: compilers write other
        programs for shorter loops. Derivatives of any order have the same digits too, since a sum over the parts is
        one by one there as well; what they need of a part is made again for them, and not kept.
        """
        arrays, axes = [array for array, _ in split], [axis for _, axis in split]
        # one of each for every part, added up in their order where a derivative goes back through it
        copies = [everywhere(jnp.stack([array] * self.count), self.mesh) for array in common]
        here = self.count if self.mesh is None else self.count // self.mesh.size
        name = None if self.mesh is None else self.mesh.axis_names[0]

        def made(*given: Array) -> PyTree:
            own, copies = given[: len(arrays)], given[len(arrays) :]
            first = 0 if name is None else jax.lax.axis_index(name) * here

            @jax.checkpoint
            def one(i: Array) -> PyTree:
                place = jnp.clip(i - first, 0, here - 1)
                cut = lambda array, axis: jax.lax.dynamic_slice_in_dim(
                    array, place * (n := array.shape[axis] // here), n, axis
                )
                of_part = [cut(array, axis) for array, axis in zip(own, axes, strict=True)]
                mine = (i >= first) & (i < first + here)
                return _alone(function, *of_part, *(copy[place] for copy in copies), when=mine)

            every = jax.lax.map(one, jnp.arange(self.count))
            return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, here), every)

        if self.mesh is not None:
            specs = [PartitionSpec(*(None,) * axis, name) for axis in axes] + [PartitionSpec(name)] * len(copies)
            made = jax.shard_map(
                made, mesh=self.mesh, in_specs=tuple(specs), out_specs=PartitionSpec(name), check_vma=False
            )
        return jax.tree.map(lambda leaf: everywhere(leaf, self.mesh), made(*arrays, *copies))

    def join(self, parts: Array) -> Array:
        """The sum of the parts, from the first to the last."""
        return reduce(jnp.add, [parts[i] for i in range(self.count)])


def _alone(function: Callable, *arrays: Array, when: Any = True) -> PyTree:
    """function(*arrays), compiled by itself: what is fused with it, and rounded otherwise, would depend on where it is.

    The branch of a condition is. This one is always met, which the compiler does not see. when: zeros if it is not.
    """
    if not arrays:  # of data alone: there is nothing to be fused with
        return function()
    found = jax.eval_shape(function, *arrays)
    never = lambda *_: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), found)
    met = when & ~(jax.lax.stop_gradient(arrays[0].ravel()[0]) > jnp.inf)
    return jax.lax.cond(met, function, never, *arrays)


def in_order(
    order: Order | None, function: Callable, rows: Sequence[Array], tasks: Sequence[Array], *vectors: Array
) -> Array:
    """function(*rows, *tasks, *vectors), part by part if there is an order; it gives an entry for each task.

    rows: data with the tasks along their first and the rows along their second axis, over which it takes a sum; tasks:
    data with the tasks only; vectors: with the tasks, and not among the data. Parts of tasks are put together, those of
    rows added up.
    """
    if order is None:
        return function(*rows, *tasks, *vectors)

    def made(*vectors: Array) -> Array:
        if order.along == "tasks":
            parts = order.parts(function, [(array, 0) for array in (*rows, *tasks, *vectors)])
            return parts.reshape(-1, *parts.shape[2:])
        return order.join(order.parts(function, [(array, 1) for array in rows], (*tasks, *vectors)))

    # what the vectors are made of is not to be split over devices too
    return _alone(made, *(everywhere(jnp.asarray(vector), order.mesh) for vector in vectors))


def summed(
    function: Callable, order: Order | None, rows: Sequence[Array], split: Sequence[Array] = (), common: PyTree = ()
) -> Array:
    """function(*rows, *split, *common), a sum over rows or tasks, part by part if there is an order.

    rows: arrays of the data, with the rows or tasks along their first axis; split: arrays that have them too, but are
    not of the data, as theta by tasks; common: trees that all of them use. function takes any number of rows, and gives
    their sum. JAX's derivatives of it, of any order, have the same digits on any number of devices.
    """
    if order is None:
        return function(*rows, *split, *common)
    leaves, form = jax.tree.flatten(tuple(common))
    many = len(rows) + len(split)
    of_part = lambda *given: function(*given[:many], *form.unflatten(given[many:]))

    def made(*vectors: Array) -> Array:
        parts = [(array, 0) for array in (*rows, *vectors[: len(split)])]
        return order.join(order.parts(of_part, parts, vectors[len(split) :]))

    # what the vectors are made of is not to be split over devices too
    return _alone(made, *(everywhere(jnp.asarray(vector), order.mesh) for vector in (*split, *leaves)))


def total(values: Array, axis: int, order: Order | None, along: str) -> Array:
    """The sum along an axis, over tasks or over rows, in this order if there is one for them."""
    if order is None or order.along != along:
        return jnp.sum(values, axis=axis)
    of_parts = lambda values: order.join(order.parts(lambda part: jnp.sum(part, axis=axis), [(values, axis)]))
    return _alone(of_parts, everywhere(values, order.mesh)) if along == "tasks" else of_parts(values)


def is_elsewhere(leaf: Any) -> bool:
    """Whether a part of an array lies on other hosts only."""
    return isinstance(leaf, jax.Array) and not leaf.is_fully_replicated and not leaf.is_fully_addressable


def whole(leaf: Any) -> np.ndarray:
    """All of an array, as NumPy's. Where a part of it lies on other hosts, every process has to ask for it."""
    if is_elsewhere(leaf):
        leaf = _copied(leaf.sharding.mesh)(leaf)
    return np.asarray(leaf)


def held_here(leaf: Any) -> Any:
    """An array of a mesh as one that this host has all of, as a file can hold it."""
    return jax.device_put(whole(leaf)) if mesh_of(leaf) is not None else leaf


def axes_of(leaf: Any) -> list:
    """Along which axes of its mesh an array is split, as lists of their names: one for each axis of the array."""
    sharding = getattr(leaf, "sharding", None)
    spec = sharding.spec if isinstance(sharding, NamedSharding) else ()
    return [[] if names is None else [names] if isinstance(names, str) else list(names) for names in spec]


def split(leaf: Any, axes: list, mesh: Mesh) -> Array:
    """An array placed as `axes_of` tells, as far as the mesh has axes of these names."""
    known = [tuple(name for name in names if name in mesh.axis_names) for names in axes]
    return put(leaf, NamedSharding(mesh, PartitionSpec(*(names or None for names in known))))


def content_sums(array: Any) -> str:
    """128 bits that tell arrays apart, the same however an array is split: no part of it is sent anywhere."""
    return "".join(f"{int(word):08x}" for word in np.asarray(_sums(array)))


@jax.jit
def _sums(array: Array) -> Array:
    if array.dtype.itemsize < 4 or array.dtype == bool:
        array = array.astype(jnp.int32)
    words = jax.lax.bitcast_convert_type(array, jnp.uint32)
    place = jnp.zeros(words.shape, jnp.uint32)
    for axis, length in enumerate(words.shape):
        place = place * np.uint32(length % 2**32) + jax.lax.broadcasted_iota(jnp.uint32, words.shape, axis)

    def mixed(seed: int) -> Array:
        h = (words ^ (place * np.uint32(0x9E3779B9) + np.uint32(seed))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
        h = ((h ^ (h >> 16)) + place) * np.uint32(0x27D4EB2F)
        return h ^ (h >> 15)

    # Sums of whole numbers do not depend on their order. One reduction for all four: XLA then makes no copy of the
    # array, where four sums would take four.
    four = tuple(mixed(seed) for seed in (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344))
    add = lambda some, more: tuple(map(jnp.add, some, more))
    return jnp.stack(jax.lax.reduce(four, (np.uint32(0),) * 4, add, tuple(range(words.ndim))))


@cache
def _copied(mesh: Mesh) -> Callable[[Array], Array]:
    return jax.jit(lambda a: a, out_shardings=replicated(mesh))


# what JAX's words begin with where a collective was broken off: in a ValueError, where a program was not waited for
BROKEN = ("UNKNOWN", "UNAVAILABLE", "INTERNAL", "ABORTED", "CANCELLED", "DEADLINE_EXCEEDED")


def is_lost(error: BaseException | None) -> bool:
    """Whether it may come from another process that has ended, and not from too little memory or a mistake here."""
    words = str(error)
    if isinstance(error, jax.errors.JaxRuntimeError):
        return "RESOURCE_EXHAUSTED" not in words
    return isinstance(error, ValueError) and words.startswith(tuple(f"{status}: " for status in BROKEN))


class Together:
    """What the processes of one run agree on: they ask the same questions in the same order, each with its own numbers.

    One small collective for each question. mesh: on whose devices the run is. first: whether this process is the one
    that writes files. left: how an exception has left the last run of several processes in this one, in which the
    others may be waiting: "lost", since it lost one of them, or "own".
    """

    left: ClassVar[str | None] = None

    def __init__(self, mesh: Mesh):
        devices = mesh.devices.ravel()
        self.mesh = Mesh(devices, ("all",))
        self.first = jax.process_index() == min(device.process_index for device in devices)
        self.places = NamedSharding(self.mesh, PartitionSpec("all"))

    @classmethod
    def of(cls, tree: PyTree) -> "Together | None":
        """Of a run on these arrays; None if they all lie on this host."""
        mesh = mesh_of(tree)
        processes = set() if mesh is None else {device.process_index for device in mesh.devices.flat}
        return cls(mesh) if mesh is not None and len(processes) > 1 else None

    def largest(self, *numbers: float) -> list[float]:
        """Of each number the largest that a process has given."""
        mine = np.asarray(numbers, np.float32)[None]
        rows = jax.make_array_from_callback((self.mesh.size, len(numbers)), self.places, lambda index: mine)
        return np.asarray(_largest(self.mesh)(rows)).tolist()

    def any(self, *flags: bool, mark: int = 0) -> list[bool]:
        """Of each flag whether one process at least has raised it.

        mark: 32 bits that must be the same everywhere, such as a checksum of where a run stands; RuntimeError if not.
        """
        halves = (mark & 0xFFFF, mark >> 16 & 0xFFFF)  # exact in float32
        found = self.largest(*flags, *halves, *(-half for half in halves))
        count = len(flags)
        if found[count : count + 2] != [-least for least in found[count + 2 :]]:
            raise RuntimeError(
                "the processes of this run are not at the same place: their hosts compute with other versions or "
                "another kind of processor; use the same on all of them"
            )
        return [flag > 0 for flag in found[:count]]


@cache
def _largest(mesh: Mesh) -> Callable[[Array], Array]:
    return jax.jit(lambda rows: jnp.max(rows, axis=0), out_shardings=replicated(mesh))
