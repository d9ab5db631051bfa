"""The model of second-order steps: against SciPy, finite differences and direct evaluations of f_mu."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

import bisaddle as bs
from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import Space
from bisaddle.methods.adaptive.model import _in_face, as_projector, derivative_times, minimised
from bisaddle.sets.flat import flat_set
from tests.small_minimax import X_SETS, Y_SETS, alike, bent, f_mu, kernels_at, model_at, problem_of


def test_second_derivatives_are_those_of_differences():
    kernels, x, theta, y = kernels_at(*problem_of(bent))
    upper, f_x_x, f_x_y = kernels.curvature(x, theta, y)
    for found, alone in zip(upper, kernels.upper(x, theta, y), strict=True):
        np.testing.assert_allclose(found, alone, rtol=1e-13, atol=1e-13)
    gradients = lambda x: np.concatenate([(upper := kernels.upper(x, theta, y)).f_x, upper.f_y])
    step = 1e-5
    rows = [(gradients(x + step * e) - gradients(x - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(np.column_stack([f_x_x, f_x_y]), rows, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", Y_SETS)
@pytest.mark.parametrize("mu", [0.3, 3.0])
def test_the_model_of_a_quadratic_is_f_mu_itself(name, mu):
    """Wherever the base is, and across pieces: f_mu at x + d beside that with y at the base."""
    kernels, x, _, y = kernels_at(*problem_of(alike, y_set=Y_SETS[name]))
    rng = np.random.default_rng(3)
    base, y0 = (kernels.y_set.project(y + 0.2 * rng.normal(size=5)) for _ in range(2))
    model = model_at(kernels, x, base, y0, mu)
    offset = model.upper.value - 0.5 * mu * (base - y0) @ (base - y0)
    for size in (0.0, 0.1, 1.0):
        d = size * rng.normal(size=3)
        spot = model.at(d)
        assert spot.value + offset == pytest.approx(f_mu(kernels, x + d, y0, mu), rel=1e-7, abs=1e-7)
        np.testing.assert_allclose(spot.gradient, kernels.upper(x + d, np.zeros(0), spot.y).f_x, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", Y_SETS)
def test_the_hessian_of_the_model_is_that_of_f_mu(name):
    """Of f_mu with bent functions, at d = 0: differences of its gradient, whose y is projected anew."""
    kernels, x, _, y = kernels_at(*problem_of(bent, y_set=Y_SETS[name]))
    mu, y0 = 2.5, y
    best = lambda x, y=y: kernels.y_set.project(y0 + kernels.upper(x, np.zeros(0), y).f_y / mu)
    gradient = lambda x: kernels.upper(x, np.zeros(0), best(x)).f_x
    model = model_at(kernels, x, best(x), y0, mu)
    step = 1e-6
    rows = [(gradient(x + step * e) - gradient(x - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(model.hessian(model.at(np.zeros(3))), rows, rtol=1e-5, atol=1e-6)


def test_the_derivative_of_a_projection_on_a_bent_border():
    ball = bs.sets.L2Ball(0.7)
    v, rows = np.array([0.9, -0.4, 1.2]), np.random.default_rng(0).normal(size=(2, 3))
    exact = np.asarray(jax.jacfwd(ball.project)(jnp.asarray(v)))
    np.testing.assert_allclose(derivative_times(flat_set(ball, v).face(v), rows), rows @ exact.T, rtol=1e-12)


def test_a_projector_stays_and_anything_else_becomes_one():
    E = np.diag([1.0, 0.0, 1.0])
    assert as_projector(E) is E
    np.testing.assert_allclose(as_projector(np.diag([1.0, 0.1, 0.5])), E, atol=1e-15)


@pytest.mark.parametrize("name", X_SETS)
@pytest.mark.parametrize("radius", [0.2, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_least_value_of_a_convex_model_is_that_of_scipy(name, radius, seed):
    x_set = X_SETS[name]
    problem = problem_of(x_set=x_set, seed=seed, shift=8.0)
    kernels, x, _, y = kernels_at(*problem)
    mu = 0.5
    model = model_at(kernels, x, y, y, mu)
    found = minimised(model, Space(kernels.x_set, x), x, radius)
    limits, bounds = [{"type": "ineq", "fun": lambda d: radius**2 - d @ d}], None
    if name == "box":
        bounds = np.column_stack([-0.5 - x, 0.4 - x])
    elif name == "ball":
        limits.append({"type": "ineq", "fun": lambda d: 0.36 - (x + d) @ (x + d)})
    elif name == "simplex":
        bounds, other = np.column_stack([-x, 1 - x]), {"type": "eq", "fun": np.sum}
        limits.append(other)
    value = lambda d: model.at(d).value
    options = {"ftol": 1e-14, "maxiter": 500}
    exact = minimize(value, np.zeros(3), bounds=bounds, constraints=limits, options=options)
    assert np.linalg.norm(found.d) <= radius * (1 + 1e-12)
    assert kernels.x_set.violation(x + found.d) <= 1e-12
    assert found.decrease == pytest.approx(model.at(np.zeros(3)).value - value(found.d), rel=1e-9, abs=1e-13)
    decrease = model.at(np.zeros(3)).value - exact.fun
    # at the radius it is no more than a good step
    share = 0.99 if radius > 1 else 0.7
    assert found.decrease >= share * decrease - 1e-10


def test_differences_confirm_scipy_itself():
    """f_mu, on which tests above rest, has the gradient of Danskin's theorem."""
    kernels, x, _, y = kernels_at(*problem_of(bent))
    best = kernels.y_set.project(y + kernels.upper(x, np.zeros(0), y).f_y / 0.7)
    slope = approx_fprime(x, lambda x: f_mu(kernels, x, y, 0.7), 1e-6)
    np.testing.assert_allclose(slope, kernels.upper(x, np.zeros(0), best).f_x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("curved", [0.0, 1e-200, 1e-12])
def test_a_model_that_hardly_curves_is_followed_as_far_as_the_radius(curved):
    right = np.array([-0.9, 0.0, 0.1])
    t = _in_face(curved * np.eye(3), np.eye(3), None, right, 2.0)
    np.testing.assert_allclose(t / np.linalg.norm(t), right / np.linalg.norm(right), atol=1e-12)
    assert 1.9 <= np.linalg.norm(t) <= 1.1 * 2.0


def test_how_far_the_minimum_of_a_model_is(monkeypatch):
    kernels, x, _, y = kernels_at(*problem_of(shift=8.0))
    model, space = model_at(kernels, x, y, y, 0.5), Space(kernels.x_set, x)
    assert minimised(model, space, x, 10.0).left <= 1e-6
    monkeypatch.setattr(const, "MODEL_STEPS", 1)
    short = minimised(model, space, x, 1e-3)
    left = np.linalg.norm(model.at(short.d).gradient) / np.linalg.norm(model.at(np.zeros(3)).gradient)
    assert short.left == pytest.approx(left, rel=1e-6) and left > 0.5


def test_the_error_of_the_model_grows_as_the_square_of_the_length():
    """Relative to the decrease, from the maximiser down the gradient: what the growth of the radius rests on."""
    kernels, x, _, y0 = kernels_at(*problem_of(bent, shift=4.0))
    mu, none = 30.0, np.zeros(0)

    def highest(x):
        y = kernels.y_set.project(y0 + kernels.upper(x, none, y0).f_y / mu)
        return y, kernels.upper(x, none, y).value - 0.5 * mu * (y - y0) @ (y - y0)

    model = model_at(kernels, x, highest(x)[0], y0, mu)
    down = -model.at(np.zeros(3)).gradient
    off = [
        (highest(x)[1] - highest(x + length * down)[1]) / -model.at(length * down).value - 1
        for length in (0.008, 0.004)
    ]
    assert off[0] / off[1] == pytest.approx(4.0, rel=0.1)
