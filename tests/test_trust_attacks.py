"""Attacks on certificates, each of which once succeeded: derivatives that are none, hidden curvature, basins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.bounds import sensitivity
from bisaddle.certificate.consistency import difference
from bisaddle.oracle.implicit import Hessian, Implicit
from bisaddle.oracle.kernels import Kernels
from bisaddle.sets.flat import flat_set
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
    h = np.append(1e-3, np.linspace(0.5, 2.0, 199))
    problem = bs.Problem(_sees_the_rest, _first_unseen, BOX, None, h)
    start = bs.Point(np.zeros(1), np.zeros(200))
    hessian = Hessian(Kernels(problem, start), np.zeros(1), np.zeros(200))
    v = hessian.lowest(2)
    assert abs(v[0]) > 1 - 1e-6 and hessian.lowest(1) is v  # what took more passes serves
    np.testing.assert_allclose(hessian.least, 1e-3, rtol=1e-6)


# -- numbers that are called bounds -----------------------------------------------------------------------------------


def test_a_theta_that_is_off_counts_in_the_worst_value():
    """theta may stay 0.05 from theta* = 1, and f = 100 theta 5 from its true value."""
    upper = lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + 100 * jnp.sum(theta)
    lower = lambda x, theta, data: 0.5 * jnp.sum((theta - 1) ** 2)
    problem = bs.Problem(upper, lower, BOX, BOX, constants=bs.Constants(mu_g=1.0), noise=1e-15)
    given = bs.certify(problem, bs.Point(np.zeros(1), np.full(1, 1.05), np.zeros(1)), accuracy=0.1)
    np.testing.assert_allclose(given.worst_value_error, 5.0, rtol=1e-9)
    assert abs(given.worst_value - 100) <= given.worst_value_error * (1 + 1e-9)


def test_rounding_of_f_counts_in_the_worst_value():
    upper = lambda x, theta, y, data: ((0.5 * jnp.sum(x**2) + jnp.sum(y) / 3) + 1e10) - 1e10
    given = bs.certify(bs.Problem(upper, None, BOX, BOX, noise=1e-6), bs.Point(np.zeros(1), None, np.ones(1)))
    assert given.error_is_bound and abs(given.worst_value - 1 / 3) <= given.worst_value_error <= 2e-6
    plain = bs.certify(
        bs.Problem(lambda x, theta, y, data: 1e8 * jnp.sum(y) / 3, None, BOX, BOX),
        bs.Point(np.zeros(1), None, np.ones(1)),
    )
    assert plain.worst_value_error >= 1e8 / 3 * 2.0**-53


def test_a_set_that_is_not_exact_counts_in_the_worst_value():
    parts = {"project": lambda v: jnp.clip(v, -1, 1), "lmo": lambda d: -jnp.sign(d), "diameter": 3.0, "tolerance": 1e-3}
    upper = lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + jnp.sum(y)
    for lacking in ("", "lmo"):
        y_set = bs.sets.Custom(**{name: part for name, part in parts.items() if name != lacking})
        given = bs.certify(bs.Problem(upper, None, BOX, y_set), bs.Point(np.zeros(1), None, np.ones(2)))
        # |f_y| (|s| + diameter), or |f_y| times what projections are off by, times the tolerance
        wanted = 2**0.5 * (2**0.5 + 3) if not lacking else 2**0.5 * 2 * 2**0.5
        np.testing.assert_allclose(given.worst_value_error, 1e-3 * wanted, rtol=1e-6)


def test_an_error_of_first_order_is_no_bound_far_from_theta_star():
    """f_theta is a peak that lies between both ends of the step to theta*."""
    upper = lambda x, theta, y, data: 10 * x[0] * jnp.sum(jnp.exp(-(((theta - 1.05) / 0.01) ** 2)))
    lower = lambda x, theta, data: 0.5 * jnp.sum((theta - 1.05) ** 2)
    problem = bs.Problem(upper, lower, bs.sets.Box(-50.0, 50.0), None, constants=bs.Constants(mu_g=0.5), noise=1e-13)
    point = bs.Point(np.zeros(1), np.ones(1))
    far, near = (bs.certify(problem, point, accuracy=accuracy) for accuracy in (0.06, 0.0))
    assert abs(far.gap - 10) > far.error_bound and not far.error_is_bound
    assert abs(near.gap - 10) <= near.error_bound and near.error_is_bound


@pytest.mark.parametrize("step", [1e-170, 1e-310, 5e-324])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_step_too_short_for_its_square_or_for_itself_hides_no_gap(step, dtype):
    upper = lambda x, theta, y, data: 0.1 * jnp.sum(x) + 0.1 * jnp.sum(y)
    point = bs.Point(np.zeros(2, dtype), None, np.zeros(2, dtype))
    for steps in ({"sigma": step}, {"tau": step}):
        given = bs.certify(bs.Problem(upper, None, BOX, BOX), point, **steps)
        assert not given.within(1e-2) and given.gap + given.error_bound >= 2 * 0.1 * 2**0.5 * (1 - 1e-6)


# -- sets made of functions -------------------------------------------------------------------------------------------


def _to_a_point(v):
    near = jnp.sum(jnp.abs(v - 0.25)) < 3
    return jnp.where(near, 0.25, jnp.clip(v, -1, 1))


def test_functions_that_are_no_projection_and_no_vertex_state_their_error():
    custom = bs.sets.Custom(project=_to_a_point, diameter=3.0)
    upper = lambda x, theta, y, data: jnp.sum(x)
    given = bs.certify(bs.Problem(upper, None, custom, None), bs.Point(np.full(2, 0.25)))
    assert given.gap == 0 and not given.within(0.5)  # the true gap is |(1, 1)|
    lazy = bs.sets.Custom(lmo=lambda d: jnp.where(jnp.abs(d) > 0.9, 0.0, -jnp.sign(d)), diameter=3.0)
    given = bs.certify(bs.Problem(upper, None, lazy, None), bs.Point(np.zeros(2)), measure="lmo")
    assert given.gap == 0 and not given.within(0.5)


def test_functions_that_are_right_state_what_they_were_given():
    box = bs.sets.Custom(project=lambda v: jnp.clip(v, -1, 1), lmo=lambda d: -jnp.sign(d), diameter=3.0)
    form, own = flat_set(box, np.zeros(3)), flat_set(BOX, np.zeros(3))
    rng = np.random.default_rng(0)
    for _ in range(20):
        v = 10 ** rng.uniform(-3, 3) * rng.normal(size=3)
        p, s = form.project(v), form.lmo(v)
        np.testing.assert_array_equal(p, own.project(v))
        assert form.project_error(v, p) <= 1.1e-12 * (np.linalg.norm(v) + np.linalg.norm(p))
        assert form.lmo_error(v, s) <= 1.1e-12 * np.linalg.norm(v) * (np.linalg.norm(s) + 3)


def test_an_error_of_theta_that_counts_twice_is_not_cancelled():
    """f = (theta + x)^2 / 2 with theta* = x: Gx = 2 (theta + x) changes by 2 for each unit of theta."""
    upper = lambda x, theta, y, data: 0.5 * jnp.sum((theta + x) ** 2)
    problem = bs.Problem(upper, _follows, BOX, None, constants=bs.Constants(mu_g=1.0), noise=1e-14)
    given = bs.certify(problem, bs.Point(np.full(2, 0.1), np.full(2, 0.11)), accuracy=0.02)
    off = abs(given.gap - 0.4 * 2**0.5)  # at theta = x it is |4 x|
    assert given.error_is_bound and off > 0.02
    assert off <= given.error_bound <= 6 * off


def _third(x, theta, y, data):
    return jnp.sum(jnp.sin(theta) * (data["P"] @ x)) + y @ (data["Q"] @ theta**2) - 0.5 * jnp.sum(y**2)


def _fourth(x, theta, data):
    return 0.5 * theta @ data["A"] @ theta + 0.1 * jnp.sum(theta**4) - theta @ (data["B"] @ jnp.tanh(x))


@pytest.mark.parametrize("seed", range(3))
def test_the_sensitivity_is_twice_that_of_the_gradients_to_the_residuals(seed):
    """Against differences of Gx(theta) = f_x - g_theta_x w(theta) and of f_y, per unit of g_theta, and of w."""
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape)
    root = draw(4, 4)
    data = {"A": root @ root.T + np.eye(4), "B": draw(4, 3), "P": draw(4, 3), "Q": draw(2, 4)}
    problem = bs.Problem(_third, _fourth, BOX, BOX, data)
    kernels = Kernels(problem, bs.Point(np.zeros(3), np.zeros(4), np.zeros(2)))
    x, y = rng.uniform(-0.5, 0.5, 3), rng.uniform(-0.5, 0.5, 2)
    solved = Implicit(kernels, x, np.zeros(4), y)
    found = sensitivity(solved, None, matrices=True)

    def gradients(theta):
        H, C = kernels.columns(x, theta)
        upper = kernels.upper(x, theta, y)
        return np.concatenate([upper.f_x - np.linalg.solve(H, upper.f_theta) @ C, upper.f_y])

    h = 1e-5
    moved = [(gradients(solved.theta + h * e) - gradients(solved.theta - h * e)) / (2 * h) for e in np.eye(4)]
    H, C = kernels.columns(x, solved.theta)
    wanted = np.linalg.norm(np.linalg.solve(H, np.stack(moved)), 2)
    # two ends that are the same stand side by side
    np.testing.assert_allclose([found.x_lower, found.y_lower], 2 * 2**0.5 * wanted, rtol=1e-5)
    np.testing.assert_allclose(found.x_linear, 2 * np.linalg.norm(np.linalg.solve(H, C), 2), rtol=1e-9)
    by_norms = sensitivity(solved, 0.5, matrices=False)
    bends = kernels.bends(x, solved.theta, y, solved.w, np.stack([solved.theta] * 2))
    norms = np.linalg.norm(C, 2), np.linalg.norm(np.concatenate(bends, axis=1), 2)
    for number, norm in zip((by_norms.x_linear, by_norms.y_lower), norms, strict=True):
        assert norm / 0.5 <= number * (1 + 1e-9) <= 4 * norm / 0.5
    np.testing.assert_allclose(by_norms.x_lower, by_norms.y_lower * (1 + by_norms.x_linear), rtol=1e-12)


def test_second_derivatives_are_taken_down_the_gradient_too():
    """f bends for theta > 0 only: not at theta = 0, nor on the other side, but at theta* = 0.01."""
    upper = lambda x, theta, y, data: jnp.sum(jnp.where(theta > 0, theta, 0.0) ** 3)
    problem = bs.Problem(upper, _follows, BOX, None, constants=bs.Constants(mu_g=1.0))
    given = bs.certify(problem, bs.Point(np.array([0.01]), np.zeros(1)), accuracy=0.02)
    assert abs(given.gap - 3e-4) <= given.error_bound


def test_rounding_of_g_and_steps_of_the_gap_count():
    upper = lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + 100 * jnp.sum(theta)
    lower = lambda x, theta, data: 0.5 * jnp.sum((theta - 1) ** 2)
    problem = bs.Problem(upper, lower, BOX, None, constants=bs.Constants(mu_g=1.0), noise=1e-3)
    # theta* is known up to 1e-3, and f up to a hundred times that and its own rounding
    np.testing.assert_allclose(bs.certify(problem, BELOW).worst_value_error, 0.1 * 2**0.5 + 1e-3, rtol=1e-6)
    flat = bs.Problem(lambda x, theta, y, data: 0 * jnp.sum(x), None, BOX, None)
    outside = bs.certify(flat, bs.Point(np.array([-1.001])), tau=0.01)
    assert outside.error_bound >= 2e-3 / 0.01 * (1 - 1e-9)
