"""MORBiT and TTSA: theta on a fast timescale, x (and the weights of the tasks) on a slow one."""

from typing import Any

from jaxtyping import Array

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL, BILEVEL_SADDLE, SERIES
from bisaddle.methods.base import Counts, State, counter
from bisaddle.methods.neumann import NeumannMethod, NeumannState
from bisaddle.methods.sampled import step_keys
from bisaddle.methods.sampler import Sampler
from bisaddle.methods.stepped import ascend, descend
from bisaddle.problem import Problem
from bisaddle.schedules import StepSizes
from bisaddle.sets.base import Leaf
from bisaddle.trees import Number


class _TwoTimescale(NeumannMethod[NeumannState]):
    """What MORBiT and TTSA share: everything but the line of y."""

    def first(self, problem: Problem, state: State) -> NeumannState:
        return self.keyed(state, NeumannState, products=counter())

    def step(self, problem: Problem, state: NeumannState) -> NeumannState:
        x, theta, y = state.x, state.theta, state.y
        steps = self.steps.at(state.k)
        keys = step_keys(state, 4)
        g_theta = oracle.lower_gradient(self.sampler.for_lower(problem, keys[0]), x, theta)
        theta = trees.add_scaled(theta, -steps["alpha"], g_theta)
        Gx, f_y, v, products = self.hypergradient(problem, x, theta, y, keys[1:])
        x = descend(problem, x, steps["tau"], Gx)
        if problem.y_set is not None:
            y = ascend(problem, y, steps["sigma"], f_y)
        return NeumannState(state.k + 1, x, theta, y, v, state.key, state.products + products)

    def per_step(self, problem: Problem) -> Counts:
        return Counts(gradients=2, cross_products=1, projections=1 + (problem.y_set is not None))

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = K^(-2/5), tau = sigma = nu K^(-3/5); alpha at most 2 / (mu_g + L_g)  [HWWY23; AYH25, section 6]."""
        slow = {name: nu * K ** (-3 / 5) for name in cls.needs if name != "alpha"}
        return {"alpha": min(K ** (-2 / 5), cls.lower_step(problem)), **slow}


class MORBiT(_TwoTimescale):
    """Descent on x and ascent on the weights of the tasks, the lower Hessian inverted by a Neumann series.

        theta+ = theta - alpha g_theta(x, theta)
        v      = q sum_{j < N} (I - q g_theta_theta)^j f_theta,    q = 1 / L_g,    from here on all at (x, theta+, y)
        x+     = P_X(x - tau (f_x - g_theta_x v))
        y+     = P_Y(y + sigma f_y)

    The published problem is f = sum_i y_i f_i with y in the simplex and g a sum over the tasks; here f may be any
    concave function of y and P_Y any projection (a prox where y_set has a penalty), of which the theory says nothing.
    neumann_terms N and lower_lipschitz L_g come from the problem's constants by default, about 9 kappa terms.
    randomised: v = N q prod_{j <= p} (I - q g_theta_theta) f_theta, p uniform below N, a fresh sample for every factor.
    The order is that of the authors' code: x and y move from the new theta, y from the losses at the old x. Whether the
    paper takes the losses at the old or the new x is not known here, nor how many terms it takes; the authors' code has
    no Hessian at all.
    Needs: a projection on x_set and on y_set; alpha, tau, sigma; L_g, and mu_g or neumann_terms.
    Promises: O(n^(1/2) K^(-2/5)) after K steps with n tasks for f linear in y, in the squared gradient of a Moreau
    envelope, so eps^-5 steps  [GLRW23].
    """

    about = BILEVEL_SADDLE._replace(
        second_order=SERIES,
        complexity="eps^-5 to a Moreau-envelope gradient of eps, f linear in y",
        steps="exponents of GLRW23 as in section 6 of AYH25; alpha at most 2 / (mu_g + L_g)",
        reference="GLRW23",
    )
    needs = ("alpha", "tau", "sigma")

    @classmethod
    def gu2021(
        cls,
        steps: StepSizes,
        neumann_terms: Number | None = None,
        lower_lipschitz: Number | None = None,
        *,
        sampler: Sampler | None = None,
        seed: Number | Leaf | Array | None = None,
    ) -> "MORBiT":
        """The workshop method of 2021: TTSA's randomised estimator and projected ascent on the weights  [GLRW21].

        Only a citation of it could be found: that its updates are MORBiT's three is from memory.
        """
        sampler = Sampler() if sampler is None else sampler
        return cls(steps, neumann_terms, lower_lipschitz, randomised=True, sampler=sampler, seed=seed)


class TTSA(_TwoTimescale):
    """Two-timescale stochastic approximation for bilevel problems: MORBiT with one task.

        theta+ = theta - alpha g_theta(x, theta)
        v      = q sum_{j < N} (I - q g_theta_theta)^j f_theta,    q = 1 / L_g,    from here on all at (x, theta+)
        x+     = P_X(x - tau (f_x - g_theta_x v))

    As published with a sampler and randomised=True; without, every sample is replaced by its expectation.
    Needs: a projection on x_set; alpha, tau; L_g, and mu_g or neumann_terms.
    Promises: |grad| <= eps in eps^-5 steps; K^(-1/2) for convex, K^(-2/3) for strongly convex F  [HWWY23].
    """

    about = BILEVEL._replace(
        second_order=SERIES,
        complexity="eps^-5 to a gradient norm of eps",
        steps="exponents of HWWY23, nonconvex; alpha at most 2 / (mu_g + L_g)",
        reference="HWWY23",
    )
    needs = ("alpha", "tau")
