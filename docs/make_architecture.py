"""Writes docs/architecture.md and its picture: the import graph, read off the sources, and the walks.

python docs/make_architecture.py
"""

import ast
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1] / "bisaddle"
PAGE = Path(__file__).with_name("architecture.md")
PICTURE = PAGE.with_suffix(".svg")
LINE = "sets -> problem -> oracle -> schedules, theory, methods -> certificate -> run -> report"
# in the order of the line, what it rests on first and what is built on it last
LAYERS = (
    *(
        "devices",
        "trees",
        "programs",
        "showing",
        "streams",
        "sets",
        "problem",
        "oracle",
        "schedules",
        "theory",
        "methods",
        "certificate",
    ),
    *("auditing", "report", "parallel", "run", "apps", "estimators", "datasets", "experiments", "cli"),
)

HEAD = f"""# Architecture

Made by `docs/make_architecture.py` from the sources: do not edit.

    {LINE}

A module imports only from its left; `tests/test_layers.py` has the table and checks every import against it. Two rules
are stricter than the line:

* `certificate` imports no method and nothing of a run. It may use the same compiled kernels as a method, but every
  residual and gradient that it reports comes from bare products of the oracle (`Kernels.products`, `Kernels.upper`).
* `report` imports none of the others: it draws columns and records, so that `Result.plot` needs no cycle.

`devices`, `trees`, `programs` and `showing` come before the line: arrays on a mesh, pytrees as vectors, compiled
programs with their cache, and how objects print; so does `streams`, which reads rows in chunks. `auditing` stands
beside `certificate` and checks it by other means: it imports the problem and its sets, and the switch of NumPy's
threads. `parallel` splits a problem over devices and processes. `apps` makes problems of data, `estimators` solves them
in the manner of scikit-learn, `datasets` has the data, `experiments` compares methods on both, `cli` is the command
line.
"""

WALKING = """# Three walks

The files that a call passes through, in the order in which to read them. `tests/test_docs.py` records every file of
ours in which a function runs, and holds it against these lists. A folder stands for what the problem needs of it.
"""


class Walk(NamedTuple):
    """A call, the files to read in order with what happens there, and the others in which something runs."""

    call: str
    stops: dict[str, str]
    used: tuple[str, ...]


CERTIFY = {
    "certificate/certifier.py": "`certify` checks its arguments; `Certifier` puts the certificate together.",
    "oracle/validate.py": "shapes, dtypes and sets are checked by abstract evaluation, before anything compiles.",
    "oracle/kernels.py": "the derivatives of f and g at flat vectors, each a small compiled program.",
    "programs.py": "compiles a program on its first call, keeps it, and counts the time.",
    "oracle/implicit.py": "theta*(x) by Newton's method, w by a linear solve; then what is left of both equations.",
    "certificate/bounds.py": "how far the gap can be off, the worst value over y, degenerate corners.",
    "certificate/noise.py": "the rounding inside f and g, estimated by moving a little.",
    "certificate/consistency.py": "whether the derivatives belong to f and g, or there is a mistake or a kink.",
    "certificate/witnesses.py": "a direction along which g is not convex, or f not concave in y, if there is one.",
}
WALKS = {
    "`bs.solve(problem, start)`": Walk(
        "With the default method, Adaptive. A method with a pure step runs in `run/blocks.py` instead of stops 5 to 8.",
        {
            "run/solve.py": "checks the arguments, makes kernels, certifier, limits and runs, and builds the Result.",
            "oracle/validate.py": CERTIFY["oracle/validate.py"],
            "oracle/kernels.py": CERTIFY["oracle/kernels.py"],
            "programs.py": CERTIFY["programs.py"],
            "run/loop.py": "one step after the other; `Limits.status` says when the run ends and how.",
            "methods/adaptive/method.py": "the algorithm: centres in y, a line search in x.",
            "methods/adaptive/inner.py": "theta, y and w at every x, as accurate as the gap requires.",
            "methods/adaptive/coordinates.py": "in which coordinates x moves, and in which direction.",
            "certificate/certifier.py": "where the method believes the gap is reached, a certificate decides.",
            "oracle/implicit.py": "the certificate's own solves; nothing is taken from the method but a guess.",
            "certificate/bounds.py": CERTIFY["certificate/bounds.py"],
            "run/history.py": "the best record and the trace, in bounded memory; `run/result.py` is what is printed.",
        },
        (
            "problem.py",
            "devices.py",
            "trees.py",
            "showing.py",
            "sets/",
            "methods/base.py",
            "methods/adaptive/parts.py",
            "methods/adaptive/found.py",
            "methods/adaptive/first.py",
            "methods/adaptive/second.py",
            "methods/adaptive/wide.py",
            "methods/adaptive/recall.py",
            "methods/adaptive/inverse.py",
            "methods/adaptive/climb.py",
            "oracle/spectra.py",
            "oracle/derivatives.py",
            "oracle/depends.py",
            "oracle/columns.py",
            "oracle/theta_blocks.py",
            "oracle/conjugate.py",
            "oracle/sketch.py",
            "oracle/defined.py",
            "certificate/wide.py",
            "certificate/noise.py",
            "certificate/consistency.py",
            "certificate/witnesses.py",
            "run/starts.py",
            "run/streamed.py",
            "run/reasons.py",
            "run/progress.py",
            "run/interrupts.py",
        ),
    ),
    "`bs.certify(problem, point)`": Walk(
        "",
        CERTIFY,
        (
            "problem.py",
            "devices.py",
            "trees.py",
            "showing.py",
            "sets/",
            "oracle/derivatives.py",
            "oracle/depends.py",
            "oracle/columns.py",
            "oracle/theta_blocks.py",
            "oracle/conjugate.py",
            "oracle/sketch.py",
            "oracle/defined.py",
            "certificate/wide.py",
        ),
    ),
    "`bisaddle reproduce --quick`": Walk(
        "",
        {
            "cli/reproducing.py": "the command: which experiments, which data sets are there, where to write.",
            "experiments/spec.py": "a TOML file, read and checked key by key.",
            "experiments/runner.py": "every method, nu and seed of an experiment; the best nu is chosen.",
            "experiments/build.py": "from what the file says to data, a problem and methods.",
            "experiments/multitask.py": "what is particular to the application: exact lower solutions, corners.",
            "experiments/jobs.py": "two threads at the sweeps, which Ctrl-C can stop.",
            "run/blocks.py": "all values of nu side by side in one compiled block.",
            "experiments/metrics.py": "the measures of section 6 at every recorded point.",
            "certificate/certifier.py": "the last point of every chosen run, certified.",
            "experiments/reproduction.py": "what is seen of the paper's claims, as REPRODUCTION.md.",
            "report/figures.py": "the figures in the style of the paper.",
            "report/page.py": "one page with all numbers, to be looked at in a browser.",
        },
        (
            *(
                "devices.py",
                "trees.py",
                "programs.py",
                "showing.py",
                "sets/",
                "problem.py",
                "oracle/",
                "schedules.py",
                "methods/",
            ),
            "certificate/",
            *("run/", "apps/", "datasets/", "experiments/", "report/", "cli/"),
        ),
    ),
}


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


