"""What Adaptive carries from step to step."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle.methods.base import State
from bisaddle.methods.coordinates import Chart
from bisaddle.methods.face_step import Pairs
from bisaddle.methods.inner_solves import Cost, Inner, Memory

# what the next evaluation is for
TRIAL, REFINE, CENTRE, SAFEGUARD = range(4)
HISTORY = 10


class AdaptiveLook(State):
    """What solve looks at: the gap as the method sees it, and what it has cost."""

    gap: Array
    cost: Cost


class AdaptiveState(AdaptiveLook):
    """(x, theta, y, w): the last accepted point, with value and gradient of f_mu there; then the search under way.

    y0, mu       centre and weight of the proximal term in y            c_low, accuracy    of the inner solves
    target       the gap that the method works towards                  age                steps of x at this centre
    best         the smallest gap at a centre                           idle               centres since then
    z, chart     coordinates of x, flat, and what they mean             Gx                 gradient of f_mu in x
    d, length    z + length d is tried next                             warm               the inner variables there
    memory       of earlier evaluations
    """

    value: Array
    z: Array
    chart: Chart
    Gx: PyTree
    g_theta: PyTree
    gradients: tuple[PyTree, PyTree, PyTree]
    y0: PyTree
    mu: Array
    first_mu: Array
    L_y: Array
    mu_g: Array
    tau: Array
    history: Array
    pairs: Pairs
    c_low: Array
    accuracy: Array
    target: Array
    last_shift: Array
    age: Array
    best: Array
    idle: Array
    mode: Array
    d: Array
    d0: Array
    length: Array
    slope: Array
    tries: Array
    quasi_newton: Array
    plain_only: Array
    warm: Inner
    memory: Memory

    @property
    def inner(self) -> Inner:
        return Inner(self.theta, self.y, self.w, self.g_theta, self.gradients, self.L_y, self.mu_g)


def change(state: AdaptiveState, **changes) -> AdaptiveState:
    """New numbers in the dtypes of the old ones; a new memory as it is, for it may come and go."""
    kept = {name: changes.pop(name) for name in ("memory",) if name in changes}
    cast = jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), changes, {n: getattr(state, n) for n in changes})
    return AdaptiveState(**(vars(state) | cast | kept))


def only(value: Array) -> Array:
    return jnp.full(HISTORY, -jnp.inf, value.dtype).at[0].set(value)
