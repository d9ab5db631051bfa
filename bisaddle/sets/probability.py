"""Sets of probability vectors for distributionally robust problems."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import (
    Leaf,
    VectorSet,
    as_leaf,
    finite_array,
    flat,
    like,
    poison,
    positive,
    traced,
    within_reach,
)
from bisaddle.sets.capped import CappedSet, project_capped_simplex
from bisaddle.sets.divergences import HalfChiSquare, KullbackLeibler, lmo_chi_square, lmo_kl, project_divergence_ball
from bisaddle.sets.extremes import place_of_smallest
from bisaddle.sets.knapsack import fill_cheapest, recentred
from bisaddle.sets.roots import decreasing_root
from bisaddle.sets.simplex import project_simplex

KULLBACK_LEIBLER = KullbackLeibler()
HALF_CHI_SQUARE = HalfChiSquare()


class KLBall(VectorSet):
    """{p : p >= 0, sum p = 1, sum p_i log(p_i / reference_i) <= radius}, reference > 0

    project: O(n) a pass, about a hundred passes (two nested roots); lmo: O(n) a pass, a dozen passes: the
    reference tilted, proportional to reference exp(-d / t), with t the root that gives the divergence.
    """

    reference: Leaf = eqx.field(converter=lambda q: distribution(q, "KLBall reference", strictly=True))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "KLBall radius"))

    def vector_project(self, v: Array) -> Array:
        return project_divergence_ball(v, flat(self.reference, v), like(self.radius, v), KULLBACK_LEIBLER)

    def vector_lmo(self, d: Array) -> Array:
        return poison(lmo_kl(d, flat(self.reference, d), like(self.radius, d)), d)

    def vector_diameter(self, v: Array) -> Array:
        """An upper bound, by Pinsker's inequality."""
        return within_simplex(2 * jnp.sqrt(like(self.radius, v)), v)


class ChiSquareBall(VectorSet):
    """{p : p >= 0, sum p = 1, sum (p_i - reference_i)^2 / reference_i <= radius}, reference > 0

    project: O(n) a pass, about a hundred passes (two nested roots); lmo: O(n) a pass, a dozen passes: proportional
    to reference max(t - d, 0), with t the root that gives the divergence.
    """

    reference: Leaf = eqx.field(converter=lambda q: distribution(q, "ChiSquareBall reference", strictly=True))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "ChiSquareBall radius"))

    def vector_project(self, v: Array) -> Array:
        return project_divergence_ball(v, flat(self.reference, v), 0.5 * like(self.radius, v), HALF_CHI_SQUARE)

    def vector_lmo(self, d: Array) -> Array:
        return poison(lmo_chi_square(d, flat(self.reference, d), like(self.radius, d)), d)

    def vector_diameter(self, v: Array) -> Array:
        """An upper bound: |p - q|^2 <= max(q) sum (p - q)^2 / q."""
        return within_simplex(2 * jnp.sqrt(like(self.radius, v) * jnp.max(flat(self.reference, v))), v)


class TVBall(VectorSet):
    """{p : p >= 0, sum p = 1, sum |p_i - reference_i| / 2 <= radius}

    project: a simplex and a capped simplex projection, O(n) a pass; lmo: O(n log n), a sort: mass moves from the
    dearest coordinates to the cheapest one.
    """

    reference: Leaf = eqx.field(converter=lambda q: distribution(q, "TVBall reference"))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "TVBall radius"))

    def vector_project(self, v: Array) -> Array:
        q, radius = flat(self.reference, v), like(self.radius, v)
        nearest = project_simplex(v, jnp.ones((), v.dtype))
        # on the boundary mass `radius` arrives and mass `radius` leaves, each with a threshold of its own
        arriving = project_simplex(v - q, radius)
        leaving = project_capped_simplex(q - v, q, jnp.minimum(radius, jnp.sum(q)))
        return jnp.where(0.5 * jnp.sum(jnp.abs(nearest - q)) <= radius, nearest, q + arriving - leaving)

    def vector_lmo(self, d: Array) -> Array:
        q, radius = flat(self.reference, d), like(self.radius, d)
        cheapest = jnp.arange(d.size) == place_of_smallest(d)
        leaving = fill_cheapest(-d, jnp.where(cheapest, 0, q), radius)
        return poison(jnp.where(cheapest, q + jnp.sum(leaving), q - leaving), d)

    def vector_diameter(self, v: Array) -> Array:
        """An upper bound: |p - q|_2 <= sqrt(2) radius."""
        return within_simplex(8**0.5 * like(self.radius, v), v)


