"""Boxes cut by a hyperplane, a single point, and a large ball in place of no constraint."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle.sets.balls import L2Ball
from bisaddle.sets.base import Leaf, VectorSet, finite_array, flat, like, poison, positive, traced
from bisaddle.sets.knapsack import fill_cheapest, project_box_hyperplane
from bisaddle.trees import Number, Shape


class _BoxSection(VectorSet):
    """What a box cut by a hyperplane and a box cut by a halfspace share."""

    normal: Leaf = eqx.field(converter=lambda a: finite_array(a, "normal"))
    offset: Leaf = eqx.field(converter=lambda b: finite_array(b, "offset"))
    lower: Leaf = eqx.field(converter=lambda a: finite_array(a, "lower"))
    upper: Leaf = eqx.field(converter=lambda a: finite_array(a, "upper"))

    def __check_init__(self):
        name = type(self).__name__
        if np.ndim(self.offset):
            raise ValueError(f"{name} offset must be a number, given shape {np.shape(self.offset)}")
        sizes = {np.size(a) for a in (self.normal, self.lower, self.upper) if np.ndim(a)}
        if len(sizes) > 1:
            raise ValueError(f"{name} normal, lower and upper must have one size, given {sorted(sizes)}")
        if not (traced(self.lower) or traced(self.upper)):
            if np.any(np.ravel(np.asarray(self.lower)) > np.ravel(np.asarray(self.upper))):
                raise ValueError(f"{name} is empty: a lower bound exceeds its upper bound; exchange or correct them")
        if not traced(self.normal) and not np.any(np.asarray(self.normal)):
            raise ValueError(f"{name} normal must have an entry other than 0; without one use Box")
        if sizes and (reason := self._misses(sizes.pop())):
            raise ValueError(reason)

    def vector_misfit(self, size: int) -> str | None:
        return VectorSet.vector_misfit(self, size) or self._misses(size)

    def vector_diameter(self, v: Array) -> Array:
        """An upper bound: that of the box."""
        return jnp.sqrt(jnp.sum(jnp.square(flat(self.upper, v) - flat(self.lower, v))))

    def project_error(self, v: Array, p: Array) -> Array:
        rows = self._rows(self.fitting(p))
        return VectorSet.project_error(self, v, p) + jnp.sqrt(jnp.sum(jnp.square(jax.vmap(self._offset_error)(rows))))

    def _offset_error(self, p: Array) -> Array:
        """What rounding of <normal, p> moves the coordinates between their bounds, which alone can make up for it."""
        lower, upper, normal, offset = self._parts(p)
        lost = 8 * jnp.finfo(p.dtype).eps * (jnp.sum(jnp.abs(normal * p)) + jnp.abs(offset))
        steep = jnp.sqrt(jnp.sum(jnp.where((p > lower) & (p < upper), jnp.square(normal), 0)))
        inside = jnp.sum(normal * p) < offset - lost
        return jnp.where((steep > 0) & ~inside, lost / jnp.where(steep > 0, steep, 1), 0)

    def _parts(self, v: Array) -> tuple[Array, Array, Array, Array]:
        """(lower, upper, normal, offset) for the vector v"""
        return flat(self.lower, v), flat(self.upper, v), flat(self.normal, v), like(self.offset, v)

    def _misses(self, size: int) -> str | None:
        """Why no vector of this size is in the set; traced sizes pass unchecked."""
        if any(traced(a) for a in (self.normal, self.offset, self.lower, self.upper)):
            return None
        normal, lower, upper = (
            np.broadcast_to(np.asarray(a, np.float64).ravel() if np.ndim(a) else np.asarray(a), (size,))
            for a in (self.normal, self.lower, self.upper)
        )
        ends = normal * lower, normal * upper
        return self._beyond(np.minimum(*ends).sum(), np.maximum(*ends).sum(), 1e-12 * np.abs(ends).sum())

    def _beyond(self, least: float, most: float, rounding: float) -> str | None:
        """Why the offset is out of reach, where <normal, v> lies in [least, most] over the box; None if it is not."""
        raise NotImplementedError

    def _climb(self, d: Array, wanted: Array) -> Array:
        """From the corner with the least <normal, v> up to the offset, along `wanted` coordinates, cheapest first."""
        lower, upper, normal, offset = self._parts(d)
        # where the normal is 0 the direction alone decides, for this corner and the opposite one
        least = jnp.where(normal > 0, lower, jnp.where(normal < 0, upper, jnp.where(d > 0, lower, upper)))
        most = jnp.where(normal > 0, upper, jnp.where(normal < 0, lower, least))
        capacity = jnp.where(wanted, normal * (most - least), 0)
        price = d / jnp.where(normal == 0, 1, normal)
        filled = fill_cheapest(price, capacity, jnp.maximum(offset - jnp.sum(normal * least), 0))
        share = filled / jnp.where(capacity > 0, capacity, 1)
        return poison(jnp.where(share >= 1, most, least + share * (most - least)), d)


class HyperplaneBox(_BoxSection):
    """{v : lower <= v <= upper, <normal, v> = offset}, normal and bounds numbers or one per coordinate

    project: O(n) a pass, a dozen passes (safeguarded Newton on the multiplier); lmo: O(n log n), the continuous
    knapsack, a sort of the ratios d / normal.
    """

    def vector_project(self, v: Array) -> Array:
        return project_box_hyperplane(v, *self._parts(v))

    def vector_lmo(self, d: Array) -> Array:
        return self._climb(d, jnp.full(d.shape, True))

    def _beyond(self, least: float, most: float, rounding: float) -> str | None:
        if least - rounding <= self.offset <= most + rounding:
            return None
        return (
            f"HyperplaneBox is empty: <normal, v> lies in [{least:g}, {most:g}] over the box, "
            f"which misses the offset {self.offset:g}"
        )


class HalfspaceBox(_BoxSection):
    """{v : lower <= v <= upper, <normal, v> <= offset}, normal and bounds numbers or one per coordinate

    project: a clip, and where that leaves the halfspace as HyperplaneBox; lmo: O(n log n), the continuous knapsack, a
    sort of the ratios d / normal.
    """

    def vector_project(self, v: Array) -> Array:
        lower, upper, normal, offset = self._parts(v)
        clipped = jnp.clip(v, lower, upper)
        cut = project_box_hyperplane(v, lower, upper, normal, offset)
        return poison(jnp.where(jnp.sum(normal * clipped) <= offset, clipped, cut), v)

    def vector_lmo(self, d: Array) -> Array:
        return self._climb(d, d * flat(self.normal, d) < 0)

    def _beyond(self, least: float, most: float, rounding: float) -> str | None:
        if least - rounding <= self.offset:
            return None
        return (
            f"HalfspaceBox is empty: <normal, v> is at least {least:g} over the box, "
            f"which exceeds the offset {self.offset:g}"
        )


class Singleton(VectorSet):
    """{value}, value an array (or a number, for every coordinate)

    project: O(n), the value; lmo: O(n), the value.
    """

    value: Leaf = eqx.field(converter=lambda a: finite_array(a, "Singleton value"))

    def vector_project(self, v: Array) -> Array:
        return poison(flat(self.value, v), v)

    def vector_lmo(self, d: Array) -> Array:
        return poison(flat(self.value, d), d)

    def vector_diameter(self, v: Array) -> Array:
        return jnp.zeros((), v.dtype)

    def vector_sample(self, key: Array, size: int) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.value).ravel() if np.ndim(self.value) else self.value, (size,))


class FreeBall(L2Ball):
    """{v : |v|_2 <= radius}, a large ball that stands in for an unconstrained variable

    The methods here need compact sets, and their rates grow with the diameter: give the smallest radius that surely
    holds the solution, and ask `binds` afterwards. Where the ball binds it changed the problem: enlarge it.
    project: O(n), a rescaling; lmo: O(n), -radius d / |d|.
    """

    radius: Leaf = eqx.field(converter=lambda r: positive(r, "FreeBall radius"), default=1e6)
    stands_in_for: ClassVar[str] = "an unconstrained variable"

    def binds(self, v: PyTree, tol: Number = 1e-6) -> Array:
        """Whether v lies at the boundary, up to tol relative to the radius (in any slice, with `axis`)."""
        v = self.fitting(v)
        rows = self._rows(v) if hasattr(v, "shape") else Shape.of(v).join(v)[None]
        lengths = jax.vmap(lambda row: jnp.sqrt(jnp.sum(jnp.square(row))))(rows)
        return jnp.any(lengths >= (1 - tol) * like(self.radius, lengths))
