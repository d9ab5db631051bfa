"""IBCG and SBFW: bilevel methods that move x by a linear minimisation oracle."""

from typing import ClassVar

import equinox as eqx
from jaxtyping import PyTree

from bisaddle import oracle, trees
from bisaddle.methods.base import About, Counts, Method, State, counter, require_steps, unaliased
from bisaddle.methods.momentum import corrected
from bisaddle.methods.neumann import NeumannMethod, NeumannState
from bisaddle.methods.sampled import as_rate, first_key, horizon, lower_step, step_keys
from bisaddle.oracle.validate import check_problem_at
from bisaddle.problem import Point, Problem
from bisaddle.schedules import Power, Schedule, StepSizes
from bisaddle.trees import Number


class IBCG(Method):
    """Inexact bilevel conditional gradient: OneSidedProjectionFree without the max player.

        w+     = w - eta (g_theta_theta w - f_theta),           w_0 = theta_0
        G      = f_x - g_theta_x w+
        x+     = gamma argmin_{u in X} <G, u> + (1 - gamma) x
        theta+ = theta - alpha g_theta(x+, theta)

    f_x, f_theta, g_theta_theta and g_theta_x at the old (x, theta). That w starts at theta_0 is as in AYH25; the start
    of the publication could not be confirmed.
    Needs: an LMO on x_set; alpha, eta, gamma.
    Promises: Frank-Wolfe gap <= eps in eps^-2 steps with gamma = K^(-1/2); F - min F <= eps in eps^-1 steps up to
    logarithms if F is convex, gamma = log K / K; alpha = 2 / (mu_g + L_g), eta below that  [AJMY23].
    """

    steps: StepSizes
    name: ClassVar[str] = "IBCG"
    about: ClassVar[About] = About(
        problems=("bilevel",),
        x_oracle="lmo",
        loops="single",
        second_order="1 HVP + 1 cross",
        complexity="eps^-2 to a Frank-Wolfe gap of eps; eps^-1 if F is convex",
        steps="AJMY23, nonconvex",
        reference="AJMY23",
    )

    def __check_init__(self):
        require_steps(self.name, self.steps, ("alpha", "eta", "gamma"), ())

    def init(self, problem: Problem, start: Point) -> State:
        check_problem_at(problem, start)
        self.check(problem)
        return State(counter(), unaliased(start.x), unaliased(start.theta), None, unaliased(start.theta))

    def step(self, problem: Problem, state: State) -> State:
        x, theta, w = state.x, state.theta, state.w
        steps = self.steps.at(state.k)
        f_x, f_theta, _ = oracle.upper_gradients(problem, x, theta, None)
        w = trees.add_scaled(w, -steps["eta"], trees.subtract(oracle.hessian_product(problem, x, theta, w), f_theta))
        G = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
        x = trees.mix(steps["gamma"], problem.x_set.lmo(G), x)
        theta = trees.add_scaled(theta, -steps["alpha"], oracle.lower_gradient(problem, x, theta))
        return State(state.k + 1, x, theta, None, w)

    def counts(self, problem: Problem, state: State) -> Counts:
        return Counts(gradients=2, hvps=1, cross_products=1, lmos=1).times(int(state.k))

    @classmethod
    def with_default_steps(cls, problem: Problem, K: Number, nu: Number = 1.0) -> "IBCG":
        """alpha = eta = 2 / (mu_g + L_g), gamma = nu K^(-1/2), at most 1  [AJMY23]."""
        K, nu = horizon(K, nu)
        lower = lower_step(cls.name, problem)
        return cls(StepSizes(alpha=lower, eta=lower, gamma=min(1.0, nu * K ** (-1 / 2))))


class SBFWState(NeumannState):
    """State with the last direction d and the point it was taken at."""

    d: PyTree
    old_x: PyTree
    old_theta: PyTree


class SBFW(NeumannMethod):
    """Stochastic bilevel Frank-Wolfe: a recursive gradient estimate, and a linear minimisation oracle for x.

        d      = Gx + (1 - momentum) (d_old - Gx_old),           Gx = f_x - g_theta_x v,    d = Gx at the first step
        v      = q sum_{j < N} (I - q g_theta_theta)^j f_theta,  q = 1 / L_g
        x+     = gamma argmin_{u in X} <d, u> + (1 - gamma) x
        theta+ = theta - alpha g_theta

    all at (x, theta), Gx_old at the point one step before on the same samples. That Gx is taken at the old theta, and
    not at theta+, is from memory. As published with a sampler and randomised=True.
    Needs: an LMO on x_set; alpha, gamma; momentum in (0, 1]; L_g, and mu_g or neumann_terms.
    Promises: Frank-Wolfe gap <= eps in eps^-4 samples; F - min F <= eps in eps^-3 if F is convex  [ABTR22].
    """

    momentum: Schedule = eqx.field(converter=lambda rate: as_rate(rate, "momentum"), kw_only=True)
    name: ClassVar[str] = "SBFW"
    about: ClassVar[About] = About(
        problems=("bilevel",),
        x_oracle="lmo",
        loops="single",
        second_order="2 (N - 1) HVPs + 2 cross, N about 9 kappa",
        complexity="eps^-4 samples to a Frank-Wolfe gap of eps; eps^-3 if F is convex",
        steps="exponents of ABTR22, nonconvex, from 2 / (mu_g + L_g)",
        reference="ABTR22",
    )

    def used_steps(self) -> tuple[str, ...]:
        return ("alpha", "gamma")

    def init(self, problem: Problem, start: Point) -> SBFWState:
        self.check_start(problem, start)
        x, theta, old_x, old_theta = (unaliased(tree) for tree in (start.x, start.theta, start.x, start.theta))
        rest = (trees.zeros_like(theta), first_key(self.seed), counter(), trees.zeros_like(x), old_x, old_theta)
        return SBFWState(counter(), x, theta, None, *rest)

    def step(self, problem: Problem, state: SBFWState) -> SBFWState:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, theta, k = state.x, state.theta, state.k
        steps = self.steps.at(k)
        keys = step_keys(state, 4)
        Gx, _, v, products = self.hypergradient(problem, x, theta, None, keys[1:])
        Gx_old, _, _, more = self.hypergradient(problem, state.old_x, state.old_theta, None, keys[1:])
        d = corrected(Gx, Gx_old, state.d, self.momentum(k), k)
        new_x = trees.mix(steps["gamma"], problem.x_set.lmo(d), x)
        g_theta = oracle.lower_gradient(self.sampler.for_lower(problem, keys[0]), x, theta)
        new_theta = trees.add_scaled(theta, -steps["alpha"], g_theta)
        rest = (v, state.key, state.products + products + more, d, x, theta)
        return SBFWState(k + 1, new_x, new_theta, None, *rest)

    def counts(self, problem: Problem, state: SBFWState) -> Counts:  # pyright: ignore[reportIncompatibleMethodOverride]
        k = int(state.k)
        return Counts(3 * k, int(state.products), 2 * k, 0, k)

    @classmethod
    def with_default_steps(cls, problem: Problem, K: Number, nu: Number = 1.0, **options) -> "SBFW":
        """alpha = 2 / (mu_g + L_g) (k+1)^(-1/2), momentum = (k+1)^(-1/2), gamma = nu K^(-3/4), at most 1  [ABTR22]."""
        K, nu = horizon(K, nu)
        steps = StepSizes(alpha=Power(lower_step(cls.name, problem), -1 / 2), gamma=min(1.0, nu * K ** (-3 / 4)))
        options.setdefault("momentum", Power(1.0, -1 / 2))
        return cls(steps, **options)