class CVaRSet(CappedSet):
    """{p : 0 <= p <= reference / (1 - level), sum p = 1}, reference uniform unless given, 0 <= level < 1

    max over p of <p, loss> is the conditional value at risk of the loss at this level under the reference: its mean
    over the worst share 1 - level of the outcomes. support(loss) is that number, lmo(-loss) the weights behind it.
    project: O(n) a pass, a dozen passes (safeguarded Newton on the threshold); lmo: O(n log n), a sort.
    """

    level: Leaf = eqx.field(converter=lambda a: _level(a))
    reference: Leaf | None = eqx.field(
        converter=lambda q: None if q is None else distribution(q, "CVaRSet reference"), default=None
    )

    def limits(self, v: Array) -> tuple[Array, Array]:
        reference = jnp.full_like(v, 1 / v.size) if self.reference is None else flat(self.reference, v)
        return reference / (1 - like(self.level, v)), jnp.ones((), v.dtype)


class MeanConstrainedSimplex(VectorSet):
    """{p : p >= 0, sum p = 1, lower <= <values, p> <= upper}

    project: one simplex projection, and where its mean is off a few dozen more (a root over the multiplier of the
    mean); lmo: O(n) a pass, a few passes: at most two coordinates, an edge of the lower hull of (values, d).
    """

    estimates = frozenset({"project"})  # where values are nearly equal, rounding of the mean moves the answer more

    values: Leaf = eqx.field(converter=lambda a: finite_array(a, "MeanConstrainedSimplex values"))
    lower: Leaf = eqx.field(converter=lambda a: finite_array(a, "MeanConstrainedSimplex lower"))
    upper: Leaf = eqx.field(converter=lambda a: finite_array(a, "MeanConstrainedSimplex upper"))

    def __check_init__(self):
        values, lower, upper = self.values, self.lower, self.upper
        if not np.ndim(values) or np.ndim(lower) or np.ndim(upper):
            raise ValueError(
                "MeanConstrainedSimplex takes an array of values and two numbers lower, upper, given shapes "
                f"{np.shape(values)}, {np.shape(lower)}, {np.shape(upper)}"
            )
        if any(traced(a) for a in (values, lower, upper)):
            return
        if lower > upper:
            raise ValueError(f"MeanConstrainedSimplex is empty: lower {lower:g} exceeds upper {upper:g}")
        least, most = np.min(np.asarray(values)), np.max(np.asarray(values))
        if upper < least or lower > most:
            raise ValueError(
                f"MeanConstrainedSimplex is empty: means lie in [{least:g}, {most:g}], which misses "
                f"[lower, upper] = [{lower:g}, {upper:g}]"
            )

    def vector_project(self, v: Array) -> Array:
        values, bounds = self._scaled(v)
        one = jnp.ones((), v.dtype)
        near = within_reach(v - lax.stop_gradient(jnp.max(v)), one)
        nearest = project_simplex(near, one)
        mean = jnp.sum(values * nearest)
        bound = jnp.where(mean > bounds[1], bounds[1], bounds[0])
        inside = (bounds[0] <= mean) & (mean <= bounds[1])
        return poison(jnp.where(inside, nearest, _project_with_mean(near, values, bound)), v)

    def vector_lmo(self, d: Array) -> Array:
        values, bounds = self._scaled(d)
        return poison(_lmo_with_mean(d, values, bounds[0], bounds[1]), d)

    def vector_diameter(self, v: Array) -> Array:
        """An upper bound: that of the simplex."""
        return within_simplex(jnp.full((), jnp.inf, v.dtype), v)

    def _scaled(self, v: Array) -> tuple[Array, tuple[Array, Array]]:
        """The values moved and scaled to [0, 1], the bounds with them and no further out."""
        values = flat(self.values, v)
        least, most = lax.stop_gradient((jnp.min(values), jnp.max(values)))
        width = jnp.where(most == least, 1, most - least)
        clipped = [jnp.clip((like(bound, v) - least) / width, 0, 1) for bound in (self.lower, self.upper)]
        return (values - least) / width, (clipped[0], jnp.where(most == least, 1, clipped[1]))


def distribution(value, name: str, strictly: bool = False) -> Leaf:
    """Probabilities as a leaf, checked and made to sum to 1 to rounding; traced values pass unchecked."""
    array = finite_array(value, name)
    if not np.ndim(array):
        raise ValueError(f"{name} must be an array with one probability per coordinate, given a number")
    if traced(array):
        return array
    least, total = float(np.min(np.asarray(array))), float(np.sum(np.asarray(array, np.float64)))
    if least < 0 or (strictly and least == 0):
        raise ValueError(f"{name} must be {'>' if strictly else '>='} 0 everywhere, given an entry {least:g}")
    if abs(total - 1) > 1e-6:  # numbers in float32, or written to six digits, pass
        raise ValueError(f"{name} must sum to 1, given a sum of {total:g}; divide it by its sum")
    return array / total


def within_simplex(bound: Array, v: Array) -> Array:
    """The smaller of a bound and the diameter of the unit simplex."""
    return jnp.minimum(bound, like(2.0 if v.size > 1 else 0.0, v) ** 0.5)


