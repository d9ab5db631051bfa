"""Double loops: DoubleLoop, BA, AID and ITD solve the lower level to some accuracy before x moves."""

from collections.abc import Callable
from math import isqrt
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.methods.about import BILEVEL, BILEVEL_SADDLE
from bisaddle.methods.base import Counts, State, counter
from bisaddle.methods.sampled import as_positive
from bisaddle.methods.stepped import SteppedMethod, ascend, descend
from bisaddle.problem import Problem
from bisaddle.schedules import Power, Schedule, as_schedule
from bisaddle.sets.base import Leaf
from bisaddle.trees import Number


class CountedState(State):
    """State with the gradients and the Hessian products so far, which the stopping of inner loops decides."""

    gradients: Array
    products: Array

    @property
    def counted(self) -> dict[str, int]:
        return {"gradients": int(self.gradients), "hvps": int(self.products)}


class _InnerLoops(SteppedMethod[CountedState]):
    """What the double loops share: a state that counts, and default steps that are tuned by nu alone."""

    needs = ("alpha", "tau")
    each = Counts(cross_products=1, projections=1)

    def first(self, problem: Problem, state: State) -> CountedState:
        return state.extended(CountedState, gradients=counter(), products=counter())

    def moved(
        self, problem: Problem, state: CountedState, theta: PyTree, y: PyTree, gradients: Number, solved: tuple
    ) -> CountedState:
        """The state after the step of x; gradients: those that theta and y took, solved: tolerance and limit of w."""
        x = state.x
        f_x, f_theta, _ = oracle.upper_gradients(problem, x, theta, y)
        w, products = linear_system(problem, x, theta, f_theta, state.w, *solved)
        Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
        x = descend(problem, x, self.steps.at(state.k)["tau"], Gx)
        return CountedState(state.k + 1, x, theta, y, w, state.gradients + gradients + 1, state.products + products)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """alpha = 2 / (mu_g + L_g), tau = nu, and sigma = nu with a max player: baselines, tuned by nu."""
        return {name: cls.lower_step(problem) if name == "alpha" else nu for name in cls.needs}


def lower_descent(
    sample: Callable[[Array], Problem], x: PyTree, theta: PyTree, alpha: Array, count: Array | int
) -> PyTree:
    """theta after `count` steps of gradient descent on g(x, .); sample(t): the problem with the g of step t."""

    def one(t, theta):
        return trees.add_scaled(theta, -alpha, oracle.lower_gradient(sample(t), x, theta))

    return lax.fori_loop(0, count, one, theta)


def conjugate_gradients(
    product: Callable[[PyTree], PyTree], rhs: PyTree, start: PyTree, tolerance: Number, limit: Number
) -> tuple[PyTree, Array]:
    """w with |product(w) - rhs| <= tolerance, or after `limit` steps, and the products it took."""
    r = trees.subtract(rhs, product(start))

    def unfinished(carry):
        _, _, _, square, i = carry
        return (jnp.sqrt(square) > tolerance) & (i < limit)

    def one(carry):
        w, r, p, square, i = carry
        Hp = product(p)
        length = square / trees.dot(p, Hp)
        w, r = trees.add_scaled(w, length, p), trees.add_scaled(r, -length, Hp)
        new = trees.dot(r, r)
        return w, r, trees.add_scaled(r, new / square, p), new, i + 1

    w, _, _, _, count = lax.while_loop(unfinished, one, (start, r, r, trees.dot(r, r), counter()))
    return w, count + 1


def linear_system(
    problem: Problem, x: PyTree, theta: PyTree, rhs: PyTree, start: PyTree, tolerance: Number, limit: Number
) -> tuple[PyTree, Array]:
    """w with g_theta_theta w = rhs by conjugate gradients, and the Hessian products it took."""
    rounding = 4 * jnp.finfo(trees.dtype_of(rhs)).eps * trees.norm(rhs)  # the least residual that can be asked for
    tolerance = jnp.maximum(jnp.asarray(tolerance), rounding)
    return conjugate_gradients(lambda w: oracle.hessian_product(problem, x, theta, w), rhs, start, tolerance, limit)


def whole(name: str) -> Callable[[Any], int]:
    """The converter of an option that is a whole number >= 1."""

    def checked(value: Any) -> int:
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number >= 1, given {value}")
        return value

    return checked


def as_inner_steps(value, exponent: float) -> Schedule:
    """A number or a function of k as a schedule; None is (k+1)^exponent."""
    if isinstance(value, float | int) and not value >= 1:
        raise ValueError(f"inner_steps must be a number >= 1 or a function of k, given {value}")
    return as_schedule(value) or Power(1.0, exponent)


