"""Arrays on several devices and hosts, kept in a folder and never gathered: orbax writes each process's own part."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import PyTree

from bisaddle.devices import Together, content_sums, mesh_of

# what the folder says of itself, beside orbax's own files: of each array its name and its sums, since orbax finds no
# damage to the numbers
SUMS = "bisaddle_sums"


def save(folder: str | os.PathLike, tree: PyTree) -> None:
    """Keep a tree of arrays, such as a State or a Point, in a new folder; every process writes its own part.

    All processes that have a part call it with the same folder, on a disk that all of them reach. The folder is there
    once all of it is written, and not before. A folder that is there already is refused. Needs the extra `orbax`.
    """
    ocp = orbax("bs.parallel.save")
    folder = _folder(folder)
    names, leaves = _named(tree)
    stand_for = [_as_kept(name, leaf) for name, leaf in zip(names, leaves, strict=True)]
    refused, together = os.path.lexists(folder), Together.of(tree)
    if refused if together is None else together.any(refused)[0]:
        raise ValueError(f"{folder} is there already; remove it, or use another name")
    with _checkpointer(ocp, tree) as writer:
        sums = [[name, content_sums(leaf)] for name, leaf in zip(names, stand_for, strict=True)]
        writer.save(folder, args=ocp.args.StandardSave(_numbered(stand_for)), custom_metadata={SUMS: sums})


def restore(folder: str | os.PathLike, like: PyTree) -> PyTree:
    """What `save` has kept, with the structure of `like` and each array where the one of `like` is.

    The number of processes and devices may be another one than when it was saved; the digits are the same. All
    processes call it. like: arrays, such as `method.init(problem, start)`, whose numbers are not looked at, or
    jax.ShapeDtypeStruct with a sharding. Needs the extra `orbax`.
    """
    ocp = orbax("bs.parallel.restore")
    folder = _folder(folder)
    names, leaves = _named(like)
    with _checkpointer(ocp, like) as reader:
        sums = _checked(folder, reader, names, [_shaped(leaf) for leaf in leaves])
        wanted = _numbered([_wanted(leaf) for leaf in leaves])
        try:
            found = reader.restore(folder, args=ocp.args.StandardRestore(wanted))
        except Exception as error:  # tensorstore knows no other kind
            raise ValueError(f"{folder} is damaged: {error}") from error
    found = [found[key] for key in wanted]
    for name, leaf, kept in zip(names, found, sums, strict=True):
        if content_sums(leaf) != kept:
            raise ValueError(f"{folder} is damaged: {name} does not have the numbers that were saved")
    placed = [_placed(one, leaf) for one, leaf in zip(found, leaves, strict=True)]
    return jax.tree.unflatten(jax.tree.structure(like), placed)


def orbax(what: str) -> Any:
    """The module; ImportError with words, if it is not there. what: needs it."""
    try:
        return import_module("orbax.checkpoint")  # by its name: type checkers need not have it
    except ImportError as error:
        raise ImportError(f'{what} needs orbax; use pip install "bisaddle[orbax]"') from error


def _checkpointer(ocp: Any, tree: PyTree) -> Any:
    """Of the processes whose devices have the tree, which may not be all; of all where it lies on no mesh."""
    mesh, count = mesh_of(tree), jax.process_count()
    own = set(range(count)) if mesh is None else {device.process_index for device in mesh.devices.flat}
    if 0 not in own:  # and no other
        raise ValueError(
            "process 0 has to be among the processes whose devices have the arrays, since it is the one that writes "
            f"what all of them have, given processes {sorted(own)}; use a mesh with a device of process 0"
        )
    options = ocp.options.MultiprocessingOptions()
    if len(own) < count:  # they meet under a name that others, or all, do not use
        name = "-".join(["bisaddle", *map(str, sorted(own))])
        options = ocp.options.MultiprocessingOptions(active_processes=own, barrier_sync_key_prefix=name)
    handler = ocp.StandardCheckpointHandler(multiprocessing_options=options)
    return ocp.Checkpointer(handler, multiprocessing_options=options)


def _folder(given: str | os.PathLike) -> Path:
    if not isinstance(given, str | os.PathLike):
        raise ValueError(f"folder must be the name of a folder, given {type(given).__name__}")
    return Path(os.path.abspath(given))


def _named(tree: PyTree) -> tuple[list[str], list[Any]]:
    paths = jax.tree_util.tree_leaves_with_path(tree)
    if not paths:
        raise ValueError(f"there is no array in what was given ({type(tree).__name__}); give a State or a Point")
    return [jax.tree_util.keystr(path) or "the array" for path, _ in paths], [leaf for _, leaf in paths]


def _numbered(leaves: list[Any]) -> dict[str, Any]:
    """By numbers: the names of leaves have dots and brackets in them, which are no names of files."""
    return {f"{i:06d}": leaf for i, leaf in enumerate(leaves)}


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _is_spread(leaf: Any) -> bool:
    """Whether orbax is to place it: what one of several processes has by itself, all have, and the first writes."""
    sharding = getattr(leaf, "sharding", None)
    if sharding is None or not _is_tied(leaf):
        return False
    return jax.process_count() == 1 or not sharding.is_fully_addressable


def _is_tied(leaf: Any) -> bool:
    """Whether it was put where it is: other arrays, such as the number of the step, go wherever they are needed."""
    return getattr(leaf, "committed", True)


def _as_kept(name: str, leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array | np.ndarray | np.generic | bool | int | float):
        raise ValueError(f"{name} must be an array, given {type(leaf).__name__}")
    if isinstance(leaf, Tracer):
        raise ValueError(f"{name} is traced; call bs.parallel.save outside of jit, vmap and grad")
    if isinstance(leaf, jax.Array) and _is_key(leaf):
        leaf = jax.random.key_data(leaf)
    leaf = leaf if _is_spread(leaf) else np.asarray(leaf)
    if not any(jnp.issubdtype(leaf.dtype, kind) for kind in (np.bool_, np.integer, np.floating)):
        raise ValueError(f"{name} must be an array of real numbers, given {leaf.dtype}")
    return leaf


def _shaped(leaf: Any) -> tuple[tuple[int, ...], str]:
    """Shape and dtype of what is kept of it."""
    if not hasattr(leaf, "dtype"):
        leaf = np.asarray(leaf)
    if _is_key(leaf):
        leaf = jax.eval_shape(jax.random.key_data, leaf)
    return tuple(leaf.shape), str(np.dtype(leaf.dtype))


def _checked(folder: Path, reader: Any, names: list[str], shapes: list[tuple[tuple[int, ...], str]]) -> list[str]:
    """The sums of the arrays; ValueError unless the folder is one of `save`'s and holds such arrays."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is no folder; give one that bs.parallel.save has written")
    try:
        told = reader.metadata(folder)
        kept, sums = map(list, zip(*told.custom_metadata[SUMS], strict=True))
        held = {key: (tuple(one.shape), str(np.dtype(one.dtype))) for key, one in told.item_metadata.tree.items()}
    except (ValueError, OSError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder} is not whole, or nothing that bs.parallel.save has written: {error}") from error
    if kept != names:
        odd = sorted(set(kept) ^ set(names)) or ["the order"]
        raise ValueError(f"{folder} does not fit `like`: {len(kept)} arrays against {len(names)}; first by {odd[0]}")
    for name, shape, key in zip(names, shapes, _numbered(names), strict=True):
        if held.get(key) != shape:
            words = "nothing" if key not in held else "{1} of shape {0}".format(*held[key])
            raise ValueError(f"{folder} does not fit `like`: {name} is {words}, not {shape[1]} of shape {shape[0]}")
    return sums


def _wanted(leaf: Any) -> Any:
    shape, dtype = _shaped(leaf)
    if _is_spread(leaf) and not _is_key(leaf):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=leaf.sharding)
    return np.empty(shape, dtype)


def _placed(found: Any, leaf: Any) -> Any:
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        return found
    if _is_key(leaf):
        found = jax.random.wrap_key_data(found, impl=jax.random.key_impl(leaf))
    elif _is_spread(leaf):
        return found
    return jax.device_put(found, sharding if _is_tied(leaf) else None)
