"""Chunks over the devices of a mesh: each process brings its own, and all of them side by side are one chunk."""

from typing import Any
from zlib import crc32

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from bisaddle.devices import placed
from bisaddle.programs import on_device

LASTS = (None, "drop", "pad")


def gathered(array: np.ndarray) -> np.ndarray:
    """This array of float64 of every process, along a new first axis; every process has to ask for it."""
    from jax.experimental.multihost_utils import process_allgather

    bits = process_allgather(np.ascontiguousarray(array).view(np.uint32))  # float64, whatever jax is set to
    return np.asarray(bits).view(np.float64)


class Spread:
    """Where the rows of a chunk go. rows: how many each process has in all its chunks, size: in one of them."""

    def __init__(self, mesh: Mesh, rows: list[int], size: int):
        self.mesh, self.rows, self.size = mesh, rows, size
        self.places = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))
        self.mine = [device for device in mesh.devices.flat if device.process_index == jax.process_index()]
        self.each = size // len(self.mine)  # rows for a device

    def put(self, chunk: PyTree) -> PyTree:
        """This process's chunk as its part of the chunk of all; nothing is sent."""

        def one(leaf: np.ndarray) -> jax.Array:
            shape = (self.each * self.mesh.size, *leaf.shape[1:])
            cut = [leaf[i * self.each : (i + 1) * self.each] for i in range(len(self.mine))]
            parts = [jax.device_put(part, device) for part, device in zip(cut, self.mine, strict=True)]
            return jax.make_array_from_single_device_arrays(shape, self.places, parts)

        return jax.tree.map(one, chunk)

    def everywhere(self, tree: PyTree) -> PyTree:
        """What is not streamed, on every device."""
        return placed(on_device(tree), self.mesh)

    def share(self, i: int) -> float:
        """Of the rows of all processes, those that the chunks i have."""
        return sum(min(self.size, rows - i * self.size) for rows in self.rows) / sum(self.rows)


def spread(mesh: Any, rows: int, facts: dict[str, int], form: Any) -> Spread | None:
    """Over this mesh, or over all devices where there are several processes; None: on one device.

    facts: numbers of the chunks that have to be the same in every process, size among them; form: the arrays, likewise.
    ValueError in all processes, if they cannot go together.
    """
    processes = jax.process_count()
    if mesh is None and processes > 1:
        mesh = Mesh(np.array(jax.devices()), ("rows",))
    if mesh is None or (isinstance(mesh, Mesh) and mesh.size == 1):
        return None
    if not isinstance(mesh, Mesh) or len(mesh.axis_names) != 1:
        raise ValueError(f"mesh of Chunks must have one axis, given {mesh!r}; use bs.parallel.mesh('rows')")
    owners = [device.process_index for device in mesh.devices.flat]
    devices = [owners.count(i) for i in range(processes)]
    if len(set(devices)) > 1:
        raise ValueError(f"every process needs as many devices in the mesh of Chunks, given {_each(devices)}")
    everyone = [rows]
    if processes > 1:
        facts = facts | {"arrays": crc32(repr(form).encode())}
        table = gathered(np.array([rows, *facts.values()], float))
        everyone = table[:, 0].astype(int).tolist()
        for name, found in zip(facts, table[:, 1:].T.astype(int).tolist(), strict=True):
            if len(set(found)) > 1:
                given = f"here {form[1]}" if name == "arrays" else _each(found)
                raise ValueError(f"every process needs the same {NAMES[name]} in its Chunks, given {given}")
    size = facts["size"]
    if size % devices[0]:
        raise ValueError(
            f"chunks of {size} rows cannot be split over {devices[0]} devices of a process; use "
            f"size={_near(size, devices[0])}"
        )
    return Spread(mesh, everyone, size)


NAMES = {
    "count": "number of chunks",
    "size": "number of rows in a chunk (size)",
    "steps": "steps",
    "seed": "seed",
    "shuffle": "shuffle",
    "last": f"last (of {', '.join(map(repr, LASTS))}, by its number)",
    "arrays": "arrays (names, shapes but for rows, dtypes)",
}


def _near(size: int, devices: int) -> int:
    return max(size // devices, 1) * devices


def _each(numbers: list[int]) -> str:
    return ", ".join(f"{number} in process {i}" for i, number in enumerate(numbers))
