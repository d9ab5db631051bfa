"""Partial pooling: a model shared by all tasks, and a penalised part for each; how strong, by cross-validation."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle import trees
from bisaddle.apps.fold_bounds import of_moments, of_rows, upper_constants
from bisaddle.apps.folds import Moments, Rows, dealt, width
from bisaddle.apps.hyperparameter import FAINT, LOSSES, around
from bisaddle.apps.tasks import diameter, exactly, require_word
from bisaddle.problem import Constants, Derivatives, Point, Problem
from bisaddle.sets import Box
from bisaddle.trees import Number

# logarithms between which the best are looked for, if features have variance 1 and losses are means: the penalty of the
# shared slopes, what that of the tasks' own slopes has beyond it, the penalty of the tasks' own levels
LOWEST, HIGHEST = (-7.0, 0.0, -6.0), (3.0, 8.0, 5.0)


def pooled(
    features,
    targets,
    tasks,
    *,
    loss: str = "squared",
    protection: Number | str = 0.0,
    folds: int = 3,
    bounds=(LOWEST, HIGHEST),
    offset=None,
    seed: int = 0,
) -> tuple[Problem, Point]:
    """Linear models of several tasks, each drawn towards a shared one, as strongly as suits rows that are left out.

        min_{x in [low, high]^3}  sum_t (n_t / n) (CV_t(theta) - offset_t)
        (c_k, v_k) = argmin sum_t (n_t / n) L_t(c_k + v_kt; rows outside fold k) + sum_j exp(x_0) c_kj^2 / 2
                            + (1/T) sum_t [sum_j exp(x_0 + x_1) v_ktj^2 / 2 + exp(x_2) v_kt0^2 / 2]

    Column 0 is the intercept, free in c and with a penalty of its own in v; j runs over the features. x_1 >= 0, so that
    what tasks have in common goes into c. A task with few rows is drawn more strongly, as in a mixed model.
    theta = {"shared": c, "own": v} has a block for each fold, and a last one for all rows: the refit.
    loss: "squared", "logistic" or "softmax".
    protection: 0 is the mean above, and there is no y; otherwise max over y in the KL ball of that radius around the
    shares of the tasks ("worst": the simplex) of sum_t y_t (CV_t - offset_t).
    Features should be standardised, for the bounds to fit.
    Returns the problem, with its Constants, and the start: the middle of the bounds, theta = 0.
    """
    require_word("loss", loss, LOSSES)
    low, high = (np.broadcast_to(np.asarray(bound, float), (3,)) for bound in bounds)
    if not (np.all(np.isfinite([low, high])) and np.all(low < high)):
        raise ValueError(f"bounds must be two sets of three finite numbers, the lower ones first, given {bounds}")
    data, columns = dealt(features, targets, tasks, loss, folds, seed, offset, what="tasks")
    T = len(data.shares)
    problem, start = posed(data, np.full(T, 1 / T), columns, (low, high), protection)
    return Problem(**{**vars(problem), "constants": _constants(problem, columns)}), start


def posed(
    data: Moments | Rows, strength: np.ndarray, columns: int = 0, bounds=(LOWEST, HIGHEST), protection: Any = 0.0
) -> tuple[Problem, Point]:
    """The problem of `pooled` from moments or rows.

    strength: in place of 1/T, for each task; columns: the number of scores of a row, 0 for least squares.
    """
    K, T = data.left_out.shape
    d = width(data)
    shares = np.asarray(data.shares)
    mean = not isinstance(protection, str) and protection == 0
    y_set, y = (None, None) if mean else (around(shares, protection), shares)
    everything = {"rows": data, "strength": strength, "free": np.asarray(FAINT if columns else 0.0)}
    low, high = (np.asarray(bound, float) for bound in bounds)
    by_hand = Derivatives(_f_x, _f_theta, None if y is None else _f_y, _g_theta, _g_theta_theta, _g_theta_x)
    problem = Problem(_upper, _lower, Box(low, high), y_set, jax.device_put(everything), derivatives=by_hand)
    tail = () if columns == 0 else (columns,)
    theta = {"own": np.zeros((K + 1, T, d, *tail)), "shared": np.zeros((K + 1, d, *tail))}
    return problem, Point(x=0.5 * (low + high), theta=theta, y=y)


def penalties(x: Array) -> Array:
    """Of the shared slopes, the tasks' own slopes, and their own levels."""
    return jnp.exp(x + jnp.array([0.0, 1.0, 0.0]) * x[0])


def _coefficients(theta: Any) -> Array:
    return theta["shared"][:, None] + theta["own"]


def _both(slopes: Array) -> dict[str, Array]:
    """What a gradient in the coefficients of every task is in theta."""
    return {"own": slopes, "shared": jnp.sum(slopes, axis=1)}


