"""Writes docs/architecture.md: the import graph, read off the sources, and the walks; tests/test_docs.py keeps it true.

python docs/make_architecture.py
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1] / "bisaddle"
PAGE = Path(__file__).with_name("architecture.md")
LINE = "sets -> problem -> oracle -> schedules, theory, methods -> certificate -> run -> report"
# in the order of the line, what it rests on first and what is built on it last
LAYERS = (
    *("trees", "programs", "sets", "problem", "oracle", "schedules", "theory", "methods", "certificate"),
    *("report", "run", "apps", "datasets", "experiments", "cli"),
)

HEAD = f"""# Architecture

Made by `docs/make_architecture.py` from the sources: do not edit.

    {LINE}

A module imports only from its left; `tests/test_layers.py` has the table and checks every import against it. Two rules
are stricter than the line:

* `certificate` imports no method and nothing of a run. It may use the same compiled kernels as a method, but every
  residual and gradient that it reports comes from bare products of the oracle (`Kernels.products`, `Kernels.upper`).
* `report` imports none of the others: it draws columns and records, so that `Result.plot` needs no cycle.

`trees` and `programs` come before the line: pytrees as vectors, and compiled programs with their cache. `apps` makes
problems of data, `datasets` the data, `experiments` compares methods on both, `cli` is the command line.
"""


def modules() -> dict[str, Path]:
    """The dotted name of every module below bisaddle, and where it is."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def layer_of(name: str) -> str:
    return name.split(".")[0]


def imports_of(path: Path) -> set[str]:
    """The layers that a module imports anywhere, also inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "bisaddle":
            found |= {f"bisaddle.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return {layer_of(name.removeprefix("bisaddle.")) for name in found if name.startswith("bisaddle.")} & set(LAYERS)


def graph() -> dict[str, set[str]]:
    """For each layer, the other layers that it imports."""
    edges: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for name, path in modules().items():
        if layer_of(name) in edges:
            edges[layer_of(name)] |= imports_of(path) - {layer_of(name)}
    return edges


def reduced(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """Without the edges that a longer path stands for."""

    def reach(layer: str) -> set[str]:
        return edges[layer].union(*(reach(other) for other in edges[layer]))

    return {
        layer: {one for one in direct if not any(one in reach(other) for other in direct - {one})}
        for layer, direct in edges.items()
    }


def drawing() -> list[str]:
    """The graph for a page that draws mermaid: arrows from what is imported to what imports it."""
    arrows = [f"    {one} --> {layer}" for layer, few in reduced(graph()).items() for one in sorted(few, key=LAYERS.index)]
    return ["```mermaid", "flowchart LR", *arrows, "```"]


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def table() -> list[str]:
    rows = ["| layer | imports | what it is |", "|---|---|---|"]
    edges = graph()
    for layer in LAYERS:
        path = ROOT / f"{layer}.py"
        what = first_sentence(path if path.exists() else ROOT / layer / "__init__.py")
        names = ", ".join(sorted(edges[layer], key=LAYERS.index)) or "nothing"
        rows.append(f"| `{layer}` | {names} | {what} |")
    return rows


def page() -> str:
    lines = [HEAD, "## Who imports whom", "", "Arrows that a longer path stands for are left out; the table has them all."]
    lines += ["", *drawing(), "", *table(), ""]
    for title, (text, stops, leaves) in WALKS.items():
        lines += [f"## {title}", "", text, ""]
        lines += [f"{i}. `{file}` {what}" for i, (file, what) in enumerate(stops.items(), 1)]
        if leaves:
            lines += ["", f"On the way, from several of these: {', '.join(f'`{file}`' for file in leaves)}."]
        lines.append("")
    return "\n".join(lines)


WALKS: dict = {}


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
