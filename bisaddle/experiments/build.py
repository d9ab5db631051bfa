"""From what a TOML file says to a Problem and a Method."""

from typing import Any, NamedTuple

import numpy as np

from bisaddle import datasets, methods
from bisaddle.datasets import Dataset
from bisaddle.experiments import formula
from bisaddle.experiments.errors import ExperimentError
from bisaddle.experiments.multitask import Multitask, Spectrum
from bisaddle.experiments.spec import APPLICATIONS, EXACT, Case, MethodSpec
from bisaddle.methods.base import Method
from bisaddle.problem import Point, Problem
from bisaddle.schedules import StepSizes

# above this many terms after the first the series is summed in closed form, which gives the same numbers
CLOSED_FORM = 20
# gamma above 1 by rounding alone is 1
ROUNDING = 1e-9
# the constants that formulas may use
CONSTANTS = ("mu_g", "L_g", "L_yy")


class Instance(NamedTuple):
    """A case with a seed: the data, the problem on them, its start, and what solves its lower level exactly."""

    seed: int
    data: Dataset
    application: Multitask
    problem: Problem
    start: Point
    spectrum: Spectrum

    def constants(self) -> dict[str, float]:
        return {name: float(np.asarray(getattr(self.problem.constants, name))) for name in CONSTANTS}


def instance(case: Case, seed: int, data_dir: Any = None) -> Instance:
    """Load the data and make the problem; DataError for the data, ExperimentError for an option."""
    options = {key: value for key, value in case.dataset.items() if key != "name"}
    if data_dir is not None and datasets.sources(case.dataset["name"]):
        options["directory"] = data_dir
    application = APPLICATIONS[case.application]
    try:
        data = datasets.load(case.dataset["name"], seed=seed, **options)
        return Instance(seed, data, application, *application.build(data, case.problem))
    except (ValueError, TypeError) as error:
        raise ExperimentError(f"{case.name}: {error}") from error


def step_sizes(spec: MethodSpec, built: Instance, nu: float | None, steps: int) -> dict[str, float]:
    """The step sizes of a method by name, for one nu."""
    symbols = {"K": float(steps), "T": float(len(built.data.tasks)), **built.constants()}
    values = formula.evaluate(f"method {spec.key}", spec.steps, symbols if nu is None else {**symbols, "nu": nu})
    if "gamma" in values and 1 < values["gamma"] <= 1 + ROUNDING:
        values["gamma"] = 1.0
    return values


def allowed(spec: MethodSpec, built: Instance, nus: tuple[float, ...], steps: int) -> tuple[float, ...]:
    """The values of nu with gamma <= 1."""
    return tuple(nu for nu in nus if step_sizes(spec, built, nu, steps).get("gamma", 0.0) <= 1)


def in_closed_form(spec: MethodSpec) -> bool:
    """Whether a sweep sums MORBiT's series in closed form."""
    return spec.neumann == EXACT or (isinstance(spec.neumann, int) and spec.neumann > CLOSED_FORM)


def method(spec: MethodSpec, built: Instance, nu: float | None, steps: int, as_published: bool = False) -> Method:
    """The library's method; as_published: with MORBiT's series summed term by term, whatever its length."""
    values = step_sizes(spec, built, nu, steps)
    try:
        if spec.method == "Adaptive":
            return methods.Adaptive(spec.tol)
        sizes = StepSizes(**values)
        if spec.method != "MORBiT":
            return getattr(methods, spec.method)(sizes)
        exact = spec.neumann == EXACT
        terms = spec.neumann + 1 if isinstance(spec.neumann, int) else 1
        if exact or (in_closed_form(spec) and not as_published):
            return built.application.closed_form(sizes, terms, exact, built.data, built.spectrum)
        return methods.MORBiT(sizes, terms)
    except ValueError as error:
        raise ExperimentError(f"method {spec.key}, nu = {nu}: {error}") from error
