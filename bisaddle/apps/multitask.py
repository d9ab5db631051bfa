"""Robust multi-task learning, which does well on the worst task: regression (the paper's Experiments 1 and 2), and
logistic, softmax and Poisson heads.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps.multitask_heads import logistic as logistic, poisson as poisson, softmax as softmax
from bisaddle.apps.tasks import (
    Shared,
    Weights,
    blend,
    check_tasks,
    common,
    device,
    diameter,
    exactly,
    gathered,
    largest,
    of_distributions,
    padded,
    penalties,
    require_word,
    shared_part,
    task_count,
    uniform_penalty,
    weight_set,
)
from bisaddle.devices import Order, in_order, total
from bisaddle.problem import Constants, Derivatives, Point, Problem
from bisaddle.sets import Box, ConvexSet, L1Ball, Product
from bisaddle.trees import Number


class GramData(NamedTuple):
    """A task's rows enter only through these: H = A'A/n, c = A'b/n, q = b'b/n, for training and for validation rows.

    real: as task_count takes it. order: of sums over tasks, if it matters. row_axes: there are no rows to split.
    """

    row_axes = {}

    train_gram: Array
    train_cross: Array
    train_square: Array
    valid_gram: Array
    valid_cross: Array
    valid_square: Array
    ridge: Array
    divergence: Array
    real: Array | None = None
    order: Order | None = None

    def train_losses(self, v: Array) -> Array:
        return in_order(self.order, _gram_losses, (), (self.train_gram, self.train_cross, self.train_square), v)

    def valid_losses(self, v: Array) -> Array:
        return in_order(self.order, _gram_losses, (), (self.valid_gram, self.valid_cross, self.valid_square), v)

    def train_slopes(self, v: Array) -> Array:
        return in_order(self.order, _gram_slopes, (), (self.train_gram, self.train_cross), v)

    def valid_slopes(self, v: Array) -> Array:
        return in_order(self.order, _gram_slopes, (), (self.valid_gram, self.valid_cross), v)

    def train_products(self, v: Array, w: Array) -> tuple[Array, Array]:
        """H w and <H v - c, w> of every task."""
        return in_order(self.order, _times, (), (self.train_gram,), w), jnp.sum(self.train_slopes(v) * w, axis=1)


class RowData(NamedTuple):
    """The rows themselves, every task padded with zero rows to the same length; counts are the true numbers of rows.

    real: as task_count takes it. order: of sums over tasks or rows, if it matters. row_axes, filled_with: how
    bs.parallel splits them, and what an empty task has.
    """

    row_axes = {"train_rows": 1, "train_targets": 1, "valid_rows": 1, "valid_targets": 1}
    filled_with = {"train_counts": 1.0, "valid_counts": 1.0}

    train_rows: Array
    train_targets: Array
    train_counts: Array
    valid_rows: Array
    valid_targets: Array
    valid_counts: Array
    ridge: Array
    divergence: Array
    real: Array | None = None
    order: Order | None = None

    def train_losses(self, v: Array) -> Array:
        return in_order(self.order, _row_losses, (self.train_rows, self.train_targets), (self.train_counts,), v)

    def valid_losses(self, v: Array) -> Array:
        return in_order(self.order, _row_losses, (self.valid_rows, self.valid_targets), (self.valid_counts,), v)

    def train_slopes(self, v: Array) -> Array:
        return in_order(self.order, _row_slopes, (self.train_rows, self.train_targets), (self.train_counts,), v)

    def valid_slopes(self, v: Array) -> Array:
        return in_order(self.order, _row_slopes, (self.valid_rows, self.valid_targets), (self.valid_counts,), v)

    def train_products(self, v: Array, w: Array) -> tuple[Array, Array]:
        """H w and <H v - c, w> = <v, H w> - <b, A w> / n of every task, from one A w and one product with A'."""
        found = in_order(self.order, _row_products, (self.train_rows, self.train_targets), (self.train_counts,), w)
        product, on_targets = found[:, :-1], found[:, -1]
        return product, jnp.sum(v * product, axis=1) - on_targets


