"""audit(problem, point): the certificate once more, by other means."""

from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import Any

import jax
import numpy as np
from threadpoolctl import ThreadpoolController

from bisaddle.auditing.arrays import Arrays
from bisaddle.auditing.lower import EPS, LowerSolution, Witness, solve_lower
from bisaddle.auditing.regions import Region, region_of
from bisaddle.auditing.textbook import Vector
from bisaddle.auditing.upper import look_at_y
from bisaddle.problem import Point, Problem
from bisaddle.programs import one_blas_thread

MEASURES = ("projection", "lmo", "mixed")
# entries of theta, and of y: their Hessians are dense here
LARGEST = 5000
# directions in which theta and w are disturbed to see what that does to the gradients
DISTURBANCES = 4
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class Audit:
    """What audit found at (x, y), in float64; gaps, values and gradients are those of Certificate.

    gap              x_gap + y_gap, neither of them negative
    hidden           |grad_x L| x_violation + |grad_y L| y_violation: what a point outside its sets may hide
    worst_value      the largest f(x, theta*(x), .) - h that was met over Y, from several starts
    least_curvature  the least eigenvalue of the Hessians of g, from the point's own theta to theta*(x)
    strongly_convex  whether that is positive beyond rounding
    mu_g_holds       whether a given mu_g is no larger than that
    concave          whether f looked concave in y: Hessians on the span of Y - Y, and all pairs of many points of Y
    uncertainty      a generous estimate of how far gap may be off
    lower_witness, upper_witness     a direction and the curvature along it that contradict these, or None
    notes            in words, what was contradicted, and the sets whose own oracles had to be used
    """

    measure: str
    x_gap: float
    y_gap: float
    hidden: float
    value: float
    worst_value: float
    least_curvature: float
    strongly_convex: bool
    mu_g_holds: bool
    concave: bool
    x_violation: float
    y_violation: float
    uncertainty: float
    theta: Any
    w: Any
    x_gradient: Any
    y_gradient: Any
    lower_witness: Witness | None
    upper_witness: Witness | None
    notes: tuple[str, ...]

    @property
    def gap(self) -> float:
        return self.x_gap + self.y_gap

    @property
    def sound(self) -> bool:
        """Whether nothing contradicts what a gap rests on: g strongly convex, f concave in y."""
        return self.strongly_convex and self.mu_g_holds and self.concave

    @property
    def violation(self) -> float:
        return float(np.maximum(self.x_violation, self.y_violation))

    def agrees_within(self, tol: float) -> bool:
        """Whether the audit itself would certify the point at this tolerance, all its doubts included."""
        return self.sound and bool(self.gap + self.hidden + self.uncertainty <= tol and self.violation <= tol)

    def refutes(self, tol: float) -> bool:
        """Whether the point is surely not within this tolerance, all doubts in its favour; NaN is no favour."""
        near = self.gap + self.hidden <= tol + self.uncertainty and self.violation <= tol * (1 + 1e-9)
        return not (self.sound and bool(near))

    def __str__(self) -> str:
        told = (
            f"audit: gap {self.gap:.3e} ({self.measure}; x {self.x_gap:.3e}, y {self.y_gap:.3e}), "
            f"uncertain by {self.uncertainty:.1e}, value {self.value:.6g}, worst value {self.worst_value:.6g}, "
            f"least curvature of g {self.least_curvature:.3g}, violation {self.violation:.1e}"
        )
        return "\n".join([told, *self.notes])


def audit(problem: Problem, point: Point, *, measure: str | None = None, sigma: float = 1.0, tau: float = 1.0) -> Audit:
    """The gap of (x, y) by a second, independent computation: dense, slow, and sharing no code with certify.

    measure, sigma, tau: as in certify; measure None is "projection" if x_set has one, else "lmo", else "mixed".
    f and g are differentiated by plain autodiff in float64 (Derivatives written by hand are not used), theta*(x) and w
    come from dense factorisations in SciPy, the common sets are written anew in NumPy, and other sets are asked
    themselves, their answers checked against points of the set.
    """
    if not isinstance(problem, Problem) or not isinstance(point, Point):
        given = f"{type(problem).__name__} and {type(point).__name__}"
        raise ValueError(f"audit takes a bisaddle.Problem and a bisaddle.Point, given {given}")
    if measure is None:
        able = problem.x_set.capabilities
        measure = "projection" if "project" in able else "lmo" if "lmo" in able else "mixed"
    _check(problem, point, measure, float(sigma), float(tau))
    # the threads of a small factorisation wait longer than they work; SciPy has its own BLAS, which only audits limit
    with (
        _ONE_AT_A_TIME,
        one_blas_thread(),
        _scipy_blas().limit(limits=1),
        jax.enable_x64(True),
        np.errstate(all="ignore"),
    ):
        return _audit(problem, point, measure, float(sigma), float(tau))


