"""Result files: JSON with the point, its certificate, how it came about and what rebuilds its problem."""

import json
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

import numpy as np

from bisaddle.cli.errors import DATA, Failure
from bisaddle.report.files import finite, parsed_json, read, versions, write
from bisaddle.report.records import CertificateNumbers, Number
from bisaddle.report.schema import check, shortened
from bisaddle.report.sentences import certificate_document

FORMAT = "bisaddle result 1"
DTYPES = ("float64", "float32", "int64", "int32", "uint32", "bool")


class Array(TypedDict):
    dtype: str
    shape: list[int]
    values: Any


class Multitask(TypedDict):
    """The specification of a problem that `build` reads, of a CSV file; of a function."""

    kind: str
    file: str
    target: str
    task_column: str
    features: list[str] | None
    radius: float
    ridge: float
    divergence: float
    train: float
    standardize: list[str]
    seed: int
    sha256: NotRequired[str]


class Function(TypedDict):
    kind: str
    function: str
    seed: int | None
    folder: str
    file: NotRequired[str]
    module: NotRequired[str]
    sha256: NotRequired[str]


class Settings(TypedDict):
    tol: float


class Parts(TypedDict):
    x: dict[str, Any] | list[Any]
    theta: dict[str, Any] | list[Any] | None
    y: dict[str, Any] | list[Any] | None


class ResultFile(TypedDict):
    """What `certify` reads of a result; the rest is for people."""

    problem: dict[str, Any]
    settings: Settings
    point: Parts
    certificate: CertificateNumbers


# the keys of an array
ARRAY = set(Array.__annotations__)


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
    found = jax.tree.leaves(document, is_leaf=lambda part: isinstance(part, dict) and bool(ARRAY & set(part)))
    arrays = [_array(leaf, name) for leaf in found]
    shapes, needed = [array.shape for array in arrays], [leaf.shape for leaf in leaves]
    if shapes != needed:
        raise Failure(f"{name} has arrays of shapes {shapes}; the problem as rebuilt needs {needed}", DATA)
    # arithmetic in float64, whatever the run used
    wide = [a.astype(np.float64) if np.issubdtype(a.dtype, np.floating) else a for a in arrays]
    return structure.unflatten([jnp.asarray(array) for array in wide])


def _array(document: Any, name: str) -> np.ndarray:
    """An array from its dtype, shape and values, which must agree; nothing larger than what the file has is made."""
    try:
        check(name, document, Array)
        if document["dtype"] not in DTYPES:
            raise ValueError(f"{name}.dtype must be one of {', '.join(DTYPES)}, given {shortened(document['dtype'])}")
        values, shape = np.array(document["values"], dtype=object), tuple(document["shape"])
        if values.shape != shape:
            raise ValueError(f"{name}.values are of shape {values.shape}, its shape says {shortened(shape)}")
        for value in values.flat:
            check(f"{name}.values", value, Number | bool)
        return values.astype(document["dtype"])
    except (ValueError, OverflowError) as error:
        raise Failure(f"{error}; an array of `solve --out` is needed", DATA) from error


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
        "reason": result.reason,
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
    """A result file, every field that `certify` reads of its type; anything else is refused by name."""
    try:
        document = parsed_json(read(path))
    except OSError as error:
        raise Failure(
            f"{path} cannot be read ({error.strerror or error}); a result of `solve --out` is needed", DATA
        ) from error
    except ValueError as error:
        raise Failure(f"{path} is not a result file, or is truncated: {error}", DATA) from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise Failure(f'{path} is not a result file: `"format": "{FORMAT}"` is needed; use one of `solve --out`', DATA)
    try:
        check("", document, ResultFile)
        lacking = CertificateNumbers.__annotations__.keys() - document["certificate"].keys()
        if lacking:
            raise ValueError(f"certificate has no {', '.join(sorted(lacking))}")
        problem = document["problem"]
        kind = check("problem.kind", problem.get("kind"), Literal["multitask", "function"])
        check("problem", problem, Multitask if kind == "multitask" else Function)
        if kind == "function" and not {"file", "module"} & set(problem):
            raise ValueError("problem has neither a file nor a module of its function")
    except ValueError as error:
        raise Failure(f"{path} is not a result of `solve --out`: {error}", DATA) from error
    return document


def certified_tol(path: Path) -> float | None:
    """The gap to which the result in a file is certified; None if there is no such result."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        certified = document["format"] == FORMAT and document["status"] == "CERTIFIED"
        return float(document["settings"]["tol"]) if certified else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