def _ridge(x: Array, theta: Any, data: Any) -> dict[str, Array]:
    """The gradient of the penalties, which are quadratic."""
    shared, slopes, levels = penalties(x)
    tail = (1,) * (theta["shared"].ndim - 2)
    column = lambda first, others: jnp.full(theta["shared"].shape[1], others).at[0].set(first).reshape(-1, *tail)
    strength = data["strength"].reshape(-1, 1, *tail)
    return {
        "own": strength * column(levels, slopes) * theta["own"],
        "shared": column(data["free"], shared) * theta["shared"],
    }


def _weights(y, rows):
    return jnp.broadcast_to(rows.shares if y is None else y, rows.left_out.shape)


def _upper(x, theta, y, data):
    return jnp.sum(_weights(y, data["rows"]) * data["rows"].held_losses(_coefficients(theta)))


def _lower(x, theta, data):
    losses = jnp.sum(data["rows"].shares * data["rows"].train_losses(_coefficients(theta)))
    return losses + 0.5 * trees.dot(theta, _ridge(x, theta, data))


def _f_x(x, theta, y, data):
    return jnp.zeros_like(x)


def _f_theta(x, theta, y, data):
    return _both(data["rows"].held_slopes(_coefficients(theta), _weights(y, data["rows"])))


def _f_y(x, theta, y, data):
    return jnp.sum(data["rows"].held_losses(_coefficients(theta)), axis=0)


def _g_theta(x, theta, data):
    slopes = data["rows"].train_slopes(_coefficients(theta), data["rows"].shares)
    return jax.tree.map(jnp.add, _both(slopes), _ridge(x, theta, data))


def _g_theta_theta(x, theta, w, data):
    product = data["rows"].train_products(_coefficients(theta), _coefficients(w), data["rows"].shares)
    return jax.tree.map(jnp.add, _both(product), _ridge(x, w, data))


def _g_theta_x(x, theta, w, data):
    return jax.grad(lambda x: trees.dot(w, _ridge(x, theta, data)))(x)


def _constants(problem: Problem, columns: int) -> Constants:
    """Exact diameters and zeros; of the others bounds by norms, block by block.

    With e^2 = sum_t s_t |v_t|^2 + |u|^2, s the strengths, u the shared slopes, a the shared intercept, p the least of
    their penalties and M^2 >= 1 + |mean z|^2 of every task, the mean over tasks with weights n_t/n gives
        g_theta_theta >= (a + r)^2 + p e^2,     |r| <= M (sqrt(w) + 1) e,     w = max_t (n_t/n) / s_t
    whose least eigenvalue over a^2 + e^2 / min(s, 1) is that of a matrix [[1, m], [m, m^2 + q]].
    |theta_k| <= r, the size of g_theta without penalties by the least of them (of squares, at 0 by mu_g), goes on to
    hold after a step of theta. sum_t y_t |c + v_t|^2 <= 2 |theta_k|^2 for weights y of sum 1. Penalties are exp(<e, x>)
    with |e|^2 <= 2.
    """
    data, norm = problem.data, np.linalg.norm
    rows, strength, shares = data["rows"], np.asarray(data["strength"]), np.asarray(data["rows"].shares)
    box: Any = problem.x_set
    low, high = (np.asarray(penalties(jnp.asarray(bound))) for bound in (box.lower, box.upper))
    least = min(1.0, strength.min())
    most = float(max(high[0], strength.max() * high[1:].max(), FAINT))
    together = lambda sizes: float(np.max(np.hypot(sizes @ shares, norm(sizes * shares, axis=1))))
    if columns:
        mu = float(min(FAINT, low[0], strength.min() * low[1:].min()))
        found = of_rows(rows, columns)
        r = together(found.slope) / mu
    else:
        gram = np.asarray(rows.gram)
        M2 = 1 + float(np.max(np.sum(gram[:, :, 0, 1:] ** 2, axis=-1)))
        m2 = M2 * (1 + np.sqrt(np.max(shares / strength))) ** 2 * least
        q = low.min() * least
        trace = 1 + m2 + q
        mu = float(2 * q / (trace + np.sqrt(trace**2 - 4 * q)))
        r = together(norm(np.asarray(rows.cross), axis=-1)) / mu
        found = of_moments(rows, 2**0.5 * r)
    # [sum_t s_t H_t, s_t H_t ...]: c against itself, and c against all v_t, by Cauchy and Schwarz
    weighted = shares * found.curvature.max(axis=0)
    L_g = float(max(weighted.sum() + norm(weighted), norm(weighted) + weighted.max())) + most
    K, T = rows.left_out.shape
    known = {"mu_g": mu, "L_g": L_g, "D_X": float(norm(box.upper - box.lower))}
    known |= {} if problem.y_set is None else {"D_Y": diameter(problem.y_set, (T,))}
    known |= upper_constants(found, rows, "mean" if problem.y_set is None else "groups", 2.0)
    moved = 2**0.5 * most
    known |= {"C_thetax": moved * (K + 1) ** 0.5 * r, "L_g_thetax": max(moved, 2 * most * (K + 1) ** 0.5 * r)}
    return exactly(known | {"L_g_thetatheta": max(moved, 2**1.5 * float(np.max(found.bend)))})
