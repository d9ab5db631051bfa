"""First-order penalty methods: no second derivative, the lower level enters as c (g(x, .) - min g(x, .))."""

from typing import Any

import equinox as eqx
import jax
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL, BILEVEL_SADDLE
from bisaddle.methods.base import Counts, State, unaliased
from bisaddle.methods.double_loop import whole
from bisaddle.methods.sampled import SampledMethod, SampledState, step_keys
from bisaddle.methods.stepped import ascend, descend
from bisaddle.problem import Problem
from bisaddle.schedules import Power, Schedule, as_schedule


def _as_penalty(value) -> Schedule:
    schedule = as_schedule(value)
    if schedule is None or (isinstance(value, float | int) and not 0 < value < float("inf")):
        raise ValueError(f"penalty must be a number > 0 or a function of k, given {value}")
    return schedule


class PenaltyState(SampledState):
    """State with p, which tracks argmin_p f(x, p, y) + c g(x, p); theta tracks theta*(x)."""

    p: PyTree


class _Penalty(SampledMethod[PenaltyState]):
    """What the two share: theta and p by gradient steps, x along the difference of g_x at the two."""

    penalty: Schedule = eqx.field(converter=_as_penalty)

    def first(self, problem: Problem, state: State) -> PenaltyState:
        return self.keyed(state, PenaltyState, p=unaliased(state.theta))

    def first_w(self, theta: PyTree) -> PyTree:
        return None

    def inner(
        self, problem: Problem, state: PenaltyState, key: Array, theta: PyTree, p: PyTree
    ) -> tuple[PyTree, PyTree]:
        """One gradient step for theta and one for p, each gradient on a sample of its own."""
        x, y = state.x, state.y
        steps, c = self.steps.at(state.k), self.penalty(state.k)
        theta_key, p_key, f_key = jax.random.split(key, 3)
        g_theta = oracle.lower_gradient(self.sampler.for_lower(problem, theta_key), x, theta)
        f_p = oracle.upper_gradients(self.sampler.for_upper(problem, f_key), x, p, y)[1]
        g_p = oracle.lower_gradient(self.sampler.for_lower(problem, p_key), x, p)
        theta = trees.add_scaled(theta, -steps["alpha"], g_theta)
        return theta, trees.add_scaled(p, -steps["eta"], trees.add_scaled(f_p, c, g_p))

    def outer(
        self, problem: Problem, state: PenaltyState, keys: Array, theta: PyTree, p: PyTree
    ) -> tuple[PyTree, PyTree]:
        """x after its step, and f_y, both at (x, theta, p, y)."""
        x, y = state.x, state.y
        steps, c = self.steps.at(state.k), self.penalty(state.k)
        f_x, _, f_y = oracle.upper_gradients(self.sampler.for_upper(problem, keys[0]), x, p, y)
        at_p = oracle.lower_x_gradient(self.sampler.for_lower(problem, keys[1]), x, p)
        at_theta = oracle.lower_x_gradient(self.sampler.for_lower(problem, keys[2]), x, theta)
        Gx = trees.add_scaled(f_x, c, trees.subtract(at_p, at_theta))
        return descend(problem, x, steps["tau"], Gx), f_y


