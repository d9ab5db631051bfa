"""One-dimensional roots, differentiable, on which many projections stand."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array


def decreasing_root(function: Callable[[Array], Array], lower: Array, upper: Array) -> Array:
    """t in [lower, upper] with function(t) = 0, for a nonincreasing function; the nearer end if it has no zero there.

    Newton's method kept inside a shrinking bracket. A step that leaves the bracket, or is longer than half of the one
    before, gives way to the secant of the ends (with the Illinois rule: an end that stays twice has its value halved),
    or, if the last three steps did not halve the bracket, to its middle. Stops when the bracket cannot be split any
    more, or the function is exactly 0. Derivatives with respect to whatever the function closes over come from the
    implicit function theorem. NaN: NaN.
    """

    def solve(function, guess):
        value_and_slope = lambda t: jax.jvp(function, (t,), (jnp.ones_like(t),))

        def step(carry):
            ends, values, t, length, widths, was_left, _, count = carry
            value, slope = value_and_slope(t)
            left, right = value >= 0, value <= 0
            low, high = jnp.where(left, t, ends[0]), jnp.where(right, t, ends[1])
            at_low = jnp.where(left, value, jnp.where(was_left, values[0], 0.5 * values[0]))
            at_high = jnp.where(right, value, jnp.where(was_left, 0.5 * values[1], values[1]))
            newton = t - value / jnp.where(slope < 0, slope, -1)
            good = (slope < 0) & (newton > low) & (newton < high) & (jnp.abs(newton - t) <= 0.5 * length)
            middle = low + 0.5 * (high - low)
            secant = low + (high - low) * (at_low / (at_low - at_high))
            # infinite values, of ends not yet visited, make a NaN of the secant
            fast = (secant > low) & (secant < high) & (high - low <= 0.5 * widths[2])
            following = jnp.where(good, newton, jnp.where(fast, secant, middle))
            finished = (value == 0) | (following == low) | (following == high) | (following == t) | jnp.isnan(value)
            following = jnp.where(value == 0, t, jnp.where(jnp.isnan(value), jnp.nan, following))
            widths = (high - low, widths[0], widths[1])
            length = jnp.abs(following - t)
            return (low, high), (at_low, at_high), following, length, widths, left, finished, count + 1

        low, high = jnp.asarray(lower, guess.dtype), jnp.asarray(upper, guess.dtype)
        unknown = jnp.full_like(guess, jnp.inf)
        no = jnp.asarray(False)
        carry = ((low, high), (unknown, -unknown), guess, high - low, (unknown,) * 3, no, no, 0)
        return lax.while_loop(lambda c: ~c[6] & (c[7] < 300), step, carry)[2]

    def tangent_solve(linear, right_hand_side):
        slope = linear(jnp.ones_like(right_hand_side))
        return jnp.where(slope == 0, 0, right_hand_side / jnp.where(slope == 0, 1, slope))

    guess = lower + 0.5 * (upper - lower)
    return lax.custom_root(function, guess, solve, tangent_solve)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def wright_omega(z: Array, guess: Callable[[Array], Array]) -> Array:
    """The w > 0 with w + log w = z, to rounding: Lambert's W of exp(z), without its overflow.

    guess(z): an approximation with an error that two steps of order four bring to rounding.
    """
    vanishing = z < -40  # there w is exp(z) to rounding, and the logarithm of an underflow is not met
    x = jnp.where(vanishing, 0, z)
    w = guess(x)
    for _ in range(2):  # the step of Fritsch, Shafer and Crowley
        residual = x - w - jnp.log(w)
        middle = 2 * (1 + w) * (1 + w + 2 / 3 * residual)
        w = w * (1 + residual / (1 + w) * (middle - residual) / (middle - 2 * residual))
    return jnp.where(vanishing, jnp.exp(z), w)


@wright_omega.defjvp
def _wright_omega_jvp(guess, primals, tangents):
    w = wright_omega(*primals, guess)
    return w, w / (1 + w) * tangents[0]
