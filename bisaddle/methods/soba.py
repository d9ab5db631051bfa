"""SOBA and SABA: theta, w and x moved at once along directions that are sums over the data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL
from bisaddle.methods.base import Counts, S, State
from bisaddle.methods.sampled import SampledMethod, SampledState, step_keys
from bisaddle.methods.sampler import with_block
from bisaddle.methods.stepped import descend
from bisaddle.problem import Problem
from bisaddle.schedules import Power


class _AtOnce(SampledMethod[S]):
    """What SOBA and SABA share: the three updates, whatever the directions."""

    needs = ("alpha", "eta", "tau")
    each = Counts(gradients=2, hvps=1, cross_products=1, projections=1)

    def moved(self, problem: Problem, state: State, lower: tuple, upper: tuple) -> tuple[PyTree, PyTree, PyTree]:
        """x, theta, w after one step along lower = (g_theta, Hess w, cross w) and upper = (f_x, f_theta)."""
        steps = self.steps.at(state.k)
        (g_theta, Hw, cross), (f_x, f_theta) = lower, upper
        theta = trees.add_scaled(state.theta, -steps["alpha"], g_theta)
        w = trees.add_scaled(state.w, -steps["eta"], trees.subtract(Hw, f_theta))
        x = descend(problem, state.x, steps["tau"], trees.subtract(f_x, cross))
        return x, theta, w


def lower_parts(problem: Problem, state: State) -> tuple[PyTree, PyTree, PyTree]:
    x, theta, w = state.x, state.theta, state.w
    products = (oracle.hessian_product(problem, x, theta, w), oracle.cross_product(problem, x, theta, w))
    return oracle.lower_gradient(problem, x, theta), *products


def upper_parts(problem: Problem, state: State) -> tuple[PyTree, PyTree]:
    return oracle.upper_gradients(problem, state.x, state.theta, state.y)[:2]


class SOBA(_AtOnce[SampledState]):
    """Stochastic bilevel algorithm: one stochastic gradient step for theta, for the linear system and for x, at once.

        theta+ = theta - alpha g_theta
        w+     = w - eta (g_theta_theta w - f_theta),           w_0 = 0
        x+     = P_X(x - tau (f_x - g_theta_x w))

    all at the old (x, theta, w), on one sample of g and one of f; FSLA without momentum moves one after the other.
    w is minus the published v, which tends to -Hess^-1 f_theta; the publication has eta = alpha and no P_X.
    Needs: a projection on x_set; alpha, eta, tau.
    Promises: |grad| <= eps in eps^-4 steps of size k^(-1/2)  [DAVM22].
    """

    about = BILEVEL._replace(
        complexity="eps^-4 samples to a gradient norm of eps",
        steps="exponents of DAVM22, from 2 / (mu_g + L_g)",
        reference="DAVM22",
    )

    def first(self, problem: Problem, state: State) -> SampledState:
        return self.keyed(state, SampledState)

    def step(self, problem: Problem, state: SampledState) -> SampledState:
        lower_key, upper_key = step_keys(state, 2)
        lower = lower_parts(self.sampler.for_lower(problem, lower_key), state)
        upper = upper_parts(self.sampler.for_upper(problem, upper_key), state)
        x, theta, w = self.moved(problem, state, lower, upper)
        return SampledState(state.k + 1, x, theta, None, w, state.key)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = eta = 2 / (mu_g + L_g) (k+1)^(-1/2), tau = nu (k+1)^(-1/2)  [DAVM22]."""
        lower = Power(cls.lower_step(problem), -1 / 2)
        return {"alpha": lower, "eta": lower, "tau": Power(nu, -1 / 2)}


class MemoryState(SampledState):
    """State with the last directions of g and of f on every block of data, and their means over the blocks."""

    memories: tuple[PyTree, PyTree]
    means: tuple[PyTree, PyTree]


