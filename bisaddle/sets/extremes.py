"""The smallest entry and the order of a vector, in the forms that XLA compiles well for a CPU."""

from math import isqrt

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from bisaddle.sets.host import WORTH_A_CALL, on_cpu, on_host

# below this size there is nothing to gain
_SHORT = 256


def place_of_smallest(v: Array) -> Array:
    """The first index of the smallest entry, as jnp.argmin, for a vector without NaN.

    XLA's argmin goes entry by entry. Minima of blocks are vectorised; only the best block is searched.
    """
    if v.size <= _SHORT:
        return jnp.argmin(v)
    width = isqrt(v.size)
    blocks = v.size // width
    rest = v.size - blocks * width
    least = jnp.min(v[: blocks * width].reshape(blocks, width), axis=1)
    if rest:
        least = jnp.append(least, jnp.min(v[blocks * width :]))
    # the last block is short: the slice is clamped to end with v, and starts before the block, where all is larger
    start = jnp.minimum(jnp.argmin(least) * width, v.size - width)
    return start + jnp.argmin(lax.dynamic_slice_in_dim(v, start, width))


def smallest(v: Array) -> tuple[Array, Array]:
    """(the first index of the smallest entry, whether v holds a NaN or an infinity), in one pass over v."""
    place = place_of_smallest(jnp.where(jnp.isfinite(v), v, -jnp.inf))
    return place, ~jnp.isfinite(v[place])


def one_hot(place: Array, value: Array, spoiled: Array, source: Array) -> Array:
    """value at `place`, 0 elsewhere, in the shape of the source; NaN if spoiled."""
    # two scalars decide, so that the vector is filled and not computed
    elsewhere = jnp.where(spoiled, jnp.nan, 0).astype(source.dtype)
    return jnp.full_like(source, elsewhere).at[place].set(jnp.where(spoiled, jnp.nan, value))


def ascending_order(v: Array) -> Array:
    """A permutation that sorts v, NaN last.

    XLA's sort for a CPU takes 10 to 40 times as long as NumPy's, to which larger vectors go there. Otherwise: XLA
    compares floats by a call that knows about NaN and zeros; integers that order alike are sorted several times faster.
    """
    index = jnp.int32 if v.size < 2**31 else jnp.int64
    if v.size >= WORTH_A_CALL and on_cpu():
        return on_host(np.argsort, jax.ShapeDtypeStruct(v.shape, index), v, vmap_method="broadcast_all")
    return lax.sort((ranks(v), jnp.arange(v.size, dtype=index)), num_keys=1, is_stable=True)[1]


def ranks(v: Array) -> Array:
    """Integers that order like the floats, -0 and 0 alike, NaN last."""
    signed, largest = (jnp.int64, 2**63 - 1) if jnp.finfo(v.dtype).bits == 64 else (jnp.int32, 2**31 - 1)
    raw = jnp.where(v == 0, 0, lax.bitcast_convert_type(v, signed))
    return jnp.where(jnp.isnan(v), largest, jnp.where(raw < 0, raw ^ largest, raw))
