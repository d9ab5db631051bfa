"""Where Adaptive begins: a rough look at the start, and the first weight of the proximal term in y."""

from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.lower import spectrum
from bisaddle.methods.adaptive_state import CENTRE, AdaptiveState, only
from bisaddle.methods.base import counter
from bisaddle.methods.coordinates import farthest, first_chart
from bisaddle.methods.dense_inverse import Inverse
from bisaddle.methods.face_step import Pairs
from bisaddle.methods.inner_solves import Cost, Inner, Memory, conjugate_gradients, solve_lower
from bisaddle.methods.recall import Recall
from bisaddle.problem import Point, Problem
from bisaddle.sets.base import Leaf

PRODUCTS = 32  # spent on an estimate of mu_g


def first_look(problem: Problem, start: Point, mu_g: Array, cost: Cost) -> tuple[Inner, Inverse | None, PyTree, Cost]:
    """theta and w at the start, roughly, what the solves took, and the gradient in x there."""
    x, theta, y = start.x, start.theta, start.y
    rough = 1e-2 * jnp.minimum(1, mu_g)
    g_theta = w = None
    inverse = Inverse.unknown(theta)
    if problem.lower is not None:
        g_theta, cost = oracle.lower_gradient(problem, x, theta), cost.plus(gradients=1)
        theta, g_theta, products, _, cost = solve_lower(problem, x, theta, g_theta, rough, cost)
        inverse = None if inverse is None else inverse.after(products)
    gradients, cost = oracle.upper_gradients(problem, x, theta, y), cost.plus(gradients=1)
    Gx, f_theta, _ = gradients
    if problem.lower is not None:
        product = lambda v: oracle.hessian_product(problem, x, theta, v)
        w, _, products, _ = conjugate_gradients(product, trees.zeros_like(theta), f_theta, rough)
        Gx = trees.subtract(Gx, oracle.cross_product(problem, x, theta, w))
        cost = cost.plus(hvps=products, cross_products=1)
        inverse = None if inverse is None else inverse.after(products)
    return Inner(theta, y, w, g_theta, gradients, jnp.zeros_like(mu_g), mu_g), inverse, Gx, cost


def first_weight(problem: Problem, start: Point, inner: Inner, Gx: PyTree, cost: Cost) -> tuple[Array, Cost]:
    """The weight at which the gradient in y just reaches across Y, here and a tenth of the way to the border of X.

    The second look is for an f_y that happens to favour nobody at the start.
    """
    y, y_set = start.y, problem.y_set
    assert y_set is not None

    def spread(f_y):
        far = 1e6 / jnp.maximum(trees.norm(f_y), 1e-30)
        across = trees.subtract(
            y_set.project(trees.add_scaled(y, far, f_y)), y_set.project(trees.add_scaled(y, -far, f_y))
        )
        square = trees.dot(across, across)
        return jnp.where(square > 0, trees.dot(f_y, across) / jnp.where(square > 0, square, 1), 0)

    if "project" in problem.x_set.capabilities:
        far = 1e6 / jnp.maximum(trees.norm(Gx), 1e-30)
        border = problem.x_set.project(trees.add_scaled(start.x, -far, Gx))
    else:
        border = farthest(problem.x_set, start.x, Gx)
    probe = trees.mix(0.1, border, start.x)
    theta = inner.theta
    if problem.lower is not None:
        g_theta = oracle.lower_gradient(problem, probe, theta)
        target = jnp.maximum(1e-2 * jnp.minimum(1, inner.mu_g), 0.1 * trees.norm(g_theta))
        theta, _, _, _, cost = solve_lower(problem, probe, theta, g_theta, target, cost.plus(gradients=1))
    there = oracle.upper_gradients(problem, probe, theta, y)[2]
    mu = jnp.maximum(jnp.maximum(spread(inner.gradients[2]), spread(there)), 1e-8)
    return mu, cost.plus(gradients=1, projections=5)


@jax.jit
def begin(tol: Leaf, problem: Problem, start: Point) -> AdaptiveState:
    """mu from how far the maximiser over Y moves; the first step evaluates f_mu at the start."""
    x, dtype = start.x, trees.dtype_of(start.x)
    chart, z = first_chart(problem.x_set, x)
    number = partial(jnp.asarray, dtype=dtype)
    cost = Cost(*(counter() for _ in Cost._fields))
    mu_g = number(jnp.inf)
    if problem.lower is not None:
        known = problem.constants.mu_g
        mu_g = spectrum(problem, x, start.theta, PRODUCTS)[0] if known is None else number(known)
        mu_g = jnp.maximum(mu_g, jnp.finfo(dtype).eps)
        cost = cost.plus(hvps=PRODUCTS if known is None else 0)
    rough = number(0.1)
    inner, inverse, Gx, cost = first_look(problem, start, mu_g, cost)
    mu = number(1)
    if problem.y_set is not None:
        mu, cost = first_weight(problem, start, inner, Gx, cost)
    recall = None if problem.lower is None else Recall.at(x, start.y, inner.theta, inner.w)
    zero, no = number(0), jnp.asarray(False)
    return AdaptiveState(
        k=counter(),
        x=x,
        theta=inner.theta,
        y=start.y,
        w=inner.w,
        value=zero,
        z=z,
        chart=chart,
        Gx=Gx,
        g_theta=inner.g_theta,
        gradients=inner.gradients,
        y0=start.y,
        mu=mu,
        first_mu=mu,
        L_y=inner.L_y,
        mu_g=mu_g,
        tau=zero,
        history=only(zero),
        pairs=Pairs.empty(z),
        c_low=rough,
        accuracy=rough,
        target=number(tol),
        gap=number(jnp.inf),
        last_shift=number(jnp.inf),
        age=counter(),
        best=number(jnp.inf),
        idle=counter(),
        mode=counter() + CENTRE,
        d=jnp.zeros_like(z),
        d0=jnp.zeros_like(z),
        length=number(1),
        slope=zero,
        tries=counter(),
        quasi_newton=no,
        plain_only=no,
        warm=inner,
        memory=Memory(recall, inverse),
        cost=cost,
    )
