"""Products with the second derivatives of g, as programs: a few for a certificate, and all columns of the Hessian."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle

# columns of a Hessian that are made at once, where devices have to talk for each time
FEW_COLUMNS = 8


def column(part: Any, packed: Array) -> Callable[[Array], Array]:
    """v -> (g_theta_theta v, g_theta_x v) in one vector, at x and theta in one vector."""
    return _column_at(part, *part.split(packed, "x", "theta"))


def _column_at(part: Any, x: PyTree, theta: PyTree) -> Callable[[Array], Array]:
    def both(v: Array) -> Array:
        cross, hessian = oracle.second_order_products(part, x, theta, part.theta.traced(v))
        return jnp.concatenate([part.theta.join(hessian), part.x.join(cross)])

    return both


def products(part: Any, packed: Array, rows: Array) -> tuple[Array, Array, Array, Array]:
    """g, g_theta, and g_theta_theta v and g_theta_x v for every row v."""
    at = part.x.traced(packed[: part.x.size]), part.theta.traced(packed[part.x.size :])
    found = jax.vmap(_column_at(part, *at))(rows)
    value, g_theta = oracle.lower_value_and_gradient(part, *at)
    return value, part.theta.join(g_theta), found[:, : part.theta.size], found[:, part.theta.size :]


def columns(part: Any, packed: Array, units: Array) -> Array:
    """The same products alone, a row for each unit."""
    return jax.vmap(column(part, packed))(units)


def columns_one_by_one(part: Any, packed: Array, units: Array) -> Array:
    """All at once would take the memory of the data for every column. On several devices a few, to send less often."""
    return lax.map(column(part, packed), units, batch_size=None if part.shared_mesh is None else FEW_COLUMNS)


def hessian_one_by_one(part: Any, packed: Array, units: Array) -> Array:
    both = column(part, packed)
    few = None if part.shared_mesh is None else FEW_COLUMNS
    return lax.map(lambda e: both(e)[: part.theta.size], units, batch_size=few)
