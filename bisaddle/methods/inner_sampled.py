"""BSA and AmIGO: inner loops of stochastic gradient steps before every step of x."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.base import About, Counts, counter, unaliased
from bisaddle.methods.double_loop import as_count, as_inner_steps
from bisaddle.methods.neumann import NeumannMethod, NeumannState
from bisaddle.methods.sampled import SampledMethod, SampledState, first_key, horizon, lower_step, step_keys
from bisaddle.problem import Point, Problem
from bisaddle.schedules import Schedule, StepSizes
from bisaddle.trees import Number


def _descend(
    method: SampledMethod, problem: Problem, x: PyTree, theta: PyTree, alpha: Array, count, key: Array
) -> PyTree:
    """theta after `count` stochastic gradient steps on g(x, .), each on a sample of its own."""

    def one(t, theta):
        g = method.sampler.for_lower(problem, jax.random.fold_in(key, t))
        return trees.add_scaled(theta, -alpha, oracle.lower_gradient(g, x, theta))

    return lax.fori_loop(0, count, one, theta)


class BSAState(NeumannState):
    """State with the number of gradients so far."""

    gradients: Array


class BSA(NeumannMethod):
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
    name: ClassVar[str] = "BSA"
    about: ClassVar[About] = About(
        problems=("bilevel",),
        x_oracle="project",
        loops="double",
        second_order="N - 1 HVPs + 1 cross, N about 9 kappa",
        complexity="eps^-4 upper, eps^-6 lower samples to a gradient norm of eps",
        steps="exponents of GW18, from 2 / (mu_g + L_g)",
        reference="GW18",
    )

    def used_steps(self) -> tuple[str, ...]:
        return ("alpha", "tau")

    def init(self, problem: Problem, start: Point) -> BSAState:
        self.check_start(problem, start)
        x, theta = unaliased(start.x), unaliased(start.theta)
        rest = (trees.zeros_like(theta), first_key(self.seed), counter(), counter())
        return BSAState(counter(), x, theta, None, *rest)

    def step(self, problem: Problem, state: BSAState) -> BSAState:  # pyright: ignore[reportIncompatibleMethodOverride]
        x = state.x
        steps = self.steps.at(state.k)
        keys = step_keys(state, 4)
        t_k = jnp.ceil(self.inner_steps(state.k)).astype(jnp.int32)
        theta = _descend(self, problem, x, state.theta, steps["alpha"], t_k, keys[0])
        Gx, _, v, products = self.hypergradient(problem, x, theta, None, keys[1:])
        x = problem.x_set.project(trees.add_scaled(x, -steps["tau"], Gx))
        rest = (v, state.key, state.products + products, state.gradients + t_k + 1)
        return BSAState(state.k + 1, x, theta, None, *rest)

    def counts(self, problem: Problem, state: BSAState) -> Counts:  # pyright: ignore[reportIncompatibleMethodOverride]
        k = int(state.k)
        return Counts(int(state.gradients), int(state.products), k, k, 0)

    @classmethod
    def with_default_steps(cls, problem: Problem, K: Number, nu: Number = 1.0, **options) -> "BSA":
        """alpha = 2 / (mu_g + L_g), tau = nu K^(-1/2), t_k = (k+1)^(1/2)  [GW18]."""
        K, nu = horizon(K, nu)
        return cls(StepSizes(alpha=lower_step(cls.name, problem), tau=nu * K ** (-1 / 2)), **options)


class AmIGO(SampledMethod):
    """Amortised implicit gradients: a few stochastic gradient steps on g and on the linear system, then one of x.

        theta+ = theta after inner_steps steps of theta <- theta - alpha g_theta(x, theta)
        w+     = w after linear_steps steps of w <- w - eta (g_theta_theta w - f_theta),  at (x, theta+),      w_0 = 0
        x+     = P_X(x - tau (f_x - g_theta_x w+))

    theta and w start from their last values. f is sampled once, every inner step has its own sample of g.
    Needs: a projection on x_set; alpha, eta, tau.
    Promises: the rates of exact gradients: |grad| <= eps in eps^-2 steps, eps^-4 samples; linear if F is strongly
    convex  [AM22].
    """

    inner_steps: int = eqx.field(static=True, default=10)
    linear_steps: int = eqx.field(static=True, default=10)
    name: ClassVar[str] = "AmIGO"
    about: ClassVar[About] = About(
        problems=("bilevel",),
        x_oracle="project",
        loops="double",
        second_order="linear_steps HVPs + 1 cross",
        complexity="eps^-2 (samples eps^-4) to a gradient norm of eps; linear if strongly convex",
        steps="alpha = eta = 2 / (mu_g + L_g); tau by hand",
        reference="AM22",
    )

    def used_steps(self) -> tuple[str, ...]:
        return ("alpha", "eta", "tau")

    def __check_init__(self):
        as_count(self.inner_steps, "inner_steps")
        as_count(self.linear_steps, "linear_steps")

    def init(self, problem: Problem, start: Point) -> SampledState:
        self.check_start(problem, start)
        x, theta = unaliased(start.x), unaliased(start.theta)
        return SampledState(counter(), x, theta, None, trees.zeros_like(theta), first_key(self.seed))

    def step(self, problem: Problem, state: SampledState) -> SampledState:  # pyright: ignore[reportIncompatibleMethodOverride]
        x = state.x
        steps = self.steps.at(state.k)
        keys = step_keys(state, 4)
        theta = _descend(self, problem, x, state.theta, steps["alpha"], self.inner_steps, keys[0])
        f_x, f_theta, _ = oracle.upper_gradients(self.sampler.for_upper(problem, keys[1]), x, theta, None)

        def one(t, w):
            g = self.sampler.for_lower(problem, jax.random.fold_in(keys[2], t))
            residual = trees.subtract(oracle.hessian_product(g, x, theta, w), f_theta)
            return trees.add_scaled(w, -steps["eta"], residual)

        w = lax.fori_loop(0, self.linear_steps, one, state.w)
        Gx = trees.subtract(f_x, oracle.cross_product(self.sampler.for_lower(problem, keys[3]), x, theta, w))
        x = problem.x_set.project(trees.add_scaled(x, -steps["tau"], Gx))
        return SampledState(state.k + 1, x, theta, None, w, state.key)

    def counts(self, problem: Problem, state: SampledState) -> Counts:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Counts(self.inner_steps + 1, self.linear_steps, 1, 1).times(int(state.k))

    @classmethod
    def with_default_steps(cls, problem: Problem, K: Number, nu: Number = 1.0, **options) -> "AmIGO":
        """alpha = eta = 2 / (mu_g + L_g), tau = nu  [AM22]."""
        _, nu = horizon(K, nu)
        lower = lower_step(cls.name, problem)
        return cls(StepSizes(alpha=lower, eta=lower, tau=nu), **options)