class F2SA(_Penalty):
    """Fully first-order stochastic approximation: a penalty c_k on the lower level that grows.

        theta <- theta - alpha g_theta(x, theta),  p <- p - eta (f_theta(x, p) + c_k g_theta(x, p)),  inner_steps times
        x+    = P_X(x - tau (f_x(x, p+) + c_k (g_x(x, p+) - g_x(x, theta+))))

    penalty: c_k, a number or a function of k. theta is the publication's z and p its y, and tau its xi alpha_k; p_0 =
    theta_0. The publication has no P_X. A constant c leaves a bias of order 1 / c.
    Needs: a projection on x_set; alpha, eta, tau; penalty, with eta c_k below 2 / L_g.
    Promises: |grad| <= eps in eps^-7 samples with c_k ~ k^(1/7), eps^-3 steps up to logarithms without noise,
    c_k ~ k^(1/3)  [KKWN23].
    """

    inner_steps: int = eqx.field(static=True, converter=whole("inner_steps"), default=1)
    about = BILEVEL._replace(
        loops="double",
        second_order="none",
        complexity="eps^-7 samples to a gradient norm of eps; eps^-3 without noise",
        steps="exponents of KKWN23, without noise, from 2 / (mu_g + L_g)",
        reference="KKWN23",
    )
    needs = ("alpha", "eta", "tau")

    def step(self, problem: Problem, state: PenaltyState) -> PenaltyState:
        keys = step_keys(state, 4)
        theta, p = lax.fori_loop(
            0,
            self.inner_steps,
            lambda t, both: self.inner(problem, state, jax.random.fold_in(keys[3], t), *both),
            (state.theta, state.p),
        )
        x, _ = self.outer(problem, state, keys[:3], theta, p)
        return PenaltyState(state.k + 1, x, theta, None, None, state.key, p)

    def per_step(self, problem: Problem) -> Counts:
        return Counts(gradients=3 * self.inner_steps + 3, projections=1)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = 2 / (mu_g + L_g), c_k = (k+1)^(1/3), eta = alpha / (2 c_k), tau = nu (k+1)^(-1/3)  [KKWN23].

        The publication wants c_0 >= 2 L_f / mu_g: give penalty, and eta with it, where f is steep.
        """
        lower, tau = cls.lower_step(problem), Power(nu, -1 / 3)
        return {"alpha": lower, "eta": Power(lower / 2, -1 / 3), "tau": tau, "penalty": Power(1.0, 1 / 3)}


class FirstOrderPenalty(_Penalty):
    """A fully first-order single loop for saddle problems with bilevel structure, by a penalty c on the lower level.

        theta+ = theta - alpha g_theta(x, theta)
        p+     = p - eta (f_theta(x, p, y) + c g_theta(x, p)),                         p_0 = theta_0
        x+     = P_X(x - tau (f_x(x, p+, y) + c (g_x(x, p+) - g_x(x, theta+))))
        y+     = P_Y(y + sigma f_y(x, p+, y))

    Derived, not published: F2SA with a max player, in the spirit of FOSL, whose own equations could not be read.
    penalty: c, a number or a function of k; a constant leaves a bias of order 1 / c. The lags of theta and p behind a
    moving x cancel in the line of x where alpha = eta c.
    Needs: projections on x_set and y_set; alpha, eta, tau, sigma; penalty, with eta c below 2 / L_g.
    Promises: nothing is proved of it here; FOSL is analysed for the same problems in  [YSLJ24].
    """

    about = BILEVEL_SADDLE._replace(
        second_order="none",
        complexity="none known: derived, not published",
        steps="as F2SA, sigma = tau; derived",
        reference="YSLJ24",
    )
    needs = ("alpha", "eta", "tau", "sigma")
    each = Counts(gradients=6, projections=2)

    def step(self, problem: Problem, state: PenaltyState) -> PenaltyState:
        sigma = self.steps.at(state.k)["sigma"]
        keys = step_keys(state, 4)
        theta, p = self.inner(problem, state, keys[3], state.theta, state.p)
        x, f_y = self.outer(problem, state, keys[:3], theta, p)
        y = ascend(problem, state.y, sigma, f_y)
        return PenaltyState(state.k + 1, x, theta, y, None, state.key, p)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = 1 / (mu_g + L_g), c = (k+1)^(1/3), eta = alpha / c, tau = sigma = nu (k+1)^(-1/3): derived."""
        lower, slow = cls.lower_step(problem) / 2, Power(nu, -1 / 3)
        eta, penalty = Power(lower, -1 / 3), Power(1.0, 1 / 3)
        return {"alpha": lower, "eta": eta, "tau": slow, "sigma": slow, "penalty": penalty}
