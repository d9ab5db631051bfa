"""Norm balls around the origin."""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import ConvexSet, Leaf, like, poison, positive
from bisaddle.sets.simplex import project_simplex


class L1Ball(ConvexSet):
    """{v : sum |v_i| <= radius}

    project: as the simplex, O(n) a pass; lmo: O(n), one signed coordinate.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "L1Ball radius"))

    def project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        outside = jnp.sign(v) * project_simplex(jnp.abs(v).ravel(), radius).reshape(v.shape)
        return jnp.where(jnp.sum(jnp.abs(v)) <= radius, v, outside)

    def lmo(self, direction: Array) -> Array:
        d = direction.ravel()
        best = jnp.argmax(jnp.abs(d))
        radius = like(self.radius, d)
        vertex = jnp.where(jnp.arange(d.size) == best, jnp.where(d > 0, -radius, radius), 0)
        return poison(vertex, d).reshape(direction.shape)

    def diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v)


class L2Ball(ConvexSet):
    """{v : |v|_2 <= radius}

    project: O(n), a rescaling; lmo: O(n), -radius d / |d|.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "L2Ball radius"))

    def project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        direction, length = _direction_and_length(v)
        return jnp.where(length <= radius, v, radius * direction)

    def lmo(self, direction: Array) -> Array:
        unit, length = _direction_and_length(direction)
        first = (jnp.arange(direction.size) == 0).reshape(direction.shape)
        return like(self.radius, direction) * jnp.where(length == 0, first, -unit)

    def diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v)


class LinfBall(ConvexSet):
    """{v : max |v_i| <= radius}

    project: O(n), a clip; lmo: O(n), -radius sign(d).
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "LinfBall radius"))

    def project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        return jnp.clip(v, -radius, radius)

    def lmo(self, direction: Array) -> Array:
        radius = like(self.radius, direction)
        return poison(jnp.where(direction > 0, -radius, radius), direction)

    def diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v) * jnp.sqrt(like(v.size, v))


def _direction_and_length(v: Array) -> tuple[Array, Array]:
    """v / |v| and |v| without overflow or underflow: entries are divided by the largest first."""
    # XLA may multiply with the reciprocal, which must not be a denormal; the result does not depend on the divisor
    tiny = jnp.finfo(v.dtype).tiny
    divisor = lax.stop_gradient(jnp.clip(jnp.max(jnp.abs(v)), tiny, 1 / tiny))
    scaled = v / divisor
    squared = jnp.sum(jnp.square(scaled))
    scaled_length = jnp.sqrt(jnp.where(squared == 0, 1, squared))  # no square root of 0: its derivative is infinite
    return scaled / scaled_length, jnp.where(squared == 0, 0, divisor * scaled_length)
