"""Sets made from other sets, or from functions."""

from collections.abc import Callable
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.sets.base import (
    ConvexSet,
    Derived,
    Leaf,
    as_callable,
    as_leaf,
    broadcasts_to,
    cast,
    finite_array,
    finite_tree,
    like,
    traced,
    within_reach,
)
from bisaddle.sets.matrix import scaled
from bisaddle.trees import Number


class Custom(ConvexSet):
    """The set S whose projection and linear minimisation oracle are the functions given

    project: the function v -> argmin_{u in S} |u - v|; lmo: the function d -> argmin_{u in S} <d, u>. Either may be
    left out. diameter is a number or a function of v, violation a function of v, sample one of (key, shape).

    It can do what it is given. Without a violation: |v - project(v)|, or the distance found by LMO calls if there is
    no projection. Without a sample: a projected normal vector, or the middle of two LMO answers. The functions are
    trusted in steps, and certificates hold them against points that they gave; bisaddle's tests of a set
    (tests/test_set_laws.py) tell whether they keep its laws. tolerance: how exact
    they are, which certificates count: |project(v) - P(v)| <= tolerance (|v| + |P(v)|), and <d, lmo(d)> within
    tolerance |d| (|lmo(d)| + diameter) of its least.
    """

    projection: Callable | None
    minimiser: Callable | None
    extent: Any
    distance: Callable | None
    sampler: Callable | None
    name: str = eqx.field(static=True)
    # of other sets it is a constant of the class, here it is the user's to say
    tolerance: float = eqx.field(static=True)  # pyright: ignore[reportIncompatibleVariableOverride]

    capabilities = Derived(lambda self: self._given())
    estimates = Derived(lambda self: self._given())

    def __init__(
        self, project=None, lmo=None, diameter=None, name="Custom", violation=None, sample=None, tolerance=1e-12
    ):
        for what, value in (("project", project), ("lmo", lmo), ("violation", violation), ("sample", sample)):
            if value is not None and not callable(value):
                raise ValueError(f"Custom {what} must be a function, given {type(value).__name__}")
        if project is None and lmo is None:
            raise ValueError("Custom needs project, lmo or both, given neither")
        self.projection, self.minimiser = as_callable(project), as_callable(lmo)
        self.distance, self.sampler = as_callable(violation), as_callable(sample)
        known = diameter is None or callable(diameter)
        self.extent = as_callable(diameter) if known else as_leaf(diameter, "Custom diameter")
        if isinstance(self.extent, np.ndarray) and not (
            self.extent.shape == () and np.isfinite(self.extent) and self.extent >= 0
        ):
            raise ValueError(f"Custom diameter must be a finite number >= 0 or a function, given {diameter}")
        if not isinstance(tolerance, float | int | np.number) or not 0 <= tolerance < 1:
            raise ValueError(f"Custom tolerance must be a number with 0 <= tolerance < 1, given {tolerance!r}")
        self.name = str(name)
        self.tolerance = float(tolerance)  # pyright: ignore[reportIncompatibleVariableOverride]

    def _given(self) -> frozenset[str]:
        functions = {"project": self.projection, "lmo": self.minimiser}
        return frozenset(oracle for oracle, function in functions.items() if function is not None)

    def project(self, v: PyTree) -> PyTree:
        if self.projection is None:
            raise ValueError(self.missing("project"))
        v = self.fitting(v)
        return _or_nan(cast(self.projection(v), v), v)

    def lmo(self, direction: PyTree) -> PyTree:
        if self.minimiser is None:
            raise ValueError(self.missing("lmo"))
        direction = self.fitting(direction)
        return _or_nan(cast(self.minimiser(direction), direction), direction)

    def violation(self, v: PyTree) -> Array:
        v = self.fitting(v)
        if self.distance is not None:
            return jnp.asarray(self.distance(v), trees.dtype_of(v))
        return ConvexSet.violation(self, v)

    def diameter(self, v: PyTree) -> Array:
        if self.extent is None:
            raise ValueError(f"{self.name} has no diameter; give Custom diameter=, a number or a function of v")
        v = self.fitting(v)
        return jnp.asarray(self.extent(v) if callable(self.extent) else self.extent).astype(trees.dtype_of(v))

    def lmo_error(self, direction: PyTree, s: PyTree) -> Array:
        extent = trees.norm(s) if self.extent is None else self.diameter(s)
        return self.precision(s) * trees.norm(direction) * (trees.norm(s) + extent)

    def sample(self, key: Array, shape: PyTree) -> PyTree:
        if self.sampler is not None:
            return self.sampler(key, shape)
        if self.projection is not None:
            return self.project(jax.random.normal(key, shape))
        first, second = (self.lmo(jax.random.normal(k, shape)) for k in jax.random.split(key))
        return trees.mix(0.5, first, second)

    def misfit(self, v: PyTree) -> str | None:
        return None  # only the functions know

    def missing(self, oracle: str) -> str:
        has = ", ".join(sorted(self.capabilities - {oracle}))
        return f"{self.name} has no {oracle} (it has: {has}); give Custom {oracle}="


