"""f that is concave in y and not linear: entropies, logarithms, stiff curvature; and lower levels from far away."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

import bisaddle as bs
from bisaddle.methods.adaptive.climb import climb
from bisaddle.oracle.kernels import Kernels, Upper
from bisaddle.sets.flat import flat_set


def even(n):
    return np.full(n, 1 / n)


def rows(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def entropic(weight):
    return lambda x, theta, y, A: x @ A @ y - weight * jnp.sum(y * jnp.log(y))


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_entropy_of_y_is_no_number_at_the_border(weight):
    # max_y x'A y - c sum y log y = c logsumexp(A'x / c), whose minimum over the simplex SciPy finds
    A = rows(0, 8, 8)
    problem = bs.Problem(entropic(weight), None, bs.sets.Simplex(), bs.sets.Simplex(), A)
    result = bs.solve(problem, bs.Point(even(8), None, even(8)), tol=1e-6, progress=False)
    assert result.status is bs.Status.CERTIFIED
    soft = lambda x: weight * logsumexp(A.T @ x / weight)
    limits = {"type": "eq", "fun": lambda x: np.sum(x) - 1}
    least = minimize(soft, even(8), method="SLSQP", bounds=[(0, 1)] * 8, constraints=[limits], options={"ftol": 1e-14})
    np.testing.assert_allclose(soft(np.asarray(result.x)), least.fun, atol=1e-6)
    # the worst value is told too, although f is no number at the vertices from which it could be sought
    np.testing.assert_allclose(result.certificate.worst_value, soft(np.asarray(result.x)), atol=1e-9)
    assert result.certificate.worst_value_error < 1e-6


def test_both_players_have_an_entropy():
    def upper(x, theta, y, A):
        entropy = lambda p: jnp.sum(jax.scipy.special.xlogy(p, p))
        return x @ A @ y + 0.1 * entropy(x) - 0.1 * entropy(y)

    problem = bs.Problem(upper, None, bs.sets.Simplex(), bs.sets.Simplex(), rows(1, 12, 12))
    result = bs.solve(problem, bs.Point(even(12), None, even(12)), tol=1e-6, progress=False)
    assert result.status is bs.Status.CERTIFIED
    x, y, A = np.asarray(result.x), np.asarray(result.y), problem.data
    np.testing.assert_allclose(y, softmax(A.T @ x / 0.1), atol=1e-5)
    np.testing.assert_allclose(x, softmax(-A @ y / 0.1), atol=1e-5)


def test_soft_maximum_that_is_stiff_in_y():
    # curvatures in y of 100 and of next to nothing: 200 projected gradient steps at every x were not enough
    A, B = rows(2, 30, 6), rows(3, 30, 4)
    upper = lambda x, theta, y, d: -jax.nn.logsumexp(10 * (d[1] @ y - d[0] @ x)) + 0.1 * jnp.sum(jnp.cosh(x))
    problem = bs.Problem(upper, None, bs.sets.FreeBall(), bs.sets.L2Ball(3.0), (A, B))
    result = bs.solve(problem, bs.Point(np.ones(6), None, np.zeros(4)), tol=1e-6, max_steps=500, progress=False)
    assert result.status is bs.Status.CERTIFIED
    trace = result.trace
    assert trace.gradients[-1] < 5000
    audit = bs.audit(problem, result.point)
    assert audit.gap + audit.uncertainty <= 1e-6


@pytest.mark.parametrize("kind", ["box", "simplex"])
def test_climb_finds_the_maximum(kind):
    """Of c'y - y'Dy / 2 - mu/2 |y - y0|^2, with curvatures from 1e-3 to 1e3, by SciPy."""
    n, mu = 12, 0.01
    basis = np.linalg.qr(rows(4, n, n))[0]
    D, c, y0 = (basis * np.geomspace(1e-3, 1e3, n)) @ basis.T, rows(5, n), even(n)
    y_set = bs.sets.Box(0.0, 1.0) if kind == "box" else bs.sets.Simplex()
    upper = lambda x, theta, y, d: d[1] @ y - 0.5 * y @ d[0] @ y
    kernels = Kernels(bs.Problem(upper, None, bs.sets.Box(0.0, 1.0), y_set, (D, c)), bs.Point(np.zeros(1), None, y0))
    evaluate = lambda y: kernels.upper(np.zeros(1), np.zeros(0), y)
    y, there, _ = climb(evaluate, kernels.y_set, y0, evaluate(y0), y0, mu, 1.0, 1e-9)
    np.testing.assert_allclose(there.f_y, c - D @ y, atol=1e-12)
    limits = [{"type": "eq", "fun": lambda y: np.sum(y) - 1}] if kind == "simplex" else []
    worth = lambda y: -(c @ y) + 0.5 * y @ D @ y + 0.5 * mu * np.sum((y - y0) ** 2)
    slope = lambda y: -c + D @ y + mu * (y - y0)
    options = {"method": "SLSQP", "bounds": [(0, 1)] * n, "constraints": limits, "options": {"ftol": 1e-15}}
    least = minimize(worth, y0, jac=slope, **options)
    assert worth(y) <= least.fun + 1e-9


def poisson(x, theta, d):
    return jnp.mean(jnp.exp(d[0] @ theta) - d[1] * (d[0] @ theta)) + jnp.sum(jnp.exp(x) * theta**2)


@pytest.mark.parametrize("far", [30.0, 60.0, 1e3])
def test_the_start_of_theta_may_be_far_away(far):
    """At 30 and 60 g bends up to 1e30 times as much as at theta*, at 1000 it is no number: as from a start at 0."""
    A = 0.4 * rows(6, 40, 4)
    data = A, np.random.default_rng(7).poisson(np.exp(A @ np.ones(4))).astype(float)
    upper = lambda x, theta, y, d: jnp.sum((theta - 0.5) ** 2) + 0.01 * jnp.sum(x**2)
    problem = bs.Problem(upper, poisson, bs.sets.Box(-6.0, 4.0), None, data)
    found = [
        bs.solve(problem, bs.Point(np.zeros(4), np.full(4, start)), tol=1e-6, progress=False) for start in (0.0, far)
    ]
    assert [result.status for result in found] == [bs.Status.CERTIFIED] * 2
    values = [result.certificate.value for result in found]
    np.testing.assert_allclose(*values, atol=1e-8)
    assert found[1].steps <= 5 * found[0].steps


@pytest.mark.parametrize("mu", [0.5, 20.0])
def test_a_climb_from_the_maximiser_is_over_before_it_begins(mu):
    """Of c'y - |Q y|^2 / 2 - mu/2 |y - y0|^2 over the simplex, as SciPy finds it: the first gradient counts."""
    Q, c, y0 = rows(1, 6, 6), rows(2, 6), softmax(rows(3, 6))
    bracket = lambda y: 0.5 * np.sum((Q @ y) ** 2) - c @ y + 0.5 * mu * np.sum((y - y0) ** 2)
    limits = {"type": "eq", "fun": lambda y: np.sum(y) - 1}
    options = {"ftol": 1e-16, "maxiter": 1000}
    best = minimize(bracket, y0, method="SLSQP", bounds=[(0, 1)] * 6, constraints=[limits], options=options).x
    asked = []

    def evaluate(y):
        asked.append(y)
        return Upper(float(c @ y - 0.5 * np.sum((Q @ y) ** 2)), y[:0], y[:0], c - Q.T @ (Q @ y))

    simplex, L = flat_set(bs.sets.Simplex(), y0), 30.0
    there, *_ = climb(evaluate, simplex, best, evaluate(best), y0, mu, L, 1e-4)
    assert len(asked) == 1 and there is best
    far = np.eye(6)[0]
    found, *_ = climb(evaluate, simplex, far, evaluate(far), y0, mu, L, 1e-9)
    np.testing.assert_allclose(found, best, atol=1e-6)
    assert len(asked) < 60
