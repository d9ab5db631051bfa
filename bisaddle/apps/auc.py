"""Multi-task ranking: the area under the ROC curve, by the min-max square surrogate; and the partial area."""

from collections.abc import Sequence
from typing import NamedTuple, Unpack

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps import layers, multitask
from bisaddle.apps.tasks import (
    ArrayLike,
    Choices,
    Shared,
    Task,
    Weights,
    as_numbers,
    binary,
    check_tasks,
    chosen,
    device,
    diameter,
    exactly,
    of_distributions,
    padded,
    penalties,
    require_both_classes,
    require_size,
    shared_part,
    uniform_penalty,
    weight_set,
)
from bisaddle.problem import Point, Problem
from bisaddle.sets import Box, ConvexSet, CVaRSet, L1Ball, Product
from bisaddle.trees import Number


class PartialData(NamedTuple):
    """Moments of the training rows; validation rows by class, the negatives an array for each task."""

    train: multitask.GramData
    positives: Array
    positive_shares: Array
    negatives: tuple[Array, ...]


class MinMaxData(NamedTuple):
    """Moments of the training rows; means and covariances of the two classes of the validation rows."""

    train: multitask.GramData
    means: Array
    covariance: Array


class NetworkData(NamedTuple):
    """Rows of every task, padded; shares[0] are 1 / n+ for positive rows, shares[1] 1 / n- for negative ones."""

    train_rows: Array
    train_shares: Array
    valid_rows: Array
    valid_shares: Array
    ridge: Array
    divergence: Array


def linear(
    tasks: Sequence[tuple],
    radius: Number = 5.0,
    ridge: Number = 0.1,
    divergence: Number = 0.0,
    **choices: Unpack[Choices],
) -> tuple[Problem, Point]:
    """Robust multi-task AUC of linear scores: multitask.regression with another quadratic loss.

        l_i(v) = mean over pairs (a+, a-) of (1 - <a+ - a-, v>)^2 / 2 = v'Hv / 2 - c'v + 1/2
        H = Cov+ + Cov- + delta delta',   c = delta = mean+ - mean-

    This is the min-max square surrogate with its own players eliminated: min over the means of both classes' scores,
    max over gamma (auc.minmax has them). Beside task weights y they could not stay: y_i times a concave function of
    gamma_i is not concave in both. n rows cost one pass, not n+ n- pairs. Tasks, arguments, start, constants: as for
    multitask.regression; labels 0, 1 or -1, 1, and both classes among the training and the validation rows of a task.
    """
    shared, x_set, weights, missing = chosen("auc.linear", **choices)
    checked = _labelled("auc.linear", tasks, missing)
    ridge, divergence = penalties(ridge, divergence)
    part = shared_part(shared, x_set, radius, len(checked), (checked[0][0].shape[1],))
    training, validation = (_moments([(task[k], task[k + 1]) for task in checked]) for k in (0, 2))
    data = multitask.GramData(*map(device, (*training, *validation, ridge, divergence)))
    return multitask.quadratic(data, part, weights, _sizes(training, validation, part))


def minmax(
    tasks: Sequence[tuple], radius: Number = 5.0, ridge: Number = 0.1, *, limit: Number = 10.0, missing: str = "refuse"
) -> tuple[Problem, Point]:
    """The mean AUC surrogate of all tasks, with the surrogate's own max player  [YWL16].

        min_{|x|_1 <= radius, lam in [0,1]^T, |a|, |b| <= limit} max_{|y| <= limit}  mean over tasks of
            E+(h - a_i)^2 / 2 + E-(h - b_i)^2 / 2 + (1 + y_i)(E- h - E+ h) - y_i^2 / 2 + 1/2,     h = <theta_i, .>
        theta_i as in auc.linear

    y is not a weight of tasks here but the surrogate's gamma; f is strongly concave in it. The value is that of
    auc.linear(weights="mean") if limit is at least the size of the mean scores, which x["centres"] and y tell.
    """
    checked = _labelled("auc.minmax", tasks, missing)
    ridge, limit = penalties(ridge, 0.0)[0], require_size("limit", limit)
    T, d = len(checked), checked[0][0].shape[1]
    classes = [_by_class(task[2], task[3]) for task in checked]
    means = np.stack([[rows.mean(axis=0) for rows in pair] for pair in classes])
    covariance = np.stack([sum(np.cov(rows.T, bias=True).reshape(d, d) for rows in pair) for pair in classes])
    train, part = _training(checked, ridge), shared_part("vector", None, radius, T, (d,))
    data = MinMaxData(train, *map(device, (means, covariance)))
    sets = {"x": part.x_set, "lam": Box(0.0, 1.0), "centres": Box(-limit, limit)}
    sizes = _sizes(train[:3], train[:3], part)
    exact = multitask.lower_constants(sizes, part, ridge) | {"L_yy": 1 / T, "mu_y": 1 / T, "L_xx": 1 / T}
    exact |= _minmax_constants(means, covariance, multitask.theta_reach(sizes, ridge), limit)
    exact |= {
        "D_X": float(np.hypot(np.hypot(part.diameter, T**0.5), 2 * limit * (2 * T) ** 0.5)),
        "D_Y": 2 * limit * T**0.5,
    }
    start = Point(
        x={"x": np.zeros(d), "lam": np.full(T, 0.5), "centres": np.zeros((T, 2))},
        theta=np.zeros((T, d)),
        y=np.zeros(T),
    )
    constants = exactly(exact)
    return Problem(_minmax, _lower, Product(sets), Box(-limit, limit), data, constants=constants), start


