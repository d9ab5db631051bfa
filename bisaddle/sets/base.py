"""ConvexSet: what every set can be asked, and the laws its answers obey."""

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar, Generic, Literal, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jax.tree_util import Partial
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.showing import Shown
from bisaddle.trees import Number

Leaf = Array | np.ndarray
T = TypeVar("T")


class Derived(Generic[T]):
    """A constant of a class that some subclass computes from its fields: name = Derived(lambda self: ...)."""

    def __init__(self, function: Callable[[Any], T]):
        self.function = function

    def __get__(self, instance: Any, owner: type) -> T:
        answer: Any = self if instance is None else self.function(instance)
        return answer


class ConvexSet(Shown):
    """A nonempty, convex, compact set of arrays (of pytrees of arrays, for a Product).

        project(v)          argmin_{u in S} |u - v|
        lmo(d)              argmin_{u in S} <d, u>         an extreme point, for ties and for d = 0 too
        support(d)          max_{u in S} <d, u>
        violation(v)        0 on S, a distance to it elsewhere: |v - project(v)| unless the set says otherwise;
                            without a projection, the distance found by LMO calls
        contains(v, tol)    violation(v) <= tol
        diameter(v)         max_{a, b in S} |a - b|        for arrays shaped like v (an upper bound where it says so)
        sample(key, shape)  a random point of S, with no law promised
        project_error(v, p)     a bound on |p - argmin_{u in S} |u - v||, where p = project(v)
        lmo_error(d, s)         a bound on <d, s> - min_{u in S} <d, u>, where s = lmo(d)

    Laws (tests/test_set_laws.py holds every set to them): project(v) and lmo(d) lie in S; project is idempotent and
    nonexpansive, and <v - project(v), u - project(v)> <= 0 for u in S; <d, lmo(d)> <= <d, u> for u in S;
    the dtype of the input is kept. Finite input of any scale gives a point of S; a NaN or an infinity
    gives NaN. Sizes (`radius`, bounds) are array leaves, so that they can be
    traced, swept and differentiated. `capabilities` names the oracles the set has; asking for another one raises.
    `estimates` names those whose error is no bound but what they aim at, or what is seen of it from outside.
    """

    capabilities: ClassVar[frozenset[str] | Derived[frozenset[str]]] = frozenset({"project", "lmo"})
    # what an answer may be off by, relative to the size of the set and of the input; iterative oracles state theirs
    tolerance: ClassVar[float | Derived[float]] = 1e-12
    estimates: ClassVar[frozenset[str] | Derived[frozenset[str]]] = frozenset()

    def __hash__(self) -> int:
        return trees.content_hash(self)

    def project(self, v: PyTree) -> PyTree:
        raise ValueError(self.missing("project"))

    def lmo(self, direction: PyTree) -> PyTree:
        raise ValueError(self.missing("lmo"))

    def support(self, direction: PyTree) -> Array:
        return trees.dot(direction, self.lmo(trees.scale(-1.0, direction)))

    def violation(self, v: PyTree) -> Array:
        if "project" in self.capabilities:
            return trees.norm(trees.subtract(v, self.project(v)))
        from bisaddle.sets.nearest import distance_by_lmo

        return distance_by_lmo(self, v)

    def contains(self, v: PyTree, tol: Number = 1e-9) -> Array:
        return self.violation(v) <= tol

    def diameter(self, v: PyTree) -> Array:
        raise NotImplementedError

    def sample(self, key: Array, shape: PyTree) -> PyTree:
        raise NotImplementedError

    def prox(self, v: PyTree, step: Number) -> PyTree:
        """argmin_u step h(u) + |u - v|^2 / 2 with h the indicator of the set: the projection, whatever the step."""
        return self.project(v)

    def penalty(self, v: PyTree) -> Array:
        """h(v) at a point of the set: 0 for an indicator."""
        return jnp.zeros((), trees.dtype_of(v))

    def project_error(self, v: PyTree, p: PyTree) -> Array:
        return self.precision(v) * (trees.norm(v) + trees.norm(p))

    def prox_error(self, v: PyTree, p: PyTree, step: Number) -> Array:
        """A bound on how far p = prox(v, step) is from the exact one."""
        return self.project_error(v, p)

    def lmo_error(self, direction: PyTree, s: PyTree) -> Array:
        return self.precision(s) * trees.norm(direction) * (trees.norm(s) + self.diameter(s))

    def rounding(self, *vectors: PyTree) -> Array:
        """What a few operations on these vectors may lose."""
        eps = 16 * float(jnp.finfo(trees.dtype_of(vectors[0])).eps)
        return eps * sum((trees.norm(v) for v in vectors), start=jnp.zeros((), trees.dtype_of(vectors[0])))

    def precision(self, v: PyTree) -> float:
        """The tolerance, or what rounding in the dtype of v makes of it."""
        return max(self.tolerance, 64 * float(jnp.finfo(trees.dtype_of(v)).eps))

    def best_response(self, y: PyTree, gradient: PyTree) -> tuple[Array, PyTree]:
        """An upper bound on max_{s in S} <gradient, s - y> + h(y) - h(s), and the point s it comes from.

        With an LMO, the Frank-Wolfe gap, which is that maximum for h = 0. Without one, with m = P(y + t gradient) and
        t = diameter / |gradient|, <y + t gradient - m, s - m> <= 0 gives <gradient, m - y> + |gradient| |m - y|.
        """
        if "lmo" in self.capabilities:
            vertex = self.lmo(trees.scale(-1.0, gradient))
            return trees.dot(gradient, trees.subtract(vertex, y)), vertex
        length = trees.norm(gradient)
        step = self.diameter(y) / jnp.where(length > 0, length, 1)
        moved = self.project(trees.add_scaled(y, step, gradient))
        away = trees.subtract(moved, y)
        return trees.dot(gradient, away) + length * trees.norm(away), moved

    def misfit(self, v: PyTree) -> str | None:
        """Why a value of this structure and shape cannot lie in the set; None if it can."""
        if not hasattr(v, "shape"):
            return (
                f"{type(self).__name__} holds one array, given a pytree with structure {jax.tree.structure(v)}; "
                "use sets.Product with one set per leaf"
            )
        if v.size == 0:
            return f"{type(self).__name__} holds a nonempty array, given shape {v.shape}; use at least one entry"
        return None

    def hint(self, size: int) -> str:
        """What may have been meant, where a start of this size is not in the set; nothing where nothing is known."""
        return ""

    def fitting(self, v: PyTree) -> PyTree:
        """v with floats as entries; ValueError if its structure or shape does not fit."""
        v = jax.tree.map(floats, v)
        reason = self.misfit(v)
        if reason is not None:
            raise ValueError(reason)
        return v

    def missing(self, oracle: str) -> str:
        """The message of an oracle that is not written."""
        able = ", ".join(sorted(self.capabilities - {oracle})) or "no oracle"
        return f"{type(self).__name__} has no {oracle} (it has: {able})"


