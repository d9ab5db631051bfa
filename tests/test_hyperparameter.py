"""Hyper-parameters by cross-validation: against models fitted one by one in NumPy and SciPy, and brute force."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar

import bisaddle as bs
from bisaddle import oracle
from bisaddle.apps.folds import deal
from bisaddle.apps.hyperparameter import FAINT, cleaning, kinds, tuning
from tests.app_checks import assert_constants_hold
from tests.registry import flat
from tests.test_certificate import feasible_point

K, G, D = 3, 3, 4


@cache
def table(seed=0, n=90):
    rng = np.random.default_rng(seed)
    groups = np.repeat(["a", "b", "c"], [n // 2, n // 3, n - n // 2 - n // 3])
    features = rng.normal(size=(n, D)) + 0.2
    own = {"a": 0.0, "b": 0.7, "c": -0.8}
    level = np.array([own[g] for g in groups])
    targets = features @ np.array([1.0, -0.5, 0.3, 0.0]) + level * (1 + features[:, 1]) + 0.5 * rng.normal(size=n)
    return features, targets, groups


def labels(targets, loss):
    cuts = {"logistic": [0.0], "softmax": [-0.7, 0.7]}
    return targets if loss == "squared" else np.digitize(targets, cuts[loss])


def made(loss="squared", **options):
    features, targets, groups = table()
    return tuning(features, labels(targets, loss), groups, loss=loss, **options)


def row_losses(loss, rows, targets, theta):
    scores = rows @ theta
    if loss == "squared":
        return 0.5 * (scores - targets) ** 2
    if loss == "logistic":
        return np.logaddexp(0, scores[:, 0]) - targets * scores[:, 0]
    return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(rows)), targets]


def fitted(loss, rows, targets, groups, weights, ridge):
    """argmin sum_g w_g mean loss of g + sum_j ridge_j theta_j^2 / 2, row by row: closed form, or SciPy's BFGS."""
    row_weights = np.zeros(len(rows))
    for g, weight in zip(np.unique(groups), weights, strict=True):
        row_weights[groups == g] = weight / np.sum(groups == g)
    if loss == "squared":
        return np.linalg.solve((rows.T * row_weights) @ rows + np.diag(ridge), (rows.T * row_weights) @ targets)
    shape = (rows.shape[1], 1 if loss == "logistic" else 3)

    def total(flat_theta):
        theta = flat_theta.reshape(shape)
        return row_weights @ row_losses(loss, rows, targets, theta) + 0.5 * np.sum(ridge[:, None] * theta**2)

    found = minimize(total, np.zeros(np.prod(shape)), method="BFGS", options={"gtol": 1e-9, "maxiter": 2000})
    return found.x.reshape(shape)


def lower_solution(problem, x, theta):
    """theta*(x) by Newton's method, with JAX's dense Hessian."""
    size = lambda v: problem.lower(x, v.reshape(theta.shape), problem.data)
    slope, curve = jax.jit(jax.grad(size)), jax.jit(jax.hessian(size))
    v = np.zeros(theta.size)
    for _ in range(12):
        v = v - np.linalg.solve(curve(v), slope(v))
    return jnp.asarray(v.reshape(theta.shape))


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_the_model_is_the_one_that_is_fitted_fold_by_fold(loss, record):
    features, targets, groups = table()
    targets = labels(targets, loss)
    problem, start = made(loss, penalties=[0, 1, 1, 0])
    x = {"penalty": jnp.array([-1.0, 0.5]), "weights": jnp.array([0.5, 0.2, 0.3])}
    theta = lower_solution(problem, x, start.theta)
    y = np.array([0.2, 0.5, 0.3])
    rows = np.column_stack([np.ones(len(features)), features])
    ridge = np.array([0 if loss == "squared" else FAINT, *np.exp([-1.0, 0.5, 0.5, -1.0])])
    codes = np.unique(groups, return_inverse=True)[1]
    fold = deal(codes, K, 0, None if loss == "squared" else targets)
    held = np.zeros(len(rows))
    for k in range(K + 1):
        kept = fold != k
        wanted = fitted(loss, rows[kept], targets[kept], groups[kept], x["weights"], ridge)
        worst = np.max(np.abs(wanted - theta[k]))
        record(f"tuning, {loss}: theta against NumPy and SciPy", worst)
        assert worst <= (1e-10 if loss == "squared" else 2e-5)
        held[~kept] = row_losses(loss, rows[~kept], targets[~kept], np.asarray(theta[k]))
    by_group = [held[codes == g].mean() for g in range(G)]
    np.testing.assert_allclose(oracle.upper_value(problem, x, theta, jnp.asarray(y)), y @ by_group, rtol=1e-10)
    offset = np.array([0.1, 0.2, 0.3])
    shifted, _ = made(loss, penalties=[0, 1, 1, 0], offset=offset)
    np.testing.assert_allclose(
        oracle.upper_value(shifted, x, theta, jnp.asarray(y)), y @ (by_group - offset), rtol=1e-10
    )
    folds, _ = made(loss, penalties=[0, 1, 1, 0], against="folds")
    by_fold = [held[fold == k].mean() for k in range(K)]
    np.testing.assert_allclose(oracle.upper_value(folds, x, theta, jnp.asarray(y)), y @ by_fold, rtol=1e-10)
    mean, _ = made(loss, penalties=[0, 1, 1, 0], against="mean")
    np.testing.assert_allclose(oracle.upper_value(mean, x, theta, None), held.mean(), rtol=1e-10)


