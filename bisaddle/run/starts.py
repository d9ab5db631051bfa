"""Several starts: where they lie, and which end is best; and moving a point into other sets."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.oracle.validate import check_key, check_problem_at, is_whole
from bisaddle.problem import Point, Problem, described
from bisaddle.programs import cached, on_device
from bisaddle.run.result import Result, Status
from bisaddle.sets import Box, Product
from bisaddle.sets.base import ConvexSet
from bisaddle.sets.flat import flat_set
from bisaddle.trees import Shape


def start_points(problem: Problem, start: Point, count: int | np.integer, key: Any) -> list[Point]:
    """Starts for solve: the start itself; one with the parts of x that lie in boxes at nine tenths of their range; then
    random ones, x from X and y from Y.

    key: for the random ones, jax.random.key(seed). Without a box the second is random too. On multi-task problems the
    first two are lambda = 0.5 and 0.9.
    """
    if not is_whole(count) or not 1 <= count < 2**31:
        raise ValueError(f"count must be a whole number >= 1, given {count}")
    if key is not None or count > 1:
        check_key(key)
    check_problem_at(problem, start)
    points, count = [start], int(count)
    # not the end of the box: there f may not depend on the other parts of x at all, and nothing would move
    raised = _raised(problem.x_set, start.x)
    if raised is not None and count > 1:
        points.append(Point(raised, start.theta, start.y))
    if count > len(points):
        sets = on_device((problem.x_set, problem.y_set))
        like = (Shape.of(start.x), Shape.of(start.y))
        draw = cached(_draw, "random starts", sets, key, like=like, count=count)
        xs, ys = jax.tree.map(np.asarray, draw(sets, key))
        for i in range(len(points), count):
            x, y = jax.tree.map(lambda rows, i=i: rows[i], (xs, ys))
            points.append(Point(x, start.theta, start.y if problem.y_set is None else y))
    return points


def as_starts(start: Any) -> list[Point]:
    """One start or several as a list."""
    if isinstance(start, Point):
        return [start]
    if not isinstance(start, Sequence) or not start or not all(isinstance(point, Point) for point in start):
        use = "solve(problem, start) takes the problem first" if isinstance(start, Problem) else ""
        raise ValueError(
            f"start must be a bisaddle.Point, or a list of them, given {described(start)}; "
            + (use or "use bs.Point(x=..., theta=..., y=...)")
        )
    return list(start)


def check_starts(problem: Problem, starts: list[Point]) -> None:
    for i, start in enumerate(starts):
        check_problem_at(problem, start)
        if Shape.of(start) != Shape.of(starts[0]):
            raise ValueError(f"all starts must have the shapes and dtypes of the first one; start {i} has others")


def _draw(sets: tuple[ConvexSet, ConvexSet | None], key: Array, *, like: tuple[Shape, Shape], count: int) -> Any:
    """Random points of X and of Y, `count` of each, in shapes and dtypes of their own."""
    x_set, y_set = sets

    def one(key):
        keys = jax.random.split(key)
        drawn = [
            None if a_set is None else a_set.sample(key, jax.tree.map(lambda leaf: leaf.shape, shape.structs))
            for a_set, shape, key in zip((x_set, y_set), like, keys, strict=True)
        ]
        cast = lambda new, struct: new.astype(struct.dtype)
        return [
            None if part is None else jax.tree.map(cast, part, shape.structs)
            for part, shape in zip(drawn, like, strict=True)
        ]

    return lax.map(one, jax.random.split(key, count))  # the memory of one draw, whatever the count


def moved_into(problem: Problem, point: Point) -> Point:
    """The point with x and y in the sets of this problem: projected, or a vertex of a set that cannot project."""
    x = _nearby(problem.x_set, point.x)
    return Point(x, point.theta, point.y if problem.y_set is None else _nearby(problem.y_set, point.y))


def best_result(results: list[Result]) -> Result:
    """Of the certified ones the lowest worst value; if none is, the smallest gap. All of them are in its `starts`."""
    certified = [result for result in results if result.status is Status.CERTIFIED]
    if certified:
        best = min(certified, key=lambda result: float(result.certificate.worst_value))
    else:
        gaps = [float(result.gap + result.certificate.error_bound) for result in results]
        best = results[int(np.nanargmin(gaps))] if np.any(np.isfinite(gaps)) else results[0]
    return replace(best, starts=tuple(results))


def _raised(x_set: ConvexSet, x: PyTree) -> PyTree | None:
    """x with the blocks that lie in boxes nine tenths of the way up; None if there is no box."""
    if isinstance(x_set, Box):
        lower, upper = (np.broadcast_to(np.asarray(bound, x.dtype), x.shape) for bound in (x_set.lower, x_set.upper))
        return lower + 0.9 * (upper - lower)
    if not isinstance(x_set, Product):
        return None
    raised = [(_raised(block, part), part) for block, part in x_set.split(x)]
    if all(new is None for new, _ in raised):
        return None
    return x_set.join(old if new is None else new for new, old in raised)


def _nearby(a_set: ConvexSet, v: PyTree) -> PyTree:
    shape, form = Shape.of(v), flat_set(a_set, v)
    flat = shape.ravel(v)
    if form.violation(flat) <= 1e-9:  # a point that is in the set keeps its last digits
        return v
    # the vertex farthest along v stands in for the nearest point
    return shape.tree(form.project(flat) if "project" in form.capabilities else form.lmo(-flat))
