"""A lower level of many variables: certificates and solves that keep few vectors give the same numbers."""

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import programs
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.sketch import SKETCHED, sketched

rng = np.random.default_rng(0)
SIZE = 300
DATA = {"scales": rng.uniform(1, 3, SIZE), "target": rng.normal(size=SIZE), "mix": rng.normal(size=(SIZE, 2))}
START = bs.Point(x=np.zeros(2), theta=np.zeros(SIZE), y=np.full(2, 0.5))


def upper(x, theta, y, data):
    return y @ jnp.stack([jnp.mean(jnp.square(theta - data["target"])), jnp.mean(jnp.square(theta))])


def lower(x, theta, data):
    return 0.5 * jnp.sum(data["scales"] * jnp.square(theta)) + jnp.sum(jnp.cos(theta)) / 4 - theta @ (data["mix"] @ x)


PROBLEM = bs.Problem(upper, lower, bs.sets.L2Ball(1.0), bs.sets.Simplex(), data=DATA)


@pytest.fixture
def as_if_large(monkeypatch):
    for module in ("oracle.kernels", "oracle.spectra", "certificate.witnesses"):
        monkeypatch.setattr(f"bisaddle.{module}.LARGE", 100)
    monkeypatch.setattr("bisaddle.oracle.sketch.SKETCHED", 64)
    programs.clear()
    yield
    programs.clear()


def test_the_numbers_are_the_same(as_if_large, monkeypatch):
    point = bs.Point(x=np.array([0.3, -0.2]), theta=np.full(SIZE, 0.1), y=np.array([0.4, 0.6]))
    large, solved = bs.certify(PROBLEM, point), bs.solve(PROBLEM, START, tol=1e-5, progress=False)
    monkeypatch.undo()
    programs.clear()
    usual = bs.certify(PROBLEM, point)
    for name in ("x_gap", "y_gap", "value", "worst_value", "lower_error"):
        np.testing.assert_allclose(getattr(large, name), getattr(usual, name), rtol=1e-9)
    assert large.error_bound <= 20 * usual.error_bound + 1e-12
    assert solved.status is bs.Status.CERTIFIED and bs.certify(PROBLEM, solved.point).within(1.1e-5)


def test_parts_of_a_norm_bound_that_of_the_whole(as_if_large, monkeypatch):
    draw = np.random.default_rng(1).normal
    x, theta, w, ends = draw(size=2), draw(size=SIZE), draw(size=SIZE), draw(size=(2, SIZE))
    args = (x, theta, np.array([0.4, 0.6]), w, ends)
    apart = Kernels(PROBLEM, START).norms(*args, 30)
    monkeypatch.undo()
    programs.clear()
    together = Kernels(PROBLEM, START).norms(*args, 30)
    np.testing.assert_allclose(apart[0], together[0], rtol=1e-9)
    assert together[1] <= apart[1] * (1 + 1e-6) <= 2 * together[1]


def test_a_large_lower_level_that_is_not_convex_has_a_witness(as_if_large):
    bent = DATA | {"scales": np.r_[-1.0, DATA["scales"][1:]]}
    problem = bs.Problem(upper, lower, bs.sets.L2Ball(1.0), bs.sets.Simplex(), data=bent)
    assert bs.certify(problem, START).lower_witness is not None


def test_wrong_derivatives_are_seen_through_sketches(as_if_large):
    wrong = bs.Derivatives(g_theta=lambda x, theta, data: data["scales"] * theta - data["mix"] @ x)
    problem = bs.Problem(upper, lower, bs.sets.L2Ball(1.0), bs.sets.Simplex(), data=DATA, derivatives=wrong)
    point = bs.Point(x=np.array([0.3, -0.2]), theta=np.full(SIZE, 0.1), y=np.array([0.4, 0.6]))
    assert "g" in bs.certify(problem, point).mismatch


def test_a_sketch_is_linear_and_keeps_the_length():
    u, v = rng.normal(size=(2, 10 * SKETCHED + 7))
    v[3] = 1e4
    np.testing.assert_allclose(np.linalg.norm(sketched(v)), np.linalg.norm(v), rtol=0.03)
    np.testing.assert_allclose(sketched(u + 2 * v), sketched(u) + 2 * sketched(v), atol=1e-9)
    short = rng.normal(size=50)
    np.testing.assert_array_equal(sketched(short), short)
