"""The right-hand sides of Theorems 5.1 and 5.4, term by term, and the number of steps that they ask for  [AYH25]."""

import dataclasses
import math

from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.validate import as_number, check_problem_at, require_positive
from bisaddle.problem import Constants, Point, Problem
from bisaddle.schedules import StepSizes
from bisaddle.theory.constants import (
    EVERY,
    Start,
    Tracking,
    constants_of,
    derive_smoothness,
    derive_sums,
    derive_tracking,
    step_numbers,
)
from bisaddle.theory.steps import Plan, check_K, check_method, order_of, regime_of, steps_for
from bisaddle.trees import Number


@dataclasses.dataclass(frozen=True)
class Bound:
    """An upper bound on the average over k < K of the gaps at (x_k, y_k), so on the best of them.

        x, y       bounds on the x gap and the y gap;      total = x + y
        x_terms    what x is made of; with method "fp" they bound the mean square, and x is the root of their sum
        y_terms    what y is made of

    Gaps as in Definition 2.1 (opf) and 2.2 (fp), with the sigma and tau of the steps.
    """

    method: str
    K: int
    x_terms: dict[str, float]
    y_terms: dict[str, float]

    @property
    def x(self) -> float:
        total = math.fsum(self.x_terms.values())
        return math.sqrt(total) if self.method == "fp" else total

    @property
    def y(self) -> float:
        return math.fsum(self.y_terms.values())

    @property
    def total(self) -> float:
        return self.x + self.y

    @property
    def dominant(self) -> str:
        """The largest term of the larger of the two gaps."""
        terms = self.x_terms if self.x >= self.y else self.y_terms
        return max(terms, key=lambda name: terms[name])

    def __str__(self) -> str:
        theorem, power = ("5.4", " (of the mean square)") if self.method == "fp" else ("5.1", "")
        lines = [f"Theorem {theorem}, K = {self.K}: average gap <= {self.total:.4g} (x {self.x:.4g}, y {self.y:.4g})"]
        for side, terms, note in (("x", self.x_terms, power), ("y", self.y_terms, "")):
            lines.append(f"  {side} gap{note}")
            for name, value in terms.items():
                mark = "  <- largest" if name == self.dominant else ""
                lines.append(f"    {value:12.4g}  {name}{mark}")
        return "\n".join(lines)


def bound(
    problem: Problem,
    steps: StepSizes | Plan,
    K: Number,
    start: Point,
    *,
    method: str | None = None,
    drop: Number | None = None,
    gradient: Number | None = None,
) -> Bound:
    """What the theorem promises for K steps from this start, with every constant in it  [AYH25, Theorems 5.1, 5.4].

        opf   (1/K) sum x_gap <= drop/(gamma K) + B_1/K + gamma B_2 D_X^2 + mu D_Y^2/(2 gamma K)
        fp    (1/K) sum x_gap^2 <= (2 drop + mu D_Y^2)/(tau gamma K) + 2 L_L2 Gamma_1/(tau K) + 4 M Gamma_6/K
                                       + 4 tau gamma M^2 B_4
        both  (1/K) sum y_gap <= 2 |y_0 - y*_mu(x_0)|/(sigma (1 - rho_D) K) + gamma B_3 D_X
                                       + (1 + 2/(1 - rho_D)) L_ytheta |theta_0 - theta*(x_0)|/((1 - beta) K) + mu D_Y

    drop: f(x_0) - min f, f(x) = max_y L(x, y); gradient: M >= |Gx|, |grad_x L| along the run. None bounds them by the
    Lipschitz constants, which is safe and coarse. method: "opf" or "fp"; a Plan of steps_for brings its own.
    Needs: every constant of the assumptions (problem.constants; theory.exact_constants or estimate_constants fill them
    in), constant step sizes. A bound on estimated constants is an estimate.
    """
    if isinstance(steps, Plan):
        method, steps = steps.method if method is None else method, steps.steps
    if not isinstance(method, str) or method not in ("opf", "fp"):
        raise ValueError(f'bound needs method="opf" (Theorem 5.1) or "fp" (Theorem 5.4), given {method!r}')
    for name, value in (("drop", drop), ("gradient", gradient)):
        if value is not None and not 0 <= as_number(name, value) < math.inf:
            raise ValueError(f"{name} must be finite and >= 0, given {value}")
    K, _ = check_K(K), step_numbers(steps)  # before anything is solved
    return _bound(_Setting(problem, start, drop, gradient), steps, K, method)


