"""Attacks on certificates, each of which once succeeded: derivatives that are none, hidden curvature, basins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.consistency import difference
from bisaddle.oracle.implicit import Hessian
from bisaddle.oracle.kernels import Kernels
from tests.registry import PROBLEMS

BOX = bs.sets.Box(-1.0, 1.0)
HERE = bs.Point(np.zeros(2), None, np.zeros(2))
BELOW = bs.Point(np.zeros(2), np.zeros(2))


# -- derivatives that do not belong to their functions ----------------------------------------------------------------


def _linear(x, theta, y, data):
    return jnp.sum(x) + jnp.sum(y)


def _pulled(x, theta, y, data):
    return 0.5 * jnp.sum((theta - 0.5) ** 2) + jnp.sum(x)


def _follows(x, theta, data):
    return 0.5 * jnp.sum((theta - x) ** 2)


def _at_one(x, theta, data):
    return 0.5 * jnp.sum((theta - x - 1) ** 2)


@jax.custom_vjp
def _no_slope(y):
    return jnp.sum(y)


_no_slope.defvjp(lambda y: (jnp.sum(y), y), lambda y, ct: (0 * y,))

BY_HAND = {
    "f_x": (_linear, None, {"f_x": lambda x, theta, y, data: 0 * x, "f_y": lambda x, theta, y, data: 1 + 0 * y}),
    "f_y": (_linear, None, {"f_x": lambda x, theta, y, data: 1 + 0 * x, "f_y": lambda x, theta, y, data: 0 * y}),
    "f_theta": (_pulled, _follows, {"f_theta": lambda x, theta, y, data: 2 * (theta - 0.5)}),
    "g_theta": (_pulled, _at_one, {"g_theta": lambda x, theta, data: theta - x}),
    "g_theta_theta": (_pulled, _follows, {"g_theta_theta": lambda x, theta, w, data: 0.5 * w}),
    "g_theta_x": (_pulled, _follows, {"g_theta_x": lambda x, theta, w, data: -2 * w}),
}


@pytest.mark.parametrize("noise", [None, 1e-13], ids=["noise estimated", "noise given"])
@pytest.mark.parametrize("name", BY_HAND)
def test_wrong_derivatives_by_hand_are_not_certified(name, noise):
    upper, lower, by_hand = BY_HAND[name]
    y_set, start = (BOX, HERE) if lower is None else (None, BELOW)
    constants = None if lower is None else bs.Constants(mu_g=0.5)
    problem = bs.Problem(upper, lower, BOX, y_set, None, constants, derivatives=bs.Derivatives(**by_hand), noise=noise)
    certificate = bs.certify(problem, start)
    assert not certificate.within(1e3) and not certificate.error_is_bound
    assert name in certificate.mismatch and certificate.mismatch in str(certificate)


HIDDEN = {
    "a stop_gradient on y": lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + jnp.sum(jax.lax.stop_gradient(y)),
    "a stop_gradient on x": lambda x, theta, y, data: jnp.sum(jax.lax.stop_gradient(x)) - 0.5 * jnp.sum(y**2),
    "a custom_vjp": lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + _no_slope(y),
    "a kink with 0 for a slope": lambda x, theta, y, data: -jnp.sum(jnp.maximum(x, -x)) - 0.5 * jnp.sum(y**2),
    "a kink on one side": lambda x, theta, y, data: (
        -jnp.sum(jnp.where(x < 0, -x, 0.0) + jnp.where(x[::-1] > 9, x, 0.0)) - 0.5 * jnp.sum(y**2)
    ),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_values_that_change_without_a_slope_are_not_certified(name):
    certificate = bs.certify(bs.Problem(HIDDEN[name], None, BOX, BOX), HERE)
    assert certificate.gap == 0 and not certificate.within(1e3)
    assert "stop_gradient, or a kink" in certificate.mismatch


def _tilted(x, theta, y, data):
    return jnp.sum(x) - jnp.sum(theta)


@pytest.mark.parametrize("kink", ["slope", "curvature"])
def test_a_kink_of_g_at_its_minimum_is_seen(kink):
    """theta*(x) does not move as the derivatives at the kink say."""
    bent = (lambda t: jnp.maximum(t, -t)) if kink == "slope" else (lambda t: 2 * jnp.maximum(t, 0.0) ** 2)
    lower = lambda x, theta, data: jnp.sum(bent(theta)) + 0.5 * jnp.sum(theta**2) - jnp.sum(x * theta)
    certificate = bs.certify(bs.Problem(_tilted, lower, BOX, None), BELOW)
    assert certificate.lower_residual == 0 and "<g_theta, w>" in certificate.mismatch and not certificate.within(1e3)


def test_a_run_with_wrong_derivatives_ends_in_a_status_of_its_own():
    upper, lower, by_hand = BY_HAND["g_theta_x"]
    problem = bs.Problem(upper, lower, BOX, None, derivatives=bs.Derivatives(**by_hand))
    result = bs.solve(problem, bs.Point(np.full(2, 0.3), np.zeros(2)))
    assert result.status is bs.Status.WRONG_DERIVATIVES and "check_derivatives" in result.status.advice
    assert result.reason == result.certificate.mismatch != ""


@pytest.mark.parametrize("name", ["logistic", "QL", "generator", "wavy saddle"])
def test_derivatives_that_are_right_are_not_doubted_in_single_precision(name):
    """In double precision: test_no_witness_where_there_is_none, over all problems."""
    problem, start, _ = PROBLEMS[name](0)
    single = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), (problem, start))
    assert bs.certify(*single).mismatch == ""


def test_the_steepness_of_values_against_a_slope():
    """(-3 v0 + 4 v1 - v2) / (2 h) of sin, by its cosine; a slope that is off by more than it changes is told."""
    h = 1e-3
    t = h * np.arange(3)
    for off in (0.0, 1e-8, 0.1, -0.1):
        slopes = np.cos(t + 0.3)
        slopes[0] += off
        found = difference(np.sin(t + 0.3), slopes, h, 1e-16, 1e-16)
        assert (found is not None) is (abs(off) > 1e-3)
        if found is not None:
            np.testing.assert_allclose(found, (np.cos(0.3), np.cos(0.3) + off), rtol=0, atol=h**2)
    assert difference(np.sin(t), np.cos(t) + 0.1, h, 1e-4, 0.0) is None  # as much as values of that rounding tell
    assert difference(np.sin(t), np.cos(t) + 0.1, h, 0.0, 0.1) is None
    assert difference(np.array([np.nan, 0, 0]), np.cos(t), h, 0.0, 0.0) is None


# -- f that is not concave where nothing was looked for ---------------------------------------------------------------

STEPS = {
    "a step": lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + 10.0 * jnp.sum(jnp.where(y > 0.5, 1.0, 0.0)),
    "rounding": lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + jnp.sum(jnp.round(3 * y)),
}


@pytest.mark.parametrize("name", STEPS)
def test_an_f_whose_slope_in_y_is_nothing_has_its_values_looked_at(name):
    certificate = bs.certify(bs.Problem(STEPS[name], None, BOX, BOX), HERE)
    assert certificate.upper_witness is not None and np.isinf(certificate.worst_value_error)
    assert certificate.worst_value >= 6


@jax.custom_jvp
def _cube(y):
    return jnp.sum(y**3)


_cube.defjvp(lambda p, t: (_cube(p[0]), jnp.sum(jax.lax.stop_gradient(3 * p[0] ** 2) * t[0])))


def test_an_f_that_only_seems_linear_has_far_values_looked_at():
    """The slope of y^3 is right, and its program says that it does not change."""
    problem = bs.Problem(lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + _cube(y), None, BOX, BOX)
    assert bs.certify(problem, HERE).upper_witness is not None


def _quadratic_in_y(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + 0.5 * (y - data[1]) @ data[0] @ (y - data[1])


Y_SETS = {
    "box": (BOX, np.zeros),
    "ball": (bs.sets.L2Ball(1.0), np.zeros),
    "simplex": (bs.sets.Simplex(), lambda n: np.full(n, 1 / n)),
    "KL ball": (None, lambda n: np.full(n, 1 / n)),
    "CVaR": (bs.sets.CVaRSet(0.3), lambda n: np.full(n, 1 / n)),
}


@pytest.mark.parametrize("size", [10, 60])
@pytest.mark.parametrize("name", Y_SETS)
def test_one_small_upward_direction_among_many_is_found(name, size):
    """Curvatures from -1 to -0.05 and one of +0.05, which a few steps from a random direction do not meet."""
    y_set, at = Y_SETS[name]
    y = at(size)
    y_set = bs.sets.KLBall(y, 0.5) if y_set is None else y_set
    for seed in range(3):
        rng = np.random.default_rng(seed)
        basis = rng.normal(size=(size, size))
        if name in ("simplex", "KL ball", "CVaR"):  # its directions add up to 0
            basis[:, -1] = 1.0
            basis = basis[:, ::-1]
        basis = np.linalg.qr(basis)[0]
        values = np.append(-rng.uniform(0.05, 1.0, size - 1), 0.05)
        matrix = (basis * values) @ basis.T
        problem = bs.Problem(_quadratic_in_y, None, BOX, y_set, (0.5 * (matrix + matrix.T), y))
        certificate = bs.certify(problem, bs.Point(np.zeros(2), None, y))
        witness = certificate.upper_witness
        assert witness is not None and not certificate.within(1e3), seed
        v = np.asarray(witness.direction)
        assert 0 < witness.curvature <= v @ matrix @ v + 1e-9


@pytest.mark.parametrize("name", ["box", "ball", "simplex"])
def test_a_hill_far_out_along_one_coordinate_is_found(name):
    """-|y|^2 / 2 + 0.6 y_7^4 bends up near the border of that coordinate only."""
    y_set, at = Y_SETS[name]
    y = at(40)
    upper = lambda x, theta, y, data: 0.5 * jnp.sum(x**2) - 0.5 * jnp.sum((y - data) ** 2) + 0.6 * (y[7] - data[7]) ** 4
    certificate = bs.certify(bs.Problem(upper, None, BOX, y_set, y), bs.Point(np.zeros(2), None, y))
    assert certificate.y_gap <= 1e-12 and certificate.upper_witness is not None


# -- lower levels -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 20])
@pytest.mark.parametrize("width", [1.0, 10.0])
def test_a_second_basin_of_g_is_a_witness(size, width):
    """theta* is a minimum, and not the least one."""

    def lower(x, theta, data):
        well = 0.25 * data**2 * ((theta[0] / data) ** 2 - 1) ** 2 + 0.2 * data * theta[0]
        return well + 0.5 * jnp.sum(theta[1:] ** 2) - x[0] * jnp.sum(theta)

    upper = lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + 0 * jnp.sum(theta)
    start = bs.Point(np.zeros(1), np.append(width, np.zeros(size - 1)))
    problem = bs.Problem(upper, lower, BOX, None, np.array(width))
    certificate = bs.certify(problem, start)
    assert certificate.gap <= 1e-9 and not certificate.within(1e3)
    witness = certificate.lower_witness
    assert witness is not None and witness.curvature < 0
    assert bs.solve(problem, start).status is bs.Status.NOT_STRONGLY_CONVEX


def _sees_the_rest(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + 0.5 * jnp.mean(theta[1:] ** 2)


def _first_unseen(x, theta, data):
    return 0.5 * jnp.sum(data * theta**2) - 0.1 * x[0] * jnp.sum(theta[1:])


@pytest.mark.parametrize("mu_g", [None, 1e-3], ids=["unknown", "given"])
@pytest.mark.parametrize("least", [-1e-4, -1e-6, 1e-7])
def test_an_eigenvalue_that_a_short_lanczos_run_misses(least, mu_g):
    """One of 400, beside a spectrum over three orders of magnitude; no right side has a part of its vector."""
    h = np.exp(np.random.default_rng(5).uniform(np.log(1e-3), 0, 400))
    h = np.append(least, np.maximum(h, 1e-3)[1:])
    constants = None if mu_g is None else bs.Constants(mu_g=mu_g)
    problem = bs.Problem(_sees_the_rest, _first_unseen, BOX, None, h, constants)
    certificate = bs.certify(problem, bs.Point(np.zeros(1), np.zeros(400)))
    if mu_g is None and least > 0:  # strongly convex, if only just: the error bound knows
        assert certificate.lower_witness is None
    else:
        assert certificate.lower_witness is not None and not certificate.within(1e3)


def test_inverse_iteration_finds_the_lowest_direction():
    h = np.append(1e-3, np.linspace(0.5, 2.0, 299))
    problem = bs.Problem(_sees_the_rest, _first_unseen, BOX, None, h)
    start = bs.Point(np.zeros(1), np.zeros(300))
    hessian = Hessian(Kernels(problem, start), np.zeros(1), np.zeros(300))
    v = hessian.lowest(2)
    assert abs(v[0]) > 1 - 1e-6 and hessian.lowest(1) is v  # what took more passes serves
    np.testing.assert_allclose(hessian.least, 1e-3, rtol=1e-6)


# -- numbers that are called bounds -----------------------------------------------------------------------------------
