"""The nearest point of a polytope, by finite active-set methods: given by an LMO or vertices, or by inequalities.

Both work on a fixed number of slots, so that they compile once, and both factorise a slots x slots Gram matrix anew in
every step, which is dearer than updating a factor but loses no accuracy on the way.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle import trees
from bisaddle.sets.base import ConvexSet, floats

# extreme points that distance_by_lmo keeps; each costs a row of memory and k^3 work a step
MOST_POINTS = 256


@jax.jit  # so that a call outside jit compiles once, not at every call
def distance_by_lmo(convex_set: ConvexSet, v: Array) -> Array:
    """The distance from v to a set of arrays known by its LMO only, by Wolfe's nearest-point algorithm."""
    v = floats(v)
    flat = v.ravel()
    frozen = lax.stop_gradient(convex_set)

    def extreme(d: Array) -> tuple[Array, Array]:
        return frozen.lmo(d.reshape(v.shape)).ravel(), jnp.asarray(0)

    corral = nearest_of_hull(extreme, lax.stop_gradient(flat), min(flat.size + 1, MOST_POINTS))
    return trees.norm(flat - corral.weights @ corral.points)


def error_by_lmo(convex_set: ConvexSet, v: Array, p: Array) -> Array:
    """How far p, a point of the set, is at most from the projection of v, as far as it shows above rounding.

    |p - P(v)|^2 <= <v - p, P(v) - p> <= max_{u in S} <v - p, u - p>
    """
    away = v - p
    best = convex_set.lmo(-away)
    gap = trees.dot(away, best - p)
    return jnp.sqrt(jnp.maximum(gap - trees.norm(away) * convex_set.rounding(best, p), 0))


class Corral(NamedTuple):
    """Points, one a row, the tags their LMO gave them, and their weights (0: an unused slot) in the nearest point."""

    points: Array
    tags: Array
    weights: Array


class _Wolfe(NamedTuple):
    corral: Corral
    used: Array
    best: Array  # the weights after the last completed round
    complete: Array  # the weights are those of the nearest point of the slots' affine hull
    finished: Array
    steps: Array


def nearest_of_hull(lmo: Callable[[Array], tuple[Array, Array]], v: Array, slots: int) -> Corral:
    """Wolfe's nearest-point algorithm: at most `slots` extreme points whose hull holds the projection of v.

    lmo(d) gives an extreme point and a tag for it. Every round adds the extreme point that the gradient z - v asks for
    and moves to the nearest point of the affine hull, dropping points whose weights would turn negative. Finite for a
    polytope with slots > its dimension. Stops when the Frank-Wolfe gap or the progress of a round is lost in rounding.
    """
    eps = jnp.finfo(v.dtype).eps
    first, tag = lmo(-v)
    origin = first  # points are kept relative to it: rounding is that of the set's size, not of its distance from 0
    target = v - origin
    slot = jnp.arange(slots)
    alone = slot == 0
    corral = Corral(jnp.zeros((slots, v.size), v.dtype), jnp.full(slots, tag), alone.astype(v.dtype))
    start = _Wolfe(corral, alone, corral.weights, jnp.asarray(True), jnp.isnan(jnp.sum(v)), jnp.asarray(0))

    def step(state: _Wolfe) -> _Wolfe:
        points, tags, weights = state.corral
        gradient = weights @ points - target
        extreme, tag = lmo(gradient)
        extreme = extreme - origin
        size = jnp.sqrt(jnp.maximum(jnp.max(jnp.sum(points**2, axis=1)), jnp.sum(extreme**2)))
        length = jnp.sqrt(jnp.sum(gradient**2))
        gap = jnp.dot(gradient, weights @ points - extreme)
        optimal = gap <= 8 * eps * size * (length + 8 * eps * size)
        finished = state.complete & (optimal | jnp.all(state.used))
        insert = state.complete & ~finished & (slot == jnp.argmin(state.used))
        points, tags = jnp.where(insert[:, None], extreme, points), jnp.where(insert, tag, tags)
        used = state.used | insert

        affine = affine_weights(points, used, target)
        falling = used & (affine <= 0)
        ratios = jnp.where(falling, weights / jnp.where(falling, weights - affine, 1), jnp.inf)
        theta = jnp.minimum(jnp.min(ratios), 1)
        inside = ~jnp.any(falling)
        moved = jnp.where(used, jnp.maximum(weights + theta * (affine - weights), 0), 0)
        dropped = ~inside & (slot == jnp.argmin(ratios))
        used = used & ~dropped
        moved = jnp.where(dropped, 0, jnp.where(inside, jnp.maximum(affine, 0), moved))
        moved = moved / jnp.sum(moved)
        # the decrease of |z - v|^2 over the round, without the cancellation of two large squares
        old, new = state.best @ points, moved @ points
        progress = jnp.dot(old - new, old + new - 2 * target) > 0
        best = jnp.where(inside & progress & ~finished, moved, state.best)
        weights = jnp.where(finished, weights, moved)
        return _Wolfe(
            Corral(points, tags, weights), used, best, inside, finished | (inside & ~progress), state.steps + 1
        )

    # finite in exact arithmetic; rounding could make it go in circles, far beyond the few times `slots` that it takes
    last = lax.while_loop(lambda s: ~s.finished & (s.steps < 50 + 20 * slots), step, start)
    points, tags, _ = last.corral
    return Corral(points + origin, tags, last.best)


