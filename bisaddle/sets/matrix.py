"""MatrixSet: sets of matrices, and functions of singular values and eigenvalues with their derivatives."""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle.sets.base import ConvexSet, VectorSet, poison


class MatrixSet(ConvexSet):
    """A set of matrices: the last two axes of an array; leading axes make it a stack, a product of one set per matrix.

    A subclass writes `matrix_project`, `matrix_lmo`, `matrix_diameter` and `matrix_sample` for one matrix, and
    `matrix_misfit` where not every shape will do.
    """

    square: ClassVar[bool] = False

    def matrix_project(self, v: Array) -> Array:
        raise ValueError(self.missing("project"))

    def matrix_lmo(self, d: Array) -> Array:
        raise ValueError(self.missing("lmo"))

    def matrix_support(self, d: Array) -> Array:
        return jnp.sum(d * self.matrix_lmo(-d))

    def matrix_diameter(self, v: Array) -> Array:
        raise NotImplementedError

    def matrix_sample(self, key: Array, rows: int, columns: int) -> Array:
        raise NotImplementedError

    def project(self, v: Array) -> Array:
        return self._each(self.matrix_project, v)

    def lmo(self, direction: Array) -> Array:
        return self._each(self.matrix_lmo, direction)

    def support(self, direction: Array) -> Array:
        return jnp.sum(self._each(self.matrix_support, direction))

    def diameter(self, v: Array) -> Array:
        v = self.fitting(v)
        return self.matrix_diameter(v[(0,) * (v.ndim - 2)]) * prod(v.shape[:-2]) ** 0.5

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        if (reason := self.misfit(jax.ShapeDtypeStruct(shape, jnp.result_type(float)))) is not None:
            raise ValueError(reason)
        rows, columns = shape[-2:]
        keys = jax.random.split(key, prod(shape[:-2]))
        return jax.vmap(lambda k: self.matrix_sample(k, rows, columns))(keys).reshape(shape)

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v)
        if reason is None and len(v.shape) < 2:
            return f"{type(self).__name__} holds matrices (the last two axes), given an array of shape {v.shape}"
        return reason or self.matrix_misfit(*v.shape[-2:])

    def matrix_misfit(self, rows: int, columns: int) -> str | None:
        """Why a matrix of this shape cannot lie in the set."""
        if self.square and rows != columns:
            return f"{type(self).__name__} holds square matrices, given {rows} x {columns}"
        return None

    def _each(self, function: Callable[[Array], PyTree], v: Array) -> PyTree:
        """function(matrix) for every matrix of a stack, leading axes restored."""
        v = self.fitting(v)
        if v.ndim == 2:
            return function(v)
        answers = jax.vmap(function)(v.reshape(-1, *v.shape[-2:]))
        return jax.tree.map(lambda a: a.reshape(*v.shape[:-2], *a.shape[1:]), answers)


class SpectralSet(MatrixSet):
    """Matrices whose singular values, or eigenvalues, lie in `values`, a set of vectors."""

    @property
    def values(self) -> VectorSet:
        raise NotImplementedError

    def matrix_diameter(self, v: Array) -> Array:
        return self.values.vector_diameter(jnp.zeros(min(v.shape), v.dtype))


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def map_singular(oracle: str, vectors: VectorSet, v: Array) -> Array:
    """U diag(f(s)) W' for the singular values s of v, f an oracle of a set of vectors ("vector_project", "vector_lmo").

    The set of vectors does not change when coordinates are exchanged or change sign; then f(s) is well defined, and
    this is the oracle of the set of matrices whose singular values lie in it. Derivatives stay right where singular
    values are equal or 0, where those of the factors do not exist.
    """
    u, s, wt = _svd(v)
    return _from_singular(u, s, wt, getattr(vectors, oracle)(s), v)


def _from_singular(u: Array, s: Array, wt: Array, f: Array, v: Array) -> Array:
    """U diag(f) W'; a point that f leaves alone is returned untouched by the rounding of the factorisation."""
    return poison(jnp.where(jnp.all(f == s), v, (u * f) @ wt), v)


