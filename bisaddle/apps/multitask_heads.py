"""Robust multi-task classification and counts: logistic, softmax and Poisson losses in the place of squares."""

from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, xlogy
from jaxtyping import Array

from bisaddle.apps import tasks as kit
from bisaddle.apps.tasks import Choices, shares
from bisaddle.problem import Constants, Derivatives, Point, Problem
from bisaddle.sets import Box, Product
from bisaddle.trees import Number


class Rows(NamedTuple):
    """Rows of every task, padded to the same length; shares are 1 / n_i, and 0 for padding.

    real: as task_count takes it. row_axes: how bs.parallel splits them.
    """

    row_axes = dict.fromkeys(
        ("train_rows", "train_targets", "train_shares", "valid_rows", "valid_targets", "valid_shares"), 1
    )
    train_rows: Array
    train_targets: Array
    train_shares: Array
    valid_rows: Array
    valid_targets: Array
    valid_shares: Array
    ridge: Array
    divergence: Array
    real: Array | None = None


class Logistic(Rows):
    """softplus(z) - b z for labels 0, 1: |slope| <= 1, curvature <= 1/4, change of curvature <= 1 / (6 sqrt 3)"""

    bounds: ClassVar = (1.0, 0.25, 1 / (6 * 3**0.5))

    @staticmethod
    def loss(z, b):
        return jax.nn.softplus(z) - b * z

    @staticmethod
    def slope(z, b):
        return jax.nn.sigmoid(z) - b

    @staticmethod
    def curved(z, u):
        p = jax.nn.sigmoid(z)
        return p * (1 - p) * u


class Softmax(Rows):
    """log sum exp(z) - <b, z> for labels as unit vectors, in exact bounds as they are for Logistic

    The third derivative along three unit vectors is a third central moment of entries of a unit vector, which lie in an
    interval of length sqrt 2: at most sqrt(2)^3 / (6 sqrt 3).
    """

    bounds: ClassVar = (2**0.5, 0.5, 2**1.5 / (6 * 3**0.5))

    @staticmethod
    def loss(z, b):
        return logsumexp(z, axis=-1) - jnp.sum(b * z, axis=-1)

    @staticmethod
    def slope(z, b):
        return jax.nn.softmax(z) - b

    @staticmethod
    def curved(z, u):
        p = jax.nn.softmax(z)
        return p * (u - jnp.sum(p * u, axis=-1, keepdims=True))


class Poisson(Rows):
    """exp(z) - b z + b log b - b, half the deviance of counts b: 0 for a perfect fit, in every task alike"""

    bounds: ClassVar = None  # the curvature exp(z) has none

    @staticmethod
    def loss(z, b):
        return jnp.exp(z) - b * z + xlogy(b, b) - b

    @staticmethod
    def slope(z, b):
        return jnp.exp(z) - b

    @staticmethod
    def curved(z, u):
        return jnp.exp(z) * u


Head = type[Logistic] | type[Softmax] | type[Poisson]


def logistic(
    tasks: Sequence[tuple],
    radius: Number = 5.0,
    ridge: Number = 0.1,
    divergence: Number = 0.0,
    **choices: Unpack[Choices],
) -> tuple[Problem, Point]:
    """Robust multi-task logistic regression: multitask.regression with another loss.

        l_i(v) = mean over rows of log(1 + exp(<a, v>)) - b <a, v>,     b in {0, 1}

    Labels may be -1, 1 too. The model has no intercept of its own: append a column of ones. Other arguments, the start,
    and for which theta the constants hold: as for regression.
    """
    shared, x_set, weights, missing = kit.chosen("logistic", **choices)
    checked = kit.check_tasks("logistic", tasks, missing)
    for i, task in enumerate(checked):
        kit.require_both_classes(f"task {i}", "b_train", task[1])
    labelled = [_relabelled(i, task, kit.binary) for i, task in enumerate(checked)]
    part = kit.shared_part(shared, x_set, radius, len(checked), labelled[0][0].shape[1:])
    return _problem(Logistic, labelled, part, weights, ridge, divergence)