def test_softmax_with_two_classes_has_the_loss_of_logistic_regression():
    features, targets, groups = table()
    two = labels(targets, "logistic")
    (problem, start), (logistic, _) = (tuning(features, two, groups, loss=loss) for loss in ("softmax", "logistic"))
    theta = np.random.default_rng(0).normal(size=start.theta.shape)
    apart = theta[..., 1:] - theta[..., :1]
    y = np.array([0.2, 0.3, 0.5])
    wanted = oracle.upper_value(logistic, start.x, jnp.asarray(apart), y)
    np.testing.assert_allclose(oracle.upper_value(problem, start.x, jnp.asarray(theta), y), wanted, rtol=1e-12)


CASES = {
    "groups": {},
    "each": {"penalties": "each", "protection": "worst"},
    "folds": {"against": "folds"},
    "mean": {"against": "mean"},
    "logistic": {"loss": "logistic"},
}


QUICK = ("groups", "logistic")


@pytest.mark.parametrize(
    "name", [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES]
)
def test_derivatives_agree_and_the_solution_is_certified(name):
    problem, start = made(**CASES[name])
    point = feasible_point(problem, start, np.random.default_rng(1))
    report = bs.check_derivatives(problem, point)
    assert report.ok, str(report)
    result = bs.solve(problem, start, tol=1e-4)
    assert result.status is bs.Status.CERTIFIED and result.gap <= 1e-4


def test_without_weights_and_groups_it_is_ridge_regression_with_a_cross_validated_penalty():
    features, targets, _ = table()
    problem, start = tuning(features, targets, against="mean", reweight=False)
    result = bs.solve(problem, start, tol=1e-9)
    fold = deal(np.zeros(len(features), int), K, 0)
    rows, one = np.column_stack([np.ones(len(features)), features]), np.zeros(len(features))

    def score(penalty):
        ridge, losses = np.array([0, *np.full(D, np.exp(penalty))]), np.zeros(len(rows))
        for k in range(K):
            theta = fitted("squared", rows[fold != k], targets[fold != k], one[fold != k], [1.0], ridge)
            losses[fold == k] = row_losses("squared", rows[fold == k], targets[fold == k], theta)
        return losses.mean()

    best = minimize_scalar(score, bounds=(-9, 4), method="bounded", options={"xatol": 1e-10})
    np.testing.assert_allclose(result.x["penalty"][0], best.x, atol=1e-5)
    np.testing.assert_allclose(result.certificate.worst_value, best.fun, rtol=1e-9)


