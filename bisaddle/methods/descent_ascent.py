"""Gradient descent ascent and its single-loop kin: simultaneous, alternating, regularised (AGP), smoothed."""

from typing import ClassVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.methods.about import SADDLE
from bisaddle.methods.base import Counts, State, unaliased
from bisaddle.methods.saddle import SaddleMethod, gradients, lipschitz, numbers_of
from bisaddle.methods.stepped import ascend, descend
from bisaddle.problem import Constants, Problem
from bisaddle.schedules import Power, Schedule, StepSizes
from bisaddle.sets.base import Leaf, as_leaf, traced
from bisaddle.trees import Number


class CentredState(State):
    """State with y0, the centre of the regularisation."""

    y0: PyTree


class DescentAscent(SaddleMethod[CentredState]):
    """A step of x, and one of y that is regularised towards where y began if mu is given.

    alternating: whether f_y is taken at the new x.
    """

    alternating: ClassVar[bool] = False

    def first(self, problem: Problem, state: State) -> CentredState:
        return state.extended(CentredState, y0=unaliased(state.y))

    def moved(self, problem: Problem, x: PyTree, steps: dict[str, Array], f_x: PyTree) -> PyTree:
        """x after its step."""
        return descend(problem, x, steps["tau"], f_x)

    def step(self, problem: Problem, state: CentredState) -> CentredState:
        old_x, y, y0 = state.x, state.y, state.y0
        steps = self.steps.at(state.k)
        f_x, f_y = gradients(problem, old_x, y)
        x = self.moved(problem, old_x, steps, f_x)
        Gy = gradients(problem, x, y)[1] if self.alternating else f_y
        if "mu" in steps:
            Gy = trees.add_scaled(Gy, -steps["mu"], trees.subtract(y, y0))
        y = ascend(problem, y, steps["sigma"], Gy)
        return CentredState(state.k + 1, x, None, y, None, y0)


class GDA(DescentAscent):
    """Simultaneous gradient descent ascent, with a regularisation towards y0 where mu is given.

        x+ = P_X(x - tau f_x(x, y))
        y+ = P_Y(y + sigma (f_y(x, y) - mu (y - y0)))

    With mu it is FullyProjected with gamma = 1 on a problem without a lower level. On bilinear f without mu it circles
    outwards.
    Needs: projections on x_set and y_set; tau, sigma; mu if wanted.
    Promises: linear if strongly convex-concave, O(kappa^2 log 1/eps) steps; |grad max_y f| <= eps in O(kappa^2 eps^-2)
    steps if nonconvex-strongly-concave, O(eps^-6) if merely concave, with tau much smaller than sigma  [LJJ20]. The
    paper has X = R^n; the strongly convex rate is the textbook's of a projected strongly monotone operator.
    """

    about = SADDLE._replace(
        complexity="eps^-6 to |grad max_y f| <= eps; eps^-2 if strongly concave; linear if convex too",
        steps="GDA.from_constants: LJJ20; mu/L^2 if strongly convex too",
        reference="LJJ20",
    )
    each = Counts(gradients=1, projections=2)

    @classmethod
    def from_constants(cls, constants: Constants, *, mu_x: Number = 0.0) -> "GDA":
        """Constant steps, for f strongly concave in y; L is the Lipschitz constant of (f_x, f_y), kappa = L / mu_y.

        mu_x > 0     tau = sigma = min(mu_x, mu_y) / L^2
        else         tau = 1 / (16 (kappa + 1)^2 L),   sigma = 1 / L          [LJJ20, Theorem 4.4, from memory]
        """
        L, (mu_y,) = lipschitz(cls.name, constants), numbers_of(cls.name, constants, "mu_y")
        if not mu_y > 0:
            raise ValueError(
                f"GDA.from_constants needs mu_y > 0, given {mu_y}: with f merely concave in y no constant step "
                "converges; use AGP, SmoothedGDA, Extragradient or OptimisticGDA"
            )
        if mu_x > 0:
            step = min(float(mu_x), mu_y) / L**2
            return cls(StepSizes(tau=step, sigma=step))
        return cls(StepSizes(tau=1 / (16 * (L / mu_y + 1) ** 2 * L), sigma=1 / L))


