"""certify(problem, point): how stationary a point is, trusting nothing but the problem."""

from dataclasses import replace

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from bisaddle.certificate.bounds import can_have_matrices, free_parts, gradient_errors, worst_value
from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.oracle.validate import (
    check_problem_at,
    require_accuracy,
    require_concrete,
    require_oracle,
    require_positive,
)
from bisaddle.problem import Point, Problem
from bisaddle.programs import on_device, one_blas_thread
from bisaddle.sets.base import ConvexSet
from bisaddle.sets.flat import FlatSet
from bisaddle.trees import Number

MEASURES = ("projection", "lmo", "mixed")
# y this near to the best response, relative to the diameter of Y, is in its corner
CORNER = 1e-6
# in a decisive look the residuals may be this share of tol: far below what could tip the answer
SHARE = 1e-3


class Certificate(eqx.Module):
    """What certify found at (x, y). All gradients are taken at theta*(x), not at the point's own theta.

    x_gap          |x - P_X(x - tau grad_x L)| / tau  ("projection"),   max_{s in X} <grad_x L, x - s>  ("lmo"),
                   the first over the blocks of a Product that can project, plus the second over the others  ("mixed")
    y_gap          |y - P_Y(y + sigma grad_y L)| / sigma   (P_Y is prox_{sigma h} where y_set has a penalty h)
    gap            x_gap + y_gap: the point is eps-stationary if gap <= eps
    value          f(x, theta*(x), y)                      (f - h where y_set has a penalty h)
    worst_value    max_{y in Y} f(x, theta*(x), y), or of f - h; the true maximum is at most worst_value_error higher
    lower_error    |theta - theta*(x)|
    theta, w       theta*(x) and v(x, y) = Hess^-1 f_theta, as solved here
    error_bound    how far gap can be from its exact value, given the residuals left in the two solves
    error_is_bound True if mu_g was given; if False, error_bound rests on an estimate of mu_g, and is an estimate itself
    x_violation, y_violation          distances of x and y from their sets
    lower_residual, linear_residual   |g_theta| and |g_theta_theta w - f_theta|, what the two solves have left
    x_gradient     grad_x L = f_x - g_theta_x v
    y_in_corner    whether y is the only maximiser of <grad_y L, s> over s in Y
    degenerate     whether, with y in its corner, the gradient in a part of x (free_parts names it) is 0 for every x;
                   the gap then says nothing about that part
    """

    x_gap: float
    y_gap: float
    value: float
    worst_value: float
    worst_value_error: float
    lower_error: float
    error_bound: float
    x_violation: float
    y_violation: float
    lower_residual: float
    linear_residual: float
    theta: PyTree
    w: PyTree
    x_gradient: PyTree
    y_in_corner: bool
    measure: str = eqx.field(static=True)
    error_is_bound: bool = eqx.field(static=True)
    free_parts: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def degenerate(self) -> bool:
        return bool(self.free_parts)

    @property
    def gap(self) -> float:
        return self.x_gap + self.y_gap

    @property
    def violation(self) -> float:
        return float(np.maximum(self.x_violation, self.y_violation))

    def within(self, tol: Number) -> bool:
        """Whether the exact gap is at most tol, error bound included, at a feasible point."""
        return bool(self.gap + self.error_bound <= tol and self.violation <= tol)

    def __str__(self) -> str:
        kind = "bound" if self.error_is_bound else "estimate"
        return (
            f"gap {self.gap:.3e} ({self.measure}; x {self.x_gap:.3e}, y {self.y_gap:.3e}), "
            f"error {kind} {self.error_bound:.1e}, value {self.value:.6g}, worst value {self.worst_value:.6g}, "
            f"lower error {self.lower_error:.1e}, violation {self.violation:.1e}" + self._warning
        )

    @property
    def _warning(self) -> str:
        if not self.degenerate:
            return ""
        parts = ", ".join(self.free_parts)
        return (
            f"\ndegenerate: y is in a corner where the gradient in {parts} is 0 for every x; the gap says nothing "
            f"about {parts}; compare worst values from several starts: solve(..., starts=4, key=...)"
        )


