"""certify(problem, point): how stationary a point is, trusting nothing but the problem."""

from dataclasses import replace

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from bisaddle.certificate.bounds import Sensitivity, can_have_matrices, free_parts, sensitivity, worst_value
from bisaddle.certificate.noise import Noise, rounding_noise
from bisaddle.certificate.witnesses import Witness, lower_witness, upper_witness
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
    worst_value    max_{y in Y} f(x, theta*(x), y), or of f - h; for f concave in y, and only then, the true maximum is
                   at most worst_value_error higher
    lower_error    |theta - theta*(x)|
    theta, w       theta*(x) and v(x, y) = Hess^-1 f_theta, as solved here
    error_bound    how far gap can be from its exact value: residuals left in the two solves, rounding, what the oracles
                   of the sets are off by, what a point outside its set hides
    error_is_bound True if all it rests on is known: mu_g and Problem.noise were given, and the sets know their errors.
                   If False, mu_g or the rounding inside f and g were estimated, and error_bound is an estimate too
    lower_witness  a direction of theta along which g is not strongly convex, or less so than the mu_g given; or None
    upper_witness  a direction of y along which f is not concave, or None. With a witness nothing is certified
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
    lower_witness: Witness | None = None
    upper_witness: Witness | None = None

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
        """Whether the exact gap is at most tol, error bound included, at a feasible point of a problem of its class."""
        sound = self.lower_witness is None and self.upper_witness is None
        return bool(sound and self.gap + self.error_bound <= tol and self.violation <= tol)

    def __str__(self) -> str:
        kind = "bound" if self.error_is_bound else "estimate"
        return (
            f"gap {self.gap:.3e} ({self.measure}; x {self.x_gap:.3e}, y {self.y_gap:.3e}), "
            f"error {kind} {self.error_bound:.1e}, value {self.value:.6g}, worst value {self.worst_value:.6g}, "
            f"lower error {self.lower_error:.1e}, violation {self.violation:.1e}" + self._warning
        )

    @property
    def refutation(self) -> str:
        """What the witnesses say of the problem, in words; nothing without one."""
        found = ((self.lower_witness, "g", "theta", "lower"), (self.upper_witness, "f", "y", "upper"))
        return "; ".join(
            f"{witness.needed}, but along a direction of {variable} the curvature of {function} is "
            f"{witness.curvature:.6g} (certificate.{level}_witness)"
            for witness, function, variable, level in found
            if witness is not None
        )

    @property
    def _warning(self) -> str:
        return (f"\n{self.refutation}" if self.refutation else "") + self._degenerate_warning

    @property
    def _degenerate_warning(self) -> str:
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


def gradient_scale(problem: Problem, point: Point, measure: str) -> float:
    """How large a gap can be where the gradients are those of this point: what rtol of solve is relative to.

    |grad_x L|  ("projection"),   max_{s, t in X} <grad_x L, s - t>  ("lmo"),   their sum over the blocks  ("mixed"),
    plus  max_{s, t in Y} <grad_y L, s - t> / |s - t|  for the maximising s and t
    """
    kernels = Kernels(problem, point)
    x, theta, y = kernels.flat(point)
    with np.errstate(all="ignore"):
        solved = Implicit(kernels, x, theta, y)
        scale = 0.0
        for block, place in kernels.x_set.blocks:
            Gx = solved.Gx[place]
            projects = measure == "projection" or (measure == "mixed" and "project" in block.capabilities)
            size = norm(Gx) if projects else float(Gx @ (block.lmo(-Gx) - block.lmo(Gx)))
            scale = (scale**2 + size**2) ** 0.5 if measure == "projection" else scale + size
        if kernels.y_set is not None:
            f_y = solved.upper.f_y
            _, best = kernels.y_set.best_response(y, f_y)
            _, worst = kernels.y_set.best_response(y, -f_y)
            width = norm(best - worst)
            scale += float(f_y @ (best - worst)) / width if width > 0 else 0.0
    if not np.isfinite(scale):
        raise ValueError(
            "the gradient at the start is not finite, so that rtol has no meaning; use tol, or another start"
        )
    return scale


