"""FSLA and SUSTAIN: bilevel methods whose directions carry a recursive (STORM) correction."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.base import About, Counts, counter, unaliased
from bisaddle.methods.neumann import NeumannMethod, NeumannState
from bisaddle.methods.sampled import SampledMethod, SampledState, as_rate, first_key, horizon, lower_step, step_keys
from bisaddle.problem import Point, Problem
from bisaddle.schedules import Power, Schedule, StepSizes
from bisaddle.trees import Number


def corrected(new: PyTree, old: PyTree, last: PyTree, rate: Number, k: Array) -> PyTree:
    """new + (1 - rate) (last - old), where last is the direction of the step before; `new` at the first step."""
    keep = jnp.where(k == 0, 0.0, 1 - jnp.asarray(rate))
    return trees.add_scaled(new, keep, trees.subtract(last, old))


class FSLAState(SampledState):
    """State with the last direction d of x and the x it was taken at."""

    d: PyTree
    old_x: PyTree


class FSLA(SampledMethod):
    """Fully single-loop algorithm: one step on the linear system, and momentum with correction on x.

        theta+ = theta - alpha g_theta(x, theta)
        w+     = w - eta (g_theta_theta w - f_theta)               at (x, theta+),         w_0 = 0
        G      = f_x - g_theta_x w+                                at (x, theta+)
        d      = G + (1 - momentum) (d_old - G_old),               d = G at the first step
        x+     = P_X(x - tau d)

    G_old: at (x_old, theta, w) on the sample of G, x_old being x one step before. momentum = 1 is no momentum: FSLA is
    then SOBA in another order, for SOBA moves theta, w and x at once from the old point, and FSLA w from theta+ and x
    from theta+ and w+; the fixed points are the same. The publication has eta = alpha and no P_X.
    Needs: a projection on x_set; alpha, eta, tau; momentum in (0, 1].
    Promises: |grad| <= eps in eps^-4 steps of size k^(-1/2)  [LGH22].
    """

    momentum: Schedule = eqx.field(converter=lambda rate: as_rate(rate, "momentum"), kw_only=True)
    name: ClassVar[str] = "FSLA"
    about: ClassVar[About] = About(
        problems=("bilevel",),
        x_oracle="project",
        loops="single",
        second_order="1 HVP + 2 cross",
        complexity="eps^-4 samples to a gradient norm of eps",
        steps="exponents of LGH22, from 2 / (mu_g + L_g)",
        reference="LGH22",
    )

    def used_steps(self) -> tuple[str, ...]:
        return ("alpha", "eta", "tau")

    def init(self, problem: Problem, start: Point) -> FSLAState:
        self.check_start(problem, start)
        x, theta, old_x = unaliased(start.x), unaliased(start.theta), unaliased(start.x)
        rest = (trees.zeros_like(theta), first_key(self.seed), trees.zeros_like(x), old_x)
        return FSLAState(counter(), x, theta, None, *rest)

    def step(self, problem: Problem, state: FSLAState) -> FSLAState:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, theta, w = state.x, state.theta, state.w
        steps = self.steps.at(state.k)
        keys = step_keys(state, 4)
        g, g_hess, g_cross = (self.sampler.for_lower(problem, key) for key in keys[:3])
        f = self.sampler.for_upper(problem, keys[3])
        G_old = _direction(f, g_cross, state.old_x, theta, w)
        theta = trees.add_scaled(theta, -steps["alpha"], oracle.lower_gradient(g, x, theta))
        f_x, f_theta, _ = oracle.upper_gradients(f, x, theta, None)
        residual = trees.subtract(oracle.hessian_product(g_hess, x, theta, w), f_theta)
        w = trees.add_scaled(w, -steps["eta"], residual)
        G = trees.subtract(f_x, oracle.cross_product(g_cross, x, theta, w))
        d = corrected(G, G_old, state.d, self.momentum(state.k), state.k)
        new_x = problem.x_set.project(trees.add_scaled(x, -steps["tau"], d))
        return FSLAState(state.k + 1, new_x, theta, None, w, state.key, d, x)

    def counts(self, problem: Problem, state: FSLAState) -> Counts:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Counts(gradients=3, hvps=1, cross_products=2, projections=1).times(int(state.k))

    @classmethod
    def with_default_steps(cls, problem: Problem, K: Number, nu: Number = 1.0, **options) -> "FSLA":
        """alpha = eta = 2 / (mu_g + L_g) (k+1)^(-1/2), tau = nu (k+1)^(-1/2), momentum = (k+1)^(-1/2)  [LGH22]."""
        _, nu = horizon(K, nu)
        lower = Power(lower_step(cls.name, problem), -1 / 2)
        steps = StepSizes(alpha=lower, eta=lower, tau=Power(nu, -1 / 2))
        options.setdefault("momentum", Power(1.0, -1 / 2))
        return cls(steps, **options)


def _direction(f: Problem, g: Problem, x: PyTree, theta: PyTree, w: PyTree) -> PyTree:
    return trees.subtract(oracle.upper_gradients(f, x, theta, None)[0], oracle.cross_product(g, x, theta, w))


class SUSTAINState(NeumannState):
    """State with the last directions of theta and x and the point they were taken at."""

    h_g: PyTree
    h_f: PyTree
    old_x: PyTree
    old_theta: PyTree


class SUSTAIN(NeumannMethod):
    """Single-timescale double momentum: recursive corrections at both levels, Hess^-1 by a Neumann series.

        h_g    = g_theta + (1 - momentum) (h_g_old - g_theta_old)
        h_f    = Gx + (1 - momentum) (h_f_old - Gx_old),         Gx = f_x - g_theta_x v
        v      = q sum_{j < N} (I - q g_theta_theta)^j f_theta,  q = 1 / L_g
        theta+ = theta - alpha h_g
        x+     = P_X(x - tau h_f)

    all at (x, theta); the terms called old at the point one step before, on the same samples, with the same p where
    randomised. At the first step h_g = g_theta and h_f = Gx. As published with a sampler and randomised=True, and
    without P_X.
    Needs: a projection on x_set; alpha, tau; momentum in (0, 1]; L_g, and mu_g or neumann_terms.
    Promises: |grad| <= eps in eps^-3 samples, up to logarithms  [KZHW21].
    """

    momentum: Schedule = eqx.field(converter=lambda rate: as_rate(rate, "momentum"), kw_only=True)
    name: ClassVar[str] = "SUSTAIN"
    about: ClassVar[About] = About(
        problems=("bilevel",),
        x_oracle="project",
        loops="single",
        second_order="2 (N - 1) HVPs + 2 cross, N about 9 kappa",
        complexity="eps^-3 samples, up to logarithms, to a gradient norm of eps",
        steps="exponents of KZHW21, from 2 / (mu_g + L_g)",
        reference="KZHW21",
    )

    def used_steps(self) -> tuple[str, ...]:
        return ("alpha", "tau")

    def init(self, problem: Problem, start: Point) -> SUSTAINState:
        self.check_start(problem, start)
        x, theta, old_x, old_theta = (unaliased(tree) for tree in (start.x, start.theta, start.x, start.theta))
        zeros = (trees.zeros_like(theta), trees.zeros_like(theta), trees.zeros_like(x))
        w, h_g, h_f = zeros
        rest = (w, first_key(self.seed), counter(), h_g, h_f, old_x, old_theta)
        return SUSTAINState(counter(), x, theta, None, *rest)

    def step(self, problem: Problem, state: SUSTAINState) -> SUSTAINState:  # pyright: ignore[reportIncompatibleMethodOverride]
        x, theta, k = state.x, state.theta, state.k
        steps, rate = self.steps.at(k), self.momentum(k)
        keys = step_keys(state, 4)
        g = self.sampler.for_lower(problem, keys[0])
        g_theta, g_theta_old = (oracle.lower_gradient(g, *at) for at in ((x, theta), (state.old_x, state.old_theta)))
        h_g = corrected(g_theta, g_theta_old, state.h_g, rate, k)
        Gx, _, v, products = self.hypergradient(problem, x, theta, None, keys[1:])
        Gx_old, _, _, more = self.hypergradient(problem, state.old_x, state.old_theta, None, keys[1:])
        h_f = corrected(Gx, Gx_old, state.h_f, rate, k)
        new_theta = trees.add_scaled(theta, -steps["alpha"], h_g)
        new_x = problem.x_set.project(trees.add_scaled(x, -steps["tau"], h_f))
        rest = (v, state.key, state.products + products + more, h_g, h_f, x, theta)
        return SUSTAINState(k + 1, new_x, new_theta, None, *rest)

    def counts(self, problem: Problem, state: SUSTAINState) -> Counts:  # pyright: ignore[reportIncompatibleMethodOverride]
        k = int(state.k)
        return Counts(4 * k, int(state.products), 2 * k, k, 0)

    @classmethod
    def with_default_steps(cls, problem: Problem, K: Number, nu: Number = 1.0, **options) -> "SUSTAIN":
        """alpha = 2 / (mu_g + L_g) (k+1)^(-1/3), tau = nu (k+1)^(-1/3), momentum = (k+1)^(-2/3)  [KZHW21]."""
        _, nu = horizon(K, nu)
        steps = StepSizes(alpha=Power(lower_step(cls.name, problem), -1 / 3), tau=Power(nu, -1 / 3))
        options.setdefault("momentum", Power(1.0, -2 / 3))
        return cls(steps, **options)
