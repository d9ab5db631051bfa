"""Adaptive in sets of any size, and over lower levels that are smooth only locally: certified, and never led astray."""

import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.methods.adaptive.first import first_scales
from bisaddle.methods.adaptive.inner import Inner, Residuals, Solver, is_solved
from bisaddle.methods.adaptive.parts import Descent, Place, shorter
from bisaddle.oracle.kernels import Kernels, Upper

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import adaptive_fresh  # noqa: E402
import adaptive_published  # noqa: E402
import adaptive_published_last  # noqa: E402
import adaptive_published_more  # noqa: E402
import adaptive_steep  # noqa: E402


def solved(problem, start):
    return bs.solve(problem, start, bs.methods.Adaptive(np.asarray(1e-6)), tol=1e-6, max_steps=2000)


@pytest.mark.parametrize("name", ["CB2", "Mifflin1", "Polak6", "Wong1"])
def test_the_size_of_x_does_not_matter(name):
    steps = []
    for radius in (50.0, 1e6):
        problem, start, check = adaptive_published.make(name, radius, 0)
        result = solved(problem, start)
        assert result.status is bs.Status.CERTIFIED
        assert check(result.point) <= 1e-6
        steps.append(result.steps)
    assert steps[1] <= 2 * steps[0]


def test_the_first_mu_is_the_start_s_own():
    """With the one from the probe, x followed the mean of HS78's functions, which has no minimum, to the border."""
    problem = bs.Problem(adaptive_published_more.Upper("HS78"), None, bs.sets.L2Ball(1e3), bs.sets.Simplex())
    published = adaptive_published_more.PROBLEMS["HS78"]
    result = solved(problem, bs.Point(x=published.start, y=np.full(8, 1 / 8)))
    assert result.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(result.certificate.worst_value, published.value, rtol=1e-6)


@pytest.mark.parametrize(
    "lower", [None, lambda x, theta, data: 0.5 * jnp.sum((theta - x) ** 2)], ids=["plain", "lower"]
)
@pytest.mark.parametrize("radius", [2.0, 10.0, 1e6])
def test_a_start_where_all_y_are_alike_gets_the_mu_of_where_x_is_going(radius, lower):
    """f_i = |x|^2 / 2 - <g, x> + <a_i, x>, all 0 at x = 0; their mean is least at g, or where the ball ends."""
    rng = np.random.default_rng(0)
    slope, rows = 4 * rng.normal(size=3), rng.normal(size=(4, 3))
    rows -= rows.mean(axis=0)

    def upper(x, theta, y, data):
        at = x if lower is None else theta
        return y @ (0.5 * jnp.sum(at**2) - slope @ at + rows @ at)

    problem = bs.Problem(upper, lower, bs.sets.L2Ball(radius), bs.sets.Simplex())
    theta = None if lower is None else np.zeros(3)
    kernels = Kernels(problem, bs.Point(np.zeros(3), theta, np.full(4, 0.25)))
    solver = Solver(kernels)
    inner, Gx = solver.begin(np.zeros(3), np.zeros(0 if lower is None else 3), np.full(4, 0.25), None)
    there = rows @ slope * min(1.0, radius / np.linalg.norm(slope))
    assert np.linalg.norm(slope) > 2
    np.testing.assert_allclose(first_scales(solver, np.zeros(3), inner, Gx).mu, np.ptp(there) / 2, rtol=1e-6)


@pytest.mark.parametrize("name", ["Transformer", "MAD1", "Colville 1", "Shell Dual"])
def test_published_problems_with_constraints_end_at_their_values(name):
    """Transformer bends a lot within 1 % of |x|, which was taken for rounding."""
    given = adaptive_published_last.PROBLEMS[name]
    problem = bs.Problem(adaptive_published_last.Upper(name), None, given.x_set, given.y_set)
    result = solved(problem, bs.Point(x=given.x, y=given.y))
    assert result.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(result.certificate.worst_value, given.value, rtol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_an_f_y_that_differs_by_its_rounding_alone_is_no_scale(seed):
    """f has one value for all y at the start and at the probe: steps by its range over Y, 1e-16, led nowhere."""
    result = solved(*adaptive_fresh.make("entropic", seed))
    assert result.status is bs.Status.CERTIFIED and result.steps <= 150


# 4, 5, 0 and 6 diverged, or went nowhere, while an extrapolated theta was followed wherever it led
@pytest.mark.parametrize(
    ("kind", "seed"),
    [("Poisson", 4), ("Poisson", 5), ("exponential", 0), ("exponential", 6), ("quartic", 0), ("barrier", 0)],
)
def test_steep_lower_levels_are_certified(kind, seed):
    problem, start, check = adaptive_steep.make(kind, seed)
    result = solved(problem, start)
    assert result.status is bs.Status.CERTIFIED
    assert check(result.point) <= 1e-6


def logarithm():
    """g = theta^2 / 2 - log theta: theta* = 1, and outside of the domain g_theta = 0 at -1 as if that were another."""
    lower = lambda x, theta, data: jnp.sum(0.5 * theta**2 - jnp.log(theta)) + 0.0 * x[0]
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(theta), lower, bs.sets.Box(0.0, 1.0), None)
    return problem, bs.Point(jnp.zeros(1), jnp.full(1, 0.3), None)


