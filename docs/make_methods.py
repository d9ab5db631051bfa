"""Writes docs/methods.md from the classes of bisaddle.methods; tests/test_docs.py fails when it is not up to date.

python docs/make_methods.py
"""

import inspect
from pathlib import Path

from bisaddle.methods.base import Method, public_methods
from bisaddle.methods.catalogue import HEADS, words

PAGE = Path(__file__).with_name("methods.md")

# a method is listed under the first of these kinds that it solves
GROUPS = {
    "bilevel saddle": "Saddle problems with bilevel structure",
    "saddle": "Saddle problems: no lower level",
    "bilevel": "Bilevel problems: no max player",
}

HEAD = """# Methods

All methods share one interface, sets, certificate, trace and oracle counts. Made by `docs/make_methods.py` from the
classes: do not edit.

    print(bs.methods.table())              # this page as a table
    print(bs.methods.table(problem))       # the methods that can solve this problem
    bs.solve(problem, start, bs.methods.FullyProjected(steps))

* A method is `init(problem, start) -> State`, `step(problem, state) -> State` and `counts(problem, state)`: pure
  functions for your own jit, scan and vmap (Adaptive, driven from the host, has none). `solve` owns the loop.
* On a problem it cannot solve a method raises before anything compiles, and names the methods that can.
* Step sizes are `StepSizes(alpha=..., eta=..., gamma=..., tau=..., sigma=..., mu=...)`. A method takes those it uses,
  as numbers or functions of k; each letter has the same role in every method.
* Second-order products are counted per step: HVP is `g_theta_theta w`, cross is `g_theta_x w`. Complexities are those
  of the references, in their own measures; the docstrings say where a detail of an update could not be confirmed.
* Keys such as AYH25 refer to `references.bib`.
"""


def entry(name: str, method: type[Method]) -> str:
    """The docstring as it stands, so that its equations keep their shape."""
    text = inspect.cleandoc(method.__doc__ or "")
    if "Needs:" not in text or "Promises:" not in text:
        raise ValueError(f"{name}: the docstring needs `Needs:` and `Promises:`")
    if f"[{method.about.reference}" not in text:
        raise ValueError(f"{name}: the docstring cites its reference, [{method.about.reference}]")
    return f"### {name}\n\n```text\n{text}\n```"


def page() -> str:
    lines = [HEAD]
    methods = public_methods()
    for kind, title in GROUPS.items():
        members = {name: cls for name, cls in methods.items() if _group(cls) == kind}
        if not members:
            continue
        lines += [f"## {title}", "", f"| {' | '.join(HEADS)} |", "|" + "---|" * len(HEADS)]
        for name, cls in members.items():
            cells = (name, *words(cls.about))
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
        for name, cls in members.items():
            lines += [entry(name, cls), ""]
    return "\n".join(lines)


def _group(cls: type[Method]) -> str:
    return next(kind for kind in GROUPS if kind in cls.about.problems)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