class SABA(_AtOnce[MemoryState]):
    """Stochastic average bilevel algorithm: SOBA with the variance reduction of SAGA on all five directions.

        D      = D_i - M_i + mean(M),  M_i+ = D_i,              D = g_theta, g_theta_theta w, g_theta_x w, f_theta, f_x
        theta+ = theta - alpha D(g_theta)
        w+     = w - eta (D(g_theta_theta w) - D(f_theta)),     w_0 = 0
        x+     = P_X(x - tau (D(f_x) - D(g_theta_x w)))

    i: a block of consecutive rows of the sampler's batch, one drawn for g and one for f. M starts with a pass over all
    blocks at the start; the authors' benchmark starts it from 0. Without a sampler there is one block, and SABA is
    SOBA. Signs as in SOBA; the publication has eta = alpha and no P_X.
    Needs: a projection on x_set; alpha, eta, tau; at most one batch each for f and g, its size a divisor of the rows.
    Promises: |grad| <= eps in n^(2/3) eps^-2 steps of constant size for n blocks; linear if F is PL  [DAVM22].
    """

    streams = False  # it remembers what every block gave
    about = BILEVEL._replace(
        complexity="n^(2/3) eps^-2 to a gradient norm of eps; linear if F is PL",
        steps="constant, alpha = eta = 1 / (3 L_g) as in SAGA",
        reference="DAVM22",
    )

    def check(self, problem: Problem) -> None:
        super().check(problem)
        for batches in (self.sampler.upper, self.sampler.lower):
            if len(batches) > 1:
                raise ValueError(
                    f"SABA remembers one batch for each of f and g, given {len(batches)}; use one, of rows or of tasks"
                )
            for batch in batches:
                batch.blocks(problem.data)

    def block_counts(self, problem: Problem) -> list[int]:
        """The number of blocks of g and of f."""
        sampled = (self.sampler.lower, self.sampler.upper)
        return [batches[0].blocks(problem.data) if batches else 1 for batches in sampled]

    def directions(self, problem: Problem, state: State) -> tuple[Callable[[Array], tuple], Callable[[Array], tuple]]:
        """Those of g and those of f, as functions of the block."""
        lower = lambda i: lower_parts(with_block(problem, self.sampler.lower, i), state)
        upper = lambda i: upper_parts(with_block(problem, self.sampler.upper, i), state)
        return lower, upper

    def first(self, problem: Problem, state: State) -> MemoryState:
        counts = map(jnp.arange, self.block_counts(problem))
        memories = tuple(map(lax.map, self.directions(problem, state), counts))
        means = jax.tree.map(lambda rows: jnp.mean(rows, axis=0), memories)
        return self.keyed(state, MemoryState, memories=memories, means=means)

    def step(self, problem: Problem, state: MemoryState) -> MemoryState:
        counts = self.block_counts(problem)
        drawn = [jax.random.randint(key, (), 0, n) for key, n in zip(step_keys(state, 2), counts, strict=True)]
        fresh = [at(i) for at, i in zip(self.directions(problem, state), drawn, strict=True)]
        reduced = map(_saga, fresh, state.memories, state.means, drawn, counts)
        (lower, upper), memories, means = zip(*reduced, strict=True)
        x, theta, w = self.moved(problem, state, lower, upper)
        return MemoryState(state.k + 1, x, theta, None, w, state.key, memories, means)

    def counts(self, problem: Problem, state: MemoryState) -> Counts:
        n_lower, n_upper = self.block_counts(problem)
        first_pass = Counts(n_lower + n_upper, n_lower, n_lower)
        return Counts(*map(sum, zip(super().counts(problem, state), first_pass, strict=True)))

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = eta = 1 / (3 L_g), tau = nu, constant."""
        lower = 1 / (3 * cls.lower_constants(problem)[1])
        return {"alpha": lower, "eta": lower, "tau": nu}


def _saga(new: PyTree, memory: PyTree, mean: PyTree, i: Array, n: int) -> tuple[PyTree, PyTree, PyTree]:
    """The direction, the memory with its i-th row replaced, and its mean."""
    change = jax.tree.map(lambda value, rows: value - rows[i], new, memory)
    direction = trees.add_scaled(change, 1.0, mean)
    memory = jax.tree.map(lambda rows, value: rows.at[i].set(value), memory, new)
    return direction, memory, trees.add_scaled(mean, 1 / n, change)
