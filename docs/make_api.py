"""Writes docs/api/*.md: every public name of bisaddle, for mkdocstrings; tests/test_docs.py keeps them complete.

python docs/make_api.py
"""

import ast
import inspect
from importlib import import_module
from pathlib import Path

import bisaddle as bs
from bisaddle.lazy import declared
from bisaddle.methods.base import public_methods

FOLDER = Path(__file__).with_name("api")

# the names of `bs` in the order of use; others follow by name
ORDER = ("Problem", "Point", "solve", "Result", "Status", "Certificate", "certify", "StepSizes", "Constants")
NOTE = "Made by `docs/make_api.py` from the code: do not edit.\n"
INDEX = f"""# The names of `bs`

{NOTE}
`import bisaddle as bs` gives these. The modules have pages of their own: [bs.sets](sets.md), [bs.methods](methods.md),
[bs.theory](theory.md), and [the others](modules.md). Under [Methods](../methods.md) and [Sets](../sets.md) the same
classes stand in tables.
"""
HEADS = {
    "sets": "Every set has the methods of `ConvexSet`; the table is under [Sets](../sets.md).",
    "methods": "`Method` is what all of them share; the table is under [Methods](../methods.md).",
    "theory": "What each function computes of the paper: [statement by statement](../statements.md).",
}
# of a method: what a new one writes, and what its users call
PARTS = ("default", "refusal", "check", "init", "first", "step", "counts")


def public(module) -> list[str]:
    """The names that a package hands on (`import X as X`), or that a module defines, if they say what they are."""
    source = Path(module.__file__)
    stub = source.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else source).read_text(encoding="utf-8"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names if alias.name == alias.asname}
    names |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return sorted(name for name in names if not name.startswith("_") and _is_told(getattr(module, name)))


def _is_told(value) -> bool:
    return (inspect.isclass(value) or inspect.isfunction(value)) and bool(inspect.getdoc(value))


def modules() -> list[str]:
    """The modules that are reached as bs.NAME."""
    return [name for name, module in declared("bisaddle").items() if module == f"bisaddle.{name}"]


def entry(path: str, **options) -> list[str]:
    lines = [f"::: {path}"]
    if options:
        lines += ["    options:", *(f"      {name}: {value}" for name, value in options.items())]
    return [*lines, ""]


def index() -> str:
    names = public(bs)
    ordered = [name for name in ORDER if name in names] + [name for name in names if name not in ORDER]
    return "\n".join([INDEX, *(line for name in ordered for line in entry(f"bisaddle.{name}"))])


def module_page(name: str) -> str:
    module = import_module(f"bisaddle.{name}")
    names = public(module)
    if name == "methods":
        names = sorted(names, key=lambda one: one in public_methods())
    if name == "sets":
        names = sorted(names, key=lambda one: one != "ConvexSet")
    lines = [f"# bs.{name}", "", NOTE, HEADS[name], ""]
    for one in names:
        # what all sets and all methods have in common is told once
        shown = {"Method": list(PARTS)}.get(one, "false")
        lines += entry(f"bisaddle.{name}.{one}", **({} if name == "theory" else {"members": shown}))
    return "\n".join(lines)


def others() -> str:
    lines = ["# Other modules", "", NOTE]
    for name in modules():
        if name in HEADS:
            continue
        module = import_module(f"bisaddle.{name}")
        lines += [f"## bs.{name}", "", " ".join((module.__doc__ or "").split("\n\n")[0].split()), ""]
        for path in _paths(f"bisaddle.{name}", module):
            short = path.removeprefix(f"bisaddle.{name}.")  # of an application, with its module
            lines += entry(path, heading_level=3, heading=short, toc_label=short)
    return "\n".join(lines)


def _paths(path: str, module) -> list[str]:
    """The public names of a module; of the applications, each a module, what makes a problem."""
    if names := public(module):
        return [f"{path}.{name}" for name in names]
    found = []
    for inner in sorted(module.__all__):
        application = getattr(module, inner)
        makes = lambda name, a=application: "Problem" in str(inspect.signature(getattr(a, name)).return_annotation)
        found += [f"{path}.{inner}.{name}" for name in public(application) if makes(name)]
    return found


def pages() -> dict[str, str]:
    written = {"index.md": index(), "modules.md": others()}
    return written | {f"{name}.md": module_page(name) for name in HEADS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text.rstrip() + "\n", encoding="utf-8")
        print(f"wrote {FOLDER / name}")
