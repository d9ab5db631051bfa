"""The two forms of robust multi-task regression are one problem."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bisaddle as bs
from bisaddle import oracle
from bisaddle.apps.multitask import GramData, RowData, regression, synthetic
from tests.registry import REGULARIZED, flat, tasks
from tests.test_certificate import certify, feasible_point

RAGGED = ((12, 7), (9, 5), (15, 6))


@jax.jit
def evaluated(problem, point, w):
    x, theta, y = point.x, point.theta, point.y
    return (
        oracle.upper_value(problem, x, theta, y),
        problem.lower(x, theta, problem.data),
        *oracle.upper_gradients(problem, x, theta, y),
        oracle.lower_gradient(problem, x, theta),
        oracle.hessian_product(problem, x, theta, w),
        oracle.cross_product(problem, x, theta, w),
    )


@pytest.mark.parametrize("divergence", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_gram_and_row_forms_agree_in_values_and_derivatives(seed, divergence, record):
    (gram, start), (rows, _) = (
        regression(tasks(seed, RAGGED), 2.0, 0.1, divergence, form) for form in ("gram", "rows")
    )
    rng = np.random.default_rng(seed)
    point = feasible_point(gram, start, rng)
    w = jnp.asarray(rng.normal(size=start.theta.shape))
    for given, wanted in zip(evaluated(gram, point, w), evaluated(rows, point, w), strict=True):
        worst = np.max(np.abs(flat(given) - flat(wanted)) / np.maximum(1, np.abs(flat(wanted))))
        record("gram against rows, values and derivatives", worst)
        assert worst <= 1e-12


@pytest.mark.parametrize("form", ["gram", "rows"])
def test_derivatives_by_hand_are_those_of_f_and_g(form):
    problem, start = regression(tasks(4, RAGGED), 2.0, 0.1, 0.3, form)
    rng = np.random.default_rng(4)
    point = feasible_point(problem, start, rng)
    report = bs.check_derivatives(problem, point)
    assert report.ok and set(report.by_hand) == set(vars(problem.derivatives)), report
    w = jnp.asarray(rng.normal(size=start.theta.shape))
    automatic = evaluated(replace(problem, derivatives=bs.Derivatives()), point, w)
    for given, wanted in zip(evaluated(problem, point, w), automatic, strict=True):
        np.testing.assert_allclose(flat(given), flat(wanted), atol=1e-12)


def test_products_with_the_rows_read_them_twice():
    """A product with the rows and one with their transpose: all that any derivative of the row form needs."""
    problem, start = regression(tasks(4, RAGGED), form="rows")
    x, theta, y = start.x, start.theta, start.y

    def products(function):
        text = jax.jit(function).lower(problem).compile().as_text()
        return text.count(" dot(") + text.count('custom_call_target="__onednn$matmul"')

    derivatives = {
        "f": lambda p: oracle.upper_value_and_gradients(p, x, theta, y),
        "g_theta": lambda p: oracle.lower_gradient(p, x, theta),
        "both": lambda p: oracle.second_order_products(p, x, theta, theta),
    }
    assert {name: products(function) for name, function in derivatives.items()} == dict.fromkeys(derivatives, 2)


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_gram_and_row_forms_have_the_same_trajectory(method_name, record):
    ends = []
    for form in ("gram", "rows"):
        problem, start = regression(tasks(0, RAGGED), 2.0, divergence=0.3, form=form)
        method = REGULARIZED[method_name](problem, gamma=0.01)
        state = method.init(problem, start)
        run = jax.jit(lambda m, p, s: lax.fori_loop(0, 300, lambda _, s: m.step(p, s), s))
        ends.append(run(method, problem, state))
    worst = np.max(np.abs(flat(ends[0].point) - flat(ends[1].point)))
    record("gram against rows, 300 steps", worst)
    assert worst <= 1e-10


def test_auto_takes_the_cheaper_form():
    assert isinstance(regression(tasks(0, RAGGED, d=4))[0].data, GramData)
    assert isinstance(regression(tasks(0, RAGGED, d=20))[0].data, RowData)


def test_wide_tasks_have_a_gram_form_too():
    (gram, start), (rows, _) = (regression(tasks(1, RAGGED, d=20), form=form) for form in ("gram", "rows"))
    point = feasible_point(gram, start, np.random.default_rng(0))
    for given, wanted in zip(evaluated(gram, point, point.theta), evaluated(rows, point, point.theta), strict=True):
        np.testing.assert_allclose(flat(given), flat(wanted), atol=1e-11)


@pytest.mark.parametrize("d", [4, 20])
def test_mu_g_and_L_g_are_the_extreme_eigenvalues_over_lam(d):
    made = tasks(2, RAGGED, d)
    problem, _ = regression(made, ridge=0.1)
    lams = np.linspace(0, 1, 11)  # the ends are attained at lam = 0 and lam = 1
    spectra = [np.linalg.eigvalsh(lam**2 * A.T @ A / len(A) + 0.1 * np.eye(d)) for A, *_ in made for lam in lams]
    np.testing.assert_allclose(float(problem.constants.mu_g), np.min(spectra), rtol=1e-12)
    np.testing.assert_allclose(float(problem.constants.L_g), np.max(spectra), rtol=1e-12)


def test_constants_hold_at_random_points():
    problem, start = regression(tasks(3, RAGGED), divergence=0.3)
    rng = np.random.default_rng(3)
    for _ in range(5):
        point = feasible_point(problem, start, rng)
        product = lambda w, x=point.x: flat(oracle.hessian_product(problem, x, start.theta, w.reshape(3, 4)))
        eigenvalues = np.linalg.eigvalsh(np.stack([product(e) for e in jnp.eye(12)]))
        assert problem.constants.mu_g <= eigenvalues[0] * (1 + 1e-9)
        assert problem.constants.L_g >= eigenvalues[-1] * (1 - 1e-9)
    slope = lambda y: oracle.upper_gradients(problem, start.x, start.theta, y)[2]
    spread = np.linalg.norm(jax.jacobian(slope)(start.y), 2)
    np.testing.assert_allclose(float(problem.constants.L_yy), spread, rtol=1e-9)


def test_the_start_is_the_one_promised():
    problem, start = regression(tasks(0, RAGGED))
    np.testing.assert_array_equal(start.x["x"], np.zeros(4))
    np.testing.assert_array_equal(start.x["lam"], np.full(3, 0.5))
    np.testing.assert_array_equal(start.theta, np.zeros((3, 4)))
    np.testing.assert_allclose(start.y, np.full(3, 1 / 3))
    assert problem.x_set.violation(start.x) == 0


def test_synthetic_tasks_are_split_three_to_one_and_fixed_by_the_seed():
    made, again, other = synthetic(200, 6, 4, seed=1), synthetic(200, 6, 4, seed=1), synthetic(200, 6, 4, seed=2)
    assert [tuple(len(part) for part in task) for task in made] == [(38, 38, 12, 12)] * 4
    np.testing.assert_array_equal(made[3][0], again[3][0])
    assert not np.array_equal(made[3][0], other[3][0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([],), "at least one task"),
        (([(np.ones((3, 2)), np.ones(3))],), r"task 0 must be \(A_train.*given 2 items"),
        (
            ([(np.ones((3, 2)), np.ones(2), np.ones((3, 2)), np.ones(3))],),
            r"task 0: A_train.*given \(3, 2\) and \(2,\)",
        ),
        (([(np.ones((3, 2)), np.ones(3), np.ones(3), np.ones(3))],), r"task 0: A_valid.*given \(3,\)"),
        (([(np.ones((0, 2)), np.ones(0), np.ones((3, 2)), np.ones(3))],), r"task 0: A_train"),
        (([(np.full((3, 2), np.nan), np.ones(3), np.ones((3, 2)), np.ones(3))],), "task 0.*must be finite"),
        ((tasks(0, d=3) + tasks(0, d=4),), r"same number of columns, given \[3, 4\]"),
        ((tasks(0), 2.0, 0.0), "ridge must be finite and > 0.*given 0.0"),
        ((tasks(0), 2.0, 0.1, -1.0), "divergence must be finite and >= 0, given -1.0"),
        ((tasks(0), 2.0, 0.1, 0.0, "sparse"), "form must be .*given 'sparse'"),
        ((tasks(0), -1.0), "radius must be finite and > 0, given -1.0"),
    ],
)
def test_bad_input_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        regression(*arguments)


def test_the_problem_certifies_alike_in_both_forms():
    certificates = []
    for form in ("gram", "rows"):
        problem, start = regression(tasks(0, RAGGED), 2.0, 0.1, 0.0, form)
        certificates.append(certify(problem, start))
    np.testing.assert_allclose(certificates[0].gap, certificates[1].gap, atol=1e-10)
    np.testing.assert_allclose(certificates[0].worst_value, certificates[1].worst_value, atol=1e-10)