def _level(value) -> Leaf:
    level = as_leaf(value, "CVaRSet level")
    if level.shape != () or not (traced(level) or 0 <= level < 1):
        raise ValueError(f"CVaRSet level must be a number with 0 <= level < 1, given {value}")
    return level


@jax.jit
def _project_with_mean(v: Array, values: Array, mean: Array) -> Array:
    """argmin |p - v| over p in the unit simplex with <values, p> = mean, for values that span [0, 1].

    p = max(v - s - t values, 0), with t a root that is found until it moves v little (see knapsack.recentred). Then
    the positive coordinates are known, two linear equations are left, and these carry the derivatives.
    """
    one = jnp.ones((), v.dtype)
    rounding = 2 * jnp.finfo(v.dtype).eps
    edge = jnp.where(values == mean, v, jnp.finfo(v.dtype).min / 4)  # all that is left for an extreme mean
    fixed_values, fixed_mean = lax.stop_gradient((values, mean))

    def multiplier(v, within):
        def excess(t):
            total = jnp.sum(fixed_values * project_simplex(v - t * fixed_values, one)) - fixed_mean
            return jnp.where(jnp.abs(total) <= rounding, 0, total)

        return decreasing_root(excess, -within, within)

    fixed = lax.stop_gradient(v)
    room = jnp.maximum(jnp.minimum(fixed_mean, 1 - fixed_mean), jnp.finfo(v.dtype).eps)
    far = 2 * (jnp.max(fixed) - jnp.min(fixed) + 1) / room  # <values, p> - min <= (range of v + 1) / t
    moved, t = lax.stop_gradient(recentred(multiplier, fixed, fixed_values, one, far, largest_at_0=True))
    v = moved + (v - fixed) - t * (values - fixed_values)  # what is added is 0, its derivative is not
    active = project_simplex(v, one) > 0
    count = jnp.sum(active, dtype=v.dtype)
    missing = 1 - jnp.sum(jnp.where(active, v, 0))
    centre = jnp.sum(jnp.where(active, values, 0)) / count
    centred = jnp.where(active, values - centre, 0)
    spread = jnp.sum(jnp.square(centred))
    short = mean - jnp.sum(jnp.where(active, values * v, 0)) - centre * missing
    p = v + missing / count + centred * short / jnp.where(spread == 0, 1, spread)
    inner = jnp.where(active, jnp.maximum(p, 0), 0)
    return jnp.where((mean <= 0) | (mean >= 1), project_simplex(edge, one), inner)


@jax.jit
def _lmo_with_mean(d: Array, values: Array, lower: Array, upper: Array) -> Array:
    """argmin <d, p> over p in the unit simplex with lower <= <values, p> <= upper: one coordinate or two.

    With the cheapest coordinate out of bounds the mean sits at a bound, and p mixes the two points (values, d) whose
    segment is lowest there. From any segment across the bound, the point furthest below its line replaces an end.
    """
    d = d / jnp.where(jnp.max(jnp.abs(d)) > 0, jnp.max(jnp.abs(d)), 1)
    cheapest = jnp.argmin(d)
    mean = jnp.clip(values[cheapest], lower, upper)

    def gain(ends):
        """The point furthest below the line through the ends, and by how much."""
        left, right = ends
        run = values[right] - values[left]
        height = d - (d[right] - d[left]) / jnp.where(run > 0, run, 1) * (values - values[left])
        lowest = jnp.argmin(height)
        # of a vertical segment the lower end is right: nothing to gain
        rounding = 4 * jnp.finfo(d.dtype).eps * (1 + jnp.max(jnp.abs(height)))
        return lowest, jnp.where(run > 0, d[left] - height[lowest] > rounding, False)

    def improve(carry):
        (left, right), (lowest, _), count = carry
        goes_left = values[lowest] <= mean
        ends = jnp.where(goes_left, lowest, left), jnp.where(goes_left, right, lowest)
        return ends, gain(ends), count + 1

    ends = jnp.argmin(jnp.where(values <= mean, d, jnp.inf)), jnp.argmin(jnp.where(values >= mean, d, jnp.inf))
    (left, right), _, _ = lax.while_loop(lambda c: c[1][1] & (c[2] < 2 * d.size), improve, (ends, gain(ends), 0))
    run = values[right] - values[left]
    share = jnp.where(run > 0, (mean - values[left]) / jnp.where(run > 0, run, 1), 0)
    place = jnp.arange(d.size)
    mixed = jnp.where(place == left, 1 - share, 0) + jnp.where(place == right, share, 0)
    inside = (lower <= values[cheapest]) & (values[cheapest] <= upper)
    return jnp.where(inside, (place == cheapest).astype(d.dtype), mixed)
