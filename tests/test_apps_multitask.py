"""Logistic, softmax and Poisson heads, weight sets, shared matrices and missing labels of apps.multitask."""

import dataclasses
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax
from scipy.stats import poisson as poisson_law

import bisaddle as bs
from bisaddle.apps import auc, multitask
from bisaddle.apps.tasks import Chosen, of_distributions, weight_set
from tests.app_checks import (
    assert_both_methods_improve,
    assert_certified,
    assert_constants_hold,
    assert_derivatives_agree,
    assert_one_program,
)
from tests.registry import flat, tasks

HEADS = ("logistic", "softmax", "poisson")
LABELS = {
    "logistic": lambda z: (z > 0).astype(float),
    "softmax": lambda z: np.digitize(z, [-0.7, 0.7]).astype(float),
    "poisson": lambda z: np.round(np.exp(0.5 * z)),
}


def labelled(kind, seed=0):
    label = LABELS[kind]
    return [(A, label(b), valid, label(valid_b)) for A, b, valid, valid_b in tasks(seed)]


def loss(kind, A, b, v):
    """Mean loss of a table, from SciPy's distributions."""
    z = A @ v
    if kind == "logistic":
        return -np.mean(np.log(np.where(b > 0, expit(z), expit(-z))))
    if kind == "softmax":
        return -np.mean(log_softmax(z, axis=1)[np.arange(len(b)), b.astype(int)])
    return np.mean(poisson_law.logpmf(b, b) - poisson_law.logpmf(b, np.exp(z)))


@pytest.mark.parametrize("shared", ["vector", "matrix"])
@pytest.mark.parametrize("kind", HEADS)
def test_values_are_those_of_the_formula(kind, shared):
    made = labelled(kind)
    problem, start = getattr(multitask, kind)(made, 2.0, 0.1, 0.3, shared=shared)
    rng = np.random.default_rng(0)
    x = 0.1 * rng.normal(size=start.x["x"].shape)
    lam, theta, y = rng.uniform(size=3), rng.normal(size=start.theta.shape), rng.dirichlet(np.ones(3))
    point = {"x": jnp.asarray(x), "lam": jnp.asarray(lam)}
    rows = np.broadcast_to(x.reshape(-1, *theta.shape[1:]), theta.shape)
    upper = sum(y[i] * loss(kind, A, b, theta[i]) for i, (_, _, A, b) in enumerate(made))
    upper -= 0.3 / 3 * np.sum((3 * y - 1) ** 2) / 2
    mixed = [lam[i] * theta[i] + (1 - lam[i]) * rows[i] for i in range(3)]
    lower = sum(loss(kind, A, b, v) for (A, b, _, _), v in zip(made, mixed, strict=True)) + 0.05 * np.sum(theta**2)
    theta, y = jnp.asarray(theta), jnp.asarray(y)
    np.testing.assert_allclose(float(problem.upper(point, theta, y, problem.data)), upper, rtol=1e-12)
    np.testing.assert_allclose(float(problem.lower(point, theta, problem.data)), lower, rtol=1e-12)


@pytest.mark.parametrize("kind", HEADS)
def test_the_lower_level_is_a_ridge_fit_of_each_task(kind):
    made = labelled(kind)
    problem, start = getattr(multitask, kind)(made, 2.0)
    start = dataclasses.replace(start, x=start.x | {"lam": jnp.ones(3)})
    found = bs.certify(problem, start).theta
    for i, (A, b, _, _) in enumerate(made):
        shape = start.theta.shape[1:]
        objective = lambda v, A=A, b=b, shape=shape: loss(kind, A, b, v.reshape(shape)) + 0.05 * v @ v
        wanted = minimize(objective, np.zeros(found[i].size), jac="3-point", options={"gtol": 1e-8})
        np.testing.assert_allclose(flat(found[i]), wanted.x, atol=2e-5)


@pytest.mark.parametrize(("kind", "shared"), [*((kind, "vector") for kind in HEADS), ("softmax", "matrix")])
def test_derivatives_by_hand_agree(kind, shared):
    problem, start = getattr(multitask, kind)(labelled(kind), 2.0, divergence=0.3, shared=shared)
    assert_derivatives_agree(problem, start)


