"""A quasi-Newton step inside the face of X that a projected gradient step ends in; the rest is the projected step."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

PAIRS = 20


class Pairs(NamedTuple):
    """Differences of x and of the gradient along the last steps, the newest first; rows beyond `filled` are empty."""

    s: Array
    q: Array
    filled: Array

    @classmethod
    def empty(cls, x: Array) -> "Pairs":
        rows = jnp.zeros((PAIRS, x.size), x.dtype)
        return cls(rows, rows, jnp.zeros((), jnp.int32))

    def with_pair(self, s: Array, q: Array) -> "Pairs":
        put = lambda rows, new: jnp.concatenate([new[None], rows[:-1]])
        return Pairs(put(self.s, s), put(self.q, q), jnp.minimum(self.filled + 1, PAIRS))


def face_direction(
    project: Callable[[Array], Array], x: Array, Gx: Array, tau: Array, pairs: Pairs
) -> tuple[Array, Array]:
    """(d0, d): the projected gradient step P_X(x - tau Gx) - x, and with its part inside the face replaced.

        Pi = derivative of P_X at x - tau Gx,     d = P_X(x + (d0 - Pi d0) + B Pi d0 / tau) - x

    B: the L-BFGS inverse Hessian of the pairs (Pi s, Pi q). Pairs without curvature in the face are left out; d is d0
    where none is left.
    """
    ahead, inside = jax.linearize(project, x - tau * Gx)
    d0 = ahead - x
    face = jax.vmap(inside)
    s, q = face(pairs.s), face(pairs.q)
    curvature = jnp.sum(s * q, axis=1)
    size = jnp.linalg.norm(s, axis=1) * jnp.linalg.norm(q, axis=1)
    usable = (jnp.arange(PAIRS) < pairs.filled) & (curvature > 1e-10 * size)
    inner = inside(d0)
    newton = two_loops(inner / tau, s, q, jnp.where(usable, curvature, 1), usable)
    d = project(x + (d0 - inner) + newton) - x
    return d0, jnp.where(jnp.any(usable), d, d0)


def two_loops(v: Array, s: Array, q: Array, curvature: Array, usable: Array) -> Array:
    """B v by the two loops of L-BFGS over the usable pairs, the initial scale <s, q> / <q, q> of the newest."""

    def back(v, pair):
        s, q, curvature, usable = pair
        a = jnp.where(usable, s @ v / curvature, 0)
        return v - a * q, a

    def forth(v, pair):
        s, q, curvature, usable, a = pair
        b = jnp.where(usable, q @ v / curvature, 0)
        return v + jnp.where(usable, a - b, 0) * s, None

    v, a = lax.scan(back, v, (s, q, curvature, usable))
    newest = jnp.argmax(usable)
    square = q[newest] @ q[newest]
    v = v * curvature[newest] / jnp.where(square > 0, square, 1)
    v, _ = lax.scan(forth, v, (s, q, curvature, usable, a), reverse=True)
    return v
