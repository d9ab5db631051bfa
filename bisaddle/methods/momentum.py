"""FSLA and SUSTAIN: bilevel methods whose directions carry a recursive (STORM) correction."""

from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL
from bisaddle.methods.base import Counts, State, counter, unaliased
from bisaddle.methods.neumann import NeumannMethod, NeumannState
from bisaddle.methods.sampled import SampledMethod, SampledState, as_rate, step_keys
from bisaddle.methods.stepped import descend
from bisaddle.problem import Problem
from bisaddle.schedules import Power, Schedule
from bisaddle.trees import Number


def corrected(new: PyTree, old: PyTree, last: PyTree, rate: Number, k: Array) -> PyTree:
    """new + (1 - rate) (last - old), where last is the direction of the step before; `new` at the first step."""
    keep = jnp.where(k == 0, 0.0, 1 - jnp.asarray(rate))
    return trees.add_scaled(new, keep, trees.subtract(last, old))


class FSLAState(SampledState):
    """State with the last direction d of x and the x it was taken at."""

    d: PyTree
    old_x: PyTree


class FSLA(SampledMethod[FSLAState]):
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
    about = BILEVEL._replace(
        second_order="1 HVP + 2 cross",
        complexity="eps^-4 samples to a gradient norm of eps",
        steps="exponents of LGH22, from 2 / (mu_g + L_g)",
        reference="LGH22",
    )
    needs = ("alpha", "eta", "tau")
    each = Counts(gradients=3, hvps=1, cross_products=2, projections=1)

    def first(self, problem: Problem, state: State) -> FSLAState:
        return self.keyed(state, FSLAState, d=trees.zeros_like(state.x), old_x=unaliased(state.x))

    def step(self, problem: Problem, state: FSLAState) -> FSLAState:
        x, theta, w = state.x, state.theta, state.w
        steps = self.steps.at(state.k)
        keys = step_keys(state, 4)
        g, g_hess, g_cross = (self.sampler.for_lower(problem, key) for key in keys[:3])
        f = self.sampler.for_upper(problem, keys[3])
        old_f_x = oracle.upper_gradients(f, state.old_x, theta, None)[0]
        G_old = trees.subtract(old_f_x, oracle.cross_product(g_cross, state.old_x, theta, w))
        theta = trees.add_scaled(theta, -steps["alpha"], oracle.lower_gradient(g, x, theta))
        f_x, f_theta, _ = oracle.upper_gradients(f, x, theta, None)
        residual = trees.subtract(oracle.hessian_product(g_hess, x, theta, w), f_theta)
        w = trees.add_scaled(w, -steps["eta"], residual)
        G = trees.subtract(f_x, oracle.cross_product(g_cross, x, theta, w))
        d = corrected(G, G_old, state.d, self.momentum(state.k), state.k)
        new_x = descend(problem, x, steps["tau"], d)
        return FSLAState(state.k + 1, new_x, theta, None, w, state.key, d, x)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = eta = 2 / (mu_g + L_g) (k+1)^(-1/2), tau = nu (k+1)^(-1/2), momentum = (k+1)^(-1/2)  [LGH22]."""
        lower = Power(cls.lower_step(problem), -1 / 2)
        return {"alpha": lower, "eta": lower, "tau": Power(nu, -1 / 2), "momentum": Power(1.0, -1 / 2)}


class RecursiveState(NeumannState):
    """State with the last direction d of x and the point it was taken at."""

    d: PyTree
    old_x: PyTree
    old_theta: PyTree


R = TypeVar("R", bound=RecursiveState)


class RecursiveMethod(NeumannMethod[R]):
    """A method whose hypergradient by a Neumann series is corrected by that at the point before."""

    momentum: Schedule = eqx.field(converter=lambda rate: as_rate(rate, "momentum"), kw_only=True)

    def begun(self, state: State, kind: type[R], **more: Any) -> R:
        old_x, old_theta = unaliased((state.x, state.theta))
        d = trees.zeros_like(state.x)
        return self.keyed(state, kind, products=counter(), d=d, old_x=old_x, old_theta=old_theta, **more)

    def direction(self, problem: Problem, state: R, keys: Array) -> tuple[PyTree, PyTree, Array]:
        """d, v and the Hessian products so far; both hypergradients on the same samples."""
        Gx, _, v, products = self.hypergradient(problem, state.x, state.theta, None, keys)
        Gx_old, _, _, more = self.hypergradient(problem, state.old_x, state.old_theta, None, keys)
        d = corrected(Gx, Gx_old, state.d, self.momentum(state.k), state.k)
        return d, v, state.products + products + more


class SUSTAINState(RecursiveState):
    """State with the last direction h_g of theta besides; d is h_f."""

    h_g: PyTree


class SUSTAIN(RecursiveMethod[SUSTAINState]):
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

    about = BILEVEL._replace(
        second_order="2 (N - 1) HVPs + 2 cross, N about 9 kappa",
        complexity="eps^-3 samples, up to logarithms, to a gradient norm of eps",
        steps="exponents of KZHW21, from 2 / (mu_g + L_g)",
        reference="KZHW21",
    )
    needs = ("alpha", "tau")
    each = Counts(gradients=4, cross_products=2, projections=1)

    def first(self, problem: Problem, state: State) -> SUSTAINState:
        return self.begun(state, SUSTAINState, h_g=trees.zeros_like(state.theta))

    def step(self, problem: Problem, state: SUSTAINState) -> SUSTAINState:
        x, theta, k = state.x, state.theta, state.k
        steps = self.steps.at(k)
        keys = step_keys(state, 4)
        g = self.sampler.for_lower(problem, keys[0])
        g_theta, g_theta_old = (oracle.lower_gradient(g, *at) for at in ((x, theta), (state.old_x, state.old_theta)))
        h_g = corrected(g_theta, g_theta_old, state.h_g, self.momentum(k), k)
        h_f, v, products = self.direction(problem, state, keys[1:])
        new_theta = trees.add_scaled(theta, -steps["alpha"], h_g)
        new_x = descend(problem, x, steps["tau"], h_f)
        return SUSTAINState(k + 1, new_x, new_theta, None, v, state.key, products, h_f, x, theta, h_g)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = 2 / (mu_g + L_g) (k+1)^(-1/3), tau = nu (k+1)^(-1/3), momentum = (k+1)^(-2/3)  [KZHW21]."""
        alpha, tau = Power(cls.lower_step(problem), -1 / 3), Power(nu, -1 / 3)
        return {"alpha": alpha, "tau": tau, "momentum": Power(1.0, -2 / 3)}