class AlternatingGDA(DescentAscent):
    """Alternating gradient descent ascent: y answers the new x.

        x+ = P_X(x - tau f_x(x, y))
        y+ = P_Y(y + sigma (f_y(x+, y) - mu (y - y0)))

    The line of mu falls away where it is not given.
    Needs: projections on x_set and y_set; tau, sigma; mu if wanted.
    Promises: linear, near-optimal O(kappa log 1/eps) steps locally, if strongly convex-concave without active
    constraints  [ZWLG22]; bounded but not convergent on bilinear f. The default step 1 / (2 L) is from memory.
    """

    about = SADDLE._replace(
        complexity="kappa log(1/eps) locally, to a distance of eps, if strongly convex-concave",
        steps="AlternatingGDA.from_constants: 1/(2 L) (ZWLG22)",
        reference="ZWLG22",
    )
    alternating = True
    each = Counts(gradients=2, projections=2)


class AGP(SaddleMethod[State]):
    """Alternating gradient projection: regularisations towards 0 that fade out.

        x+ = P_X(x - tau (f_x(x, y) + b x))                        tau = 1 / beta_k,   b = b_k
        y+ = P_Y(y + sigma (f_y(x+, y) - mu y))                    sigma = 1 / gamma_k,   mu = c_k

    In the paper's cases: nonconvex-strongly-concave b = mu = 0 and constant steps; nonconvex-concave b = 0, sigma
    constant, mu ~ k^(-1/4), tau ~ k^(-1/2), which AGP.from_constants gives; convex-nonconcave the same with the parts
    of x and y exchanged, which is what b is for. Centre and decay differ from the mu of FullyProjected.
    Needs: projections on x_set and y_set; tau, sigma, mu; b, a number, Schedule or function of k (0 unless given).
    Promises: gradient mapping <= eps in O(eps^-4) steps if nonconvex-concave, O(eps^-2) if strongly concave  [XZXL23].
    The update order and the exponents are from memory, the complexities from the abstract.
    """

    b: Schedule | None = eqx.field(converter=lambda value: StepSizes(mu=value).mu, default=None)
    needs = ("tau", "sigma", "mu")
    about = SADDLE._replace(
        complexity="eps^-4 to a gradient mapping of eps; eps^-2 if strongly concave in y",
        steps="AGP.from_constants: exponents of XZXL23, constants ours",
        reference="XZXL23",
    )
    each = Counts(gradients=2, projections=2)

    def step(self, problem: Problem, state: State) -> State:
        x, y = state.x, state.y
        steps = self.steps.at(state.k)
        Gx = gradients(problem, x, y)[0]
        if self.b is not None:
            Gx = trees.add_scaled(Gx, self.b(state.k), x)
        x = descend(problem, x, steps["tau"], Gx)
        Gy = trees.add_scaled(gradients(problem, x, y)[1], -steps["mu"], y)
        y = ascend(problem, y, steps["sigma"], Gy)
        return State(state.k + 1, x, None, y, None)

    @classmethod
    def from_constants(cls, constants: Constants) -> "AGP":
        """Constant steps if mu_y > 0, fading ones else; the exponents are the paper's, the constants ours.

        mu_y > 0     tau = 1 / (16 (kappa + 1)^2 L),   sigma = 1 / (2 L),   mu = 0
        mu_y = 0     tau = (k + 1)^(-1/2) / (8 L),     sigma = 1 / (2 L),   mu = L (k + 1)^(-1/4)
        """
        L, (mu_y,) = lipschitz(cls.name, constants), numbers_of(cls.name, constants, "mu_y")
        if mu_y > 0:
            return cls(StepSizes(tau=1 / (16 * (L / mu_y + 1) ** 2 * L), sigma=1 / (2 * L), mu=0.0))
        return cls(StepSizes(tau=Power(1 / (8 * L), -1 / 2), sigma=1 / (2 * L), mu=Power(L, -1 / 4)))


