"""Families that are hard by their kind, on which no rule was chosen: default solves of six seeds each.

    python benchmarks/adaptive_fresh_hard.py [--seed 0] [--seeds 6] [family ...]

Linear programs and other problems without curvature as saddles, norms and largest eigenvalues by their dual sets, and
lower levels whose second derivatives jump. Run and told as by adaptive_fresh.py.
"""

import jax
import jax.numpy as jnp
import numpy as np
from adaptive_fresh import Made, even, tell

import bisaddle as bs

S = bs.sets


def large_game(rng: np.random.Generator) -> Made:
    m, n = 100, 80
    problem = bs.Problem(lambda x, theta, y, P: x @ P @ y, None, S.Simplex(), S.Simplex(), rng.normal(size=(m, n)))
    return problem, bs.Point(even(m), None, even(n))


def blotto(rng: np.random.Generator) -> Made:
    """Who has more soldiers on a field wins it: whole numbers, ties, many equilibria."""
    plans = np.array([(a, b, 8 - a - b) for a in range(9) for b in range(9 - a)])
    worth = rng.integers(1, 4, 3)
    P = np.sign(plans[:, None] - plans[None]) @ worth
    problem = bs.Problem(lambda x, theta, y, P: x @ P @ y, None, S.Simplex(), S.Simplex(), P.astype(float))
    return problem, bs.Point(even(len(plans)), None, even(len(plans)))


def boxed_bilinear(rng: np.random.Generator) -> Made:
    n = 30
    data = rng.normal(size=(n, n)), rng.normal(size=n), rng.normal(size=n)
    upper = lambda x, theta, y, d: x @ d[0] @ y + d[1] @ x + d[2] @ y
    return bs.Problem(upper, None, S.Box(-1.0, 1.0), S.Box(-1.0, 1.0), data), bs.Point(np.zeros(n), None, np.zeros(n))


