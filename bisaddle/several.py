"""Several starts at once: where they lie, one compiled program for all, and which end is best."""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.loop import BLOCK_SECONDS, DIVERGENCE, Run, iterates, last_within, magnitude, pick, steps_of
from bisaddle.methods.base import Method
from bisaddle.problem import Point, Problem
from bisaddle.progress import Progress
from bisaddle.result import Result, Status
from bisaddle.sets import Box, Product
from bisaddle.sets.base import ConvexSet


def starts(problem: Problem, start: Point, count: int, key) -> list[Point]:
    """The start itself; what lies in boxes at nine tenths of its range; then random ones, x from X and y from Y.

    Without a box the second is random too. On multi-task problems the first two are lambda = 0.5 and 0.9.
    """
    points = [start]
    raised = _raised(problem.x_set, start.x)
    if raised is not None and count > 1:
        points.append(Point(raised, start.theta, start.y))
    for drawn in jax.random.split(key, count)[len(points) :] if count > len(points) else ():
        x_key, y_key = jax.random.split(drawn)
        y = start.y if problem.y_set is None else _drawn(problem.y_set, y_key, start.y)
        points.append(Point(_drawn(problem.x_set, x_key, start.x), start.theta, y))
    return points


def moved_into(problem: Problem, point: Point) -> Point:
    """The point with x and y in the sets of this problem: projected, or a vertex of a set that cannot project."""
    x = _nearby(problem.x_set, point.x)
    return Point(x, point.theta, point.y if problem.y_set is None else _nearby(problem.y_set, point.y))


def run_to_end(runs: list[Run], bar: Progress, tol, max_steps: int, deadline, every: int, callback) -> None:
    """All runs to their ends, a status each, with the rules of a run of its own."""
    limits = []
    for run in runs:
        first = run.record(run.state)
        limit = float(magnitude((iterates(run.state), first.certificate.theta, first.certificate.w)))
        limits.append(max(DIVERGENCE * limit, DIVERGENCE))
        _judge(run, bar, tol, callback)
    problem, method = runs[0].problem, runs[0].method
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(run.state for run in runs))
    compiling = time.perf_counter()
    jax.block_until_ready(_advance_all(problem, method, states, 0, jnp.zeros(len(runs), bool)))  # no step
    for run in runs:
        run.compile_seconds = time.perf_counter() - compiling
    k, pace = 0, 0.0
    while any(run.status is None for run in runs):
        active = [run.status is None for run in runs]
        if k >= max_steps or (deadline is not None and time.perf_counter() >= deadline):
            for run in (run for run in runs if run.status is None):
                if run.records[-1].k < run.k:
                    run.record(run.state)
                run.status = Status.MAX_STEPS if k >= max_steps else Status.MAX_SECONDS
            return
        to_look = min(every - k % every, max_steps - k)
        affordable = method.unroll * max(1, int(BLOCK_SECONDS / max(pace, 1e-9)) // method.unroll)
        steps = min(to_look, affordable if pace else 4 * method.unroll)
        clock = time.perf_counter()
        states = jax.block_until_ready(_advance_all(problem, method, states, steps, jnp.array(active)))
        elapsed = time.perf_counter() - clock
        k, pace = k + steps, elapsed / steps
        for i, run in enumerate(runs):
            if not active[i]:
                continue
            before, run.state = run.state, pick(states, i)
            run.seconds += elapsed / sum(active)
            size = float(magnitude(iterates(run.state)))
            if not size <= limits[i]:
                run.state = last_within(problem, method, before, steps, limits[i])
                run.record(run.state)
                run.status = Status.DIVERGED if np.isfinite(size) else Status.NONFINITE
            elif (k % every == 0 and run.promising(run.state, tol)) or k == max_steps:
                run.record(run.state)
                _judge(run, bar, tol, callback)


def best_of(results: list[Result]) -> Result:
    """Of the certified ones the lowest worst value; if none is, the smallest gap. All of them are in its `starts`."""
    certified = [result for result in results if result.status is Status.CERTIFIED]
    if certified:
        best = min(certified, key=lambda result: float(result.certificate.worst_value))
    else:
        gaps = [float(result.gap + result.certificate.error_bound) for result in results]
        best = results[int(np.nanargmin(gaps))] if np.any(np.isfinite(gaps)) else results[0]
    return replace(best, starts=tuple(results))


def _judge(run: Run, bar: Progress, tol, callback) -> None:
    record = run.records[-1]
    bar.show(record.k, record.certificate)
    if tol is not None and record.certificate.within(tol):
        run.status = Status.CERTIFIED
    elif callback is not None and callback(record):
        run.status = Status.INTERRUPTED


@jax.jit
def _advance_all(problem: Problem, method: Method, states: PyTree, steps, active: Array) -> PyTree:
    """Each active state `steps` further.

    Methods whose steps are all alike run side by side. One that decides by itself how long a step is runs start after
    start: side by side every one would wait for the slowest, in all branches of every decision.
    """

    def one(state, is_active):
        return lax.cond(is_active, lambda s: steps_of(problem, method, s, steps), lambda s: s, state)

    if method.unroll == 1:
        return lax.map(lambda pair: one(*pair), (states, active))
    return jax.vmap(one)(states, active)


def _raised(x_set: ConvexSet, x: PyTree) -> PyTree | None:
    """x with the blocks that lie in boxes nine tenths of the way up; None if there is no box."""
    if isinstance(x_set, Box):
        lower, upper = (jnp.broadcast_to(jnp.asarray(bound, x.dtype), x.shape) for bound in (x_set.lower, x_set.upper))
        return lower + 0.9 * (upper - lower)
    if not isinstance(x_set, Product):
        return None
    structure = jax.tree.structure(x_set.sets, is_leaf=lambda node: isinstance(node, ConvexSet))
    parts = structure.flatten_up_to(x)
    raised = [_raised(block, part) for block, part in zip(x_set.blocks, parts, strict=True)]
    if all(part is None for part in raised):
        return None
    return structure.unflatten([old if new is None else new for new, old in zip(raised, parts, strict=True)])


def _drawn(a_set: ConvexSet, key, like: PyTree) -> PyTree:
    """A random point of the set, in the shapes and dtypes of `like`."""
    shapes = jax.tree.map(jnp.shape, like)
    return jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), a_set.sample(key, shapes), like)


def _nearby(a_set: ConvexSet, v: PyTree) -> PyTree:
    if bool(a_set.contains(v)):
        return v
    if "project" in a_set.capabilities:
        return a_set.project(v)
    return a_set.lmo(jax.tree.map(lambda leaf: -leaf, v))
