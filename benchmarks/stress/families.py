"""Ten families of random problems. All that is random is data or the size of a set: a family compiles once.

Each is a function from a NumPy generator to an Instance; every function of x, theta and y stands at module level.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from bisaddle import sets
from bisaddle.sets.flat import flat_set

X, THETA, Y = 4, 5, 3
# on either side of the size at which certificates stop taking dense matrices
SMALL, LARGE = 12, 150


class Instance(NamedTuple):
    problem: bs.Problem
    start: bs.Point
    tol: float
    measure: str


def _spd(rng: np.random.Generator, size: int, least: float, most: float) -> np.ndarray:
    """A symmetric matrix with eigenvalues spread over [least, most], both of them taken."""
    basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
    between = np.exp(rng.uniform(np.log(least), np.log(most), size - 2))
    return _turned(basis, np.concatenate([[least], between, [most]]))


def _turned(basis: np.ndarray, values: np.ndarray) -> np.ndarray:
    turned = (basis * values) @ basis.T
    return 0.5 * (turned + turned.T)


def _x_set(rng: np.random.Generator, size: float = 1.0) -> sets.ConvexSet:
    radius = size * rng.uniform(0.3, 3.0)
    low = -size * rng.uniform(0.1, 2.0, X)
    choices = (
        lambda: sets.LinfBall(radius),
        lambda: sets.L2Ball(radius),
        lambda: sets.L1Ball(radius),
        lambda: sets.Box(low, low + size * rng.uniform(0.0, 3.0, X)),
    )
    return choices[rng.integers(len(choices))]()


def _y_set(rng: np.random.Generator) -> sets.ConvexSet:
    radius = rng.uniform(0.3, 2.0)
    choices = (lambda: sets.Simplex(), lambda: sets.L2Ball(radius), lambda: sets.Box(-radius, radius))
    return choices[rng.integers(len(choices))]()


def _start(rng: np.random.Generator, x_set: Any, y_set: Any, theta: Any, size: float = 1.0) -> bs.Point:
    # NumPy forms: nothing compiles for a start
    inside = lambda a_set, n: flat_set(a_set, np.zeros(n)).project(size * rng.normal(size=n))
    return bs.Point(inside(x_set, X), theta, inside(y_set, Y))


def _finish(
    rng: np.random.Generator,
    problem: bs.Problem,
    start: bs.Point,
    tols: tuple = (1e-3, 1e-4, 1e-6),
    noise: float | None = 1e-12,
) -> Instance:
    """noise: many times the rounding in these small functions, which is given where mu_g is: a bound is one then."""
    if problem.constants.mu_g is not None:
        problem = dataclasses.replace(problem, noise=noise)
    able = [m for m, oracle in (("projection", "project"), ("lmo", "lmo")) if oracle in problem.x_set.capabilities]
    return Instance(problem, start, float(rng.choice(tols)), str(rng.choice(able)))


def _constants(rng: np.random.Generator, A: np.ndarray) -> bs.Constants | None:
    """mu_g and L_g in half of the cases."""
    values = np.linalg.eigvalsh(A)
    return bs.Constants(mu_g=values[0] * (1 - 1e-9), L_g=values[-1] * (1 + 1e-9)) if rng.random() < 0.5 else None


# -- quadratics, and what is made of them -----------------------------------------------------------------------------


def upper(x, theta, y, data):
    own = 0.5 * data["r"] * jnp.sum((x / data["x_size"]) ** 2) - 0.5 * data["nu"] * jnp.sum(y**2)
    wave = data["wave"] * jnp.sum(jnp.cos(3 * y))
    return data["f_size"] * (theta @ data["P"] @ y + (x / data["x_size"]) @ data["R"] @ y + own + wave)


def lower(x, theta, data):
    return data["g_size"] * (0.5 * theta @ data["A"] @ theta - theta @ (data["B"] @ (x / data["x_size"]) + data["c"]))


def _quadratic_data(rng: np.random.Generator, A: np.ndarray, nu: float = 0.0) -> dict[str, Any]:
    m = len(A)
    draw = lambda *shape: rng.normal(size=shape) / 2
    data = {"P": draw(m, Y), "R": draw(X, Y), "A": A, "B": draw(m, X), "c": draw(m)}
    sizes = {"r": rng.uniform(0.0, 2.0), "nu": nu, "wave": 0.0, "x_size": 1.0, "f_size": 1.0, "g_size": 1.0}
    return data | {name: np.float64(value) for name, value in sizes.items()}


def _of_quadratic(rng, data, constants=None, x_set=None, y_set=None, **finish) -> Instance:
    size = float(data["x_size"])
    x_set, y_set = x_set or _x_set(rng, size), y_set or _y_set(rng)
    problem = bs.Problem(upper, lower, x_set, y_set, data, constants)
    return _finish(rng, problem, _start(rng, x_set, y_set, rng.normal(size=len(data["A"])), size=size), **finish)


def quadratic(rng: np.random.Generator) -> Instance:
    A = _spd(rng, THETA, rng.uniform(0.3, 1.0), rng.uniform(1.0, 4.0))
    return _of_quadratic(rng, _quadratic_data(rng, A, rng.choice([0.0, 0.5])), _constants(rng, A))


def degenerate(rng: np.random.Generator) -> Instance:
    """Rank lost, parts that do not matter, sets of one point in some coordinates, f without curvature."""
    A = _spd(rng, THETA, 0.5, 2.0)
    data = _quadratic_data(rng, A)
    for name in rng.choice(["P", "R", "B"], size=rng.integers(1, 3), replace=False):
        data[name] = data[name] * rng.integers(0, 2, data[name].shape)
    data["r"] = np.float64(rng.choice([0.0, 1.0]))
    low = -rng.uniform(0, 1, X)
    x_set = sets.Box(low, low + rng.choice([0.0, 1.0], X))
    return _of_quadratic(rng, data, _constants(rng, A), x_set=x_set if rng.random() < 0.5 else None)


def scaled(rng: np.random.Generator) -> Instance:
    """x, f and g in units from 1e-6 to 1e6; the tolerance in those of the gradient."""
    A = _spd(rng, THETA, 0.5, 2.0)
    data = _quadratic_data(rng, A, 0.5)
    for name in ("x_size", "f_size", "g_size"):
        data[name] = np.float64(10 ** rng.uniform(-6, 6))
    constants = _constants(rng, float(data["g_size"]) * A)
    unit = float(data["f_size"] * np.maximum(1.0, 1 / data["x_size"]))
    noise = 1e-12 * max(unit, float(data["g_size"] * np.maximum(1.0, 1 / data["x_size"])))
    return _of_quadratic(rng, data, constants, tols=(1e-3 * unit, 1e-6 * unit, 1e-6), noise=noise)


def near_singular(rng: np.random.Generator) -> Instance:
    least = 10 ** -rng.uniform(2, 15)
    A = _spd(rng, THETA, least, 2.0)
    # theta and w are as large as 1 / least
    return _of_quadratic(rng, _quadratic_data(rng, A, 0.5), _constants(rng, A), noise=1e-12 / least)


def indefinite(rng: np.random.Generator) -> Instance:
    """Lower levels below and above the dense limit, most of them with one or a few eigenvalues at or below 0."""
    m = int(rng.choice([SMALL, LARGE]))
    values = rng.uniform(0.5, 3.0, m)
    kind = rng.integers(4)
    if kind < 3:
        count = (1, 3, 1)[kind]
        values[:count] = (-rng.uniform(1e-3, 6.0, count), -rng.uniform(0.0, 1.0, count), np.zeros(count))[kind]
    basis = np.linalg.qr(rng.normal(size=(m, m)))[0] if rng.random() < 0.7 else np.eye(m)
    data = _quadratic_data(rng, _turned(basis, values), 0.5)
    data["P"], data["B"] = data["P"] / m**0.5, data["B"] / m**0.5
    claimed = bs.Constants(mu_g=0.4, L_g=4.0) if rng.random() < 0.5 else None
    return _of_quadratic(rng, data, claimed, noise=None)


def nonconcave(rng: np.random.Generator) -> Instance:
    """f convex or wavy in y in some or all directions; a fifth is concave."""
    A = _spd(rng, THETA, 0.5, 2.0)
    data = _quadratic_data(rng, A, rng.choice([-2.0, -0.3, 0.5]))
    data["wave"] = np.float64(rng.choice([0.0, 0.0, 0.5, -0.5]))
    if rng.random() < 0.5:  # the start is stationary in y
        data["P"], data["R"] = 0 * data["P"], 0 * data["R"]
    instance = _of_quadratic(rng, data, _constants(rng, A))
    at_rest = bs.Point(instance.start.x, instance.start.theta, np.zeros(Y))
    inside = not isinstance(instance.problem.y_set, sets.Simplex)
    return instance._replace(start=at_rest) if inside and rng.random() < 0.7 else instance


def project_ball(radius, v):
    return v * jnp.minimum(1, radius / jnp.maximum(jnp.sqrt(jnp.sum(v**2)), 1e-300))


def inexact_sets(rng: np.random.Generator) -> Instance:
    """Intersections at several tolerances, and sets made of functions."""
    A = _spd(rng, THETA, 0.5, 2.0)
    kind, radius = rng.integers(5), rng.uniform(0.5, 2.0)
    if kind < 4:
        parts = [sets.L1Ball(radius), sets.L2Ball(radius * rng.uniform(0.6, 0.95))]
        x_set: sets.ConvexSet = sets.Intersection(parts, tolerance=(1e-9, 1e-6, 1e-4, 1e-2)[kind])
    else:
        x_set = sets.Custom(project=jax.tree_util.Partial(project_ball, np.float64(radius)), diameter=2 * radius)
    data = _quadratic_data(rng, A, 0.5)
    data["c"] = 3 * data["c"]
    instance = _of_quadratic(rng, data, _constants(rng, A), x_set=x_set)
    # at a coarse tolerance the set's own projection would be refused as a start
    start = bs.Point(0.5 * instance.start.x, instance.start.theta, instance.start.y)
    return instance._replace(start=start)


# -- others -----------------------------------------------------------------------------------------------------------


def logistic_upper(x, theta, y, data):
    losses = jnp.mean(jax.nn.softplus(-(data["valid"] @ theta)), axis=1)
    return y @ losses + 0.5 * data["r"] * jnp.sum(x**2) - 0.5 * data["nu"] * jnp.sum(y**2)


def logistic_lower(x, theta, data):
    weights = jnp.exp(jnp.repeat(x, 3))
    return jnp.mean(weights * jax.nn.softplus(-(data["train"] @ theta))) + 0.5 * data["rho"] * jnp.sum(theta**2)


def _logistic_data(rng: np.random.Generator) -> dict[str, Any]:
    numbers = {"rho": rng.uniform(0.01, 0.3), "r": rng.uniform(0, 0.2), "nu": rng.choice([0.0, 0.3])}
    arrays = {"train": rng.normal(size=(3 * X, THETA)), "valid": rng.normal(size=(Y, 6, THETA))}
    return arrays | {name: np.float64(value) for name, value in numbers.items()}


def logistic(rng: np.random.Generator) -> Instance:
    data = _logistic_data(rng)
    x_set, y_set = sets.Box(-1.0, rng.uniform(0.2, 1.5)), sets.Simplex()
    constants = bs.Constants(mu_g=data["rho"]) if rng.random() < 0.5 else None
    problem = bs.Problem(logistic_upper, logistic_lower, x_set, y_set, data, constants)
    return _finish(rng, problem, _start(rng, x_set, y_set, rng.normal(size=THETA)))


def lift_upper(x, theta, y, data):
    off = theta - data["centers"]
    return y @ (0.5 * jnp.einsum("ti,tij,tj->t", off, data["Q"], off) + data["heights"])


def lift_lower(x, theta, data):
    return 0.5 * jnp.einsum("ti,tij,tj->", theta - x, data["A"], theta - x)


def minimax_lift(rng: np.random.Generator) -> Instance:
    """theta_t(x) = x for every t: the largest of a few quadratics, some of them not convex."""
    A = np.stack([_spd(rng, X, 0.5, 3.0) for _ in range(Y)])
    Q = np.stack([_spd(rng, X, 0.1, 2.0) - rng.choice([0.0, 0.5]) * np.eye(X) for _ in range(Y)])
    data = {"A": A, "Q": Q, "centers": rng.normal(size=(Y, X)), "heights": rng.normal(size=Y)}
    x_set, y_set = _x_set(rng), sets.Simplex()
    constants = bs.Constants(mu_g=0.5 * (1 - 1e-9), L_g=3.0 * (1 + 1e-9)) if rng.random() < 0.5 else None
    problem = bs.Problem(lift_upper, lift_lower, x_set, y_set, data, constants)
    return _finish(rng, problem, _start(rng, x_set, y_set, rng.normal(size=(Y, X))))


def single_precision(rng: np.random.Generator) -> Instance:
    """Quadratic and logistic problems whose arrays are float32."""
    wide = quadratic(rng) if rng.random() < 0.5 else logistic(rng)
    narrow = lambda tree: jax.tree.map(lambda a: np.asarray(a, np.float32), tree)
    old = wide.problem
    known = old.constants.mu_g
    constants = None if known is None else bs.Constants(mu_g=float(known) * (1 - 1e-5))  # of the rounded data too
    noise = None if constants is None else 1e-4
    problem = bs.Problem(old.upper, old.lower, old.x_set, old.y_set, narrow(old.data), constants, noise=noise)
    start = bs.Point(*(narrow(part) for part in (wide.start.x, wide.start.theta, wide.start.y)))
    return Instance(problem, start, float(rng.choice([1e-1, 1e-2, 1e-3])), wide.measure)


FAMILIES: dict[str, Callable[[np.random.Generator], Instance]] = {
    "quadratic": quadratic,
    "logistic": logistic,
    "minimax lifts": minimax_lift,
    "degenerate": degenerate,
    "scales": scaled,
    "near-singular": near_singular,
    "indefinite": indefinite,
    "nonconcave": nonconcave,
    "inexact sets": inexact_sets,
    "float32": single_precision,
}