def partial(
    tasks: Sequence[tuple],
    false_positives: Number = 0.3,
    radius: Number = 5.0,
    ridge: Number = 0.1,
    *,
    shared: str = "vector",
    x_set: ConvexSet | None = None,
    missing: str = "refuse",
) -> tuple[Problem, Point]:
    """The mean over tasks of the partial AUC up to a rate of false positives: the hardest negatives weigh.

        min_{x, lam} max_{p_i}  mean over tasks of  sum_j p_ij E+ (1 - h+ + h_j)^2 / 2,     h = <theta_i, .>
        p_i over the validation negatives of task i,  0 <= p_ij <= 1 / (false_positives n_i-),  sum_j p_ij = 1
        theta_i as in auc.linear, for all training rows

    The best p is uniform over the share `false_positives` of negatives with the largest (h_j + E+(1 - h+))^2: the
    highest scores, unless some are lower than -E+(1 - h+) by as much. false_positives=1 is auc.linear(weights="mean").
    Here the class of problems ends: with weights of tasks, y_i p_ij would be needed (not concave in both; as one
    variable it lies in a set without a projection here), and the two-way partial area, which also takes the hardest
    positives, has p_j q_k likewise. y is a tuple, the weights p_i of each task.
    """
    checked = _labelled("auc.partial", tasks, missing)
    false_positives, ridge = _rate(false_positives), penalties(ridge, 0.0)[0]
    T, d = len(checked), checked[0][0].shape[1]
    classes = [_by_class(task[2], task[3]) for task in checked]
    shares = padded([np.full(len(rows), 1.0 / len(rows)) for rows, _ in classes])
    train = _training(checked, ridge)
    positives, negatives = device(padded([rows for rows, _ in classes])), device(tuple(rows for _, rows in classes))
    data = PartialData(train, positives, device(shares), negatives)
    part = shared_part(shared, x_set, radius, T, (d,))
    Y, y = (
        Product((CVaRSet(1 - false_positives),) * T),
        tuple(np.full(len(rows), 1.0 / len(rows)) for _, rows in classes),
    )
    sizes = _sizes(train[:3], train[:3], part)
    exact = multitask.lower_constants(sizes, part, ridge) | {"L_yy": 0.0, "mu_y": 0.0}
    exact |= _partial_constants(classes, multitask.theta_reach(sizes, ridge))
    exact |= {"D_X": float(np.hypot(part.diameter, T**0.5))}
    exact |= {"D_Y": float(np.hypot.reduce([diameter(Y.blocks[i], y[i].shape) for i in range(T)]))}
    X = Product({"x": part.x_set, "lam": Box(0.0, 1.0)})
    constants = exactly(exact)
    problem = Problem(_partial, _lower, X, Y, data, constants=constants)
    return problem, Point(x={"x": part.start, "lam": np.full(T, 0.5)}, theta=np.zeros((T, d)), y=y)


