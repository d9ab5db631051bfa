"""The form of every other set over flat vectors: small programs, each compiled when it is first called."""

import math
from collections.abc import Callable
from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.programs import Program, outside
from bisaddle.sets.base import ConvexSet, VectorSet
from bisaddle.sets.combine import Custom, Rotated, Scaled, Translated
from bisaddle.sets.flat_base import Face, FlatSet, length
from bisaddle.sets.prox import Penalty, SquaredL2
from bisaddle.trees import Number, Shape

# rows that a derivative is taken of at once
ROWS = 48
# directions along which a prox is held against other points, and shares of the way to the border
WAYS = 4
SHARES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6)
# a set and the shape of its values: sizes of the set are arguments of a program, the shape is not
Fixed = tuple[ConvexSet, Shape]


class CompiledForm(FlatSet):
    """Any set: its own oracles, compiled. What follows from them is done on the host."""

    def __init__(self, of: ConvexSet, shape: Shape):
        super().__init__(of, shape.size)
        self.shape = shape
        self._programs: dict[str, Program] = {}
        self._taken = 0
        self._diameter: float | None = None
        self._plain, self._nearest_violation = is_plain(of), measures_by_projection(of)
        self._own_errors = {name for name in _ERRORS if not (_keeps(of, ConvexSet, name) or _keeps(of, Penalty, name))}

    def _run(self, key: str, *arrays: np.ndarray) -> PyTree:
        if key not in self._programs:
            name = f"the {_NAMES.get(key, key.replace('_', ' '))} of {type(self.of).__name__}"
            self._programs[key] = Program(_FUNCTIONS[key], name, (self.of, self.shape), self._taken)
        return self._programs[key](*arrays)

    def project(self, v: np.ndarray) -> np.ndarray:
        self._require("project")
        return np.array(self._run("project", v))  # a copy, since what a program gives is read-only

    def lmo(self, d: np.ndarray) -> np.ndarray:
        self._require("lmo")
        return np.array(self._run("lmo", d))

    def face(self, v: np.ndarray) -> Face:
        v = v.copy()  # which the caller may change before the derivative is asked for

        def inside(rows: np.ndarray) -> np.ndarray:
            stack = rows.reshape(-1, self.size)
            count = len(stack)
            # so that one program does for every number of rows
            padded = np.zeros((-(-count // ROWS) * ROWS, self.size), v.dtype)
            padded[:count] = stack
            answer = self._run("derivative", v, padded, np.array(count))
            return np.array(answer[:count]).reshape(rows.shape)

        return Face(CompiledForm.project(self, v), inside)  # a subclass may project by its faces

    def violation(self, v: np.ndarray) -> float:
        return super().violation(v) if self._nearest_violation else float(self._run("violation", v))

    def diameter(self) -> float:
        if self._diameter is None:
            self._diameter = float(self._run("diameter", np.zeros(self.size, self.shape.dtype)))
        return self._diameter

    def prox(self, v: np.ndarray, step: Number) -> np.ndarray:
        return self.project(v) if self._plain else np.array(self._run("prox", v, np.asarray(step, v.dtype)))

    def penalty(self, v: np.ndarray) -> float:
        return 0.0 if self._plain else float(self._run("penalty", v))

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        if "project_error" in self._own_errors:
            return float(self._run("project_error", v, p))
        return super().project_error(v, p)

    def prox_error(self, v: np.ndarray, p: np.ndarray, step: Number) -> float:
        if "prox_error" in self._own_errors:
            return float(self._run("prox_error", v, p, np.asarray(step, v.dtype)))
        return self.project_error(v, p) if self._plain else super().project_error(v, p)

    def lmo_error(self, d: np.ndarray, s: np.ndarray) -> float:
        if "lmo_error" in self._own_errors:
            return float(self._run("lmo_error", d, s))
        return super().lmo_error(d, s)

    def best_response(self, y: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        if self._plain:
            return super().best_response(y, gradient)
        bound, point = self._run("best_response", y, gradient)
        return float(bound), np.array(point)


class CustomForm(CompiledForm):
    """Custom, or a class of the user's own: what its functions give is held against other points that they gave.

        <v - p, z - p> <= 0 for p = project(v), and <d, s> <= <d, z> for s = lmo(d), for every z of the set
        project((p + z) / 2) = (p + z) / 2: a set is convex

    Where that fails by more than the tolerance stated, the error is what it fails by.
    """

    def __init__(self, of: ConvexSet, shape: Shape):
        super().__init__(of, shape)
        if isinstance(of, Custom):
            self._taken = outside(of.projection, of.minimiser, of.extent, of.distance)
        self.estimates = self.estimates | (self.capabilities & {"project", "lmo"})

    @cached_property
    def _others(self) -> list[np.ndarray]:
        noise = [sign * np.random.default_rng(i).normal(size=self.size) for i in range(2) for sign in (1, -1)]
        noise = [v.astype(self.shape.dtype) for v in noise]
        points = [self.lmo(d) for d in noise] if "lmo" in self.capabilities else []
        return points + ([self.project(10 * v) for v in noise] if "project" in self.capabilities else [])

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        stated, away = super().project_error(v, p), v - p
        for z in self._others:
            if (apart := length(z - p)) > 0:
                rise = float(away.dot(z - p)) / apart
                stated = max(stated, rise if rise > stated * (1 + length(away) / apart) else 0.0)
                middle = (p + z) / p.dtype.type(2)
                off = length(self.project(middle) - middle)
                stated = max(stated, off if off > 2 * super().project_error(middle, middle) else 0.0)
        return stated

    def prox_error(self, v: np.ndarray, p: np.ndarray, step: Number) -> float:
        return self.project_error(v, p) if self._plain else super().prox_error(v, p, step)

    def lmo_error(self, d: np.ndarray, s: np.ndarray) -> float:
        return max([super().lmo_error(d, s), *(float(d.dot(s - z)) for z in self._others)])


class PenaltyForm(FlatSet):
    """A penalty: as a set it is its domain, whose form is asked; `own` knows h, its prox and its best response."""

    def __init__(self, of: Penalty, domain: FlatSet, own: FlatSet):
        super().__init__(of, domain.size)
        self.project, self.lmo, self.face = domain.project, domain.lmo, domain.face
        self.violation, self.diameter = domain.violation, domain.diameter
        self.prox, self.penalty, self.best_response = own.prox, own.penalty, own.best_response
        self.project_error, self.lmo_error, self.prox_error = domain.project_error, domain.lmo_error, own.prox_error


class CustomPenaltyForm(PenaltyForm):
    """Prox, or a penalty of the user's own: its prox is held against other points of the domain.

        h(z) + |z - v|^2 / (2 step) >= h(p) + |p - v|^2 / (2 step) for p = prox(v, step)

        h((z + p) / 2) <= (h(z) + h(p)) / 2

    Where z has less, by e, p is said to be off by sqrt(2 step e): by no more, if z has least of all. Likewise where h
    is not convex.
    """

    def __init__(self, of: Penalty, domain: FlatSet, own: FlatSet):
        super().__init__(of, domain, own)
        self.stated, self.prox_error = own.prox_error, self._prox_error

    def _prox_error(self, v: np.ndarray, p: np.ndarray, step: Number) -> float:
        total = lambda u: self.penalty(u) + length(u - v) ** 2 / (2 * float(step))
        rounding = 64 * float(np.finfo(v.dtype).eps) * (abs(self.penalty(p)) + total(p))
        excess = [0.0]
        rng = np.random.default_rng(0)
        units = np.eye(min(WAYS, self.size), self.size)[:, rng.permutation(self.size)]
        for way in (*rng.normal(size=(WAYS, self.size)), *units, *-units):  # at a kink only a few ways lead down
            away = self.project(p + (10 * (1 + length(p)) * way).astype(v.dtype)) - p
            excess += [total(p) - total(p + v.dtype.type(share) * away) - rounding for share in SHARES]
            ends = 0.5 * (self.penalty(p) + self.penalty(p + away))
            excess.append(
                self.penalty(p + away / v.dtype.type(2))
                - ends
                - rounding
                - 64 * float(np.finfo(v.dtype).eps) * abs(ends)
            )
        return max(self.stated(v, p, step), math.sqrt(2 * float(step) * float(np.nanmax(excess))))


class SquaredForm(PenaltyForm):
    """SquaredL2: all that it asks is a projection onto its domain, and nothing of its own is compiled."""

    def __init__(self, of: SquaredL2, domain: FlatSet, shape: Shape):
        super().__init__(of, domain, domain)
        self.domain, self.weight = domain, float(of.weight)
        given = jax.tree.leaves(of.center)
        leaves = zip(given if len(given) > 1 else given * len(shape.shapes), shape.shapes, strict=True)
        self.center = np.concatenate([np.broadcast_to(np.asarray(c), a).ravel() for c, a in leaves]).astype(shape.dtype)
        self.prox, self.penalty, self.best_response = self._prox, self._penalty, self._best_response
        self.prox_error = self._prox_error

    def _shrunk(self, v: np.ndarray, step: Number) -> np.ndarray:
        t = v.dtype.type(self.weight * float(step))
        return (v + t * self.center) / (1 + t)

    def _prox(self, v: np.ndarray, step: Number) -> np.ndarray:
        return self.domain.project(self._shrunk(v, step))

    def _prox_error(self, v: np.ndarray, p: np.ndarray, step: Number) -> float:
        shrunk = self._shrunk(v, step)
        rounding = 16 * float(np.finfo(v.dtype).eps)
        return self.domain.project_error(shrunk, p) + rounding * (length(v) + length(shrunk))

    def _penalty(self, v: np.ndarray) -> float:
        return 0.5 * self.weight * length(v - self.center) ** 2

    def _best_response(self, y: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        s = self.domain.project(self.center + gradient / y.dtype.type(self.weight))
        return float(gradient.dot(s - y)) + self._penalty(y) - self._penalty(s), s


class IndicatorForm(PenaltyForm):
    """An Indicator: its domain, and a prox that is the projection even where the domain has another one."""

    def __init__(self, of: Penalty, domain: FlatSet):
        super().__init__(of, domain, domain)
        self.prox = lambda v, step: domain.project(v)
        self.prox_error = lambda v, p, step: domain.project_error(v, p)


def is_plain(convex_set: ConvexSet) -> bool:
    """Whether the prox is the projection, the penalty 0 and the best response that of the linear function."""
    if (inner := _moved(convex_set)) is not None:
        return is_plain(inner)
    return _keeps(convex_set, ConvexSet, "prox", "penalty", "best_response")


def is_domain(penalty: Penalty) -> bool:
    """Whether a penalty, as a set, is its domain in every respect."""
    return _keeps(penalty, Penalty, "project", "lmo", "violation", "diameter", "capabilities")


def measures_by_projection(convex_set: ConvexSet) -> bool:
    """Whether the violation is |v - project(v)|."""
    if "project" not in convex_set.capabilities:
        return False
    if (inner := _moved(convex_set)) is not None:
        return measures_by_projection(inner)
    if type(convex_set) is Custom:
        return convex_set.distance is None
    if isinstance(convex_set, VectorSet):
        return _keeps(convex_set, VectorSet, "violation", "vector_violation", "_total")
    return _keeps(convex_set, ConvexSet, "violation")


def _moved(convex_set: ConvexSet) -> ConvexSet | None:
    """The set that a similarity moves; a subclass may do more than move it."""
    similarities = (Scaled, Translated, Rotated)
    if isinstance(convex_set, similarities) and type(convex_set) in similarities:
        return convex_set.inner
    return None


def _keeps(convex_set: ConvexSet, kind: type, *names: str) -> bool:
    return all(getattr(type(convex_set), name) is getattr(kind, name) for name in names)


def _asked(oracle: str, fixed: Fixed, *arrays: Array) -> PyTree:
    """An oracle between flat vectors; numbers, such as the step of a prox, stay what they are."""
    convex_set, shape = fixed
    answer = getattr(convex_set, oracle)(*(shape.traced(array) if array.ndim else array for array in arrays))
    if oracle == "best_response":
        bound, point = answer
        return bound, shape.join(point)
    return shape.join(answer) if oracle in ("project", "lmo", "prox") else answer


def _derivative(fixed: Fixed, v: Array, rows: Array, count: Array) -> Array:
    """Of the projection, along the first `count` rows."""
    _, derivative = jax.linearize(lambda v: _asked("project", fixed, v), v)
    return lax.fori_loop(0, count, lambda i, answers: answers.at[i].set(derivative(rows[i])), jnp.zeros_like(rows))


_ERRORS = ("project_error", "prox_error", "lmo_error")
_ORACLES = ("project", "lmo", "violation", "diameter", "prox", "penalty", "best_response", *_ERRORS)
# made once: a program that is compiled is found again by its function
_FUNCTIONS: dict[str, Callable] = {oracle: partial(_asked, oracle) for oracle in _ORACLES} | {"derivative": _derivative}
# programs that do not have the name of their oracle
_NAMES = {"project": "projection", "lmo": "linear minimisation", "derivative": "derivative of the projection"}
