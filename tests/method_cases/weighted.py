"""The logistic problem of the registry without its max player: a bilevel problem whose Hessian moves."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from tests import reference
from tests.registry import logistic, logistic_data

UNIFORM = np.full(3, 1 / 3)


def _upper(x, theta, y, data):
    return jnp.mean(jax.nn.softplus(-(data["valid"] @ theta))) + 0.5 * data["r"] * jnp.sum(x**2)


def weighted(seed):
    problem, start, _ = logistic(seed)
    problem = bs.Problem(_upper, problem.lower, problem.x_set, None, problem.data, problem.constants)
    return problem, bs.Point(x=start.x, theta=start.theta)


def twin(seed):
    """The same in NumPy."""
    p = reference.logistic(logistic_data(seed))
    fixed = {name: _at_uniform(getattr(p, name)) for name in ("f", "f_x", "f_theta")}
    return dataclasses.replace(p, **fixed, f_y=None, project_y=None, lmo_y=None)


def _at_uniform(function):
    return lambda x, theta, y: function(x, theta, UNIFORM)


def g_x(seed):
    """The gradient of g in x: exp(x_i) l(train_i theta) / n."""
    rows = logistic_data(seed)["train"]
    return lambda p, x, theta: np.exp(x) * np.log1p(np.exp(-rows @ theta)) / len(rows)