def network(
    tasks: Sequence[tuple],
    hidden: Sequence[int] = (8,),
    radius: Number = 5.0,
    ridge: Number = 0.1,
    divergence: Number = 0.0,
    *,
    weights: Weights = "simplex",
    missing: str = "refuse",
    seed: int = 0,
) -> tuple[Problem, Point]:
    """Robust multi-task AUC of a shared network of tanh layers with a linear head for each task.

        meta.learn's problem with l_i as in auc.linear, the outputs of the last layer in the place of the rows

    hidden: units of each layer. Every layer has |W| <= radius and |shifts| <= radius. Start: random layers (seed).
    """
    checked = _labelled("auc.network", tasks, missing)
    ridge, divergence = penalties(ridge, divergence)
    T, Y = len(checked), weight_set(weights, len(checked))
    x, X = layers.make(checked[0][0].shape[1], hidden, radius, seed)
    k = int(hidden[-1])
    arrays = []
    for at in (0, 2):
        shares = padded(
            [np.stack([b / np.sum(b), (1 - b) / np.sum(1 - b)], axis=1) for b in (t[at + 1] for t in checked)]
        )
        arrays += [padded([task[at] for task in checked]), np.moveaxis(shares, 2, 0)]
    data = NetworkData(*map(device, (*arrays, ridge, divergence)))
    # a difference of two outputs is at most 2 sqrt(k) long; |theta_i| <= r goes on to hold after a step of theta
    bent, r = 4.0 * k, 2 * k**0.5 / ridge
    exact = {"mu_g": ridge, "L_g": bent + ridge, "L_yy": divergence * T, "mu_y": divergence * T}
    exact |= {"D_Y": diameter(Y, (T,)), "D_X": layers.diameter(x, radius)}
    exact |= {"L_thetay": bent * r + 2 * k**0.5, "L_ytheta": bent * r + 2 * k**0.5}
    exact |= _pairs(checked, 0, x, float(radius), r).lower_constants()
    if of_distributions(Y):
        exact |= {"L_thetatheta": bent, "C_theta": bent * r + 2 * k**0.5}
        exact |= _pairs(checked, 2, x, float(radius), r).upper_constants()
    constants = exactly(exact)
    problem = Problem(_network_upper, _network_lower, X, Y, data, constants=constants)
    return problem, Point(x=x, theta=np.zeros((T, k)), y=np.full(T, 1.0 / T))


def _pairs(tasks: list[Task], at: int, x: Sequence[dict], radius: float, r: float) -> layers.Head:
    """Of differences of features of the two classes: those of the rows that can change most stand for all."""
    J, S, p = [], [], 2 * x[-1]["shifts"].size ** 0.5
    for task in tasks:
        longest = np.array([np.max(np.linalg.norm(rows, axis=1)) for rows in _by_class(task[at], task[at + 1])])
        for found, bounds in zip((J, S), layers.derivatives(x, radius, longest), strict=True):
            found.append(bounds.sum(keepdims=True))
    return layers.Head(p, J, S, [1 + p * r] * len(tasks), 1.0, 0.0, r)


def area(scores: ArrayLike, labels: ArrayLike, false_positives: Number = 1.0) -> float:
    """The area under the ROC curve up to a rate of false positives, as a share of what is possible; ties count half."""
    h, given, rate = as_numbers("scores", scores), as_numbers("labels", labels), _rate(false_positives)
    if not np.all(np.isfinite(h)):
        raise ValueError("area: scores must be finite, given NaN or infinity")
    if h.shape != given.shape or h.ndim != 1:
        raise ValueError(f"area: scores (n,) and labels (n,) are needed, given {h.shape} and {given.shape}")
    b = binary("area", "labels", given)
    require_both_classes("area", "labels", b)
    positives, negatives = np.sort(h[b == 1]), np.sort(h[b == 0])[::-1]
    negatives = negatives[: max(1, round(rate * len(negatives)))]
    below, upto = (np.searchsorted(positives, negatives, side=side) for side in ("left", "right"))
    return float(1 - np.mean(below + upto) / (2 * len(positives)))


def _rate(given: Number) -> float:
    rate = require_size("false_positives", given)
    if rate > 1:
        raise ValueError(f"false_positives must be a rate with 0 < rate <= 1, given {given}")
    return rate


def _labelled(who: str, tasks: Sequence[tuple], missing: str) -> list[Task]:
    made = []
    for i, (A, b, valid, valid_b) in enumerate(check_tasks(who, tasks, missing)):
        pair = binary(f"task {i}", "b_train", b), binary(f"task {i}", "b_valid", valid_b)
        for name, labels in zip(("b_train", "b_valid"), pair, strict=True):
            require_both_classes(f"task {i}", name, labels)
        made.append((A, pair[0], valid, pair[1]))
    return made


