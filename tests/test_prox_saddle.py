"""Penalties in a saddle problem with a known answer: max_y <c(x), y> - w sum y log y = w logsumexp(c(x) / w)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, wrightomega

import bisaddle as bs
from bisaddle import sets
from tests.test_prox import N, _points, compiled

W = 0.3
A = np.random.default_rng(3).normal(size=(4, N))
B = np.random.default_rng(4).normal(size=N)
STEPS = dict(gamma=0.3, tau=0.2, sigma=0.5, mu=0.0)


def _upper(x, theta, y, data):
    return (x @ data["A"] + data["B"]) @ y + 0.5 * jnp.sum(x**2)


def _problem(y_set, x_set=None):
    data = {"A": jnp.asarray(A), "B": jnp.asarray(B)}
    return bs.Problem(_upper, None, x_set=x_set or sets.L2Ball(5.0), y_set=y_set, data=data)


START = bs.Point(jnp.ones(4), None, jnp.full(N, 1 / N))


def _worst(x):
    return W * logsumexp((np.asarray(x) @ A + B) / W) + 0.5 * np.sum(np.asarray(x) ** 2)


def _closed_form():
    """Newton's method on the smooth, strongly convex x -> w logsumexp(c(x) / w) + |x|^2 / 2."""
    x = np.zeros(4)
    for k in range(50):
        y = np.exp((x @ A + B) / W - logsumexp((x @ A + B) / W))
        hessian = A @ (np.diag(y) - np.outer(y, y)) @ A.T / W + np.eye(4)
        x = x - (0.5 if k < 20 else 1) * np.linalg.solve(hessian, A @ y + x)
    return x, y


def test_an_entropy_penalised_saddle_problem_is_solved_and_certified():
    method = bs.methods.FullyProjected(bs.StepSizes(**STEPS))
    result = bs.solve(_problem(sets.Entropy(W)), START, method, tol=1e-9, max_steps=20_000)
    assert result.status is bs.Status.CERTIFIED
    x, y = _closed_form()
    np.testing.assert_allclose(result.x, x, atol=1e-7)
    np.testing.assert_allclose(result.y, y, atol=1e-7)
    np.testing.assert_allclose(result.certificate.value, _worst(x), atol=1e-8)
    np.testing.assert_allclose(result.certificate.worst_value, _worst(result.x), atol=1e-12)


def test_the_certificate_of_a_penalised_problem_away_from_its_solution():
    certificate = bs.certify(_problem(sets.Entropy(W)), START, sigma=0.7)
    y = np.asarray(START.y)
    np.testing.assert_allclose(certificate.worst_value, _worst(START.x), rtol=1e-13)
    c = np.asarray(START.x) @ A + B
    np.testing.assert_allclose(certificate.value, c @ y + 2 - W * np.sum(y * np.log(y)), rtol=1e-13)
    moved = sets.Entropy(W).prox(START.y + 0.7 * jnp.asarray(c), 0.7)
    np.testing.assert_allclose(certificate.y_gap, np.linalg.norm(y - moved) / 0.7, rtol=1e-12)


def test_the_trajectory_is_that_of_a_numpy_loop():
    def prox(v, step):  # by bisection on the multiplier, elementwise with scipy's Wright omega function
        a = step * W
        low, high = v.max() - 2, v.max() + a * np.log(N) + 1
        for _ in range(200):
            t = 0.5 * (low + high)
            low, high = (t, high) if np.sum(a * wrightomega((v - t) / a - np.log(a))) > 1 else (low, t)
        p = a * wrightomega((v - t) / a - np.log(a))
        return p / p.sum()

    steps = {**STEPS, "mu": 0.05}
    method = bs.methods.FullyProjected(bs.StepSizes(**steps))
    seen = []
    bs.solve(
        _problem(sets.Entropy(W)),
        START,
        method,
        tol=None,
        max_steps=200,
        every=1,
        callback=lambda r: seen.append(r.point),
    )
    x, y = np.ones(4), np.full(N, 1 / N)
    y0 = y
    for point in seen:
        np.testing.assert_allclose(point.x, x, atol=1e-10)
        np.testing.assert_allclose(point.y, y, atol=1e-10)
        f_x, f_y = A @ y + x, x @ A + B
        s = x - steps["tau"] * f_x
        s = s * min(1, 5 / np.linalg.norm(s))
        x, y = (
            0.3 * s + 0.7 * x,
            prox(y + steps["sigma"] * (f_y - steps["mu"] * (y - y0)), steps["sigma"]),
        )
    assert len(seen) == 201


