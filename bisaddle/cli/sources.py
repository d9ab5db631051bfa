"""What methods and sets say of themselves, read from their source: importing them would take a second, for JAX."""

import ast
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bisaddle.lazy import declared
from bisaddle.methods import about as common

ROOT = Path(__file__).parents[1]


class Told(NamedTuple):
    """A class: its name, its docstring, and the About of a method."""

    name: str
    text: str
    about: common.About | None = None


def methods() -> dict[str, Told]:
    """The methods of bs.methods, in the order of bs.methods.table()."""
    modules = declared("bisaddle.methods").items()
    places = {name: ROOT / "methods" / module.rpartition(".")[2] for name, module in modules}
    found = [(common.place(told.name, told.about), told) for told in _told(places) if told.about is not None]
    return {told.name: told for _, told in sorted(found)}


def sets() -> dict[str, Told]:
    """The sets of bs.sets, in the order of their modules."""
    imports = [node for node in _tree(ROOT / "sets" / "__init__.py").body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: str(node.module).rpartition(".")[2] for node in imports for alias in node.names}
    places = {name: ROOT / "sets" / module for name, module in modules.items() if name != "ConvexSet"}
    found = {told.name: told for told in _told(places)}
    return {name: found[name] for name in places}


def _told(places: dict[str, Path]) -> Iterator[Told]:
    """The classes of these names, each from its module: a file, or a folder of files."""
    common_names = dict(vars(common))
    for place in dict.fromkeys(places.values()):
        for file in sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]:
            body = _tree(file).body
            names = common_names | _values(body, common_names)
            for node in body:
                if isinstance(node, ast.ClassDef) and places.get(node.name) == place:
                    own = _values(node.body, names)
                    yield Told(node.name, inspect.cleandoc(ast.get_docstring(node) or ""), own.get("about"))


def _values(body: Iterable[ast.stmt], names: dict[str, Any]) -> dict[str, common.About]:
    """The names that the statements give to an About made of these names."""
    found = {}
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        value = getattr(node, "value", None)
        if not (isinstance(value, ast.Call | ast.Name) and isinstance(targets[0], ast.Name)):
            continue
        used = {inner.id for inner in ast.walk(value) if isinstance(inner, ast.Name)}
        if used <= set(names):
            made = eval(compile(ast.Expression(value), "<about>", "eval"), dict(names))
            if isinstance(made, common.About):
                found[targets[0].id] = made
    return found


def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))
