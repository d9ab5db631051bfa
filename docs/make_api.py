"""Writes docs/api/*.md: every public name of bisaddle, for mkdocstrings; tests/test_docs.py keeps them complete.

python docs/make_api.py
"""

import inspect
from importlib import import_module
from pathlib import Path

import bisaddle as bs
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
    """The names of a module that are ours and public, classes and functions, in the order of its own."""
    given = getattr(module, "__all__", None) or dir(module)
    return [name for name in given if not name.startswith("_") and _is_ours(getattr(module, name))]


def _is_ours(value) -> bool:
    home = getattr(value, "__module__", None) or ""
    return (
        home.startswith("bisaddle.")
        and home != "bisaddle.lazy"
        and (inspect.isclass(value) or inspect.isfunction(value))
    )


def modules() -> list[str]:
    """The modules that are reached as bs.NAME."""
    return [name for name in dir(bs) if not name.startswith("_") and inspect.ismodule(_loaded(name))]


def _loaded(name: str):
    value = getattr(bs, name)
    given = inspect.ismodule(value) and name in bs._MODULES
    return value if given else None


def entry(path: str, **options) -> list[str]:
    lines = [f"::: {path}"]
    if options:
        lines += ["    options:", *(f"      {name}: {value}" for name, value in options.items())]
    return [*lines, ""]


def index() -> str:
    names = [name for name in public(bs) if name not in modules()]
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
            lines += entry(path, heading_level=3)
    return "\n".join(lines)


def _paths(path: str, module) -> list[str]:
    """The public names of a module; of one that has none of its own, those of the modules in it."""
    if names := public(module):
        return [f"{path}.{name}" for name in names]
    inner = [name for name, value in vars(module).items() if inspect.ismodule(value) and not name.startswith("_")]
    defined = lambda one: [n for n in public(one) if getattr(one, n).__module__ == one.__name__]
    return [f"{path}.{name}.{one}" for name in inner for one in defined(getattr(module, name))]


def pages() -> dict[str, str]:
    written = {"index.md": index(), "modules.md": others()}
    return written | {f"{name}.md": module_page(name) for name in HEADS}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text.rstrip() + "\n", encoding="utf-8")
        print(f"wrote {FOLDER / name}")