def certify(
    problem: Problem,
    point: Point,
    *,
    measure: str = "projection",
    sigma: Number = 1.0,
    tau: Number = 1.0,
    accuracy: Number = 0.0,
) -> Certificate:
    """The stationarity gap of (x, y), with a bound on its error.

    measure: "lmo" is Definition 2.1 of [AYH25], "projection" Definition 2.2; "mixed" is for a Product in which some
    blocks have only a projection and others only an LMO. sigma, tau: the step sizes inside the gap.
    Solves the lower level and the linear system again, starting from the point's theta, until the residual norms are at
    most `accuracy` (0: as far as rounding allows). error_bound says how much these residuals can change the gradients,
    to first order: the norms of the linear maps from residuals to gradients, doubled, plus rounding. With up to 128
    lower variables the norms come from the matrices themselves; beyond, from the products of |J|, |g_theta_x| (by power
    iteration) and 1 / mu_g.
    """
    check_measure(measure, sigma, tau, accuracy)
    require_concrete("certify", problem, point)
    check_problem_at(problem, point, feasible=False)  # how far outside a point is, the certificate says
    check_oracles(problem, measure)
    kernels = Kernels(problem, point)
    certifier = Certifier(problem, kernels, measure, sigma, tau)
    with one_blas_thread():
        return certifier.with_free_parts(point, certifier.certificate(*kernels.flat(point), accuracy=float(accuracy)))


def check_measure(measure: str, sigma: Number, tau: Number, accuracy: Number = 0.0) -> None:
    if not isinstance(measure, str) or measure not in MEASURES:
        raise ValueError(f'measure must be "projection", "lmo" or "mixed", given {measure!r}')
    for name, value in (("sigma", sigma), ("tau", tau)):
        require_positive(f"{name} of the gap", value)
    require_accuracy(accuracy)


def natural_measure(x_set: ConvexSet) -> str:
    """The measure that asks least of the set's own oracles."""
    if "project" in x_set.capabilities:
        return "projection"
    return "lmo" if "lmo" in x_set.capabilities else "mixed"


def check_oracles(problem: Problem, measure: str) -> None:
    if measure != "mixed":
        oracle_name = {"projection": "project", "lmo": "lmo"}[measure]
        instead = f'use measure="{natural_measure(problem.x_set)}"'
        require_oracle(problem.x_set, oracle_name, f'measure="{measure}"', "x", instead)
    if problem.y_set is not None:
        require_oracle(problem.y_set, "project", "the y gap", "y", "use a y_set with a projection")


