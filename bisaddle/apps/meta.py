"""Robust meta-learning: a representation shared by all tasks, from which the worst task adapts well from few rows."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps import layers, tasks as kit
from bisaddle.problem import Point, Problem
from bisaddle.trees import Number

# steps of Newton's method for the head of a new task; it has converged long before
MOST_NEWTON = 100


class Rows(NamedTuple):
    """Support and query rows of every task, padded; shares are 1 / n_i, and 0 for padding."""

    support_rows: Array
    support_targets: Array
    support_shares: Array
    query_rows: Array
    query_targets: Array
    query_shares: Array
    ridge: Array
    divergence: Array


class Ridge(Rows):
    """(z - b)^2 / 2, whose curvature is 1"""

    curvature: ClassVar = 1.0
    bend: ClassVar = 0.0

    @staticmethod
    def loss(z, b):
        return 0.5 * jnp.square(z - b)


class Logistic(Rows):
    """log(1 + exp z) - b z for labels 0, 1: its slope is at most 1, its curvature 1/4"""

    curvature: ClassVar = 0.25
    bend: ClassVar = 1 / (6 * 3**0.5)

    @staticmethod
    def loss(z, b):
        return jax.nn.softplus(z) - b * z


def learn(
    tasks: Sequence[tuple],
    head: str = "ridge",
    *,
    hidden: Sequence[int] = (16, 16),
    radius: Number = 10.0,
    ridge: Number = 0.01,
    divergence: Number = 0.0,
    weights: kit.Weights = "simplex",
    missing: str = "refuse",
    seed: int = 0,
) -> tuple[Problem, Point]:
    """A shared representation and a head for each task  [GLRW23, GLRW21].

        min_{x: layers} max_{y in U}  sum_i y_i l_i(theta_i; x, query) - (divergence / T) |T y - 1|^2 / 2
        theta_i = argmin  l_i(theta_i; x, support) + (ridge/2) |theta_i|^2
        l_i = mean over rows of l(<theta_i, (phi_x(a), 1)>, b),     phi_x: layers of tanh units

    tasks: a list of (A_support, b_support, A_query, b_query), of any numbers of rows. head: "ridge", l = (z - b)^2 / 2,
    or "logistic", labels 0, 1 or -1, 1. x is a tuple of layers {"weights", "shifts"}, hidden their units, each with
    |W| <= radius and |shifts| <= radius. weights: U, as for multitask; "mean" is plain meta-learning.
    Start: random layers (seed), theta = 0, y uniform. The problem is not convex in x: other seeds end elsewhere.
    """
    kit.require_word("head", head, ("ridge", "logistic"))
    checked = kit.check_tasks("meta.learn", tasks, missing)
    if head == "logistic":
        checked = [_labelled(i, task) for i, task in enumerate(checked)]
    ridge, divergence = kit.penalties(ridge, divergence)
    T, Y = len(checked), kit.weight_set(weights, len(checked))
    x, X = layers.make(checked[0][0].shape[1], hidden, radius, seed)
    kind = Ridge if head == "ridge" else Logistic
    support, targets, query, query_targets = (list(column) for column in zip(*checked, strict=True))
    given = (kit.padded(support), kit.padded(targets), kit.shares(support))
    asked = (kit.padded(query), kit.padded(query_targets), kit.shares(query))
    data = kind(*map(kit.device, (*given, *asked, ridge, divergence)))
    # outputs are in (-1, 1), so a row and its 1 are at most sqrt(K) long
    K = x[-1]["shifts"].size + 1
    bent = kind.curvature * K
    exact = {"mu_g": ridge, "L_g": bent + ridge, "L_yy": divergence * T, "mu_y": divergence * T}
    exact |= {"D_X": layers.diameter(x, radius), "D_Y": kit.diameter(Y, (T,))}
    # |theta_i| <= r goes on to hold after a step of theta
    r = K**0.5 * max(float(np.mean(np.abs(b))) if head == "ridge" else 1.0 for b in targets) / ridge
    slope = K * r + K**0.5 * max(float(np.mean(np.abs(b))) for b in query_targets) if head == "ridge" else K**0.5
    exact |= {"L_thetay": slope, "L_ytheta": slope}

    def bounds(rows, targets):
        steep = [K**0.5 * r + np.abs(b) if head == "ridge" else 1.0 for b in targets]
        J, S = zip(*(layers.derivatives(x, radius, np.linalg.norm(A, axis=1)) for A in rows), strict=True)
        return layers.Head(K**0.5, list(J), list(S), steep, kind.curvature, kind.bend, r)

    exact |= bounds(support, targets).lower_constants()
    if kit.of_distributions(Y):
        exact |= {"L_thetatheta": bent, "C_theta": slope} | bounds(query, query_targets).upper_constants()
    constants = kit.exactly(exact)
    problem = Problem(_upper, _lower, X, Y, data, constants=constants)
    return problem, Point(x=x, theta=np.zeros((T, K)), y=np.full(T, 1.0 / T))


class Predictor(NamedTuple):
    """A head over the layers: predictor(rows) are predictions, or probabilities of the class 1."""

    layers: tuple[dict[str, np.ndarray], ...]
    theta: np.ndarray
    head: str

    def __call__(self, rows: kit.ArrayLike) -> np.ndarray:
        rows, width = kit.as_numbers("rows", rows), self.layers[0]["weights"].shape[1]
        if rows.ndim != 2 or rows.shape[1] != width:
            raise ValueError(f"rows must be (n, {width}), as the tasks had them, given {rows.shape}")
        z = _host_rows(self.layers, rows) @ self.theta
        return z if self.head == "ridge" else 0.5 + 0.5 * np.tanh(0.5 * z)


def adapt(
    x: Sequence[dict], support: tuple[kit.ArrayLike, kit.ArrayLike], *, head: str = "ridge", ridge: Number = 0.01
) -> Predictor:
    """The predictor of a new task from a few rows: the lower level of `learn`, solved for it. x: result.x.

    support: (A, b). ridge and head as they were in `learn`. In NumPy: nothing is compiled.
    """
    kit.require_word("head", head, ("ridge", "logistic"))
    ridge = kit.require_size("ridge", ridge)
    A, b = kit.check_rows("adapt", "A", "b", *support)
    fixed = tuple({name: np.asarray(value) for name, value in layer.items()} for layer in x)
    if A.shape[1] != fixed[0]["weights"].shape[1]:
        raise ValueError(f"adapt: A needs {fixed[0]['weights'].shape[1]} columns as the tasks had, given {A.shape[1]}")
    rows = _host_rows(fixed, A)
    penalty, count = ridge * np.eye(rows.shape[1]), len(rows)
    if head == "ridge":
        theta = np.linalg.solve(rows.T @ rows / count + penalty, rows.T @ b / count)
        return Predictor(fixed, theta, head)
    theta, b = np.zeros(rows.shape[1]), kit.binary("adapt", "b", b)
    value = lambda v: np.mean(np.logaddexp(0, rows @ v) - b * (rows @ v)) + 0.5 * ridge * v @ v
    for _ in range(MOST_NEWTON):
        p = 0.5 + 0.5 * np.tanh(0.5 * rows @ theta)
        slope = rows.T @ (p - b) / count + ridge * theta
        if np.linalg.norm(slope) <= 1e-12 * (1 + np.linalg.norm(theta)):
            break
        step = np.linalg.solve(rows.T @ (rows * (p * (1 - p))[:, None]) / count + penalty, slope)
        size = 1.0
        while size > 1e-8 and value(theta - size * step) > value(theta) - 0.25 * size * slope @ step:
            size /= 2
        theta = theta - size * step
    return Predictor(fixed, theta, head)


def sinusoids(tasks: int = 20, shots: int = 10, seed: int = 0, queries: int = 20) -> list[kit.Task]:
    """Few-shot regression of sinusoids, the family of MORBiT's experiments  [GLRW23].

        b = a sin(w t - p),     a ~ U(0.1, 5),  w ~ U(1, 3),  p ~ U(0, pi),  t ~ U(-5, 5)

    `shots` support rows and `queries` query rows for each task; the amplitudes make some tasks far harder than others.
    """
    for name, value in (("tasks", tasks), ("shots", shots), ("queries", queries)):
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"sinusoids: {name} must be a whole number >= 1, given {value!r}")
    rng, made = np.random.default_rng(seed), []
    for _ in range(tasks):
        a, w, p = rng.uniform(0.1, 5), rng.uniform(1, 3), rng.uniform(0, np.pi)
        t = rng.uniform(-5, 5, size=(shots + queries, 1))
        b = a * np.sin(w * t[:, 0] - p)
        made.append((t[:shots], b[:shots], t[shots:], b[shots:]))
    return made


def _labelled(i: int, task: kit.Task) -> kit.Task:
    A, b, query, query_b = task
    kit.require_both_classes(f"task {i}", "b_train", b)
    return A, kit.binary(f"task {i}", "b_train", b), query, kit.binary(f"task {i}", "b_valid", query_b)


def _host_rows(x: tuple[dict[str, np.ndarray], ...], A: np.ndarray) -> np.ndarray:
    return np.c_[layers.host_features(x, A), np.ones(len(A))]


def _scores(x, theta, rows):
    return jnp.einsum("tnk,tk->tn", layers.features(x, rows), theta[:, :-1]) + theta[:, -1:]


def _upper(x, theta, y, data):
    losses = data.loss(_scores(x, theta, data.query_rows), data.query_targets)
    return jnp.sum(y * jnp.sum(data.query_shares * losses, axis=1)) - kit.uniform_penalty(y, data.divergence)


def _lower(x, theta, data):
    losses = data.loss(_scores(x, theta, data.support_rows), data.support_targets)
    return jnp.sum(data.support_shares * losses) + 0.5 * data.ridge * jnp.sum(jnp.square(theta))
