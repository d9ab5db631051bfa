"""Partial pooling: the app against models fitted in NumPy and SciPy, and its estimators."""

import pickle
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from sklearn import config_context
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_validate

import bisaddle as bs
import bisaddle.estimators as be
from bisaddle import oracle
from bisaddle.apps.folds import deal
from bisaddle.apps.hyperparameter import FAINT
from bisaddle.apps.pooling import penalties, pooled
from tests.app_checks import assert_constants_hold
from tests.registry import flat
from tests.test_hyperparameter import lower_solution, row_losses

K, T, D = 3, 3, 2


@cache
def table(seed=0, sizes=(30, 18, 12), noise=0.5):
    rng = np.random.default_rng(seed)
    tasks = np.repeat(np.array(["a", "b", "c"])[: len(sizes)], sizes)
    features = rng.normal(size=(len(tasks), D)) + 0.3
    own = rng.normal(size=(len(sizes), D + 1))[np.unique(tasks, return_inverse=True)[1]]
    targets = features @ [1.0, -0.5] + 0.5 * np.sum(own[:, 1:] * features, axis=1) + own[:, 0]
    return features, targets + noise * rng.normal(size=len(tasks)), tasks


def fitted(loss, rows, targets, codes, shares, x, scores):
    """The lower level row by row, by SciPy's BFGS."""
    shared, slopes, levels = np.exp(x[0]), np.exp(x[0] + x[1]), np.exp(x[2])
    shape = (T + 1, D + 1, scores)
    free = 0 if loss == "squared" else FAINT

    def total(v):
        v = v.reshape(shape)
        c, own = v[0], v[1:]
        value = shared * np.sum(c[1:] ** 2) / 2 + free * np.sum(c[0] ** 2) / 2
        for t in range(T):
            coef = c + own[t]
            mine = codes == t
            losses = row_losses(loss, rows[mine], targets[mine], coef[:, 0] if loss == "squared" else coef)
            value += shares[t] * losses.mean()
            value += (slopes * np.sum(own[t, 1:] ** 2) + levels * np.sum(own[t, 0] ** 2)) / 2 / T
        return value

    found = minimize(total, np.zeros(np.prod(shape)), method="BFGS", options={"gtol": 1e-8, "maxiter": 5000})
    return found.x.reshape(shape)


@pytest.mark.parametrize("loss", ["squared", "logistic", pytest.param("softmax", marks=pytest.mark.slow)])
def test_the_models_are_those_that_are_fitted_fold_by_fold(loss, record):
    features, targets, tasks = table()
    if loss != "squared":
        targets = np.digitize(targets, [0.0] if loss == "logistic" else [-0.5, 0.8])
    problem, start = pooled(features, targets, tasks, loss=loss)
    x = jnp.array([-2.0, 1.0, -1.5])
    join = lambda v: jax.tree.unflatten(jax.tree.structure(start.theta), _parts(v, start.theta))
    lower = bs.Problem(
        lambda *a: 0.0, lambda x, v, data: problem.lower(x, join(v), data), problem.x_set, None, problem.data
    )
    theta = join(lower_solution(lower, x, np.zeros(flat(start.theta).size)))
    rows, codes = np.column_stack([np.ones(len(features)), features]), np.unique(tasks, return_inverse=True)[1]
    fold, shares = deal(codes, K, 0, None if loss == "squared" else targets), np.bincount(codes) / len(codes)
    scores, held = {"squared": 1, "logistic": 1, "softmax": 3}[loss], np.zeros(len(rows))
    for k in range(K + 1):
        kept = fold != k
        wanted = fitted(loss, rows[kept], targets[kept], codes[kept], shares, np.asarray(x), scores)
        found = np.concatenate([theta["shared"][k][None], theta["own"][k]]).reshape(wanted.shape)
        worst = np.max(np.abs(found - wanted))
        record(f"pooling, {loss}: theta against SciPy", worst)
        assert worst <= 2e-4
        for t in range(T):
            out = ~kept & (codes == t)
            coef = np.asarray(theta["shared"][k] + theta["own"][k][t])
            held[out] = row_losses(loss, rows[out], targets[out], coef)
    np.testing.assert_allclose(oracle.upper_value(problem, x, theta, None), held.mean(), rtol=1e-10)
    np.testing.assert_allclose(penalties(x), np.exp([-2.0, -1.0, -1.5]))


