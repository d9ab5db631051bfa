"""What the error bound and the error of the worst value count: each of their terms by itself."""

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from benchmarks.stress import families
from bisaddle.certificate.bounds import sensitivity
from bisaddle.oracle.implicit import Implicit
from bisaddle.oracle.kernels import Kernels
from bisaddle.sets.flat import flat_set
from tests.test_trust_attacks import BELOW, BOX, _follows


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


@pytest.mark.parametrize("number", [82, 87])
def test_terms_that_cancel_are_no_curvature(number):
    """Linear in y, and with values of 1e-14 from terms of order 1: their rounding was taken for a witness."""
    problem, start, tol, measure = families.degenerate(np.random.default_rng([0, *b"degenerate", number]))
    assert bs.solve(problem, start, tol=tol, measure=measure).status is bs.Status.CERTIFIED