class VectorSet(ConvexSet):
    """A set of vectors. An array of another shape is read as one vector, or, with `axis`, as many.

    axis: None takes the whole array as one vector; an axis (or a tuple of axes) makes every slice along it a vector of
    its own, so that Simplex(axis=-1) is one simplex per row. A subclass writes `vector_project`, `vector_lmo` and
    `vector_diameter` for one vector, and `vector_sample` where there is a simpler way to draw a point; arrays among its
    fields have one entry per coordinate.
    of_trees: whether a pytree is taken as one vector of all its entries, as a norm may be; of other sets it is more
    often a mistake.
    """

    of_trees: ClassVar[bool] = False
    axis: int | tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True)

    def vector_project(self, v: Array) -> Array:
        raise ValueError(self.missing("project"))

    def vector_lmo(self, d: Array) -> Array:
        raise ValueError(self.missing("lmo"))

    def vector_violation(self, v: Array) -> Array:
        return jnp.sqrt(jnp.sum(jnp.square(v - self.vector_project(v))))

    def vector_diameter(self, v: Array) -> Array:
        raise NotImplementedError

    def vector_sample(self, key: Array, size: int) -> Array:
        """A mixture of four extreme points."""
        draws = jax.random.uniform(key, (5, size), minval=-1.0, maxval=1.0)  # one draw: each takes a second to compile
        weights = jnp.arange(1.0, 5.0) + draws[0, 0]
        return (weights / jnp.sum(weights)) @ jax.vmap(self.vector_lmo)(draws[1:])

    def project(self, v: PyTree) -> PyTree:
        return self._each(self.vector_project, v)

    def lmo(self, direction: PyTree) -> PyTree:
        return self._each(self.vector_lmo, direction)

    def violation(self, v: PyTree) -> Array:
        return self._total(self.vector_violation, v)

    def diameter(self, v: PyTree) -> Array:
        return self._total(self.vector_diameter, v)

    def sample(self, key: Array, shape: PyTree) -> PyTree:
        if not is_shape(shape):
            of = trees.Shape.of(jax.tree.map(lambda a: jax.ShapeDtypeStruct(a, float), shape, is_leaf=is_shape))
            return of.traced(self.vector_sample(key, of.size))
        axes = slice_axes(self, len(shape))
        size = prod(shape[a] for a in axes)
        count = prod(shape) // max(size, 1)
        keys = jax.random.split(key, count)
        rows = jax.vmap(lambda k: self.vector_sample(k, size))(keys)
        return self._restore(rows, shape)

    def misfit(self, v: PyTree) -> str | None:
        misfit = type(self).vector_misfit  # not self's: equinox makes a module of every method that is taken from one
        if _reads_as_one(self, v):
            return misfit(self, trees.size(v))
        reason = ConvexSet.misfit(self, v)
        if reason is not None:
            return reason
        try:
            size = prod(v.shape[a] for a in slice_axes(self, v.ndim))
        except (ValueError, IndexError):
            return f"{type(self).__name__} has axis {self.axis}, which an array of shape {v.shape} does not have"
        return misfit(self, size)

    def vector_misfit(self, size: int) -> str | None:
        """Why a vector of this size cannot lie in the set: an array field has another size, or it is empty there."""
        for name, value in vars(self).items():
            if isinstance(value, jax.Array | np.ndarray) and value.ndim and value.size != size:
                return f"{type(self).__name__} has {name} with {value.size} entries, given vectors of size {size}"
        return None

    def _rows(self, v: Array) -> Array:
        """(number of slices, size of a slice)"""
        axes = slice_axes(self, v.ndim)
        moved = jnp.moveaxis(v, axes, range(v.ndim - len(axes), v.ndim))
        return moved.reshape(-1, prod(v.shape[a] for a in axes))

    def _restore(self, rows: Array, shape: tuple[int, ...]) -> Array:
        axes = slice_axes(self, len(shape))
        others = [a for a in range(len(shape)) if a not in axes]
        moved = rows.reshape([shape[a] for a in others] + [shape[a] for a in axes])
        return jnp.moveaxis(moved, range(len(shape) - len(axes), len(shape)), axes)

    def _each(self, function: Callable[[Array], Array], v: PyTree) -> PyTree:
        v = self.fitting(v)
        if not hasattr(v, "shape"):
            shape = trees.Shape.of(v)
            return shape.traced(function(shape.join(v)))
        if self.axis is None:
            return function(v.ravel()).reshape(v.shape)
        return self._restore(jax.vmap(function)(self._rows(v)), v.shape)

    def _total(self, function: Callable[[Array], Array], v: PyTree) -> Array:
        v = self.fitting(v)
        if not hasattr(v, "shape"):
            return function(trees.Shape.of(v).join(v))
        if self.axis is None:
            return function(v.ravel())
        return jnp.sqrt(jnp.sum(jnp.square(jax.vmap(function)(self._rows(v)))))


