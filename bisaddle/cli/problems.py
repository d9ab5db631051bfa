"""From what the user names to (problem, start): a CSV file for an application, or a Python function.

A specification is JSON; `build` makes the same problem of it again, which is what `certify` needs.
"""

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from bisaddle.cli.errors import DATA, USAGE, Failure, one_line


class Built(NamedTuple):
    """words: what the problem is. rows: the data set that it is made of, if it is."""

    problem: Any
    start: Any
    words: str
    rows: Any = None


def function_specification(reference: str, seed: int | None) -> dict[str, Any]:
    """model.py:function or package.module:function; a module is looked for in the current folder too."""
    module, _, function = reference.rpartition(":")
    if not module or not function.isidentifier():
        raise Failure(
            f"PROBLEM is {reference!r}; `multitask` with a CSV file, or model.py:function or package.module:function "
            "is needed, the function returning (problem, start)",
            USAGE,
        )
    place: dict[str, Any] = {"kind": "function", "function": function, "seed": seed, "folder": str(Path.cwd())}
    if module.endswith(".py"):
        path = Path(module).expanduser().absolute()
        if not path.is_file():
            raise Failure(f"{path} is not there; a Python file is needed before the colon", USAGE)
        return place | {"file": str(path), "folder": str(path.parent), "sha256": _sha256(path)}
    return place | {"module": module}


def build(specification: dict[str, Any], beside: Sequence[Path] = (), rows: Any = None) -> tuple[Built, dict[str, Any]]:
    """The problem, and the specification with what was found on the way (checksums).

    beside: folders in which a file that is no longer at its place is looked for. rows: what `rows_of` has read.
    """
    kind = specification.get("kind")
    if kind not in ("multitask", "function"):
        raise Failure(f"a problem of kind {kind!r} is given; multitask or function is needed", USAGE)
    if kind == "multitask":
        return _multitask(specification, rows or rows_of(specification, beside))
    return _function(specification, beside)


def rows_of(given: dict[str, Any], beside: Sequence[Path] = ()) -> Any:
    """The data set of a CSV file, read and checked; None for a function. Needs no JAX."""
    if given.get("kind") != "multitask":
        return None
    from bisaddle import datasets

    file = _found(Path(given["file"]), beside)
    chosen = {name: given[name] for name in ("features", "train", "standardize", "seed")}
    rows = datasets.from_csv(file, given["target"], given["task_column"], **chosen)
    sha256 = rows.config["files"][file.name]
    if given.get("sha256") not in (None, sha256):
        raise datasets.ChecksumError(
            f"{file} is not the file that the result was computed from: sha256 {sha256} found, {given['sha256']} "
            "needed; put the old file beside the result, or solve again"
        )
    return rows


def trusted(specification: dict[str, Any], named: str | None, beside: Sequence[Path] = ()) -> dict[str, Any]:
    """A specification from a file, whose code may be run: the user has named it, or it is what it was, to the byte.

    Nothing is imported to find that out.
    """
    if named is not None:
        if specification.get("kind") != "function":
            raise Failure("--problem is for a problem that comes from a function; this one is of a CSV file", USAGE)
        return function_specification(named, specification.get("seed"))
    if specification.get("kind") != "function":
        return specification
    place = _code_file(specification, beside)
    if place is None or _sha256(place) != specification.get("sha256"):
        source = specification.get("file") or specification.get("module")
        what = "is not there" if place is None else "has changed since"
        raise Failure(
            f"{source} {what}, and no other code is run because a file names it; to use the function as it is now, "
            f"name it: --problem {Path(str(source)).name}:{specification.get('function')}",
            DATA,
        )
    return specification


def _code_file(specification: dict[str, Any], beside: Sequence[Path]) -> Path | None:
    """The file of the function's module, found without an import; None if there is none."""
    if "file" in specification:
        found = _found(Path(specification["file"]), beside)
        return found if found.is_file() else None
    return _module_file(str(specification.get("module")), str(specification.get("folder")))