@pytest.mark.parametrize(
    "y_set",
    [
        sets.SquaredL2(0.5, sets.Simplex()),
        sets.ElasticNet(0.2, 0.5, sets.Box(0.0, 1.0)),
        sets.L1Penalty(0.2, sets.Box(-1.0, 1.0)),
        sets.Scaled(sets.Entropy(W), 2.0),
        sets.Prox(
            lambda v: 0.25 * jnp.sum(v**2), lambda v, t: sets.SquaredL2(0.5, sets.Simplex()).prox(v, t), sets.Simplex()
        ),
    ],
    ids=["SquaredL2", "ElasticNet", "L1Penalty", "Scaled Entropy", "Prox"],
)
def test_the_worst_value_is_a_maximum_with_a_valid_bound(y_set):
    x = np.array([0.3, -0.2, 0.5, 0.1])
    c = x @ A + B

    @jax.jit
    def looked_for(keys):
        samples = jax.vmap(lambda k: y_set.sample(k, (N,)))(keys)
        values = samples @ c - jax.vmap(y_set.penalty)(samples)
        # another way to the maximum: the proximal point method on the linear function less h
        y = jax.lax.fori_loop(0, 100, lambda _, y: y_set.prox(y + 20 * jnp.asarray(c), 20.0), samples[0])
        return samples[0], jnp.max(values), c @ y - y_set.penalty(y)

    y, best, there = map(np.asarray, looked_for(jax.random.split(jax.random.key(1), 2000)))
    certificate = bs.certify(_problem(y_set), bs.Point(x, None, y))
    best, there = float(best) + 0.5 * x @ x, float(there) + 0.5 * x @ x
    assert float(certificate.worst_value) + float(certificate.worst_value_error) >= max(best, there) - 1e-12
    assert float(certificate.worst_value_error) <= 1e-9
    np.testing.assert_allclose(certificate.worst_value, there, atol=1e-8)


def test_an_indicator_and_a_product_with_a_penalty_behave_as_their_parts():
    plain, indicator = (
        bs.solve(
            _problem(y), START, bs.methods.FullyProjected(bs.StepSizes(**STEPS)), tol=None, max_steps=300, every=50
        )
        for y in (sets.Simplex(), sets.Indicator(sets.Simplex()))
    )
    for column in plain.trace.to_dict():
        if column != "seconds":
            np.testing.assert_array_equal(getattr(plain.trace, column), getattr(indicator.trace, column))
    product = sets.Product({"a": sets.Entropy(W), "b": sets.Box(-1.0, 1.0)})
    v = {"a": jnp.asarray(_points(1)[0]), "b": jnp.asarray([3.0])}
    entropy = sets.Entropy(W)
    moved = compiled(product, "prox")(v, 0.5)
    np.testing.assert_allclose(moved["a"], compiled(entropy, "prox")(v["a"], 0.5))
    np.testing.assert_allclose(moved["b"], [1.0])
    np.testing.assert_allclose(compiled(product, "penalty")(moved), compiled(entropy, "penalty")(moved["a"]))
    bound, point = compiled(product, "best_response")(moved, v)
    np.testing.assert_allclose(bound, compiled(entropy, "best_response")(moved["a"], v["a"])[0], rtol=1e-12)
    np.testing.assert_allclose(point["b"], [1.0])


def test_a_penalty_of_x_belongs_to_upper():
    with pytest.raises(ValueError, match="add the penalty of x to upper"):
        _problem(sets.Simplex(), x_set=sets.Entropy(1.0))
