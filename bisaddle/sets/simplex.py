"""The simplex and its projection, on which the l1 ball stands too."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import ConvexSet, Leaf, like, poison, positive


class Simplex(ConvexSet):
    """{v : v >= 0, sum v = radius}

    project: O(n) a pass, a handful of passes (monotone Newton on the threshold); lmo: O(n), one vertex.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "Simplex radius"), default=1.0)

    def project(self, v: Array) -> Array:
        return project_simplex(v.ravel(), like(self.radius, v)).reshape(v.shape)

    def lmo(self, direction: Array) -> Array:
        d = direction.ravel()
        vertex = jnp.where(jnp.arange(d.size) == jnp.argmin(d), like(self.radius, d), 0)
        return poison(vertex, d).reshape(direction.shape)

    def diameter(self, v: Array) -> Array:
        return jnp.sqrt(2.0 if v.size > 1 else 0.0) * like(self.radius, v)


@jax.custom_jvp
def project_simplex(v: Array, radius: Array) -> Array:
    """max(v - t, 0) with t the root of sum max(v - t, 0) = radius.

    Newton's method on that convex, piecewise linear function, from the left, is monotone and finite; it beats a sort
    at every size on a CPU. The first line keeps every later number within radius of 0, whatever the scale of v.
    """
    v = jnp.maximum(v - jnp.max(v), -radius)

    def newton(carry):
        t, _ = carry
        active = v > t
        return (jnp.sum(jnp.where(active, v, 0)) - radius) / jnp.sum(active, dtype=v.dtype), t

    start = (jnp.sum(v) - radius) / v.size
    t, _ = lax.while_loop(lambda carry: carry[0] > carry[1], newton, (start, jnp.full_like(start, -jnp.inf)))
    return jnp.maximum(v - t, 0)


@project_simplex.defjvp
def _project_simplex_jvp(primals, tangents):
    v_dot, radius_dot = tangents
    projected = project_simplex(*primals)
    active = projected > 0
    shift = (jnp.sum(jnp.where(active, v_dot, 0)) - radius_dot) / jnp.sum(active, dtype=projected.dtype)
    return projected, jnp.where(active, v_dot - shift, 0)
