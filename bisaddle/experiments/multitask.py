"""Multi-task regression in an experiment: what a file may say of it, exact solutions of its lower level, its words."""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import oracle
from bisaddle.apps import multitask
from bisaddle.datasets import Dataset
from bisaddle.experiments import checks
from bisaddle.experiments.errors import ExperimentError
from bisaddle.methods import MORBiT
from bisaddle.problem import Point, Problem
from bisaddle.report.files import finite
from bisaddle.report.schema import shortened
from bisaddle.schedules import StepSizes
from bisaddle.sets import Box

# how near y to a vertex e_j, lambda_j to 0 or 1, and grad_x L to 0 count as there
CORNER = 1e-9
# a gap up to this is one of a stationary point, in the words on corners
STATIONARY = 1e-6
# columns of zeros up to this many: x, theta and w stay 0 there, and narrow data sets share their compiled programs
COMMON_WIDTH = 24


class Spectrum(NamedTuple):
    """H_i = V_i diag(h_i) V_i' for the training Gram matrix of each task, and V_i' c_i: solves the lower level exactly.

    vectors[i] is V_i, values[i] is h_i, cross[i] is V_i' c_i. metrics.measure asks for lower_solution, inverse_product,
    worst_value and corner; another application has these of its own.
    """

    vectors: Array
    values: Array
    cross: Array

    @classmethod
    def of(cls, problem: Problem) -> "Spectrum":
        gram, cross = np.asarray(problem.data.train_gram), np.asarray(problem.data.train_cross)
        values, vectors = np.linalg.eigh(gram)
        rotated = np.einsum("tji,tj->ti", vectors, cross)
        return cls(jnp.asarray(vectors), jnp.asarray(np.maximum(values, 0)), jnp.asarray(rotated))

    def into(self, v: Array) -> Array:
        """V_i' v_i, a row a task."""
        return jnp.einsum("tj,tji->ti", v, self.vectors)

    def back(self, v: Array) -> Array:
        """V_i v_i, a row a task."""
        return jnp.einsum("tj,tij->ti", v, self.vectors)

    def hessian(self, problem: Problem, x: PyTree) -> Array:
        """Eigenvalues of g_theta_theta, lam_i^2 h_i + ridge."""
        return jnp.square(x["lam"])[:, None] * self.values + problem.data.ridge

    def lower_solution(self, problem: Problem, x: PyTree) -> Array:
        """theta*_i = (lam_i^2 H_i + ridge I)^-1 lam_i (c_i - (1 - lam_i) H_i x)"""
        lam = x["lam"][:, None]
        shared = jnp.einsum("j,tji->ti", x["x"], self.vectors)
        right = lam * (self.cross - (1 - lam) * self.values * shared)
        return self.back(right / self.hessian(problem, x))

    def inverse_product(self, problem: Problem, x: PyTree, r: Array) -> Array:
        """g_theta_theta^-1 r"""
        return self.back(self.into(r) / self.hessian(problem, x))

    def worst_value(self, problem: Problem, x: PyTree, theta: Array, y: Array) -> Array:
        """The largest validation loss of a task."""
        return jnp.max(oracle.upper_gradients(problem, x, theta, jnp.full_like(y, 1 / y.size))[2])

    def corner(self, x: PyTree, y: Array, Gx: PyTree) -> Array:
        """Whether y = e_j and lambda_j is 0 or 1: grad_x L = 0 there, whatever x is."""
        j = jnp.argmax(y)
        end = jnp.minimum(x["lam"][j], 1 - x["lam"][j])
        return (y[j] >= 1 - CORNER) & (end <= CORNER) & (jnp.max(jnp.abs(Gx["x"])) <= CORNER)


