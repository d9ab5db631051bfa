"""Simplices with caps: upper bounds, a sum at most, a sum of k."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.sets.base import Leaf, VectorSet, finite_array, like, poison, positive, traced
from bisaddle.sets.extremes import one_hot, smallest
from bisaddle.sets.knapsack import fill_cheapest, project_box_hyperplane
from bisaddle.sets.simplex import project_simplex, uniform_weights


class CappedSet(VectorSet):
    """{v : 0 <= v <= cap, sum v = total}: a subclass writes `limits`."""

    def limits(self, v: Array) -> tuple[Array, Array]:
        """(cap, total) for a vector shaped like v; the cap one number, or one per coordinate"""
        raise NotImplementedError

    def vector_project(self, v: Array) -> Array:
        return project_capped_simplex(v, *self.limits(v))

    def vector_lmo(self, d: Array) -> Array:
        cap, total = self.limits(d)
        return poison(fill_cheapest(d, jnp.broadcast_to(cap, d.shape), total), d)

    def vector_diameter(self, v: Array) -> Array:
        """An upper bound, |a - b|_2^2 <= |a - b|_inf |a - b|_1; exact for a cap that divides the total."""
        cap, total = self.limits(v)
        cap = jnp.minimum(jnp.broadcast_to(cap, v.shape), total)
        movable = jnp.maximum(jnp.minimum(total, jnp.sum(cap) - total), 0)
        return jnp.sqrt(2 * jnp.max(cap) * movable)


class CappedSimplex(CappedSet):
    """{v : 0 <= v <= cap, sum v = radius}, cap a number or one per coordinate

    project: O(n) a pass, a dozen passes (safeguarded Newton on the threshold); lmo: O(n log n), a sort.
    """

    cap: Leaf = eqx.field(converter=lambda c: finite_array(c, "CappedSimplex cap", ">= 0"))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "CappedSimplex radius"), default=1.0)

    def __check_init__(self):
        if np.ndim(self.cap) and (reason := self._cannot_reach(np.size(self.cap))):
            raise ValueError(reason)

    def limits(self, v: Array) -> tuple[Array, Array]:
        cap = like(self.cap, v)
        return cap.ravel() if cap.ndim else cap, like(self.radius, v)

    def vector_misfit(self, size: int) -> str | None:
        return VectorSet.vector_misfit(self, size) or self._cannot_reach(size)

    def _cannot_reach(self, size: int) -> str | None:
        if traced(self.cap) or traced(self.radius):
            return None
        total, radius = float(np.sum(np.broadcast_to(self.cap, np.shape(self.cap) or (size,)))), float(self.radius)
        if total >= radius * (1 - 1e-12):  # sums that equal the radius up to rounding pass
            return None
        return (
            f"CappedSimplex is empty for vectors of size {size}: the caps sum to {total:g}, "
            f"less than the radius {radius:g}"
        )


class HyperSimplex(CappedSet):
    """{v : 0 <= v <= 1, sum v = k}, k a number from 1 to the size of v

    project: O(n) a pass, a dozen passes (safeguarded Newton on the threshold); lmo: O(n log n), the k smallest entries.
    """

    k: Leaf = eqx.field(converter=lambda k: _at_least_one(k, "HyperSimplex k"))

    def limits(self, v: Array) -> tuple[Array, Array]:
        return jnp.ones((), v.dtype), like(self.k, v)

    def vector_misfit(self, size: int) -> str | None:
        if not traced(self.k) and self.k > size:
            return f"HyperSimplex is empty: k = {self.k:g} entries of at most 1 do not fit in vectors of size {size}"
        return None


class UnitSimplex(VectorSet):
    """{v : v >= 0, sum v <= radius}

    project: a clip, or the simplex projection, O(n) a pass; lmo: O(n), one vertex or 0.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "UnitSimplex radius"), default=1.0)

    def vector_project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        clipped = jnp.maximum(v, 0)
        return poison(jnp.where(jnp.sum(clipped) <= radius, clipped, project_simplex(v, radius)), v)

    def vector_lmo(self, d: Array) -> Array:
        place, spoiled = smallest(d)
        return one_hot(place, jnp.where(d[place] < 0, like(self.radius, d), 0), spoiled, d)

    def vector_diameter(self, v: Array) -> Array:
        return like(2.0 if v.size > 1 else 1.0, v) ** 0.5 * like(self.radius, v)

    def vector_sample(self, key: Array, size: int) -> Array:
        return jnp.asarray(self.radius) * uniform_weights(key, size + 1)[:size]  # the last weight stays unused


class KSparsePolytope(VectorSet):
    """{v : max |v_i| <= radius, sum |v_i| <= k radius}, the convex hull of the k-sparse vectors with entries +-radius

    project: O(n) a pass, a dozen passes (safeguarded Newton on the threshold); lmo: O(n log n), the k largest |d_i|.
    """

    k: Leaf = eqx.field(converter=lambda k: _at_least_one(k, "KSparsePolytope k"))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "KSparsePolytope radius"))

    def vector_project(self, v: Array) -> Array:
        radius, total = like(self.radius, v), like(self.k, v) * like(self.radius, v)
        clipped = jnp.clip(v, -radius, radius)
        # a total no vector of this size can have would leave the search without a root
        reachable = jnp.minimum(total, v.size * radius)
        outside = jnp.sign(v) * project_capped_simplex(jnp.abs(v), radius, reachable)
        return poison(jnp.where(jnp.sum(jnp.abs(clipped)) <= total, clipped, outside), v)

    def vector_lmo(self, d: Array) -> Array:
        radius = like(self.radius, d)
        size = fill_cheapest(-jnp.abs(d), jnp.broadcast_to(radius, d.shape), like(self.k, d) * radius)
        return poison(jnp.where(d > 0, -size, size), d)

    def vector_diameter(self, v: Array) -> Array:
        entries = jnp.minimum(like(self.k, v), v.size)
        return 2 * like(self.radius, v) * jnp.sqrt(jnp.floor(entries) + jnp.square(entries - jnp.floor(entries)))


def project_capped_simplex(v: Array, cap: Array, radius: Array) -> Array:
    """argmin |x - v| over 0 <= x <= cap, sum x = radius; cap per coordinate, or one number"""
    zero, one = jnp.zeros((), v.dtype), jnp.ones((), v.dtype)
    return project_box_hyperplane(v, zero, jnp.minimum(cap, radius), one, radius)


def _at_least_one(value, name: str) -> Leaf:
    array = positive(value, name)
    if not traced(array) and array < 1:
        raise ValueError(f"{name} must be at least 1, given {value}")
    return array
