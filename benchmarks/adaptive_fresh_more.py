"""More families as users bring them, on which no rule was chosen: default solves of six seeds each.

    python benchmarks/adaptive_fresh_more.py [--seed 0] [--seeds 6] [family ...]

Weights of rows from several balls, groups, portfolios with an estimation below, ridges of every feature, perturbed
inputs, factorisations, games, large and nested x, nearly singular lower levels. Run and told as by adaptive_fresh.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
from adaptive_fresh import Made, even, tell

import bisaddle as bs

S = bs.sets


def _rows(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    A = rng.normal(size=(n, d))
    return A, np.sign(A @ rng.normal(size=d) + rng.normal(size=n))


def _weighted_rows(rng: np.random.Generator, y_set: S.ConvexSet, n: int = 80) -> Made:
    data = _rows(rng, n, 5)
    upper = lambda x, theta, y, d: y @ jnp.logaddexp(0.0, -d[1] * (d[0] @ x)) + 5e-3 * x @ x
    return bs.Problem(upper, None, S.FreeBall(), y_set, data), bs.Point(np.zeros(5), None, even(n))


def chi_square(rng: np.random.Generator) -> Made:
    return _weighted_rows(rng, S.ChiSquareBall(even(80), 0.5))


def total_variation(rng: np.random.Generator) -> Made:
    return _weighted_rows(rng, S.TVBall(even(80), 0.2))


def tail_mean(rng: np.random.Generator) -> Made:
    return _weighted_rows(rng, S.CVaRSet(0.2))


def entropy_penalty(rng: np.random.Generator) -> Made:
    """The weights pay for their distance from even ones by an entropy."""
    return _weighted_rows(rng, S.Entropy(0.05))


def shifted_moments(rng: np.random.Generator) -> Made:
    """Weights whose mean of the covariates stays near that of the rows: squared errors, x without bounds."""
    n, d = 60, 4
    A = rng.normal(size=(n, d))
    b = A @ rng.normal(size=d) + 0.3 * rng.standard_t(4, n)
    upper = lambda x, theta, y, data: y @ (data[0] @ x - data[1]) ** 2 - 2.0 * jnp.sum((y - 1 / n) ** 2)
    return bs.Problem(upper, None, S.FreeBall(), S.CappedSimplex(0.1), (A, b)), bs.Point(np.zeros(d), None, even(n))


def fair_groups(rng: np.random.Generator) -> Made:
    """Multipliers of the differences between groups in a box, beside the mean loss."""
    n, d, k = 200, 6, 4
    A, b = _rows(rng, n, d)
    member = np.eye(k)[rng.integers(k, size=n)]
    A += 0.5 * member @ rng.normal(size=(k, d))

    def upper(x, theta, y, data):
        A, b, member = data
        score = A @ x["w"] + x["b"]
        rates = (jax.nn.sigmoid(score) @ member) / jnp.sum(member, axis=0)
        fit = jnp.mean(jnp.logaddexp(0.0, -b * score)) + 1e-3 * x["w"] @ x["w"]
        return fit + y @ (rates - jnp.mean(rates))

    problem = bs.Problem(
        upper, None, S.Product({"w": S.L2Ball(10.0), "b": S.Box(-5.0, 5.0)}), S.LinfBall(1.0), (A, b, member)
    )
    return problem, bs.Point({"w": np.zeros(d), "b": np.zeros(())}, None, np.zeros(k))


def estimated_portfolio(rng: np.random.Generator) -> Made:
    """Means of returns by a ridge below whose shrinkage and weights of periods are chosen, risks and regimes above."""
    n, periods, regimes = 8, 40, 3
    returns = rng.normal(0.5, 1, n) + rng.normal(size=(periods, n)) @ rng.normal(size=(n, n)) * 0.5
    tests = rng.normal(0.5, 1, (regimes, n)) * 0.5
    data = returns, tests, np.cov(returns.T) + 0.1 * np.eye(n)

    def lower(x, theta, d):
        weights = jax.nn.softmax(x["logits"])
        off = jnp.sum((d[0] - theta) ** 2, axis=1)
        return 0.5 * weights @ off + 0.5 * jnp.exp(x["shrink"]) * jnp.sum(theta**2)

    def upper(x, theta, y, d):
        hold = x["hold"]
        seen = 0.5 * theta + 0.5 * y @ d[1]
        return (
            hold @ d[2] @ hold
            - hold @ seen
            + 0.01 * jnp.sum(x["logits"] ** 2)
            + 0.1 * jnp.sum((theta - y @ d[1]) ** 2 * 0)
        )

    x_set = S.Product({"hold": S.Simplex(), "logits": S.Box(-3.0, 3.0), "shrink": S.Box(-4.0, 2.0)})
    x = {"hold": even(n), "logits": np.zeros(periods), "shrink": np.zeros(())}
    return bs.Problem(upper, lower, x_set, S.Simplex(), data), bs.Point(x, np.zeros(n), even(regimes))


LOSSES = {
    "logistic": lambda u, b: jnp.logaddexp(0.0, -b * u),
    "poisson": lambda u, b: jnp.exp(jnp.clip(u, -30, 30)) - jnp.maximum(b, 0) * 2 * u,
    "huber": lambda u, b: jnp.sqrt(1 + (u - b) ** 2) - 1,
    "softplus": lambda u, b: jax.nn.softplus(1 - b * u) + jax.nn.softplus(b * u - 3),
}


def _ridges(rng: np.random.Generator, kind: str) -> Made:
    """A ridge of every feature, as logarithms, by the worst of three validation groups."""
    n, d, loss = 60, 8, LOSSES[kind]
    A, b = _rows(rng, n, d)
    groups = [_rows(rng, 30, d) for _ in range(3)]
    A[:, 4:] *= 0.3

    def lower(x, theta, data):
        return jnp.mean(loss(data[0] @ theta, data[1])) + 0.5 * jnp.exp(x) @ theta**2

    def upper(x, theta, y, data):
        return y @ jnp.stack([jnp.mean(loss(G @ theta, c)) for G, c in data[2]]) + 1e-3 * x @ x

    problem = bs.Problem(upper, lower, S.Box(-6.0, 3.0), S.Simplex(), (A, b, groups))
    return problem, bs.Point(np.full(d, -2.0), np.zeros(d), even(3))


def ridges_logistic(rng: np.random.Generator) -> Made:
    return _ridges(rng, "logistic")


def ridges_poisson(rng: np.random.Generator) -> Made:
    return _ridges(rng, "poisson")


def ridges_huber(rng: np.random.Generator) -> Made:
    return _ridges(rng, "huber")


def ridges_softplus(rng: np.random.Generator) -> Made:
    return _ridges(rng, "softplus")


def factorised(rng: np.random.Generator) -> Made:
    """Two factors of a matrix, against weights of its blocks of columns."""
    m, n, r = 12, 10, 2
    M = rng.normal(size=(m, r)) @ rng.normal(size=(r, n)) + 0.1 * rng.normal(size=(m, n))

    def upper(x, theta, y, M):
        off = (x["U"] @ x["V"].T - M) ** 2
        return (
            y @ jnp.mean(off.reshape(m, 5, n // 5), axis=(0, 2))
            + 1e-2 * (jnp.sum(x["U"] ** 2) + jnp.sum(x["V"] ** 2)) / m
        )

    x = {"U": 0.5 * rng.normal(size=(m, r)), "V": 0.5 * rng.normal(size=(n, r))}
    return bs.Problem(upper, None, S.Product({"U": S.L2Ball(20.0), "V": S.L2Ball(20.0)}), S.Simplex(), M), bs.Point(
        x, None, even(5)
    )


def perturbed_inputs(rng: np.random.Generator) -> Made:
    """Rows moved within boxes, each paying for its move, against a linear regression."""
    n, d = 30, 4
    A = rng.normal(size=(n, d))
    b = A @ rng.normal(size=d) + 0.1 * rng.normal(size=n)

    def upper(x, theta, y, data):
        off = (data[0] + y) @ x - data[1]
        return 0.5 * jnp.mean(off**2) - 4.0 * jnp.mean(jnp.sum(y**2, axis=1)) + 1e-3 * x @ x

    return bs.Problem(upper, None, S.L2Ball(2.0), S.Box(-0.2, 0.2), (A, b)), bs.Point(
        np.zeros(d), None, np.zeros((n, d))
    )


def game(rng: np.random.Generator) -> Made:
    """A generator of a mean and a factor against a quadratic critic that pays for its size."""
    d = 4
    M = rng.normal(size=(d, d))
    data = rng.normal(size=d), M @ M.T

    def upper(x, theta, y, d):
        moment = x["L"] @ x["L"].T + jnp.outer(x["m"], x["m"])
        goal = d[1] + jnp.outer(d[0], d[0])
        return (
            y["v"] @ (d[0] - x["m"])
            + jnp.sum(y["W"] * (goal - moment))
            - 0.5 * y["v"] @ y["v"]
            - 0.5 * jnp.sum(y["W"] ** 2)
        )

    x_set = S.Product({"m": S.L2Ball(10.0), "L": S.L2Ball(20.0)})
    y_set = S.Product({"v": S.L2Ball(20.0), "W": S.L2Ball(100.0)})
    x = {"m": np.zeros(d), "L": np.eye(d)}
    return bs.Problem(upper, None, x_set, y_set, data), bs.Point(x, None, {"v": np.zeros(d), "W": np.zeros((d, d))})


def ill_conditioned(rng: np.random.Generator) -> Made:
    """Strongly concave in y with curvatures from 1e-6 to 1."""
    n = 12
    c = np.geomspace(1e-6, 1, n)
    data = rng.normal(size=(n, n)) / n, c, 0.1 * rng.normal(size=n)
    upper = lambda x, theta, y, d: 0.5 * x @ x + x @ d[0] @ y - 0.5 * d[1] @ y**2 + (d[2] * d[1]) @ y
    return bs.Problem(upper, None, S.Box(-5.0, 5.0), S.Box(-10.0, 10.0), data), bs.Point(np.ones(n), None, np.zeros(n))


def long_x(rng: np.random.Generator) -> Made:
    """Two thousand unknowns of a signal that is smoothed, against weights of five groups of measurements."""
    n, m = 2000, 5
    rows = rng.normal(size=(m, 30, n)) / n**0.5
    data = rows, rows @ np.cumsum(rng.normal(size=n)) / n**0.5 + 0.01 * rng.normal(size=(m, 30))

    def upper(x, theta, y, d):
        off = jnp.einsum("gkn,n->gk", d[0], x) - d[1]
        return y @ jnp.mean(off**2, axis=1) + 1e-2 * jnp.sum((x[1:] - x[:-1]) ** 2) + 1e-3 * x @ x

    return bs.Problem(upper, None, S.FreeBall(), S.Simplex(), data), bs.Point(np.zeros(n), None, even(m))


def weighted_5000(rng: np.random.Generator) -> Made:
    """Weights of 5000 rows of training data, a linear fit below, two clean groups above."""
    n, d = 5000, 6
    A = rng.normal(size=(n, d))
    truth = rng.normal(size=d)
    b = A @ truth + 0.1 * rng.normal(size=n) + (rng.random(n) < 0.2) * rng.normal(2, 3, n)
    clean = rng.normal(size=(2, 50, d))
    data = A, b, clean, clean @ truth + 0.1 * rng.normal(size=(2, 50))
    lower = lambda x, theta, D: 0.5 * jax.nn.sigmoid(x) @ (D[0] @ theta - D[1]) ** 2 / n + 5e-3 * theta @ theta
    upper = lambda x, theta, y, D: y @ jnp.mean((D[2] @ theta - D[3]) ** 2, axis=1) + 1e-5 * x @ x
    return bs.Problem(upper, lower, S.Box(-4.0, 4.0), S.Simplex(), data), bs.Point(np.zeros(n), np.zeros(d), even(2))


def nested_trees(rng: np.random.Generator) -> Made:
    """x, theta and y as trees of several layers, in a product of products."""
    Q = [rng.normal(size=(3, 3)) for _ in range(3)]
    data = {
        "Q": [q @ q.T / 3 + 0.5 * np.eye(3) for q in Q],
        "b": rng.normal(size=(3, 3)),
        "T": rng.normal(size=(2, 3, 3)),
    }

    def lower(x, theta, d):
        a, (b, c) = theta["a"], theta["bc"]
        mixed = (
            0.5 * a @ d["Q"][0] @ a
            + 0.5 * b @ d["Q"][1] @ b
            + 0.5 * c @ d["Q"][2] @ c
            + 0.1 * jnp.sum(a * b * 0.1 + b * c * 0.1)
        )
        return mixed - a @ x["p"]["u"] - b @ (x["p"]["v"] ** 2) - c @ (x["s"] - d["b"][0]) + 0.05 * jnp.sum(jnp.cosh(a))

    def upper(x, theta, y, d):
        a, (b, c) = theta["a"], theta["bc"]
        losses = jnp.stack(
            [jnp.sum((a - d["b"][0]) ** 2), jnp.sum((b - d["b"][1]) ** 2), jnp.sum((c - d["b"][2]) ** 2)]
        )
        return y[0] @ losses + jnp.sum(y[1] * (a - b)) - 0.5 * jnp.sum(y[1] ** 2) + 0.05 * jnp.sum(x["p"]["u"] ** 2)

    x_set = S.Product({"p": S.Product({"u": S.L2Ball(2.0), "v": S.Box(0.1, 1.5)}), "s": S.Simplex()})
    x = {"p": {"u": np.zeros(3), "v": np.full(3, 0.5)}, "s": even(3)}
    theta = {"a": np.zeros(3), "bc": (np.zeros(3), np.zeros(3))}
    return bs.Problem(upper, lower, x_set, S.Product((S.Simplex(), S.L2Ball(1.0))), data), bs.Point(
        x, theta, (even(3), np.zeros(3))
    )


def nearly_singular(rng: np.random.Generator) -> Made:
    """A lower level whose curvatures go from 1 down to 1e-8, along directions that f hardly sees."""
    n = 6
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    h = np.geomspace(1, 1e-8, n)
    data = (basis * h) @ basis.T, basis * np.sqrt(h), rng.normal(size=n), rng.normal(size=(3, n))
    lower = lambda x, theta, d: 0.5 * theta @ d[0] @ theta - theta @ (d[1] @ x)
    upper = lambda x, theta, y, d: y @ (d[3] @ (d[1].T @ theta)) + 0.5 * jnp.sum((x - d[2]) ** 2)
    return bs.Problem(upper, lower, S.Box(-3.0, 3.0), S.Simplex(), data), bs.Point(np.zeros(n), np.zeros(n), even(3))


def control(rng: np.random.Generator) -> Made:
    """Inputs of twenty periods to a nonlinear system, against disturbances in a ball of each period."""
    steps = 20
    data = 0.2 * rng.normal(size=(2, 2)) + np.array([[0.0, 0.3], [-0.3, 0.0]]), rng.normal(size=2)

    def upper(x, theta, y, d):
        def one(state, given):
            u, w = given
            state = state + 0.1 * (d[0] @ state + jnp.stack([jnp.sin(state[1]), u]) + w)
            return state, jnp.sum(state**2) + 0.1 * u**2 - 30.0 * jnp.sum(w**2)

        return jnp.mean(jax.lax.scan(one, d[1], (x, y))[1])

    return bs.Problem(upper, None, S.Box(-2.0, 2.0), S.L2Ball(0.5), data), bs.Point(
        np.zeros(steps), None, np.zeros((steps, 2))
    )


def facility(rng: np.random.Generator) -> Made:
    """Places of three depots for the customers worst off, with distances smoothed and shares by a soft minimum."""
    customers = rng.uniform(0, 10, (25, 2))

    def upper(x, theta, y, c):
        away = jnp.sqrt(jnp.sum((c[:, None] - x) ** 2, axis=2) + 1e-2)
        return y @ -jax.nn.logsumexp(-2 * away, axis=1) / 2

    return bs.Problem(upper, None, S.Box(0.0, 10.0), S.Simplex(), customers), bs.Point(
        rng.uniform(3, 7, (3, 2)), None, even(25)
    )


FAMILIES = {
    function.__name__: function
    for function in (chi_square, total_variation, tail_mean, entropy_penalty, shifted_moments, fair_groups)
    + (
        estimated_portfolio,
        ridges_logistic,
        ridges_poisson,
        ridges_huber,
        ridges_softplus,
        factorised,
        perturbed_inputs,
    )
    + (game, ill_conditioned, long_x, weighted_5000, nested_trees, nearly_singular, control, facility)
}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    tell(FAMILIES, (__doc__ or "").splitlines()[0])
