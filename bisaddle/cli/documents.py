"""Result files: JSON with the point, its certificate, how it came about and what rebuilds its problem."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from bisaddle.cli.errors import DATA, Failure
from bisaddle.report.files import finite, versions, write
from bisaddle.report.sentences import certificate_document

FORMAT = "bisaddle result 1"
# the keys of an array
ARRAY = {"dtype", "shape", "values"}


def tree_document(tree: Any) -> Any:
    """Arrays as {"dtype", "shape", "values"} inside the dicts, lists and tuples of the tree; other nodes as a list."""
    if tree is None:
        return None
    if isinstance(tree, dict):
        return {str(key): tree_document(tree[key]) for key in sorted(tree)}
    if isinstance(tree, list | tuple):
        return [tree_document(item) for item in tree]
    if hasattr(tree, "dtype"):
        array = np.asarray(tree)
        return {"dtype": str(array.dtype), "shape": list(array.shape), "values": finite(array.tolist())}
    import jax

    return [tree_document(leaf) for leaf in jax.tree.leaves(tree)]


def tree_from(document: Any, like: Any, name: str) -> Any:
    """The tree again, in the structure of `like`; float64 arrays where like has floating-point ones."""
    import jax
    import jax.numpy as jnp

    leaves, structure = jax.tree.flatten(like)
    found = jax.tree.leaves(document, is_leaf=lambda part: isinstance(part, dict) and ARRAY <= set(part))
    shapes = [tuple(leaf["shape"]) for leaf in found]
    needed = [leaf.shape for leaf in leaves]
    if shapes != needed:
        raise Failure(f"the {name} of the result has shapes {shapes}; the problem as rebuilt needs {needed}", DATA)
    arrays = [np.array(leaf["values"], dtype=np.dtype(leaf["dtype"])).reshape(leaf["shape"]) for leaf in found]
    # arithmetic in float64, whatever the run used
    wide = [a.astype(np.float64) if np.issubdtype(a.dtype, np.floating) else a for a in arrays]
    return structure.unflatten([jnp.asarray(array) for array in wide])


def result_document(result: Any, problem: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """starts: where each of several starts has ended, the first one first; empty for a run from one start."""
    starts = [
        {
            "status": str(one.status),
            "gap": float(one.certificate.gap),
            "worst_value": float(one.certificate.worst_value),
            "degenerate": bool(one.certificate.degenerate),
        }
        for one in result.starts
    ]
    columns = result.trace.to_dict().items()
    trace = {name: (column if column.dtype.kind == "f" else column.astype(int)).tolist() for name, column in columns}
    return {
        "format": FORMAT,
        "problem": problem,
        "settings": settings,
        "status": str(result.status),
        "advice": result.status.advice,
        "partial": str(result.status) == "INTERRUPTED",
        "starts": finite(starts),
        "steps": result.steps,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "certificate": certificate_document(result.certificate),
        "point": {name: tree_document(getattr(result.point, name)) for name in ("x", "theta", "y")},
        "trace": finite(trace),
        "versions": versions("bisaddle", "python", "jax", "jaxlib", "numpy"),
    }


def save(document: Any, path: Path) -> None:
    write(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def load(path: Path) -> dict[str, Any]:
    """A result file; anything else is refused by name."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(
            f"{path} cannot be read ({error.strerror or error}); a result of `solve --out` is needed", DATA
        ) from error
    except ValueError as error:
        raise Failure(f"{path} is not a result file, or is truncated: {error}", DATA) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Failure(f'{path} is not a result file: `"format": "{FORMAT}"` is needed; use one of `solve --out`', DATA)
    missing = [
        key for key in ("problem", "settings", "point", "certificate") if not isinstance(document.get(key), dict)
    ]
    if missing:
        raise Failure(f"{path} lacks {', '.join(missing)}; a result of `solve --out` has them", DATA)
    return document


def certified_tol(path: Path) -> float | None:
    """The gap to which the result in a file is certified; None if there is no such result."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        certified = document["format"] == FORMAT and document["status"] == "CERTIFIED"
        return float(document["settings"]["tol"]) if certified else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
