"""Sets of symmetric matrices given by their eigenvalues."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle import trees
from bisaddle.sets.base import Leaf, VectorSet, like, poison, positive
from bisaddle.sets.krylov import SMALL, leading_symmetric
from bisaddle.sets.matrix import SpectralSet, map_eigen, symmetric_part
from bisaddle.sets.roots import decreasing_root
from bisaddle.sets.simplex import Simplex, project_simplex
from bisaddle.sets.spectral import check_count


class _EigenSet(SpectralSet):
    """Symmetric matrices whose eigenvalues lie in `values`, a set of vectors that ignores order."""

    square = True

    def leading(self, direction: Array, count: int = 1) -> tuple[Array, Array, Array]:
        """The `count` smallest eigenvalues of the symmetric part S of each matrix: vectors q (..., n, count), values
        (..., count), and the residual |S q - value q| (..., count).

        Each value is within its residual of an eigenvalue. The iteration stops at residuals of 1e-12 |S| (1e-5 in
        float32), or after about 13000 products, when the residual tells how far it got.
        """
        check_count(count, jnp.shape(direction)[-1], f"{type(self).__name__}.leading")

        def of_matrix(d):
            vectors, values, residual = leading_symmetric(-symmetric_part(d), count)
            return vectors, -values, residual

        return self._each(of_matrix, direction)

    def matrix_project(self, v: Array) -> Array:
        return map_eigen("vector_project", self.values, v)

    def matrix_sample(self, key: Array, rows: int, columns: int) -> Array:
        value_key, key = jax.random.split(key)
        q, _ = jnp.linalg.qr(jax.random.normal(key, (rows, rows)))
        return symmetric_part((q * self.values.vector_sample(value_key, rows)) @ q.T)


class Spectrahedron(_EigenSet):
    """{V : V symmetric and positive semidefinite, trace V = radius}

    project: of the symmetric part, a full eigendecomposition, O(n^3), then the simplex; lmo: radius q q' with q an
    eigenvector of the smallest eigenvalue of the direction's symmetric part, by products with it alone, O(n^2) each:
    some tens to hundreds, thousands where the smallest eigenvalues are close compared with the largest. The lmo has no
    reverse-mode derivative in the direction; support has.
    """

    estimates = frozenset({"lmo"})  # as of the NuclearBall

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "Spectrahedron radius"), default=1.0)

    @property
    def values(self) -> VectorSet:
        return Simplex(self.radius)

    def project_leading(self, v: Array, count: int) -> Array:
        """The projection from the `count` largest eigenpairs alone, without a full decomposition: the nearest point of
        rank at most `count`, which is the projection wherever that has such a rank.

        The derivative is that along matrices of the same rank, an approximation.
        """
        check_count(count, jnp.shape(v)[-1], "Spectrahedron.project_leading")
        return self._each(lambda m: low_rank_spectrahedral(m, like(self.radius, m), count), v)

    def matrix_lmo(self, d: Array) -> Array:
        q, _, _ = leading_symmetric(-symmetric_part(d), 1)
        return like(self.radius, d) * q @ q.T

    def lmo_error(self, direction: Array, s: Array) -> Array:
        *_, residual = self.leading(direction)
        return 2 * like(self.radius, s) * jnp.sum(residual) + self.rounding(direction) * trees.norm(s)

    def matrix_support(self, d: Array) -> Array:
        # q' D q with the vector held fixed: the value, and q q' as its derivative (Danskin)
        q, _, _ = leading_symmetric(jax.lax.stop_gradient(symmetric_part(d)), 1)
        return like(self.radius, d) * jnp.sum((d @ q) * q)


class Fantope(_EigenSet):
    """{V : V symmetric, all eigenvalues in [0, 1], trace V = k}, the hull of the projectors of rank k; k an integer

    project: of the symmetric part, a full eigendecomposition, O(n^3), then one root; lmo: the projector on k
    eigenvectors of the smallest eigenvalues of the direction's symmetric part: by products with it alone when
    8 k < n, as for the Spectrahedron, else a full eigendecomposition.
    """

    estimates = frozenset({"lmo"})  # as of the NuclearBall

    k: int = eqx.field(static=True, converter=lambda k: _rank(k))

    @property
    def values(self) -> VectorSet:
        return _CappedValues(self.k)

    def matrix_lmo(self, d: Array) -> Array:
        if self._iterates(len(d)):
            q, _, _ = leading_symmetric(-symmetric_part(d), self.k)
            return q @ q.T
        return map_eigen("vector_lmo", self.values, d)

    def lmo_error(self, direction: Array, s: Array) -> Array:
        error = self.rounding(direction) * (trees.norm(s) + self.diameter(s))
        if not self._iterates(s.shape[-1]):
            return error
        *_, residual = self.leading(direction, self.k)
        return error + 2 * jnp.sum(residual)

    def _iterates(self, size: int) -> bool:
        return 8 * self.k < size and size > SMALL

    def matrix_misfit(self, rows: int, columns: int) -> str | None:
        if rows == columns and rows < self.k:
            return f"Fantope({self.k}) is empty for {rows} x {rows} matrices: k eigenvalues are needed"
        return SpectralSet.matrix_misfit(self, rows, columns)


class _CappedValues(VectorSet):
    """{v : 0 <= v <= 1, sum v = k} for vectors in increasing order, as eigenvalues come"""

    k: int = eqx.field(static=True)

    def vector_project(self, v: Array) -> Array:
        # with the k-th largest moved to 0 the threshold lies in [-1, 0] and values beyond 2 make no difference: no
        # digits are lost, whatever the scale
        near = jnp.clip(v - v[v.size - self.k], -2, 2)
        ends = jnp.asarray(-1, v.dtype), jnp.asarray(0, v.dtype)
        threshold = decreasing_root(lambda t: jnp.sum(jnp.clip(near - t, 0, 1)) - self.k, *ends)
        if self.k < v.size:
            # beyond a gap of 1 many thresholds serve; at the end of their range clip would have half a derivative
            below = near[v.size - self.k - 1]
            threshold = jnp.where(below < -1, (below - 1) / 2, threshold)
        return jnp.clip(near - threshold, 0, 1)

    def vector_lmo(self, d: Array) -> Array:
        return poison((jnp.arange(d.size) < self.k).astype(d.dtype), d)

    def vector_diameter(self, v: Array) -> Array:
        return like((2 * min(self.k, v.size - self.k)) ** 0.5, v)

    def vector_sample(self, key: Array, size: int) -> Array:
        return self.vector_project(jnp.sort(jax.random.uniform(key, (size,), minval=-1.0, maxval=1.0)))


def _rank(k) -> int:
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1:
        raise ValueError(f"Fantope k must be an integer >= 1, given {k!r}")
    return int(k)


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def low_rank_spectrahedral(v: Array, radius: Array, count: int) -> Array:
    """Q diag(P(values)) Q' for the leading eigenpairs of the symmetric part of v, P the projection on the simplex."""
    q, values, _ = leading_symmetric(symmetric_part(v), count, lambda s: project_simplex(s, radius) > 0)
    return symmetric_part((q * project_simplex(values, radius)) @ q.T)


@low_rank_spectrahedral.defjvp
def _low_rank_spectrahedral_jvp(count, primals, tangents):
    """Along matrices of the rank and trace of the answer: D = h - (I - QQ') h (I - QQ') - <n, h> n."""
    v, radius = primals
    h = symmetric_part(tangents[0])
    q, values, _ = leading_symmetric(symmetric_part(v), count, lambda s: project_simplex(s, radius) > 0)
    weights = project_simplex(values, radius)
    inner = q * (weights > 0)
    left = inner @ (inner.T @ h)
    along = left + left.T - left @ inner @ inner.T
    normal = inner @ inner.T / jnp.sqrt(jnp.maximum(jnp.sum(weights > 0), 1))
    return symmetric_part((q * weights) @ q.T), along - jnp.sum(normal * along) * normal
