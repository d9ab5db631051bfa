"""The measures of section 6 at many points at once, at exact lower solutions."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import oracle, programs, trees
from bisaddle.experiments.multitask import Spectrum
from bisaddle.problem import Problem
from bisaddle.report.records import MEASURES as COLUMNS

# points that one compiled program measures
CHUNK = 1024


class Scale(NamedTuple):
    """sigma, tau of the gap, and the method's own."""

    sigma: Array | np.ndarray
    tau: Array | np.ndarray
    own_sigma: Array | np.ndarray
    own_tau: Array | np.ndarray


def measure(problem: Problem, exact: Spectrum, scale: Scale, x: PyTree, y: Array) -> dict[str, Array]:
    """One point (x, y), all at theta*(x).

    x_gap, gap                        Definition 2.1: max_s <grad_x L, x - s>, and with the y gap added
    x_gap_projection, gap_projection  Definition 2.2: |x - P_X(x - tau grad_x L)| / tau, and with the y gap added
    gap_paper, gap_projection_paper   the same with the method's own sigma and tau
    worst_value                       the largest loss, of the application
    corner                            whether the point is a degenerate corner, where grad_x L = 0 says nothing
    """
    theta = exact.lower_solution(problem, x)
    f_x, f_theta, f_y = oracle.upper_gradients(problem, x, theta, y)
    v = exact.inverse_product(problem, x, f_theta)
    Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, v))

    def projection_gap(tau):
        return trees.norm(trees.subtract(x, problem.x_set.project(trees.add_scaled(x, -tau, Gx)))) / tau

    def ascent_gap(sigma):
        assert problem.y_set is not None
        return trees.norm(y - problem.y_set.prox(y + sigma * f_y, sigma)) / sigma

    x_gap = trees.dot(Gx, trees.subtract(x, problem.x_set.lmo(Gx)))
    x_projection, y_gap, own_y_gap = projection_gap(scale.tau), ascent_gap(scale.sigma), ascent_gap(scale.own_sigma)
    return {
        "x_gap": x_gap,
        "y_gap": y_gap,
        "gap": x_gap + y_gap,
        "x_gap_projection": x_projection,
        "gap_projection": x_projection + y_gap,
        "gap_paper": x_gap + own_y_gap,
        "gap_projection_paper": projection_gap(scale.own_tau) + own_y_gap,
        "worst_value": exact.worst_value(problem, x, theta, y),
        "corner": exact.corner(x, y, Gx),
    }


def _chunk(problem: Problem, exact: Spectrum, scales: Scale, x: PyTree, y: Array | np.ndarray) -> dict[str, Array]:
    return jax.vmap(lambda scale, x, y: measure(problem, exact, scale, x, y))(scales, x, y)


def measure_all(
    problem: Problem, exact: Spectrum, scales: Scale, x: PyTree, y: Array | np.ndarray
) -> dict[str, np.ndarray]:
    """The measures at points stacked along the first two axes (lanes, records); scales: one a lane."""
    lanes, records = y.shape[:2]
    count = lanes * records
    padded = -(-count // CHUNK) * CHUNK
    flat_scales = jax.tree.map(lambda a: np.repeat(np.asarray(a), records), scales)
    flat = jax.tree.map(lambda a: np.asarray(a).reshape(count, *a.shape[2:]), (x, y))
    flat = jax.tree.map(lambda a: np.concatenate([a, np.repeat(a[-1:], padded - count, 0)]), (flat_scales, *flat))
    fixed = programs.on_device((problem, exact))
    program = programs.cached(_chunk, "the measures", *fixed, *_slice(flat, 0), effort=1)
    pieces = [program(*fixed, *_slice(flat, i)) for i in range(0, padded, CHUNK)]
    joined = {name: np.concatenate([np.asarray(piece[name]) for piece in pieces])[:count] for name in COLUMNS}
    return {name: values.reshape(lanes, records) for name, values in joined.items()}


def _slice(flat: PyTree, i: int) -> PyTree:
    return jax.tree.map(lambda a: a[i : i + CHUNK], flat)
