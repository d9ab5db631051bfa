"""Balls of other norms than l1, l2 and l-infinity: weighted, lp, elliptic, grouped."""

from functools import partial
from math import ceil, isinf, log

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from bisaddle.sets.balls import L1Ball, L2Ball, LinfBall, direction_and_length
from bisaddle.sets.base import Leaf, VectorSet, finite_array, flat, like, poison, positive, within_reach
from bisaddle.sets.extremes import one_hot, place_of_smallest, smallest
from bisaddle.sets.roots import decreasing_root
from bisaddle.sets.simplex import project_simplex, uniform_weights


class WeightedL1Ball(VectorSet):
    """{v : sum weights_i |v_i| <= radius}, weights > 0

    project: O(n) a pass, a handful of passes (monotone Newton on the threshold); lmo: O(n), one signed coordinate.
    """

    weights: Leaf = eqx.field(converter=lambda w: finite_array(w, "WeightedL1Ball weights", "> 0"))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "WeightedL1Ball radius"))

    def vector_project(self, v: Array) -> Array:
        weights, radius = flat(self.weights, v), like(self.radius, v)
        near = within_reach(jnp.abs(v), radius / lax.stop_gradient(jnp.min(weights)))
        outside = jnp.sign(v) * _shrink_to_weighted(near, weights, radius)
        return poison(jnp.where(jnp.sum(weights * near) <= radius, v, outside), v)

    def vector_lmo(self, d: Array) -> Array:
        weights = flat(self.weights, d)
        place, spoiled = smallest(-jnp.abs(d) / weights)
        return one_hot(place, jnp.where(d[place] > 0, -1, 1) * like(self.radius, d) / weights[place], spoiled, d)

    def vector_diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v) / jnp.min(flat(self.weights, v))

    def vector_sample(self, key: Array, size: int) -> Array:
        weights = jnp.broadcast_to(jnp.asarray(self.weights).ravel(), (size,))
        return L1Ball(self.radius).vector_sample(key, size) / weights


class LpBall(VectorSet):
    """{v : (sum |v_i|^p)^(1/p) <= radius}, 1 <= p <= infinity

    project: closed forms for p = 1, 2 and infinity; otherwise O(n) a pass, about a hundred passes (a root over the
    multiplier, in it a fixed number of Newton steps per coordinate); lmo: O(n), Hoelder's inequality with equality.
    """

    p: float = eqx.field(static=True, converter=lambda p: _exponent(p))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "LpBall radius"))

    def _closed_form(self) -> VectorSet | None:
        closed = {1.0: L1Ball, 2.0: L2Ball, float("inf"): LinfBall}.get(self.p)
        return closed and closed(self.radius)

    def vector_project(self, v: Array) -> Array:
        closed = self._closed_form()
        if closed is not None:
            return closed.vector_project(v)
        radius = like(self.radius, v)
        longest = radius * like(v.size, v) ** max(0.5 - 1 / self.p, 0.0)
        shrunk, inside = _shrink_to_lp(within_reach(jnp.abs(v), longest) / radius, self.p)
        return jnp.where(inside, v, jnp.sign(v) * radius * shrunk)

    def vector_lmo(self, d: Array) -> Array:
        closed = self._closed_form()
        if closed is not None:
            return closed.vector_lmo(d)
        largest = jnp.max(jnp.abs(d))
        share = jnp.where(largest == 0, jnp.arange(d.size) == 0, jnp.abs(d) / jnp.where(largest == 0, 1, largest))
        length = jnp.sum(share ** (self.p / (self.p - 1))) ** (1 / self.p)
        return poison(jnp.where(d > 0, -1, 1) * like(self.radius, d) * share ** (1 / (self.p - 1)) / length, d)

    def vector_diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v) * like(v.size, v) ** max(0.5 - 1 / self.p, 0.0)

    def vector_sample(self, key: Array, size: int) -> Array:
        draws = jax.random.uniform(key, (size,), minval=-1.0, maxval=1.0)
        largest = jnp.max(jnp.abs(draws))
        powers = 1.0 if isinf(self.p) else jnp.sum((jnp.abs(draws) / largest) ** self.p) ** (1 / self.p)
        return jnp.asarray(self.radius) * draws / powers  # the largest draw, at most 1, is what stays unused