def softmax(
    tasks: Sequence[tuple],
    radius: Number = 5.0,
    ridge: Number = 0.1,
    divergence: Number = 0.0,
    *,
    classes: int | None = None,
    **choices: Unpack[Choices],
) -> tuple[Problem, Point]:
    """Robust multi-task softmax regression: multitask.regression with another loss.

        l_i(V) = mean over rows of log sum_c exp(<a, V_c>) - <a, V_b>,     V = lam_i theta_i + (1 - lam_i) x,  (d, C)

    Labels are whole numbers 0, ..., C - 1; classes is C, by default one more than the largest label. x is (d, C) for
    shared="vector", and (T, d C) for shared="matrix". Other arguments: as for regression.
    """
    shared, x_set, weights, missing = kit.chosen("softmax", **choices)
    checked = kit.check_tasks("softmax", tasks, missing)
    labels = np.concatenate([b for _, b, _, d in checked for b in (b, d)])
    if np.any(labels < 0) or np.any(labels != np.round(labels)):
        wrong = labels[(labels < 0) | (labels != np.round(labels))][0]
        raise ValueError(f"softmax: labels must be whole numbers 0, 1, ..., C - 1, given {wrong:g}")
    count = int(np.max(labels)) + 1 if classes is None else classes
    if count < 2 or np.max(labels) >= count:
        raise ValueError(
            f"softmax: labels 0 to {np.max(labels):g} need at least {max(2, int(np.max(labels)) + 1)} classes, "
            f"given classes={classes}"
        )
    for i, task in enumerate(checked):
        kit.require_both_classes(f"task {i}", "b_train", task[1])
    labelled = [
        _relabelled(i, task, lambda where, name, b: np.eye(count)[b.astype(int)]) for i, task in enumerate(checked)
    ]
    part = kit.shared_part(shared, x_set, radius, len(checked), (checked[0][0].shape[1], count))
    return _problem(Softmax, labelled, part, weights, ridge, divergence)


def poisson(
    tasks: Sequence[tuple],
    radius: Number = 1.0,
    ridge: Number = 0.1,
    divergence: Number = 0.0,
    **choices: Unpack[Choices],
) -> tuple[Problem, Point]:
    """Robust multi-task Poisson regression of counts: multitask.regression with another loss.

        l_i(v) = mean over rows of exp(<a, v>) - b <a, v> + b log b - b,     half the deviance

    The curvature exp(<a, v>) has no bound, so L_g and what follows from it is left open: Adaptive needs none of it, and
    bs.theory.estimate_constants gives one near a point for the other methods. Columns of a size of about 1 keep
    exp in range. Other arguments: as for regression.
    """
    shared, x_set, weights, missing = kit.chosen("poisson", **choices)
    checked = kit.check_tasks("poisson", tasks, missing)
    for i, (_, b, _, valid) in enumerate(checked):
        if min(np.min(b), np.min(valid)) < 0:
            raise ValueError(f"task {i}: counts must be >= 0, given {min(np.min(b), np.min(valid)):g}")
    part = kit.shared_part(shared, x_set, radius, len(checked), checked[0][0].shape[1:])
    return _problem(Poisson, checked, part, weights, ridge, divergence)


def _relabelled(i: int, task: kit.Task, change: Callable[[str, str, np.ndarray], np.ndarray]) -> kit.Task:
    A, b, valid_A, valid_b = task
    where = f"task {i}"
    return A, change(where, "b_train", b), valid_A, change(where, "b_valid", valid_b)


def _problem(
    kind: Head, tasks: list[kit.Task], part: kit.Shared, weights: kit.Weights, ridge: Number, divergence: Number
) -> tuple[Problem, Point]:
    ridge, divergence = kit.penalties(ridge, divergence)
    T, shape = len(tasks), (tasks[0][0].shape[1], *tasks[0][1].shape[1:])
    train, train_targets, valid, valid_targets = (list(column) for column in zip(*tasks, strict=True))
    training = (kit.padded(train), kit.padded(train_targets), shares(train))
    validation = (kit.padded(valid), kit.padded(valid_targets), shares(valid))
    data = kind(*map(kit.device, (*training, *validation, ridge, divergence)))
    Y = kit.weight_set(weights, T)
    constants = _constants(kind, train, valid, part, ridge, divergence, kit.diameter(Y, (T,)), kit.of_distributions(Y))
    X = Product({"x": part.x_set, "lam": Box(0.0, 1.0)})
    by_hand = Derivatives(_f_x, _f_theta, _f_y, _g_theta, _g_theta_theta, _g_theta_x)
    problem = Problem(_upper, _lower, X, Y, data, constants=constants, derivatives=by_hand)
    x = {"x": part.start, "lam": np.full(T, 0.5)}
    return problem, Point(x=x, theta=np.zeros((T, *shape)), y=np.full(T, 1.0 / T))


