"""BSA and AmIGO: inner loops of stochastic gradient steps before every step of x."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL, SERIES
from bisaddle.methods.base import Counts, State, counter
from bisaddle.methods.double_loop import as_inner_steps, lower_descent, whole
from bisaddle.methods.neumann import NeumannMethod, NeumannState
from bisaddle.methods.sampled import SampledMethod, SampledState, step_keys
from bisaddle.methods.stepped import descend
from bisaddle.problem import Problem
from bisaddle.schedules import Schedule


class BSAState(NeumannState):
    """State with the number of gradients so far."""

    gradients: Array

    @property
    def counted(self) -> dict[str, int]:
        return super().counted | {"gradients": int(self.gradients)}


class BSA(NeumannMethod[BSAState]):
    """Bilevel stochastic approximation: more and more stochastic gradient steps on g, a Neumann series, a step of x.

        theta+ = theta after t_k steps of theta <- theta - alpha g_theta(x, theta),     t_k = inner_steps(k), rounded up
        v      = q sum_{j < N} (I - q g_theta_theta)^j f_theta,    q = 1 / L_g,    from here on all at (x, theta+)
        x+     = P_X(x - tau (f_x - g_theta_x v))

    inner_steps: a number or a function of k; None is (k+1)^(1/2). As published with a sampler and randomised=True, but
    that alpha does not fall within an inner loop. theta starts from its last value.
    Needs: a projection on x_set; alpha, tau; L_g, and mu_g or neumann_terms.
    Promises: |grad| <= eps in eps^-4 samples of f and eps^-6 of g  [GW18].
    """

    inner_steps: Schedule = eqx.field(converter=lambda steps: as_inner_steps(steps, 1 / 2), default=None, kw_only=True)
    about = BILEVEL._replace(
        loops="double",
        second_order=SERIES,
        complexity="eps^-4 upper, eps^-6 lower samples to a gradient norm of eps",
        steps="exponents of GW18, from 2 / (mu_g + L_g)",
        reference="GW18",
    )
    needs = ("alpha", "tau")
    each = Counts(cross_products=1, projections=1)

    def first(self, problem: Problem, state: State) -> BSAState:
        return self.keyed(state, BSAState, products=counter(), gradients=counter())

    def step(self, problem: Problem, state: BSAState) -> BSAState:
        x = state.x
        steps = self.steps.at(state.k)
        keys = step_keys(state, 4)
        t_k = jnp.ceil(self.inner_steps(state.k)).astype(jnp.int32)
        theta = lower_descent(self.lower_samples(problem, keys[0]), x, state.theta, steps["alpha"], t_k)
        Gx, _, v, products = self.hypergradient(problem, x, theta, None, keys[1:])
        x = descend(problem, x, steps["tau"], Gx)
        rest = (v, state.key, state.products + products, state.gradients + t_k + 1)
        return BSAState(state.k + 1, x, theta, None, *rest)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = 2 / (mu_g + L_g), tau = nu K^(-1/2), t_k = (k+1)^(1/2)  [GW18]."""
        return {"alpha": cls.lower_step(problem), "tau": nu * K ** (-1 / 2)}


class AmIGO(SampledMethod[SampledState]):
    """Amortised implicit gradients: a few stochastic gradient steps on g and on the linear system, then one of x.

        theta+ = theta after inner_steps steps of theta <- theta - alpha g_theta(x, theta)
        w+     = w after linear_steps steps of w <- w - eta (g_theta_theta w - f_theta),  at (x, theta+),      w_0 = 0
        x+     = P_X(x - tau (f_x - g_theta_x w+))

    theta and w start from their last values. f is sampled once, every inner step has its own sample of g.
    Needs: a projection on x_set; alpha, eta, tau.
    Promises: the rates of exact gradients: |grad| <= eps in eps^-2 steps, eps^-4 samples; linear if F is strongly
    convex  [AM22].
    """

    inner_steps: int = eqx.field(static=True, converter=whole("inner_steps"), default=10)
    linear_steps: int = eqx.field(static=True, converter=whole("linear_steps"), default=10)
    about = BILEVEL._replace(
        loops="double",
        second_order="linear_steps HVPs + 1 cross",
        complexity="eps^-2 (samples eps^-4) to a gradient norm of eps; linear if strongly convex",
        steps="alpha = eta = 2 / (mu_g + L_g); tau by hand",
        reference="AM22",
    )
    needs = ("alpha", "eta", "tau")

    def first(self, problem: Problem, state: State) -> SampledState:
        return self.keyed(state, SampledState)

    def step(self, problem: Problem, state: SampledState) -> SampledState:
        x = state.x
        steps = self.steps.at(state.k)
        keys = step_keys(state, 4)
        lower_samples = self.lower_samples(problem, keys[0])
        theta = lower_descent(lower_samples, x, state.theta, steps["alpha"], self.inner_steps)
        f_x, f_theta, _ = oracle.upper_gradients(self.sampler.for_upper(problem, keys[1]), x, theta, None)

        linear_samples = self.lower_samples(problem, keys[2])

        def one(t, w):
            residual = trees.subtract(oracle.hessian_product(linear_samples(t), x, theta, w), f_theta)
            return trees.add_scaled(w, -steps["eta"], residual)

        w = lax.fori_loop(0, self.linear_steps, one, state.w)
        Gx = trees.subtract(f_x, oracle.cross_product(self.sampler.for_lower(problem, keys[3]), x, theta, w))
        x = descend(problem, x, steps["tau"], Gx)
        return SampledState(state.k + 1, x, theta, None, w, state.key)

    def per_step(self, problem: Problem) -> Counts:
        return Counts(self.inner_steps + 1, self.linear_steps, 1, 1)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = eta = 2 / (mu_g + L_g), tau = nu  [AM22]."""
        lower = cls.lower_step(problem)
        return {"alpha": lower, "eta": lower, "tau": nu}