def _parts(v, like):
    parts, end = [], 0
    for leaf in jax.tree.leaves(like):
        parts.append(v[end : end + leaf.size].reshape(leaf.shape))
        end += leaf.size
    return parts


@pytest.mark.parametrize("protection", [0.0, pytest.param("worst", marks=pytest.mark.slow)])
def test_derivatives_agree_and_the_solution_is_certified(protection):
    problem, start = pooled(*table(), protection=protection)
    rng = np.random.default_rng(1)
    theta = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), start.theta)
    y = None if start.y is None else rng.dirichlet(np.ones(T))
    point = bs.Point(np.asarray(start.x) + rng.uniform(-1, 1, 3), theta, y)
    report = bs.check_derivatives(problem, point)
    assert report.ok, str(report)
    result = bs.solve(problem, start, tol=1e-4)
    assert result.status is bs.Status.CERTIFIED and result.gap <= 1e-4


@pytest.mark.parametrize("loss", ["squared", "logistic", pytest.param("softmax", marks=pytest.mark.slow)])
@pytest.mark.parametrize("protection", [0.0, pytest.param(0.5, marks=pytest.mark.slow)])
def test_constants_hold(loss, protection):
    features, targets, tasks = table()
    if loss != "squared":
        targets = np.digitize(targets, [0.0] if loss == "logistic" else [-0.5, 0.8])
    bounds = ((-1.0, 0.0, -1.0), (1.0, 2.0, 1.0))
    problem, start = pooled(features, targets, tasks, loss=loss, protection=protection, bounds=bounds)
    used = assert_constants_hold(problem, start, spread=2.0)
    assert used["L_g"] > 0.1 and used["L_g_thetatheta"] > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("kind", [bs.methods.OneSidedProjectionFree, bs.methods.FullyProjected])
def test_the_papers_methods_run_on_it(kind):
    problem, start = pooled(*table(), protection=0.5, bounds=((-1.0, 0.0, -1.0), (1.0, 2.0, 1.0)))
    before = bs.certify(problem, start).worst_value
    result = bs.solve(problem, start, kind.default(problem, 2000), tol=None, max_steps=2000)
    assert np.isfinite(result.gap) and result.certificate.worst_value <= before + 1e-6


FEATURES, TARGETS, TASKS = table()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((FEATURES, TARGETS, TASKS[:5]), {}, "tasks must have one entry"),
        ((FEATURES, TARGETS, ["alone", *TASKS[1:]]), {}, "task 'alone' has 1 row for folds=3"),
        ((FEATURES * np.nan, TARGETS, TASKS), {}, "features must be finite"),
        ((FEATURES, TARGETS, TASKS), {"loss": "hinge"}, "loss must be"),
        ((FEATURES, TARGETS, TASKS), {"loss": "logistic"}, "needs whole numbers 0 and 1"),
        ((FEATURES, TARGETS, TASKS), {"folds": 1}, "folds must be"),
        ((FEATURES, TARGETS, TASKS), {"bounds": (1.0, 1.0)}, "bounds must be two sets"),
        ((FEATURES, TARGETS, TASKS), {"protection": "best"}, "protection must be"),
    ],
)
def test_bad_input_is_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        pooled(*arguments, **options)


# --- the estimators ---------------------------------------------------------------------------------------------------

MANY = table(1, (150, 90, 60))


@pytest.fixture(scope="module")
def regressor():
    return be.PartialPoolingRegressor().fit(MANY[0], MANY[1], tasks=MANY[2])


def test_tasks_have_their_own_models_and_strangers_the_shared_one(regressor):
    X, y, tasks = MANY
    found = regressor.predict(X, tasks)
    for t, task in enumerate("abc"):
        mine = tasks == task
        np.testing.assert_allclose(found[mine], X[mine] @ regressor.task_coef_[t] + regressor.task_intercept_[t])
    stranger = regressor.predict(X, np.full(len(X), "new"))
    np.testing.assert_allclose(stranger, X @ regressor.coef_ + regressor.intercept_)
    with pytest.warns(UserWarning, match="no tasks given.*shared part"):
        np.testing.assert_allclose(regressor.predict(X), stranger)
    assert regressor.status_ == "CERTIFIED" and regressor.gap_ <= 1e-4
    assert regressor.score(X, y, tasks=tasks) > Ridge().fit(X, y).score(X, y) + 0.05
    errors = [np.mean((y - found)[tasks == task] ** 2) for task in "abc"]
    np.testing.assert_allclose(regressor.worst_score(X, y, tasks), 1 - max(errors) / np.var(y))
    assert np.all(regressor.task_loss_ > 0.8 * np.array(errors))