def _reads_as_one(of: VectorSet, v: PyTree) -> bool:
    """Whether v is a pytree to be taken as one vector; one that is an array has its own way."""
    return of.of_trees and of.axis is None and not hasattr(v, "shape") and trees.size(v) > 0


def slice_axes(of: VectorSet, ndim: int) -> tuple[int, ...]:
    """The axes of an array that a vector of the set lies along."""
    if of.axis is None:
        return tuple(range(ndim))
    axes = (of.axis,) if isinstance(of.axis, int) else of.axis
    if any(not -ndim <= a < ndim for a in axes):
        raise ValueError(f"axis {of.axis} is out of range for {ndim} dimensions")
    return tuple(a % ndim for a in axes)


def is_shape(node: Any) -> bool:
    """Whether a node of a pytree is the shape of an array."""
    return isinstance(node, tuple) and all(isinstance(n, int) for n in node)


def as_leaf(value, name: str) -> Leaf:
    """Numbers become float64 NumPy arrays: traced under jit like any array, and cast to the dtype of the input."""
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, str | bytes):
        raise ValueError(f"{name} must be a number or an array of numbers, given {value!r}")
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers, given {value!r}") from error


Floor = Literal["> 0", ">= 0"]


def positive(value, name: str) -> Leaf:
    return number(value, name, "> 0")


