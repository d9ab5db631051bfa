"""Programs for a large theta: nothing is packed, and nothing computed besides. Every copy and every pass counts."""

from typing import Any

from jaxtyping import Array

from bisaddle import oracle


def gradient(part: Any, x: Array, theta: Array) -> Array:
    """g_theta"""
    return part.theta.join(oracle.lower_gradient_in_domain(part, part.x.traced(x), part.theta.traced(theta)))


def product(part: Any, x: Array, theta: Array, v: Array) -> Array:
    """g_theta_theta v"""
    at = part.x.traced(x), part.theta.traced(theta)
    return part.theta.join(oracle.hessian_product(part, *at, part.theta.traced(v)))
