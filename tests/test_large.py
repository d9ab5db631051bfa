"""A lower level of many variables: certificates and solves that keep few vectors give the same numbers."""

from dataclasses import replace

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


def in_one_row(problem, start):
    """The same with theta as a row: one entry along its first axis, for which there is no preconditioner."""
    f, g = problem.upper, problem.lower
    rows = {"upper": lambda x, theta, y, data: f(x, theta[0], y, data), "lower": lambda x, t, data: g(x, t[0], data)}
    return replace(problem, **rows), replace(start, theta=start.theta[None])


def test_conjugate_gradients_from_the_host(as_if_large, monkeypatch):
    """g_theta_theta is diagonal, and so the solution is known."""
    kernels = Kernels(*in_one_row(PROBLEM, START))
    assert kernels.one_large and not Kernels(PROBLEM, START).one_large
    monkeypatch.setattr("bisaddle.trees.PIECE", 64)  # in pieces, the last of which is shorter
    draw = np.random.default_rng(2).normal
    x, theta, right = draw(size=2), draw(size=SIZE), draw(size=SIZE)
    H, cross = DATA["scales"] - np.cos(theta) / 4, -DATA["mix"].T
    given, start = right.copy(), draw(size=SIZE)
    first = start.copy()
    for options in ({}, {"start": start}, {"start": start, "spend": True}):
        found = kernels.solve(x, theta, right, 1e-10, cross=True, **options)
        np.testing.assert_allclose(found.w, given / H, atol=1e-9)
        np.testing.assert_allclose(found.r, given - H * found.w, atol=1e-12)
        np.testing.assert_allclose(found.cross, cross @ found.w, atol=1e-12)
        assert np.linalg.norm(found.r) <= 1e-10 < 1e-5 < found.least and found.products < 40 and found.flat is None
        np.testing.assert_array_equal(start, first)
        assert (right.tolist() == given.tolist()) == ("spend" not in options)
    newton = kernels.solve(x, theta, None, 0.0, 1e-6)
    np.testing.assert_allclose(newton.right, -kernels.lower_gradient(x, theta), rtol=1e-12)
    assert np.linalg.norm(newton.r) <= 1e-6 * np.linalg.norm(newton.right)
    assert kernels.solve(x, theta, None, enough=1e9).products == 0
    bent = replace(PROBLEM, data=DATA | {"scales": np.r_[-1.0, DATA["scales"][1:]]})
    stopped = Kernels(*in_one_row(bent, START)).solve(x, theta, given, 1e-10)
    assert stopped.flat @ (np.r_[-1.0 - np.cos(theta[0]) / 4, H[1:]] * stopped.flat) <= 0


def test_a_theta_in_one_piece_is_solved_and_certified_as_others_are(as_if_large, monkeypatch):
    problem, start = in_one_row(PROBLEM, START)
    solved = bs.solve(problem, start, tol=1e-5, progress=False)
    large = bs.certify(problem, solved.point)
    bent = replace(problem, data=DATA | {"scales": np.r_[-1.0, DATA["scales"][1:]]})
    assert bs.certify(bent, start).lower_witness is not None
    monkeypatch.undo()
    programs.clear()
    usual = bs.certify(problem, solved.point)
    assert solved.status is bs.Status.CERTIFIED and usual.within(1.1e-5)
    np.testing.assert_allclose(large.x_gradient, usual.x_gradient, rtol=1e-9, atol=1e-14)
    np.testing.assert_allclose(large.theta, usual.theta, rtol=1e-9)
    np.testing.assert_allclose(large.w, usual.w, rtol=1e-9, atol=1e-12)


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
