"""The form of every other set over flat vectors: small programs, each compiled when it is first called."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.programs import Program
from bisaddle.sets.base import ConvexSet, VectorSet
from bisaddle.sets.combine import Custom, Rotated, Scaled, Translated
from bisaddle.sets.flat_base import Delegate, FlatSet, Linear
from bisaddle.sets.prox import Penalty
from bisaddle.trees import Number, Shape

# rows that a derivative is taken of at once
ROWS = 48
# a set and the shape of its values: sizes of the set are arguments of a program, the shape is not
Fixed = tuple[ConvexSet, Shape]


class CompiledForm(FlatSet):
    """Any set: its own oracles, compiled. What follows from them is done on the host."""

    def __init__(self, of: ConvexSet, shape: Shape):
        super().__init__(of, shape.size)
        self.shape = shape
        self._programs: dict[Callable, Program] = {}
        self._diameter: float | None = None
        self._plain, self._nearest_violation = is_plain(of), measures_by_projection(of)

    def _run(self, function: Callable, what: str, *arrays: np.ndarray) -> PyTree:
        program = self._programs.get(function)
        if program is None:
            name = f"the {what} of {type(self.of).__name__}"
            program = self._programs[function] = Program(function, name, (self.of, self.shape))
        return program(*arrays)

    def project(self, v: np.ndarray) -> np.ndarray:
        self._require("project")
        return np.array(self._run(_project, "projection", v))  # a copy, since what a program gives is read-only

    def lmo(self, d: np.ndarray) -> np.ndarray:
        self._require("lmo")
        return np.array(self._run(_lmo, "linear minimisation", d))

    def linearised(self, v: np.ndarray) -> tuple[np.ndarray, Linear]:
        v = v.copy()  # which the caller may change before the derivative is asked for

        def inside(rows: np.ndarray) -> np.ndarray:
            stack = rows.reshape(-1, self.size)
            count = len(stack)
            # so that one program does for every number of rows
            padded = np.zeros((-(-count // ROWS) * ROWS, self.size), v.dtype)
            padded[:count] = stack
            answer = self._run(_derivative, "derivative of the projection", v, padded, np.array(count))
            return np.array(answer[:count]).reshape(rows.shape)

        return self.project(v), inside

    def violation(self, v: np.ndarray) -> float:
        return super().violation(v) if self._nearest_violation else float(self._run(_violation, "violation", v))

    def diameter(self) -> float:
        if self._diameter is None:
            self._diameter = float(self._run(_diameter, "diameter", np.zeros(self.size, self.shape.dtype)))
        return self._diameter

    def prox(self, v: np.ndarray, step: Number) -> np.ndarray:
        return self.project(v) if self._plain else np.array(self._run(_prox, "prox", v, np.asarray(step, v.dtype)))

    def penalty(self, v: np.ndarray) -> float:
        return 0.0 if self._plain else float(self._run(_penalty, "penalty", v))

    def best_response(self, y: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        if self._plain:
            return super().best_response(y, gradient)
        bound, point = self._run(_best_response, "best response", y, gradient)
        return float(bound), np.array(point)

    def _require(self, oracle: str) -> None:
        if oracle not in self.capabilities:
            raise ValueError(self.of.missing(oracle))


class PenaltyForm(Delegate):
    """A penalty: as a set it is its domain, whose form is asked; h, its prox and its best response are compiled."""

    def __init__(self, of: Penalty, inner: FlatSet, shape: Shape):
        super().__init__(of, inner)
        self._own = CompiledForm(of, shape)

    def prox(self, v: np.ndarray, step: Number) -> np.ndarray:
        return self._own.prox(v, step)

    def penalty(self, v: np.ndarray) -> float:
        return self._own.penalty(v)

    def best_response(self, y: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        return self._own.best_response(y, gradient)


class IndicatorForm(Delegate):
    """An Indicator: its domain, and a prox that is the projection even where the domain has another one."""

    def prox(self, v: np.ndarray, step: Number) -> np.ndarray:
        return self.project(v)


def is_plain(convex_set: ConvexSet) -> bool:
    """Whether the prox is the projection, the penalty 0 and the best response that of the linear function."""
    if type(convex_set) in (Scaled, Translated, Rotated):
        return is_plain(convex_set.inner)  # pyright: ignore[reportAttributeAccessIssue]
    return _keeps(convex_set, ConvexSet, "prox", "penalty", "best_response")


def is_domain(penalty: Penalty) -> bool:
    """Whether a penalty, as a set, is its domain in every respect."""
    return _keeps(penalty, Penalty, "project", "lmo", "violation", "diameter", "capabilities")


def measures_by_projection(convex_set: ConvexSet) -> bool:
    """Whether the violation is |v - project(v)|."""
    if "project" not in convex_set.capabilities:
        return False
    if type(convex_set) in (Scaled, Translated, Rotated):
        return measures_by_projection(convex_set.inner)  # pyright: ignore[reportAttributeAccessIssue]
    if type(convex_set) is Custom:
        return convex_set.distance is None
    if isinstance(convex_set, VectorSet):
        return _keeps(convex_set, VectorSet, "violation", "vector_violation", "_total")
    return _keeps(convex_set, ConvexSet, "violation")


def _keeps(convex_set: ConvexSet, kind: type, *names: str) -> bool:
    return all(getattr(type(convex_set), name) is getattr(kind, name) for name in names)


def _project(fixed: Fixed, v: Array) -> Array:
    convex_set, shape = fixed
    return shape.join(convex_set.project(shape.traced(v)))


def _derivative(fixed: Fixed, v: Array, rows: Array, count: Array) -> Array:
    """Of the first `count` rows."""
    _, derivative = jax.linearize(lambda v: _project(fixed, v), v)
    return lax.fori_loop(0, count, lambda i, answers: answers.at[i].set(derivative(rows[i])), jnp.zeros_like(rows))


def _lmo(fixed: Fixed, d: Array) -> Array:
    convex_set, shape = fixed
    return shape.join(convex_set.lmo(shape.traced(d)))


def _violation(fixed: Fixed, v: Array) -> Array:
    convex_set, shape = fixed
    return convex_set.violation(shape.traced(v))


def _diameter(fixed: Fixed, v: Array) -> Array:
    convex_set, shape = fixed
    return convex_set.diameter(shape.traced(v))


def _prox(fixed: Fixed, v: Array, step: Array) -> Array:
    convex_set, shape = fixed
    return shape.join(convex_set.prox(shape.traced(v), step))


def _penalty(fixed: Fixed, v: Array) -> Array:
    convex_set, shape = fixed
    return convex_set.penalty(shape.traced(v))


def _best_response(fixed: Fixed, y: Array, gradient: Array) -> tuple[Array, Array]:
    convex_set, shape = fixed
    bound, point = convex_set.best_response(shape.traced(y), shape.traced(gradient))
    return bound, shape.join(point)
