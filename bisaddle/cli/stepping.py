"""A method from its name: the steps given, or the ones that its theory gives for the problem."""

from typing import Any

import click

from bisaddle.cli.errors import USAGE, Failure
from bisaddle.cli.options import named, pairs_of


def method_named(
    name: str | None, problem: Any, start: Any, tol: float, max_steps: int, steps: tuple[str, ...], nu: float | None
) -> Any:
    """None names the default, Adaptive."""
    from bisaddle.methods import Adaptive
    from bisaddle.methods.base import public_methods
    from bisaddle.schedules import NAMES, StepSizes

    given = pairs_of(steps, "--step", "gamma=0.1")
    if name is None or name.lower() == "adaptive":
        if given or nu is not None:
            raise click.UsageError("--step and --nu are for a --method with step sizes; Adaptive has none")
        return Adaptive(tol)
    known = public_methods()
    found = named("method", name, known, "--method")
    method: Any = known[found]
    if not given:
        return _with_default_steps(method, problem, max_steps, nu)
    if nu is not None:
        raise click.UsageError("--nu scales the default steps; leave it out, or the --step options")
    try:
        chosen = StepSizes(**dict(given))
    except (TypeError, ValueError) as error:
        raise click.BadParameter(f"{error}; the step sizes are {', '.join(NAMES)}", param_hint="--step") from error
    try:
        return method(chosen)
    except TypeError as error:
        words = f"{found} takes more than step sizes ({error}); leave --step out for its defaults"
        raise Failure(words, USAGE) from error


def _with_default_steps(method: Any, problem: Any, max_steps: int, nu: float | None) -> Any:
    if nu is not None and not method.scaled:
        raise click.UsageError(f"{method.name} takes its steps from constants, without a scale; leave --nu out")
    if method.asks:
        needed = ", ".join(method.asks)
        words = f"{method.name} needs {needed}, which the problem does not say; use it from Python, or another method"
        raise Failure(words, USAGE)
    return method.default(problem, max_steps, 1.0 if nu is None else nu)