def test_a_shared_matrix_has_derivatives_in_regression():
    problem, start = multitask.regression(tasks(0), 2.0, shared="matrix")
    assert_derivatives_agree(problem, start)


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_constants_hold_in_the_ball_that_theta_stays_in(kind):
    problem, start = getattr(multitask, kind)(labelled(kind), 2.0, ridge=0.5, divergence=0.3)
    used = assert_constants_hold(problem, start, spread=1.0)
    assert used["L_g"] > 0.2 and used["f_theta"] > 0.05  # bounds of some use, not infinite ones


def test_constants_of_a_shared_matrix_and_of_counts_hold():
    problem, start = multitask.regression(tasks(0), 2.0, ridge=0.5, shared="matrix", weights=("chi2", 0.5))
    assert_constants_hold(problem, start, spread=0.5)
    problem, start = multitask.poisson(labelled("poisson"), 0.5)
    assert problem.constants.L_g is None
    assert_constants_hold(problem, start, spread=0.3)


@pytest.mark.parametrize("kind", HEADS)
def test_solved_to_a_certificate_and_both_methods_run(kind):
    problem, start = getattr(multitask, kind)(labelled(kind), 2.0)
    result = assert_certified(problem, start)
    losses = [loss(kind, A, b, v) for (_, _, A, b), v in zip(labelled(kind), result.certificate.theta, strict=True)]
    np.testing.assert_allclose(float(result.certificate.worst_value), max(losses), atol=1e-4)
    if kind == "poisson":  # near the start
        problem = dataclasses.replace(problem, constants=bs.Constants(mu_g=0.1, L_g=10.0))
    assert_both_methods_improve(problem, start)


@pytest.mark.parametrize("weights", ["mean", ("kl", 0.1), ("chi2", 0.2), ("tv", 0.2), ("cvar", 0.4), ("capped", 0.5)])
def test_every_weight_set_is_solved(weights):
    problem, start = multitask.logistic(labelled("logistic"), 2.0, weights=weights)
    assert of_distributions(problem.y_set)
    result = assert_certified(problem, start)
    worst = assert_certified(*multitask.logistic(labelled("logistic"), 2.0))
    assert float(result.certificate.worst_value) <= float(worst.certificate.worst_value) + 1e-4


def test_a_low_rank_matrix_is_solved_and_its_set_kept():
    problem, start = multitask.regression(tasks(0), 1.0, shared="matrix")
    result = assert_certified(problem, start)
    assert result.x["x"].shape == (3, 4)
    assert np.sum(np.linalg.svd(result.x["x"])[1]) <= 1 + 1e-6


def test_a_given_set_takes_the_place_of_the_ball_and_gives_the_start():
    box = bs.sets.Box(0.5, 1.0)
    problem, start = multitask.regression(tasks(0), x_set=box, ridge=0.5)
    np.testing.assert_array_equal(start.x["x"], np.full(4, 0.5))
    assert_constants_hold(problem, start, spread=0.5)
    unit = bs.sets.L2Ball(1.0)
    problem, _ = multitask.logistic(labelled("logistic"), x_set=unit, weights=bs.sets.LinfBall(2.0))
    assert problem.x_set.sets["x"] is unit and problem.constants.C_theta is None  # weights may be larger than 1


@pytest.mark.parametrize("kind", ["regression", "logistic"])
def test_missing_labels_are_as_if_the_rows_were_not_there(kind):
    made = tasks(0) if kind == "regression" else labelled(kind)
    holes = [tuple(part.copy() for part in task) for task in made]
    holes[1][1][[0, 4]] = np.nan
    holes[2][3][2] = np.nan
    keep = lambda A, b: (A[~np.isnan(b)], b[~np.isnan(b)])
    fewer = [(*keep(A, b), *keep(valid, c)) for A, b, valid, c in holes]
    head = getattr(multitask, kind)
    (given, _), (wanted, _) = head(holes, missing="ignore"), head(fewer)
    jax.tree.map(np.testing.assert_array_equal, given.data, wanted.data)
    with pytest.raises(ValueError, match='task 1.*missing="ignore"'):
        head(holes)
    holes[1][1][:] = np.nan
    with pytest.raises(ValueError, match="task 1: b_train has no label"):
        head(holes, missing="ignore")