def test_there_is_no_gradient_where_g_is_no_number():
    kernels = Kernels(*logarithm())
    x = np.zeros(1)
    np.testing.assert_allclose(kernels.lower_gradient(x, np.array([2.0])), [1.5])
    assert np.isnan(kernels.lower_gradient(x, np.array([-1.0]))).all()


@pytest.mark.parametrize("guess", [-1.0, 1e9])
def test_a_guess_worse_than_the_last_theta_is_given_up(guess):
    solver = Solver(Kernels(*logarithm()))
    theta, g, *_ = solver.solve_lower(np.zeros(1), np.array([guess]), 1e-10, last=np.array([0.9]))
    np.testing.assert_allclose(theta, [1.0], atol=1e-9)
    assert np.linalg.norm(g) <= 1e-10


def test_an_unsolved_place_is_neither_solved_nor_remembered():
    """Newton's method begins outside of the domain, and nothing else is known."""
    problem, start = logarithm()
    solver = Solver(Kernels(problem, start))
    assert solver.recall is not None
    outside, x = np.array([-1.0]), np.zeros(1)
    warm = Inner(outside, np.zeros(0), np.zeros(1), outside, Upper(0.0, x, outside, np.zeros(0)), 0.0, 1.0)
    solver.recall.add(x, np.zeros(0), outside, np.zeros(1))
    found = solver.evaluate(x, warm, False, np.zeros(0), 1.0, Residuals(1e-4, 1e-4, 1e-5))
    assert not found.solved and solver.recall.filled == 1
    assert is_solved(np.array([1e-9]), 1e-8, np.inf, outside)
    assert is_solved(np.array([1e-9]), 1e-12, 1.0, outside)  # rounding may be in the way
    assert not is_solved(np.array([1.0]), 1e-8, 1.0, outside)
    assert not is_solved(np.array([np.nan]), 1e-8, 1.0, outside)


def _squares(x, theta, y, data):
    return y @ (data[0] @ x - data[1]) ** 2


@pytest.mark.parametrize("seed", range(4))
def test_a_start_near_the_solution_is_no_worse_than_one_far_away(seed):
    """Its gradient in x is nearly 0, and says nothing of the length over which f changes: mu was 1e10, tau 1e23."""
    rng = np.random.default_rng(seed)
    data = rng.normal(size=(10, 4)), rng.normal(size=10)
    problem = bs.Problem(_squares, None, bs.sets.FreeBall(), bs.sets.Simplex(), data)
    start = bs.Point(x=rng.normal(size=4), y=np.full(10, 0.1))
    cold = bs.solve(problem, start, tol=1e-9)
    for near in (1e-3, 1e-6):
        warm = bs.solve(problem, bs.solve(problem, start, tol=near).point, tol=1e-9)
        assert warm.status is cold.status is bs.Status.CERTIFIED
        assert warm.steps <= 1.5 * cold.steps


@pytest.mark.parametrize("stiffer", [1 / 4, 4.0])
def test_pairs_of_another_mu_lie_between_what_they_can_be(stiffer):
    """Hessians H + J'J / mu: products with the rescaled pairs' q against those of both weights."""
    rng, mu = np.random.default_rng(0), 0.3
    H, J = np.diag(rng.uniform(1, 2, 5)), rng.normal(size=(5, 5))
    s = rng.normal(size=5)
    bent = lambda mu: float(s @ (H + J.T @ J / mu) @ s)
    descent = Descent()
    descent.pairs.appendleft((s, (H + J.T @ J / mu) @ s))
    descent.rescale(stiffer)
    found, exact = float(s @ descent.pairs[0][1]), bent(mu / stiffer)
    assert max(found / exact, exact / found) <= max(stiffer, 1 / stiffer) ** 0.5 * (1 + 1e-12)
    assert abs(np.log(found / exact)) < abs(np.log(bent(mu) / exact))


@pytest.mark.parametrize("rise", [1.0, 0.37, 2.6, 1e9])
def test_a_shortened_step_is_a_whole_number_of_64ths(rise):
    v = np.ones(2)
    here = Place(v, v, Inner(v, v, v, v, Upper(0.0, v, v, v), 0.0, 1.0), 0.0, v, v)
    factor = shorter(here, here._replace(value=rise), -1.0)
    assert 64 * factor == round(64 * factor)
    assert abs(factor - np.clip(0.5 / (rise + 1), 0.1, 0.5)) <= 1 / 128
