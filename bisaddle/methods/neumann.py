"""Hess^-1 r by a Neumann series with step 1 / L_g: the estimator that MORBiT, TTSA, BSA, SUSTAIN and SBFW share."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.base import S
from bisaddle.methods.sampled import SampledMethod, SampledState, as_positive
from bisaddle.problem import Problem
from bisaddle.sets.base import Leaf

# |v_N - Hess^-1 r| <= BIAS |r| / mu_g with the default number of terms, kappa log(1 / BIAS) or fewer
BIAS = 1e-4


class NeumannState(SampledState):
    """State with the number of Hessian products so far, which chance decides in the randomised form."""

    products: Array

    @property
    def counted(self) -> dict[str, int]:
        return {"hvps": int(self.products)}


class NeumannMethod(SampledMethod[S]):
    """A method that inverts the lower Hessian by a truncated series.

        v_N = q sum_{j < N} (I - q g_theta_theta)^j r,                q = 1 / L_g
        |v_N - Hess^-1 r| <= (1 - mu_g / L_g)^N |r| / mu_g
        randomised: v = N q prod_{j <= p} (I - q g_theta_theta(zeta_j)) r,  p uniform on {0, ..., N - 1},  E v = v_N

    neumann_terms: N; None takes the least N whose bias is 1e-4 |r| / mu_g, about 9 kappa. lower_lipschitz: L_g; None
    takes that of the problem's constants. Every product has a sample of its own  [GW18].
    """

    neumann_terms: Leaf | None = eqx.field(converter=lambda n: as_positive(n, "neumann_terms"), default=None)
    lower_lipschitz: Leaf | None = eqx.field(converter=lambda L: as_positive(L, "lower_lipschitz"), default=None)
    randomised: bool = eqx.field(static=True, default=False, kw_only=True)

    def check(self, problem: Problem) -> None:
        super().check(problem)
        if self.lower_lipschitz is None and problem.constants.L_g is None:
            raise ValueError(
                f"{self.name} needs L_g for its Neumann series, given None; use lower_lipschitz=..., or "
                "Problem(constants=bs.Constants(L_g=...)), which theory.estimate_constants can find"
            )
        if self.neumann_terms is None and problem.constants.mu_g is None:
            raise ValueError(
                f"{self.name} needs the number of terms of its Neumann series, given neither neumann_terms nor mu_g; "
                "use neumann_terms=..., or Problem(constants=bs.Constants(mu_g=...)), which theory.estimate_constants "
                "can find"
            )

    def series(self, problem: Problem) -> tuple[Array, Array]:
        """(q, N)"""
        L_g = jnp.asarray(problem.constants.L_g if self.lower_lipschitz is None else self.lower_lipschitz)
        if self.neumann_terms is not None:
            return 1 / L_g, jnp.asarray(self.neumann_terms).astype(jnp.int32)
        contraction = 1 - jnp.minimum(jnp.asarray(problem.constants.mu_g) / L_g, 1.0)
        terms = jnp.where(contraction > 0, jnp.log(BIAS) / jnp.log(jnp.where(contraction > 0, contraction, 0.5)), 1)
        return 1 / L_g, jnp.maximum(jnp.ceil(terms), 1).astype(jnp.int32)

    def inverse_product(
        self, problem: Problem, x: PyTree, theta: PyTree, r: PyTree, key: Array
    ) -> tuple[PyTree, Array]:
        """v, and the number of Hessian products it took."""
        q, N = self.series(problem)
        length_key, sample_key = jax.random.split(key)

        samples = self.lower_samples(problem, sample_key)

        def contract(j, v):
            return trees.add_scaled(v, -q, oracle.hessian_product(samples(j), x, theta, v))

        def term(j, carry):
            v, total = carry
            v = contract(j, v)
            return v, trees.add_scaled(total, 1.0, v)

        if self.randomised:
            p = jax.random.randint(length_key, (), 0, N, jnp.int32)
            return trees.scale(N * q, lax.fori_loop(0, p, contract, r)), p
        return trees.scale(q, lax.fori_loop(1, N, term, (r, r))[1]), N - 1

    def hypergradient(
        self, problem: Problem, x: PyTree, theta: PyTree, y: PyTree, keys: Array
    ) -> tuple[PyTree, PyTree, PyTree, Array]:
        """Gx = f_x - g_theta_x v, f_y, v, and the Hessian products; keys: for f, for the series, for g_theta_x."""
        f_key, series_key, cross_key = keys
        f_x, f_theta, f_y = oracle.upper_gradients(self.sampler.for_upper(problem, f_key), x, theta, y)
        v, products = self.inverse_product(problem, x, theta, f_theta, series_key)
        Gx = trees.subtract(f_x, oracle.cross_product(self.sampler.for_lower(problem, cross_key), x, theta, v))
        return Gx, f_y, v, products
