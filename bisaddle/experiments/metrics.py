"""The measures of section 6 at many points at once, with exact lower solutions from one eigendecomposition a task."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import oracle, programs, trees
from bisaddle.problem import Problem

# how near y to a vertex e_j, lambda_j to 0 or 1, and grad_x L to 0 count as there
CORNER = 1e-9
# points that one compiled program measures
CHUNK = 1024
COLUMNS = (
    "x_gap",
    "y_gap",
    "gap",
    "x_gap_projection",
    "gap_projection",
    "gap_paper",
    "gap_projection_paper",
    "worst_value",
    "corner",
)


class Spectrum(NamedTuple):
    """H_i = V_i diag(h_i) V_i' for the training Gram matrix of each task, and V_i' c_i.

    vectors[i] is V_i, values[i] is h_i, cross[i] is V_i' c_i.
    """

    vectors: Array
    values: Array
    cross: Array

    @classmethod
    def of(cls, problem: Problem) -> "Spectrum":
        gram, cross = np.asarray(problem.data.train_gram), np.asarray(problem.data.train_cross)
        values, vectors = np.linalg.eigh(gram)
        rotated = np.einsum("tji,tj->ti", vectors, cross)
        return cls(jnp.asarray(vectors), jnp.asarray(np.maximum(values, 0)), jnp.asarray(rotated))

    def into(self, v: Array) -> Array:
        """V_i' v_i, a row a task."""
        return jnp.einsum("tj,tji->ti", v, self.vectors)

    def back(self, v: Array) -> Array:
        """V_i v_i, a row a task."""
        return jnp.einsum("tj,tij->ti", v, self.vectors)

    def hessian(self, lam: Array, ridge: Array) -> Array:
        """Eigenvalues of g_theta_theta, lam_i^2 h_i + ridge."""
        return jnp.square(lam)[:, None] * self.values + ridge

    def lower_solution(self, x: PyTree, ridge: Array) -> Array:
        """theta*_i = (lam_i^2 H_i + ridge I)^-1 lam_i (c_i - (1 - lam_i) H_i x)"""
        lam = x["lam"][:, None]
        shared = jnp.einsum("j,tji->ti", x["x"], self.vectors)
        right = lam * (self.cross - (1 - lam) * self.values * shared)
        return self.back(right / self.hessian(x["lam"], ridge))


class Scale(NamedTuple):
    """sigma, tau of the gap, and the method's own."""

    sigma: Array | np.ndarray
    tau: Array | np.ndarray
    own_sigma: Array | np.ndarray
    own_tau: Array | np.ndarray


def measure(problem: Problem, spectrum: Spectrum, scale: Scale, x: PyTree, y: Array) -> dict[str, Array]:
    """One point (x, y), all at theta*(x).

    x_gap, gap                        Definition 2.1: max_s <grad_x L, x - s>, and with the y gap added
    x_gap_projection, gap_projection  Definition 2.2: |x - P_X(x - tau grad_x L)| / tau, and with the y gap added
    gap_paper, gap_projection_paper   the same with the method's own sigma and tau
    worst_value                       the largest validation loss of a task
    corner                            y = e_j and lambda_j is 0 or 1: grad_x L = 0 whatever x is
    """
    theta = spectrum.lower_solution(x, problem.data.ridge)
    f_x, f_theta, f_y = oracle.upper_gradients(problem, x, theta, y)
    v = spectrum.back(spectrum.into(f_theta) / spectrum.hessian(x["lam"], problem.data.ridge))
    Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, v))

    def projection_gap(tau):
        return trees.norm(trees.subtract(x, problem.x_set.project(trees.add_scaled(x, -tau, Gx)))) / tau

    def ascent_gap(sigma):
        return trees.norm(y - _y_set(problem).prox(y + sigma * f_y, sigma)) / sigma

    x_gap = trees.dot(Gx, trees.subtract(x, problem.x_set.lmo(Gx)))
    x_projection, y_gap, own_y_gap = projection_gap(scale.tau), ascent_gap(scale.sigma), ascent_gap(scale.own_sigma)
    losses = oracle.upper_gradients(problem, x, theta, jnp.full_like(y, 1 / y.size))[2]
    j = jnp.argmax(y)
    end = jnp.minimum(x["lam"][j], 1 - x["lam"][j])
    corner = (y[j] >= 1 - CORNER) & (end <= CORNER) & (jnp.max(jnp.abs(Gx["x"])) <= CORNER)
    return {
        "x_gap": x_gap,
        "y_gap": y_gap,
        "gap": x_gap + y_gap,
        "x_gap_projection": x_projection,
        "gap_projection": x_projection + y_gap,
        "gap_paper": x_gap + own_y_gap,
        "gap_projection_paper": projection_gap(scale.own_tau) + own_y_gap,
        "worst_value": jnp.max(losses),
        "corner": corner,
    }


def _y_set(problem: Problem) -> Any:
    return problem.y_set


def _chunk(problem: Problem, spectrum: Spectrum, scales: Scale, x: PyTree, y: Array | np.ndarray) -> dict[str, Array]:
    one = lambda scale, x, y: measure(problem, spectrum, scale, x, y)
    return jax.vmap(one)(scales, x, y)


def measure_all(
    problem: Problem, spectrum: Spectrum, scales: Scale, x: PyTree, y: Array | np.ndarray
) -> dict[str, np.ndarray]:
    """The measures at points stacked along the first two axes (lanes, records); scales: one a lane."""
    lanes, records = y.shape[:2]
    count = lanes * records
    padded = -(-count // CHUNK) * CHUNK
    flat_scales = jax.tree.map(lambda a: np.repeat(np.asarray(a), records), scales)
    flat = jax.tree.map(lambda a: np.asarray(a).reshape(count, *a.shape[2:]), (x, y))
    flat = jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[-1:], padded - count, 0)]), (flat_scales, *flat))
    fixed = programs.on_device((problem, spectrum))
    program = programs.cached(_chunk, "the measures", *fixed, *_slice(flat, 0), effort=1)
    pieces = [program(*fixed, *_slice(flat, i)) for i in range(0, padded, CHUNK)]
    joined = {name: np.concatenate([np.asarray(piece[name]) for piece in pieces])[:count] for name in COLUMNS}
    return {name: values.reshape(lanes, records) for name, values in joined.items()}


def _slice(flat: PyTree, i: int) -> PyTree:
    return jax.tree.map(lambda a: a[i : i + CHUNK], flat)