def _module_file(module: str, folder: str) -> Path | None:
    path, name, origin = [folder, *sys.path], "", None
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        found = None if path is None else PathFinder.find_spec(name, path)
        path, origin = (None, None) if found is None else (found.submodule_search_locations, found.origin)
    return Path(origin) if origin is not None and Path(origin).is_file() else None


def _multitask(given: dict[str, Any], rows: Any) -> tuple[Built, dict[str, Any]]:
    from bisaddle.apps import multitask

    sizes = {name: given[name] for name in ("radius", "ridge", "divergence")}
    problem, start = multitask.regression(list(rows.tasks), **sizes)
    words = f"robust multi-task regression, {rows.label}: {len(rows.tasks)} tasks, {rows.config['rows']} rows, "
    words += f"{len(rows.features)} features"
    return Built(problem, start, words, rows), given | {"sha256": rows.config["files"][Path(given["file"]).name]}


def _function(given: dict[str, Any], beside: Sequence[Path]) -> tuple[Built, dict[str, Any]]:
    place = _found(Path(given["file"]), beside) if "file" in given else None
    source = place.name if place else given["module"]
    function, name = _load(given, place, source), f"{source}:{given['function']}"
    arguments = _arguments(function, name, given["seed"])
    try:
        returned = function(**arguments)
    except (Exception, SystemExit) as error:
        raise Failure(f"{name} raised {one_line(error)}", USAGE) from error
    source_file = place or _module_file(given["module"], given["folder"])
    return Built(*_pair(returned, name), words=name), given | ({"sha256": _sha256(source_file)} if source_file else {})


def _load(given: dict[str, Any], place: Path | None, name: str) -> Callable[..., Any]:
    sys.path.insert(0, str(place.parent if place else given["folder"]))
    try:
        if place is None:
            module = importlib.import_module(given["module"])
        else:
            specification = importlib.util.spec_from_file_location(f"_bisaddle_user_{place.stem}", place)
            assert specification is not None
            module = importlib.util.module_from_spec(specification)
            sys.modules[specification.name] = module  # for classes defined in it
            # not by its loader, which may take other code from __pycache__ than the source that was looked at
            exec(compile(place.read_bytes(), place, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        raise Failure(f"{name} cannot be imported: {one_line(error)}", USAGE) from error
    finally:
        sys.path.pop(0)
    found = getattr(module, given["function"], None)
    if not callable(found):
        own = [
            key
            for key, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__
        ]
        raise Failure(f"{name} has no function {given['function']}; it has {', '.join(own) or 'none'}", USAGE)
    return found


def _arguments(function: Callable[..., Any], name: str, seed: int | None) -> dict[str, int]:
    parameters = inspect.signature(function).parameters
    needed = [
        key
        for key, value in parameters.items()
        if value.default is value.empty
        and value.kind not in (value.VAR_POSITIONAL, value.VAR_KEYWORD)
        and key != "seed"
    ]
    if needed:
        raise Failure(f"{name} has parameters without a default: {', '.join(needed)}; only `seed` can be given", USAGE)
    if seed is not None and "seed" not in parameters:
        raise Failure(f"{name} has no parameter `seed`; leave --seed out, or add it to the function", USAGE)
    if "seed" not in parameters or (seed is None and parameters["seed"].default is not inspect.Parameter.empty):
        return {}
    return {"seed": seed or 0}


def _pair(returned: Any, name: str) -> tuple[Any, Any]:
    from bisaddle.problem import Point, Problem

    if isinstance(returned, tuple) and len(returned) == 2:
        if isinstance(returned[0], Problem) and isinstance(returned[1], Point):
            return returned
        given = f"({', '.join(type(item).__name__ for item in returned)})"
    else:
        given = type(returned).__name__
    raise Failure(
        f"{name} returned {given}; (problem, start) is needed: a bisaddle.Problem and a bisaddle.Point", USAGE
    )


def _found(path: Path, beside: Sequence[Path]) -> Path:
    """The path, or the file of that name in one of the other folders."""
    return next((place for place in (path, *(folder / path.name for folder in beside)) if place.is_file()), path)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
