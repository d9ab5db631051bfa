"""A method from its name: the steps given, or the ones that its theory gives for the problem."""

import inspect
from typing import Any

import click

from bisaddle.cli.errors import USAGE, Failure
from bisaddle.cli.options import pairs_of


def method_named(
    name: str | None, problem: Any, start: Any, tol: float, max_steps: int, steps: tuple[str, ...], nu: float | None
) -> Any:
    """None names the default, Adaptive."""
    from bisaddle.methods import Adaptive
    from bisaddle.methods.base import public_methods
    from bisaddle.schedules import StepSizes

    given = pairs_of(steps, "--step", "gamma=0.1")
    if name is None or name.lower() == "adaptive":
        if given or nu is not None:
            raise click.UsageError("--step and --nu are for a --method with step sizes; Adaptive has none")
        return Adaptive(tol)
    known = public_methods()
    found = next((key for key in known if key.lower() == (name or "").lower()), None)
    if found is None:
        raise click.BadParameter(f"no method is called {name!r}; there are {', '.join(known)}", param_hint="--method")
    method = known[found]
    if given:
        if nu is not None:
            raise click.UsageError("--nu scales the default steps; leave it out, or the --step options")
        try:
            chosen = StepSizes(**dict(given))
        except TypeError as error:
            symbols = ", ".join(inspect.signature(StepSizes).parameters)
            raise click.BadParameter(f"{error}; the step sizes are {symbols}", param_hint="--step") from error
        try:
            return method(chosen)  # pyright: ignore[reportCallIssue]
        except TypeError as error:
            raise Failure(
                f"{found} takes more than step sizes ({error}); leave --step out for its defaults", USAGE
            ) from error
    return _with_default_steps(found, method, problem, max_steps, nu)


def _with_default_steps(name: str, method: Any, problem: Any, max_steps: int, nu: float | None) -> Any:
    from bisaddle.theory.steps import steps_for

    scale = 1.0 if nu is None else nu
    paper = {"OneSidedProjectionFree": "opf", "FullyProjected": "fp"}.get(name)
    if paper is not None:  # section 6
        return method(steps_for(problem, paper, K=max_steps, regime="experiment", nu=scale).steps)
    if hasattr(method, "with_default_steps"):
        return method.with_default_steps(problem, max_steps, scale)
    if nu is not None:
        raise click.UsageError(f"{name} takes its steps from constants, without a scale; leave --nu out")
    needed = inspect.signature(method.from_constants).parameters
    if "mu_x" in needed and needed["mu_x"].default is inspect.Parameter.empty:
        raise Failure(
            f"{name} needs mu_x, which the problem does not say; use it from Python, or another method", USAGE
        )
    return method.from_constants(problem.constants, **({"K": max_steps} if "K" in needed else {}))
