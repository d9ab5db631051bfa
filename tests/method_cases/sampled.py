"""A problem whose data can be sampled by rows, by tasks and by both: ridge regressions around a shared x."""

import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from tests import reference

RIDGE = 0.5
TASKS = 3


def _loss(rows, targets, theta):
    return 0.5 * jnp.mean((jnp.einsum("tnd,td->tn", rows, theta) - targets) ** 2, axis=1)


def _upper(x, theta, y, data):
    task = data["task"]
    losses = _loss(data["valid"], data["valid_targets"], theta[task])
    weights = jnp.full(theta.shape[0], 1 / theta.shape[0]) if y is None else y
    return theta.shape[0] * jnp.mean(weights[task] * losses) + 0.05 * jnp.sum(x**2)


def _lower(x, theta, data):
    """sum over the tasks of mean loss + RIDGE/2 |theta_t - x|^2, as T times a mean, so that tasks can be sampled"""
    own = theta[data["task"]]
    losses = _loss(data["train"], data["train_targets"], own) + 0.5 * RIDGE * jnp.sum((own - x) ** 2, axis=1)
    return theta.shape[0] * jnp.mean(losses)


def regressions(seed, saddle=True, T=TASKS, n=4, valid=4, d=2):
    rng = np.random.default_rng(seed)
    common = rng.normal(size=d)
    data = {"task": np.arange(T)}
    for name, count in (("train", n), ("valid", valid)):
        rows = rng.normal(size=(T, count, d))
        truth = common + 0.5 * rng.normal(size=(T, d))
        data[name] = rows
        data[f"{name}_targets"] = np.einsum("tnd,td->tn", rows, truth) + 0.1 * rng.normal(size=(T, count))
    curvatures = np.linalg.eigvalsh(np.einsum("tni,tnj->tij", data["train"], data["train"]) / n) + RIDGE
    largest = (data["train"] ** 2).sum(axis=2).max() + RIDGE  # of any batch
    constants = bs.Constants(mu_g=min(RIDGE, curvatures.min()), L_g=largest, L_yy=0.0)
    data = {name: jnp.asarray(value) for name, value in data.items()}
    y_set = bs.sets.Simplex() if saddle else None
    problem = bs.Problem(_upper, _lower, bs.sets.L2Ball(3.0), y_set, data, constants)
    y = jnp.full(T, 1 / T) if saddle else None
    return problem, bs.Point(x=jnp.full(d, 0.1), theta=jnp.zeros((T, d)), y=y)


def _rows_of(name):
    return lambda data: (data[name], data[f"{name}_targets"])


def _tasks_of(name):
    return lambda data: (data[name], data[f"{name}_targets"], data["task"])


# at module level: a batch is static, and the functions in it are compared by identity
TRAIN_ROWS, VALID_ROWS = _rows_of("train"), _rows_of("valid")
TRAIN_TASKS, VALID_TASKS = _tasks_of("train"), _tasks_of("valid")


def rows(size, **options):
    """`size` rows of every task, the same ones for all tasks."""
    batch = bs.methods.Batch
    return bs.methods.Sampler(batch(VALID_ROWS, size, 1, **options), batch(TRAIN_ROWS, size, 1, **options))


def tasks(size, **options):
    batch = bs.methods.Batch
    return bs.methods.Sampler(batch(VALID_TASKS, size, **options), batch(TRAIN_TASKS, size, **options))


def both(task_size, row_size):
    batch = bs.methods.Batch
    return bs.methods.Sampler(
        (batch(VALID_TASKS, task_size), batch(VALID_ROWS, row_size, 1)),
        (batch(TRAIN_TASKS, task_size), batch(TRAIN_ROWS, row_size, 1)),
    )


def twin(data, saddle=False):
    """The problem on these data in NumPy, theta flat."""
    data = {name: np.asarray(value) for name, value in data.items()}
    T, d = TASKS, data["train"].shape[2]
    share = T / len(data["task"])

    def residuals(name, theta):
        """(task, A'(A theta - b) / n, A'A / n) for each task in the data"""
        pairs = zip(data["task"], data[name], data[f"{name}_targets"], strict=True)
        return [(t, A.T @ (A @ theta[t * d : (t + 1) * d] - b) / len(A), A.T @ A / len(A)) for t, A, b in pairs]

    def f_theta(x, theta, y):
        total = np.zeros(T * d)
        for t, slope, _ in residuals("valid", theta):
            total[t * d : (t + 1) * d] += share * slope * (1 / T if y is None else y[t])
        return total

    def f_y(x, theta, y):
        total = np.zeros(T)
        for t, A, b in zip(data["task"], data["valid"], data["valid_targets"], strict=True):
            total[t] += share * ((A @ theta[t * d : (t + 1) * d] - b) ** 2).mean() / 2
        return total

    def g_theta(x, theta):
        total = np.zeros(T * d)
        for t, slope, _ in residuals("train", theta):
            total[t * d : (t + 1) * d] += share * (slope + RIDGE * (theta[t * d : (t + 1) * d] - x))
        return total

    def g_tt(x, theta):
        H = np.zeros((T * d, T * d))
        for t, _, gram in residuals("train", theta):
            H[t * d : (t + 1) * d, t * d : (t + 1) * d] += share * (gram + RIDGE * np.eye(d))
        return H

    def g_tx(x, theta):
        C = np.zeros((T * d, d))
        for t in data["task"]:
            C[t * d : (t + 1) * d] -= share * RIDGE * np.eye(d)
        return C

    return reference.Reference(
        f=lambda x, theta, y: np.nan,
        f_x=lambda x, theta, y: 0.1 * x,
        f_theta=f_theta,
        g_theta=g_theta,
        g_tt=g_tt,
        g_tx=g_tx,
        project_x=lambda v: reference.project_l2(v, 3.0),
        lmo_x=lambda v: reference.lmo_l2(v, 3.0),
        f_y=f_y if saddle else None,
        project_y=reference.project_simplex if saddle else None,
    )


def g_x(data):
    """The gradient of g in x on these data."""
    tasks = np.asarray(data["task"])
    share = TASKS / len(tasks)
    return lambda x, theta: share * RIDGE * sum(x - theta.reshape(TASKS, -1)[t] for t in tasks)