def affine_weights(points: Array, used: Array, v: Array) -> Array:
    """Weights, of sum 1 and 0 on unused slots, of the point of the affine hull of the used points nearest to v."""
    base = jnp.argmax(used)
    others = used & (jnp.arange(used.size) != base)
    differences = jnp.where(others[:, None], points - points[base], 0)
    solve, target = _gram_solver(differences, others), v - points[base]
    weights = solve(differences @ target)
    for _ in range(2):
        weights = weights + solve(differences @ (target - differences.T @ weights))
    return jnp.where(jnp.arange(used.size) == base, 1 - jnp.sum(weights), weights)


class _Dual(NamedTuple):
    u: Array
    rows: Array  # the active constraint in each slot
    signs: Array  # -1 for an equation approached from below
    used: Array
    multipliers: Array
    row: Array  # the constraint being added, its sign and its multiplier
    sign: Array
    multiplier: Array
    complete: Array  # u is the projection onto the active constraints, none being added
    finished: Array
    empty: Array
    steps: Array


def nearest_of_polyhedron(C: Array, d: Array, equations: int, v: Array) -> tuple[Array, Array, Array]:
    """The projection of v onto {u : C u <= d}, the first `equations` rows holding with equality; NaN if it is empty.
    And the constraints that are active there: a row of C for each slot, and which slots are in use.

    Goldfarb and Idnani's dual method: from u = v, the most violated constraint (equations first) is made active by a
    step that keeps the others so and their multipliers nonnegative, dropping those that would turn negative.
    Rows have length 1 (a row of zeros is never active). A projection from afar is refined on its active constraints,
    so that it is feasible to rounding at the scale of the set, not of v.
    """
    rows, n = C.shape
    slots = min(n, rows)
    equation = jnp.arange(rows) < equations
    zero = jnp.zeros((), v.dtype)
    start = _Dual(
        v,
        jnp.zeros(slots, int),
        jnp.ones(slots, v.dtype),
        jnp.zeros(slots, bool),
        jnp.zeros(slots, v.dtype),
        jnp.asarray(0),
        zero + 1,
        zero,
        jnp.asarray(True),
        jnp.isnan(jnp.sum(v)),
        jnp.asarray(False),
        jnp.asarray(0),
    )
    step = partial(_make_active, C, d, equation, v)
    # likewise finite, but for rounding
    last = lax.while_loop(lambda s: ~s.finished & (s.steps < 50 + 20 * rows), step, start)
    u = jnp.where(last.empty | jnp.isnan(jnp.sum(v)), jnp.nan, last.u)
    return u, last.rows, last.used