def _regression(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    A = np.c_[rng.normal(size=(n, d - 1)), np.ones(n)]
    return A, A @ rng.normal(size=d) + rng.standard_t(2, n)


def least_deviations(rng: np.random.Generator) -> Made:
    """Sums of absolute errors: y in a box."""
    n = 100
    upper = lambda x, theta, y, D: y @ (D[0] @ x - D[1]) / n
    problem = bs.Problem(upper, None, S.FreeBall(), S.Box(-1.0, 1.0), _regression(rng, n, 6))
    return problem, bs.Point(np.zeros(6), None, np.zeros(n))


def quantiles(rng: np.random.Generator) -> Made:
    """The pinball loss of the 0.9 quantile."""
    n = 100
    upper = lambda x, theta, y, D: y @ (D[1] - D[0] @ x) / n
    problem = bs.Problem(upper, None, S.FreeBall(), S.Box(-0.1, 0.9), _regression(rng, n, 5))
    return problem, bs.Point(np.zeros(5), None, np.zeros(n))


def polynomials(rng: np.random.Generator) -> Made:
    """The polynomial of degree 8, in powers, that is nearest to a function in the maximum norm."""
    t = np.linspace(-1, 1, 101)
    target = np.exp(rng.normal() * t) * np.sin(3 * t + rng.normal())
    upper = lambda x, theta, y, D: (y[:101] - y[101:]) @ (D[0] @ x - D[1])
    problem = bs.Problem(upper, None, S.FreeBall(), S.Simplex(), (t[:, None] ** np.arange(9), target))
    return problem, bs.Point(np.zeros(9), None, even(202))


def hinge(rng: np.random.Generator) -> Made:
    """Support vectors: max(0, 1 - b a'x) by weights in [0, 1]."""
    n, d = 120, 6
    A = rng.normal(size=(n, d))
    b = np.sign(A @ rng.normal(size=d) + rng.normal(size=n))
    upper = lambda x, theta, y, D: y @ (1 - D[1] * (D[0] @ x)) / n + 5e-3 * x @ x
    return bs.Problem(upper, None, S.FreeBall(), S.Box(0.0, 1.0), (A, b)), bs.Point(np.zeros(d), None, np.full(n, 0.5))


def total_variation_signal(rng: np.random.Generator) -> Made:
    """A signal of 200 entries whose jumps cost: y in a box, one entry for each jump."""
    n = 200
    b = np.repeat(rng.normal(size=5), 40) + 0.2 * rng.normal(size=n)
    upper = lambda x, theta, y, b: 0.5 * jnp.sum((x - b) ** 2) + 0.5 * y @ (x[1:] - x[:-1])
    return bs.Problem(upper, None, S.FreeBall(), S.Box(-1.0, 1.0), b), bs.Point(np.zeros(n), None, np.zeros(n - 1))


def largest_eigenvalue(rng: np.random.Generator) -> Made:
    """The least largest eigenvalue of A0 + sum x_i A_i: y in a spectrahedron."""
    n, k = 10, 5
    A = rng.normal(size=(k + 1, n, n))
    A = A + A.transpose(0, 2, 1)
    upper = lambda x, theta, y, A: jnp.sum(y * (A[0] + jnp.tensordot(x, A[1:], 1)))
    return bs.Problem(upper, None, S.Box(-5.0, 5.0), S.Spectrahedron(), A), bs.Point(np.zeros(k), None, np.eye(n) / n)


def spectral_norm(rng: np.random.Generator) -> Made:
    """The matrix of a linear family with the least largest singular value: y in a nuclear ball."""
    A = rng.normal(size=(5, 8, 6))
    upper = lambda x, theta, y, A: jnp.sum(y * (A[0] + jnp.tensordot(x, A[1:], 1)))
    return bs.Problem(upper, None, S.FreeBall(), S.NuclearBall(1.0), A), bs.Point(np.zeros(4), None, np.zeros((8, 6)))


def enclosing_ball(rng: np.random.Generator) -> Made:
    points = rng.normal(size=(150, 20)) * rng.uniform(0.2, 2, 20)
    upper = lambda x, theta, y, P: y @ jnp.sum((P - x) ** 2, axis=1)
    return bs.Problem(upper, None, S.FreeBall(), S.Simplex(), points), bs.Point(np.zeros(20), None, even(150))


def polygon_centre(rng: np.random.Generator) -> Made:
    """The centre of the largest ball in a polytope: the largest of b_i - a_i'x is to be small."""
    A = rng.normal(size=(40, 6))
    A /= np.linalg.norm(A, axis=1)[:, None]
    data = A, rng.uniform(1, 2, 40)
    problem = bs.Problem(lambda x, theta, y, d: y @ (d[0] @ x - d[1]), None, S.Box(-10.0, 10.0), S.Simplex(), data)
    return problem, bs.Point(np.zeros(6), None, even(40))


def phases(rng: np.random.Generator) -> Made:
    """Signs are lost: the worst of |(a_i'x)^2 - b_i|, not convex, from a start near the signal."""
    n, d = 40, 5
    A, truth = rng.normal(size=(n, d)), rng.normal(size=5)
    data = A, (A @ truth) ** 2 + 0.1 * rng.normal(size=n)
    upper = lambda x, theta, y, D: (y[:n] - y[n:]) @ ((D[0] @ x) ** 2 - D[1])
    return bs.Problem(upper, None, S.FreeBall(), S.Simplex(), data), bs.Point(
        truth + 0.3 * rng.normal(size=d), None, even(2 * n)
    )


def rates(rng: np.random.Generator) -> Made:
    """Powers of six senders that disturb each other: the least rate is to be large."""
    n = 6
    gains = rng.exponential(size=(n, n)) * 0.2 + np.diag(rng.uniform(1, 3, n))

    def upper(x, theta, y, G):
        own = jnp.diag(G) * x
        return -y @ jnp.log1p(own / (0.1 + G @ x - own))

    return bs.Problem(upper, None, S.Box(0.01, 1.0), S.Simplex(), gains), bs.Point(np.full(n, 0.5), None, even(n))


def _jumping(rng: np.random.Generator, loss) -> Made:
    """Ridges and weights of rows; a lower level whose second derivative jumps."""
    n, d = 50, 5
    A = rng.normal(size=(n, d))
    b = np.sign(A @ rng.normal(size=d) + 0.5 * rng.normal(size=n))
    groups = rng.normal(size=(3, 30, d))
    data = A, b, groups, np.sign(groups @ rng.normal(size=d) + 0.5 * rng.normal(size=(3, 30)))
    lower = lambda x, theta, D: jnp.mean(loss(D[0] @ theta, D[1])) + 0.5 * jnp.exp(x) @ theta**2
    upper = lambda x, theta, y, D: y @ jnp.mean(jnp.logaddexp(0.0, -D[3] * (D[2] @ theta)), axis=1)
    return bs.Problem(upper, lower, S.Box(-4.0, 2.0), S.Simplex(), data), bs.Point(np.zeros(d), np.zeros(d), even(3))


def squared_hinge(rng: np.random.Generator) -> Made:
    return _jumping(rng, lambda u, b: jnp.maximum(0.0, 1 - b * u) ** 2)


def huber(rng: np.random.Generator) -> Made:
    return _jumping(rng, lambda u, b: jnp.where(jnp.abs(u - b) < 1, 0.5 * (u - b) ** 2, jnp.abs(u - b) - 0.5))


def wide_lower(rng: np.random.Generator) -> Made:
    """A lower level of 600 variables in a chain, quartic, whose targets are moved by x."""
    n = 600
    data = np.sin(np.arange(n) / 20) + 0.2 * rng.normal(size=n), np.sin(np.arange(n) / 20)

    def lower(x, theta, d):
        goal = d[0] * jnp.repeat(x, n // 6)
        return jnp.sum(0.5 * (theta - goal) ** 2 + 0.25 * theta**4) + 5 * jnp.sum((theta[1:] - theta[:-1]) ** 2)

    upper = lambda x, theta, y, d: y @ jnp.mean((theta - d[1]).reshape(6, -1) ** 2, axis=1) + 1e-3 * x @ x
    return bs.Problem(upper, lower, S.Box(0.0, 5.0), S.Simplex(), data), bs.Point(np.ones(6), np.zeros(n), even(6))


def sinkhorn(rng: np.random.Generator) -> Made:
    """Costs of a transport, learned within a box, from potentials of an entropic plan below: the worst of the rows."""
    n = 5
    a, b, seen = even(n), even(n), rng.dirichlet(np.ones(n), n) / n

    def plan(x, theta):
        u, v = theta[:n], theta[n:]
        return jnp.exp((u[:, None] + v - x) / 0.5) / n**2

    def lower(x, theta, d):
        return 0.5 * jnp.sum(plan(x, theta)) - d[0] @ theta[:n] - d[1] @ theta[n:] + 5e-3 * jnp.sum(theta**2)

    def upper(x, theta, y, d):
        return y @ jnp.sum((plan(x, theta) - d[2]) ** 2, axis=1) * 100 + 1e-3 * jnp.sum(x**2)

    return bs.Problem(upper, lower, S.Box(0.0, 3.0), S.Simplex(), (a, b, seen)), bs.Point(
        np.ones((n, n)), np.zeros(2 * n), even(n)
    )


def barrier(rng: np.random.Generator) -> Made:
    """Logarithms of slacks in f, which are no numbers beyond a polytope, and of prices in g."""
    m, n = 15, 4
    A = rng.normal(size=(m, n))
    data = A, rng.uniform(0.5, 2, m), rng.uniform(0.5, 2, (3, n))
    lower = lambda x, theta, d: jnp.sum(theta * (1 + x**2) - jnp.log(theta)) + 0.05 * jnp.sum(theta**2)
    upper = lambda x, theta, y, d: y @ (d[2] @ (x + theta)) - 0.05 * jnp.sum(jnp.log(d[1] - d[0] @ x))
    return bs.Problem(upper, lower, S.Box(-2.0, 2.0), S.Simplex(), data), bs.Point(np.zeros(n), np.ones(n), even(3))


FAMILIES = {
    function.__name__: function
    for function in (large_game, blotto, boxed_bilinear, least_deviations, quantiles, polynomials, hinge)
    + (total_variation_signal, largest_eigenvalue, spectral_norm, enclosing_ball, polygon_centre, phases, rates)
    + (squared_hinge, huber, wide_lower, sinkhorn, barrier)
}

if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    tell(FAMILIES, (__doc__ or "").splitlines()[0])
