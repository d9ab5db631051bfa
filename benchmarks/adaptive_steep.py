"""Lower levels that are smooth only locally: Poisson, exponential, quartic losses, and a logarithmic barrier.

    f = sum_t y_t mean_i loss(v_ti' theta_t),     g = sum_t sum_i phi(a_ti' theta_t) + e^{x_t} / 2 |theta_t - common|^2

x = (common, log_ridge), y in the simplex. The Hessian of g is unbounded, and NaN is what g is beyond the barrier.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from adaptive_dense import Dense, onto_l2, onto_simplex

import bisaddle as bs

TASKS, ROWS, WIDTH = 3, 30, 5
RADIUS, LOG_RIDGE = 3.0, 2.0
BARRIER = 1.5  # theta > -BARRIER

# phi and its derivative, of u = a' theta and a target b
LOWER = {
    "Poisson": (lambda u, b, m: m.exp(u) - b * u, lambda u, b: np.exp(u) - b),
    "exponential": (lambda u, b, m: m.exp(-b * u), lambda u, b: -b * np.exp(-b * u)),
    "quartic": (lambda u, b, m: 0.25 * (u - b) ** 4, lambda u, b: (u - b) ** 3),
    "barrier": (lambda u, b, m: 0.05 * (u - b) ** 2, lambda u, b: 0.1 * (u - b)),
}
UPPER = {
    "Poisson": lambda u, b, m: m.exp(u) - b * u,
    "exponential": lambda u, b, m: m.log(1 + m.exp(-b * u)),
    "quartic": lambda u, b, m: 0.5 * (u - b) ** 2,
    "barrier": lambda u, b, m: 0.5 * (u - b) ** 2,
}


class Upper(eqx.Module):
    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        u = jnp.einsum("tnd,td->tn", data["valid"], theta)
        return y @ jnp.mean(UPPER[self.kind](u, data["valid_targets"], jnp), axis=1)


class Lower(eqx.Module):
    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, data):
        u = jnp.einsum("tnd,td->tn", data["train"], theta)
        away = jnp.sum(jnp.square(theta - x["common"]), axis=1)
        g = jnp.sum(LOWER[self.kind][0](u, data["targets"], jnp)) + 0.5 * jnp.exp(x["log_ridge"]) @ away
        return g - jnp.sum(jnp.log(theta + BARRIER)) if self.kind == "barrier" else g


def _draw(kind: str, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = {name: rng.normal(size=(TASKS, ROWS, WIDTH)) for name in ("train", "valid")}
    common = rng.normal(size=WIDTH)
    truth = 0.7 * common + 0.7 * rng.normal(size=(TASKS, WIDTH))
    for name, of in (("targets", "train"), ("valid_targets", "valid")):
        u = np.einsum("tnd,td->tn", rows[of], truth)
        rows[name] = {
            "Poisson": lambda u=u: rng.poisson(np.exp(np.minimum(u, 5.0))).astype(float),
            "exponential": lambda u=u: np.sign(u + rng.normal(size=u.shape)),
            "quartic": lambda u=u: u + 0.5 * rng.normal(size=u.shape),
            "barrier": lambda u=u: u + 0.5 * rng.normal(size=u.shape),
        }[kind]()
    return rows


def make(kind: str, seed: int) -> tuple[bs.Problem, bs.Point, Dense]:
    data = _draw(kind, seed)
    x_set = bs.sets.Product({"common": bs.sets.L2Ball(RADIUS), "log_ridge": bs.sets.Box(-LOG_RIDGE, LOG_RIDGE)})
    traced = {name: jnp.asarray(value) for name, value in data.items()}
    constants = bs.Constants(mu_g=np.exp(-LOG_RIDGE))
    problem = bs.Problem(Upper(kind), Lower(kind), x_set, bs.sets.Simplex(), traced, constants)
    x = {"common": jnp.zeros(WIDTH), "log_ridge": jnp.zeros(TASKS)}
    start = bs.Point(x=x, theta=jnp.zeros((TASKS, WIDTH)), y=jnp.full(TASKS, 1 / TASKS))

    def upper(x, theta, y):
        u = np.einsum("tnd,td->tn", data["valid"], theta.reshape(TASKS, WIDTH))
        return y @ np.mean(UPPER[kind](u, data["valid_targets"], np), axis=1)

    def lower_gradient(x, theta):
        theta = theta.reshape(TASKS, WIDTH)
        u = np.einsum("tnd,td->tn", data["train"], theta)
        slope = np.einsum("tnd,tn->td", data["train"], LOWER[kind][1](u, data["targets"]))
        g = slope + np.exp(x[WIDTH:, None]) * (theta - x[:WIDTH])
        return (g - 1 / (theta + BARRIER) if kind == "barrier" else g).ravel()

    def project_x(x):
        return np.concatenate([onto_l2(x[:WIDTH], RADIUS), np.clip(x[WIDTH:], -LOG_RIDGE, LOG_RIDGE)])

    return problem, start, Dense(upper, lower_gradient, project_x, onto_simplex)
