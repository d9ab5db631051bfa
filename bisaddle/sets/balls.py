"""Norm balls around the origin, of arrays or of whole pytrees of arrays."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import Leaf, VectorSet, like, positive
from bisaddle.sets.extremes import one_hot, smallest
from bisaddle.sets.simplex import project_simplex, uniform_weights


class L1Ball(VectorSet):
    """{v : sum |v_i| <= radius}

    project: as the simplex, O(n) a pass; lmo: O(n), one signed coordinate.
    """

    of_trees = True
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "L1Ball radius"))

    def vector_project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        outside = jnp.sign(v) * project_simplex(jnp.abs(v), radius)
        return jnp.where(jnp.sum(jnp.abs(v)) <= radius, v, outside)

    def vector_lmo(self, d: Array) -> Array:
        radius = like(self.radius, d)
        place, spoiled = smallest(-jnp.abs(d))
        return one_hot(place, jnp.where(d[place] > 0, -radius, radius), spoiled, d)

    def vector_diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v)

    def vector_sample(self, key: Array, size: int) -> Array:
        sign_key, key = jax.random.split(key)
        weights = uniform_weights(key, size + 1)[:size]  # the last weight is what stays unused
        return jnp.asarray(self.radius) * weights * jax.random.rademacher(sign_key, (size,))


class L2Ball(VectorSet):
    """{v : |v|_2 <= radius}

    project: O(n), a rescaling; lmo: O(n), -radius d / |d|.
    """

    of_trees = True
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "L2Ball radius"))

    def vector_project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        direction, length = direction_and_length(v)
        return jnp.where(length <= radius, v, radius * direction)

    def vector_lmo(self, d: Array) -> Array:
        unit, length = direction_and_length(d)
        return like(self.radius, d) * jnp.where(length == 0, jnp.arange(d.size) == 0, -unit)

    def vector_diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v)

    def vector_sample(self, key: Array, size: int) -> Array:
        direction_key, key = jax.random.split(key)
        direction, _ = direction_and_length(jax.random.normal(direction_key, (size,)))
        return jnp.asarray(self.radius) * direction * jax.random.uniform(key) ** (1 / size)


class LinfBall(VectorSet):
    """{v : max |v_i| <= radius}

    project: O(n), a clip; lmo: O(n), -radius sign(d).
    """

    of_trees = True
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "LinfBall radius"))

    def vector_project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        return jnp.where(jnp.isfinite(v), jnp.clip(v, -radius, radius), jnp.nan)

    def vector_lmo(self, d: Array) -> Array:
        radius = like(self.radius, d)
        return jnp.where(jnp.isfinite(d), jnp.where(d > 0, -radius, radius), jnp.nan)

    def vector_diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v) * jnp.sqrt(like(v.size, v))

    def vector_sample(self, key: Array, size: int) -> Array:
        return jnp.asarray(self.radius) * jax.random.uniform(key, (size,), minval=-1.0, maxval=1.0)


def direction_and_length(v: Array) -> tuple[Array, Array]:
    """v / |v| and |v|; where the sum of squares is near overflow or underflow, entries are divided by the largest."""
    tiny, eps = jnp.finfo(v.dtype).tiny, jnp.finfo(v.dtype).eps

    def divided(v: Array, _) -> tuple[Array, Array]:
        # XLA may multiply with the reciprocal, which must not be a denormal; the result does not depend on the divisor
        divisor = lax.stop_gradient(jnp.clip(jnp.max(jnp.abs(v)), tiny, 1 / tiny))
        return divisor, jnp.sum(jnp.square(v / divisor))

    plain = jnp.sum(jnp.square(v))
    # squares lost to underflow are below tiny each: together not more than eps of this
    safe = jnp.isfinite(plain) & (plain >= v.size * tiny / eps)
    divisor, squared = lax.cond(safe, lambda _, plain: (jnp.ones_like(plain), plain), divided, v, plain)
    scaled_length = jnp.sqrt(jnp.where(squared == 0, 1, squared))  # no square root of 0: its derivative is infinite
    return v / divisor / scaled_length, jnp.where(squared == 0, 0, divisor * scaled_length)
