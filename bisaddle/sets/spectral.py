"""Sets of matrices given by their singular values."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from bisaddle.sets.balls import L1Ball, LinfBall
from bisaddle.sets.base import Leaf, VectorSet, like, positive
from bisaddle.sets.krylov import leading_singular
from bisaddle.sets.matrix import MatrixSet, map_singular


class SingularSet(MatrixSet):
    """Matrices whose singular values lie in `values`, a set of vectors that ignores order and sign."""

    @property
    def values(self) -> VectorSet:
        raise NotImplementedError

    def matrix_project(self, v: Array) -> Array:
        return map_singular("vector_project", self.values, v)

    def matrix_lmo(self, d: Array) -> Array:
        return map_singular("vector_lmo", self.values, d)

    def matrix_diameter(self, v: Array) -> Array:
        return self.values.vector_diameter(jnp.zeros(min(v.shape), v.dtype))

    def matrix_sample(self, key: Array, rows: int, columns: int) -> Array:
        value_key, key = jax.random.split(key)
        values = self.values.vector_sample(value_key, min(rows, columns))
        # Both frames from one SVD: two independent batched LAPACK calls in one program can block each other for good on
        # a machine with two cores (jaxlib 0.10.2: each waits, on a thread of the pool, for work queued in that pool).
        u, _, wt = jnp.linalg.svd(jax.random.normal(key, (rows, columns)), full_matrices=False)
        return (u * values) @ wt


class NuclearBall(SingularSet):
    """{V : sum of the singular values of V <= radius}, matrices of any shape

    project: a full SVD, O(m n min(m, n)), then the l1 ball; lmo: -radius u v' with the leading singular pair (u, v) of
    the direction, by products with it alone, O(m n) each: some tens to hundreds, more where the two largest singular
    values are close. The lmo has no reverse-mode derivative in the direction; support has.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "NuclearBall radius"))

    @property
    def values(self) -> VectorSet:
        return L1Ball(self.radius)

    def leading(self, direction: Array, count: int = 1) -> tuple[Array, Array, Array, Array]:
        """The `count` largest singular values s of each matrix, with vectors: u (..., m, count), s (..., count),
        v (..., n, count), and the residual (..., count) = max(|D v - s u|, |D' u - s v|) they leave.

        Each s is within its residual of a singular value. The iteration stops at residuals of 1e-12 s_1 (1e-5 in
        float32), or after about 13000 products, when the residual tells how far it got.
        """
        check_count(count, min(jnp.shape(direction)[-2:]), "NuclearBall.leading")
        return self._each(lambda d: leading_singular(d, count), direction)

    def matrix_lmo(self, d: Array) -> Array:
        u, _, v, _ = leading_singular(d, 1)
        return -like(self.radius, d) * u @ v.T

    def matrix_support(self, d: Array) -> Array:
        # u' D v with the vectors held fixed: the value s_1, and u v' as its derivative (Danskin)
        u, _, v, _ = leading_singular(jax.lax.stop_gradient(d), 1)
        return like(self.radius, d) * jnp.sum((d @ v) * u)


class SpectralBall(SingularSet):
    """{V : largest singular value of V <= radius}, matrices of any shape

    project: a full SVD, O(m n min(m, n)), then a clip; lmo: a full SVD, -radius times the polar factor.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "SpectralBall radius"))

    @property
    def values(self) -> VectorSet:
        return LinfBall(self.radius)


def check_count(count: int, size: int, name: str) -> None:
    if not 1 <= count <= size:
        raise ValueError(f"{name} finds between 1 and {size} pairs of matrices of this shape, asked for {count}")
