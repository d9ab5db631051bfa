"""Estimators as scikit-learn's users meet them: answers, padding, tables, metadata, warnings, bad input."""

import pickle
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logsumexp, softmax
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bisaddle.estimators as be
from bisaddle.apps.folds import deal, labelled, moments, sums
from bisaddle.apps.hyperparameter import FAINT
from bisaddle.estimators.padding import bucket, copies, gathered, room, width_of
from bisaddle.estimators.worst_group import choose

N, D = 360, 5
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)) * [1, 2, 3, 1, 1] + 1
GROUPS = np.array(["north", "south", "west"])[RNG.permutation(N) % 3]
CODES = np.unique(GROUPS, return_inverse=True)[1]
Y = X @ [1.0, -0.5, 0.2, 0.0, 0.3] + 1.5 * X[:, 0] * (CODES == 0) + (0.5 + 0.3 * CODES) * RNG.normal(size=N)
LABELS = np.where(np.median(Y) < Y, "yes", "no")


@pytest.fixture(scope="module")
def regressor():
    return be.WorstGroupRegressor().fit(X, Y, groups=GROUPS)


def test_protection_helps_the_worst_group_and_the_certificate_is_kept(regressor):
    plain = be.WorstGroupRegressor(protection=0).fit(X, Y, groups=GROUPS)
    worst = be.WorstGroupRegressor(protection="worst").fit(X, Y, groups=GROUPS)
    assert worst.group_loss_.max() <= regressor.group_loss_.max() * 1.001 < plain.group_loss_.max()
    assert plain.mean_cost_ == 0 and regressor.mean_cost_ > 0
    np.testing.assert_allclose(plain.group_loss_, regressor.plain_group_loss_)
    np.testing.assert_array_equal(regressor.groups_, ["north", "south", "west"])
    np.testing.assert_allclose(regressor.group_weights_.sum(), 1)
    shares = np.bincount(CODES) / N
    divergence = np.sum(regressor.worst_mix_ * np.log(np.maximum(regressor.worst_mix_, 1e-300) / shares))
    assert divergence <= 0.5 + 1e-6
    assert regressor.status_ == "CERTIFIED" and regressor.gap_ <= 1e-4 and regressor.n_steps_ > 0
    assert regressor.worst_score(X, Y, GROUPS) > plain.worst_score(X, Y, GROUPS)
    by_hand = [np.mean((Y - regressor.predict(X))[CODES == g] ** 2) for g in range(3)]
    np.testing.assert_allclose(regressor.worst_score(X, Y, GROUPS), 1 - max(by_hand) / np.var(Y))


def test_the_refit_is_weighted_ridge_regression_on_all_rows(regressor):
    weights = regressor.group_weights_[CODES] / np.bincount(CODES)[CODES]
    scaler = StandardScaler().fit(X)
    ridge = Ridge(alpha=regressor.penalty_).fit(scaler.transform(X), Y, sample_weight=weights)
    np.testing.assert_allclose(regressor.predict(X), ridge.predict(scaler.transform(X)), atol=1e-7)


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_the_refit_is_weighted_logistic_regression_on_all_rows(count):
    labels = LABELS if count == 2 else np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
    found = be.WorstGroupClassifier().fit(X, labels, groups=GROUPS)
    weights = found.group_weights_[CODES] / np.bincount(CODES)[CODES]
    scaler = StandardScaler().fit(X)
    plain = LogisticRegression(C=1 / found.penalty_, tol=1e-10, max_iter=10_000)
    plain.fit(scaler.transform(X), labels, sample_weight=weights)
    np.testing.assert_allclose(found.predict_proba(X), plain.predict_proba(scaler.transform(X)), atol=2e-4)
    assert found.coef_.shape == ((1, D) if count == 2 else (3, D))
    assert found.score(X, labels) >= found.worst_score(X, labels, GROUPS)
    assert set(found.predict(X)) <= set(labels)