def check_oracles(problem: Problem, measure: str) -> None:
    if measure != "mixed":
        oracle_name = {"projection": "project", "lmo": "lmo"}[measure]
        instead = f'use measure="{natural_measure(problem.x_set)}"'
        require_oracle(problem.x_set, oracle_name, f'measure="{measure}"', "x", instead)
    if problem.y_set is not None:
        require_oracle(problem.y_set, "project", "the y gap", "y", "use a y_set with a projection")


class Certifier:
    """Certificates of one problem in one measure; it solves everything itself, over the kernels.

    below: a point with a larger gap is not going to be certified, and neither the rounding inside f and g nor witnesses
    are looked for there.
    """

    def __init__(
        self, problem: Problem, kernels: Kernels, measure: str, sigma: Number, tau: Number, below: float = np.inf
    ):
        self.problem, self.kernels, self.measure = problem, kernels, measure
        self.sigma, self.tau, self.below = float(sigma), float(tau), below
        known, noise = problem.constants.mu_g, problem.noise
        self.mu_g = None if known is None else float(known)
        self.noise = None if noise is None else Noise.bounded_by(float(noise))
        asked = {"projection": {"project"}, "lmo": {"lmo"}}.get(measure, {"project", "lmo"})
        y_estimates = frozenset() if kernels.y_set is None else kernels.y_set.estimates & {"project", "prox"}
        sets_known = not (kernels.x_set.estimates & asked or y_estimates)
        mu_g_known = not kernels.has_lower or problem.constants.origin_of("mu_g") in ("given", "exact")
        self.error_is_bound = mu_g_known and noise is not None and sets_known

    def certificate(
        self, x: Vector, theta: Vector, y: Vector, accuracy: float = 0.0, below: float | None = None
    ) -> Certificate:
        """The certificate at flat vectors; below: in place of the certifier's own."""
        with np.errstate(all="ignore"):  # NaN and infinity are answers here
            solved = Implicit(self.kernels, x, theta, y, accuracy)
            below = self.below if below is None else below
            return self._certificate(solved, theta, self._sensitivity(solved), below)

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
            gap = self._x_gap(x, solved.Gx)[0] + self._y_gap(y, solved.upper.f_y)[0]
            if not gap <= tol:
                return None
            # matrices take a pass over the data for every lower variable, two passes are enough for a rough norm
            rough = sensitivity(solved, self.mu_g, matrices=False, passes=2)
            certificate = self._certificate(solved, theta, rough, tol)
            if certificate.gap + certificate.error_bound > tol:
                solved = Implicit(self.kernels, x, solved.theta, y, w=solved.w)
                certificate = self._certificate(solved, theta, self._sensitivity(solved), tol)
            return certificate

    def with_free_parts(self, point: Point, certificate: Certificate) -> Certificate:
        """The certificate, with the parts of x that a degenerate corner leaves free."""
        x, _, y = self.kernels.flat(point)
        theta, Gx = self.kernels.theta.ravel(certificate.theta), self.kernels.x.ravel(certificate.x_gradient)
        return replace(certificate, free_parts=free_parts(self.kernels, x, theta, y, Gx, certificate.y_in_corner))

    def _certificate(self, solved: Implicit, theta: Vector, sensitivity: Sensitivity, below: float) -> Certificate:
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
        x_violation = x_set.violation(x)
        (x_gap, x_oracle), (y_gap, y_oracle) = self._x_gap(x, solved.Gx), self._y_gap(y, upper.f_y)
        noise, lower, convex = self.noise or Noise(), None, None
        if not x_gap + y_gap > below:  # or NaN
            noise = rounding_noise(solved) if self.noise is None else self.noise
            lower = lower_witness(solved, self.mu_g)
            convex, highest = upper_witness(kernels, x, solved.theta, y, upper, noise.f_y)
            worst, worst_error = max(worst, highest), worst_error if convex is None else np.inf
        error = self._error_bound(solved, *sensitivity.errors(solved, noise))
        hidden = self._hidden(x_violation, solved.Gx, self.tau) + self._hidden(y_violation, upper.f_y, self.sigma)
        return Certificate(
            x_gap=x_gap,
            y_gap=y_gap,
            value=value,
            worst_value=worst,
            worst_value_error=worst_error,
            lower_error=norm(theta - solved.theta) if kernels.has_lower else 0.0,
            error_bound=error + x_oracle + y_oracle + hidden,
            x_violation=x_violation,
            y_violation=y_violation,
            lower_residual=solved.lower_residual,
            linear_residual=solved.linear_residual,
            theta=on_device(kernels.theta.tree(solved.theta)),
            w=on_device(kernels.theta.tree(solved.w)),
            x_gradient=on_device(kernels.x.tree(solved.Gx)),
            y_in_corner=in_corner,
            measure=self.measure,
            error_is_bound=self.error_is_bound,
            lower_witness=None if lower is None else Witness(on_device(kernels.theta.tree(lower[0])), *lower[1:]),
            upper_witness=None if convex is None else Witness(on_device(kernels.y.tree(convex[0])), *convex[1:]),
        )

    def _sensitivity(self, solved: Implicit) -> Sensitivity:
        return sensitivity(solved, self.mu_g, can_have_matrices(solved))

    def _error_bound(self, solved: Implicit, x_error: float, y_error: float) -> float:
        rounding = 8 * self.kernels.eps
        x_error += rounding * norm(solved.x) / self.tau  # x - P(x - tau Gx) cancels all but the step
        if self.measure != "projection":
            # an error of the gradient counts along x - s, which may be as long as the diameter
            reach = self.kernels.x_set.diameter() + (self.measure == "mixed")
            x_error = reach * (x_error + rounding * norm(solved.Gx))
        return x_error + y_error + rounding * norm(solved.y) / self.sigma

    def _hidden(self, violation: float, gradient: Vector, step: float) -> float:
        """What the gap at the nearest point of the set may have more than that of a point outside it."""
        return violation * (norm(gradient) + 2 / step) if violation > 0 else 0.0

    def _x_gap(self, x: Vector, Gx: Vector) -> tuple[float, float]:
        """The gap of x, and how far the oracles of its set may make it wrong."""
        x_set = self.kernels.x_set
        if self.measure == "lmo":
            return _linear_gap(x_set, x, Gx)
        if self.measure == "projection":
            return self._residual(x_set, x, Gx)
        # residuals of blocks are parts of one vector, Frank-Wolfe gaps of blocks parts of one sum
        square = gaps = errors = 0.0
        for block, place in x_set.blocks:
            if "project" in block.capabilities:
                gap, error = self._residual(block, x[place], Gx[place])
                square += gap**2
            else:
                gap, error = _linear_gap(block, x[place], Gx[place])
                gaps += gap
            errors += error
        return square**0.5 + gaps, errors

    def _y_gap(self, y: Vector, f_y: Vector) -> tuple[float, float]:
        y_set = self.kernels.y_set
        if y_set is None:
            return 0.0, 0.0
        to = y + self.sigma * f_y
        moved = y_set.prox(to, self.sigma)
        return norm(y - moved) / self.sigma, y_set.prox_error(to, moved, self.sigma) / self.sigma

    def _residual(self, a_set: FlatSet, x: Vector, Gx: Vector) -> tuple[float, float]:
        to = x - self.tau * Gx
        moved = a_set.project(to)
        return norm(x - moved) / self.tau, a_set.project_error(to, moved) / self.tau


def _linear_gap(a_set: FlatSet, x: Vector, Gx: Vector) -> tuple[float, float]:
    """max over s of <Gx, x - s>, which is below 0 only for an x outside the set: no gap is."""
    vertex = a_set.lmo(Gx)
    return max(float(Gx @ (x - vertex)), 0.0), a_set.lmo_error(Gx, vertex)