def test_protection_lowers_the_worst_mix():
    values = {}
    for protection in (0.01, 0.5, "worst"):
        problem, start = made(protection=protection)
        result = bs.solve(problem, start, tol=1e-6)
        values[protection] = np.asarray(oracle.upper_gradients(problem, result.x, result.theta, result.y)[2])
    assert values["worst"].max() <= values[0.5].max() + 1e-5 <= values[0.01].max() + 2e-5


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        ("squared", {}),
        ("squared", {"against": "folds", "penalties": [0, 1, 1, 0]}),
        ("logistic", {}),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("squared", {"against": "mean"}),
                ("logistic", {"against": "folds"}),
                ("logistic", {"against": "mean", "intercept": False}),
                ("softmax", {}),
            )
        ),
    ],
)
@pytest.mark.parametrize("grouped", [True, False])
def test_constants_hold(loss, options, grouped):
    features, targets, groups = table(n=36)
    given = (features, labels(targets, loss), groups if grouped else None)
    problem, start = tuning(*given, loss=loss, bounds=(-2.0, 1.0), **options)
    used = assert_constants_hold(problem, start, spread=2.0)
    assert used["L_g"] > 0.1 and used["f_theta"] > 0.02


@pytest.mark.parametrize("against", ["groups", "folds"])
def test_the_curvature_of_f_is_bounded_where_one_weight_has_all(against):
    problem, start = made(against=against, protection="worst")
    curve = jax.jit(
        jax.hessian(lambda v, y: problem.upper(start.x, v.reshape(start.theta.shape), y, problem.data)),
    )
    found = [np.linalg.eigvalsh(curve(jnp.zeros(start.theta.size), y))[-1] for y in jnp.eye(K)]
    bound = float(problem.constants.L_thetatheta)
    assert 0.5 * bound <= max(found) <= bound * (1 + 1e-9)


def test_without_an_intercept_the_least_penalty_is_the_strong_convexity():
    lonely = made(bounds=(-2.0, 2.0), intercept=False)[0].constants
    np.testing.assert_allclose(float(lonely.mu_g), np.exp(-2.0), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [bs.methods.OneSidedProjectionFree, bs.methods.FullyProjected])
def test_the_papers_methods_run_on_it(kind):
    problem, start = made(bounds=(-1.0, 1.0))
    before = bs.certify(problem, start).worst_value
    result = bs.solve(problem, start, kind.default(problem, 2000), tol=None, max_steps=2000)
    assert np.isfinite(result.gap) and result.certificate.worst_value <= before + 1e-6


@pytest.mark.parametrize(
    "loss", ["squared", *(pytest.param(name, marks=pytest.mark.slow) for name in ("logistic", "softmax"))]
)
def test_cleaning_takes_weight_from_wrong_rows(loss):
    shuffled = np.random.default_rng(0).permutation(120)
    features, targets, groups = (part[shuffled] for part in table(n=120))
    targets = labels(targets, loss)
    wrong = np.arange(60) % 4 == 0
    dirty = np.where(
        wrong, targets[:60] + 4 if loss == "squared" else (targets[:60] + 1) % (targets.max() + 1), targets[:60]
    )
    problem, start = cleaning(features[:60], dirty, features[60:], targets[60:], groups[60:], loss=loss, penalty=0.05)
    point = feasible_point(problem, start, np.random.default_rng(0))
    assert bs.check_derivatives(problem, point).ok
    result = bs.solve(problem, start, tol=1e-4)
    assert result.status is bs.Status.CERTIFIED
    assert np.mean(result.x[wrong]) < np.mean(result.x[~wrong]) - 0.2
    mean, _ = cleaning(features[:60], dirty, features[60:], targets[60:], loss=loss, penalty=0.05)
    assert mean.y_set is None
    lower = lambda v: mean.lower(point.x, v.reshape(start.theta.shape), mean.data)
    eigenvalues = np.linalg.eigvalsh(jax.hessian(lower)(flat(point.theta)))
    assert mean.constants.mu_g <= eigenvalues[0] * (1 + 1e-9) and eigenvalues[-1] <= mean.constants.L_g


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
@pytest.mark.parametrize("grouped", [True, False])
def test_constants_of_cleaning_hold(loss, grouped):
    features, targets, groups = table(n=24)
    given = (features[:12], labels(targets, loss)[:12], features[12:], labels(targets, loss)[12:])
    penalty = 1.0 if loss == "squared" else 0.01  # slopes of squares are bounded by 1 / penalty
    problem, start = cleaning(*given, groups[12:] if grouped else None, loss=loss, penalty=penalty)
    used = assert_constants_hold(problem, start, spread=2.0)
    assert used["L_g"] > 0.1 and used["C_thetax"] > (0.05 if loss == "squared" else 0.1)


