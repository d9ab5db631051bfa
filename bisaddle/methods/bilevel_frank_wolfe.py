"""IBCG and SBFW: bilevel methods that move x by a linear minimisation oracle."""

from typing import Any

from jaxtyping import PyTree

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL
from bisaddle.methods.base import Counts, State, unaliased
from bisaddle.methods.momentum import RecursiveMethod, RecursiveState
from bisaddle.methods.sampled import step_keys
from bisaddle.methods.stepped import SteppedMethod
from bisaddle.problem import Problem
from bisaddle.schedules import Power


class IBCG(SteppedMethod[State]):
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

    about = BILEVEL._replace(
        x_oracle="lmo",
        complexity="eps^-2 to a Frank-Wolfe gap of eps; eps^-1 if F is convex",
        steps="AJMY23, nonconvex",
        reference="AJMY23",
    )
    needs = ("alpha", "eta", "gamma")
    each = Counts(gradients=2, hvps=1, cross_products=1, lmos=1)

    def first_w(self, theta: PyTree) -> PyTree:
        return unaliased(theta)

    def step(self, problem: Problem, state: State) -> State:
        x, theta, w = state.x, state.theta, state.w
        steps = self.steps.at(state.k)
        f_x, f_theta, _ = oracle.upper_gradients(problem, x, theta, None)
        w = trees.add_scaled(w, -steps["eta"], trees.subtract(oracle.hessian_product(problem, x, theta, w), f_theta))
        G = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
        x = trees.mix(steps["gamma"], problem.x_set.lmo(G), x)
        theta = trees.add_scaled(theta, -steps["alpha"], oracle.lower_gradient(problem, x, theta))
        return State(state.k + 1, x, theta, None, w)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = eta = 2 / (mu_g + L_g), gamma = nu K^(-1/2), at most 1  [AJMY23]."""
        lower = cls.lower_step(problem)
        return {"alpha": lower, "eta": lower, "gamma": min(1.0, nu * K ** (-1 / 2))}


class SBFW(RecursiveMethod[RecursiveState]):
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

    about = BILEVEL._replace(
        x_oracle="lmo",
        second_order="2 (N - 1) HVPs + 2 cross, N about 9 kappa",
        complexity="eps^-4 samples to a Frank-Wolfe gap of eps; eps^-3 if F is convex",
        steps="exponents of ABTR22, nonconvex, from 2 / (mu_g + L_g)",
        reference="ABTR22",
    )
    needs = ("alpha", "gamma")
    each = Counts(gradients=3, cross_products=2, lmos=1)

    def first(self, problem: Problem, state: State) -> RecursiveState:
        return self.begun(state, RecursiveState)

    def step(self, problem: Problem, state: RecursiveState) -> RecursiveState:
        x, theta, k = state.x, state.theta, state.k
        steps = self.steps.at(k)
        keys = step_keys(state, 4)
        d, v, products = self.direction(problem, state, keys[1:])
        new_x = trees.mix(steps["gamma"], problem.x_set.lmo(d), x)
        g_theta = oracle.lower_gradient(self.sampler.for_lower(problem, keys[0]), x, theta)
        new_theta = trees.add_scaled(theta, -steps["alpha"], g_theta)
        return RecursiveState(k + 1, new_x, new_theta, None, v, state.key, products, d, x, theta)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = 2 / (mu_g + L_g) (k+1)^(-1/2), momentum = (k+1)^(-1/2), gamma = nu K^(-3/4), at most 1  [ABTR22]."""
        alpha, gamma = Power(cls.lower_step(problem), -1 / 2), min(1.0, nu * K ** (-3 / 4))
        return {"alpha": alpha, "gamma": gamma, "momentum": Power(1.0, -1 / 2)}
