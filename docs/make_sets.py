"""Writes docs/sets.md from the docstrings of bisaddle.sets; tests/test_docs.py fails when the page is not up to date.

python docs/make_sets.py
"""

import inspect
import re
from pathlib import Path

from bisaddle import sets
from bisaddle.sets import ConvexSet
from bisaddle.sets.prox import Penalty

PAGE = Path(__file__).with_name("sets.md")

GROUPS = {
    "Vectors": ("simplex", "capped", "balls", "weighted", "ordered", "box", "sections"),
    "Probability distributions": ("probability",),
    "Matrices": ("spectral", "symmetric", "assignment"),
    "General sets, and sets from sets": ("polytopes", "intersection", "combine", "product"),
    "Penalties in place of a y-set": ("prox",),
}

HEAD = """# Sets

Each set is one object. Made by `docs/make_sets.py` from the docstrings: do not edit.

    s = bs.sets.L1Ball(5.0)
    s.project(v)   s.lmo(d)   s.support(d)   s.violation(v)   s.contains(v, 1e-9)   s.diameter(v)   s.sample(key, shape)

* `project(v)` is the point of the set nearest to v, `lmo(d)` a point u of the set with the least `<d, u>`, `support(d)`
  the largest `<d, u>`. `project` and `lmo` work under `jit`, `vmap` and `grad`, keep the dtype, and turn NaN into NaN.
* Sizes (`radius`, bounds, weights) are array leaves: they can be traced, swept and differentiated.
* A set of vectors reads an array of any shape as one vector; `axis=-1` makes every row a vector of its own
  (`Simplex(axis=-1)` is a simplex per row). A set of matrices acts on the last two axes.
* `L1Ball`, `L2Ball`, `LinfBall` and `FreeBall` read a whole pytree as one vector: `L2Ball(10.0)` bounds all layers of a
  network.
* Several blocks: `Product({"x": L1Ball(5.0), "lam": Box(0.0, 1.0)})`, over any pytree.
* `capabilities` names the oracles that a set has; any other raises and says what to use instead. For a set without a
  projection use `OneSidedProjectionFree`, for one without an LMO `FullyProjected`.
* Answers hold to 1e-12, relative to the set and the input, unless the column "to within" says otherwise.
"""


def public_sets() -> dict[str, type[ConvexSet]]:
    found = {name: value for name, value in vars(sets).items() if inspect.isclass(value)}
    return {
        name: value
        for name, value in found.items()
        if issubclass(value, ConvexSet) and value not in (ConvexSet, Penalty)
    }


def signature(cls: type) -> str:
    parts = []
    for parameter in inspect.signature(cls).parameters.values():
        if parameter.name == "axis":
            continue
        default = parameter.default
        plain = default is inspect.Parameter.empty or not isinstance(default, int | float | str | type(None))
        parts.append(parameter.name if plain else f"{parameter.name}={default}")
    return f"{cls.__name__}({', '.join(parts)})"


def entry(cls: type[ConvexSet]) -> tuple[str, str, str, str, str]:
    """(constructor, set, projection, linear minimisation, tolerance) of a set, from its docstring"""
    text = inspect.cleandoc(cls.__doc__ or "")
    formula, _, rest = text.partition("\n\n")
    rest = " ".join(rest.split())
    costs = {name: "" for name in ("project", "lmo", "prox")}
    for name in costs:
        match = re.search(rf"\b{name}: (.*?)(?=;? *\b(?:project|lmo|prox): |\. |\.$|$)", rest)
        costs[name] = match.group(1).rstrip(" ;.") if match else ""
    if not formula or not (costs["project"] or costs["lmo"] or costs["prox"]):
        raise ValueError(
            f"{cls.__name__}: the docstring needs the set first, then `project: ...; lmo: ...` with their costs"
        )
    tolerance = getattr(cls, "tolerance", 1e-12)
    shown = "" if not isinstance(tolerance, float) or tolerance == 1e-12 else f"{tolerance:.0e}"
    projection = costs["project"] or costs["prox"] or "no"
    return signature(cls), " ".join(formula.split()), projection, costs["lmo"] or "no", shown


def plain(text: str) -> str:
    """Markdown for a cell of a table that shows the text as it is."""
    return re.sub(r"([*_|])", r"\\\1", re.sub(r"<(?=\w)", "&lt;", text))  # <d, u> would be a tag


def page() -> str:
    lines = [HEAD]
    left = public_sets()
    for title, modules in GROUPS.items():
        members = [cls for cls in left.values() if cls.__module__.rsplit(".", 1)[-1] in modules]
        if not members:
            continue
        lines += [
            f"## {title}",
            "",
            "| | the set | projection | linear minimisation | to within |",
            "|---|---|---|---|---|",
        ]
        for cls in members:
            cells = [plain(cell) for cell in entry(cls)]
            cells[0] = entry(cls)[0].replace("|", "\\|")
            lines.append(f"| `{cells[0]}` | {cells[1]} | {cells[2]} | {cells[3]} | {cells[4]} |")
        lines.append("")
        left = {name: cls for name, cls in left.items() if cls not in members}
    if left:
        raise ValueError(f"docs/make_sets.py: add the modules of {', '.join(left)} to GROUPS")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