class Ellipsoid(VectorSet):
    """{v : sum ((v_i - center_i) / axes_i)^2 <= 1}, axes > 0 the half-axes

    project: O(n) a pass, a handful of passes (monotone Newton on the secular equation); lmo: O(n), closed form.
    """

    axes: Leaf = eqx.field(converter=lambda a: finite_array(a, "Ellipsoid axes", "> 0"))
    center: Leaf = eqx.field(converter=lambda c: finite_array(c, "Ellipsoid center"), default=0.0)

    def __check_init__(self):
        if np.ndim(self.axes) and np.ndim(self.center) and np.size(self.axes) != np.size(self.center):
            raise ValueError(
                "Ellipsoid axes and center must have one size, given "
                f"{np.size(self.axes)} and {np.size(self.center)} entries"
            )

    def vector_project(self, v: Array) -> Array:
        axes, center = flat(self.axes, v), flat(self.center, v)
        near = within_reach(v - center, jnp.max(axes))
        _, length = direction_and_length(near / axes)
        return jnp.where(length <= 1, v, center + _shrink_to_ellipsoid(near, axes))

    def vector_lmo(self, d: Array) -> Array:
        axes = flat(self.axes, d)
        unit, length = direction_and_length(axes / jnp.max(axes) * d)  # the product alone might overflow
        return flat(self.center, d) + axes * jnp.where(length == 0, jnp.arange(d.size) == 0, -unit)

    def vector_diameter(self, v: Array) -> Array:
        return 2 * jnp.max(flat(self.axes, v))

    def vector_sample(self, key: Array, size: int) -> Array:
        axes, center = (jnp.asarray(a).ravel() if np.ndim(a) else jnp.asarray(a) for a in (self.axes, self.center))
        return center + axes * L2Ball(1.0).vector_sample(key, size)