def test_padding_changes_no_answer(monkeypatch):
    codes = np.where(X[:, 1] > 2, CODES, 3 + CODES % 2)  # five groups stand in six places
    fold, choices = deal(codes, 3, 0), (0.5, 1e-7, 10_000, "it")
    scaled, target = (X - X.mean(axis=0)) / X.std(axis=0), (Y - Y.mean()) / Y.std()
    least_squares = moments(*sums(scaled, target, codes, fold, (3, 5)))
    given = (scaled, (LABELS == "yes").astype(int), codes, fold, (3, 5))
    for columns in (0, 1):
        padded = choose(labelled(*given, shape=(3, 150, 8)) if columns else least_squares, columns, *choices)
        with monkeypatch.context() as exact:
            exact.setattr("bisaddle.estimators.worst_group.width_of", lambda columns: columns + 1)
            exact.setattr("bisaddle.estimators.worst_group.copies", np.arange)
            bare = choose(labelled(*given) if columns else least_squares, columns, *choices)
        np.testing.assert_allclose(padded.theta[: D + 1], bare.theta, atol=2e-5)
        np.testing.assert_allclose(padded.losses, bare.losses, atol=1e-5)
        np.testing.assert_allclose(padded.weights, bare.weights, atol=1e-4)
        np.testing.assert_allclose(padded.mix, bare.mix, atol=1e-4)


def test_buckets_are_few_and_near():
    assert [bucket(size) for size in (1, 2, 3, 4, 5, 6, 7, 9, 13)] == [1, 2, 3, 4, 6, 6, 8, 12, 16]
    assert [bucket(size, 8) for size in (1, 8, 9, 17, 25, 33)] == [8, 8, 16, 24, 32, 48]
    assert max(bucket(size, 8) / size for size in range(16, 5000)) < 1.5
    assert [width_of(columns) for columns in (1, 7, 8, 31, 32, 50, 63, 64, 99)] == [8, 8, 16, 32, 36, 52, 64, 72, 104]
    for rows in range(600, 200_000, 777):
        chunks, each, _ = room(rows, 5)
        assert rows <= chunks * each < 1.065 * rows + 512
    assert room(500, 50) == (1, 512, 52) and room(50_000, 50) == (100, 512, 52)
    np.testing.assert_array_equal(copies(5), [0, 1, 2, 3, 4, 0])
    np.testing.assert_allclose(gathered(np.array([1.0, 2, 3, 4, 5, 6]), copies(5)), [7, 2, 3, 4, 5])


def test_other_rows_and_nearby_shapes_compile_nothing(regressor):
    from bisaddle.programs import Watch, watched

    with watched(Watch()) as watch:
        be.WorstGroupRegressor(protection=0.3).fit(X[:211, :3], Y[:211], groups=GROUPS[:211])
    assert watch.programs == 0


def test_float64_is_chosen_in_its_own_thread_only():
    jax.config.update("jax_enable_x64", False)
    try:
        seen = []
        fits = [threading.Thread(target=lambda: seen.append(be.WorstGroupRegressor().fit(X, Y).gap_)) for _ in range(2)]
        for fit in fits:
            fit.start()
        assert jax.device_put(np.ones(2)).dtype == np.float32
        for fit in fits:
            fit.join()
        assert jax.device_put(np.ones(2)).dtype == np.float32 and len(seen) == 2 and seen[0] == seen[1]
    finally:
        jax.config.update("jax_enable_x64", True)


def test_a_column_of_a_table_names_the_groups(regressor):
    names = [f"f{i}" for i in range(D)]
    frame = pd.DataFrame(X, columns=names).assign(region=GROUPS)
    found = be.WorstGroupRegressor(group_column="region").fit(frame, Y)
    np.testing.assert_allclose(found.coef_, regressor.coef_)
    assert found.n_features_in_ == D and list(found.feature_names_in_) == names
    np.testing.assert_allclose(found.predict(frame), found.predict(frame.drop(columns="region")))
    assert found.worst_score(frame, Y) == pytest.approx(regressor.worst_score(X, Y, GROUPS))
    with pytest.raises(ValueError, match="'region' is not in X, which has no named columns"):
        found.fit(X, Y)
    with pytest.raises(ValueError, match="named twice"):
        found.fit(frame, Y, groups=GROUPS)


