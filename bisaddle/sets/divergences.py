"""Projection and linear minimisation where a divergence from a reference distribution is at most a radius."""

from collections.abc import Callable
from functools import partial
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import poison, within_reach
from bisaddle.sets.roots import decreasing_root, wright_omega
from bisaddle.sets.simplex import project_simplex


@runtime_checkable
class Divergence(Protocol):
    """sum q_i f(p_i / q_i) with f convex, f(1) = f'(1) = 0; p and q are vectors, q > 0.

    value: that sum. slope: f'(p / q). vertex_slope: f'(1 / q). prox: the p >= 0 with p + weight f'(p / q) = v (0 where
    none is). response: the derivative of prox with respect to v.
    """

    def value(self, p: Array, q: Array) -> Array: ...
    def slope(self, p: Array, q: Array) -> Array: ...
    def vertex_slope(self, q: Array) -> Array: ...
    def prox(self, v: Array, q: Array, weight: Array) -> Array: ...
    def response(self, p: Array, q: Array, weight: Array) -> Array: ...


class KullbackLeibler:
    """f(x) = x log x - x + 1"""

    def value(self, p: Array, q: Array) -> Array:
        return jnp.sum(p * self.slope(p, q) - p + q)

    def slope(self, p: Array, q: Array) -> Array:
        # where p vanished its logarithm multiplies a zero
        return jnp.where(p > 0, jnp.log(jnp.where(p > 0, p, q) / q), 0)

    def vertex_slope(self, q: Array) -> Array:
        return -jnp.log(q)

    def prox(self, v: Array, q: Array, weight: Array) -> Array:
        return weight * wright_omega(jnp.log(q) - jnp.log(weight) + v / weight, _omega_guess)

    def response(self, p: Array, q: Array, weight: Array) -> Array:
        return p / (p + weight)


class HalfChiSquare:
    """f(x) = (x - 1)^2 / 2"""

    def value(self, p: Array, q: Array) -> Array:
        return 0.5 * jnp.sum(jnp.square(p - q) / q)

    def slope(self, p: Array, q: Array) -> Array:
        return (p - q) / q

    def vertex_slope(self, q: Array) -> Array:
        return 1 / q - 1

    def prox(self, v: Array, q: Array, weight: Array) -> Array:
        return q * jnp.maximum(v + weight, 0) / (q + weight)

    def response(self, p: Array, q: Array, weight: Array) -> Array:
        return jnp.where(p > 0, q / (q + weight), 0)


@partial(jax.jit, static_argnums=3)
def project_divergence_ball(v: Array, q: Array, radius: Array, divergence: Divergence) -> Array:
    """argmin |p - v| over p in the unit simplex with divergence(p, q) <= radius.

    p = prox(v - t; weight), two multipliers: t makes p sum to 1 (monotone Newton steps, a convex function) and the
    weight, searched on a logarithmic scale, makes the divergence the radius. The last, linear, step removes what both
    searches left over and carries the derivatives (implicit function theorem).
    """
    one = jnp.ones((), v.dtype)
    moved = within_reach(v - lax.stop_gradient(jnp.max(v)), one)
    nearest = project_simplex(moved, one)
    inside = divergence.value(nearest, q) <= radius
    enough = 1e-3 * jnp.finfo(v.dtype).eps ** 0.5  # the last step squares it
    fixed, fixed_q, fixed_radius = lax.stop_gradient((moved, q, radius))

    def solution(log_weight):
        weight = jnp.exp(log_weight)
        p = divergence.prox(fixed - _threshold(fixed, fixed_q, weight, divergence), fixed_q, weight)
        slope, response = divergence.slope(p, fixed_q), divergence.response(p, fixed_q, weight)
        total = jnp.sum(response)
        centred = slope - jnp.sum(response * slope) / jnp.where(total == 0, 1, total)
        return p, weight, slope, response, centred, weight * jnp.sum(response * jnp.square(centred))

    def log_excess(log_weight):
        p, _, slope, _, _, decrease = lax.stop_gradient(solution(log_weight))
        value = jnp.maximum(divergence.value(p, fixed_q), jnp.finfo(v.dtype).tiny)
        rounding = 4 * jnp.finfo(v.dtype).eps * jnp.sum(jnp.abs(p * slope))
        near = jnp.abs(value - fixed_radius) <= jnp.maximum(rounding, enough * fixed_radius)
        excess = jnp.where(near | inside, 0, jnp.log(value / fixed_radius))
        # its derivative is known, and the search asks for it by differentiation
        return excess - decrease / value * (log_weight - lax.stop_gradient(log_weight))

    # divergence(p) <= (range of v + 1) / weight; weights below `least` move p by less than rounding does
    most = (jnp.max(fixed) - jnp.min(fixed) + 1) / fixed_radius
    least = jnp.asarray(1e-4 * jnp.finfo(v.dtype).eps, v.dtype)
    found = decreasing_root(log_excess, jnp.log(least), jnp.log(jnp.maximum(most, 2 * least)))
    _, weight, slope, response, centred, decrease = lax.stop_gradient(solution(found))
    threshold = lax.stop_gradient(_threshold(fixed, fixed_q, weight, divergence))
    p = divergence.prox(moved - threshold, q, weight)
    total = jnp.sum(response)
    too_much = jnp.sum(p) - 1
    too_far = divergence.value(p, q) - radius - jnp.sum(response * slope) / jnp.where(total == 0, 1, total) * too_much
    step = too_far / jnp.where(decrease == 0, 1, decrease)
    p = p - response * (too_much / jnp.where(total == 0, 1, total) + weight * centred * step)
    return poison(jnp.where(inside, nearest, jnp.maximum(p, 0)), v)


