"""Boxes cut by one hyperplane: their projection and the continuous knapsack, on which many sets stand."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import poison
from bisaddle.sets.extremes import ascending_order, ranks
from bisaddle.sets.roots import decreasing_root


@jax.custom_jvp
@jax.jit  # so that calls outside jit do not trace the loops anew
def project_box_hyperplane(v: Array, lower: Array, upper: Array, normal: Array, offset: Array) -> Array:
    """argmin |x - v| over lower <= x <= upper, <normal, x> = offset; bounds and normal per coordinate, or one number.

    x = clip(v - t normal, lower, upper) with t the root of <normal, x> = offset. Once it is known which coordinates lie
    between their bounds, t solves a linear equation, which removes what the search left over.
    """
    scale = _inverse_size(normal)
    # XLA would compute them again wherever they are used
    normal, offset = lax.optimization_barrier((normal * scale, offset * scale))
    size = jnp.maximum(jnp.max(jnp.abs(lower)), jnp.max(jnp.abs(upper)))
    rounding = 2 * jnp.finfo(v.dtype).eps
    most_lost = rounding * (
        jnp.sum(jnp.abs(normal) * jnp.maximum(jnp.abs(lower), jnp.abs(upper)) + jnp.zeros_like(v)) + jnp.abs(offset)
    )
    # at a distance of `far` from 0 every coordinate sits at a bound
    reach = jnp.maximum(jnp.abs(v - lower), jnp.abs(v - upper)) / jnp.where(normal == 0, jnp.inf, jnp.abs(normal))
    far = jnp.minimum(jnp.max(reach), jnp.finfo(v.dtype).max / 8)

    def multiplier(v, within):
        def terms(t):
            x = v - t * normal
            # not jnp.clip: its derivative, halves at ties, takes ten times as long
            return normal * jnp.where(x <= lower, lower, jnp.where(x >= upper, upper, x))

        def excess(t):
            total = jnp.sum(terms(t)) - offset
            # a root search cannot tell apart what rounding confuses; the sum of all sizes is a pass of its own, over
            # terms computed anew, which is quicker than to keep them at every step
            lost = lambda: (
                jnp.abs(total) <= rounding * (jnp.sum(jnp.abs(lax.stop_gradient(terms(t)))) + jnp.abs(offset))
            )
            return jnp.where(lax.cond(jnp.abs(total) <= most_lost, lost, lambda: False), 0, total)

        return decreasing_root(excess, -within, within)

    moved, _ = recentred(multiplier, v, normal, size, 2 * far)  # a v that was moved is at most twice as far away
    free = (moved > lower) & (moved < upper)
    pinned = jnp.where(moved <= lower, lower, upper)
    excess = jnp.sum(normal * jnp.where(free, moved, pinned)) - offset
    slope = jnp.sum(jnp.where(free, jnp.square(normal), 0))
    t = excess / jnp.where(slope == 0, 1, slope)
    return poison(jnp.clip(jnp.where(free, moved - t * normal, pinned), lower, upper), v)


@project_box_hyperplane.defjvp
def _project_box_hyperplane_jvp(primals, tangents):
    """Between their bounds x' = v' - t' normal - t normal', at them that of the bound, and <normal, x>' = offset'."""
    v, lower, upper, normal, _ = primals
    v_dot, lower_dot, upper_dot, normal_dot, offset_dot = tangents
    x = project_box_hyperplane(*primals)
    free = (x > lower) & (x < upper)
    scale = _inverse_size(normal)  # or squares might overflow
    normal, normal_dot, offset_dot = normal * scale, normal_dot * scale, offset_dot * scale
    slope = jnp.sum(jnp.where(free, jnp.square(normal), 0))
    slope = jnp.where(slope == 0, 1, slope)
    t = jnp.sum(jnp.where(free, normal * (v - x), 0)) / slope
    x_dot = jnp.where(free, v_dot - t * normal_dot, jnp.where(x <= lower, lower_dot, upper_dot))
    t_dot = (jnp.sum(normal * x_dot + normal_dot * x) - offset_dot) / slope
    return x, x_dot - jnp.where(free, t_dot * normal, 0)


def _inverse_size(normal: Array) -> Array:
    """The power of 2 that brings the largest entry to [1/2, 1): a factor that rounds nothing."""
    _, exponent = jnp.frexp(jnp.max(jnp.abs(normal)))
    return jnp.ldexp(jnp.ones((), normal.dtype), -exponent)


def recentred(
    multiplier: Callable[[Array, Array], Array],
    v: Array,
    normal: Array,
    size: Array,
    far: Array,
    largest_at_0: bool = False,
) -> tuple[Array, Array]:
    """v - t normal with t = multiplier(v, far), again until t is of the order of `size`; and the sum of all t.

    From far away a root is only known to many times the size of the set: every round gains the digits that rounding
    took from the one before, until they are known to eps^(3/4) of that size. The second argument of the multiplier
    bounds its search: after the first round that is what rounding can have moved. largest_at_0: for sets that a
    constant added to v does not matter to.
    """
    rounding = 1e4 * jnp.finfo(v.dtype).eps
    near = jnp.finfo(v.dtype).eps ** -0.25 * size

    def move(carry):
        moved, total, _, within, _, count = carry
        t = multiplier(moved, within)
        moved = moved - t * normal
        missed = jnp.abs(t) >= within
        within = jnp.where(missed, far, jnp.minimum(far, rounding * (jnp.abs(t) + size)))
        moved = moved - jnp.max(moved) if largest_at_0 else moved
        return moved, total + t, jnp.abs(t), within, missed, count + 1

    carry = (v, jnp.zeros_like(size), jnp.full_like(size, jnp.inf), far, jnp.asarray(True), 0)
    moved, total, *_ = lax.while_loop(lambda c: ((c[2] > near) | c[4]) & (c[5] < 30), move, carry)
    return moved, total


@jax.jit
def fill_cheapest(price: Array, capacity: Array, budget: Array) -> Array:
    """The continuous knapsack: z with 0 <= z <= capacity and sum z = min(budget, sum capacity), cheapest first."""
    if price.size > SORT_UP_TO:
        return _fill_by_bisection(price, capacity, budget)
    order = ascending_order(price)
    filled = _fill_in_order(capacity[order], budget)
    return jnp.zeros_like(filled).at[order].set(filled, unique_indices=True)


# beyond this size a sort is slower than one pass per bit
SORT_UP_TO = 2000
# between two looks at which prices are left
HALVINGS = 8


def _fill_by_bisection(price: Array, capacity: Array, budget: Array) -> Array:
    """Finds the price at which the budget ends by bisection on the bits of a float, which order like the floats."""
    rank = ranks(price)
    lowest, highest = jnp.iinfo(rank.dtype).min, jnp.iinfo(rank.dtype).max

    def halve(_, ends):
        low, high = ends
        middle = (low & high) + ((low ^ high) >> 1)  # the mean, rounded down, without overflow
        enough = jnp.sum(jnp.where(rank <= middle, capacity, 0)) >= budget
        return jnp.where(enough, low, jnp.minimum(middle + 1, high)), jnp.where(enough, middle, high)

    def halve_and_tighten(ends):
        low, high = lax.fori_loop(0, HALVINGS, halve, ends)
        between = (rank >= low) & (rank <= high)
        return jnp.min(jnp.where(between, rank, highest)), jnp.max(jnp.where(between, rank, lowest))

    ends = jnp.min(rank), jnp.max(rank)
    _, last = lax.while_loop(lambda ends: ends[0] < ends[1], halve_and_tighten, ends)
    full = jnp.where(rank < last, capacity, 0)
    return full + _fill_in_order(jnp.where(rank == last, capacity, 0), jnp.maximum(budget - jnp.sum(full), 0))


def _fill_in_order(capacity: Array, budget: Array) -> Array:
    already = jnp.concatenate([jnp.zeros_like(capacity[:1]), jnp.cumsum(capacity)[:-1]])
    return jnp.clip(budget - already, 0, capacity)