@cache
def _scipy_blas() -> ThreadpoolController:
    every = ThreadpoolController().select(user_api="blas")
    return every.select(filepath=[one["filepath"] for one in every.info() if "scipy" in one["filepath"]])


def _check(problem: Problem, point: Point, measure: str, sigma: float, tau: float) -> None:
    if measure not in MEASURES:
        raise ValueError(f'measure must be "projection", "lmo" or "mixed", given {measure!r}')
    for name, value in (("sigma", sigma), ("tau", tau)):
        if not 0 < value < np.inf:
            raise ValueError(f"{name} of the gap must be finite and > 0, given {value}")
    needed = {"projection": {"project"}, "lmo": {"lmo"}, "mixed": set()}[measure]
    for oracle in needed - problem.x_set.capabilities:
        raise ValueError(f'measure="{measure}" needs one on x_set: {problem.x_set.missing(oracle)}')
    if measure == "mixed" and not hasattr(problem.x_set, "blocks"):
        raise ValueError(f'measure="mixed" is for a Product, given {type(problem.x_set).__name__}; leave measure out')
    if problem.y_set is not None and "project" not in problem.y_set.capabilities:
        raise ValueError(f"the y gap needs one on y_set: {problem.y_set.missing('project')}")
    for name, part, wanted in (
        ("theta", point.theta, problem.lower is not None),
        ("y", point.y, problem.y_set is not None),
    ):
        if bool(jax.tree.leaves(part)) != wanted:
            raise ValueError(f"the problem {'has' if wanted else 'has no'} {name}: give the point {name} accordingly")
        size = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(part))
        if size > LARGEST:
            raise ValueError(f"audit takes dense Hessians: {name} of at most {LARGEST} entries, given {size}")
    for name, a_set, part in (("x", problem.x_set, point.x), ("y", problem.y_set, point.y)):
        reason = None if a_set is None else a_set.misfit(part)
        if reason is not None:
            raise ValueError(f"{name} does not fit its set: {reason}")


def _audit(problem: Problem, point: Point, measure: str, sigma: float, tau: float) -> Audit:
    arrays = Arrays(problem, point)
    x, theta, y = (arrays.flat(part) for part in (point.x, point.theta, point.y))
    x_region = region_of(problem.x_set, point.x)
    y_region = None if problem.y_set is None else region_of(problem.y_set, point.y)
    lower = None if problem.lower is None else solve_lower(arrays, x, theta)
    theta_star = theta if lower is None else lower.theta
    first = arrays.gradients(x, theta_star, y, np.zeros_like(theta))
    w = np.zeros_like(theta) if lower is None else lower.solve(first.f_theta)
    at = arrays.gradients(x, theta_star, y, w)
    Gx = at.f_x if lower is None else at.f_x - at.g_theta_x
    x_gap = _x_gap(x_region, measure, x, Gx, tau)
    y_gap = y_violation = 0.0
    value = worst = float(at.f[0])
    upper_witness = None
    if y_region is not None:
        y_gap = float(np.linalg.norm(y - y_region.moved(y + sigma * at.f_y, sigma))) / sigma
        y_violation = y_region.violation(y)
        value -= y_region.penalty(y)
        looked = look_at_y(arrays, y_region, x, theta_star, y)
        upper_witness, worst = looked.witness, looked.worst_value
    strongly_convex, mu_g_holds, lower_witness = _judge_lower(problem, lower)
    x_violation = x_region.violation(x)
    regions = [x_region] if y_region is None else [x_region, y_region]
    return Audit(
        measure=measure,
        x_gap=x_gap,
        y_gap=y_gap,
        hidden=_product(Gx, x_violation) + _product(at.f_y, y_violation),
        value=value,
        worst_value=worst,
        least_curvature=np.inf if lower is None else lower.curvature.least,
        strongly_convex=strongly_convex,
        mu_g_holds=mu_g_holds,
        concave=upper_witness is None,
        x_violation=x_violation,
        y_violation=y_violation,
        uncertainty=_uncertainty(arrays, lower, regions, measure, (x, theta_star, y, w), Gx, sigma, tau),
        theta=None if lower is None else arrays.tree(1, theta_star),
        w=None if lower is None else arrays.tree(1, w),
        x_gradient=arrays.tree(0, Gx),
        y_gradient=arrays.tree(2, at.f_y),
        lower_witness=lower_witness,
        upper_witness=upper_witness,
        notes=_notes(problem, strongly_convex, mu_g_holds, lower_witness, upper_witness, regions),
    )


def _product(gradient: Vector, violation: float) -> float:
    return 0.0 if violation == 0 else float(np.linalg.norm(gradient)) * violation


def _x_gap(region: Region, measure: str, x: Vector, Gx: Vector, tau: float) -> float:
    def residual(block: Region, place: slice) -> float:
        return float(np.linalg.norm(x[place] - block.nearest(x[place] - tau * Gx[place]))) / tau

    def descent(block: Region, place: slice) -> float:
        return float(np.maximum(Gx[place] @ (x[place] - block.cheapest(Gx[place])), 0.0))

    if measure == "mixed":
        able = [(block, place) for block, place in region.blocks if block.project is not None]
        others = [(block, place) for block, place in region.blocks if block.project is None]
        return float(np.linalg.norm([residual(*one) for one in able])) + sum(descent(*one) for one in others)
    return (residual if measure == "projection" else descent)(region, slice(None))