def _as_tolerance(value) -> Leaf:
    tolerance = as_positive(value, "tolerance")
    if tolerance is None:
        raise ValueError("tolerance must be finite and > 0, given None")
    return tolerance


class DoubleLoop(_InnerLoops):
    """The lower level solved accurately, the linear system by conjugate gradients, then ascent and descent.

        theta+ = gradient descent on g(x, .) with step alpha, from theta, until |g_theta| <= tolerance
        y+     = P_Y(y + sigma f_y(x, theta+, y)),               ascent_steps times
        w+     = conjugate gradients from w on g_theta_theta w = f_theta, until the residual is <= tolerance
        x+     = P_X(x - tau (f_x - g_theta_x w+))               at (x, theta+, y+)

    What one would write with a library for implicit differentiation: the baseline for the single loops. limit: of the
    steps of either inner loop.
    Needs: projections on x_set and y_set; alpha, tau, sigma.
    Promises: descent along the exact hypergradient up to the tolerance; linear convergence in steps of x where
    min_x max_y F is strongly convex and strongly concave and the steps are small. A baseline: no rate is published, and
    the hypergradient by conjugate gradients is that of  [JYL21].
    """

    tolerance: Leaf = eqx.field(converter=_as_tolerance, default=1e-8)
    limit: int = eqx.field(static=True, converter=whole("limit"), default=1000)
    ascent_steps: int = eqx.field(static=True, converter=whole("ascent_steps"), default=1)
    about = BILEVEL_SADDLE._replace(
        loops="double",
        second_order="CG to the tolerance, about sqrt(kappa) log HVPs + 1 cross",
        complexity="none published; linear in outer steps if strongly convex-concave",
        steps="alpha = 2 / (mu_g + L_g); tau and sigma by hand",
        reference="JYL21",
    )
    needs = ("alpha", "tau", "sigma")

    def step(self, problem: Problem, state: CountedState) -> CountedState:
        x, y = state.x, state.y
        steps = self.steps.at(state.k)
        theta, gradients = self.solve_lower(problem, x, state.theta, steps["alpha"])
        for _ in range(self.ascent_steps):
            f_y = oracle.upper_gradients(problem, x, theta, y)[2]
            y = ascend(problem, y, steps["sigma"], f_y)
        return self.moved(problem, state, theta, y, gradients + self.ascent_steps, (self.tolerance, self.limit))

    def solve_lower(self, problem: Problem, x: PyTree, theta: PyTree, alpha: Array) -> tuple[PyTree, Array]:
        """theta with |g_theta| <= tolerance, and the gradients it took."""

        def gradient(theta):
            return oracle.lower_gradient(problem, x, theta)

        def one(carry):
            theta, g, count = carry
            theta = trees.add_scaled(theta, -alpha, g)
            return theta, gradient(theta), count + 1

        theta, _, count = lax.while_loop(
            lambda carry: (trees.norm(carry[1]) > jnp.asarray(self.tolerance)) & (carry[2] < self.limit),
            one,
            (theta, gradient(theta), counter()),
        )
        return theta, count + 1

    def per_step(self, problem: Problem) -> Counts:
        return Counts(cross_products=1, projections=1 + self.ascent_steps)


class BA(_InnerLoops):
    """Bilevel approximation: more and more gradient steps on g, an exact linear solve, a step of x.

        theta+ = theta after t_k steps of theta <- theta - alpha g_theta(x, theta),    t_k = inner_steps(k), rounded up
        w+     = Hess^-1 f_theta                                                       at (x, theta+)
        x+     = P_X(x - tau (f_x - g_theta_x w+))

    inner_steps: a number or a function of k; None is (k+1)^(1/4). Hess^-1 by conjugate gradients to rounding. theta
    starts from its last value; whether the publication restarts it is not known here.
    Needs: a projection on x_set; alpha, tau.
    Promises: |grad| <= eps in eps^-2 steps of x and eps^-5/2 of theta; linear in steps of x if F is strongly
    convex  [GW18].
    """

    inner_steps: Schedule = eqx.field(converter=lambda steps: as_inner_steps(steps, 1 / 4), default=None)
    about = BILEVEL._replace(
        loops="double",
        second_order="CG to rounding, about sqrt(kappa) log HVPs + 1 cross",
        complexity="eps^-2 upper, eps^-5/2 lower steps to a gradient norm of eps",
        steps="alpha = 2 / (mu_g + L_g), t_k = (k+1)^(1/4) of GW18; tau by hand",
        reference="GW18",
    )

    def step(self, problem: Problem, state: CountedState) -> CountedState:
        t_k = jnp.ceil(self.inner_steps(state.k)).astype(jnp.int32)
        theta = lower_descent(lambda _: problem, state.x, state.theta, self.steps.at(state.k)["alpha"], t_k)
        return self.moved(problem, state, theta, None, t_k, (0.0, 10 * trees.size(theta)))


