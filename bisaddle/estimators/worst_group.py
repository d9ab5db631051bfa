"""Linear models for the group that does worst: groups are known in training, and not needed at prediction."""

import warnings
from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from bisaddle.apps.folds import Moments, Rows, width
from bisaddle.apps.hyperparameter import FAINT, posed
from bisaddle.estimators import common
from bisaddle.estimators.padding import copies, gathered, padded_moments, padded_rows, width_of
from bisaddle.problem import Problem
from bisaddle.sets import Box, Product

# a rise of the mean loss by more than this is worth a warning
DEAR = 0.05


class Choice(NamedTuple):
    """What the problem found: coefficients of standardised features, intercept first, and how they were chosen."""

    theta: np.ndarray
    penalty: float
    weights: np.ndarray
    mix: np.ndarray
    losses: np.ndarray
    plain_losses: np.ndarray
    gap: float
    status: str
    steps: int


def choose(data: Moments | Rows, columns: int, protection: Any, tol: float, max_steps: int, named: str) -> Choice:
    """Weights of the groups and a penalty for which the worst mix of groups does best; first, those for the mean.

    columns: scores of a row, 0 for least squares.
    """
    G, d = len(data.shares), width(data)
    places = copies(G)
    padded = padded_moments(data, width_of(d - 1), places) if isinstance(data, Moments) else padded_rows(data, places)
    kind = np.ones((width(padded), 1))
    kind[0] = 0  # the intercept
    fixed = np.zeros(len(kind))
    fixed[0] = FAINT if columns else 0
    with common.in_float64():
        problem, start = posed(padded, kind, fixed, columns, protection=protection or 1.0)
        alone = G == 1 or protection == 0
        result = common.solved(_at_the_shares(problem, padded.shares), start, tol, max_steps)
        theta, losses = common.refined(problem, result.point)
        plain_losses = losses
        if not alone:
            result = common.solved(problem, result.point, tol, max_steps)
            theta, losses = common.refined(problem, result.point)
    common.warn_if_uncertified(result, tol, named)
    return Choice(
        theta[-1, :d],
        float(np.exp(result.x["penalty"][0])),
        gathered(np.asarray(result.x["weights"]), places),
        gathered(np.asarray(result.y), places),
        losses[:G],
        plain_losses[:G],
        float(result.gap),
        result.status.name,
        result.steps,
    )


def _at_the_shares(problem: Problem, shares: Any) -> Problem:
    """The same problem with weights and mix fixed: the penalty that is best for the mean."""
    pinned = Box(np.asarray(shares), np.asarray(shares))
    sets = Product({"penalty": cast(Product, problem.x_set).sets["penalty"], "weights": pinned})
    return Problem(**{**vars(problem), "x_set": sets, "y_set": pinned})


