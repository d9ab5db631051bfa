"""A large x: the same directions, evaluations and certificates in few copies of it."""

from collections import deque

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import programs
from bisaddle.methods.adaptive import constants as const, coordinates, wide
from bisaddle.methods.adaptive.inner import distance
from bisaddle.methods.adaptive.parts import Descent
from bisaddle.oracle.kernels import Kernels
from bisaddle.sets.flat import flat_set
from bisaddle.trees import stepped

SIZE = 60


@pytest.fixture
def as_if_large(monkeypatch):
    """x of SIZE entries and more count as large, and few pairs are kept."""
    monkeypatch.setattr("bisaddle.oracle.kernels.LARGE", SIZE - 1)
    monkeypatch.setattr("bisaddle.sets.flat_base.MANY", SIZE - 1)
    monkeypatch.setattr("bisaddle.trees.LARGE_BYTES", 8 * SIZE - 1)
    monkeypatch.setattr(const, "PIECE", 7)
    monkeypatch.setattr(const, "PAIR_BYTES", 0)
    programs.clear()
    yield
    programs.clear()


@pytest.mark.parametrize(
    "a_set",
    [bs.sets.Box(-1.0, 1.0), bs.sets.L2Ball(2.0), bs.sets.Simplex(3.0), bs.sets.L1Ball(4.0)],
    ids=lambda a_set: type(a_set).__name__,
)
@pytest.mark.parametrize("far", [0.1, 10.0])  # inside the set, and on its border
def test_directions_are_the_same_but_for_the_rounding_of_pairs(a_set, far):
    rng = np.random.default_rng(0)
    flat = flat_set(a_set, np.zeros(SIZE))
    z = flat.project(0.3 * rng.normal(size=SIZE))
    H = rng.uniform(0.5, 2.0, SIZE)
    pairs = [(s, H * s + 0.01 * rng.normal(size=SIZE)) for s in rng.normal(size=(4, SIZE))]
    pairs[2] = pairs[2][0], -pairs[2][1]  # has no curvature, and is left out
    Gz = far * rng.normal(size=SIZE)
    d0, d = coordinates.face_direction(flat, z, Gz, 0.3, pairs)
    few = deque((wide.halved(*pair) for pair in pairs), maxlen=4)
    mine0, mine = wide.face_direction(flat, z, Gz, 0.3, few)
    np.testing.assert_allclose(mine0, d0, rtol=0, atol=1e-14 * far)
    np.testing.assert_allclose(mine, d, rtol=0, atol=1e-6 * np.max(np.abs(d)))
    assert np.max(np.abs(d - d0)) > 1e-3 * np.max(np.abs(d0))
    assert [one.tolist() for one in wide.face_direction(flat, z, Gz, 0.3, deque())] == [mine0.tolist()] * 2


def test_a_half_keeps_seven_digits_of_any_scale():
    v = np.random.default_rng(1).normal(size=50)
    for scale in (1e-300, 1.0, 1e300):
        np.testing.assert_allclose(wide.Half.of(scale * v).full(v.dtype), scale * v, rtol=1e-6)
    assert not np.any(wide.Half.of(np.zeros(3)).full(v.dtype))


@pytest.mark.parametrize("stiffer", [4.0, 1 / 4])
def test_pairs_kept_in_half_are_rescaled_as_others_are(stiffer):
    s, q = np.random.default_rng(3).normal(size=(2, SIZE))
    descent = Descent(pairs=deque([wide.halved(s, q)], maxlen=2))
    descent.rescale(stiffer)
    (s_now, q_now) = descent.pairs[0]
    np.testing.assert_allclose(s_now.full(s.dtype), s, rtol=1e-6)
    np.testing.assert_allclose(q_now.full(q.dtype), stiffer**0.5 * q, rtol=1e-6)


def test_small_helpers_are_what_they_stand_for(as_if_large):
    a, b = np.random.default_rng(2).normal(size=(2, SIZE))
    np.testing.assert_array_equal(stepped(a, 0.3, b), a + 0.3 * b)
    assert stepped(a, 0.3, b).ctypes.data % 64 == 0
    np.testing.assert_allclose(distance(a, b), np.linalg.norm(a - b), rtol=1e-14)
    assert wide.largest(np.array([1.0, -3.0])) == 3 and np.isnan(wide.largest(np.array([1.0, np.nan, 2.0])))


def posed(size, lower):
    rng = np.random.default_rng(0)
    data = {"c": rng.normal(size=(3, size)), "d": rng.uniform(0.1, 1, size)}
    losses = lambda x, data: jnp.stack([jnp.mean(data["d"] * jnp.square(x - c)) for c in data["c"]])
    start = bs.Point(x=np.zeros(size), theta=np.zeros(3) if lower else None, y=np.full(3, 1 / 3))
    if not lower:
        return bs.Problem(
            lambda x, theta, y, data: y @ losses(x, data), None, bs.sets.Box(-1, 1), bs.sets.Simplex(), data
        ), start
    upper = lambda x, theta, y, data: y @ theta + 0.5 * jnp.mean(jnp.square(x))
    g = lambda x, theta, data: 0.5 * jnp.sum(jnp.square(theta - losses(x, data))) + jnp.sum(jnp.cos(theta)) / 4
    return bs.Problem(upper, g, bs.sets.Box(-1, 1), bs.sets.Simplex(), data), start


@pytest.mark.parametrize("lower", [False, True])
def test_solutions_and_certificates_are_the_same(lower, as_if_large, monkeypatch, tmp_path):
    problem, start = posed(SIZE, lower)
    assert Kernels(problem, start).wide
    solved = bs.solve(problem, start, tol=1e-7, progress=False)
    point = bs.Point(x=np.full(SIZE, 0.1), theta=start.theta, y=np.array([0.2, 0.3, 0.5]))
    large = bs.certify(problem, point)
    file = tmp_path / "run"
    bs.solve(problem, start, tol=1e-7, max_steps=6, checkpoint=file, checkpoint_every=0, progress=False)
    resumed = bs.resume(file, problem, max_steps=10_000, progress=False)
    np.testing.assert_array_equal(resumed.x, solved.x)  # with its pairs in float32
    monkeypatch.undo()
    programs.clear()
    assert solved.status is bs.Status.CERTIFIED and bs.certify(problem, solved.point).within(1.1e-7)
    usual = bs.certify(problem, point)
    for name in ("x_gap", "y_gap", "value", "worst_value", "lower_error"):
        np.testing.assert_allclose(getattr(large, name), getattr(usual, name), rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(large.x_gradient, usual.x_gradient, rtol=1e-9, atol=1e-16)
    assert large.error_bound <= 100 * usual.error_bound + 1e-12


def test_wrong_derivatives_are_seen_at_a_large_x(as_if_large):
    problem, start = posed(SIZE, False)
    wrong = bs.Derivatives(f_x=lambda x, theta, y, data: x)
    wrong = bs.Problem(problem.upper, None, problem.x_set, problem.y_set, problem.data, derivatives=wrong)
    assert "f changes at a rate" in bs.certify(wrong, bs.Point(x=np.full(SIZE, 0.1), y=start.y)).mismatch
