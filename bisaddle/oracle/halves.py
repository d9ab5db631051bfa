"""f in halves, where it is linear in y: first f_y, the same at every y, and then f_x and f_theta at a y that it tells.

In one program, f_x and f_theta at the y that was expected would have been computed for nothing.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle.oracle import derivatives
from bisaddle.programs import Program


class Halves:
    """The two programs. part: as in Kernels."""

    def __init__(self, part: Any):
        self.sizes = part.x.size, part.theta.size
        self.first = Program(_forward, "f and f_y", part, stays=True)
        self.second = Program(_backward, "f_x and f_theta", part)

    def slopes(self, at: np.ndarray) -> "Slopes":
        return Slopes(self, at)

    def all_of(self, packed: np.ndarray) -> np.ndarray:
        """f, f_x, f_theta and f_y in one vector, at x, theta and y in one vector."""
        end = sum(self.sizes)
        return self.slopes(packed[:end]).all_at(packed[end:])


class Slopes:
    """f_y at one x and theta, and what the second half needs of the first; it is as large as the layers."""

    def __init__(self, halves: Halves, at: np.ndarray):
        self.halves, self.at = halves, at
        found, self.kept = halves.first(at)
        found = np.asarray(found)
        self.value, self.f_y = found[0], found[1:]  # f at y = 0

    def all_at(self, y: np.ndarray) -> np.ndarray:
        """f, f_x, f_theta and f_y in one vector."""
        gradients = self.halves.second(self.at, y, *self.kept)
        return np.concatenate([[self.value + self.f_y @ y], gradients, self.f_y])


# --- the programs -----------------------------------------------------------------------------------------------------


def _forward(part: Any, at: Array) -> tuple[Array, list[Array]]:
    """f at y = 0 and f_y in one vector, at x and theta in one vector; and what `_backward` needs besides the data."""
    leaves, form = jax.tree.flatten(part)
    (value, f_y), (kept, _, places) = _pulled(form, leaves, *_split(part, at))
    value = jnp.reshape(value, 1).astype(at.dtype)
    return jnp.concatenate([value, part.y.join(f_y)]), [a for a, i in zip(kept, places, strict=True) if i is None]


def _backward(part: Any, at: Array, y: Array, *kept: Array) -> Array:
    leaves, form = jax.tree.flatten(part)
    given, found = _split(part, at), []

    def traced(leaves: list[Array], x: Array, theta: Array) -> None:
        found.append(_pulled(form, leaves, x, theta)[1][1:])

    jax.eval_shape(traced, leaves, *given)  # no program: only how `_forward` has left it
    pull, places = found[0]
    own, known = iter(kept), [*leaves, *given]
    pull = jax.tree.unflatten(pull, [next(own) if i is None else known[i] for i in places])
    return jnp.concatenate(pull((jnp.ones((), at.dtype), part.y.traced(y))))


def _split(part: Any, at: Array) -> tuple[Array, Array]:
    return at[: part.x.size], at[part.x.size :]


def _pulled(form: Any, leaves: list[Array], x: Array, theta: Array) -> tuple[tuple[Array, PyTree], tuple]:
    """f at y = 0 and f_y; and of what pulls them back the arrays, the form, and which arrays are the given ones."""
    part = jax.tree.unflatten(form, leaves)
    none = part.y.traced(jnp.zeros(part.y.size, x.dtype))

    def values(x: Array, theta: Array) -> tuple[Array, PyTree]:
        at = part.x.traced(x), part.theta.traced(theta)
        return jax.value_and_grad(lambda y: derivatives.upper_value(part, *at, y))(none)

    found, pull = jax.vjp(values, x, theta)
    kept, pull = jax.tree.flatten(pull)
    known = [*leaves, x, theta]
    places = [next((i for i, one in enumerate(known) if one is array), None) for array in kept]
    return found, (kept, pull, places)
