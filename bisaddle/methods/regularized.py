"""The paper's two methods: inexact bilevel regularised primal-dual (i-BRPD), Algorithms 1 and 2."""

from typing import Any, ClassVar

from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL_SADDLE
from bisaddle.methods.base import Counts, State, unaliased
from bisaddle.methods.sampled import SampledMethod, SampledState, step_keys
from bisaddle.methods.stepped import ascend, descend
from bisaddle.problem import Problem


class RegularizedState(SampledState):
    """State with the key of the samples and y0, the centre of the regularisation."""

    y0: PyTree


class _RegularizedPrimalDual(SampledMethod[RegularizedState]):
    """What Algorithms 1 and 2 share: everything but the point s towards which x moves."""

    lower_needs = ("alpha", "eta")
    ascent_needs = ("sigma", "mu")
    in_theory: ClassVar[str]  # the name that theory.steps_for has for the method

    def target(self, problem: Problem, x: PyTree, Gx: PyTree, steps: dict[str, Array]) -> PyTree:
        """s, the point towards which x moves."""
        raise NotImplementedError

    def first(self, problem: Problem, state: State) -> RegularizedState:
        return self.keyed(state, RegularizedState, y0=unaliased(state.y))

    def first_w(self, theta: PyTree) -> PyTree:
        return unaliased(theta)

    def step(self, problem: Problem, state: RegularizedState) -> RegularizedState:
        x, theta, y, w, y0 = state.x, state.theta, state.y, state.w, state.y0
        steps = self.steps.at(state.k)
        f, *g = self.sampled(problem, state)
        f_x, f_theta, f_y = oracle.upper_gradients(f, x, theta, y)
        if problem.lower is None:
            Gx = f_x
        else:
            residual = trees.subtract(oracle.hessian_product(g[0], x, theta, w), f_theta)
            w = trees.add_scaled(w, -steps["eta"], residual)
            Gx = trees.subtract(f_x, oracle.cross_product(g[1], x, theta, w))
        s = self.target(problem, x, Gx, steps)
        x = trees.mix(steps["gamma"], s, x)
        if problem.lower is not None:
            theta = trees.add_scaled(theta, -steps["alpha"], oracle.lower_gradient(g[2], x, theta))
        if problem.y_set is not None:
            Gy = trees.add_scaled(f_y, -steps["mu"], trees.subtract(y, y0))
            y = ascend(problem, y, steps["sigma"], Gy)
        return RegularizedState(state.k + 1, x, theta, y, w, state.key, y0)

    def sampled(self, problem: Problem, state: RegularizedState) -> list[Problem]:
        """The problem as sampled for f, for g_theta_theta, for g_theta_x and for g_theta."""
        if self.sampler.everything:
            return 4 * [problem]
        f, *g = step_keys(state, 4)
        return [self.sampler.for_upper(problem, f), *(self.sampler.for_lower(problem, key) for key in g)]

    def per_step(self, problem: Problem) -> Counts:
        lower, ascent = problem.lower is not None, problem.y_set is not None
        projects = self.about.x_oracle == "project"
        return Counts(1 + lower, int(lower), int(lower), int(projects) + ascent, int(not projects))

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """Those of section 6  [AYH25]."""
        from bisaddle.theory.steps import steps_for  # slow to load, and of no use to a run

        return steps_for(problem, cls.in_theory, K=K, regime="experiment", nu=nu).steps.given


class OneSidedProjectionFree(_RegularizedPrimalDual):
    """x moves by a linear minimisation oracle, y by projection (i-BRPD:OPF, Algorithm 1).

        w+     = w - eta (g_theta_theta w - f_theta),           w_0 = theta_0
        Gx     = f_x - g_theta_x w+
        s      = argmin_{u in X} <Gx, u>,                       x+ = gamma s + (1 - gamma) x
        theta+ = theta - alpha g_theta(x+, theta)
        y+     = P_Y(y + sigma (f_y - mu (y - y0)))

    P_Y is prox_{sigma h} where y_set has a penalty h; the problem is then min_x max_y f - h.
    f_x, f_theta, f_y, g_theta_theta and g_theta_x are taken at the old (x, theta, y). Without a lower level there
    are no lines for w and theta, and Gx = f_x; without a max player there is none for y. sampler: f, g_theta_theta,
    g_theta_x and g_theta each use a mini-batch of their own (not in the paper); seed: draws the batches.
    Needs: an LMO on x_set, a projection on y_set; gamma; alpha, eta with a lower level; sigma, mu with y.
    Promises: gap <= eps in O(kappa^3 eps^-4) steps; O(kappa^4 eps^-3) if f is linear in y  [AYH25, Cor. 5.2-5.3].
    """

    about = BILEVEL_SADDLE._replace(
        problems=("bilevel saddle", "saddle", "bilevel"),
        x_oracle="lmo",
        complexity="eps^-4 to a gap of eps; eps^-3 if f is linear in y",
        steps="theory.steps_for: Corollaries 5.2 and 5.3",
        reference="AYH25",
    )
    needs = ("gamma",)
    in_theory = "opf"

    def target(self, problem: Problem, x: PyTree, Gx: PyTree, steps: dict[str, Array]) -> PyTree:
        return problem.x_set.lmo(Gx)


class FullyProjected(_RegularizedPrimalDual):
    """x and y move by projections, and x is averaged (i-BRPD:FP, Algorithm 2).

        w+     = w - eta (g_theta_theta w - f_theta),           w_0 = theta_0
        Gx     = f_x - g_theta_x w+
        s      = P_X(x - tau Gx),                               x+ = gamma s + (1 - gamma) x
        theta+ = theta - alpha g_theta(x+, theta)
        y+     = P_Y(y + sigma (f_y - mu (y - y0)))

    Everything else is as in OneSidedProjectionFree: P_Y, where derivatives are taken, a missing lower level or max
    player, sampler, seed.
    Needs: projections on x_set and y_set; gamma, tau; alpha, eta with a lower level; sigma, mu with y.
    Promises: gap <= eps in O(kappa^3 eps^-5) steps; O(kappa^3 eps^-4) if strongly concave in y  [AYH25, Cor. 5.5-5.6].
    """

    about = BILEVEL_SADDLE._replace(
        problems=("bilevel saddle", "saddle", "bilevel"),
        complexity="eps^-5 to a gap of eps; eps^-4 if f is strongly concave in y",
        steps="theory.steps_for: Corollaries 5.5 and 5.6",
        reference="AYH25",
    )
    needs = ("gamma", "tau")
    in_theory = "fp"

    def target(self, problem: Problem, x: PyTree, Gx: PyTree, steps: dict[str, Array]) -> PyTree:
        return descend(problem, x, steps["tau"], Gx)
