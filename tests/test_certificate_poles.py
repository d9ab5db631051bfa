"""Certificates close to the pole of a derivative: what bends within a tiny step is neither rounding nor a mistake."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax

import bisaddle as bs

C = np.array([0.3, -0.2, 2.7, 0.1])  # with weight 0.1 the least entry of the maximiser is 1e-13


def entropy(y):
    return jnp.sum(y * jnp.log(y))


@jax.custom_jvp
def mistaken(y):
    return 0.01 * jnp.sum(y**2)


mistaken.defjvp(lambda at, way: (mistaken(*at), 0.02 * at[0] @ way[0] + 3e-3 * jnp.sum(way[0] * jnp.arange(4.0))))


def certificate(rest, extra=0.0, offset=0.0):
    upper = lambda x, theta, y, d: 0.5 * jnp.sum(x**2) + (d[0] - extra) @ y - 0.1 * entropy(y) + rest(y, d[1])
    problem = bs.Problem(upper, None, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex(), (C, np.float64(offset)))
    point = bs.Point(np.zeros(2), None, softmax(C / 0.1))
    return bs.certify(problem, point), bs.audit(problem, point)


def test_an_entropy_with_a_tiny_weight_is_no_rounding():
    found, audit = certificate(lambda y, offset: 0.0)
    assert found.within(1e-8)
    assert abs(found.gap - audit.gap) <= found.error_bound + audit.uncertainty


@pytest.mark.parametrize("offset", [1e8, 1e10, 1e12])
def test_rounding_beside_it_is_seen(offset):
    found, _ = certificate(lambda y, o: -0.5 * jnp.sum(((y + o) - o) ** 2), offset=offset)
    # f_y loses what y does: up to half a spacing of the offset in every entry
    assert found.error_bound >= 0.1 * np.spacing(offset)
    assert not found.within(1e-9)


def test_a_mistake_beside_it_is_seen():
    found, _ = certificate(lambda y, offset: mistaken(y), 3e-3 * np.arange(4.0) + 0.02 * softmax(C / 0.1))
    assert found.gap <= 1e-9
    assert "f_y" in found.mismatch


def test_a_smoothed_absolute_value_is_no_rounding():
    """sqrt(theta^2 + 1e-10) bends within 1e-5; at theta* some entries are as small."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(50, 30))
    data = A, A @ rng.normal(size=30), rng.normal(size=(50, 30)), rng.normal(size=50)

    def lower(x, theta, d):
        smooth = jnp.sum(jnp.sqrt(theta**2 + 1e-10))
        return jnp.mean((d[0] @ theta - d[1]) ** 2) + jnp.exp(x[0]) * smooth + 1e-4 * jnp.sum(theta**2)

    upper = lambda x, theta, y, d: jnp.mean((d[2] @ theta - d[3]) ** 2)
    problem = bs.Problem(upper, lower, bs.sets.Box(-10.0, 3.0), None, data)
    result = bs.solve(problem, bs.Point(np.array([-1.0]), np.zeros(30)), tol=1e-6, max_steps=300, progress=False)
    assert result.status is bs.Status.CERTIFIED
    audit = bs.audit(problem, result.point)
    assert audit.gap + audit.uncertainty <= 1e-6


def test_a_positive_curvature_that_rounding_hides_is_not_called_negative():
    scale = np.geomspace(1e-4, 1e4, 6)
    lower = lambda x, theta, d: 0.5 * jnp.sum((theta / d) ** 2) - jnp.sum(theta / d) * x[0]
    problem = bs.Problem(
        lambda x, theta, y, d: x[0] ** 2 + jnp.sum(theta / d), lower, bs.sets.Box(-1.0, 1.0), None, scale
    )
    found = bs.certify(problem, bs.Point(np.array([-1.0]), np.zeros(6)))
    assert 0 < found.lower_witness.curvature < 1e-6
    assert "beyond rounding" in found.refutation and "other units of theta" in found.refutation