class _Wrapped(ConvexSet):
    """The image of `inner` under a similarity w of factor c: project(v) = w(inner.project(w^-1 v)), and so on.

    A subclass writes `forward` (w), `backward` (w^-1), and `turn`, what w does to a direction: <d, w(u)> = <turn(d), u>
    up to a constant.
    """

    inner: ConvexSet

    capabilities = Derived(lambda self: self.inner.capabilities)
    tolerance = Derived(lambda self: self.inner.tolerance)
    estimates = Derived(lambda self: self.inner.estimates)

    def __check_init__(self):
        _require_set(type(self).__name__, self.inner)

    def factor_for(self, v: PyTree) -> Array:
        return jnp.ones((), trees.dtype_of(v))

    def forward(self, u: PyTree) -> PyTree:
        raise NotImplementedError

    def backward(self, v: PyTree) -> PyTree:
        raise NotImplementedError

    def turn(self, direction: PyTree) -> PyTree:
        return direction

    def project(self, v: PyTree) -> PyTree:
        return self.forward(self.inner.project(self.backward(self.fitting(v))))

    def lmo(self, direction: PyTree) -> PyTree:
        return self.forward(self.inner.lmo(self.turn(self.fitting(direction))))

    def violation(self, v: PyTree) -> Array:
        v = self.fitting(v)
        return self.factor_for(v) * self.inner.violation(self.backward(v))

    def diameter(self, v: PyTree) -> Array:
        v = self.fitting(v)
        return self.factor_for(v) * self.inner.diameter(v)

    def sample(self, key: Array, shape: PyTree) -> PyTree:
        return self.forward(self.inner.sample(key, shape))

    def prox(self, v: PyTree, step: Number) -> PyTree:
        v = self.fitting(v)
        return self.forward(self.inner.prox(self.backward(v), step / self.factor_for(v) ** 2))

    def penalty(self, v: PyTree) -> Array:
        return self.inner.penalty(self.backward(self.fitting(v)))

    def best_response(self, y: PyTree, gradient: PyTree) -> tuple[Array, PyTree]:
        bound, point = self.inner.best_response(self.backward(self.fitting(y)), self.turn(self.fitting(gradient)))
        return bound, self.forward(point)

    def project_error(self, v: PyTree, p: PyTree) -> Array:
        inner = self.inner.project_error(self.backward(v), self.backward(p))
        return self.factor_for(v) * inner + self._lost(v) + self._lost(p)

    def prox_error(self, v: PyTree, p: PyTree, step: Number) -> Array:
        factor = self.factor_for(v)
        inner = self.inner.prox_error(self.backward(v), self.backward(p), step / factor**2)
        return factor * inner + self._lost(v) + self._lost(p)

    def lmo_error(self, direction: PyTree, s: PyTree) -> Array:
        inner = self.inner.lmo_error(self.turn(direction), self.backward(s))
        return inner + trees.norm(direction) * self._lost(s) + self.rounding(direction) * self.diameter(s)

    def _lost(self, v: PyTree) -> Array:
        """What w^-1 and w lose of v: they round, and a rotation is orthogonal only so far."""
        moved = self.backward(v)
        missed = trees.norm(trees.subtract(self.forward(moved), v))
        return 2 * missed + self.rounding(v) + self.factor_for(v) * self.rounding(moved)

    def misfit(self, v: PyTree) -> str | None:
        return self.inner.misfit(v)

    def missing(self, oracle: str) -> str:
        return f"{type(self).__name__} of {self.inner.missing(oracle)}"


