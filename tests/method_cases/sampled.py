"""A problem whose data can be sampled by rows, by tasks and by both: ridge regressions around a shared x."""

import jax.numpy as jnp
import numpy as np

import bisaddle as bs

RIDGE = 0.5


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


def regressions(seed, saddle=True, T=3, n=4, valid=4, d=2):
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
