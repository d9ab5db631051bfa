"""Which methods can solve which problems, from what each says about itself."""

from bisaddle.methods.base import About, Method
from bisaddle.problem import Problem

KINDS = ("bilevel saddle", "saddle", "bilevel")


def problem_kind(problem: Problem) -> str:
    """ "bilevel saddle", "saddle" (lower=None), "bilevel" (y_set=None), or "minimisation" (neither)."""
    if problem.lower is None:
        return "minimisation" if problem.y_set is None else "saddle"
    return "bilevel" if problem.y_set is None else "bilevel saddle"


def methods_for(kind: str, x_oracle: str | None = None) -> list[str]:
    """Names of the package's methods for problems of this kind (and that need this oracle on x_set), sorted.

    A minimisation is a problem of both other kinds, so that it takes a method that solves them all.
    """
    needed = {"saddle", "bilevel"} if kind == "minimisation" else {kind}
    return sorted(
        cls.__name__
        for cls, about in _described(Method).items()
        if needed <= set(about.problems) and x_oracle in (None, about.x_oracle)
    )


def require_kind(method: Method, problem: Problem) -> None:
    """Raise ValueError, naming the methods that can, unless the method is for problems of this kind."""
    kind = problem_kind(problem)
    if kind in method.about.problems:
        return
    parts = f"lower={'None' if problem.lower is None else 'g'}, y_set={'None' if problem.y_set is None else 'Y'}"
    able = ", ".join(methods_for(kind))
    raise ValueError(
        f"{method.name} is for {' and '.join(method.about.problems)} problems, given a {kind} problem ({parts}); "
        f"use one of {able}"
    )


def _described(cls: type[Method]) -> dict[type[Method], About]:
    """Every class of the package below `cls` that has an About and no leading underscore."""
    found = {}
    for below in cls.__subclasses__():
        if below.__module__.startswith("bisaddle.") and below.__name__[0] != "_" and hasattr(below, "about"):
            found[below] = below.about
        found |= _described(below)
    return found
