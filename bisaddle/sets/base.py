"""ConvexSet: what every set can be asked, and the laws its answers obey."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, PyTree

from bisaddle import trees

Leaf = Array | np.ndarray


class ConvexSet(eqx.Module):
    """A nonempty, convex, compact set of arrays (of pytrees of arrays, for a Product).

        project(v)    = argmin_{u in S} |u - v|
        lmo(d)        = argmin_{u in S} <d, u>          an extreme point, for ties and for d = 0 too
        violation(v)  = |v - project(v)|                0 on the set
        diameter(v)   = max_{a, b in S} |a - b|         for arrays shaped like v

    Laws (tests/test_sets.py holds every set to them): project(v) and lmo(d) lie in S; project is idempotent and
    nonexpansive, and <v - project(v), u - project(v)> <= 0 for u in S; <d, lmo(d)> <= <d, u> for u in S;
    the dtype of the input is kept; NaN in, NaN out. Sizes (`radius`, bounds) are array leaves, so that they can be
    traced, swept and differentiated.
    """

    capabilities: ClassVar[frozenset[str]] = frozenset({"project", "lmo"})

    def project(self, v: PyTree) -> PyTree:
        raise ValueError(self.missing("project"))

    def lmo(self, direction: PyTree) -> PyTree:
        raise ValueError(self.missing("lmo"))

    def violation(self, v: PyTree) -> Array:
        return trees.norm(trees.subtract(v, self.project(v)))

    def diameter(self, v: PyTree) -> Array:
        raise NotImplementedError

    def misfit(self, v: PyTree) -> str | None:
        """Why a value of this structure and shape cannot lie in the set; None if it can."""
        if not hasattr(v, "shape"):
            return (
                f"{type(self).__name__} holds one array, given a pytree with structure {jax.tree.structure(v)}; "
                "use sets.Product with one set per leaf"
            )
        if v.size == 0:
            return f"{type(self).__name__} holds a nonempty array, given shape {v.shape}; use at least one entry"
        return None

    def missing(self, oracle: str) -> str:
        able = ", ".join(sorted(self.capabilities)) or "no oracle"
        return f"{type(self).__name__} has no {oracle} (it has: {able})"


def positive(value, name: str) -> Leaf:
    """A finite scalar > 0 as an array leaf; traced values pass unchecked."""
    array = as_leaf(value, name)
    if array.shape != ():
        raise ValueError(f"{name} must be a number, given shape {array.shape}")
    if not traced(array) and not (np.isfinite(array) and array > 0):
        raise ValueError(f"{name} must be finite and > 0, given {value}")
    return array


def as_leaf(value, name: str) -> Leaf:
    """Numbers become float64 NumPy arrays: traced under jit like any array, and cast to the dtype of the input."""
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, str):
        raise ValueError(f"{name} must be a number or an array of numbers, given {value!r}")
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers, given {value!r}") from error


def traced(value) -> bool:
    return isinstance(value, Tracer)


def like(size, v: Array) -> Array:
    return jnp.asarray(size).astype(v.dtype)


def poison(result: Array, source: Array) -> Array:
    """NaN everywhere if the input held a NaN: a vertex picked by comparison would hide it."""
    return jnp.where(jnp.any(jnp.isnan(source)), jnp.nan, result)