def columns(edges: dict[str, set[str]]) -> list[list[str]]:
    """Layers by the longest path to them, each near the middle of what it imports."""
    depth: dict[str, int] = {}
    for layer in LAYERS:  # in an order in which what is imported comes first
        depth[layer] = 1 + max((depth[one] for one in edges[layer]), default=-1)
    found = [[layer for layer in LAYERS if depth[layer] == column] for column in range(max(depth.values()) + 1)]
    place: dict[str, float] = {}
    for column in found:
        middle = {one: sum(place[other] for other in edges[one]) / max(1, len(edges[one])) for one in column}
        column.sort(key=lambda one: middle[one])
        place |= {layer: i - (len(column) - 1) / 2 for i, layer in enumerate(column)}
    return found


def curve(begin: tuple[float, float], end: tuple[float, float], gap: float, height: float) -> str:
    """From box to box; one that passes others on its way goes round them, above or below."""
    (a, y), (b, z) = begin, end
    bend, bow = (b - a) / 2, 0.0
    if b - a > gap:
        above = y <= height / 2
        room = min(y, z) if above else height - max(y, z)
        bow = min(0.28 * (b - a), 1.25 * room) * (-1 if above else 1)  # the curve goes three quarters of that way
        bend = (b - a) / 5
    return f'<path d="M{a:g} {y:g}C{a + bend:g} {y + bow:g} {b - bend:g} {z + bow:g} {b:g} {z:g}"/>'


def drawing() -> str:
    """The graph as a picture: curves from what is imported to what imports it."""
    edges = reduced(graph())
    found = columns(edges)
    wide, high, across, down = 84, 26, 112, 44
    size = across * len(found) - across + wide + 8, down * (max(map(len, found)) + 1)
    left = {layer: 4 + across * i for i, column in enumerate(found) for layer in column}
    middle = {
        layer: size[1] / 2 + down * (i - (len(column) - 1) / 2) for column in found for i, layer in enumerate(column)
    }
    curves, boxes = [], []
    for layer in LAYERS:
        for one in sorted(edges[layer], key=LAYERS.index):
            curves.append(curve((left[one] + wide, middle[one]), (left[layer], middle[layer]), across - wide, size[1]))
        top = middle[layer] - high / 2
        boxes.append(f'<rect x="{left[layer]}" y="{top:g}" width="{wide}" height="{high}" rx="5"/>')
        boxes.append(f'<text x="{left[layer] + wide / 2:g}" y="{middle[layer] + 4:g}">{layer}</text>')
    style = (
        "path{fill:none;stroke:#8a94a6}rect{fill:#e8ecf8;stroke:#3f51b5}"
        "text{font:12px sans-serif;text-anchor:middle;fill:#1a1f36}"
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}">'
    return "\n".join([head, f"<style>{style}</style>", *curves, *boxes, "</svg>\n"])


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
        what = what.replace("|", "\\|")
        rows.append(f"| `{layer}` | {names} | {what} |")
    return rows


def page() -> str:
    lines = [HEAD, "## Who imports whom", "", "Curves that a longer path stands for are left out; the table has them."]
    lines += ["", f"![which layer imports which]({PICTURE.name})", "", *table(), "", WALKING]
    for title, walk in WALKS.items():
        lines += [f"## {title}", "", *([walk.call, ""] if walk.call else [])]
        lines += [f"{i}. `{file}`: {what}" for i, (file, what) in enumerate(walk.stops.items(), 1)]
        lines += ["", f"Used on the way: {', '.join(f'`{file}`' for file in walk.used)}.", ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    PICTURE.write_text(drawing(), encoding="utf-8")
    print(f"wrote {PAGE}")
