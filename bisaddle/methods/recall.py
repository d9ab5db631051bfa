"""Where the inner solves of Adaptive begin: theta and w extrapolated from the places looked at last."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, PyTree

from bisaddle import trees

PLACES = 10
ENTRIES = 2**25  # of all rows together; beyond, a solve begins where the last one ended


class Recall(NamedTuple):
    """The last evaluations, the newest first, each a flat row; rows beyond `filled` are empty."""

    x: Array
    y: Array
    theta: Array
    w: Array
    filled: Array

    @classmethod
    def at(cls, x: PyTree, y: PyTree, theta: PyTree, w: PyTree) -> "Recall | None":
        """One place; None where all of them would take too much memory."""
        if PLACES * trees.size((x, y, theta, w)) > ENTRIES:
            return None
        rows = lambda tree: jnp.zeros((PLACES, flat(tree).size), flat(tree).dtype)
        empty = cls(rows(x), rows(y), rows(theta), rows(w), jnp.zeros((), jnp.int32))
        return empty.with_place(x, y, theta, w)

    def with_place(self, x: PyTree, y: PyTree, theta: PyTree, w: PyTree) -> "Recall":
        put = lambda rows, new: jnp.concatenate([flat(new)[None], rows[:-1]])
        filled = jnp.minimum(self.filled + 1, PLACES)
        return Recall(put(self.x, x), put(self.y, y), put(self.theta, theta), put(self.w, w), filled)

    def theta_at(self, x: PyTree, theta: PyTree) -> PyTree:
        """theta*(x) as an affine combination of places that comes closest to x has it; shaped like theta."""
        weights = self._weights(self.x[1:] - self.x[0], flat(x) - self.x[0])
        return ravel_pytree(theta)[1](self.theta[0] + weights @ (self.theta[1:] - self.theta[0]))

    def w_at(self, x: PyTree, y: PyTree, w: PyTree) -> PyTree:
        """The same for w, which depends on x and on y."""
        places = jnp.concatenate([self.x, self.y], axis=1)
        here = jnp.concatenate([flat(x), flat(y)])
        weights = self._weights(places[1:] - places[0], here - places[0])
        return ravel_pytree(w)[1](self.w[0] + weights @ (self.w[1:] - self.w[0]))

    def _weights(self, steps: Array, step: Array) -> Array:
        """c with step = steps' c nearly, by least squares; steps of every size count alike."""
        known = jnp.arange(1, PLACES) < self.filled
        length = jnp.linalg.norm(steps, axis=1)
        usable = known & (length > 0)
        unit = jnp.where(usable[:, None], steps / jnp.where(usable, length, 1)[:, None], 0)
        ridge = 1e4 * jnp.finfo(steps.dtype).eps
        normal = unit @ unit.T + jnp.diag(jnp.where(usable, ridge, 1))
        weights = cho_solve(cho_factor(normal), unit @ step)
        usable = usable & jnp.all(jnp.isfinite(weights))
        return jnp.where(usable, weights / jnp.where(usable, length, 1), 0)


def flat(tree: PyTree) -> Array:
    return ravel_pytree(tree)[0]
