"""Certificates of points in float32: in float64 where JAX has it."""

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate import wide
from bisaddle.run import loop

RIDGE = 1e-3


def upper(x, theta, y, data):
    return y @ (theta - data["goal"]) + 0.5 * x @ x


def lower(x, theta, data):
    residual = data["A"] @ theta - x
    return 0.5 * residual @ residual + 0.5 * RIDGE * theta @ theta


def posed():
    """A float32 problem whose lower level has a condition number of 1e3."""
    rng = np.random.default_rng(0)
    A = (np.linalg.qr(rng.normal(size=(4, 4)))[0] * np.array([1.0, 0.3, 0.1, 0.01])).astype(np.float32)
    data = {"A": jnp.asarray(A), "goal": jnp.asarray(rng.normal(size=4), jnp.float32)}
    constants = bs.Constants(mu_g=RIDGE)
    problem = bs.Problem(upper, lower, bs.sets.Box(-1.0, 1.0), bs.sets.Box(-1.0, 1.0), data, constants)
    x, y = (rng.uniform(-0.5, 0.5, 4).astype(np.float32) for _ in range(2))
    return problem, bs.Point(x=x, theta=np.zeros(4, np.float32), y=y)


def gap_in_numpy(problem, point):
    A, goal, x, y = (
        np.asarray(part, np.float64) for part in (problem.data["A"], problem.data["goal"], point.x, point.y)
    )
    hessian = A.T @ A + RIDGE * np.eye(4)
    Gx, Gy = x + A @ np.linalg.solve(hessian, y), np.linalg.solve(hessian, A.T @ x) - goal
    return sum(np.linalg.norm(v - np.clip(to, -1, 1)) for v, to in ((x, x - Gx), (y, y + Gy)))


def test_the_gap_of_a_float32_point_is_that_of_float64():
    problem, point = posed()
    certificate = bs.certify(problem, point)
    np.testing.assert_allclose(certificate.gap, gap_in_numpy(problem, point), rtol=1e-12)
    assert certificate.error_bound < 1e-9


def test_a_mu_g_that_rounding_the_data_has_missed_is_no_witness():
    """Rounding matrices of order 1 takes about as much from a least curvature of 0.01."""
    data = {"ridge": jnp.float32(0.01 * (1 - 1e-4))}
    lower = lambda x, theta, data: 0.5 * data["ridge"] * theta @ theta - theta @ x
    upper = lambda x, theta, y, data: 1e-3 * theta @ y
    box = bs.sets.Box(-1.0, 1.0)
    problem = bs.Problem(upper, lower, box, box, data, bs.Constants(mu_g=0.01))
    certificate = bs.certify(problem, bs.Point(*(np.zeros(3, np.float32) for _ in range(3))))
    assert certificate.lower_witness is None


def test_large_data_are_not_copied(monkeypatch):
    problem, point = posed()
    monkeypatch.setattr(wide, "WIDE_BYTES", 0)
    certificate = bs.certify(problem, point)
    assert certificate.error_bound > 1e-7
    assert abs(certificate.gap - gap_in_numpy(problem, point)) <= certificate.error_bound


@pytest.mark.parametrize(("tol", "status"), [(1e-4, "CERTIFIED"), (1e-12, "STALLED")])
def test_a_run_stays_float32_and_says_what_it_can_reach(tol, status, recwarn):
    problem, point = posed()
    result = bs.solve(problem, point, tol=tol, max_steps=5000, progress=False)
    assert str(result.status) == status
    assert result.x.dtype == result.theta.dtype == np.float32
    assert ("no point in float32 came closer" in result.reason) == (status == "STALLED")
    np.testing.assert_allclose(result.gap, gap_in_numpy(problem, result.point), rtol=1e-9, atol=1e-15)


def test_steps_go_on_in_float64_where_those_in_float32_come_no_closer(monkeypatch, recwarn):
    """Those alone stay above 1e-5: a residual of theta in float32 counts a thousandfold in a gradient."""
    problem, point = posed()
    result = bs.solve(problem, point, tol=1e-6, max_steps=500, progress=False)
    assert str(result.status) == "CERTIFIED"
    assert {part.dtype for part in (result.x, result.theta, result.y)} == {np.dtype(np.float32)}
    assert gap_in_numpy(problem, result.point) <= 1e-6
    assert result.steps > loop.COARSE
    for column in (result.trace.k, result.trace.gradients, result.trace.hvps, result.trace.projections):
        assert np.all(np.diff(column) >= 0)
    monkeypatch.setattr(loop, "COARSE", np.inf)
    assert str(bs.solve(problem, point, tol=1e-6, max_steps=500, progress=False).status) != "CERTIFIED"