class _Labels(tuple):
    """The group of each coordinate, hashed once: JAX asks for the hash of what is static at every call.

    number: of the groups; even: whether they are the rows of a matrix.
    """

    def __new__(cls, groups):
        labels = np.asarray(groups)
        if labels.ndim != 1 or labels.size == 0 or labels.dtype.kind not in "iu":
            raise ValueError(f"GroupBall groups must be one integer label per coordinate, given {groups!r}")
        used = sorted(set(labels.tolist()))
        if used != list(range(len(used))):
            raise ValueError(f"GroupBall groups must use every label from 0 to the largest, given {used}")
        return super().__new__(cls, labels.tolist())

    def __init__(self, groups):
        self.hashed = tuple.__hash__(self)
        self.number = max(self) + 1
        self.even = self == tuple(np.repeat(np.arange(self.number), len(self) // self.number).tolist())

    def __hash__(self):
        return self.hashed

    def __eq__(self, other):
        return self is other or tuple.__eq__(self, other)


class GroupBall(VectorSet):
    """{v : sum over groups g of |v_g|_2 <= radius}, groups a label per coordinate, 0, 1, 2, ...

    project: the l1 projection of the group norms, O(n) and O(number of groups) a pass; lmo: O(n), one group.
    """

    groups: _Labels = eqx.field(static=True, converter=_Labels)
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "GroupBall radius"))

    def vector_project(self, v: Array) -> Array:
        radius = like(self.radius, v)
        lengths, divisors = self._lengths(v)
        # not times the quotient of the numbers, which may underflow
        shrunk = v / self._per_coordinate(divisors) * self._per_coordinate(project_simplex(lengths, radius))
        return poison(jnp.where(jnp.sum(lengths) <= radius, v, shrunk), v)

    def vector_lmo(self, d: Array) -> Array:
        lengths, divisors = self._lengths(d)
        best = place_of_smallest(-lengths)
        if self.groups.even:
            # one row is computed, the others are filled
            spoiled = jnp.any(jnp.isnan(lengths))
            rows = jnp.full((lengths.size, d.size // lengths.size), jnp.where(spoiled, jnp.nan, 0), d.dtype)
            first = jnp.arange(rows.shape[1]) == 0
            row = jnp.where(lengths[best] == 0, first, -d.reshape(rows.shape)[best] / divisors[best])
            return rows.at[best].set(jnp.where(spoiled, jnp.nan, like(self.radius, d) * row)).ravel()
        labels = np.asarray(self.groups)
        # for d = 0 the first coordinate of the first group
        vertex = jnp.where(lengths[best] == 0, jnp.arange(d.size) == int(np.argmin(labels)), -d / divisors[best])
        return poison(like(self.radius, d) * jnp.where(labels == best, vertex, 0), d)

    def vector_diameter(self, v: Array) -> Array:
        return 2 * like(self.radius, v)

    def vector_sample(self, key: Array, size: int) -> Array:
        direction_key, key = jax.random.split(key)
        direction = jax.random.normal(direction_key, (size,))
        weights = uniform_weights(key, self.groups.number + 1)[:-1]  # the last weight is what stays unused
        return jnp.asarray(self.radius) * direction * self._per_coordinate(weights / self._lengths(direction)[1])

    def vector_misfit(self, size: int) -> str | None:
        if len(self.groups) != size:
            return f"GroupBall has groups for {len(self.groups)} coordinates, given vectors of size {size}"
        return None

    def _lengths(self, v: Array) -> tuple[Array, Array]:
        """|v_g|, and the same with 1 in place of 0, without overflow."""
        largest = lax.stop_gradient(jnp.max(jnp.abs(v)))
        scale = jnp.where(largest == 0, 1, largest)
        square = self._per_group(jnp.square(v * (1 / scale)))
        length = scale * jnp.sqrt(jnp.where(square == 0, 1, square))
        return jnp.where(square == 0, 0, length), jnp.where(square == 0, 1, length)

    def _per_group(self, v: Array) -> Array:
        """The sum over each group."""
        if self.groups.even:
            return jnp.sum(v.reshape(self.groups.number, -1), axis=1)
        return jax.ops.segment_sum(v, np.asarray(self.groups), num_segments=self.groups.number)

    def _per_coordinate(self, of_groups: Array) -> Array:
        if self.groups.even:
            # quicker than jnp.repeat, which gathers
            shape = (of_groups.size, len(self.groups) // of_groups.size)
            return jnp.broadcast_to(of_groups[:, None], shape).ravel()
        return of_groups[np.asarray(self.groups)]


def _exponent(value) -> float:
    try:
        p = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"LpBall p must be a number that is not traced, given {value!r}") from error
    if not p >= 1:
        raise ValueError(f"LpBall p must be at least 1, given {p}")
    return p


@jax.jit
def _shrink_to_weighted(size: Array, weights: Array, radius: Array) -> Array:
    """The projection of a vector >= 0 onto {x >= 0, <weights, x> = radius}, from outside: max(size - t weights, 0).

    <weights, x> is convex and piecewise linear in t: Newton's method from the left is monotone and finite. It runs for
    ratio - max(ratio), ratio = size / weights, so that every number stays small whatever the scale of size. Then the
    positive coordinates are known, t solves a linear equation, and that carries the derivatives.
    """
    fixed, square = lax.stop_gradient(size), jnp.square(lax.stop_gradient(weights))
    ratio = fixed / lax.stop_gradient(weights)
    top = place_of_smallest(-ratio)
    least = -lax.stop_gradient(radius) / square[top]  # the top coordinate alone would reach the radius
    # XLA may compute ratios again, with another rounding: the difference of the top one with itself is not always 0
    below = jnp.where(jnp.arange(size.size) == top, 0, jnp.minimum(ratio - ratio[top], 0))
    ratio = lax.optimization_barrier(jnp.maximum(below, least))

    def newton(carry):
        t, _ = carry
        active = ratio > t
        weight = jnp.where(active, square, 0)
        total = jnp.sum(weight)
        moved = (jnp.sum(weight * ratio) - lax.stop_gradient(radius)) / jnp.where(total == 0, 1, total)
        return jnp.maximum(moved, least), t

    start = jnp.maximum((jnp.sum(square * ratio) - lax.stop_gradient(radius)) / jnp.sum(square), least)
    carry = (start, jnp.full_like(start, -jnp.inf))
    t, _ = lax.while_loop(lambda carry: carry[0] > carry[1], newton, carry)
    active = ratio > t
    # what is left of every active coordinate above the top's share, then one linear equation
    near = _above_level(size, weights, ratio, fixed[top] / lax.stop_gradient(weights[top]))
    excess = jnp.sum(jnp.where(active, weights * near, 0)) - radius
    x = near - excess / jnp.sum(jnp.where(active, jnp.square(weights), 0)) * weights
    x = jnp.where(active, jnp.maximum(x, 0), 0)
    reached = jnp.sum(weights * x)
    return x * radius / jnp.where(reached == 0, 1, reached)  # 1 up to rounding, which large scales multiply


@jax.custom_jvp
def _above_level(size: Array, weights: Array, ratio: Array, level: Array) -> Array:
    """size - level weights where ratio = size / weights - level, whose digits the difference of large numbers lacks."""
    return weights * ratio


@_above_level.defjvp
def _above_level_jvp(primals, tangents):
    return _above_level(*primals), tangents[0] - primals[3] * tangents[1]


@partial(jax.jit, static_argnums=1)
def _shrink_to_lp(size: Array, p: float) -> tuple[Array, Array]:
    """The projection of a vector >= 0 onto the unit lp ball, 1 < p < infinity, p != 2, and whether it was inside.

    x + weight x^(p - 1) = size in every coordinate, with the weight that makes sum x^p = 1. In logarithms both roots
    are of convex functions with slopes between 1 and p - 1, at every scale. A last linear step removes what the
    searches left over, and carries the derivatives (implicit function theorem).
    """
    tiny = jnp.finfo(size.dtype).tiny
    fixed = lax.stop_gradient(size)
    log_size = jnp.log(jnp.maximum(fixed, tiny))
    inside = jax.nn.logsumexp(p * log_size) <= 0
    enough = 1e-3 * jnp.finfo(size.dtype).eps ** 0.5  # the last step squares it

    def solution(log_weight):
        """log x, the share of x in size, and the slope of log size with respect to log x."""
        log_x = jnp.minimum(log_size, (log_size - log_weight) / (p - 1))
        for _ in range(7 + ceil(max(0.0, -log(p - 1)))):  # close to p = 1 Newton starts slowly
            total = jnp.logaddexp(log_x, log_weight + (p - 1) * log_x)
            share = jnp.exp(log_x - total)
            log_x = log_x - (total - log_size) / (share + (p - 1) * (1 - share))
        share = jnp.minimum(jnp.exp(log_x - log_size), 1)
        return log_x, share, share + (p - 1) * (1 - share)

    def log_excess(log_weight):
        log_x, share, slope = lax.stop_gradient(solution(log_weight))
        value = jax.nn.logsumexp(p * log_x)
        decrease = p * jnp.sum(jnp.exp(p * log_x - value) * (1 - share) / slope)
        excess = jnp.where((jnp.abs(value) <= enough) | inside, 0, value)
        # its derivative is known, and the search asks for it by differentiation
        return excess - decrease * (log_weight - lax.stop_gradient(log_weight))

    # a weight of |size|_q suffices, 1/p + 1/q = 1; one below `least` moves x by less than rounding does
    most = jnp.max(log_size) + (1 - 1 / p) * log(size.size)
    least = jnp.log(jnp.asarray(1e-4 * jnp.finfo(size.dtype).eps, size.dtype))
    log_weight = lax.stop_gradient(decreasing_root(log_excess, least, jnp.maximum(most, least + 1)))
    log_x, share, slope = lax.stop_gradient(solution(log_weight))
    power, response = jnp.exp((p - 1) * log_x), share / slope
    start = jnp.exp(log_x)
    x = start + response * (size - start - jnp.exp(log_weight) * power)
    excess = jnp.sum(jnp.exp(p * log_x)) - 1 + p * jnp.sum(power * (x - start))
    decrease = p * jnp.sum(response * jnp.square(power))
    x = x - response * power * excess / jnp.where(decrease == 0, 1, decrease)
    return poison(jnp.where(size > 0, jnp.maximum(x, 0), size), size), inside


@jax.jit
def _shrink_to_ellipsoid(v: Array, axes: Array) -> Array:
    """The projection of a vector outside {sum (v / axes)^2 <= 1}: v axes^2 / (axes^2 + weight).

    1 - 1 / |x / axes| is a convex function of the weight: Newton's method from the left is monotone. It starts where
    no coordinate alone is outside. The last step is linear and carries the derivatives.
    """
    scale = lax.stop_gradient(jnp.max(axes))
    v, axes = v / scale, axes / scale
    fixed, square = lax.stop_gradient((v * axes, jnp.square(axes)))

    def newton(carry):
        weight, _, count = carry
        ratio = fixed / (square + weight)  # x / axes
        length = jnp.sqrt(jnp.sum(jnp.square(ratio)))
        bend = jnp.sum(jnp.square(ratio) / (square + weight))
        return weight + jnp.square(length) / jnp.where(bend == 0, 1, bend) * (length - 1), weight, count + 1

    start = jnp.maximum(jnp.max(jnp.abs(fixed) - square), 0)
    carry = (start, jnp.full_like(start, -jnp.inf), 0)
    _, weight, _ = lax.while_loop(lambda c: (c[0] > c[1]) & (c[2] < 100), newton, carry)
    response = square / (square + weight)
    x = v * jnp.square(axes) / (jnp.square(axes) + weight)
    gradient = lax.stop_gradient(x) / square
    excess = jnp.sum(jnp.square(x / axes)) - 1
    decrease = 2 * jnp.sum(response * jnp.square(gradient))
    return scale * (x - response * gradient * excess / jnp.where(decrease == 0, 1, decrease))