class SmoothedState(State):
    """State with z, the slow average of x."""

    z: PyTree


class SmoothedGDA(SaddleMethod[SmoothedState]):
    """Alternating GDA on f + p/2 |x - z|^2, z following x slowly.

        x+ = P_X(x - tau (f_x(x, y) + p (x - z))),                 z_0 = x_0
        y+ = P_Y(y + sigma f_y(x+, y))
        z+ = z + beta (x+ - z)

    tau and sigma are the paper's c and alpha. Order as in the authors' code.
    Needs: projections on x_set and y_set; tau, sigma; p >= 0; 0 < beta <= 1.
    Promises: eps-stationary in O(eps^-4) steps if nonconvex-concave (with beta = O(eps^2)), in O(eps^-2) for the
    maximum of finitely many functions  [ZXSL20]; the rates are from the abstract, the conditions of from_constants from
    memory.
    """

    p: Leaf = eqx.field(converter=lambda v: as_leaf(v, "SmoothedGDA p"))
    beta: Leaf = eqx.field(converter=lambda v: as_leaf(v, "SmoothedGDA beta"))
    about = SADDLE._replace(
        complexity="eps^-4 to a gap of eps; eps^-2 for the maximum of finitely many functions",
        steps="SmoothedGDA.from_constants: conditions of ZXSL20",
        reference="ZXSL20",
    )
    each = Counts(gradients=2, projections=2)

    def __check_init__(self):
        for name, value in (("p", self.p), ("beta", self.beta)):
            if traced(value) or value.ndim:
                continue
            number = float(np.asarray(value))
            if not np.isfinite(number) or not (number >= 0 if name == "p" else 0 < number <= 1):
                allowed = ">= 0" if name == "p" else "in (0, 1]"
                raise ValueError(f"SmoothedGDA: {name} must be a finite number {allowed}, given {number}")

    def first(self, problem: Problem, state: State) -> SmoothedState:
        return state.extended(SmoothedState, z=unaliased(state.x))

    def step(self, problem: Problem, state: SmoothedState) -> SmoothedState:
        x, y, z = state.x, state.y, state.z
        steps = self.steps.at(state.k)
        Gx = trees.add_scaled(gradients(problem, x, y)[0], self.p, trees.subtract(x, z))
        x = descend(problem, x, steps["tau"], Gx)
        y = ascend(problem, y, steps["sigma"], gradients(problem, x, y)[1])
        z = trees.add_scaled(z, self.beta, trees.subtract(x, z))
        return SmoothedState(state.k + 1, x, None, y, None, z)

    @classmethod
    def from_constants(cls, constants: Constants) -> "SmoothedGDA":
        """The largest values, halved, that the paper's conditions allow for p = 4 L.

            c < 1 / (p + L),     alpha < min{1 / (11 L), c^2 (p - L)^2 / (4 L (1 + c (p - L))^2)}
            beta <= min{1/36, (p - L)^2 / (384 alpha p (p + L)^2)}

        From memory; without alpha in the last fraction, as some notes have it, the units do not fit.
        """
        L = lipschitz(cls.name, constants)
        p = 4 * L
        c = 0.5 / (p + L)
        alpha = 0.5 * min(1 / (11 * L), (c * (p - L)) ** 2 / (4 * L * (1 + c * (p - L)) ** 2))
        beta = 0.5 * min(1 / 36, (p - L) ** 2 / (384 * alpha * p * (p + L) ** 2))
        return cls(StepSizes(tau=c, sigma=alpha), p=p, beta=beta)
