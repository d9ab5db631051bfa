"""Programs for a large x or theta: nothing is packed, nothing computed besides. Every copy and every pass counts."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from bisaddle import oracle
from bisaddle.devices import gathered


def upper(part: Any, x: Array, theta: Array, y: Array) -> tuple[Array, ...]:
    """f and its gradients, each by itself."""
    at = part.x.traced(x), part.theta.traced(theta), part.y.traced(y)
    value, gradients = oracle.upper_value_and_gradients(part, *at)
    tasks = (part.theta if part.theta.size else part.y).first_axis
    gradients = gathered(gradients, tasks, part.shared_mesh)
    joined = [shape.join(gradient) for shape, gradient in zip((part.x, part.theta, part.y), gradients, strict=True)]
    return jnp.reshape(value, ()).astype(x.dtype), *joined


def gradient(part: Any, x: Array, theta: Array) -> Array:
    """g_theta"""
    return part.theta.join(oracle.lower_gradient_in_domain(part, part.x.traced(x), part.theta.traced(theta)))


def product(part: Any, x: Array, theta: Array, v: Array) -> Array:
    """g_theta_theta v"""
    at = part.x.traced(x), part.theta.traced(theta)
    return part.theta.join(oracle.hessian_product(part, *at, part.theta.traced(v)))


def cross(part: Any, x: Array, theta: Array, w: Array) -> Array:
    """g_theta_x w"""
    return part.x.join(oracle.cross_product(part, part.x.traced(x), part.theta.traced(theta), part.theta.traced(w)))


def products(part: Any, x: Array, theta: Array, rows: Array) -> tuple[Array, ...]:
    """g, g_theta, and g_theta_theta v and g_theta_x v for every row v."""
    at = part.x.traced(x), part.theta.traced(theta)

    def both(v: Array) -> tuple[Array, Array]:
        cross, hessian = oracle.second_order_products(part, *at, part.theta.traced(v))
        return part.theta.join(hessian), part.x.join(cross)

    found = [both(v) for v in rows]  # there is one of them, or two
    value, g_theta = oracle.lower_value_and_gradient(part, *at)
    return value, part.theta.join(g_theta), *(jnp.stack(images) for images in zip(*found, strict=True))
