"""AUC of linear scores and networks against sums over all pairs; its min-max form; the partial area."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.metrics import roc_auc_score

import bisaddle as bs
from bisaddle.apps import auc
from tests.app_checks import (
    assert_both_methods_improve,
    assert_certified,
    assert_constants_hold,
    assert_derivatives_agree,
    assert_one_program,
)
from tests.registry import tasks

FORMS = {
    "linear": (auc.linear, {"radius": 2.0, "divergence": 0.1}),
    "minmax": (auc.minmax, {"radius": 2.0, "limit": 3.0}),
    "partial": (auc.partial, {"radius": 2.0, "false_positives": 0.4}),
    "network": (auc.network, {"hidden": (2,), "ridge": 0.3}),
}


def labelled(seed=0):
    """Tasks of different sizes with both classes everywhere."""
    made = [(A, b > np.median(b), valid, c > np.median(c)) for A, b, valid, c in tasks(seed)]
    return [tuple(np.asarray(part, float) for part in task) for task in made]


MADE = labelled()


def made(name, given=MADE):
    function, options = FORMS[name]
    return function(given, **options)


def pairwise(h, b):
    """mean over pairs of (1 - h+ + h-)^2 / 2"""
    return np.mean([(1 - p + n) ** 2 / 2 for p in h[b == 1] for n in h[b == 0]])


def draw(problem, start, seed=0):
    rng = np.random.default_rng(seed)
    return jnp.asarray(0.5 * rng.normal(size=start.theta.shape)), rng


def test_the_gram_form_is_the_mean_over_all_pairs():
    problem, start = auc.linear(MADE, divergence=0.2)
    theta, rng = draw(problem, start)
    y, lam, x = rng.dirichlet(np.ones(3)), rng.uniform(size=3), rng.normal(size=4)
    upper = sum(y[i] * pairwise(A @ theta[i], b) for i, (_, _, A, b) in enumerate(MADE))
    upper -= 0.2 / 3 * np.sum((3 * y - 1) ** 2) / 2
    given = problem.upper(start.x, theta, jnp.asarray(y), problem.data)
    np.testing.assert_allclose(float(given), upper, rtol=1e-12)
    mixed = [lam[i] * theta[i] + (1 - lam[i]) * x for i in range(3)]
    lower = sum(pairwise(A @ v, b) for (A, b, _, _), v in zip(MADE, mixed, strict=True)) + 0.05 * np.sum(theta**2)
    point = {"x": jnp.asarray(x), "lam": jnp.asarray(lam)}
    np.testing.assert_allclose(float(problem.lower(point, theta, problem.data)), lower, rtol=1e-12)


def test_the_network_has_the_same_loss_of_its_scores():
    problem, start = made("network")
    theta, rng = draw(problem, start)
    layer, y = {name: np.asarray(value) for name, value in start.x[0].items()}, rng.dirichlet(np.ones(3))
    scores = [
        np.tanh(A @ layer["weights"].T + layer["shifts"]) @ v for (A, _, _, _), v in zip(MADE, theta, strict=True)
    ]
    wanted = sum(pairwise(h, b) for h, (_, b, _, _) in zip(scores, MADE, strict=True)) + 0.15 * np.sum(theta**2)
    np.testing.assert_allclose(float(problem.lower(start.x, theta, problem.data)), wanted, rtol=1e-12)
    scores = [
        np.tanh(A @ layer["weights"].T + layer["shifts"]) @ v for (_, _, A, _), v in zip(MADE, theta, strict=True)
    ]
    wanted = sum(w * pairwise(h, b) for w, h, (_, _, _, b) in zip(y, scores, MADE, strict=True))
    np.testing.assert_allclose(float(problem.upper(start.x, theta, jnp.asarray(y), problem.data)), wanted, rtol=1e-12)


def test_the_players_of_the_min_max_form_give_the_surrogate():
    problem, start = made("minmax")
    theta, _ = draw(problem, start)
    scores = [np.asarray(A @ v) for (_, _, A, _), v in zip(MADE, theta, strict=True)]
    means = np.array([[h[b == c].mean() for c in (1, 0)] for h, (_, _, _, b) in zip(scores, MADE, strict=True)])
    best = start.x | {"centres": jnp.asarray(means)}, jnp.asarray(means[:, 1] - means[:, 0])
    value = lambda x, y: float(problem.upper(x, theta, y, problem.data))
    wanted = np.mean([pairwise(h, b) for h, (_, _, _, b) in zip(scores, MADE, strict=True)])
    np.testing.assert_allclose(value(*best), wanted, rtol=1e-12)
    assert value(best[0], best[1] + 0.1) < wanted < value(best[0] | {"centres": best[0]["centres"] + 0.1}, best[1])


def test_the_partial_form_is_the_mean_over_weighted_pairs_and_its_worst_case_a_linear_program():
    problem, start = made("partial")
    theta, rng = draw(problem, start)
    y = tuple(jnp.asarray(rng.dirichlet(np.ones(len(p)))) for p in start.y)
    value, worst = 0.0, 0.0
    for (_, _, A, b), v, p in zip(MADE, theta, y, strict=True):
        h = np.asarray(A @ v)
        losses = np.array([np.mean((1 - h[b == 1] + n) ** 2) / 2 for n in h[b == 0]])
        value += p @ losses / 3
        cap = 1 / (0.4 * len(losses))
        worst -= linprog(-losses, A_eq=np.ones((1, len(losses))), b_eq=[1], bounds=(0, cap)).fun / 3
    np.testing.assert_allclose(float(problem.upper(start.x, theta, y, problem.data)), value, rtol=1e-12)
    at_theta = lambda p: problem.upper(start.x, theta, p, problem.data)
    best = problem.y_set.lmo(tuple(-np.asarray(part) for part in jax.grad(at_theta)(y)))
    np.testing.assert_allclose(float(at_theta(best)), worst, rtol=1e-9)


@pytest.mark.parametrize("name", FORMS)
def test_constants_hold_and_derivatives_agree(name):
    problem, start = made(name)
    used = assert_constants_hold(problem, start, spread=0.5)
    assert used["L_g"] > 0.05, used
    if name != "minmax":  # automatic, and plainer than the others
        assert_derivatives_agree(problem, start)


@pytest.mark.parametrize("name", FORMS)
def test_solved_to_a_certificate_and_both_methods_run(name):
    problem, start = made(name)
    assert_certified(problem, start)
    assert_both_methods_improve(problem, start, gamma=0.02)


def test_forms_that_are_the_same_problem_have_the_same_value():
    """At one x and lam, since runs may part where f is not convex; minmax has centres to minimise over besides."""
    result = assert_certified(*auc.linear(MADE, 2.0, weights="mean"), tol=1e-6)
    mean = result.certificate.worst_value
    problem, start = auc.partial(MADE, 1.0, 2.0)
    partial = bs.certify(problem, bs.Point(result.x, result.theta, start.y))
    np.testing.assert_allclose(partial.worst_value, mean, atol=1e-6)
    problem, start = auc.minmax(MADE, 2.0)
    fixed = {name: bs.sets.Singleton(part) for name, part in result.x.items()}
    held = replace(problem, x_set=bs.sets.Product({**problem.x_set.sets, **fixed}))
    found = bs.solve(held, bs.Point({**start.x, **result.x}, result.theta, start.y), tol=1e-6)
    assert found.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(found.certificate.worst_value, mean, atol=1e-6)


def test_the_area_is_that_of_the_curve():
    rng = np.random.default_rng(0)
    scores, labels = np.round(rng.normal(size=60), 1), rng.integers(0, 2, 60)
    np.testing.assert_allclose(auc.area(scores, labels), roc_auc_score(labels, scores), rtol=1e-12)
    top = np.sort(scores[labels == 0])[::-1][: round(0.2 * np.sum(labels == 0))]
    wanted = np.mean([(p > n) + 0.5 * (p == n) for p in scores[labels == 1] for n in top])
    np.testing.assert_allclose(auc.area(scores, labels, 0.2), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="one class only"):
        auc.area(scores, np.ones(60))


def test_another_instance_of_the_same_shapes_compiles_nothing():
    for name in FORMS:
        assert_one_program(made(name)[0], made(name, labelled(1))[0])


def test_bad_input_is_named():
    A, b, valid, c = MADE[0]
    with pytest.raises(ValueError, match="task 1: b_valid has one class only, 0"):
        auc.linear([MADE[0], (A, b, valid, 0 * c)])
    with pytest.raises(ValueError, match="false_positives must be finite and > 0, given 0.0"):
        auc.partial(MADE, 0.0)
    with pytest.raises(ValueError, match="hidden must list the units"):
        auc.network(MADE, hidden=())
    with pytest.raises(ValueError, match="task 0: A_train .* must be finite"):
        auc.linear([(A * np.nan, b, valid, c)])
    with pytest.raises(ValueError, match="auc.linear needs at least one task"):
        auc.linear([])
    with pytest.raises(ValueError, match="limit must be finite and > 0"):
        auc.minmax(MADE, limit=0.0)
        auc.minmax(MADE, limit=0.0)
    with pytest.raises(ValueError, match="rate with 0 < rate <= 1, given 2"):
        auc.area([0.0, 1.0], [0, 1], false_positives=2)
    with pytest.raises(ValueError, match="scores must be finite"):
        auc.area([0.0, np.nan], [0, 1])
