"""scikit-learn's own checks of estimators, without exception. `make test` runs a few of them, `make test-all` all."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

import bisaddle.estimators as be

ESTIMATORS = (
    be.WorstGroupRegressor,
    be.WorstGroupClassifier,
    be.PartialPoolingRegressor,
    be.PartialPoolingClassifier,
    be.AdversarialClassifier,
)
# of those that have caught something in linear models elsewhere, each a fit or two
QUICK = {
    "check_estimators_unfitted",
    "check_fit2d_1sample",
    "check_dict_unchanged",
    "check_estimators_nan_inf",
    "check_n_features_in_after_fitting",
    "check_estimators_pickle",
}


def checks():
    """(estimator, check) for every check, those that are not quick marked as slow."""
    for kind in ESTIMATORS:
        for estimator, check in estimator_checks_generator(kind()):
            name = check.func.__name__
            details = ", ".join(f"{key}={value}" for key, value in check.keywords.items())
            marks = () if name in QUICK else (pytest.mark.slow,)
            yield pytest.param(estimator, check, id=f"{kind.__name__}-{name}({details})", marks=marks)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.parametrize(("estimator", "check"), [*checks()])
def test_an_estimator_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)
