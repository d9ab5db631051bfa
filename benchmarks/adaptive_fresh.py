"""Families as users bring them, on which no rule was chosen: default solves of six seeds each, and what to look into.

    python benchmarks/adaptive_fresh.py [--seed 0] [--seeds 6] [family ...]

A run is shown if it is not certified, takes more than 1000 steps, or warns. `make(family, seed)` has the problem and
its start.
"""

import argparse
import time
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

import bisaddle as bs

jax.config.update("jax_enable_x64", True)
TOLS = (1e-4, 1e-6)
MANY = 1000
Made = tuple[bs.Problem, bs.Point]
S = bs.sets


def even(n: int) -> np.ndarray:
    return np.full(n, 1 / n)


def portfolio(rng: np.random.Generator) -> Made:
    """Weights against the worst mixture of market regimes, with returns and risks in per cent a year."""
    n, regimes = 12, 5
    means = rng.normal(6, 4, (regimes, n))
    factors = rng.normal(0, 8, (regimes, n, 3))
    data = {"means": means, "cov": np.einsum("rif,rjf->rij", factors, factors) + 4 * np.eye(n)}

    def upper(x, theta, y, d):
        return y @ (0.5 * jnp.einsum("i,rij,j->r", x, d["cov"], x) / 10 - d["means"] @ x)

    return bs.Problem(upper, None, S.CappedSimplex(0.4), S.Simplex(), data), bs.Point(even(n), None, even(regimes))


def dro_logistic(rng: np.random.Generator) -> Made:
    """Logistic regression against weights of the rows in a KL ball, an intercept without bounds."""
    n, d = 150, 6
    A = np.c_[rng.normal(size=(n, d)) * 10 ** rng.uniform(-1, 1, d), np.ones(n)]
    b = np.sign(A @ rng.normal(size=d + 1) + rng.normal(size=n))

    def upper(x, theta, y, data):
        A, b = data
        return y @ jnp.logaddexp(0.0, -b * (A @ x)) + 1e-3 * x @ x

    problem = bs.Problem(upper, None, S.FreeBall(), S.KLBall(even(n), 0.1), (A, b))
    return problem, bs.Point(np.zeros(d + 1), None, even(n))


def matrix_game(rng: np.random.Generator) -> Made:
    """Mixed strategies of two players: no curvature anywhere."""
    m, n = 30, 20
    problem = bs.Problem(lambda x, theta, y, P: x @ P @ y, None, S.Simplex(), S.Simplex(), rng.normal(size=(m, n)))
    return problem, bs.Point(even(m), None, even(n))


def robust_pca(rng: np.random.Generator) -> Made:
    """One projector for several groups of rows: the worst share of variance that it misses."""
    n, groups = 10, 4
    rows = rng.normal(size=(groups, 40, n)) @ (rng.normal(size=(groups, n, n)) * np.geomspace(1, 0.05, n))
    cov = np.einsum("gki,gkj->gij", rows, rows)
    cov /= np.trace(cov, axis1=1, axis2=2)[:, None, None]
    problem = bs.Problem(
        lambda x, theta, y, C: -jnp.einsum("g,gij,ij->", y, C, x), None, S.Fantope(2), S.Simplex(), cov
    )
    return problem, bs.Point(np.eye(n) * 2 / n, None, even(groups))


def cleaning(rng: np.random.Generator) -> Made:
    """Weights of rows, some with a wrong label, for a softmax classifier that is held against two clean groups."""
    n, d, k = 60, 4, 3
    W = rng.normal(size=(k, d))

    def rows(count, wrong):
        A = rng.normal(size=(count, d))
        b = np.argmax(A @ W.T, axis=1)
        b[rng.random(count) < wrong] = rng.integers(k)
        return A, np.eye(k)[b]

    def losses(theta, A, b):
        z = A @ theta.T
        return jax.nn.logsumexp(z, axis=1) - jnp.sum(b * z, axis=1)

    def upper(x, theta, y, data):
        return y @ jnp.stack([jnp.mean(losses(theta, *group)) for group in data[1]])

    def lower(x, theta, data):
        return jax.nn.sigmoid(x) @ losses(theta, *data[0]) / n + 0.005 * jnp.sum(theta**2)

    data = rows(n, 0.3), (rows(40, 0.0), rows(40, 0.05))
    problem = bs.Problem(upper, lower, S.Box(-5.0, 5.0), S.Simplex(), data)
    return problem, bs.Point(np.zeros(n), np.zeros((k, d)), even(2))


