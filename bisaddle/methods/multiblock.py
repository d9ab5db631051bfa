"""The two methods of Hu, Zhong and Yang for many blocks of max players and lower levels."""

from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL_SADDLE
from bisaddle.methods.base import Counts, State
from bisaddle.methods.double_loop import whole
from bisaddle.methods.sampled import SampledMethod, SampledState, as_rate, step_keys
from bisaddle.methods.stepped import descend
from bisaddle.problem import Point, Problem
from bisaddle.schedules import Schedule

_ABOUT = BILEVEL_SADDLE._replace(
    complexity="eps^-4 samples to a gradient norm of eps, f strongly concave in y",
    steps="K^(-1/2) for all, HZY22; alpha at most 2 / (mu_g + L_g)",
    reference="HZY22",
)


class BlockState(SampledState):
    """State with the averaged direction z of x."""

    z: PyTree


class HessianState(BlockState):
    """State with the averaged Hessian of every block, an array (blocks, d, d)."""

    H: Array


B = TypeVar("B", bound=BlockState)


class _MultiBlock(SampledMethod[B]):
    """What the two versions share: everything but how the linear systems are solved."""

    momentum: Schedule = eqx.field(converter=lambda rate: as_rate(rate, "momentum"), kw_only=True)
    blocks: int | None = eqx.field(
        static=True, converter=lambda n: None if n is None else whole("blocks")(n), default=None, kw_only=True
    )

    def check_start(self, problem: Problem, start: Point) -> None:
        if self.blocks is None:
            return
        lengths = {leaf.shape[:1] for leaf in jax.tree.leaves((start.theta, start.y))}
        if len(lengths) != 1 or lengths == {()} or self.blocks > min(lengths)[0]:
            raise ValueError(
                f"{self.name} with blocks={self.blocks} needs a first axis over at least as many blocks in theta and "
                f"y, given lengths {sorted(lengths)}; use blocks=None for one block"
            )

    def block_count(self, theta: PyTree) -> int:
        return 1 if self.blocks is None else jax.tree.leaves(theta)[0].shape[0]

    def chosen(self, key: Array, theta: PyTree) -> Array:
        """True for the blocks of this step."""
        m = self.block_count(theta)
        if self.blocks is None or self.blocks == m:
            return jnp.ones(m, bool)
        return jnp.zeros(m, bool).at[jax.random.choice(key, m, (self.blocks,), replace=False)].set(True)

    def where(self, mask: Array, new: PyTree, old: PyTree) -> PyTree:
        """`new` on the chosen blocks, `old` on the others."""
        if self.blocks is None:
            return new
        return jax.tree.map(lambda a, b: jnp.where(mask.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)

    def solved(self, problem: Problem, state: B, mask: Array, f_theta: PyTree) -> tuple[PyTree, ...]:
        """u, and what else the state keeps of the linear systems; `problem` has the sample for g_theta_theta."""
        raise NotImplementedError

    def step(self, problem: Problem, state: B) -> B:
        assert problem.y_set is not None
        x, theta, y = state.x, state.theta, state.y
        steps = self.steps.at(state.k)
        keys = step_keys(state, 5)
        g_hess, g, g_cross = (self.sampler.for_lower(problem, key) for key in keys[2:])
        mask = self.chosen(keys[0], theta)
        f_x, f_theta, f_y = oracle.upper_gradients(self.sampler.for_upper(problem, keys[1]), x, theta, y)
        u, *rest = self.solved(g_hess, state, mask, f_theta)
        ascended = self.where(mask, trees.add_scaled(y, steps["sigma"], f_y), y)
        new_y = problem.y_set.prox(ascended, steps["sigma"])
        g_theta = oracle.lower_gradient(g, x, theta)
        new_theta = self.where(mask, trees.add_scaled(theta, -steps["alpha"], g_theta), theta)
        cross = oracle.cross_product(g_cross, x, theta, self.where(mask, u, trees.zeros_like(u)))
        m = self.block_count(theta)
        D = trees.add_scaled(f_x, -m / (self.blocks or m), cross)
        z = trees.mix(self.momentum(state.k), D, state.z)
        x = descend(problem, x, steps["tau"], z)
        return type(state)(state.k + 1, x, new_theta, new_y, u, state.key, z, *rest)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """tau = sigma = nu K^(-1/2), alpha = eta = K^(-1/2) at most 2 / (mu_g + L_g), momentum = averaging = K^(-1/2).

        Every step and rate is of the order eps^2 = K^(-1/2)  [HZY22].
        """
        rate = K ** (-1 / 2)
        lower = dict.fromkeys({"alpha", "eta"} & {*cls.needs}, min(cls.lower_step(problem), rate))
        return lower | {"tau": nu * rate, "sigma": nu * rate, "momentum": min(1.0, rate)}


class MultiBlockV1(_MultiBlock[HessianState]):
    """Blocks of max players and lower levels, the Hessians averaged and inverted: for small blocks (version 1).

        y_i+     = P_Y(y_i + sigma f_y),      theta_i+ = theta_i - alpha g_theta
        H_i+     = (1 - averaging) H_i + averaging g_theta_theta,                      u_i = (H_i+)^-1 f_theta
        D        = f_x - (m / |B|) sum_{i in B} g_theta_x u_i
        z+       = (1 - momentum) z + momentum D,         z_0 = 0
        x+       = P_X(x - tau z+)

    all derivatives at the old (x, theta, y); i in B only, where B are `blocks` of the m blocks, drawn anew each step.
    blocks=None: one block, all of theta and y. With blocks, the first axis of theta and y counts them, g must be a sum
    over them, and Y a product (else P_Y still keeps y feasible). f_x is taken over all blocks, since f is one function,
    where the publication takes it over B; H_0 is the Hessian at the start. Eigenvalues of H below a known mu_g are
    raised to it. That D uses the new H is from memory; the publication has no P_X.
    Needs: projections on x_set and y_set; alpha, tau, sigma; momentum and averaging in (0, 1].
    Promises: |grad F| <= eps in eps^-4 m / |B| steps for f strongly concave in y  [HZY22].
    """

    averaging: Schedule = eqx.field(converter=lambda rate: as_rate(rate, "averaging"), kw_only=True)
    about = _ABOUT._replace(second_order="the Hessian of a block, inverted + 1 cross")
    needs = ("alpha", "tau", "sigma")

    def split(self, theta: PyTree) -> Array:
        """theta as an array (blocks, d)."""
        if self.blocks is None:
            return ravel_pytree(theta)[0][None]
        return jax.vmap(lambda block: ravel_pytree(block)[0])(theta)

    def join(self, rows: Array, like: PyTree) -> PyTree:
        if self.blocks is None:
            return ravel_pytree(like)[1](rows[0])
        unravel = ravel_pytree(jax.tree.map(lambda leaf: leaf[0], like))[1]
        return jax.vmap(unravel)(rows)

    def hessians(self, problem: Problem, x: PyTree, theta: PyTree) -> Array:
        """(blocks, d, d), one product for each of the d coordinates of a block: g is a sum over the blocks."""
        m, d = self.split(theta).shape

        def column(e):
            return self.split(oracle.hessian_product(problem, x, theta, self.join(jnp.tile(e, (m, 1)), theta)))

        H = jnp.moveaxis(jax.vmap(column)(jnp.eye(d, dtype=trees.dtype_of(theta))), 0, 2)
        return 0.5 * (H + jnp.swapaxes(H, 1, 2))

    def first(self, problem: Problem, state: State) -> HessianState:
        H = self.hessians(problem, state.x, state.theta)
        return self.keyed(state, HessianState, z=trees.zeros_like(state.x), H=H)

    def solved(self, problem: Problem, state: HessianState, mask: Array, f_theta: PyTree) -> tuple[PyTree, Array]:
        fresh = self.hessians(problem, state.x, state.theta)
        averaged = trees.mix(self.averaging(state.k), fresh, state.H)
        H = jnp.where(mask[:, None, None], averaged, state.H)
        return self.join(_solve(H, self.split(f_theta), problem.constants.mu_g), state.theta), H

    def counts(self, problem: Problem, state: HessianState) -> Counts:
        k = int(state.k)
        return Counts(2 * k, (k + 1) * state.H.shape[-1], k, 2 * k, 0)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        numbers = super().rule(problem, K, nu)
        return numbers | {"averaging": numbers["momentum"]}


def _solve(H: Array, rhs: Array, floor) -> Array:
    """H_i^-1 rhs_i for every block, eigenvalues raised to the floor where there is one."""
    values, vectors = jnp.linalg.eigh(H)
    if floor is not None:
        values = jnp.maximum(values, jnp.asarray(floor).astype(values.dtype))
    return jnp.einsum("bij,bj->bi", vectors, jnp.einsum("bij,bi->bj", vectors, rhs) / values)


class MultiBlockV2(_MultiBlock[BlockState]):
    """Blocks of max players and lower levels, a gradient step on each linear system: for large blocks (version 2).

        y_i+     = P_Y(y_i + sigma f_y),      theta_i+ = theta_i - alpha g_theta
        u_i+     = P_ball(u_i - eta (g_theta_theta u_i - f_theta)),               u_0 = 0
        D        = f_x - (m / |B|) sum_{i in B} g_theta_x u_i+
        z+       = (1 - momentum) z + momentum D,         z_0 = 0
        x+       = P_X(x - tau z+)

    all derivatives at the old (x, theta, y); blocks, f_x and P_X as in MultiBlockV1. P_ball: onto |u_i| <= C_theta /
    mu_g, where the problem's constants give both; no ball otherwise. From memory: that D uses the new u.
    Needs: projections on x_set and y_set; alpha, eta, tau, sigma; momentum in (0, 1].
    Promises: |grad F| <= eps in eps^-4 m / |B| steps for f strongly concave in y  [HZY22].
    """

    about = _ABOUT
    needs = ("alpha", "eta", "tau", "sigma")
    each = Counts(gradients=2, hvps=1, cross_products=1, projections=2)

    def first(self, problem: Problem, state: State) -> BlockState:
        return self.keyed(state, BlockState, z=trees.zeros_like(state.x))

    def solved(self, problem: Problem, state: BlockState, mask: Array, f_theta: PyTree) -> tuple[PyTree]:
        product = oracle.hessian_product(problem, state.x, state.theta, state.w)
        moved = trees.add_scaled(state.w, -self.steps.at(state.k)["eta"], trees.subtract(product, f_theta))
        return (self.where(mask, self.shortened(problem, moved), state.w),)

    def shortened(self, problem: Problem, u: PyTree) -> PyTree:
        """P_ball of every block."""
        C_theta, mu_g = problem.constants.C_theta, problem.constants.mu_g
        if C_theta is None or mu_g is None:
            return u
        radius = jnp.asarray(C_theta) / jnp.asarray(mu_g)

        def shorten(block):
            length = trees.norm(block)
            return trees.scale(jnp.where(length > radius, radius / jnp.where(length > 0, length, 1), 1), block)

        return shorten(u) if self.blocks is None else jax.vmap(shorten)(u)
