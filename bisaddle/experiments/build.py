"""From what a TOML file says to a Problem and a Method."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import datasets
from bisaddle.apps import multitask
from bisaddle.datasets import Dataset
from bisaddle.experiments import formula
from bisaddle.experiments.errors import ExperimentError
from bisaddle.experiments.metrics import Spectrum
from bisaddle.experiments.spec import EXACT, Case, MethodSpec
from bisaddle.methods import Adaptive, FullyProjected, MORBiT, OneSidedProjectionFree
from bisaddle.methods.base import Method
from bisaddle.problem import Point, Problem
from bisaddle.schedules import StepSizes
from bisaddle.sets import Box

# above this many terms after the first the series is summed in closed form, which gives the same numbers
CLOSED_FORM = 20
# columns of zeros up to this many: x, theta and w stay 0 there, and narrow data sets share their compiled programs
COMMON_WIDTH = 24
# gamma above 1 by rounding alone is 1
ROUNDING = 1e-9


class Instance(NamedTuple):
    """A case with a seed: the data, the problem on them (padded), its start, and the spectrum for exact measures."""

    seed: int
    data: Dataset
    problem: Problem
    start: Point
    spectrum: Spectrum


def instance(case: Case, seed: int, data_dir: Any = None) -> Instance:
    """Load the data and make the problem; DataError for the data, ExperimentError for an option."""
    options = {key: value for key, value in case.dataset.items() if key != "name"}
    if data_dir is not None and case.dataset["name"] in ("mtl", "nlsy79"):
        options["directory"] = data_dir
    try:
        data = datasets.load(case.dataset["name"], seed=seed, **options)
        chosen = {key: case.problem[key] for key in ("radius", "ridge", "divergence")}
        problem, start = multitask.regression([_padded(task) for task in data.tasks], form="gram", **chosen)
    except (ValueError, TypeError) as error:
        raise ExperimentError(f"{case.name}: {error}") from error
    low, high = case.problem["lam"]
    if (low, high) != (0.0, 1.0):
        problem = eqx.tree_at(lambda p: p.x_set.sets["lam"], problem, Box(low, high))
        start = eqx.tree_at(lambda p: p.x["lam"], start, jnp.full_like(start.x["lam"], (low + high) / 2))
    return Instance(seed, data, problem, start, Spectrum.of(problem))


def _padded(task: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    A, b, V, c = task
    more = ((0, 0), (0, max(0, COMMON_WIDTH - A.shape[1])))
    return np.pad(A, more), b, np.pad(V, more), c


class ClosedFormMORBiT(MORBiT):
    """MORBiT with the sum of its Neumann series in closed form, in the eigenvectors of the training Gram matrices.

        v_N = q sum_{j < N} (I - q Hess)^j r = V phi(s) V' r,     phi(s) = (1 - (1 - q s)^N) / s,     q s <= 1

    s: the eigenvalues of Hess = lam_i^2 H_i + ridge I. The same iterates as MORBiT's up to rounding, at the cost of one
    product for any N; it counts the products that the series would take. exact: N = infinity, the inverse itself,
    counted as width products (d, of the data), which is what conjugate gradients need at most.
    Needs, promises: as MORBiT; the problem of apps.multitask.regression in its form "gram".
    """

    spectrum: Spectrum | None = eqx.field(default=None, kw_only=True)
    exact: Array | np.ndarray | None = eqx.field(default=None, kw_only=True)
    width: Array | np.ndarray | None = eqx.field(default=None, kw_only=True)
    name: ClassVar[str] = "MORBiT"

    def inverse_product(
        self, problem: Problem, x: PyTree, theta: PyTree, r: PyTree, key: Array
    ) -> tuple[PyTree, Array]:
        assert self.spectrum is not None and self.exact is not None and self.width is not None
        q, N = self.series(problem)
        s = self.spectrum.hessian(x["lam"], problem.data.ridge)
        phi = (1 - jnp.where(self.exact, 0.0, _power(1 - q * s, N))) / s
        v = self.spectrum.back(phi * self.spectrum.into(r))
        return v, jnp.where(self.exact, self.width, N - 1).astype(jnp.int32)


def _power(base: Array, exponent: Array) -> Array:
    """base^exponent for a whole number below 2^16, by squaring: a tenth of the time of exp and log."""
    result = jnp.ones_like(base)
    for bit in range(16):
        result = jnp.where((exponent >> bit) & 1, result * base, result)
        base = base * base
    return result


def step_sizes(spec: MethodSpec, built: Instance, nu: float | None, steps: int) -> dict[str, float]:
    """The step sizes of a method by name, for one nu."""
    constants = built.problem.constants
    symbols = {"K": float(steps), "T": float(len(built.data.tasks))}
    symbols |= {name: _number(getattr(constants, name)) for name in ("mu_g", "L_g", "L_yy")}
    values = formula.evaluate(f"method {spec.key}", spec.steps, symbols if nu is None else {**symbols, "nu": nu})
    if "gamma" in values and 1 < values["gamma"] <= 1 + ROUNDING:
        values["gamma"] = 1.0
    return values


def allowed(spec: MethodSpec, built: Instance, nus: tuple[float, ...], steps: int) -> tuple[float, ...]:
    """The values of nu with gamma <= 1."""
    return tuple(nu for nu in nus if step_sizes(spec, built, nu, steps).get("gamma", 0.0) <= 1)


def method(spec: MethodSpec, built: Instance, nu: float | None, steps: int, as_published: bool = False) -> Method:
    """The library's method; as_published: with MORBiT's series summed term by term, whatever its length."""
    values = step_sizes(spec, built, nu, steps)
    try:
        if spec.method == "OneSidedProjectionFree":
            return OneSidedProjectionFree(StepSizes(**values))
        if spec.method == "FullyProjected":
            return FullyProjected(StepSizes(**values))
        if spec.method == "Adaptive":
            return Adaptive(spec.tol)
        exact = spec.neumann == EXACT
        terms = 1 if exact or not isinstance(spec.neumann, int) else spec.neumann + 1
        if exact or (terms - 1 > CLOSED_FORM and not as_published):
            own = {
                "spectrum": built.spectrum,
                "exact": np.asarray(exact),
                "width": np.asarray(len(built.data.features)),
            }
            return ClosedFormMORBiT(StepSizes(**values), terms, **own)
        return MORBiT(StepSizes(**values), terms)
    except ValueError as error:
        raise ExperimentError(f"method {spec.key}, nu = {nu}: {error}") from error


def _number(value: Any) -> float:
    return float(np.asarray(value))
