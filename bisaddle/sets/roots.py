"""One-dimensional roots, differentiable, on which many projections stand."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def decreasing_root(function: Callable[[Array], Array], lower: Array, upper: Array) -> Array:
    """t in [lower, upper] with function(t) = 0, for a nonincreasing function; the nearer end if it has no zero there.

    Newton's method kept inside a shrinking bracket: a step that leaves the bracket, or follows one that failed to halve
    it twice over, bisects instead. Stops when the bracket cannot be split any more, or the function is exactly 0.
    Derivatives with respect to whatever the function closes over come from the implicit function theorem. NaN: NaN.
    """

    def solve(function, guess):
        value_and_slope = lambda t: jax.jvp(function, (t,), (jnp.ones_like(t),))

        def step(carry):
            low, high, t, width, _, count = carry
            value, slope = value_and_slope(t)
            low, high = jnp.where(value >= 0, t, low), jnp.where(value <= 0, t, high)
            middle = low + 0.5 * (high - low)
            newton = t - value / jnp.where(slope < 0, slope, -1)
            inside = (slope < 0) & (newton > low) & (newton < high)
            slow = (count % 3 == 2) & (high - low > 0.25 * width)  # Newton is crawling along one end
            following = jnp.where(inside & ~slow, newton, middle)
            width = jnp.where(count % 3 == 2, high - low, width)
            finished = (value == 0) | (following == low) | (following == high) | (following == t) | jnp.isnan(value)
            return low, high, jnp.where(value == 0, t, following), width, finished, count + 1

        low, high = jnp.asarray(lower, guess.dtype), jnp.asarray(upper, guess.dtype)
        carry = (low, high, guess, high - low, jnp.asarray(False), 0)
        _, _, t, _, _, _ = lax.while_loop(lambda c: ~c[4] & (c[5] < 300), step, carry)
        return jnp.where(jnp.isnan(function(t)), jnp.nan, t)

    def tangent_solve(linear, right_hand_side):
        slope = linear(jnp.ones_like(right_hand_side))
        return jnp.where(slope == 0, 0, right_hand_side / jnp.where(slope == 0, 1, slope))

    guess = lower + 0.5 * (upper - lower)
    return lax.custom_root(function, guess, solve, tangent_solve)
