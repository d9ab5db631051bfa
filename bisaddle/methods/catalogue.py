"""table(): every method, what it is for and what it costs, from the `about` of the classes."""

import dataclasses

from bisaddle.methods.about import HEADS, words
from bisaddle.methods.base import able, public_methods
from bisaddle.problem import Problem


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows of words under HEADS; printing it, or its value at the prompt, is the table."""

    rows: tuple[tuple[str, ...], ...]

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(HEADS, *self.rows, strict=True)]
        lines = (HEADS, tuple("-" * width for width in widths), *self.rows)
        padded = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(line.rstrip() for line in padded)


def table(problem: Problem | None = None) -> Table:
    """Every method with the problems it is for, its oracle for x, loops, second-order products, complexity, steps.

    problem: only the methods that can solve it.
    """
    names = list(public_methods()) if problem is None else able(problem)
    return Table(tuple((name, *words(public_methods()[name].about)) for name in names))