def number(value, name: str, floor: Floor) -> Leaf:
    """A finite number, > 0 or >= 0 as the floor says, as an array leaf; traced values pass unchecked."""
    array = as_leaf(value, name)
    if array.shape != ():
        raise ValueError(f"{name} must be a number, given shape {array.shape}")
    if not traced(array) and (not np.isfinite(array) or _below(array, floor)):
        raise ValueError(f"{name} must be finite and {floor}, given {value}")
    return array


def finite_array(value, name: str, floor: Floor | None = None) -> Leaf:
    """An array of finite numbers, > 0 or >= 0 if a floor says so, as a leaf; traced values pass unchecked."""
    array = as_leaf(value, name)
    if not traced(array) and not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite, given NaN or infinity")
    if floor is not None and not traced(array) and _below(array, floor):
        raise ValueError(f"{name} must be {floor}, given {np.min(np.asarray(array)):g}")
    return array


def _below(array: Leaf, floor: Floor) -> bool:
    values = np.asarray(array)
    return bool(np.any(values < 0) or (floor == "> 0" and np.any(values == 0)))


def finite_tree(tree: PyTree, name: str) -> PyTree:
    return jax.tree.map(lambda value: finite_array(value, name), tree)


def as_callable(function: Any) -> Any:
    """A pytree that can be called: plain functions become static, callable modules keep their array leaves traced."""
    if function is None or isinstance(function, eqx.Module | Partial):
        return function
    return Partial(function) if callable(function) else function


def traced(value) -> bool:
    return isinstance(value, Tracer)


def floats(v) -> Array:
    """v as an array of floats: whole numbers become them, other dtypes stay."""
    v = jnp.asarray(v)
    return v.astype(jnp.result_type(v, float))


def cast(answer: PyTree, v: PyTree) -> PyTree:
    """What a user's function gave, in the dtypes of what it was given."""
    return jax.tree.map(lambda a, b: jnp.asarray(a).astype(b.dtype), answer, v)


def like(size, v: Array) -> Array:
    return jnp.asarray(size).astype(v.dtype)


def flat(values: Leaf, v: Array) -> Array:
    """A field with one entry per coordinate (or one for all), as a vector shaped like the vector v."""
    return jnp.broadcast_to(like(values, v).ravel() if np.ndim(values) else like(values, v), v.shape)


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, target) == tuple(target)
    except ValueError:
        return False


def within_reach(v: Array, size: Array) -> Array:
    """v, shrunk towards 0 if it is further away than size / eps, for a set of vectors no longer than size.

    With s > 1 what v was divided by, p = project(v / s) is the projection of s (v / s - p) + p too, which is within
    s |p| <= 2 eps |v| of v: a rounding error of v. Numbers within reach of the set do not overflow, and are rounded to
    no more than its size. Derivatives are those at the point returned.
    """
    fixed = lax.stop_gradient(v)
    largest = jnp.max(jnp.abs(fixed))
    reach = lax.stop_gradient(size) / jnp.finfo(v.dtype).eps
    # a power of 2 rounds nothing, so that XLA may compute the answer again wherever it is used; in two factors, as it
    # may be smaller than the smallest number
    exponent = jnp.where(largest > reach, jnp.frexp(reach)[1] - jnp.frexp(largest)[1], 0)
    half, power = exponent // 2, lambda k: jnp.ldexp(jnp.ones((), v.dtype), k)
    return fixed * power(half) * power(exponent - half) + (v - fixed)  # what is added is 0, its derivative is not


def poison(result: Array, source: Array) -> Array:
    """NaN everywhere if the input held a NaN or an infinity.

    A vertex picked by comparison would hide it, and so may a maximum or a clip: XLA's for a CPU do not always pass a
    NaN on (jaxlib 0.10.2: they do for some shapes and do not for others).
    """
    return jnp.where(jnp.all(jnp.isfinite(source)), result, jnp.nan)
