"""Norms of the derivatives of f and g at a point, inside a program, by power iteration."""

from collections.abc import Callable
from itertools import combinations_with_replacement

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.problem import Point, Problem

POWER_STEPS = 20
VARIABLES = ("x", "theta", "y")


def unit(tree: PyTree) -> PyTree:
    """tree / |tree|; 0 stays 0."""
    length = trees.norm(tree)
    return trees.scale(1 / jnp.where(length > 0, length, 1), tree)


def operator_norm(linear: Callable[[PyTree], PyTree], like: PyTree, iterations: int = POWER_STEPS) -> Array:
    """|A| of a linear map on trees shaped like `like`, from below, by power iteration on A'A; 0 for the zero map."""
    _, transpose = jax.vjp(linear, like)
    start = unit(trees.random_like(jax.random.key(1), like))
    v = jax.lax.fori_loop(0, iterations, lambda _, v: unit(transpose(linear(v))[0]), start)
    return trees.norm(linear(v))


def derivative_norms(problem: Problem, point: Point) -> dict[str, Array]:
    """L_xx .. L_yy, the norms of the second derivatives of f, and C_thetax, that of g_theta_x."""
    at = (point.x, point.theta, point.y)
    present = [i for i, part in enumerate(at) if part is not None]
    found = {}
    for row, column in combinations_with_replacement(present, 2):

        def gradient(value, row=row, column=column):
            moved = [value if i == column else part for i, part in enumerate(at)]
            return oracle.upper_gradients(problem, *moved)[row]

        along = lambda e, g=gradient, c=column: jax.jvp(g, (at[c],), (e,))[1]
        a, b = VARIABLES[row], VARIABLES[column]
        found[f"L_{a}{b}"] = found[f"L_{b}{a}"] = operator_norm(along, at[column])  # f_xy is the transpose of f_yx
    if problem.lower is not None:
        cross = lambda w: oracle.cross_product(problem, point.x, point.theta, w)
        found["C_thetax"] = operator_norm(cross, point.theta)
    return found