def kernel_ridge(rng: np.random.Generator) -> Made:
    """Width and penalty of a kernel ridge regression, as logarithms, by the worst of four folds."""
    n, d = 40, 2
    A = rng.uniform(-2, 2, (n, d))
    b = np.sin(2 * A[:, 0]) + 0.3 * A[:, 1] + 0.1 * rng.normal(size=n)
    data = np.sum((A[:, None] - A[None]) ** 2, axis=2), b, np.eye(4)[np.arange(n) % 4].T

    def gram(x, data):
        return jnp.exp(-data[0] * jnp.exp(-x[0]))

    def upper(x, theta, y, data):
        off = (theta @ gram(x, data) - data[1]) ** 2 * data[2]
        return y @ jnp.sum(off, axis=1) / (n / 4)

    def lower(x, theta, data):
        seen = 1 - data[2]
        fit = 0.5 * jnp.sum(seen * (theta @ gram(x, data) - data[1]) ** 2)
        return (fit + 0.5 * jnp.exp(x[1]) * jnp.sum(theta**2)) / n

    problem = bs.Problem(upper, lower, S.Box(np.array([-3.0, -6.0]), np.array([3.0, 2.0])), S.Simplex(), data)
    return problem, bs.Point(np.zeros(2), np.zeros((4, n)), even(4))


def flows(rng: np.random.Generator) -> Made:
    """A flow over a grid of streets against delays that can be raised, with a budget for all of them."""
    size = 4
    nodes = [(i, j) for i in range(size) for j in range(size)]
    edges = [(a, b) for a in nodes for b in nodes if (b[0] - a[0], b[1] - a[1]) in ((0, 1), (1, 0))]
    E = np.array([[(e[0] == v) - float(e[1] == v) for e in edges] for v in nodes[:-1]])
    e = np.eye(len(nodes) - 1)[0]
    m = len(edges)
    data = rng.uniform(1, 3, m), rng.uniform(0.5, 2, m)
    x_set = S.Polyhedron(E=E, e=e, lower=np.zeros(m), upper=np.ones(m))
    problem = bs.Problem(
        lambda x, theta, y, d: (d[0] + d[1] * y) @ x + 0.05 * x @ x,
        None,
        x_set,
        S.HalfspaceBox(np.ones(m), 4.0, 0.0, 1.0),
        data,
    )
    return problem, bs.Point(np.asarray(x_set.project(jnp.zeros(m))), None, np.zeros(m))


def inventory(rng: np.random.Generator) -> Made:
    """Orders of twelve periods against demands in an ellipsoid, costs of stock and of lack smoothed; prices of 1e3."""
    n = 12
    data = {"demand": rng.uniform(50, 150, n), "price": rng.uniform(800, 1200, n)}

    def upper(x, theta, y, d):
        stock = jnp.cumsum(x - d["demand"] - y)
        return d["price"] @ x + 100 * jnp.sum(stock) + 3000 * jnp.sum(jnp.logaddexp(0.0, -stock / 10)) - 300 * y @ y

    axes = rng.uniform(5, 30, n)
    return bs.Problem(upper, None, S.Box(0.0, 400.0), S.Ellipsoid(axes), data), bs.Point(
        np.full(n, 100.0), None, np.zeros(n)
    )


def coupled(rng: np.random.Generator) -> Made:
    """As in training two networks against each other: bilinear, with hardly any curvature."""
    n = 15
    data = rng.normal(size=(n, n)) / n**0.5, rng.normal(size=n), rng.normal(size=n)

    def upper(x, theta, y, d):
        return 5e-4 * x @ x + x @ d[0] @ y - 5e-4 * y @ y + 0.1 * (d[1] @ x + d[2] @ y)

    return bs.Problem(upper, None, S.L2Ball(10.0), S.L2Ball(10.0), data), bs.Point(
        rng.normal(size=n), None, rng.normal(size=n)
    )


def least_squares(rng: np.random.Generator) -> Made:
    """Rows that are off by an ellipsoid; columns in units of 1e-4 to 1e4."""
    n, d = 40, 6
    units = 10 ** np.linspace(-4, 4, d)
    A = rng.normal(size=(n, d)) * units
    b = A @ (rng.normal(size=d) / units) + 0.1 * rng.normal(size=n)
    upper = lambda x, theta, y, D: 0.5 * jnp.mean((D[0] @ x - D[1] - y) ** 2) - jnp.mean(y**2)
    return bs.Problem(upper, None, S.FreeBall(), S.Ellipsoid(rng.uniform(0.1, 1, n)), (A, b)), bs.Point(
        np.zeros(d), None, np.zeros(n)
    )


def entropic(rng: np.random.Generator) -> Made:
    """Prices of a seller, buyers who mix goods with an entropy as logits, and the worst group of buyers."""
    buyers, goods = 6, 5
    data = rng.uniform(1, 3, (buyers, goods))

    def lower(x, theta, worth):
        return (
            jnp.sum(jax.nn.logsumexp(theta, axis=1))
            - jnp.sum(jax.nn.softmax((worth - x) / 0.5) * theta)
            + 0.01 * jnp.sum(theta**2)
        )

    def upper(x, theta, y, worth):
        return -y @ (jax.nn.softmax(theta) @ x) + 0.02 * x @ x

    problem = bs.Problem(upper, lower, S.Box(0.0, 4.0), S.Simplex(), data)
    return problem, bs.Point(np.ones(goods), np.zeros((buyers, goods)), even(buyers))