def test_a_constant_feature_is_no_trouble():
    made = [(np.c_[A, np.ones(len(A))], b, np.c_[C, np.ones(len(C))], d) for A, b, C, d in labelled("logistic")]
    assert_certified(*multitask.logistic(made, 2.0))


def test_another_instance_of_the_same_shapes_compiles_nothing():
    for kind in HEADS:
        (one, _), (two, _) = (getattr(multitask, kind)(labelled(kind, s), r) for s, r in ((0, 2.0), (1, 3.0)))
        assert_one_program(one, two)


def one_class(kind):
    made = labelled(kind)
    A, b, valid, valid_b = made[1]
    return [made[0], (A, np.zeros_like(b), valid, valid_b)]


@pytest.mark.parametrize(
    ("kind", "change", "options", "message"),
    [
        ("logistic", lambda made: [], {}, "logistic needs at least one task"),
        ("logistic", lambda made: one_class("logistic"), {}, "task 1: b_train has one class only, 0; .*leave the task"),
        ("softmax", lambda made: one_class("softmax"), {}, "task 1: b_train has one class only"),
        ("logistic", lambda made: labelled("softmax"), {}, "task 0: b_valid must hold 0 and 1.*given 0, 1, 2"),
        ("softmax", lambda made: labelled("logistic")[:1] + tasks(0)[1:], {}, "whole numbers 0, 1"),
        ("softmax", lambda made: made, {"classes": 2}, "need at least 3 classes, given classes=2"),
        ("poisson", lambda made: tasks(0), {}, "task 0: counts must be >= 0, given -"),
        ("logistic", lambda made: made, {"weights": "worst"}, "weights must be .*given 'worst'"),
        ("logistic", lambda made: made, {"weights": ("kl", -1.0)}, "KLBall radius must be"),
        ("logistic", lambda made: made, {"weights": ("capped", 0.2)}, "3 weights of at most 0.2 cannot sum to 1"),
        ("logistic", lambda made: made, {"shared": "tensor"}, 'shared must be "vector" or "matrix", given \'tensor\''),
        ("logistic", lambda made: made, {"missing": "drop"}, 'missing must be "refuse" or "ignore"'),
        ("logistic", lambda made: made, {"x_set": bs.sets.KLBall(np.full(3, 1 / 3), 1.0)}, "KLBall"),
        ("logistic", lambda made: made, {"ridge": 0.0}, "ridge must be finite and > 0"),
        ("logistic", lambda made: made, {"divergence": -1.0}, "divergence must be finite and >= 0"),
        ("logistic", lambda made: [(*made[0][:1], ["a"], *made[0][2:])], {}, "task 0: b_train must be an array of num"),
        ("poisson", lambda made: [(*made[0][:2], np.zeros((0, 3)), np.zeros(0))], {}, "task 0: A_valid .*at least one"),
    ],
)
def test_bad_input_is_named(kind, change, options, message):
    with pytest.raises(ValueError, match=message):
        getattr(multitask, kind)(change(labelled(kind)), **options)


def test_weight_sets_by_name_are_around_the_uniform_distribution():
    for word in (("kl", 0.1), ("chi2", 0.1), ("tv", 0.1)):
        np.testing.assert_allclose(weight_set(word, 4).reference, np.full(4, 0.25))
    np.testing.assert_allclose(weight_set(("cvar", 0.5), 4).lmo(-jnp.arange(4.0)), [0, 0, 0.5, 0.5])


@pytest.mark.parametrize("application", [multitask.logistic, multitask.softmax, multitask.poisson, auc.linear])
def test_sister_losses_take_the_keywords_of_regression_and_no_others(application):
    listed = inspect.signature(multitask.regression).parameters
    assert Chosen() == Chosen(**{name: listed[name].default for name in Chosen._fields})
    with pytest.raises(TypeError, match=r"keyword argument 'weight'; did you mean weights\?"):
        application([], weight="mean")
    with pytest.raises(TypeError, match="keyword argument 'form'; these are shared, x_set, weights, missing"):
        application([], form="rows")