def test_folds_have_their_share_of_every_group_and_label():
    groups, classes = np.repeat([0, 1], [31, 8]), np.arange(39) % 2
    fold = deal(groups, 3, 0, classes)
    for g in (0, 1):
        for c in (0, 1):
            counts = np.bincount(fold[(groups == g) & (classes == c)], minlength=3)
            assert counts.max() - counts.min() <= 1
    assert not np.array_equal(fold, deal(groups, 3, 1, classes))


FEATURES, TARGETS, GROUPS = table()


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((FEATURES[:, 0], TARGETS), {}, "features must be a table"),
        ((FEATURES * np.nan, TARGETS), {}, "features must be finite"),
        ((FEATURES, TARGETS[:5]), {}, "targets must have one entry for each of the 90 rows"),
        ((FEATURES, TARGETS * np.inf), {}, "targets must be finite"),
        ((FEATURES, TARGETS, GROUPS[:5]), {}, "groups must have one entry"),
        ((FEATURES, TARGETS, [None, *GROUPS[1:]]), {}, "groups must not be missing"),
        ((FEATURES, TARGETS, ["alone", *GROUPS[1:]]), {}, "group 'alone' has 1 row for folds=3.*merge small groups"),
        ((FEATURES, TARGETS), {"loss": "logistic"}, "needs whole numbers 0 and 1"),
        ((FEATURES, np.zeros(90, int)), {"loss": "softmax"}, "0, 1, ..., C - 1"),
        ((FEATURES, TARGETS), {"loss": "huber"}, 'loss must be "squared"'),
        ((FEATURES, TARGETS), {"against": "everyone"}, 'against must be "groups"'),
        ((FEATURES, TARGETS), {"folds": 1}, "folds must be a whole number >= 2"),
        ((FEATURES, TARGETS), {"bounds": (1.0, 1.0)}, "bounds must be two finite"),
        ((FEATURES, TARGETS), {"penalties": "none"}, "penalties must be"),
        ((FEATURES, TARGETS), {"penalties": [0, 2, 2, 0]}, "none left out"),
        ((FEATURES, TARGETS), {"protection": "best"}, "protection must be a number > 0"),
        ((FEATURES, TARGETS), {"protection": 0.0}, 'against="mean" has none'),
        ((FEATURES, TARGETS), {"folds": 91}, "the table has 90 rows for folds=91, and needs as many; use fewer folds"),
        ((FEATURES, TARGETS, GROUPS), {"offset": [0.0]}, "offset must have a finite number for each of the 3 groups"),
        ((FEATURES, ["a"] * 90), {}, "targets must be an array of numbers, given list"),
        ((FEATURES, np.arange(90) % 3), {"loss": "logistic"}, 'needs two classes, given 3; use loss="softmax"'),
    ],
)
def test_bad_input_is_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        tuning(*arguments, **options)


def test_bad_input_of_cleaning_is_named():
    classes = labels(TARGETS, "logistic")
    with pytest.raises(ValueError, match="the same columns"):
        cleaning(FEATURES, classes, FEATURES[:, :2], classes)
    with pytest.raises(ValueError, match="valid_features must be finite"):
        cleaning(FEATURES, classes, FEATURES * np.nan, classes)
    with pytest.raises(ValueError, match="penalty must be finite and > 0"):
        cleaning(FEATURES, classes, FEATURES, classes, penalty=0.0)
    with pytest.raises(ValueError, match="loss must be"):
        cleaning(FEATURES, classes, FEATURES, classes, loss="hinge")
        cleaning(FEATURES, classes, FEATURES, classes, loss="hinge")


def test_classes_may_be_floats():
    classes = labels(TARGETS, "logistic")
    one, two = (
        tuning(FEATURES, y, loss="logistic")[0].data["rows"].chunks.labels for y in (classes, classes.astype(float))
    )
    np.testing.assert_array_equal(one, two)


def test_the_intercept_has_no_penalty():
    np.testing.assert_array_equal(kinds("each", 2, True), [[0, 0], [1, 0], [0, 1]])
    np.testing.assert_array_equal(kinds([1, 0], 2, False), [[0, 1], [1, 0]])
