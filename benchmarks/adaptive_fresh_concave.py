"""Saddle problems with an f that is concave and not linear in y, and lower levels that begin far away.

    python benchmarks/adaptive_fresh_concave.py [--seed 0] [--seeds 6] [family ...]

Entropies written into f, of which some are no numbers at the border of the simplex; logarithms, stiff soft maxima; the
problems of Rustem and Howe (Algorithms for Worst-Case Design, 2002) with their published values, as far as these are
those of the formulas below. Run and told as by adaptive_fresh.py, whose rules were not chosen on them.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from adaptive_fresh import Made, even, tell

import bisaddle as bs

S = bs.sets


def _entropy(p):
    return jnp.sum(p * jnp.log(p))


def _entropy_0(p):
    return jnp.sum(jax.scipy.special.xlogy(p, p))


def _entropy_shifted(p):
    return jnp.sum(p * jnp.log(p + 1e-12))


def _game(rng: np.random.Generator, of_x: Callable | None, of_y: Callable | None, weight: float, n: int = 30) -> Made:
    def upper(x, theta, y, P):
        value = x @ P @ y
        value += 0.0 if of_x is None else weight * of_x(x)
        return value - (0.0 if of_y is None else weight * of_y(y))

    problem = bs.Problem(upper, None, S.Simplex(), S.Simplex(), rng.normal(size=(n, n)))
    return problem, bs.Point(even(n), None, even(n))


def entropy_of_y(rng: np.random.Generator) -> Made:
    return _game(rng, None, _entropy, 0.1)


def entropies(rng: np.random.Generator) -> Made:
    return _game(rng, _entropy_0, _entropy_0, 0.1, 50)


def entropies_light(rng: np.random.Generator) -> Made:
    return _game(rng, None, _entropy_0, 1.0, 5)


def entropy_shifted(rng: np.random.Generator) -> Made:
    """The logarithm kept from 0 by 1e-12: f is a number everywhere, and bends up to 1e11 in y."""
    return _game(rng, None, _entropy_shifted, 0.1, 5)


def bargaining(rng: np.random.Generator) -> Made:
    """Shares of five goods for twelve, whose logarithmic utilities are weighted by an adversary with an entropy."""
    worth = rng.uniform(0, 1, (12, 5))

    def upper(x, theta, y, d):
        return -y @ jnp.log(d @ x + 1e-3) - 0.1 * _entropy_0(y)

    return bs.Problem(upper, None, S.Simplex(), S.Simplex(), worth), bs.Point(np.eye(5)[0], None, even(12))


def channels(rng: np.random.Generator) -> Made:
    """Powers of a sender over 64 channels, of gains of 1e-3 to 1e3, against a disturber with as much power."""
    gains = 10 ** rng.uniform(-3, 3, 64)
    upper = lambda x, theta, y, d: jnp.sum(jnp.log1p(d * y * 100 / (1e-3 + x)))
    return bs.Problem(upper, None, S.Simplex(), S.Simplex(), gains), bs.Point(even(64), None, even(64))


def stiff(rng: np.random.Generator) -> Made:
    """A soft maximum of thirty affine functions, with curvatures in y of several hundred and of nearly none."""
    d = rng.normal(size=(30, 6)), rng.normal(size=(30, 4))

    def upper(x, theta, y, d):
        return -jax.nn.logsumexp(10 * (d[1] @ y - d[0] @ x)) + 0.1 * jnp.sum(jnp.cosh(x))

    return bs.Problem(upper, None, S.FreeBall(), S.L2Ball(3.0), d), bs.Point(np.ones(6), None, np.zeros(4))


def budgets(rng: np.random.Generator) -> Made:
    """Budgets whose use has decreasing returns, with an infinite slope at 0, from a vertex."""
    upper = lambda x, theta, y, d: jnp.sum(jnp.sqrt(y + 1e-8) * d * (1 + x)) + x @ x
    x, y = np.zeros(10), np.eye(10)[0]
    return bs.Problem(upper, None, S.Box(-1.0, 1.0), S.Simplex(), rng.uniform(0.5, 2, 10)), bs.Point(x, None, y)


# --- lower levels -----------------------------------------------------------------------------------------------------


def _counts(rng: np.random.Generator, far: float) -> Made:
    draw = lambda: 0.4 * rng.normal(size=(80, 6))
    train, test, true = draw(), draw(), rng.normal(size=6)
    counts = [rng.poisson(np.exp(rows @ true)).astype(float) for rows in (train, test)]
    loss = lambda rows, seen, theta: jnp.mean(jnp.exp(rows @ theta) - seen * (rows @ theta))
    lower = lambda x, theta, d: loss(d[0], d[1], theta) + jnp.sum(jnp.exp(x) * theta**2)
    upper = lambda x, theta, y, d: loss(d[2], d[3], theta)
    problem = bs.Problem(upper, lower, S.Box(-8.0, 4.0), None, (train, counts[0], test, counts[1]))
    return problem, bs.Point(np.zeros(6), far * np.sign(rng.normal(size=6)))


def counts_far(rng: np.random.Generator) -> Made:
    """Poisson regression with a ridge for each feature, from a theta at which g bends 1e19 times as much as below."""
    return _counts(rng, 30.0)


def counts_farther(rng: np.random.Generator) -> Made:
    """The same from where g is no number."""
    return _counts(rng, 1e3)


def smooth_lasso(rng: np.random.Generator) -> Made:
    """The weight of sqrt(theta^2 + 1e-10): g bends within 1e-5."""
    rows = lambda: rng.normal(size=(50, 30))
    A = rows()
    data = A, A @ rng.normal(size=30), rows(), rng.normal(size=50)

    def lower(x, theta, d):
        smooth = jnp.sum(jnp.sqrt(theta**2 + 1e-10))
        return jnp.mean((d[0] @ theta - d[1]) ** 2) + jnp.exp(x[0]) * smooth + 1e-4 * jnp.sum(theta**2)

    upper = lambda x, theta, y, d: jnp.mean((d[2] @ theta - d[3]) ** 2)
    return bs.Problem(upper, lower, S.Box(-10.0, 3.0), None, data), bs.Point(np.array([-1.0]), np.zeros(30))


# --- Rustem and Howe --------------------------------------------------------------------------------------------------


def _rustem_howe(f: Callable, x: list[float], low: float | np.ndarray, high: float, y: list[float], width) -> Callable:
    def made(rng: np.random.Generator) -> Made:
        """Seed 0 is not set apart: the start is moved a little with every seed."""
        start = np.clip(np.array(x) * rng.uniform(0.9, 1.1, len(x)), low, high)
        problem = bs.Problem(lambda x, theta, y, d: f(x, y), None, S.Box(low, high), S.Box(*width))
        return problem, bs.Point(start, None, np.array(y))

    return made


def _first(x, y):
    return 5 * x @ x - y @ y + x[0] * (-y[0] + y[1] + 5) + x[1] * (y[0] - y[1] + 3)


def _second(x, y):
    return 4 * (x[0] - 2) ** 2 - 2 * y[0] ** 2 + x[0] ** 2 * y[0] - y[1] ** 2 + 2 * x[1] ** 2 * y[1]


def _third(x, y):
    return x[0] ** 4 * y[1] + 2 * x[0] ** 3 * y[0] - x[1] ** 2 * y[1] * (y[1] - 3) - 2 * x[1] * (y[0] - 3) ** 2


def _sixth(x, y):
    rows = jnp.stack(
        [
            x[0] ** 2 - x[1] + x[2] - x[3] + 2,
            -x[0] + 2 * x[1] ** 2 - x[2] ** 2 + 2 * x[3] + 1,
            2 * x[0] - x[1] + 2 * x[2] - x[3] ** 2 + 5,
        ]
    )
    return y @ rows + jnp.array([5.0, 4, 3, 2]) @ x**2 - y @ y


def _seventh(x, y):
    value = 2 * x[0] * x[4] + 3 * x[3] * x[1] + x[4] * x[2] + 5 * x[3] ** 2 + 5 * x[4] ** 2
    value += -x[3] * (y[3] - y[4] - 5) + x[4] * (y[3] - y[4] + 3) + y[:3] @ (x[:3] ** 2 - 1)
    return value - y @ y


# name: the family, its published value
PUBLISHED = {
    "rustem_howe_1": (_rustem_howe(_first, [5.0, 5], -100.0, 100.0, [1.0, 1], (-5.0, 5.0)), -1.6833),
    "rustem_howe_2": (_rustem_howe(_second, [10.0, 10], -100.0, 100.0, [0.0, 0], (-5.0, 5.0)), 1.4039),
    "rustem_howe_3": (_rustem_howe(_third, [5.0, 5], np.array([-10.0, 0]), 10.0, [1.0, 1], (0.0, 3.0)), -2.4688),
    "rustem_howe_6": (_rustem_howe(_sixth, [5.0] * 4, -100.0, 100.0, [0.0] * 3, (-2.0, 2.0)), 4.543),
    "rustem_howe_7": (_rustem_howe(_seventh, [1.0, 2, 3, 4, 5], -100.0, 100.0, [0.0] * 5, (-3.0, 3.0)), -6.3509),
}

FAMILIES = {
    function.__name__: function
    for function in (entropy_of_y, entropies, entropies_light, entropy_shifted, bargaining, channels, stiff, budgets)
    + (counts_far, counts_farther, smooth_lasso)
} | {name: family for name, (family, _) in PUBLISHED.items()}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    tell(FAMILIES, (__doc__ or "").splitlines()[0])
