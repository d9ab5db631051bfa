"""The derivatives of f and g as NumPy arrays: plain autodiff of the user's functions in float64, flat and dense."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

from bisaddle.auditing.extended import IS_WIDER, extended
from bisaddle.auditing.textbook import Vector
from bisaddle.problem import Point, Problem

# columns of a Hessian that are taken at once
COLUMNS = 64


class Functions(eqx.Module):
    """f, g and their data; leaves that are not arrays are static."""

    upper: Any
    lower: Any
    data: Any


class Gradients(NamedTuple):
    """First derivatives at (x, theta, y), and the products with w that a hypergradient takes."""

    f: Vector
    f_x: Vector
    f_theta: Vector
    f_y: Vector
    g_theta: Vector
    g_theta_x: Vector
    g_theta_theta: Vector


class Lower(NamedTuple):
    """g, its gradient and its Hessian in theta."""

    g: float
    slope: Vector
    hessian: Vector


class Several(NamedTuple):
    """f and f_y at several y, one a row."""

    values: Vector
    slopes: Vector


def _gradients_of(functions: Functions, x: Any, theta: Any, y: Any, w: Any) -> tuple[Any, ...]:
    f, (f_x, f_theta, f_y) = jax.value_and_grad(functions.upper, (0, 1, 2))(x, theta, y, functions.data)
    slope = cross = bend = None
    if functions.lower is not None:
        along = lambda x, theta: jax.grad(functions.lower, 1)(x, theta, functions.data)
        slope, bend = jax.jvp(lambda theta: along(x, theta), (theta,), (w,))
        dot = lambda a: sum(jnp.vdot(u, v) for u, v in zip(jax.tree.leaves(a), jax.tree.leaves(w), strict=True))
        cross = jax.grad(lambda x: dot(along(x, theta)))(x)
    return tuple(ravel_pytree(part)[0] for part in (f, f_x, f_theta, f_y, slope, cross, bend))


_gradients = eqx.filter_jit(_gradients_of)


@eqx.filter_jit
def _lower(functions: Functions, x: Any, theta: Any) -> tuple[Any, ...]:
    flat, tree = ravel_pytree(theta)
    function = lambda v: functions.lower(x, tree(v), functions.data)
    g, slope = jax.value_and_grad(function)(flat)
    return g, slope, _hessian(function, flat)


@eqx.filter_jit
def _several(functions: Functions, x: Any, theta: Any, like: Any, ys: Any) -> tuple[Any, ...]:
    tree = ravel_pytree(like)[1]
    return jax.vmap(jax.value_and_grad(lambda v: functions.upper(x, theta, tree(v), functions.data)))(ys)


@eqx.filter_jit
def _bends(functions: Functions, x: Any, theta: Any, like: Any, ys: Any) -> jax.Array:
    tree = ravel_pytree(like)[1]
    return lax.map(lambda v: _hessian(lambda u: functions.upper(x, theta, tree(u), functions.data), v), ys)


def _hessian(function: Any, v: jax.Array) -> jax.Array:
    column = lambda direction: jax.jvp(jax.grad(function), (v,), (direction,))[1]
    return lax.map(column, jnp.eye(v.size, dtype=v.dtype), batch_size=min(COLUMNS, v.size))


class Arrays:
    """f and g of a problem at flat float64 vectors, whatever dtypes the point and the data have."""

    def __init__(self, problem: Problem, point: Point):
        self.functions = Functions(problem.upper, problem.lower, problem.data)
        self._wide = jax.device_put(_cast(self.functions, np.float64))
        self.likes = tuple(_cast(part, np.float64) for part in (point.x, point.theta, point.y))
        self._trees = tuple(_unraveler(part) for part in self.likes)

    def flat(self, tree: Any) -> Vector:
        leaves = [np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(tree)]
        return np.concatenate([np.zeros(0), *leaves])

    def tree(self, which: int, v: Vector) -> Any:
        """The tree of x, theta or y (0, 1, 2) with the entries v."""
        return self._trees[which](v)

    def gradients(self, x: Vector, theta: Vector, y: Vector, w: Vector) -> Gradients:
        return Gradients(*map(_as_numpy, _gradients(self._wide, *self._arguments(x, theta, y, w))))

    def rounding(self, x: Vector, theta: Vector, y: Vector, w: Vector) -> Gradients:
        """How much rounding inside f and g has changed the gradients: extended precision beside float64.

        Where f or g have operations that NumPy does not know, or the machine no extended precision, also what float32
        changes, scaled down; where that over- or underflows it is more than needed, or infinity.
        """
        fine = self.gradients(x, theta, y, w)
        arguments = self._arguments(x, theta, y, w)
        finer, everywhere = extended(_gradients_of, self._wide, *arguments)
        change = lambda a, b: np.nan_to_num(_as_numpy(np.abs(a - b)), nan=np.inf)
        direct = Gradients(*map(change, fine, finer))
        if everywhere and IS_WIDER:
            return direct
        single = _cast((self.functions, *arguments), np.float32)
        try:
            with jax.enable_x64(False):
                coarse = [_as_numpy(part) for part in _gradients(*single)]
        except TypeError:  # JAX keeps the dtype of whole numbers in f, such as indices, from before the switch
            coarse = [_as_numpy(part) for part in _gradients(*single)]
        share = float(np.finfo(np.float64).eps / np.finfo(np.float32).eps)
        return Gradients(*(np.maximum(a, share * change(b, c)) for a, b, c in zip(direct, fine, coarse, strict=True)))

    def lower(self, x: Vector, theta: Vector) -> Lower:
        g, slope, hessian = _lower(self._wide, self.tree(0, x), self.tree(1, theta))
        hessian = _as_numpy(hessian)
        return Lower(float(g), _as_numpy(slope), 0.5 * (hessian + hessian.T))

    def several(self, x: Vector, theta: Vector, ys: Vector) -> Several:
        x_tree, theta_tree = self.tree(0, x), self.tree(1, theta)
        return Several(*map(_as_numpy, _several(self._wide, x_tree, theta_tree, self.likes[2], ys)))

    def bends(self, x: Vector, theta: Vector, ys: Vector) -> Vector:
        """The Hessians of f in y at several y."""
        found = _as_numpy(_bends(self._wide, self.tree(0, x), self.tree(1, theta), self.likes[2], ys))
        return 0.5 * (found + found.transpose(0, 2, 1))

    def _arguments(self, x: Vector, theta: Vector, y: Vector, w: Vector) -> tuple[Any, ...]:
        return tuple(self.tree(which, v) for which, v in ((0, x), (1, theta), (2, y), (1, w)))


def _unraveler(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    shapes = [np.shape(leaf) for leaf in leaves]
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)])

    def unravel(v: Vector) -> Any:
        return structure.unflatten(v[a:b].reshape(s) for a, b, s in zip(ends[:-1], ends[1:], shapes, strict=True))

    return unravel


def _cast(tree: Any, dtype: Any) -> Any:
    """Floating-point leaves in this dtype; a point's whole numbers too, which the library takes as floats."""

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array | np.ndarray | np.generic) and jnp.issubdtype(leaf.dtype, np.floating):
            return np.asarray(leaf).astype(dtype)
        return leaf

    return jax.tree.map(convert, tree)


def _as_numpy(found: Any) -> Vector:
    return np.asarray(found, np.float64)