def _make_active(C: Array, d: Array, equation: Array, v: Array, state: _Dual) -> _Dual:
    """A step towards the most violated constraint; if one of the active ones blocks it, that one is dropped."""
    eps = jnp.finfo(v.dtype).eps
    slot = jnp.arange(state.used.size)
    used, free = state.used, equation[state.rows]
    N = jnp.where(used[:, None], state.signs[:, None] * C[state.rows], 0)
    level = jnp.where(used, state.signs * d[state.rows], 0)
    solve = _gram_solver(N, used)
    fresh_multipliers = solve(N @ v - level)
    fresh = v - N.T @ fresh_multipliers
    for _ in range(2):  # from 1e16 away the first correction still carries the rounding of v
        fresh = fresh - N.T @ solve(N @ fresh - level)
    u = jnp.where(state.complete, fresh, state.u)
    multipliers = jnp.where(state.complete, fresh_multipliers, state.multipliers)
    multipliers = jnp.where(free, multipliers, jnp.maximum(multipliers, 0))

    residuals = C @ u - d
    allowed = 32 * eps * (jnp.sqrt(jnp.sum(u**2)) + jnp.abs(d))
    excess = jnp.where(equation, jnp.abs(residuals), residuals) - allowed
    active = jnp.zeros(d.size, bool).at[state.rows].max(used)
    excess = jnp.where(active, -jnp.inf, excess)
    wrong = jnp.where(jnp.any(equation & (excess > 0)), equation, True)
    worst = jnp.argmax(jnp.where(wrong, excess, -jnp.inf))
    finished = state.complete & ~(excess[worst] > 0)
    row = jnp.where(state.complete, worst, state.row)
    sign = jnp.where(state.complete, jnp.where(equation[row] & (residuals[row] < 0), -1, 1), state.sign)
    multiplier = jnp.where(state.complete, 0, state.multiplier)

    c = sign * C[row]
    r = solve(N @ c)
    z = c - N.T @ r
    z = z - N.T @ solve(N @ z)
    squared = jnp.sum(z**2)
    # a normal this close to the span of the active ones (all of length 1) is taken to lie in it
    dependent = squared <= (1e5 * eps) ** 2
    blocking = used & ~free & (r > eps)
    ratios = jnp.where(blocking, multipliers / jnp.where(blocking, r, 1), jnp.inf)
    least = jnp.min(ratios)
    full = jnp.where(dependent, jnp.inf, sign * residuals[row] / jnp.where(dependent, 1, squared))
    t = jnp.minimum(least, jnp.maximum(full, 0))
    empty = ~finished & jnp.isinf(t)
    t = jnp.where(jnp.isinf(t), 0, t)
    adds = full <= least
    multiplier = multiplier + t
    multipliers = jnp.where(used, multipliers - t * r, 0)
    dropped = ~adds & (slot == jnp.argmin(ratios))
    filled = adds & (slot == jnp.argmin(used))
    moved = _Dual(
        u - t * z,
        jnp.where(filled, row, state.rows),
        jnp.where(filled, sign, state.signs),
        (used & ~dropped) | filled,
        jnp.where(dropped, 0, jnp.where(filled, multiplier, multipliers)),
        row,
        sign,
        multiplier,
        adds,
        empty,
        empty,
        state.steps + 1,
    )
    kept = state._replace(u=u, finished=jnp.asarray(True), steps=state.steps + 1)
    return jax.tree.map(lambda a, b: jnp.where(finished, a, b), kept, moved)


def affine_projection(N: Array, level: Array, used: Array, v: Array) -> Array:
    """The projection of v onto {u : N u = level}, rows not used left out."""
    N, level = jnp.where(used[:, None], N, 0), jnp.where(used, level, 0)
    solve = _gram_solver(N, used)
    u = v - N.T @ solve(N @ v - level)
    return u - N.T @ solve(N @ u - level)


def _gram_solver(N: Array, used: Array) -> Callable[[Array], Array]:
    """right -> (N N')^-1 right on the used rows, 0 elsewhere (the rows of N not used are 0)."""
    gram = N @ N.T
    largest = jnp.max(jnp.diag(gram))
    largest = jnp.where(largest > 0, largest, 1)
    # a ridge at rounding level keeps the factor real when rows nearly depend on each other; every use of this solver
    # corrects its answer with a residual of the original system, which removes the bias, and nearly makes up for a QR
    ridge = 4 * jnp.finfo(N.dtype).eps * largest
    factor = jnp.linalg.cholesky(gram + jnp.diag(jnp.where(used, ridge, largest)))

    def solve(right: Array) -> Array:
        right = jnp.where(used, right, 0)[:, None]
        half = lax.linalg.triangular_solve(factor, right, left_side=True, lower=True)
        solution = lax.linalg.triangular_solve(factor, half, left_side=True, lower=True, transpose_a=True)
        return jnp.where(used, solution[:, 0], 0)

    return solve
