"""The box."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle.sets.base import ConvexSet, Leaf, as_leaf, broadcasts_to, like, traced


class Box(ConvexSet):
    """{v : lower <= v <= upper}, bounds numbers or arrays that broadcast to v

    project: O(n), a clip; lmo: O(n), lower where d > 0, upper elsewhere.
    """

    lower: Leaf = eqx.field(converter=lambda b: as_leaf(b, "Box lower"))
    upper: Leaf = eqx.field(converter=lambda b: as_leaf(b, "Box upper"))

    def __check_init__(self):
        lower, upper = self.lower, self.upper
        try:
            np.broadcast_shapes(lower.shape, upper.shape)
        except ValueError:
            raise ValueError(f"Box bounds must broadcast, given shapes {lower.shape} and {upper.shape}") from None
        if traced(lower) or traced(upper):
            return
        if not (np.all(np.isfinite(lower)) and np.all(np.isfinite(upper))):
            raise ValueError(
                "Box bounds must be finite (the sets here are compact), given infinity or NaN; use a large finite bound"
            )
        if np.any(np.asarray(lower) > np.asarray(upper)):
            raise ValueError("Box is empty: a lower bound exceeds its upper bound; exchange them or correct one")

    def project(self, v: Array) -> Array:
        v = self.fitting(v)
        return jnp.where(jnp.isfinite(v), jnp.clip(v, like(self.lower, v), like(self.upper, v)), jnp.nan)

    def lmo(self, direction: Array) -> Array:
        d = self.fitting(direction)
        return jnp.where(jnp.isfinite(d), jnp.where(d > 0, like(self.lower, d), like(self.upper, d)), jnp.nan)

    def diameter(self, v: Array) -> Array:
        v = self.fitting(v)
        width = like(self.upper, v) - like(self.lower, v)
        return jnp.sqrt(jnp.sum(jnp.square(jnp.broadcast_to(width, v.shape))))

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        return jax.random.uniform(key, shape, minval=jnp.asarray(self.lower), maxval=jnp.asarray(self.upper))

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v)
        bounds = np.broadcast_shapes(self.lower.shape, self.upper.shape)
        if reason is None and not broadcasts_to(bounds, v.shape):
            return f"Box bounds have shape {bounds} and do not fit the given shape {v.shape}; use bounds of that shape"
        return reason
