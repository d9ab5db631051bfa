"""The simplex and its projection, on which the l1 ball stands too."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import Leaf, VectorSet, like, poison, positive, traced
from bisaddle.sets.extremes import one_hot, smallest


class Simplex(VectorSet):
    """{v : v >= 0, sum v = radius}

    project: O(n) a pass, a handful of passes (monotone Newton on the threshold); lmo: O(n), one vertex.
    radius is what the entries sum to, not their number: Simplex() holds weights, of as many entries as y has.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "Simplex radius"), default=1.0)

    def hint(self, size: int) -> str:
        if traced(self.radius) or float(self.radius) != size or size == 1:
            return ""
        return (
            f"the entries of Simplex({size}) sum to {size}, its radius; for {size} weights that sum to 1 use Simplex()"
        )

    def vector_project(self, v: Array) -> Array:
        return project_simplex(v, like(self.radius, v))

    def vector_lmo(self, d: Array) -> Array:
        place, spoiled = smallest(d)
        return one_hot(place, like(self.radius, d), spoiled, d)

    def vector_diameter(self, v: Array) -> Array:
        return like(2.0 if v.size > 1 else 0.0, v) ** 0.5 * like(self.radius, v)

    def vector_sample(self, key: Array, size: int) -> Array:
        return jnp.asarray(self.radius) * uniform_weights(key, size)


def uniform_weights(key: Array, size: int) -> Array:
    """Uniform on the unit simplex. (jax.random.dirichlet takes seconds to compile.)"""
    weights = jax.random.exponential(key, (size,))
    return weights / jnp.sum(weights)


@jax.custom_jvp
def project_simplex(v: Array, radius: Array) -> Array:
    """max(v - t, 0) with t the root of sum max(v - t, 0) = radius.

    Newton's method on that convex, piecewise linear function, from the left, is monotone and finite; it beats a sort
    at every size on a CPU. The first lines keep every later number within radius of 0, whatever the scale of v.
    """
    given, v = v, v - jnp.max(v)
    # once more: fused with the product that made v, v - max(v) is rounded once and not twice, and its largest entry is
    # eps |v| instead of 0
    v = jnp.maximum(v - jnp.max(v), -radius)

    def threshold(total, count):
        # at least -radius, though rounding may have it below, where every entry looks active
        return jnp.maximum((total - radius) / count, -radius)

    def newton(carry):
        t, _ = carry
        active = v > t
        return threshold(jnp.sum(jnp.where(active, v, 0)), jnp.sum(active, dtype=v.dtype)), t

    start = threshold(jnp.sum(v), v.size)
    t, _ = lax.while_loop(lambda carry: carry[0] > carry[1], newton, (start, jnp.full_like(start, -jnp.inf)))
    return poison(jnp.maximum(v - t, 0), given)


@project_simplex.defjvp
def _project_simplex_jvp(primals, tangents):
    v_dot, radius_dot = tangents
    projected = project_simplex(*primals)
    active = projected > 0
    shift = (jnp.sum(jnp.where(active, v_dot, 0)) - radius_dot) / jnp.sum(active, dtype=projected.dtype)
    return projected, jnp.where(active, v_dot - shift, 0)