@map_singular.defjvp
def _map_singular_jvp(oracle, primals, tangents):
    vectors, v = primals
    vectors_dot, v_dot = tangents
    u, s, wt = _svd(v)
    of_values = lambda vectors, s: getattr(vectors, oracle)(s)
    middle = u.T @ v_dot @ wt.T
    # f is odd in every value: derivatives are taken beside 0, where those of |s| and sign(s) exist
    largest = jnp.max(s)
    nonzero = jnp.maximum(s, jnp.where(largest == 0, 1, largest) * float(jnp.finfo(s.dtype).eps) ** 2)
    f = of_values(vectors, s)
    _, f_dot = jax.jvp(of_values, (vectors, nonzero), (vectors_dot, jnp.diagonal(middle)))
    jacobian = jax.jacfwd(partial(of_values, vectors))(nonzero)
    even, odd = 0.5 * (middle + middle.T), 0.5 * (middle - middle.T)
    own = jnp.diagonal(jacobian)
    at_zero = 0.5 * (own[:, None] + own[None, :])
    sums = _quotient(f[:, None] + f[None, :], s[:, None] + s[None, :], at_zero, s)
    inner = _off_diagonal(_divided_differences(s, f, jacobian) * even) + sums * odd + jnp.diag(f_dot)
    answer = u @ inner @ wt
    ratios = _quotient(f, s, own, s)
    rows, columns = v.shape
    if rows > columns:  # what v_dot has outside the span of u
        outside = v_dot @ wt.T
        answer = answer + ((outside - u @ middle) * ratios) @ wt
    if columns > rows:
        outside = u.T @ v_dot
        answer = answer + (u * ratios) @ (outside - middle @ wt)
    return _from_singular(u, s, wt, f, v), answer


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def map_eigen(oracle: str, vectors: VectorSet, v: Array) -> Array:
    """Q diag(f(values)) Q' for the eigenvalues of the symmetric part of v: map_singular for symmetric matrices."""
    values, q = _eigh(symmetric_part(v))
    return _from_eigen(values, q, getattr(vectors, oracle)(values), v)


def _from_eigen(values: Array, q: Array, f: Array, v: Array) -> Array:
    """Q diag(f) Q', symmetric to the last digit."""
    return poison(jnp.where(jnp.all(f == values), symmetric_part(v), symmetric_part((q * f) @ q.T)), v)


@map_eigen.defjvp
def _map_eigen_jvp(oracle, primals, tangents):
    vectors, v = primals
    vectors_dot, v_dot = tangents
    values, q = _eigh(symmetric_part(v))
    of_values = lambda vectors, s: getattr(vectors, oracle)(s)
    middle = q.T @ symmetric_part(v_dot) @ q
    f, f_dot = jax.jvp(of_values, (vectors, values), (vectors_dot, jnp.diagonal(middle)))
    jacobian = jax.jacfwd(partial(of_values, vectors))(values)
    inner = _off_diagonal(_divided_differences(values, f, jacobian) * middle) + jnp.diag(f_dot)
    return _from_eigen(values, q, f, v), symmetric_part(q @ inner @ q.T)


def symmetric_part(v: Array) -> Array:
    return 0.5 * v + 0.5 * v.T


def _divided_differences(s: Array, f: Array, jacobian: Array) -> Array:
    """(f_i - f_j) / (s_i - s_j); its limit for s_j -> s_i is the derivative of f along e_i - e_j, in coordinate i."""
    along = jnp.diagonal(jacobian)[:, None] - jacobian
    limit = 0.5 * (along + along.T)
    return _quotient(f[:, None] - f[None, :], s[:, None] - s[None, :], limit, s)


def _quotient(numerator: Array, denominator: Array, limit: Array, s: Array) -> Array:
    """The limit where the denominator is so small that the numerator has lost half its digits."""
    small = float(jnp.finfo(s.dtype).eps) ** 0.5 * jnp.max(jnp.abs(s))
    close = jnp.abs(denominator) <= small
    return jnp.where(close, limit, numerator / jnp.where(close, 1, denominator))


def _off_diagonal(matrix: Array) -> Array:
    return jnp.where(jnp.eye(matrix.shape[0], dtype=bool), 0, matrix)


def _svd(v: Array) -> tuple[Array, Array, Array]:
    u, s, wt = jnp.linalg.svd(_fit(v), full_matrices=False)
    return u, s, wt


def _eigh(v: Array) -> tuple[Array, Array]:
    return jnp.linalg.eigh(_fit(v), symmetrize_input=False)


def _fit(v: Array) -> Array:
    """v, or 0 if it holds a NaN or an infinity, from which LAPACK may not return; `poison` puts the NaN back."""
    return jnp.where(jnp.all(jnp.isfinite(v)), v, 0)


def scaled(v: Array) -> tuple[Array, Array, Array]:
    """v divided by its largest entry (no square over- or underflows), that entry, and whether v is unfit.

    An unfit v holds a NaN or an infinity, from which LAPACK and other searches may not return; it is replaced by 0.
    """
    largest = jnp.max(jnp.abs(v))
    unfit = ~jnp.isfinite(largest)
    return jnp.where(unfit, 0, v / jnp.where((largest == 0) | unfit, 1, largest)), largest, unfit
