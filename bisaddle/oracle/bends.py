"""How the gradients depend on theta, for the error bounds of a certificate, and on x, for second-order steps."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle
from bisaddle.oracle import large


def equations(part: Any, x: PyTree, y: PyTree, w: PyTree):
    def at(flat: Array) -> Array:
        theta = part.theta.traced(flat)
        f_x, f_theta, f_y = oracle.upper_gradients(part, x, theta, y)
        cross, hessian = oracle.second_order_products(part, x, theta, w)
        Gx = part.x.join(f_x) - part.x.join(cross)
        return jnp.concatenate([Gx, part.theta.join(f_theta) - part.theta.join(hessian), part.y.join(f_y)])

    return at


def bends(part: Any, packed: Array, ends: Array) -> Array:
    x, _, y, w = part.split(packed, "x", "theta", "y", "theta")
    at, units = equations(part, x, y, w), jnp.eye(ends.shape[1], dtype=ends.dtype)
    return lax.map(lambda end: jax.vmap(lambda e: jax.jvp(at, (end,), (e,))[1])(units), ends)


def curvature(part: Any, packed: Array) -> Array:
    """f, f_x and f_y, and then for each entry of x a row d/dx_i of (f_x, f_y): what second derivatives come from."""
    x, theta, y = (packed[: part.x.size], *jnp.split(packed[part.x.size :], [part.theta.size]))

    def gradients(x: Array) -> tuple[Array, Array]:
        value, f_x, _, f_y = large.upper(part, x, theta, y)
        return jnp.concatenate([f_x, f_y]), value

    along = lambda e: jax.jvp(gradients, (x,), (e,), has_aux=True)
    first, rows, value = jax.vmap(along, out_axes=(None, 0, None))(jnp.eye(x.size, dtype=x.dtype))
    return jnp.concatenate([value[None], first, rows.ravel()])


def norms(
    part: Any, x: Array, theta: Array, y: Array, w: Array, first: Array, ends: Array, passes: Array
) -> tuple[Array, Array]:
    x, theta = part.x.traced(x), part.theta.traced(theta)
    at = equations(part, x, part.y.traced(y), part.theta.traced(w))

    def cross(e):
        return part.x.join(oracle.cross_product(part, x, theta, part.theta.traced(e)))

    def J(e):
        return jnp.concatenate([jax.jvp(at, (end,), (e,))[1] for end in ends])

    return _operator_norm(cross, first, passes), _operator_norm(J, first, passes)


def _operator_norm(linear, first: Array, passes: Array) -> Array:
    """|A|, from below, by a power iteration on A'A."""
    _, transpose = jax.vjp(linear, first)

    def unit(v):
        length = jnp.sqrt(v @ v)
        return v / jnp.where(length > 0, length, 1), length

    def one(_, carry):
        v, square = unit(transpose(linear(carry[0]))[0])
        return v, jnp.sqrt(square)

    return lax.fori_loop(0, passes, one, (unit(first)[0], jnp.zeros((), first.dtype)))[1]


def power_passes(size: int) -> int:
    """Passes of a power iteration after which it has more than half of the norm."""
    return 3 + int(np.ceil(np.log2(size) / 4))