class ClosedFormMORBiT(MORBiT):
    """MORBiT with the sum of its Neumann series in closed form, in the eigenvectors of the training Gram matrices.

        v_N = q sum_{j < N} (I - q Hess)^j r = V phi(s) V' r,     phi(s) = (1 - (1 - q s)^N) / s,     q s <= 1

    s: the eigenvalues of Hess = lam_i^2 H_i + ridge I. The same iterates as MORBiT's up to rounding, at the cost of one
    product for any N; it counts the products that the series would take. exact: N = infinity, the inverse itself,
    counted as width products (d, of the data), which is what conjugate gradients need at most.
    Needs, promises: as MORBiT; the problem of apps.multitask.regression in its form "gram".
    """

    spectrum: Spectrum = eqx.field(kw_only=True)
    exact: Array | np.ndarray = eqx.field(kw_only=True)
    width: Array | np.ndarray = eqx.field(kw_only=True)
    name: ClassVar[str] = "MORBiT"

    def inverse_product(
        self, problem: Problem, x: PyTree, theta: PyTree, r: PyTree, key: Array
    ) -> tuple[PyTree, Array]:
        q, N = self.series(problem)
        s = self.spectrum.hessian(problem, x)
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


class Multitask:
    """The application "multitask". Another one is another object with these names, listed in spec.APPLICATIONS."""

    # options of the problem that a table [sensitivity] may vary
    varied = ("radius", "ridge")
    lmo_tie = "a component 0 of the direction goes to the upper bound of lambda; the first largest entry for x"

    def options(self, where: str, table: dict[str, Any]) -> dict[str, Any]:
        """The table [problem], checked and complete."""
        checks.only(where, table, ("radius", "ridge", "divergence", "lam"))
        lam = table.get("lam", [0.0, 1.0])
        pair = isinstance(lam, list) and len(lam) == 2 and all(map(checks.is_number, lam))
        if not pair or not 0 <= lam[0] <= lam[1] <= 1:
            raise ExperimentError(
                f"{where}.lam must be an interval [lower, upper] within [0, 1], given {shortened(lam)}"
            )
        return {
            "radius": checks.number(f"{where}.radius", table.get("radius", 5.0)),
            "ridge": checks.number(f"{where}.ridge", table.get("ridge", 0.1)),
            "divergence": checks.number(f"{where}.divergence", table.get("divergence", 0.0), zero=True),
            "lam": [float(lam[0]), float(lam[1])],
        }

    def build(self, data: Dataset, options: dict[str, Any]) -> tuple[Problem, Point, Spectrum]:
        """The problem on the data (padded), its start, and what solves its lower level exactly."""
        chosen = {key: options[key] for key in ("radius", "ridge", "divergence")}
        problem, start = multitask.regression([_padded(task) for task in data.tasks], form="gram", **chosen)
        low, high = options["lam"]
        if (low, high) != (0.0, 1.0):
            problem = eqx.tree_at(lambda p: p.x_set.sets["lam"], problem, Box(low, high))
            start = eqx.tree_at(lambda p: p.x["lam"], start, jnp.full_like(start.x["lam"], (low + high) / 2))
        return problem, start, Spectrum.of(problem)

    def closed_form(self, steps: StepSizes, terms: int, exact: bool, data: Dataset, spectrum: Spectrum) -> MORBiT:
        """MORBiT with a long series, or the exact inverse."""
        width = np.asarray(len(data.features))
        return ClosedFormMORBiT(steps, terms, spectrum=spectrum, exact=np.asarray(exact), width=width)

    def start_words(self, start: Point) -> str:
        return f"x = 0, lambda = {float(start.x['lam'][0]):g}, theta = w = 0, y = 1/T"

    def shown(self, point: Point, data: Dataset) -> dict[str, Any]:
        """What a run keeps of its last point; the columns of zeros are left out."""
        parts = {"lam": point.x["lam"], "y": point.y, "x": point.x["x"][: len(data.features)]}
        return finite({name: np.asarray(part).tolist() for name, part in parts.items()})

    def corner_words(self, point: Point, gap: float) -> str:
        """Of a last point at a degenerate corner."""
        j = int(np.argmax(np.asarray(point.y)))
        lam = round(float(np.asarray(point.x["lam"])[j]))
        what = f"The gap of {gap:.1e} says nothing of x there: a corner was reached, not a common fit."
        if gap > STATIONARY:
            what = f"It is not stationary (gap {gap:.1e}): lambda or y would still move."
        return f"all weight on task {j + 1}, lambda_{j + 1} = {lam}, where the gradient in x is 0 whatever x is. {what}"


def _padded(task: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    A, b, V, c = task
    more = ((0, 0), (0, max(0, COMMON_WIDTH - A.shape[1])))
    return np.pad(A, more), b, np.pad(V, more), c
