"""Small minimax problems for the tests of second-order steps, and f_mu of them by SciPy."""

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import bisaddle as bs
from bisaddle.methods.adaptive.model import Model
from bisaddle.oracle.kernels import Kernels

Y_SETS = {
    "simplex": bs.sets.Simplex(),
    "box": bs.sets.Box(-0.3, 0.4),
    "ball": bs.sets.L2Ball(0.5),
    "KL ball": bs.sets.KLBall(np.full(5, 0.2), 0.1),
}
X_SETS = {"box": bs.sets.Box(-0.5, 0.4), "ball": bs.sets.L2Ball(0.6), "simplex": bs.sets.Simplex(), "far": None}


def squares(x, theta, y, data):
    """Five quadratics of three variables, convex and not."""
    A, b, c = data
    return y @ (0.5 * jnp.einsum("i,kij,j->k", x, A, x) + b @ x + c)


def alike(x, theta, y, data):
    """The same curvature for all y: then the model is exact."""
    A, b, c = data
    return 0.5 * x @ A[0] @ x + y @ (b @ x + c)


def bent(x, theta, y, data):
    """The same, bent: f_x_x depends on x and is not symmetric in what it is made of."""
    return squares(jnp.sin(x) + 0.3 * x[::-1] ** 3, theta, y, data)


def quadratics(seed, shift=2.0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(5, 3, 3))
    return A + A.transpose(0, 2, 1) + shift * np.eye(3), rng.normal(size=(5, 3)), rng.normal(size=5)


def problem_of(upper=squares, x_set=None, y_set=None, seed=0, **choices):
    y_set = bs.sets.Simplex() if y_set is None else y_set
    problem = bs.Problem(upper, None, x_set or bs.sets.FreeBall(), y_set, quadratics(seed, **choices))
    start = np.random.default_rng(seed + 100).normal(size=3)
    y = y_set.project(jnp.full(5, 0.2))
    return problem, bs.Point(x=problem.x_set.project(jnp.asarray(start)), y=y)


def kernels_at(*problem):
    kernels = Kernels(*problem)
    return kernels, *kernels.flat(problem[1])


def model_at(kernels, x, base, y0, mu):
    assert kernels.y_set is not None
    none = np.zeros(0)
    return Model(kernels.y_set, *kernels.curvature(x, none, base), base, y0, mu)


def f_mu(kernels, x, y0, mu):
    """By SciPy over differences of f: no projection of the library, no gradient."""
    y_set = kernels.y_set.of
    slopes = np.array([kernels.upper(x, np.zeros(0), e).value for e in np.eye(5)]) - (
        at_0 := kernels.upper(x, np.zeros(0), np.zeros(5)).value
    )
    limits, bounds = [], [(0.0, 1.0)] * 5
    if isinstance(y_set, bs.sets.Box):
        bounds = [(-0.3, 0.4)] * 5
    elif isinstance(y_set, bs.sets.L2Ball):
        bounds, limits = None, [{"type": "ineq", "fun": lambda y: 0.25 - y @ y}]
    else:
        limits = [{"type": "eq", "fun": lambda y: np.sum(y) - 1}]
    if isinstance(y_set, bs.sets.KLBall):
        bounds = [(1e-9, 1.0)] * 5
        limits.append({"type": "ineq", "fun": lambda y: 0.1 - np.sum(y * np.log(y / 0.2))})
    low = lambda y: 0.5 * mu * (y - y0) @ (y - y0) - slopes @ y
    found = minimize(low, np.full(5, 0.2), bounds=bounds, constraints=limits, options={"ftol": 1e-15, "maxiter": 500})
    return at_0 - found.fun