class Scaled(_Wrapped):
    """{factor u : u in inner}, factor a number other than 0

    project: one of the inner set's; lmo: one of the inner set's.
    """

    factor: Leaf = eqx.field(converter=lambda a: finite_array(a, "Scaled factor"))

    def __check_init__(self):
        if self.factor.shape != ():
            raise ValueError(f"Scaled factor must be a number, given shape {self.factor.shape}; use Image or a Product")
        if not traced(self.factor) and self.factor == 0:
            raise ValueError("Scaled factor must not be 0; use a set of one point")

    def factor_for(self, v: PyTree) -> Array:
        return jnp.abs(jnp.asarray(self.factor)).astype(trees.dtype_of(v))

    def forward(self, u: PyTree) -> PyTree:
        return trees.scale(self.factor, u)

    def backward(self, v: PyTree) -> PyTree:
        return jax.tree.map(self._divided, v)

    def _divided(self, a: Array) -> Array:
        """a / factor, of an `a` that is brought within reach of all but the largest numbers first."""
        factor, numbers = like(self.factor, a), jnp.finfo(a.dtype)
        return within_reach(a, jnp.abs(factor) * (numbers.max * numbers.eps / 16)) / factor

    def lmo(self, direction: PyTree) -> PyTree:
        # the factor itself might overflow, or lose the direction
        return self.forward(self.inner.lmo(trees.scale(jnp.sign(self.factor), self.fitting(direction))))

    def turn(self, direction: PyTree) -> PyTree:
        return trees.scale(self.factor, direction)


class Translated(_Wrapped):
    """{u + offset : u in inner}, offset an array that broadcasts to u (a pytree of them, for a Product)

    project: one of the inner set's; lmo: one of the inner set's.
    """

    offset: PyTree = eqx.field(converter=lambda o: finite_tree(o, "Translated offset"))

    def forward(self, u: PyTree) -> PyTree:
        return jax.tree.map(lambda a, o: a + like(o, a), u, self.offset)

    def backward(self, v: PyTree) -> PyTree:
        return jax.tree.map(lambda a, o: a - like(o, a), v, self.offset)

    def misfit(self, v: PyTree) -> str | None:
        reason = self.inner.misfit(v)
        if reason is not None:
            return reason
        if jax.tree.structure(v) != jax.tree.structure(self.offset):
            return (
                f"Translated offset has structure {jax.tree.structure(self.offset)}, given {jax.tree.structure(v)}; "
                "use the same keys and nesting"
            )
        for a, o in zip(jax.tree.leaves(v), jax.tree.leaves(self.offset), strict=True):
            if not broadcasts_to(o.shape, a.shape):
                return f"Translated offset has shape {o.shape} and does not broadcast to the given shape {a.shape}"
        return None


class Rotated(_Wrapped):
    """{rotation u : u in inner}, rotation an orthogonal matrix (reflections too) on the array read as one vector

    project: one of the inner set's and two products with the matrix, O(n^2); lmo: likewise.
    """

    rotation: Leaf = eqx.field(converter=lambda a: finite_array(a, "Rotated rotation"))

    def __check_init__(self):
        shape = self.rotation.shape
        if len(shape) != 2 or shape[0] != shape[1]:
            raise ValueError(f"Rotated rotation must be a square matrix, given shape {shape}")
        if not traced(self.rotation):
            Q = np.asarray(self.rotation)
            off = float(np.max(np.abs(Q.T @ Q - np.eye(len(Q)))))
            # what it is off by is what projections are off by; a float32 matrix is only this orthogonal
            allowed = 1e-10 if Q.dtype == np.float64 else 1e-5
            if off > allowed:
                raise ValueError(
                    f"Rotated rotation must be orthogonal, given Q'Q off the identity by {off:.3g}; "
                    "use numpy.linalg.qr, or Image for another matrix"
                )

    def forward(self, u: Array) -> Array:
        return (like(self.rotation, u) @ u.ravel()).reshape(u.shape)

    def backward(self, v: Array) -> Array:
        return (like(self.rotation, v).T @ v.ravel()).reshape(v.shape)

    def turn(self, direction: Array) -> Array:
        return self.backward(direction)

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v) or self.inner.misfit(v)
        if reason is None and v.size != self.rotation.shape[0]:
            return f"Rotated rotation is for arrays of {self.rotation.shape[0]} entries, given shape {v.shape}"
        return reason