def test_the_refit_solves_the_lower_level_on_all_rows(regressor):
    X, y, tasks = MANY
    codes = np.unique(tasks, return_inverse=True)[1]
    scaled, target = (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()
    rows = np.column_stack([np.ones(len(X)), scaled])
    shared, slope = regressor.shared_penalty_, regressor.slope_penalty_
    x = np.log([shared, slope / shared, regressor.level_penalty_])
    wanted = fitted("squared", rows, target, codes, np.bincount(codes) / len(codes), x, 1)[..., 0]
    np.testing.assert_allclose(regressor.coef_ * X.std(axis=0) / y.std(), wanted[0, 1:], atol=2e-4)
    np.testing.assert_allclose(
        regressor.task_coef_ * X.std(axis=0) / y.std(), wanted[0, 1:] + wanted[1:, 1:], atol=2e-4
    )


def test_padding_changes_no_answer(regressor, monkeypatch):
    monkeypatch.setattr("bisaddle.estimators.pooling.bucket", lambda size: size)
    monkeypatch.setattr("bisaddle.estimators.pooling.width_of", lambda columns: columns + 1)
    bare = be.PartialPoolingRegressor(tol=1e-7).fit(MANY[0], MANY[1], tasks=MANY[2])
    monkeypatch.undo()
    padded = be.PartialPoolingRegressor(tol=1e-7).fit(MANY[0], MANY[1], tasks=MANY[2])
    np.testing.assert_allclose(padded.task_coef_, bare.task_coef_, atol=1e-5)
    np.testing.assert_allclose(padded.task_loss_, bare.task_loss_, atol=1e-5)


def test_a_classifier_keeps_its_tasks_apart():
    X, y, tasks = MANY
    labels = np.where(y > 0, "up", "down")
    found = be.PartialPoolingClassifier().fit(X, labels, tasks=tasks)
    assert found.status_ == "CERTIFIED" and found.task_coef_.shape == (3, 1, D)
    proba = found.predict_proba(X, tasks)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(found.predict(X, tasks), found.classes_[proba.argmax(axis=1)])
    right = found.predict(X, tasks) == labels
    assert found.score(X, labels, tasks=tasks) == pytest.approx(right.mean())
    assert found.worst_score(X, labels, tasks) == pytest.approx(min(right[tasks == t].mean() for t in "abc"))
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again.predict(X, tasks), found.predict(X, tasks))


def test_a_column_names_the_tasks_and_metadata_are_routed(regressor):
    X, y, tasks = MANY
    frame = pd.DataFrame(X, columns=["u", "v"]).assign(shop=tasks)
    found = be.PartialPoolingRegressor(task_column="shop").fit(frame, y)
    np.testing.assert_allclose(found.predict(frame), regressor.predict(X, tasks))
    assert list(found.feature_names_in_) == ["u", "v"]
    with config_context(enable_metadata_routing=True):
        asked = be.PartialPoolingRegressor().set_fit_request(tasks=True).set_score_request(tasks=True)
        scores = cross_validate(asked, X, y, cv=2, params={"tasks": tasks})
    assert scores["test_score"].shape == (2,)


def test_bad_tasks_are_named(regressor):
    X, y, tasks = MANY
    with pytest.raises(ValueError, match="tasks must have one entry for each of the 300 rows"):
        regressor.predict(X, tasks[:4])
    with pytest.raises(ValueError, match="task 'alone' has 1 row"):
        be.PartialPoolingRegressor().fit(X, y, tasks=["alone", *tasks[1:]])
    with pytest.raises(ValueError, match="tasks must not be missing"):
        be.PartialPoolingRegressor().fit(X, y, tasks=[np.nan, *range(299)])
    with pytest.warns(UserWarning, match=r"1 of 3 tasks have fewer than 50 rows: c \(40\)"):
        be.PartialPoolingRegressor().fit(X[:280], y[:280], tasks=tasks[:280])
