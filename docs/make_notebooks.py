"""Runs the notebooks of docs/notebooks, scripts in the percent format, and writes their pages with output and pictures.

python docs/make_notebooks.py [NAME ...]
"""

import ast
import contextlib
import io
import sys
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).with_name("notebooks")
# text stays text and ids stay the same, so that pictures are light and a new run changes only what has changed
PICTURES = {"svg.fonttype": "none", "svg.hashsalt": "bisaddle", "font.size": 10, "font.family": "sans-serif"}
PICTURES |= {"axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25}
# the colours of Okabe and Ito, which everybody can tell apart
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


class Cell(NamedTuple):
    kind: str  # "markdown" or "code"
    text: str


def cells(script: Path) -> list[Cell]:
    """The cells of a script; those of text are comments under `# %% [markdown]`."""
    found = []
    for part in script.read_text(encoding="utf-8").split("# %%")[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            found.append(
                Cell("markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.split("\n")))
            )
        else:
            found.append(Cell("code", body))
    return [Cell(cell.kind, cell.text.strip("\n")) for cell in found]


def names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.py"))


def run(code: str, space: dict[str, Any]) -> tuple[str, Any]:
    """What a cell prints, and the value of its last line if that is an expression."""
    tree, value, printed = ast.parse(code), None, io.StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), space)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), space)
        if value is not None and not hasattr(value, "savefig"):
            print(repr(value))
    return printed.getvalue().rstrip(), value


def picture(figure: Any) -> str:
    """A figure as SVG, without what differs from day to day."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines()) + "\n"


def page(name: str) -> tuple[str, dict[str, str]]:
    """The page of a notebook and its pictures, by file name, after a run of all cells."""
    import matplotlib
    from cycler import cycler

    matplotlib.use("agg")
    space: dict[str, Any] = {"__name__": name}
    lines, pictures = [], {}
    with matplotlib.rc_context(PICTURES | {"axes.prop_cycle": cycler(color=COLOURS)}):
        for cell in cells(FOLDER / f"{name}.py"):
            if cell.kind == "markdown":
                lines += [cell.text, ""]
                continue
            printed, value = run(cell.text, space)
            drawn = hasattr(value, "savefig")
            fold = '<details markdown="1"><summary>The code of the figure</summary>', "</details>"
            lines += [fold[0], ""] if drawn else []
            lines += ["```python", cell.text, "```", ""]
            lines += [fold[1], ""] if drawn else []
            if printed:
                lines += ["<!-- output -->", "```text", printed, "```", ""]
            if drawn:
                file = f"{name}{'_' + str(len(pictures) + 1) if pictures else ''}.svg"
                pictures[file] = picture(value)
                lines += [f"![{', '.join(panel.get_title() for panel in value.axes if panel.get_title())}]({file})", ""]
    lines += [f"<small>Made from `docs/notebooks/{name}.py` by `make notebooks`.</small>", ""]
    return "\n".join(lines), pictures


if __name__ == "__main__":
    for name in sys.argv[1:] or names():
        text, pictures = page(name)
        for file, content in {f"{name}.md": text, **pictures}.items():
            (FOLDER / file).write_text(content, encoding="utf-8")
            print(f"wrote {FOLDER / file}")
