"""The problems with known answers, solved by the methods as printed, with constant steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bisaddle as bs
from tests.registry import PROBLEMS, fully_projected, one_sided_projection_free
from tests.test_certificate import certify


@jax.jit
def run(method, problem, start, count):
    return lax.fori_loop(0, count, lambda _, state: method.step(problem, state), method.init(problem, start))


def reach(problem, start, method, count):
    point = run(method, problem, start, count).point
    return point, certify(problem, point)


# name: (steps of FullyProjected, their number). The gradient of x is scaled by gamma tau, that of y by sigma; mu = 0,
# since the solution itself is asked for, and each of these is strongly convex in x or strongly concave in y near it.
# Where f is linear in y, sigma |f_xy|^2 must stay below the curvature in x, or the iterates circle outwards.
SOLVED = {
    "CB2": ({"gamma": 0.5, "tau": 0.05, "sigma": 0.05}, 20_000),
    "DEM": ({"gamma": 0.5, "tau": 0.01, "sigma": 0.01}, 60_000),
    "QL": ({"gamma": 0.5, "tau": 0.005, "sigma": 0.005}, 60_000),
    "Mifflin1": ({"gamma": 0.5, "tau": 0.01, "sigma": 0.001}, 200_000),
    "CB2 lifted": ({"gamma": 0.5, "tau": 0.05, "sigma": 0.05}, 20_000),
    "DEM lifted": ({"gamma": 0.5, "tau": 0.003, "sigma": 0.003}, 200_000),
    "QL lifted": ({"gamma": 0.5, "tau": 0.005, "sigma": 0.005}, 60_000),
    "Mifflin1 lifted": ({"gamma": 0.5, "tau": 0.01, "sigma": 0.0001}, 200_000),
    # not convex, and solved all the same
    "Crescent": ({"gamma": 0.5, "tau": 0.05, "sigma": 0.05}, 20_000),
    "Crescent lifted": ({"gamma": 0.5, "tau": 0.05, "sigma": 0.05}, 20_000),
    "not Nash": ({"gamma": 0.5, "tau": 0.05, "sigma": 0.2}, 5_000),
    "Bard98": ({"gamma": 1.0, "tau": 2e-4}, 2_000),
    "Henderson-Quandt": ({"gamma": 0.5, "tau": 0.5}, 2_000),
    "generator": ({"gamma": 0.5, "tau": 0.1}, 5_000),
    "linear-quadratic, nu = 0": ({"gamma": 0.5, "tau": 0.2, "sigma": 0.1}, 20_000),
    "linear-quadratic, nu > 0": ({"gamma": 0.5, "tau": 0.2, "sigma": 0.1}, 5_000),
    "linear-quadratic on the simplex, nu = 0": ({"gamma": 0.5, "tau": 0.2, "sigma": 0.1}, 20_000),
    "linear-quadratic on the simplex, nu > 0": ({"gamma": 0.5, "tau": 0.2, "sigma": 0.1}, 5_000),
}


@pytest.mark.parametrize("name", SOLVED)
def test_fully_projected_reaches_a_gap_of_1e_6(name, record):
    sizes, count = SOLVED[name]
    for seed in range(2):
        problem, start, answer = PROBLEMS[name](seed)
        point, certificate = reach(problem, start, fully_projected(problem, **sizes), count)
        record("gap reached by FullyProjected on the problems with known answers", certificate.gap)
        assert certificate.within(1e-6), str(certificate)
        np.testing.assert_allclose(point.x, answer.x, rtol=1e-6, atol=2e-6)
        if answer.y is not None:
            np.testing.assert_allclose(point.y, answer.y, atol=1e-5)
        if answer.theta is not None:
            np.testing.assert_allclose(certificate.theta, answer.theta, rtol=1e-5, atol=1e-5)
        if answer.value is not None:
            np.testing.assert_allclose(certificate.worst_value, answer.value, rtol=1e-6, atol=1e-6)


# name: (steps of OneSidedProjectionFree, the gap to expect by measure="lmo"). A constant gamma leaves a gap of its own
# order, unless the solution is an extreme point.
LOOSELY_SOLVED = {
    "generator, ball active": ({"gamma": 1e-3}, 1e-8),
    "logistic": ({"gamma": 1e-3, "sigma": 0.1, "mu": 1e-3}, 2e-3),
}


@pytest.mark.parametrize("name", [*list(LOOSELY_SOLVED)[:1], pytest.param("logistic", marks=pytest.mark.slow)])
def test_one_sided_projection_free_comes_close(name):
    sizes, gap = LOOSELY_SOLVED[name]
    for seed in range(2):
        problem, start, _ = PROBLEMS[name](seed)
        point = run(one_sided_projection_free(problem, **sizes), problem, start, 20_000).point
        before, after = (certify(problem, at, measure="lmo") for at in (start, point))
        assert after.gap <= gap < 0.1 * before.gap


def centred(start):
    """y0 uniform: the centre of the regularisation."""
    return bs.Point(x=start.x, y=jnp.full_like(start.y, 1 / start.y.size))


def test_regularisation_solves_rock_paper_scissors_and_biases_the_other_game():
    problem, start, _ = PROBLEMS["rock-paper-scissors"](0)
    method = fully_projected(problem, gamma=0.5, tau=0.05, sigma=0.05, mu=0.1)
    _, certificate = reach(problem, centred(start), method, 60_000)
    assert certificate.within(1e-6)  # the solution is the centre
    problem, start, answer = PROBLEMS["two by two"](0)
    mu = 0.5
    method = fully_projected(problem, gamma=0.5, tau=0.01, sigma=0.01, mu=mu)
    point, certificate = reach(problem, centred(start), method, 60_000)
    # x is indifferent at the true y only; there f_y = mu (y - y0) + a constant, which is the gap that is left
    np.testing.assert_allclose(point.y, answer.y, atol=1e-9)
    np.testing.assert_allclose(certificate.gap, mu * np.linalg.norm(answer.y - 0.5), rtol=1e-6)


@pytest.mark.parametrize("name", ["rock-paper-scissors", "two by two"])
def test_games_without_regularisation_cycle_and_are_never_certified(name):
    problem, start, answer = PROBLEMS[name](0)
    method = fully_projected(problem, gamma=0.5, tau=0.05, sigma=0.05, mu=0.0)
    for count in (1_000, 1_003, 20_000, 20_011):
        point, certificate = reach(problem, start, method, count)
        assert certificate.gap >= 1e-2 and not certificate.within(1e-3)
        assert certificate.worst_value >= answer.value


def test_forsaken_cycles_are_never_certified():
    problem, start, answer = PROBLEMS["Forsaken"](0)
    method = fully_projected(problem, gamma=0.5, tau=0.05, sigma=0.05)
    for begin in ((0.5, 0.5), (0.1, 0.4), (-1.0, 1.0)):
        at = bs.Point(x=jnp.array(begin[:1]), y=jnp.array(begin[1:]))
        for count in (100, 1_000, 5_000, 5_007, 20_000, 20_013):
            point, certificate = reach(problem, at, method, count)
            distance = np.hypot(point.x[0] - answer.x[0], point.y[0] - answer.y[0])
            # there is one stationary point: away from it no gap is small
            assert certificate.gap >= min(1e-2, 0.1 * distance)


def test_the_stationary_point_of_forsaken_is_found_by_its_gap():
    problem, _, answer = PROBLEMS["Forsaken"](0)
    certificate = certify(problem, bs.Point(x=np.array(answer.x), y=np.array(answer.y)))
    assert certificate.gap <= 1e-7


def test_the_cosine_saddle_is_reported_as_it_is():
    """Not concave in y: what is reached is stationary and not (0, +-pi); the gap promises no more than that."""
    problem, start, answer = PROBLEMS["cosine"](0)
    known = certify(problem, bs.Point(x=np.zeros(1), y=np.array([np.pi])))
    assert known.gap <= 0.2 * np.pi + 1e-12  # a minimax point, but f_x = 0.2 y: not a stationary one
    np.testing.assert_allclose(known.value, answer.value)
    point, certificate = reach(problem, start, fully_projected(problem), 20_000)
    assert certificate.gap <= 1e-8
    np.testing.assert_allclose(point.x, [-1.0])


def test_worst_value_is_at_least_the_value_even_if_f_is_not_concave():
    problem, start, _ = PROBLEMS["cosine"](0)
    for x, y in ((-1.0, 2.94023473), (0.5, 2.0), (0.0, np.pi)):
        given = certify(problem, bs.Point(x=np.array([x]), y=np.array([y])))
        assert given.worst_value >= given.value - 1e-12