def regression(
    tasks: Sequence[tuple],
    radius: Number = 5.0,
    ridge: Number = 0.1,
    divergence: Number = 0.0,
    form: str = "auto",
    *,
    shared: str = "vector",
    x_set: ConvexSet | None = None,
    weights: Weights = "simplex",
    missing: str = "refuse",
) -> tuple[Problem, Point]:
    """Robust multi-task linear regression  [AYH25, section 6].

        min_{|x|_1 <= radius, lam in [0,1]^T} max_{y in simplex}
            sum_i y_i l_i(theta_i; valid) - (divergence / T) |T y - 1|^2 / 2
        theta_i = argmin l_i(lam_i theta_i + (1 - lam_i) x; train) + (ridge/2) |theta_i|^2
        l_i(v) = |A_i v - b_i|^2 / (2 n_i)

    divergence = 0 is Experiment 1, > 0 Experiment 2 (without its constant). tasks: a list of
    (A_train, b_train, A_valid, b_valid), each A with d columns and any number of rows; missing="ignore" leaves out rows
    whose target is NaN.
    form: "gram" costs d^2 per task and product; "rows" costs n d, read twice; "auto" takes "gram" when n > d. Both have
    derivatives by hand.
    shared: "vector", one x for all tasks, or "matrix", a row of x for each task, the matrix in a nuclear-norm ball of
    this radius: low rank. x_set: another set for x. weights: the set of y (apps.tasks.weight_set).
    Returns the problem, with all its constants, and the start
    x = 0, lam = 1/2, theta = 0, y uniform. The constants that depend on theta hold for |theta_i| <= r_i, a ball that
    theta*(x) and every run from this start with alpha <= 2 / (mu_g + L_g) stay in.
    """
    tasks = check_tasks("regression", tasks, missing)
    require_word("form", form, ("auto", "gram", "rows"))
    T, d = len(tasks), tasks[0][0].shape[1]
    if form == "auto":
        form = "gram" if max(len(task[0]) for task in tasks) > d else "rows"
    training = [(A, b) for A, b, _, _ in tasks]
    validation = [(A, b) for _, _, A, b in tasks]
    ridge, divergence = penalties(ridge, divergence)
    part = shared_part(shared, x_set, radius, T, (d,))
    moments = _gram if form == "gram" else _rows
    parts = map(device, (*moments(training), *moments(validation), ridge, divergence))
    data = GramData(*parts) if form == "gram" else RowData(*parts)
    norm, h = np.linalg.norm, np.array([largest(A) for A, _ in training])
    columns = np.array([np.max(norm(A, axis=0)) / len(A) ** 0.5 for A, _ in training])  # |A x| <= columns sqrt(n) |x|_1
    sizes = Sizes(
        h,
        part.reach * (np.sqrt(h) * columns if isinstance(part.x_set, L1Ball) else h),
        np.array([norm(A.T @ b / len(A)) for A, b in training]),
        np.array([largest(A) for A, _ in validation]),
        np.array([norm(A.T @ b / len(A)) for A, b in validation]),
    )
    return quadratic(data, part, weights, sizes)


class Sizes(NamedTuple):
    """Of every task: |H|, a bound on |H x|, |c|, all of training rows; |H| and |c| of validation rows."""

    curvature: np.ndarray
    shift: np.ndarray
    cross: np.ndarray
    valid_curvature: np.ndarray
    valid_cross: np.ndarray


def quadratic(data: "GramData | RowData", part: Shared, weights: Weights, sizes: Sizes) -> tuple[Problem, Point]:
    """The problem of `regression` for losses that are quadratic in theta, from their moments or their rows."""
    T, d = len(sizes.curvature), data[0].shape[-1]
    Y = weight_set(weights, T)
    constants = _constants(sizes, part, float(data.ridge), float(data.divergence), diameter(Y, (T,)))
    if not of_distributions(Y):  # these hold for weights of at most 1
        constants = dataclasses.replace(constants, L_thetatheta=None, C_theta=None)
    X = Product({"x": part.x_set, "lam": Box(0.0, 1.0)})
    by_hand = Derivatives(_f_x, _f_theta, _f_y, _g_theta, _g_theta_theta, _g_theta_x)
    problem = Problem(_upper, _lower, X, Y, data, constants=constants, derivatives=by_hand)
    x = {"x": part.start, "lam": np.full(T, 0.5)}
    return problem, Point(x=x, theta=np.zeros((T, d)), y=np.full(T, 1.0 / T))