def _judge_lower(problem: Problem, lower: LowerSolution | None) -> tuple[bool, bool, Witness | None]:
    """Whether g is strongly convex as far as was seen, whether a given mu_g is right, and a direction if not."""
    if lower is None:
        return True, True, None
    curvature, constants = lower.curvature, problem.constants
    convex = curvature.positive
    claimed = constants.origin_of("mu_g") in ("given", "exact")
    holds = not claimed or float(constants.mu_g or 0.0) <= curvature.least * (1 + 1e-9) + curvature.rounding
    if convex and holds or curvature.direction is None:
        return convex, bool(holds), None
    return convex, bool(holds), Witness(curvature.direction, curvature.least)


def _uncertainty(
    arrays: Arrays,
    lower: LowerSolution | None,
    regions: list[Region],
    measure: str,
    where: tuple[Vector, Vector, Vector, Vector],
    Gx: Vector,
    sigma: float,
    tau: float,
) -> float:
    """What is left of both equations and rounding inside f and g, as far as they reach the gap; and the sets' share.

    theta and w are off by at most residual / least eigenvalue; how much that moves the gradients is seen by disturbing
    them, along the flattest direction of g and in a few others.
    """
    x, theta, y, w = where
    noise, at = arrays.rounding(x, theta, y, w), arrays.gradients(x, theta, y, w)
    size = lambda v: float(np.linalg.norm(v))
    x_error, y_error = size(noise.f_x) + 8 * EPS * size(at.f_x), size(noise.f_y) + 8 * EPS * size(at.f_y)
    if lower is not None:
        least = max(lower.least, 0.0) or np.nan
        theta_off = (size(at.g_theta) + size(noise.g_theta)) / least
        w_off = (size(at.g_theta_theta - at.f_theta) + size(noise.g_theta_theta) + size(noise.f_theta)) / least
        rng = np.random.default_rng(1)
        directions = [lower.curvature.direction, *rng.normal(size=(DISTURBANCES, theta.size))]
        step = max(theta_off, 1e-5 * (1 + size(theta)))
        moved_x = moved_y = crossed = 0.0
        for direction in directions:
            unit = direction / size(direction) if direction is not None else np.zeros_like(theta)
            there = arrays.gradients(x, theta + step * unit, y, w)
            # the disturbed theta has another w: to first order by what the linear equation then has left
            left = there.f_theta - there.g_theta_theta
            other = arrays.gradients(x, theta + step * unit, y, w + lower.solve(left))
            moved_x = max(moved_x, size(other.f_x - other.g_theta_x - Gx) / step)
            moved_y = max(moved_y, size(other.f_y - at.f_y) / step)
            crossed = max(crossed, size(arrays.gradients(x, theta, y, unit).g_theta_x))
        x_error += moved_x * theta_off + crossed * w_off + size(noise.g_theta_x) + 8 * EPS * size(at.g_theta_x)
        y_error += moved_y * theta_off
    if measure != "projection":
        x_error *= 1 + _reach(regions[0], x, Gx)
    sets = regions[0].slack / tau + sum(region.slack for region in regions[1:]) / sigma
    return 4 * (x_error + y_error + 8 * EPS * (size(x) / tau + size(y) / sigma)) + sets


def _reach(region: Region, x: Vector, Gx: Vector) -> float:
    """How far x is from the points that an LMO picks."""
    reach = 0.0
    for block, place in [(region, slice(None))] if region.lmo is not None else region.blocks:
        if block.lmo is not None:
            reach += float(np.linalg.norm(x[place] - block.cheapest(Gx[place])))
    return reach


def _notes(
    problem: Problem,
    strongly_convex: bool,
    mu_g_holds: bool,
    lower_witness: Witness | None,
    upper_witness: Witness | None,
    regions: list[Region],
) -> tuple[str, ...]:
    notes = []
    found = "NaN" if lower_witness is None else f"{lower_witness.curvature:.6g}"
    if not strongly_convex:
        notes.append(f"g is not strongly convex in theta: curvature {found} along lower_witness.direction")
    if not mu_g_holds:
        notes.append(f"mu_g = {float(problem.constants.mu_g or 0.0):.6g} is too large: g has curvature {found}")
    if upper_witness is not None:
        curvature = f"{upper_witness.curvature:.6g}"
        notes.append(f"f is not concave in y: curvature {curvature} along upper_witness.direction")
    theirs = sorted({region.name for region in regions if not region.textbook})
    if theirs:
        notes.append(f"no textbook form of {', '.join(theirs)}: its own oracles were used, and their answers checked")
    return tuple(notes)