def _constants(
    kind: Head,
    train: list[np.ndarray],
    valid: list[np.ndarray],
    part: kit.Shared,
    ridge: float,
    divergence: float,
    D_Y: float,
    distributions: bool,
) -> Constants:
    """Exact mu_g, L_yy, mu_y and diameters; for the others bounds by norms, where the loss has bounds.

        g_theta_i = lam l'(v) + ridge theta,   v = lam theta + (1 - lam) x
        |l'| <= s,   |l''| <= h,   |dl''| <= b |dv|

    |theta_i| <= r_i = s_i / ridge goes on to hold after a step of theta; u = r + |x| bounds |theta_i - x|, so that
    |dv| <= |dtheta| + |dx| + u |dlam|.
    """
    T = len(train)
    exact = {"mu_g": ridge, "L_yy": divergence * T, "mu_y": divergence * T}
    exact |= {"D_X": float(np.hypot(part.diameter, T**0.5)), "D_Y": D_Y}
    exact |= {"L_xx": 0.0, "L_xtheta": 0.0, "L_xy": 0.0, "L_thetax": 0.0, "L_yx": 0.0}
    if kind.bounds is not None:
        steep, curved, bent = kind.bounds
        norms = [np.linalg.norm(A, axis=1) for A in train]
        s = steep * np.array([np.mean(n) for n in norms])
        h = curved * np.array([kit.largest(A) for A in train])
        b = bent / curved * h * [np.max(n) for n in norms]
        u = s / ridge + part.reach
        slope = steep * max(float(np.mean(np.linalg.norm(A, axis=1))) for A in valid)
        along_lam = h + b * u / 4 + 2 * h * u + b * u**2
        along_others = 2 * h + b / 4 + b * u  # each task meets dx: root T of it in all
        exact |= {"L_g": float(np.max(h)) + ridge, "L_thetay": slope, "L_ytheta": slope}
        exact |= {"C_thetax": float(np.hypot(np.linalg.norm(h) / 4, np.max(s + h * u)))}
        exact |= {"L_g_thetax": float(np.hypot(np.max(along_lam), T**0.5 * np.max(along_others)))}
        exact |= {"L_g_thetatheta": float(np.max(np.hypot(b, 2 * h + b * u)))}
        if distributions:  # weights of at most 1
            exact |= {"L_thetatheta": curved * max(kit.largest(A) for A in valid), "C_theta": slope}
    return kit.exactly(exact)


def _predicted(rows, v):
    return jnp.einsum("tnd,td...->tn...", rows, v)


def _summed(rows, values, shares):
    """sum_n shares_n values_n rows_n of every task"""
    return jnp.einsum("tnd,tn...->td...", rows, per_row(shares, values) * values)


def per_row(shares, values):
    return shares.reshape(shares.shape + (1,) * (values.ndim - 2))


def _valid_losses(theta, data):
    z = _predicted(data.valid_rows, theta)
    return jnp.sum(data.valid_shares * data.loss(z, data.valid_targets), axis=1)


def _upper(x, theta, y, data):
    return jnp.sum(y * _valid_losses(theta, data)) - kit.uniform_penalty(y, data.divergence, data.real)


def _lower(x, theta, data):
    z = _predicted(data.train_rows, kit.blend(x, theta))
    losses = jnp.sum(data.train_shares * data.loss(z, data.train_targets))
    return losses + 0.5 * data.ridge * jnp.sum(jnp.square(theta))


def _f_x(x, theta, y, data):
    return {"x": jnp.zeros_like(x["x"]), "lam": jnp.zeros_like(x["lam"])}


def _f_theta(x, theta, y, data):
    residual = data.slope(_predicted(data.valid_rows, theta), data.valid_targets)
    return kit.per_task(y, theta) * _summed(data.valid_rows, residual, data.valid_shares)


def _f_y(x, theta, y, data):
    return _valid_losses(theta, data) - data.divergence * (kit.task_count(y, data.real) * y - 1)


def _g_theta(x, theta, data):
    residual = data.slope(_predicted(data.train_rows, kit.blend(x, theta)), data.train_targets)
    return kit.per_task(x["lam"], theta) * _summed(data.train_rows, residual, data.train_shares) + data.ridge * theta


def _g_theta_theta(x, theta, w, data):
    z = _predicted(data.train_rows, kit.blend(x, theta))
    curved = data.curved(z, _predicted(data.train_rows, w))
    return (
        jnp.square(kit.per_task(x["lam"], theta)) * _summed(data.train_rows, curved, data.train_shares) + data.ridge * w
    )


def _g_theta_x(x, theta, w, data):
    lam = kit.per_task(x["lam"], theta)
    z, image = _predicted(data.train_rows, kit.blend(x, theta)), _predicted(data.train_rows, w)
    product = _summed(data.train_rows, data.curved(z, image), data.train_shares)
    # <l'(v), w> from the rows' images of w, which saves a product with the rows
    along = per_row(data.train_shares, z) * data.slope(z, data.train_targets) * image
    inner = lam * (theta - kit.common(x, theta)) * product
    total = lambda values: jnp.sum(values.reshape(len(values), -1), axis=1)
    return {"x": kit.gathered(x, lam * (1 - lam) * product), "lam": total(along) + total(inner)}