def _by_class(A: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return A[b == 1], A[b == 0]


def _moments(pairs: list) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """H, c and 1 of every task: the form of a least-squares loss, for pairs."""
    gram, cross = [], []
    for A, b in pairs:
        positive, negative = _by_class(A, b)
        delta = positive.mean(axis=0) - negative.mean(axis=0)
        spread = [
            (rows - rows.mean(axis=0)).T @ (rows - rows.mean(axis=0)) / len(rows) for rows in (positive, negative)
        ]
        gram.append(spread[0] + spread[1] + np.outer(delta, delta))
        cross.append(delta)
    return np.stack(gram), np.stack(cross), np.ones(len(pairs))


def _training(tasks: list[Task], ridge: float) -> multitask.GramData:
    moments = _moments([(task[0], task[1]) for task in tasks])
    return multitask.GramData(*map(device, (*moments, *moments, ridge, 0.0)))


def _sizes(training: Sequence, validation: Sequence, part: Shared) -> multitask.Sizes:
    """From H and c of the training and the validation rows."""
    (H, c), (valid_H, valid_c) = ([np.asarray(part) for part in moments[:2]] for moments in (training, validation))
    h = np.linalg.eigvalsh(H)[:, -1]
    # |Hx| <= the longest column of H times |x|_1
    steep = np.max(np.linalg.norm(H, axis=1), axis=1) if isinstance(part.x_set, L1Ball) else h
    lengths = [np.linalg.norm(cross, axis=1) for cross in (c, valid_c)]
    return multitask.Sizes(h, part.reach * steep, lengths[0], np.linalg.eigvalsh(valid_H)[:, -1], lengths[1])


def _minmax_constants(means: np.ndarray, covariance: np.ndarray, r: np.ndarray, limit: float) -> dict[str, float]:
    """Of f, a quadratic function: M_i the two means, |theta_i| <= r_i, |a|, |b|, |y| <= limit.

    T f_theta_i = (Cov + M'M) theta - M'(a, b) - (1 + y) delta
    """
    T, norm = len(means), np.linalg.norm
    along, delta = norm(means, 2, axis=(1, 2)), norm(means[:, 0] - means[:, 1], axis=1)
    bent = np.linalg.eigvalsh(covariance + np.einsum("tci,tcj->tij", means, means))[:, -1]
    exact = {"L_xtheta": float(np.max(along)) / T, "L_thetax": float(np.max(along)) / T, "L_xy": 0.0, "L_yx": 0.0}
    exact |= {"L_thetatheta": float(np.max(bent)) / T}
    exact |= {"L_thetay": float(np.max(delta)) / T, "L_ytheta": float(np.max(delta)) / T}
    return exact | {"C_theta": float(norm(bent * r + 2**0.5 * limit * along + (1 + limit) * delta)) / T}


def _partial_constants(classes: list, r: np.ndarray) -> dict[str, float]:
    """Of f, linear in p and quadratic in theta, for |theta_i| <= r_i.

    T f_theta_i = sum_j p_ij E+ (1 - h+ + h_j)(a_j - a+)
    E+ (a_j - a+)(a_j - a+)' = Cov+ + (a_j - mean+)(a_j - mean+)'
    """
    T, bent, slopes = len(classes), [], []
    for (positive, negative), reach in zip(classes, r, strict=True):
        away = np.sum((negative - positive.mean(axis=0)) ** 2, axis=1)
        covariance = np.atleast_2d(np.cov(positive.T, bias=True))
        bent.append(np.linalg.eigvalsh(covariance)[-1] + away.max())
        squares = np.trace(covariance) + away  # E+ |a_j - a+|^2
        slopes.append(np.sqrt(squares) + reach * squares)
    across = max(float(np.linalg.norm(slope)) for slope in slopes) / T
    exact = {"L_xx": 0.0, "L_xtheta": 0.0, "L_xy": 0.0, "L_thetax": 0.0, "L_yx": 0.0}
    exact |= {"L_thetatheta": float(max(bent)) / T, "L_thetay": across, "L_ytheta": across}
    return exact | {"C_theta": float(np.linalg.norm([slope.max() for slope in slopes])) / T}


def _lower(x, theta, data):
    return multitask._lower(x, theta, data.train)


def _minmax(x, theta, y, data):
    centres, h = x["centres"], jnp.einsum("tcd,td->tc", data.means, theta)
    spread = jnp.einsum("ti,tij,tj->t", theta, data.covariance, theta)
    losses = 0.5 * (spread + jnp.sum(jnp.square(h - centres), axis=1) + 1 - jnp.square(y))
    return jnp.mean(losses + (1 + y) * (h[:, 1] - h[:, 0]))


def _partial(x, theta, y, data):
    missed = 1 - jnp.einsum("tnd,td->tn", data.positives, theta)
    total = 0.0
    for i, (rows, p) in enumerate(zip(data.negatives, y, strict=True)):
        h, share = rows @ theta[i], data.positive_shares[i]
        mean = jnp.sum(share * missed[i])
        total += 0.5 * (jnp.sum(share * jnp.square(missed[i])) * jnp.sum(p) + p @ (2 * mean * h + jnp.square(h)))
    return total / len(y)


def _network_losses(x, theta, rows, shares):
    scores = jnp.einsum("tnk,tk->tn", layers.features(x, rows), theta)
    means = jnp.einsum("ctn,tn->ct", shares, scores)
    spread = jnp.einsum("ctn,tn->t", shares, jnp.square(scores)) - jnp.sum(jnp.square(means), axis=0)
    return 0.5 * (spread + jnp.square(1 - means[0] + means[1]))


def _network_upper(x, theta, y, data):
    return jnp.sum(y * _network_losses(x, theta, data.valid_rows, data.valid_shares)) - uniform_penalty(
        y, data.divergence
    )


def _network_lower(x, theta, data):
    losses = _network_losses(x, theta, data.train_rows, data.train_shares)
    return jnp.sum(losses) + 0.5 * data.ridge * jnp.sum(jnp.square(theta))