class Certifier:
    """Certificates of one problem in one measure; it solves everything itself, over the kernels."""

    def __init__(self, problem: Problem, kernels: Kernels, measure: str, sigma: Number, tau: Number):
        self.problem, self.kernels, self.measure = problem, kernels, measure
        self.sigma, self.tau = float(sigma), float(tau)
        known = problem.constants.mu_g
        self.mu_g = None if known is None else float(known)

    def certificate(self, x: Vector, theta: Vector, y: Vector, accuracy: float = 0.0) -> Certificate:
        """The certificate at flat vectors."""
        with np.errstate(all="ignore"):  # NaN and infinity are answers here
            solved = Implicit(self.kernels, x, theta, y, accuracy)
            return self._certificate(solved, theta, self._error_bound(solved, can_have_matrices(solved)))

    def decisive(self, x: Vector, theta: Vector, y: Vector, w: Vector, tol: float) -> Certificate | None:
        """A certificate that tells whether gap and error are at most tol, no more accurate than that takes.

        None if the gap is larger, so that no error bound could help. w: a guess of v(x, y), from which the linear solve
        starts. The solves stop at a residual far below tol and norms bound their error; only where that is not enough
        are they taken to rounding, with the matrices of the error bound.
        """
        with np.errstate(all="ignore"):
            # a residual moves theta and w by up to 1 / mu_g of itself
            accuracy = SHARE * tol * min(1.0, self.mu_g or 1.0)
            solved = Implicit(self.kernels, x, theta, y, accuracy, w)
            gap = self._x_gap(x, solved.Gx) + self._y_gap(y, solved.upper.f_y)
            if not gap <= tol:
                return None
            # matrices take a pass over the data for every lower variable, two passes are enough for a rough norm
            bound = self._error_bound(solved, matrices=False, passes=2)
            if gap + bound > tol:
                solved = Implicit(self.kernels, x, solved.theta, y, w=solved.w)
                bound = self._error_bound(solved, can_have_matrices(solved))
            return self._certificate(solved, theta, bound)

    def with_free_parts(self, point: Point, certificate: Certificate) -> Certificate:
        """The certificate, with the parts of x that a degenerate corner leaves free."""
        x, _, y = self.kernels.flat(point)
        theta, Gx = self.kernels.theta.ravel(certificate.theta), self.kernels.x.ravel(certificate.x_gradient)
        return replace(certificate, free_parts=free_parts(self.kernels, x, theta, y, Gx, certificate.y_in_corner))

    def _certificate(self, solved: Implicit, theta: Vector, error_bound: float) -> Certificate:
        kernels, x, y = self.kernels, solved.x, solved.y
        x_set, y_set, upper = kernels.x_set, kernels.y_set, solved.upper
        y_violation = worst_error = 0.0
        value = worst = upper.value
        in_corner = False
        if y_set is not None:
            _, corner = y_set.best_response(y, upper.f_y)
            in_corner = norm(y - corner) <= CORNER * y_set.diameter()
            y_violation = y_set.violation(y)
            value -= y_set.penalty(y)
            worst, worst_error = worst_value(kernels, y_set, x, solved.theta, y, upper, solved.accuracy)
        return Certificate(
            x_gap=self._x_gap(x, solved.Gx),
            y_gap=self._y_gap(y, upper.f_y),
            value=value,
            worst_value=worst,
            worst_value_error=worst_error,
            lower_error=norm(theta - solved.theta) if kernels.has_lower else 0.0,
            error_bound=error_bound,
            x_violation=x_set.violation(x),
            y_violation=y_violation,
            lower_residual=solved.lower_residual,
            linear_residual=solved.linear_residual,
            theta=on_device(kernels.theta.tree(solved.theta)),
            w=on_device(kernels.theta.tree(solved.w)),
            x_gradient=on_device(kernels.x.tree(solved.Gx)),
            y_in_corner=in_corner,
            measure=self.measure,
            error_is_bound=not kernels.has_lower or self.problem.constants.origin_of("mu_g") in ("given", "exact"),
        )

    def _error_bound(self, solved: Implicit, matrices: bool, passes: int | None = None) -> float:
        x_error, y_error = gradient_errors(solved, self.mu_g, matrices, passes)
        rounding = 8 * self.kernels.eps
        x_error += rounding * norm(solved.x) / self.tau  # x - P(x - tau Gx) cancels all but the step
        if self.measure != "projection":
            # an error of the gradient counts along x - s, which may be as long as the diameter
            reach = self.kernels.x_set.diameter() + (self.measure == "mixed")
            x_error = reach * (x_error + rounding * norm(solved.Gx))
        return x_error + y_error + rounding * norm(solved.y) / self.sigma

    def _x_gap(self, x: Vector, Gx: Vector) -> float:
        x_set = self.kernels.x_set
        if self.measure == "lmo":
            return float(Gx @ (x - x_set.lmo(Gx)))
        if self.measure == "projection":
            return self._residual(x_set, x, Gx)
        # residuals of blocks are parts of one vector, Frank-Wolfe gaps of blocks parts of one sum
        square = gaps = 0.0
        for block, place in x_set.blocks:
            if "project" in block.capabilities:
                square += self._residual(block, x[place], Gx[place]) ** 2
            else:
                gaps += float(Gx[place] @ (x[place] - block.lmo(Gx[place])))
        return square**0.5 + gaps

    def _y_gap(self, y: Vector, f_y: Vector) -> float:
        y_set = self.kernels.y_set
        return 0.0 if y_set is None else norm(y - y_set.prox(y + self.sigma * f_y, self.sigma)) / self.sigma

    def _residual(self, a_set: FlatSet, x: Vector, Gx: Vector) -> float:
        return norm(x - a_set.project(x - self.tau * Gx)) / self.tau