class _WorstGroup(BaseEstimator):
    """What regressor and classifier share: parameters, attributes, warnings."""

    def __init__(self, protection=0.5, *, folds=3, group_column=None, tol=1e-4, max_steps=10_000, random_state=0):
        self.protection = protection
        self.folds = folds
        self.group_column = group_column
        self.tol = tol
        self.max_steps = max_steps
        self.random_state = random_state

    def _checked_protection(self) -> Any:
        given = self.protection
        if given != "worst" and not (common.is_number(given) and np.isfinite(given) and given >= 0):
            raise ValueError(f'protection must be a number >= 0 or "worst", given {given!r}')
        common.checked_choices(self.folds, self.tol, self.max_steps)
        return given

    def _keep(self, groups: np.ndarray, found: Choice, shares: np.ndarray, unit: float) -> None:
        """The attributes that tell how the model was chosen; unit: of the losses, as users know them."""
        self.groups_ = groups
        self.group_weights_ = found.weights
        self.worst_mix_ = found.mix
        self.group_loss_ = found.losses * unit
        self.plain_group_loss_ = found.plain_losses * unit
        self.penalty_ = found.penalty
        self.gap_, self.status_, self.n_steps_ = found.gap, found.status, found.steps
        mean, plain = float(shares @ self.group_loss_), float(shares @ self.plain_group_loss_)
        self.mean_cost_ = mean / plain - 1 if plain > 0 else 0.0
        if self.mean_cost_ > DEAR:
            worst, before = self.group_loss_.max(), self.plain_group_loss_.max()
            warnings.warn(
                f"protection costs {self.mean_cost_:.1%} of the cross-validated mean loss ({mean:.4g} against "
                f"{plain:.4g} without); the worst group's is {worst:.4g} against {before:.4g}. "
                "A smaller protection costs less, protection=0 nothing.",
                stacklevel=3,
            )

    def _groups_of(self, X: Any, groups: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        X, groups = common.taken_out(X, self.group_column, groups, "groups")
        if groups is None:
            raise ValueError("worst_score needs groups= (or group_column, and a table that has it)")
        X = common.features(self, X)
        distinct, codes = np.unique(np.asarray(groups), return_inverse=True)
        if len(codes) != len(X):
            raise ValueError(f"groups must have one entry for each of the {len(X)} rows, given {len(codes)}")
        return X, distinct, codes


class WorstGroupRegressor(RegressorMixin, _WorstGroup):
    """Linear regression whose training weights and penalty are chosen for the groups that it predicts worst.

        min_{penalty, w in simplex} max_{y : KL(y || shares) <= protection} sum_g y_g CV_g(theta(w, penalty))
        theta_k = argmin sum_g w_g L_g(theta; rows outside fold k) + (penalty/2) |theta|^2,    then a refit on all rows

    Groups are passed to fit, and not needed to predict. Without groups it is ridge regression with a cross-validated
    penalty. Features are standardised inside; the intercept is not penalised.

    protection: how far the mix of groups may be from that of the training rows, as a Kullback-Leibler divergence.
        0: not at all (ridge regression); "worst": any mix, so that only the worst group counts.
    folds: rows of every group are dealt into this many folds. random_state: how they are shuffled.
    group_column: a column of X, a pandas or polars DataFrame, that has the groups; it is not a feature.
    tol, max_steps: the gap to certify, and after how many steps to stop without (in units of the variance of y).

    coef_, intercept_; groups_ and, in its order, group_weights_ (of the training loss; they sum to 1), worst_mix_ (the
    mix y against which they were chosen), group_loss_ (cross-validated mean squared error), plain_group_loss_ (without
    protection); penalty_ (on standardised features); mean_cost_ (relative rise of the cross-validated mean); gap_,
    status_, n_steps_ (of the certificate and the run).
    """

    def fit(self, X, y, groups=None):
        protection = self._checked_protection()
        X, groups = common.taken_out(X, self.group_column, groups, "groups")
        X, y = common.rows_to_fit(self, X, y, y_numeric=True)
        distinct, codes = common.codes_of(groups, len(X), "groups", self.folds)
        data, shift, scale, centre, unit = common.standard_moments(X, y, codes, self.folds, self.random_state)
        choice = choose(data, 0, protection, self.tol, self.max_steps, type(self).__name__)
        coef, intercept = common.raw_coefficients(choice.theta * unit, shift, scale)
        self.coef_, self.intercept_ = coef, float(intercept + centre)
        self._keep(distinct, choice, np.asarray(data.shares), 2 * unit**2)
        return self

    def predict(self, X):
        check_is_fitted(self)
        return common.features(self, common.without(X, self.group_column)) @ self.coef_ + self.intercept_

    def worst_score(self, X, y, groups=None):
        """1 - (mean squared error of the worst group) / (variance of y): R^2 with the worst group's error."""
        check_is_fitted(self)
        X, _, codes = self._groups_of(X, groups)
        y = common.outcomes(y, len(X), number=True)
        errors = np.bincount(codes, np.square(y - X @ self.coef_ - self.intercept_)) / np.bincount(codes)
        return float(1 - errors.max() / np.var(y))


class WorstGroupClassifier(common.ByScores, _WorstGroup):
    """Logistic regression whose training weights and penalty are chosen for the groups that it predicts worst.

    As WorstGroupRegressor, with the log loss; parameters and attributes are the same, group_loss_ is the
    cross-validated log loss, and tol is in units of it. coef_ has one row for two classes, and one each for more.
    """

    def fit(self, X, y, groups=None):
        protection = self._checked_protection()
        X, groups = common.taken_out(X, self.group_column, groups, "groups")
        X, y = common.rows_to_fit(self, X, y)
        self.classes_, labels = common.classes_of(y)
        distinct, codes = common.codes_of(groups, len(X), "groups", self.folds)
        data, columns, shift, scale = common.labelled_rows(X, labels, codes, self.folds, self.random_state)
        named = type(self).__name__
        choice = choose(data, columns, protection, self.tol, self.max_steps, named)
        self.coef_, self.intercept_ = common.raw_coefficients(choice.theta[: X.shape[1] + 1].T, shift, scale)
        self._keep(distinct, choice, np.asarray(data.shares), 1.0)
        return self

    def decision_function(self, X):
        check_is_fitted(self)
        return common.decisions(
            common.features(self, common.without(X, self.group_column)), self.coef_, self.intercept_
        )

    def worst_score(self, X, y, groups=None):
        """The accuracy in the group where it is lowest."""
        check_is_fitted(self)
        X, _, codes = self._groups_of(X, groups)
        right = self.classes_[common.chosen(common.decisions(X, self.coef_, self.intercept_))] == common.outcomes(
            y, len(X)
        )
        return float(np.min(np.bincount(codes, right) / np.bincount(codes)))