def test_polars_tables_are_welcome(regressor):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({**{f"f{i}": X[:, i] for i in range(D)}, "region": GROUPS})
    found = be.WorstGroupRegressor(group_column="region").fit(frame, Y)
    np.testing.assert_allclose(found.predict(frame), regressor.predict(X), atol=1e-6)
    assert list(found.feature_names_in_) == [f"f{i}" for i in range(D)]


def test_clone_pickle_and_search_work(regressor):
    assert clone(regressor).get_params() == regressor.get_params()
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(regressor)).predict(X), regressor.predict(X))
    with config_context(enable_metadata_routing=True):
        asked = be.WorstGroupRegressor().set_fit_request(groups=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler(), asked), {"worstgroupregressor__protection": [0, 0.5]}, cv=2
        )
        search.fit(X, Y, groups=GROUPS)
        assert len(search.best_estimator_[-1].groups_) == 3
        scores = cross_validate(asked, X, Y, cv=2, params={"groups": GROUPS}, return_estimator=True)
        assert all(len(found.groups_) == 3 for found in scores["estimator"])


def test_warnings_say_what_to_do():
    with pytest.warns(ConvergenceWarning, match="WorstGroupRegressor is not certified: MAX_STEPS.*Raise max_steps"):
        be.WorstGroupRegressor(max_steps=1).fit(X, Y, groups=GROUPS)
    few = np.where(np.arange(N) < 20, "few", GROUPS)
    with pytest.warns(UserWarning, match=r"1 of 4 groups have fewer than 50 rows: few \(20\).*merge small groups"):
        be.WorstGroupRegressor(tol=0.1).fit(X, Y, groups=few)
    apart = Y + 12 * X[:, 0] * (CODES == 0)
    with pytest.warns(UserWarning, match=r"protection costs \d.*% of the cross-validated mean.*smaller protection"):
        be.WorstGroupRegressor("worst").fit(X[:300], apart[:300], groups=np.where(CODES == 0, "odd", "rest")[:300])


@pytest.mark.parametrize(
    ("options", "arguments", "message"),
    [
        ({"protection": -1}, (X, Y, GROUPS), 'protection must be a number >= 0 or "worst", given -1'),
        ({"protection": "best"}, (X, Y, GROUPS), "given 'best'"),
        ({"folds": 1}, (X, Y, GROUPS), "folds must be a whole number >= 2"),
        ({"tol": 0}, (X, Y, GROUPS), "tol must be a finite number > 0"),
        ({"max_steps": 0}, (X, Y, GROUPS), "max_steps must be a whole number >= 1"),
        ({"folds": N + 1}, (X, Y), "the table has 360 rows for folds=361, and needs as many; use fewer folds"),
        ({"folds": 200}, (X, Y, GROUPS), "group '.*' has 1.. rows for folds=200.*merge small groups"),
        ({}, (X, Y, GROUPS[:9]), "groups must have one entry for each of the 360 rows"),
        ({}, (X, Y, [None, *GROUPS[1:]]), "groups must not be missing"),
        ({}, (X, Y, ["alone", *GROUPS[1:]]), "group 'alone' has 1 row.*merge small groups"),
        ({}, (np.where(X > 4, np.nan, X), Y, GROUPS), "contains NaN"),
        ({}, (X, Y[:9], GROUPS), "inconsistent numbers of samples"),
    ],
)
def test_bad_input_is_named(options, arguments, message):
    with pytest.raises(ValueError, match=message):
        be.WorstGroupRegressor(**options).fit(*arguments)


def test_one_class_is_refused_and_a_constant_feature_is_not():
    with pytest.raises(ValueError, match="at least 2 classes, given one class"):
        be.WorstGroupClassifier().fit(X, np.zeros(N, int))
    flat = np.column_stack([X, np.full(N, 7.0)])
    found = be.WorstGroupRegressor().fit(flat, Y, groups=GROUPS)
    assert found.coef_[-1] == 0 and np.isfinite(found.predict(flat)).all()
    level = be.WorstGroupRegressor().fit(X, np.full(N, 3.0))
    np.testing.assert_allclose(level.predict(X), 3.0)


