"""About: what a method is for and what it costs, in words; no JAX, so that the command line lists methods at once."""

from typing import NamedTuple

# x_oracle of a method that is content when each block of x_set has one of the two
EITHER = "project or lmo"

HEADS = ("method", "problems", "x by", "loops", "second order a step", "complexity", "default steps", "reference")


class About(NamedTuple):
    """What a method is for and what it costs; bs.methods.table() and the docs page are made from it."""

    problems: tuple[str, ...]  # of "bilevel saddle", "saddle", "bilevel"
    x_oracle: str  # "project", "lmo", or EITHER
    loops: str  # "single" or "double"
    second_order: str  # second-order products a step, such as "1 HVP + 1 cross" or "none"
    complexity: str  # with its measure, such as "eps^-4 to a gap of eps"
    steps: str  # where its default step sizes come from
    reference: str  # key of docs/references.bib


# what the methods of a kind have in common
SADDLE = About(("saddle",), "project", "single", "none", complexity="", steps="", reference="")
BILEVEL = SADDLE._replace(problems=("bilevel",), second_order="1 HVP + 1 cross")
BILEVEL_SADDLE = BILEVEL._replace(problems=("bilevel saddle",))
SERIES = "N - 1 HVPs + 1 cross, N about 9 kappa"


def words(about: About) -> tuple[str, ...]:
    """The cells under HEADS, after the name."""
    oracle = {"project": "projection", "lmo": "LMO", EITHER: "projection or LMO"}[about.x_oracle]
    problems, _, *rest = about
    return (", ".join(problems), oracle, *rest)


def place(name: str, about: About) -> tuple:
    """Sorts methods: first those for every kind of problem, then kind by kind."""
    return -len(about.problems), about.problems, name.lower()
