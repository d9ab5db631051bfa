"""certify(problem, point): how stationary a point is, trusting nothing but the problem."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from bisaddle.certificate.bounds import Sensitivity, Told, free_parts, sensitivity, worst_value
from bisaddle.certificate.consistency import ENOUGH, mismatch
from bisaddle.certificate.noise import Noise, along_a_line, rounding_noise
from bisaddle.certificate.wide import widened
from bisaddle.certificate.witnesses import Witness, lower_witness, upper_witness
from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.oracle.streamed import StreamedKernels
from bisaddle.oracle.validate import (
    check_problem_at,
    require_accuracy,
    require_concrete,
    require_oracle,
    require_positive,
)
from bisaddle.problem import Point, Problem, described
from bisaddle.programs import one_blas_thread
from bisaddle.sets.flat import FlatSet
from bisaddle.sets.flat_base import length
from bisaddle.showing import Shown, card, changed, given_out
from bisaddle.trees import Number

MEASURES = ("projection", "lmo", "mixed")
# y this near to the best response, relative to the diameter of Y, is in its corner
CORNER = 1e-6
# in a decisive look the residuals may be this share of tol: far below what could tip the answer
SHARE = 1e-3


class Certificate(Shown):
    """What certify found at (x, y). All gradients are taken at theta*(x), not at the point's own theta.

    x_gap          |x - P_X(x - tau grad_x L)| / tau  ("projection"),   max_{s in X} <grad_x L, x - s>  ("lmo"),
                   the first over the blocks of a Product that can project, plus the second over the others  ("mixed")
    y_gap          |y - P_Y(y + sigma grad_y L)| / sigma   (P_Y is prox_{sigma h} where y_set has a penalty h)
    gap            x_gap + y_gap: the point is eps-stationary if gap <= eps
    value          f(x, theta*(x), y)                      (f - h where y_set has a penalty h)
    worst_value    max_{y in Y} f(x, theta*(x), y), or of f - h; for f concave in y, and only then, the true maximum is
                   within worst_value_error of it
    lower_error    |theta - theta*(x)|
    theta, w       theta*(x) and v(x, y) = Hess^-1 f_theta, as solved here
    error_bound    how far gap can be from its exact value: residuals left in the two solves, rounding, what the oracles
                   of the sets are off by, what a point outside its set hides
    error_is_bound True if all it rests on is known: mu_g and Problem.noise were given, the sets know their errors, and
                   second derivatives are the same from the theta found to theta*(x). If False, error_bound and
                   worst_value_error are estimates
    lower_witness  a direction of theta along which g is not strongly convex, or less so than the mu_g given; or None
    upper_witness  a direction of y along which f is not concave, or None. With a witness nothing is certified
    mismatch       what speaks against the derivatives of f and g at the point, in words. Nothing is certified with it
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
    mismatch: str = eqx.field(static=True, default="")

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
        sound = self.lower_witness is None and self.upper_witness is None and not self.mismatch
        return bool(sound and self.gap + self.error_bound <= tol and self.violation <= tol)

    def shown_fields(self) -> dict[str, Any]:
        """What a reader asks first; all else is in the fields."""
        witnesses = {name: "found" for name in ("lower_witness", "upper_witness") if getattr(self, name) is not None}
        names = ("gap", "error_bound", "value", "worst_value", "violation", "measure")
        return {name: getattr(self, name) for name in names} | witnesses

    def shown_rows(self) -> list[tuple[str, str]]:
        """The same in words, for a table."""
        kind = "bound" if self.error_is_bound else "estimate"
        rows = [
            ("gap", f"{self.gap:.3g} (x {self.x_gap:.2g}, y {self.y_gap:.2g}), error {kind} {self.error_bound:.1g}"),
            ("worst value", f"{self.worst_value:.6g}"),
            ("value", f"{self.value:.6g}"),
        ]
        return rows + ([("warning", self._warning.strip())] if self._warning else [])

    def _repr_html_(self) -> str:
        return card(f"Certificate ({self.measure})", self.shown_rows())

    def __str__(self) -> str:
        kind = "bound" if self.error_is_bound else "estimate"
        return (
            f"gap {self.gap:.3e} ({self.measure}; x {self.x_gap:.3e}, y {self.y_gap:.3e}), "
            f"error {kind} {self.error_bound:.1e}, value {self.value:.6g}, worst value {self.worst_value:.6g}, "
            f"lower error {self.lower_error:.1e}, violation {self.violation:.1e}" + self._warning
        )

    @property
    def refutation(self) -> str:
        """What speaks against the problem, in words: its derivatives, or else the witnesses; nothing without these."""
        found = ((self.lower_witness, "g", "theta", "lower"), (self.upper_witness, "f", "y", "upper"))
        return self.mismatch or "; ".join(
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


@dataclass(frozen=True)
class Gap:
    """What is measured at a point: a measure of stationarity, and the step sizes inside it.

    measure: "lmo" is Definition 2.1 of [AYH25], "projection" Definition 2.2; "mixed" is for a Product in which some
    blocks have only a projection and others only an LMO. None: "projection" if x_set has one, else "lmo", else "mixed".
    sigma, tau: the step sizes in y and in x.
    """

    measure: str | None = None
    sigma: Number = 1.0
    tau: Number = 1.0

    def __post_init__(self):
        if self.measure is not None and (not isinstance(self.measure, str) or self.measure not in MEASURES):
            raise ValueError(f'measure of the gap must be "projection", "lmo" or "mixed", given {self.measure!r}')
        for name in ("sigma", "tau"):
            object.__setattr__(self, name, require_positive(f"{name} of the gap", getattr(self, name)))

    @classmethod
    def of(cls, given: "Gap | str | None", problem: Problem) -> "Gap":
        """As given, or of the measure that is named, for this problem; ValueError if its sets lack an oracle for it."""
        if not (given is None or isinstance(given, Gap | str)):
            raise ValueError(f'measure must be a name or a bisaddle.Gap, given {described(given)}; use measure="lmo"')
        gap = given if isinstance(given, Gap) else cls(given)
        able = problem.x_set.capabilities
        natural = "projection" if "project" in able else "lmo" if "lmo" in able else "mixed"
        measure = gap.measure or natural
        if measure != "mixed":
            oracle_name = {"projection": "project", "lmo": "lmo"}[measure]
            require_oracle(problem.x_set, oracle_name, f'measure="{measure}"', "x", f'use measure="{natural}"')
        if problem.y_set is not None:
            require_oracle(problem.y_set, "project", "the y gap", "y", "use a y_set with a projection")
        return replace(gap, measure=measure)


def certify(
    problem: Problem,
    point: Point,
    *,
    measure: str | None = "projection",
    sigma: Number = 1.0,
    tau: Number = 1.0,
    accuracy: Number = 0.0,
    data: Any = None,
) -> Certificate:
    """The stationarity gap of (x, y), with a bound on its error.

    measure, sigma, tau: what is measured, as in Gap. data: bs.streams.Chunks, as in solve.
    Solves the lower level and the linear system again, starting from the point's theta, until the residual norms are at
    most `accuracy` (0: as far as rounding allows). error_bound says how much these residuals can change the gradients,
    to first order: the norms of the linear maps from residuals to gradients, doubled, plus rounding. With up to 128
    lower variables (256 with few data and an x of up to 1024 entries) the norms come from the matrices themselves;
    beyond, from the products of |J|, |g_theta_x| (by power iteration) and 1 / mu_g.
    """
    gap = Gap(measure, sigma, tau)
    require_accuracy(accuracy)
    chunks = None if data is None else data.beside(problem.data)
    problem = problem if chunks is None else replace(problem, data=chunks.data(0))
    require_concrete("certify", problem, point)
    check_problem_at(problem, point, feasible=False)  # how far outside a point is, the certificate says
    kernels = Kernels(problem, point) if chunks is None else StreamedKernels(problem, point, chunks)
    certifier = Certifier(*widened(problem, point, kernels), Gap.of(gap, problem))
    with one_blas_thread():
        certificate = certifier.certificate(*certifier.kernels.flat(point, own=False), accuracy=float(accuracy))
        return certifier.with_free_parts(point, certificate)


class Certifier:
    """Certificates of one problem in one measure; it solves everything itself, over the kernels.

    below: a point with a larger gap is not going to be certified, and neither the rounding inside f and g nor witnesses
    are looked for there.
    """

    def __init__(self, problem: Problem, kernels: Kernels, gap: Gap, below: float = np.inf):
        assert gap.measure is not None
        self.problem, self.kernels, self.below = problem, kernels, below
        self.measure, self.sigma, self.tau = gap.measure, float(gap.sigma), float(gap.tau)
        known, noise = problem.constants.mu_g, problem.noise
        self.mu_g = None if known is None else float(known)
        self.noise = None if noise is None else Noise.bounded_by(float(noise))
        asked = {"projection": {"project"}, "lmo": {"lmo"}}.get(self.measure, {"project", "lmo"})
        y_estimates = frozenset() if kernels.y_set is None else kernels.y_set.estimates & {"project", "prox"}
        sets_known = not (kernels.x_set.estimates & asked or y_estimates)
        mu_g_known = not kernels.has_lower or problem.constants.origin_of("mu_g") in ("given", "exact")
        self.error_is_bound = mu_g_known and noise is not None and sets_known

    def certificate(
        self, x: Vector, theta: Vector, y: Vector, accuracy: float = 0.0, below: float | None = None
    ) -> Certificate:
        """The certificate at flat vectors, and of NumPy arrays; below: in place of the certifier's own."""
        with np.errstate(all="ignore"):  # NaN and infinity are answers here
            x, theta, y = (v.astype(self.kernels.dtype, copy=False) for v in (x, theta, y))
            solved = Implicit(self.kernels, x, theta, y, accuracy)
            below = self.below if below is None else below
            return self._certificate(solved, theta, sensitivity(solved, self.mu_g), below)

    def decisive(self, x: Vector, theta: Vector, y: Vector, w: Vector, tol: float) -> Certificate | None:
        """A certificate that tells whether gap and error are at most tol, no more accurate than that takes.

        None if the gap is larger, so that no error bound could help. w: a guess of v(x, y), from which the linear solve
        starts. The solves stop at a residual far below tol and norms bound their error; only where that is not enough
        are they taken to rounding, with the matrices of the error bound.
        """
        with np.errstate(all="ignore"):
            # a residual moves theta and w by up to 1 / mu_g of itself
            accuracy = SHARE * tol * min(1.0, self.mu_g or 1.0)
            x, theta, y, w = (v.astype(self.kernels.dtype, copy=False) for v in (x, theta, y, w))
            solved = Implicit(self.kernels, x, theta, y, accuracy, w)
            gap = self._x_gap(x, solved.Gx)[0] + self._y_gap(y, solved.upper.f_y)[0]
            if not gap <= tol:
                return None
            # matrices take a pass over the data for each lower variable, two are enough for a rough norm
            rough = sensitivity(solved, self.mu_g, matrices=False, passes=2)
            certificate = self._certificate(solved, theta, rough, tol)
            if certificate.gap + certificate.error_bound > tol:
                certificate = None  # a large theta needs its memory
                solved.solve(0.0)
                certificate = self._certificate(solved, theta, sensitivity(solved, self.mu_g), tol)
            return certificate

    def with_free_parts(self, point: Point, certificate: Certificate) -> Certificate:
        """The certificate to be shown, with the parts of x that a degenerate corner leaves free."""
        own, (x, _, y) = self.kernels, self.kernels.flat(point, own=False)
        theta, Gx = own.theta.ravel(certificate.theta, own=False), own.x.ravel(certificate.x_gradient, own=False)
        return changed(given_out(certificate), free_parts=free_parts(own, x, theta, y, Gx, certificate.y_in_corner))

    def _certificate(self, solved: Implicit, theta: Vector, sensitivity: Sensitivity, below: float) -> Certificate:
        kernels, x, y = self.kernels, solved.x, solved.y
        x_set, y_set, upper = kernels.x_set, kernels.y_set, solved.upper
        y_violation, worst_error, in_corner = 0.0, 0.0, False
        value, worst, steepness = upper.value, upper.value, solved.f_theta_size
        if y_set is not None:
            _, corner = y_set.best_response(y, upper.f_y)
            in_corner = norm(y - corner) <= CORNER * y_set.diameter()
            y_violation, value = y_set.violation(y), value - y_set.penalty(y)
            told = Told(upper.value, upper.f_y, steepness)
            worst, worst_error, steepness = worst_value(kernels, y_set, x, solved.theta, y, told, solved.accuracy)
        x_violation = x_set.violation(x)
        (x_gap, x_oracle), (y_gap, y_oracle) = self._x_gap(x, solved.Gx), self._y_gap(y, upper.f_y)
        noise, lower, convex, wrong = self.noise or Noise(), None, None, ""
        if not x_gap + y_gap > below:  # or NaN
            line = along_a_line(solved, None if self.noise is None else ENOUGH)
            noise = rounding_noise(line) if self.noise is None else self.noise
            wrong = mismatch(solved, line, noise, 0.0 if self.noise is None else self.noise.value)
            del line  # before others need its memory
            lower = lower_witness(solved, self.mu_g, theta, noise.g_theta)
            convex, highest = upper_witness(kernels, x, solved.theta, y, upper, noise.f_y)
            worst, worst_error = max(worst, highest), worst_error if convex is None else np.inf
        off = self._theta_error(solved, noise)
        worst_error += steepness * off + max(noise.value, 8 * kernels.eps * abs(worst))
        error = self._error_bound(solved, *sensitivity.errors(solved, noise))
        hidden = self._hidden(x_violation, solved.Gx, self.tau) + self._hidden(y_violation, upper.f_y, self.sigma)
        return Certificate.made(
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
            theta=kernels.theta.tree(solved.theta),
            w=kernels.theta.tree(solved.w),
            x_gradient=kernels.x.tree(solved.Gx),
            y_in_corner=in_corner,
            measure=self.measure,
            free_parts=(),
            error_is_bound=self.error_is_bound and not wrong and self._first_order_is_enough(solved, off),
            mismatch=wrong,
            lower_witness=None if lower is None else Witness(kernels.theta.tree(lower[0]), *lower[1:]),
            upper_witness=None if convex is None else Witness(kernels.y.tree(convex[0]), *convex[1:]),
        )

    def _theta_error(self, solved: Implicit, noise: Noise) -> float:
        """How far theta*(x) can be from where it was found: |g_theta| / mu_g."""
        if not self.kernels.has_lower:
            return 0.0
        left = solved.lower_residual + max(noise.g_theta, 4 * self.kernels.eps * solved.lower_residual)
        return left / (solved.hessian.least if self.mu_g is None else self.mu_g)

    def _first_order_is_enough(self, solved: Implicit, off: float) -> bool:
        """Whether second derivatives are the same all the way to theta*(x): it is near, or they are everywhere."""
        return off <= self.kernels.eps ** (1 / 3) * (1 + norm(solved.theta)) or self.kernels.bends_alike

    def _error_bound(self, solved: Implicit, x_error: float, y_error: float) -> float:
        rounding, lost = 8 * self.kernels.eps, float(np.finfo(self.kernels.dtype).tiny)  # below it digits are lost
        # x - P(x - tau Gx) cancels all but the step
        x_error += (rounding * norm(solved.x) + lost * solved.x.size) / self.tau
        if self.measure != "projection":
            # an error of the gradient counts along x - s, which may be as long as the diameter
            reach = self.kernels.x_set.diameter() + (self.measure == "mixed")
            x_error = reach * (x_error + rounding * norm(solved.Gx))
        return x_error + y_error + (rounding * norm(solved.y) + lost * solved.y.size) / self.sigma

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
        return length(y - moved) / self.sigma, y_set.prox_error(to, moved, self.sigma) / self.sigma

    def _residual(self, a_set: FlatSet, x: Vector, Gx: Vector) -> tuple[float, float]:
        to = self.tau * Gx
        moved = a_set.project(np.subtract(x, to, out=to))  # in place: a large x has little room
        return length(x - moved) / self.tau, a_set.project_error(to, moved) / self.tau


def _linear_gap(a_set: FlatSet, x: Vector, Gx: Vector) -> tuple[float, float]:
    """max over s of <Gx, x - s>, which is below 0 only for an x outside the set: no gap is."""
    vertex = a_set.lmo(Gx)
    return max(float(Gx @ (x - vertex)), 0.0), a_set.lmo_error(Gx, vertex)