@dataclasses.dataclass(frozen=True)
class Iterations:
    """order: the corollary's K, hidden constants taken as 1. bound: the least K whose theorem bound is <= eps, with all
    constants; None without a start, infinity if no K up to 1e60 is enough."""

    order: float
    bound: float | None
    method: str
    regime: str

    def __str__(self) -> str:
        proven = "" if self.bound is None else f", {self.bound:.3g} with every constant of the theorem"
        return f"{self.method}, {self.regime}: {self.order:.3g} steps with the corollary's constants taken as 1{proven}"


def iterations_for(
    problem: Problem | Constants,
    eps: Number,
    method: str = "fp",
    *,
    regime: str = "auto",
    start: Point | None = None,
    tau: Number | None = None,
    drop: Number | None = None,
) -> Iterations:
    """How many steps gap <= eps takes, without and (given a start) with constants  [AYH25, Corollaries 5.2-5.6].

    With constants: the steps are those of steps_for(problem, method, K=K), and K the least for which bound(...) <= eps.
    """
    check_method(method)
    eps = require_positive("eps", eps)
    regime = regime_of(problem, method, regime)
    c = constants_of(problem, () if method == "morbit" else ("mu_g", "L_g"))
    order = order_of(c["L_g"] / c["mu_g"], eps, method, regime)
    if start is None:
        return Iterations(order, None, method, regime)
    if not isinstance(problem, Problem) or method == "morbit":
        raise ValueError('iterations_for with a start needs a Problem and method="opf" or "fp"; leave start out')
    setting = _Setting(problem, start, drop)

    def enough(K: int) -> bool:
        plan = steps_for(problem, method, K=K, regime=regime, tau=tau)
        try:
            return _bound(setting, plan.steps, K, method).total <= eps
        except ValueError:  # steps outside the theorem, as the experiment's may be
            return False

    low, high = 0, 1
    while not enough(high):
        low, high = high, 2 * high
        if high > 10**60:
            return Iterations(order, math.inf, method, regime)
    while high - low > max(1, high // 10**6):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Iterations(order, float(high), method, regime)


class _Setting:
    """A problem and where a run begins, with the constants of the one and the lower level solved at the other.

    steepest: sup |grad_x L| over X x Y, by the Lipschitz constants from the start.
    """

    def __init__(self, problem: Problem, start: Point, drop: Number | None = None, gradient: Number | None = None):
        check_problem_at(problem, start)
        c = self.c = constants_of(problem, EVERY, start)
        self.smooth = derive_smoothness(c)
        kernels = Kernels(problem, start)
        x, self.theta, y = kernels.flat(start)
        self.at = Implicit(kernels, x, self.theta, y)
        self.steepest = norm(self.at.Gx) + self.smooth.L_L1 * c["D_X"] + self.smooth.L_L2 * c["D_Y"]
        self.drop = c["D_X"] * self.steepest if drop is None else float(drop)
        self.gradient = gradient

    def errors(self, t: Tracking, sigma: float) -> Start:
        theta_error = w_error = y_error = 0.0
        kernels, y = self.at.kernels, self.at.y
        if kernels.has_lower:
            theta_error = norm(self.theta - self.at.theta)
            w_error = norm(self.theta - self.at.w)  # both methods start with w_0 = theta_0
        if kernels.y_set is not None:
            ahead = kernels.y_set.prox(y + sigma * self.at.upper.f_y, sigma)
            y_error = min(norm(y - ahead) / (1 - t.rho_D), self.c["D_Y"])
        return Start(theta_error, w_error, y_error, self.drop)

    def direction(self, t: Tracking, gamma: float, begin: Start) -> float:
        """M >= |Gx_k| and |grad_x L|: the gradient plus the largest error that Lemma 4.8 allows at any k."""
        if self.gradient is not None:
            return float(self.gradient)
        c, smooth = self.c, self.smooth
        moved = gamma * c["D_X"]
        theta_error = begin.theta_error + moved * smooth.L_theta * t.beta / (1 - t.beta)
        w_error = t.rho * begin.w_error + t.C_tilde * theta_error / (1 - t.rho)
        w_error += t.rho / (1 - t.rho) * (smooth.C_v1 * moved + smooth.C_v2 * c["D_Y"])
        return self.steepest + t.C_tilde_2 * theta_error + c["C_thetax"] * w_error


def start_errors(problem: Problem, steps: StepSizes, start: Point, drop: Number | None = None) -> Start:
    """Start, from an accurate solve of the lower level; drop None is bounded by D_X sup |grad_x L|.

    |y_0 - y*_mu(x_0)| <= |y_0 - y+| / (1 - rho_D), y+ one exact ascent step from y_0, since the step contracts.
    """
    s, step = _Setting(problem, start, drop), step_numbers(steps)
    return s.errors(derive_tracking(s.c, s.smooth, step), step["sigma"])


def _bound(s: _Setting, steps: StepSizes, K: int, method: str) -> Bound:
    c, smooth, step = s.c, s.smooth, step_numbers(steps)
    t = derive_tracking(c, smooth, step)
    begin = s.errors(t, step["sigma"])
    total = derive_sums(c, smooth, t, step, begin)
    gamma, mu, sigma, tau = step["gamma"], step["mu"], step["sigma"], step["tau"]
    if not gamma > 0 or (method == "fp" and not tau > 0):
        raise ValueError(f"bound needs gamma > 0, and tau > 0 for fp, given gamma = {gamma}, tau = {tau}")
    if method == "opf":
        x_terms = {
            "start, (f(x_0) - min f) / (gamma K)": begin.drop / (gamma * K),
            "inner errors of the start, B_1 / K": total.B_1 / K,
            "length of the steps, gamma B_2 D_X^2": gamma * total.B_2 * c["D_X"] ** 2,
            "regularisation, mu D_Y^2 / (2 gamma K)": mu * c["D_Y"] ** 2 / (2 * gamma * K),
        }
    else:
        M = s.direction(t, gamma, begin)
        # the proof wants tau <= 1 / (2 L_L2 Gamma_2 + L_fmu gamma); a longer one costs its excess, as A_k <= tau M
        excess = max(0.0, 2 * smooth.L_L2 * total.Gamma_2 + t.L_fmu * gamma - 1 / tau)
        x_terms = {
            "start, 2 (f(x_0) - min f) / (tau gamma K)": 2 * begin.drop / (tau * gamma * K),
            "regularisation, mu D_Y^2 / (tau gamma K)": mu * c["D_Y"] ** 2 / (tau * gamma * K),
            "y at the start, 2 L_L2 Gamma_1 / (tau K)": 2 * smooth.L_L2 * total.Gamma_1 / (tau * K),
            "theta and w at the start, 4 M Gamma_6 / K": 4 * M * total.Gamma_6 / K,
            "length of the steps, 4 tau gamma M^2 B_4": 4 * tau * gamma * M**2 * total.B_4,
            "tau beyond 1 / (2 L_L2 Gamma_2 + L_fmu gamma)": excess * tau * M**2,
        }
    y_terms = {}
    if s.at.kernels.y_set is not None:
        y_sum, theta_sum = 1 / (1 - t.rho_D), 1 / (1 - t.beta)
        y_terms = {
            "y at the start, 2 |y_0 - y*_mu(x_0)| / (sigma (1 - rho_D) K)": 2 * begin.y_error * y_sum / (sigma * K),
            "length of the steps, gamma B_3 D_X": gamma * total.B_3 * c["D_X"],
            "theta at the start, (1 + 2 / (1 - rho_D)) L_ytheta |theta_0 - theta*(x_0)| / ((1 - beta) K)": (
                (1 + 2 * y_sum) * c["L_ytheta"] * theta_sum * begin.theta_error / K
            ),
            "regularisation, mu D_Y": mu * c["D_Y"],
        }
    return Bound(method, K, x_terms, y_terms)
