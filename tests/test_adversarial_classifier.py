"""AdversarialClassifier: its closed forms against attacks that are carried out, its refit against SciPy."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

import bisaddle.estimators as be
from bisaddle.apps.folds import deal, labelled
from bisaddle.apps.hyperparameter import FAINT
from bisaddle.estimators.adversarial import ROUND, AttackedRows

RNG = np.random.default_rng(0)
N, D = 120, 3
X = RNG.normal(size=(N, D)) * [1.0, 2.0, 0.5]
SCORES = X @ [1.0, -0.6, 1.0]
BINARY = np.where(SCORES + 0.5 * RNG.normal(size=N) > 0, "yes", "no")
THREE = np.digitize(SCORES + 0.5 * RNG.normal(size=N), [-1.0, 1.0])


def log_loss(model, X, y):
    return -np.log(model.predict_proba(X)[np.arange(len(X)), np.searchsorted(model.classes_, y)])


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_binary_model_is_trained_on_the_worst_attack(norm):
    radius = 0.3
    found = be.AdversarialClassifier(radius, norm=norm).fit(X, BINARY)
    assert found.status_ == "CERTIFIED" and found.gap_ <= 1e-4
    moved = found.attack(X, BINARY)
    size = np.linalg.norm(moved - X, 2 if norm == "l2" else np.inf, axis=1)
    np.testing.assert_allclose(size, radius)
    assert found.attacked_score(X, BINARY) == pytest.approx(found.score(moved, BINARY))
    assert found.attacked_score(X, BINARY, radius=0) == found.score(X, BINARY)
    # no other attack of that size does more harm
    harm = log_loss(found, moved, BINARY)
    for _ in range(50):
        other = RNG.normal(size=X.shape)
        other *= radius / np.linalg.norm(other, 2 if norm == "l2" else np.inf, axis=1, keepdims=True)
        assert np.all(log_loss(found, X + other, BINARY) <= harm + 1e-12)
    # the refit: SciPy minimises the attacked loss, norms rounded off as ours
    scale, signs = X.std(axis=0), np.where(BINARY == "yes", 1, -1)
    rows = np.column_stack([np.ones(N), (X - X.mean(axis=0)) / scale])

    def total(theta):
        v = radius / scale * theta[1:]
        smooth = np.sqrt(np.sum(v**2) + ROUND**2) - ROUND if norm == "l2" else np.sum(np.sqrt(v**2 + ROUND**2) - ROUND)
        losses = np.logaddexp(0, -signs * (rows @ theta) + smooth)
        return losses.mean() + found.penalty_ / 2 * np.sum(theta[1:] ** 2)

    best = minimize(total, np.zeros(D + 1), method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(found.coef_[0] * scale, best[1:], atol=2e-3)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_the_loss_of_more_classes_bounds_that_of_every_attack(norm):
    codes = np.zeros(N, int)
    data = labelled(X, THREE, codes, np.arange(N) % 2, (2, 1))
    reach = np.array([0.0, 0.2, 0.2, 0.2])
    theta = jax.numpy.asarray(RNG.normal(size=(1, D + 1, 3)))

    def attacked(reach):
        made = AttackedRows(**vars(jax.device_put(data)), reach=jax.numpy.asarray(reach), norm=norm)
        return np.asarray(made.row_losses(theta[:, None], jax.tree.map(lambda leaf: leaf[0], made.chunks)))[0]

    bound = attacked(reach)
    loss = lambda X: _softmax_loss(X @ theta[0, 1:] + theta[0, 0])
    for _ in range(50):
        other = RNG.normal(size=X.shape)
        other *= 0.2 / np.linalg.norm(other, 2 if norm == "l2" else np.inf, axis=1, keepdims=True)
        assert np.all(loss(X + other) <= bound + 3 * D * ROUND)
    np.testing.assert_allclose(attacked(np.zeros(4)), loss(X), rtol=1e-12)


def _softmax_loss(scores):
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(N), THREE]


@pytest.mark.slow
def test_attacks_on_three_classes_are_as_bad_as_promised():
    found = be.AdversarialClassifier(0.3).fit(X, THREE)
    moved = found.attack(X, THREE, radius=0.3 * (1 + 1e-9))
    assert found.attacked_score(X, THREE) == pytest.approx(found.score(moved, THREE))
    assert found.attacked_score(X, THREE) >= be.AdversarialClassifier(0).fit(X, THREE).attacked_score(X, THREE, 0.3)


@pytest.mark.parametrize(
    ("options", "labels", "message"),
    [
        ({"radius": -1}, BINARY, "radius must be a finite number >= 0, given -1"),
        ({"radius": "far"}, BINARY, "radius must be a finite number >= 0, given 'far'"),
        ({"norm": "l1"}, BINARY, "norm must be one of l2, linf, given 'l1'"),
        ({"folds": 0}, BINARY, "folds must be"),
        ({"folds": N + 1}, BINARY, "the table has 120 rows for folds=121"),
        ({"radius": np.nan}, BINARY, "radius must be a finite number"),
        ({"radius": True}, BINARY, "radius must be a finite number"),
        ({"tol": -1}, BINARY, "tol must be a finite number > 0"),
        ({"max_steps": 1.5}, BINARY, "max_steps must be a whole number"),
        ({}, np.ones(N), "given one class"),
        ({}, BINARY[:-1], "inconsistent numbers of samples"),
        ({}, RNG.normal(size=N), "Unknown label type"),
    ],
)
def test_bad_input_is_named(options, labels, message):
    with pytest.raises(ValueError, match=message):
        be.AdversarialClassifier(**options).fit(X, labels)


def test_bad_rows_are_named_and_a_constant_feature_is_none():
    for bad, message in (
        (np.where(X > 2, np.nan, X), "contains NaN"),
        (X[:, 0], "Expected 2D array"),
        (X[:0], "0 sample"),
    ):
        with pytest.raises(ValueError, match=message):
            be.AdversarialClassifier().fit(bad, BINARY[: len(bad)])
    found = be.AdversarialClassifier(tol=1e-2).fit(np.column_stack([X, np.full(N, 7.0)]), BINARY)
    assert abs(found.coef_[0, -1]) <= 1e-9
    with pytest.raises(ValueError, match="3 features, but AdversarialClassifier is expecting 4"):
        found.predict(X)
    with pytest.raises(ValueError, match="radius must be"):
        found.attack(np.column_stack([X, np.full(N, 7.0)]), BINARY, radius=-1)


def test_labels_that_fit_has_not_seen_are_named():
    found = be.AdversarialClassifier().fit(X, BINARY)
    with pytest.raises(ValueError, match="classes seen in fit, given .*perhaps"):
        found.attacked_score(X, ["perhaps"] * N)


@pytest.mark.slow
def test_the_penalty_is_that_of_a_simple_search():
    radius, labels = 0.3, (BINARY == "yes").astype(int)
    found = be.AdversarialClassifier(radius, tol=1e-6).fit(X, BINARY)
    scale, signs = X.std(axis=0), 2 * labels - 1
    rows = np.column_stack([np.ones(N), (X - X.mean(axis=0)) / scale])
    fold = deal(np.zeros(N, int), 3, 0, labels)

    def losses(theta, kept):
        away = np.sqrt(np.sum((radius / scale * theta[1:]) ** 2) + ROUND**2) - ROUND
        return np.logaddexp(0, -signs[kept] * (rows[kept] @ theta) + away)

    def held_out(penalty):
        total = 0.0
        for k in range(3):
            ridge = np.array([FAINT, *np.full(D, np.exp(penalty))])
            trained = lambda theta, k=k, ridge=ridge: losses(theta, fold != k).mean() + 0.5 * ridge @ theta**2
            best = minimize(trained, np.zeros(D + 1), method="BFGS", options={"gtol": 1e-7})
            total += losses(best.x, fold == k).sum()
        return total / N

    best = minimize_scalar(held_out, bounds=(-9, 4), method="bounded", options={"xatol": 1e-6})
    np.testing.assert_allclose(found.loss_, best.fun, rtol=1e-5)
    np.testing.assert_allclose(held_out(np.log(found.penalty_)), best.fun, rtol=1e-5)
