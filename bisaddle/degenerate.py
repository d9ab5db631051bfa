"""Degenerate corners: points whose gap vanishes whatever a part of x is, because y sits in a corner of Y."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from bisaddle.lower import implicit
from bisaddle.problem import Point, Problem
from bisaddle.sets.base import ConvexSet

# a gradient this much smaller than the one at another y counts as none
NOTHING = 1e-6
LOOKS = 16


def free_parts(problem: Problem, point: Point, Gx: PyTree, in_corner: Array) -> tuple[str, ...]:
    """The parts of x that the point's y has no opinion on: their gradient is 0 here and wherever they are moved.

    point.theta: theta*(x). Only a y in a corner (one that maximises its own linearisation) is looked at; a part that f
    never depends on, as far as a look at another x and y tells, is not meant.
    """
    if problem.y_set is None or not bool(in_corner):
        return ()
    leaves = jax.tree_util.tree_leaves_with_path(Gx)
    sizes = np.array([float(jnp.linalg.norm(jnp.ravel(leaf))) for _, leaf in leaves])
    if not np.any(sizes <= np.sqrt(NOTHING)):
        return ()
    elsewhere, usual = (np.array(norms) for norms in _looks(problem, point, Gx))
    free = (usual > 0) & (sizes <= NOTHING * usual) & (elsewhere <= NOTHING * usual)
    return tuple(jax.tree_util.keystr(path) or "x" for (path, _), is_free in zip(leaves, free, strict=True) if is_free)


@jax.jit
def _looks(problem: Problem, point: Point, Gx: PyTree) -> tuple[list[Array], list[Array]]:
    """Norms of the parts of the gradient at another x with this y; and as they are usually, at x and y far from here.

    The other x differs in the parts without a gradient only: what holds those in place stays.
    """
    x, y, y_set = point.x, point.y, problem.y_set
    assert y_set is not None
    small = lambda leaf: jnp.linalg.norm(jnp.ravel(leaf)) <= NOTHING**0.5
    amidst_x, amidst_y = _amidst(problem.x_set, x), _amidst(y_set, y)
    other = jax.tree.map(lambda g, new, old: jnp.where(small(g), new, old), Gx, amidst_x, x)
    norms = lambda x, y: [
        jnp.linalg.norm(jnp.ravel(leaf)) for leaf in jax.tree.leaves(implicit(problem, x, point.theta, y).Gx)
    ]
    return norms(other, y), norms(amidst_x, amidst_y)


def _amidst(a_set: ConvexSet, v: PyTree) -> PyTree:
    """The mean of points of the set that lie far apart: on no side of it."""
    flat, shaped = ravel_pytree(v)
    noise = jax.random.normal(jax.random.key(0), (LOOKS, flat.size), flat.dtype)
    if "project" in a_set.capabilities:
        reach = 1e3 * (1 + a_set.diameter(v))
        border = lambda direction: a_set.project(shaped(flat + reach * direction))
    else:
        border = lambda direction: a_set.lmo(shaped(direction))
    return jax.tree.map(lambda rows: jnp.mean(rows, axis=0), lax.map(border, noise))
