"""Fair models from a table: the same problem as by hand, and regrets against models that scikit-learn fits."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

import bisaddle as bs
from bisaddle import oracle
from bisaddle.apps.fairness import minimax, own_best, read_table
from bisaddle.apps.folds import deal
from bisaddle.apps.hyperparameter import tuning

RNG = np.random.default_rng(0)
N = 120
GROUP = np.array(["a", "b"])[(np.arange(N) % 3 == 0).astype(int)]
FRAME = pd.DataFrame({"u": RNG.normal(size=N) * 5 + 2, "v": RNG.normal(size=N), "group": GROUP})
NOISE = np.where(GROUP == "a", 0.3, 2.0)  # group b cannot be predicted well by anything
FRAME["target"] = FRAME.u / 5 + FRAME.v * np.where(GROUP == "a", 1.0, -0.5) + NOISE * RNG.normal(size=N)
FRAME["label"] = (FRAME.target > 0.5).astype(int)


def test_a_table_gives_the_problem_of_its_columns():
    columns = FRAME[["u", "v"]].to_numpy()
    features = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    wanted, start = tuning(features, FRAME.target, GROUP, protection="worst")
    found, _ = minimax(FRAME, "target", "group", columns=["u", "v"])
    y = np.array([0.3, 0.7])
    theta = RNG.normal(size=start.theta.shape)
    args = (start.x, theta, y)
    np.testing.assert_allclose(oracle.upper_value(found, *args), oracle.upper_value(wanted, *args), rtol=1e-12)
    as_dict = {name: FRAME[name].tolist() for name in ("u", "v", "target", "group")}
    np.testing.assert_allclose(read_table(as_dict, "target", "group")[0], features)


def test_regret_is_the_loss_above_the_groups_own_best():
    features, targets, groups = read_table(FRAME, "target", "group", ["u", "v"])
    best = own_best(features, targets, groups)
    codes = np.unique(groups, return_inverse=True)[1]
    fold = deal(codes, 3, 0)
    for g in range(2):
        tried = []
        for penalty in np.exp(np.linspace(-9, 4, 27)):
            losses = np.zeros(N)
            for k in range(3):
                kept, held = (codes == g) & (fold != k), (codes == g) & (fold == k)
                ridge = Ridge(penalty * kept.sum()).fit(features[kept], targets[kept])
                losses[held] = (ridge.predict(features[held]) - targets[held]) ** 2 / 2
            tried.append(losses[codes == g].mean())
        np.testing.assert_allclose(best[g], min(tried), rtol=1e-8)
    results = {}
    for criterion in ("loss", "regret"):
        problem, start = minimax(FRAME, "target", "group", columns=["u", "v"], criterion=criterion)
        result = bs.solve(problem, start, tol=1e-4)
        assert result.status is bs.Status.CERTIFIED
        results[criterion] = np.asarray(oracle.upper_gradients(problem, result.x, result.theta, result.y)[2])
    # the hopeless group decides the largest loss; by regret, the other one counts as much
    assert np.argmax(results["loss"]) == 1
    assert results["regret"].max() < (results["loss"] - best).max()


def test_own_best_of_classes_is_that_of_logistic_regression():
    features, labels, groups = read_table(FRAME, "label", "group", ["u", "v"])
    best = own_best(features, labels, groups, "logistic")
    codes = np.unique(groups, return_inverse=True)[1]
    fold = deal(codes, 3, 0, labels)
    tried = []
    for penalty in np.exp(np.linspace(-9, 4, 27))[::3]:
        losses = np.zeros(N)
        for k in range(3):
            kept, held = (codes == 0) & (fold != k), (codes == 0) & (fold == k)
            model = LogisticRegression(C=1 / penalty / kept.sum(), tol=1e-8, max_iter=1000)
            proba = model.fit(features[kept], labels[kept]).predict_proba(features[held])
            losses[held] = -np.log(proba[np.arange(held.sum()), labels[held]])
        tried.append(losses[codes == 0].mean())
    np.testing.assert_allclose(best[0], min(tried), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_pooled_models_and_regrets_are_certified_too(loss):
    target = "target" if loss == "squared" else "label"
    problem, start = minimax(FRAME, target, "group", columns=["u", "v"], loss=loss, criterion="regret", model="pooled")
    assert bs.solve(problem, start, tol=1e-4).status is bs.Status.CERTIFIED


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"criterion": "parity"}, "criterion must be one of loss, regret"),
        ({"model": "deep"}, "model must be one of shared, pooled"),
        ({"loss": "hinge"}, "loss must be one of"),
        ({"columns": ["u", "w"]}, "the table has no column 'w'; it has"),
        ({"columns": []}, "no features besides"),
        ({"target": "group", "group": "label"}, "the target 'group' must be an array of numbers"),
        ({"target": "group"}, "must be different columns, given 'group', 'group'"),
        ({"columns": ["u", "target"]}, "must be different columns"),
        ({"columns": "u"}, "must be different columns"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        minimax(FRAME, **{"target": "target", "group": "group", **options})


def test_columns_that_cannot_be_used_are_named():
    with pytest.raises(ValueError, match="the feature 'place' must be an array of numbers"):
        minimax(FRAME.assign(place="here"), "target", "group")
    with pytest.raises(ValueError, match=r"features must be finite, and \['u'\] are not"):
        minimax(FRAME.assign(u=np.nan), "target", "group")
    with pytest.raises(ValueError, match="'target' is constant"):
        minimax(FRAME.assign(target=1.0), "target", "group", columns=["u"])
    with pytest.raises(ValueError, match="groups must not be missing"):
        minimax(FRAME.assign(group=[None, *GROUP[1:]]), "target", "group", columns=["u"])
    with pytest.raises(ValueError, match="columns must be equally long, given {'t': 3, 'g': 3, 'u': 2}"):
        minimax({"t": [1, 2, 3], "g": [0, 0, 1], "u": [1, 2]}, "t", "g")
    with pytest.raises(ValueError, match="DataFrame or a dict of columns, given ndarray"):
        minimax(FRAME[["u"]].to_numpy(), "target", "group")
    features, _, _ = read_table(FRAME.assign(flat=3.0), "target", "group", ["u", "flat"])
    np.testing.assert_array_equal(features[:, 1], 0)