def nested(rng: np.random.Generator) -> Made:
    """A soft maximum of affine functions whose rows are moved by y, and a penalty of y."""
    n, m = 8, 25
    data = rng.normal(size=(m, n)), rng.normal(size=m)
    upper = lambda x, theta, y, d: (
        0.2 * jax.nn.logsumexp((d[0] @ x + d[1]) / 0.2) + y @ x + 0.01 * jnp.sum(jnp.sqrt(1 + x**2))
    )
    return bs.Problem(upper, None, S.FreeBall(), S.L2Ball(0.3), data), bs.Point(np.zeros(n), None, np.zeros(n))


def money(rng: np.random.Generator) -> Made:
    """A plant's output in thousands and a profit in units of 1e6, the prices in a box; x from a vertex."""
    n = 6
    Q = rng.normal(size=(n, n))
    data = (Q @ Q.T + np.eye(n)), rng.uniform(1e6, 3e6, n)
    upper = lambda x, theta, y, d: 5e5 * x @ d[0] @ x - (d[1] * (1 + y)) @ x
    return bs.Problem(upper, None, S.UnitSimplex(10.0), S.Box(-0.2, 0.2), data), bs.Point(
        10 * np.eye(n)[0], None, np.zeros(n)
    )


def many_rows(rng: np.random.Generator) -> Made:
    """The mean of the worst tenth of 1e4 squared errors."""
    n, d = 10_000, 5
    A = rng.normal(size=(n, d))
    b = A @ rng.normal(size=d) + rng.standard_t(3, n)
    upper = lambda x, theta, y, D: y @ (D[0] @ x - D[1]) ** 2
    return bs.Problem(upper, None, S.FreeBall(), S.CVaRSet(0.1), (A, b)), bs.Point(np.zeros(d), None, even(n))


def transport(rng: np.random.Generator) -> Made:
    """Plans between shops and stores that are robust against costs, with a lower level of dimension 1: a price."""
    a, b = even(5), even(7)
    data = rng.uniform(1, 2, (5, 7)), rng.normal(size=(5, 7))
    lower = lambda x, theta, d: 0.5 * jnp.sum(theta**2) + 0.1 * jnp.sum(theta) ** 4 - jnp.sum(theta) * jnp.sum(d[1] * x)
    upper = lambda x, theta, y, d: jnp.sum((d[0] + y) * x) + theta[0] ** 2 + 0.5 * jnp.sum(x**2)
    problem = bs.Problem(upper, lower, S.TransportPolytope(a, b), S.L2Ball(0.5), data)
    return problem, bs.Point(np.outer(a, b), np.zeros(1), np.zeros((5, 7)))


FAMILIES: dict[str, Callable[[np.random.Generator], Made]] = {
    function.__name__: function
    for function in (portfolio, dro_logistic, matrix_game, robust_pca, cleaning, kernel_ridge, flows, inventory)
    + (coupled, least_squares, entropic, nested, money, many_rows, transport)
}


def make(family: str, seed: int) -> Made:
    return drawn(FAMILIES, family, seed)


def drawn(families: dict[str, Callable[[np.random.Generator], Made]], family: str, seed: int) -> Made:
    return families[family](np.random.default_rng([seed, len(family)]))


def tell(families: dict[str, Callable[[np.random.Generator], Made]], what: str) -> None:
    """Solves of the families and seeds that the command line names, and what to look into."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("families", nargs="*", default=list(families))
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, default=6, help="how many")
    given = parser.parse_args()
    for family in given.families:
        steps: dict[float, list[int]] = {tol: [] for tol in TOLS}
        began = time.process_time()
        for seed in range(given.seed, given.seed + given.seeds):
            for tol in TOLS:
                problem, start = drawn(families, family, seed)
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    result = bs.solve(problem, start, tol=tol, progress=False)
                certified = result.status is bs.Status.CERTIFIED
                steps[tol] += [result.steps] if certified else []
                # functions are made anew for every instance, which solve rightly warns of
                said = [w for w in said if "defined anew" not in str(w.message)]
                if not certified or result.steps > MANY or said or result.certificate.degenerate:
                    words = "; ".join([result.reason, *(str(w.message) for w in said)])
                    print(
                        f"  {family} {seed} {tol:g}: {result.status} after {result.steps}, {result.certificate} {words}"
                    )
        medians = ", ".join(
            f"{len(found)} certified to {tol:g}, {np.median(found):g} steps" for tol, found in steps.items()
        )
        print(f"{family}: of {given.seeds} {medians}; {time.process_time() - began:.0f} CPU s", flush=True)


if __name__ == "__main__":
    tell(FAMILIES, (__doc__ or "").splitlines()[0])