class Image(ConvexSet):
    """{matrix u : u in inner}, u of the shape `shape` (a vector unless given) read as one vector

    project: none; lmo: one of the inner set's and two products with the matrix. violation is a distance found by LMO
    calls (Wolfe's algorithm with at most 256 extreme points; beyond them an upper bound). diameter: an upper bound.
    """

    capabilities = frozenset({"lmo"})
    tolerance = Derived(lambda self: max(1e-10, self.inner.tolerance))  # that of the distance found by LMO calls
    estimates = Derived(lambda self: self.inner.estimates)

    matrix: Leaf = eqx.field(converter=lambda a: finite_array(a, "Image matrix"))
    inner: ConvexSet
    shape: tuple[int, ...] | None = eqx.field(
        static=True, default=None, converter=lambda s: None if s is None else tuple(s)
    )

    def __check_init__(self):
        _require_set("Image", self.inner)
        if self.matrix.ndim != 2 or 0 in self.matrix.shape:
            raise ValueError(f"Image matrix must be a nonempty matrix, given shape {self.matrix.shape}")
        columns = self.matrix.shape[1]
        if self.shape is not None and prod(self.shape) != columns:
            raise ValueError(f"Image shape must have {columns} entries, one per column, given {self.shape}")
        if "lmo" not in self.inner.capabilities:
            raise ValueError(f"Image needs an LMO: {self.inner.missing('lmo')}")
        reason = self.inner.misfit(jax.ShapeDtypeStruct(self._inner_shape, np.dtype(np.float64)))
        if reason is not None:
            raise ValueError(f"Image matrix has {columns} columns, which does not fit its set: {reason}")

    @property
    def _inner_shape(self) -> tuple[int, ...]:
        return (self.matrix.shape[1],) if self.shape is None else self.shape

    def lmo(self, direction: Array) -> Array:
        d = self.fitting(direction)
        _, u = self._inner_lmo(d)
        return (like(self.matrix, d) @ u.ravel()).reshape(d.shape)

    def _inner_lmo(self, d: Array) -> tuple[Array, Array]:
        """The direction as the inner set sees it, divided by its largest entry, and what that set answers."""
        near, _, unfit = scaled(d.ravel())
        turned = jnp.where(unfit, jnp.nan, like(self.matrix, d).T @ near).reshape(self._inner_shape)
        return turned, self.inner.lmo(turned)

    def lmo_error(self, direction: Array, s: Array) -> Array:
        turned, u = self._inner_lmo(direction)
        products = self.rounding(self.matrix) * trees.norm(direction) * (trees.norm(u) + self.inner.diameter(u))
        return jnp.max(jnp.abs(direction)) * self.inner.lmo_error(turned, u) + products

    def diameter(self, v: Array) -> Array:
        matrix = like(self.matrix, self.fitting(v))
        inner = self.inner.diameter(jnp.zeros(self._inner_shape, matrix.dtype))
        return jnp.linalg.norm(matrix, ord=2) * inner

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        u = self.inner.sample(key, self._inner_shape)
        return (like(self.matrix, u) @ u.ravel()).reshape(shape)

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v)
        if reason is None and v.size != self.matrix.shape[0]:
            return f"Image has a matrix of {self.matrix.shape[0]} rows, given an array of shape {v.shape}"
        return reason

    def missing(self, oracle: str) -> str:
        return f"{ConvexSet.missing(self, oracle)}; use a method that needs only an LMO on it: OneSidedProjectionFree"


def _or_nan(answer: PyTree, given: PyTree) -> PyTree:
    """The answer, or NaN if what was given holds a NaN or an infinity."""
    fit = trees.all_finite(given)
    return jax.tree.map(lambda a: jnp.where(fit, a, jnp.nan), answer)


def _require_set(name: str, inner) -> None:
    if not isinstance(inner, ConvexSet):
        raise ValueError(f"{name} takes a set of bisaddle.sets, given {type(inner).__name__}")