def test_a_group_with_one_class_is_part_of_the_rest():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = be.WorstGroupClassifier().fit(X, LABELS, groups=np.where(LABELS == "yes", GROUPS, "never"))
    assert found.status_ == "CERTIFIED" and len(found.groups_) == 4


def test_worst_score_needs_groups(regressor):
    with pytest.raises(ValueError, match="worst_score needs groups="):
        regressor.worst_score(X, Y)


def test_scores_need_an_outcome_for_each_row(regressor):
    with pytest.raises(ValueError, match=f"y must have one entry for each of the {N} rows, given shape"):
        regressor.worst_score(X, Y[:-1], GROUPS)
    with pytest.raises(ValueError, match="y must be finite"):
        regressor.worst_score(X, np.where(np.arange(N) == 0, np.nan, Y), GROUPS)


def test_importing_the_package_does_not_import_scikit_learn():
    code = "import sys, bisaddle; bisaddle.solve; bisaddle.apps.hyperparameter; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[1])


def by_a_simple_search(loss, rows, targets, protection, penalty_of):
    """The worst mix of a weighted fit, minimised by SciPy without derivatives: fits, folds and mixes written out."""
    shares = np.bincount(CODES) / N
    fold = deal(CODES, 3, 0, None if loss == "squared" else targets)

    def fitted(weights, ridge, kept):
        at = weights[CODES[kept]] / np.bincount(CODES[kept])[CODES[kept]]
        theta = np.zeros(rows.shape[1])
        for _ in range(1 if loss == "squared" else 12):  # Newton's method
            z = rows[kept] @ theta
            chance = z if loss == "squared" else expit(z)
            slope, curve = chance - targets[kept], 1.0 if loss == "squared" else chance * (1 - chance)
            hessian = (rows[kept].T * (at * curve)) @ rows[kept] + np.diag(ridge)
            theta = theta - np.linalg.solve(hessian, rows[kept].T @ (at * slope) + ridge * theta)
        return theta

    def worst(v):
        weights, ridge, losses = softmax([0.0, *v[1:]]), penalty_of(np.exp(v[0])), np.zeros(N)
        for k in range(3):
            z = rows[fold == k] @ fitted(weights, ridge, fold != k)
            own = targets[fold == k]
            losses[fold == k] = 0.5 * (z - own) ** 2 if loss == "squared" else np.logaddexp(0, z) - own * z
        by_group = np.bincount(CODES, losses) / np.bincount(CODES)
        # max over KL(y || shares) <= r of <y, l> = min over t > 0 of t r + t log sum shares exp(l / t)
        dual = lambda s: np.exp(s) * (protection + logsumexp(by_group / np.exp(s), b=shares))
        return minimize_scalar(dual, bounds=(-12, 6), method="bounded", options={"xatol": 1e-10}).fun

    options = {"xatol": 1e-5, "fatol": 1e-9, "maxiter": 300}
    found = minimize(worst, [-4.0, 0.0, 0.0], method="Nelder-Mead", options=options)
    return found.fun, worst


@pytest.mark.parametrize("loss", ["squared", pytest.param("logistic", marks=pytest.mark.slow)])
def test_the_answer_is_that_of_a_simple_search(loss, regressor):
    scaled = np.column_stack([np.ones(N), StandardScaler().fit_transform(X)])
    free = 0.0 if loss == "squared" else FAINT
    penalty_of = lambda penalty: np.array([free, *np.full(D, penalty)])
    if loss == "squared":
        model, targets, unit = regressor, (Y - Y.mean()) / Y.std(), 2 * Y.var()
    else:
        model, targets, unit = be.WorstGroupClassifier().fit(X, LABELS, groups=GROUPS), (LABELS == "yes") * 1.0, 1.0
    best, worst = by_a_simple_search(loss, scaled, targets, 0.5, penalty_of)
    weights = np.maximum(model.group_weights_, 1e-12)
    ours = worst([np.log(model.penalty_), *np.log(weights[1:] / weights[0])])
    np.testing.assert_allclose(ours, model.worst_mix_ @ model.group_loss_ / unit, rtol=1e-3)
    assert abs(ours - best) <= 1e-3 * best
