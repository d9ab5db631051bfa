"""Boxes cut by one hyperplane: their projection and the continuous knapsack, on which many sets stand."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import poison
from bisaddle.sets.extremes import ascending_order, ranks
from bisaddle.sets.roots import decreasing_root


@jax.jit  # so that calls outside jit do not trace the loops anew
def project_box_hyperplane(v: Array, lower: Array, upper: Array, normal: Array, offset: Array) -> Array:
    """argmin |x - v| over lower <= x <= upper, <normal, x> = offset; bounds and normal per coordinate, or one number.

    x = clip(v - t normal, lower, upper) with t the root of <normal, x> = offset. At large scales a root is only known
    to many times the size of the set, so it is found again for the moved v until it no longer moves. Then the
    coordinates that lie between their bounds are known, t solves a linear equation, and that carries the derivatives.
    """
    largest = lax.stop_gradient(jnp.max(jnp.abs(normal)))
    normal, offset = normal / largest, offset / largest
    size = jnp.maximum(jnp.max(jnp.abs(lower)), jnp.max(jnp.abs(upper)))
    moved = recentred(lambda v: _multiplier(v, lower, upper, normal, offset), v, normal, size)
    free = (moved > lower) & (moved < upper)
    pinned = jnp.where(moved <= lower, lower, upper)
    excess = jnp.sum(normal * jnp.where(free, moved, pinned)) - offset
    slope = jnp.sum(jnp.where(free, jnp.square(normal), 0))
    t = excess / jnp.where(slope == 0, 1, slope)
    return poison(jnp.clip(jnp.where(free, moved - t * normal, pinned), lower, upper), v)


def recentred(
    multiplier: Callable[[Array], Array], v: Array, normal: Array, size: Array, largest_at_0: bool = False
) -> Array:
    """v - t normal with t = multiplier(v), again and again until t is small next to `size`.

    Every round gains the digits that rounding took from the one before. largest_at_0: for sets that a constant added
    to v does not matter to. The derivative is that for fixed t.
    """
    fixed_v, fixed_normal, size = lax.stop_gradient((v, normal, size))
    enough = 4 * jnp.finfo(v.dtype).eps * size

    def move(carry):
        moved, total, _, count = carry
        t = lax.stop_gradient(multiplier(moved))
        moved = moved - t * fixed_normal
        return moved - jnp.max(moved) if largest_at_0 else moved, total + t, jnp.abs(t), count + 1

    far = jnp.full_like(size, jnp.inf)
    carry = (fixed_v, jnp.zeros_like(size), far, 0)
    moved, total, _, _ = lax.while_loop(lambda c: (c[2] > enough) & (c[3] < 30), move, carry)
    return moved + (v - fixed_v) - total * (normal - fixed_normal)  # what is added is 0, its derivative is not


def _multiplier(v: Array, lower: Array, upper: Array, normal: Array, offset: Array) -> Array:
    v, lower, upper, normal, offset = (lax.stop_gradient(a) for a in (v, lower, upper, normal, offset))
    rounding = 2 * jnp.finfo(v.dtype).eps

    def excess(t):
        x = v - t * normal
        # not jnp.clip: its derivative, halves at ties, takes ten times as long
        terms = normal * jnp.where(x <= lower, lower, jnp.where(x >= upper, upper, x))
        total = jnp.sum(terms) - offset
        # a root search cannot tell apart what rounding confuses; the sum of all sizes is a pass of its own
        lost = lambda: jnp.abs(total) <= rounding * (jnp.sum(jnp.abs(lax.stop_gradient(terms))) + jnp.abs(offset))
        return jnp.where(lax.cond(jnp.abs(total) <= most_lost, lost, lambda: False), 0, total)

    most_lost = rounding * (
        jnp.sum(jnp.abs(normal) * jnp.maximum(jnp.abs(lower), jnp.abs(upper)) + jnp.zeros_like(v)) + jnp.abs(offset)
    )
    # at a distance of `far` from 0 every coordinate sits at a bound
    reach = jnp.maximum(jnp.abs(v - lower), jnp.abs(v - upper)) / jnp.where(normal == 0, jnp.inf, jnp.abs(normal))
    far = jnp.minimum(jnp.max(reach), jnp.finfo(v.dtype).max / 4)
    return decreasing_root(excess, -far, far)


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


def mixture_of_vertices(lmo: Callable[[Array], Array], key: Array, size: int) -> Array:
    """A random point of the set behind `lmo`, for sets without a simpler way to draw one."""
    draws = jax.random.uniform(key, (5, size), minval=-1.0, maxval=1.0)  # one draw: each takes a second to compile
    weights = jnp.arange(1.0, 5.0) + draws[0, 0]
    return (weights / jnp.sum(weights)) @ jax.vmap(lmo)(draws[1:])
