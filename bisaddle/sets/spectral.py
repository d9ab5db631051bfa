"""Sets of matrices given by their singular values."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from bisaddle import trees
from bisaddle.sets.balls import L1Ball, LinfBall
from bisaddle.sets.base import Leaf, VectorSet, like, positive
from bisaddle.sets.krylov import leading_singular
from bisaddle.sets.matrix import SpectralSet, map_singular
from bisaddle.sets.simplex import project_simplex
from bisaddle.sets.weighted import LpBall


class SingularSet(SpectralSet):
    """Matrices whose singular values lie in `values`, a set of vectors that ignores order and sign."""

    def matrix_project(self, v: Array) -> Array:
        return map_singular("vector_project", self.values, v)

    def matrix_lmo(self, d: Array) -> Array:
        return map_singular("vector_lmo", self.values, d)

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

    estimates = frozenset({"lmo"})  # a leading value that the search never met would not be missed

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

    def project_leading(self, v: Array, count: int) -> Array:
        """The projection from the `count` largest singular triples alone, without a full SVD: the nearest point of the
        ball of rank at most `count`, which is the projection wherever that has such a rank.

        Points inside the ball stay as they are if these values show that they lie inside. The derivative is that along
        matrices of the same rank, an approximation.
        """
        check_count(count, min(jnp.shape(v)[-2:]), "NuclearBall.project_leading")
        return self._each(lambda m: low_rank_nearest(m, like(self.radius, m), count), v)

    def matrix_lmo(self, d: Array) -> Array:
        u, _, v, _ = leading_singular(d, 1)
        return -like(self.radius, d) * u @ v.T

    def lmo_error(self, direction: Array, s: Array) -> Array:
        *_, residual = self.leading(direction)
        # s_1, if that is the value found, lies within the residual of its estimate, and so does u' D v
        return 2 * like(self.radius, s) * jnp.sum(residual) + self.rounding(direction) * trees.norm(s)

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


class SchattenBall(SingularSet):
    """{V : (sum of the p-th powers of the singular values of V)^(1/p) <= radius}, 1 <= p <= infinity, any shape

    project: a full SVD, O(m n min(m, n)), then the lp ball; lmo: a full SVD, then a closed form. For p = 1 NuclearBall
    has the cheaper lmo; for p = 2 the L2Ball is the same set without a factorisation.
    """

    p: float = eqx.field(static=True, converter=lambda p: LpBall(p, 1.0).p)
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "SchattenBall radius"))

    @property
    def values(self) -> VectorSet:
        return LpBall(self.p, self.radius)


def check_count(count: int, size: int, name: str) -> None:
    if not 1 <= count <= size:
        raise ValueError(f"{name} finds between 1 and {size} pairs of matrices of this shape, asked for {count}")


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def low_rank_nearest(v: Array, radius: Array, count: int) -> Array:
    """U diag(P(s)) W' for the leading triples of v, P the projection on the l1 ball; v if surely in the ball."""
    u, _, w, shrunk, inside = _leading_triples(v, radius, count)
    return jnp.where(inside, v, (u * shrunk) @ w.T)


def _leading_triples(v: Array, radius: Array, count: int) -> tuple[Array, Array, Array, Array, Array]:
    """The leading triples u, s, w of v, the values P(s), and whether v is surely in the ball."""
    project = lambda s: jnp.where(jnp.sum(s) <= radius, s, project_simplex(s, radius))
    u, s, w, _ = leading_singular(v, count, lambda s: project(s) > 0)
    return u, s, w, project(s), jnp.sum(s) + (min(v.shape) - count) * s[-1] <= radius


@low_rank_nearest.defjvp
def _low_rank_nearest_jvp(count, primals, tangents):
    """Along matrices of the rank of the answer, and not out of the ball: D = h - (I - UU') h (I - WW') - <n, h> n."""
    v, radius = primals
    h, _ = tangents
    u, s, w, shrunk, inside = _leading_triples(v, radius, count)
    answer = jnp.where(inside, v, (u * shrunk) @ w.T)
    kept = shrunk > 0
    u, w = u * kept, w * kept
    left, right = u @ (u.T @ h), (h @ w) @ w.T
    along = left + right - u @ (u.T @ right)
    normal = u @ w.T / jnp.sqrt(jnp.maximum(jnp.sum(kept), 1))
    along = along - jnp.where(jnp.sum(s) > radius, jnp.sum(normal * along), 0) * normal
    return answer, jnp.where(inside, h, along)