class AID(_InnerLoops):
    """Approximate implicit differentiation: a fixed number of gradient steps, and of conjugate gradients.

        theta+ = theta after inner_steps steps of theta <- theta - alpha g_theta(x, theta)
        w+     = w after cg_steps of conjugate gradients on g_theta_theta w = f_theta          at (x, theta+)
        x+     = P_X(x - tau (f_x - g_theta_x w+))

    Both from their last values. Fewer products are spent once the residual is rounding.
    Needs: a projection on x_set; alpha, tau.
    Promises: |grad| <= eps in O(kappa^3 eps^-2) steps, with kappa gradients and sqrt(kappa) products each  [JYL21];
    from memory.
    """

    inner_steps: int = eqx.field(static=True, converter=whole("inner_steps"), default=10)
    cg_steps: int = eqx.field(static=True, converter=whole("cg_steps"), default=10)
    about = BILEVEL._replace(
        loops="double",
        second_order="1 + cg_steps HVPs + 1 cross",
        complexity="eps^-2 to a gradient norm of eps",
        steps="alpha = 2 / (mu_g + L_g); tau by hand",
        reference="JYL21",
    )

    def step(self, problem: Problem, state: CountedState) -> CountedState:
        alpha, count = self.steps.at(state.k)["alpha"], self.inner_steps
        theta = lower_descent(lambda _: problem, state.x, state.theta, alpha, count)
        return self.moved(problem, state, theta, None, count, (0.0, self.cg_steps))


class ITD(_InnerLoops):
    """Iterative differentiation: the derivative of f after inner_steps gradient steps, by backpropagation through them.

        theta_0(x) = theta,     theta_{t+1}(x) = theta_t(x) - alpha g_theta(x, theta_t(x)),     theta+ = theta_N(x)
        x+         = P_X(x - tau d/dx f(x, theta_N(x)))

    theta is a constant of the derivative. Checkpoints every sqrt(N) steps: 2 sqrt(N) copies of theta are kept, and the
    steps between two checkpoints computed again on the way back; the counts leave that out.
    Needs: a projection on x_set; alpha, tau; a g that can be differentiated twice by JAX.
    Promises: |grad| <= eps in O(kappa^3 eps^-2) steps, with kappa log(1/eps) gradients each: N is a bias  [JYL21];
    from memory.
    """

    inner_steps: int = eqx.field(static=True, converter=whole("inner_steps"), default=10)
    about = BILEVEL._replace(
        loops="double",
        second_order="inner_steps HVPs + inner_steps cross",
        complexity="eps^-2 to a gradient norm of eps, up to a bias of inner_steps",
        steps="alpha = 2 / (mu_g + L_g); tau by hand",
        reference="JYL21",
    )

    def step(self, problem: Problem, state: CountedState) -> CountedState:
        x, N = state.x, self.inner_steps
        steps = self.steps.at(state.k)
        unrolled = lambda x: self.unrolled(problem, x, state.theta, steps["alpha"])
        theta, pull_back = jax.vjp(unrolled, x)
        f_x, f_theta, _ = oracle.upper_gradients(problem, x, theta, None)
        Gx = trees.add_scaled(f_x, 1.0, pull_back(f_theta)[0])
        x = descend(problem, x, steps["tau"], Gx)
        return CountedState(state.k + 1, x, theta, None, None, state.gradients + N + 1, state.products + N)

    def first_w(self, theta: PyTree) -> PyTree:
        return None

    def unrolled(self, problem: Problem, x: PyTree, theta: PyTree, alpha: Array) -> PyTree:
        """theta_N(x), in segments of about sqrt(N) steps."""

        @jax.checkpoint
        def one(theta, x):
            return trees.add_scaled(theta, -alpha, oracle.lower_gradient(problem, x, theta))

        def steps(theta, x, count):
            return lax.scan(lambda theta, _: (one(theta, x), None), theta, None, count)[0]

        length = isqrt(self.inner_steps)
        segment = jax.checkpoint(lambda theta, x: steps(theta, x, length))
        theta = lax.scan(lambda theta, _: (segment(theta, x), None), theta, None, self.inner_steps // length)[0]
        return steps(theta, x, self.inner_steps % length) if self.inner_steps % length else theta

    def per_step(self, problem: Problem) -> Counts:
        return Counts(cross_products=self.inner_steps, projections=1)