def _threshold(v: Array, q: Array, weight: Array, divergence: Divergence) -> Array:
    """t with sum prox(v - t) = 1, from the left: there one coordinate alone reaches 1."""

    def newton(carry):
        t, _, count = carry
        p = divergence.prox(v - t, q, weight)
        return t + (jnp.sum(p) - 1) / jnp.sum(divergence.response(p, q, weight)), t, count + 1

    start = jnp.max(v - 1 - weight * divergence.vertex_slope(q))
    carry = (start, jnp.full_like(start, -jnp.inf), 0)
    _, t, _ = lax.while_loop(lambda c: (c[0] > c[1]) & (c[2] < 100), newton, carry)
    return t


def _omega_guess(z: Array) -> Array:
    small = jnp.exp(jnp.minimum(z, 1))
    return jnp.where(z < 1, small / (1 + 0.632 * small), z - jnp.log(jnp.maximum(z, 1)))


@jax.jit
def lmo_kl(d: Array, q: Array, radius: Array) -> Array:
    """argmin <d, p> over p in the unit simplex with sum p log(p / q) <= radius: q exp(-tilt d), normalised."""
    cost, q, is_vertex, vertex = _ranked(d, q, radius, lambda mass: -jnp.log(mass))
    log_q = jnp.log(q)

    def tilted(log_tilt):
        tilt = jnp.exp(log_tilt)
        log_total = jax.nn.logsumexp(log_q - tilt * cost)
        p = jnp.exp(log_q - tilt * cost - log_total)
        return p, -tilt * jnp.sum(p * cost) - log_total

    def log_deficit(log_tilt):
        _, value = tilted(log_tilt)
        return jnp.log(radius) - jnp.log(jnp.maximum(value, jnp.finfo(d.dtype).tiny))

    # a tilt beyond these separates, or mixes, any two costs that differ at all
    widest = 0.9 * jnp.log(jnp.finfo(d.dtype).max)
    p, _ = tilted(decreasing_root(log_deficit, -0.1 * widest, widest))
    return jnp.where(is_vertex, vertex, p / jnp.sum(p))


@jax.jit
def lmo_chi_square(d: Array, q: Array, radius: Array) -> Array:
    """argmin <d, p> over p in the unit simplex with sum (p - q)^2 / q <= radius: q max(level - d, 0), normalised.

    The search for the level only has to find which coordinates stay positive; then the level has a closed form.
    """
    cost, q, is_vertex, vertex = _ranked(d, q, radius, lambda mass: 1 / mass - 1)

    def log_excess(log_level):
        share = 1 - cost * jnp.exp(-log_level)
        share = jnp.where(share > 0, share, 0)  # not jnp.maximum, whose derivative is dear
        return jnp.log(jnp.sum(q * jnp.square(share))) - 2 * jnp.log(jnp.sum(q * share)) - jnp.log1p(radius)

    widest = 0.9 * jnp.log(jnp.finfo(d.dtype).max)
    level = jnp.exp(lax.stop_gradient(decreasing_root(log_excess, -widest, 0.1 * widest)))
    active = cost < level
    scaled = jnp.where(active, cost / level, 0)
    mass = jnp.sum(jnp.where(active, q, 0))
    centred = scaled - jnp.sum(q * scaled) / mass
    variance = jnp.sum(jnp.where(active, q * jnp.square(centred), 0)) / mass
    tilt = jnp.sqrt(jnp.maximum(mass * (1 + radius) - 1, 0) / jnp.where(variance == 0, 1, variance))
    p = jnp.where(active, q / mass * jnp.maximum(1 - tilt * centred, 0), 0)
    return jnp.where(is_vertex, vertex, p / jnp.sum(p))


def _ranked(
    d: Array, q: Array, radius: Array, restriction: Callable[[Array], Array]
) -> tuple[Array, Array, Array, Array]:
    """Costs in [0, 1], q with 0 for what must vanish, whether a vertex of the simplex is optimal, and that vertex.

    restriction(mass): the divergence of q restricted to coordinates of that mass. Where the whole set of cheapest
    coordinates lies within the radius, the answer is supported there and the first of them breaks the tie.
    """
    lowest = jnp.min(d)
    cheapest = d == lowest
    first = jnp.arange(d.size) == jnp.argmin(d)
    tied = restriction(jnp.sum(jnp.where(cheapest, q, 0))) <= radius
    above = 0.5 * d - 0.5 * lowest  # halves do not overflow, and are exact: the cheapest stay at 0
    cost = above / jnp.where(jnp.max(above) > 0, jnp.max(above), 1)
    cost = jnp.where(tied, jnp.where(first, 0, 1), jnp.where(cheapest, 0, cost)).astype(d.dtype)
    is_vertex = restriction(jnp.sum(jnp.where(first, q, 0))) <= radius
    return cost, jnp.where(tied & ~cheapest, 0, q), tied & is_vertex, first.astype(d.dtype)