def synthetic(rows: int = 5000, width: int = 100, tasks: int = 5, noise: Number = 0.1, seed: int = 0) -> list[tuple]:
    """Gaussian tasks from the model of section 6, b_i = A_i (lam_i theta_i + (1 - lam_i) x) + noise, split 75/25."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(size=width) / np.sqrt(width)
    made = []
    for _ in range(tasks):
        own, lam = rng.normal(size=width) / np.sqrt(width), rng.uniform()
        A = rng.normal(size=(rows // tasks, width))
        b = A @ (lam * own + (1 - lam) * shared) + noise * rng.normal(size=len(A))
        cut = round(0.75 * len(A))
        made.append((A[:cut], b[:cut], A[cut:], b[cut:]))
    return made


def _constants(sizes: Sizes, part: Shared, ridge: float, divergence: float, D_Y: float) -> Constants:
    """Exact mu_g, L_g, L_yy, mu_y and diameters; for the others upper bounds by norms, block by block.

    g_theta_i = lam (H (lam theta + (1 - lam) x) - c) + ridge theta,     |H| = h,     |Hx| <= q
    r_i = max_lam lam ((1 - lam) q + |c|) / ridge:     |theta_i| <= r_i goes on to hold after a step of theta
    """
    h, q, c, v, valid_c = sizes
    T, r = len(h), theta_reach(sizes, ridge)
    slope = float(np.max(v * r + valid_c))  # of one validation loss in theta_i
    exact = lower_constants(sizes, part, ridge) | {"L_yy": divergence * T, "mu_y": divergence * T}
    exact |= {"D_X": float(np.hypot(part.diameter, T**0.5)), "D_Y": D_Y}
    exact |= {"L_xx": 0.0, "L_xtheta": 0.0, "L_xy": 0.0, "L_thetax": 0.0, "L_yx": 0.0}
    exact |= {"L_thetatheta": float(np.max(v)), "L_thetay": slope, "L_ytheta": slope, "C_theta": slope}
    return exactly(exact)


def theta_reach(sizes: Sizes, ridge: float) -> np.ndarray:
    """r_i of _constants"""
    q, c = sizes.shift, sizes.cross
    lam = np.minimum(1, (q + c) / np.maximum(2 * q, np.finfo(float).tiny))
    return lam * ((1 - lam) * q + c) / ridge


def lower_constants(sizes: Sizes, part: Shared, ridge: float) -> dict[str, float]:
    """Those of g, for |theta_i| <= r_i."""
    h, r = sizes.curvature, theta_reach(sizes, ridge)
    along_lam = np.max(2 * h * r + sizes.shift + sizes.cross)
    twist = float(np.max(h * np.maximum(np.hypot(1 + 2 * r + 2 * part.reach, 1), 2)))
    exact = {"mu_g": ridge, "L_g": float(np.max(h)) + ridge, "L_g_thetatheta": 2 * float(np.max(h))}
    return exact | {"C_thetax": float(np.hypot(np.linalg.norm(h) / 4, along_lam)), "L_g_thetax": twist}


def _gram(pairs: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    moments = zip(*((A.T @ A / len(A), A.T @ b / len(A), b @ b / len(A)) for A, b in pairs), strict=True)
    gram, cross, square = (np.stack(parts) for parts in moments)
    return gram, cross, square


def _rows(pairs: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    features, targets = zip(*pairs, strict=True)
    return padded(features), padded(targets), np.array([float(len(A)) for A in features])


def _times(gram, v):
    # symmetric: by columns is the faster way round; v first, which under vmap is a product of matrices as they lie
    return jnp.einsum("tj,tji->ti", v, gram)


def _predicted(rows, v):
    return jnp.einsum("tnd,td->tn", rows, v)


def _summed_rows(rows, weights):
    """sum_n weights_n rows_n of every task"""
    # beside a row of zeros XLA takes a product of matrices, in half the time of its product of a vector and a matrix
    pair = jnp.stack([weights, jnp.zeros_like(weights)], axis=1)
    return jnp.einsum("tkn,tnd->tkd", pair, rows)[:, 0]


def _row_losses(rows, targets, counts, v):
    return 0.5 * jnp.sum(jnp.square(_predicted(rows, v) - targets), axis=1) / counts


def _row_slopes(rows, targets, counts, v):
    return _summed_rows(rows, _predicted(rows, v) - targets) / counts[:, None]


def _row_products(rows, targets, counts, w):
    """A'A w / n, and <b, A w> / n beside it"""
    image = _predicted(rows, w)
    both = [_summed_rows(rows, image), jnp.sum(targets * image, axis=1)[:, None]]
    return jnp.concatenate(both, axis=1) / counts[:, None]


def _gram_slopes(gram, cross, v):
    return _times(gram, v) - cross


def _gram_losses(gram, cross, square, v):
    return 0.5 * jnp.sum(v * (_times(gram, v) - 2 * cross), axis=1) + 0.5 * square


def _upper(x, theta, y, data):
    worst = total(y * data.valid_losses(theta), 0, data.order, "tasks")
    return worst - uniform_penalty(y, data.divergence, data.real, data.order)


def _lower(x, theta, data):
    losses = data.train_losses(blend(x, theta)) + 0.5 * data.ridge * jnp.sum(jnp.square(theta), axis=1)
    return total(losses, 0, data.order, "tasks")


def _f_x(x, theta, y, data):
    return {"x": jnp.zeros_like(x["x"]), "lam": jnp.zeros_like(x["lam"])}


def _f_theta(x, theta, y, data):
    return y[:, None] * data.valid_slopes(theta)


def _f_y(x, theta, y, data):
    return data.valid_losses(theta) - data.divergence * (task_count(y, data.real) * y - 1)


def _g_theta(x, theta, data):
    return x["lam"][:, None] * data.train_slopes(blend(x, theta)) + data.ridge * theta


def _g_theta_theta(x, theta, w, data):
    return jnp.square(x["lam"])[:, None] * data.train_products(w, w)[0] + data.ridge * w


def _g_theta_x(x, theta, w, data):
    lam = x["lam"][:, None]
    product, slope = data.train_products(blend(x, theta), w)
    along_x = gathered(x, lam * (1 - lam) * product, data.order)
    along_lam = slope + jnp.sum(lam * (theta - common(x, theta)) * product, axis=1)
    return {"x": along_x, "lam": along_lam}
