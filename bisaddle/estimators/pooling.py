"""Linear models of several tasks that are known at prediction: each is drawn towards a shared one."""

import warnings
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils.validation import check_is_fitted

from bisaddle.apps.folds import Moments, Rows, width
from bisaddle.apps.pooling import posed
from bisaddle.estimators import common
from bisaddle.estimators.padding import bucket, emptied_moments, emptied_rows, width_of
from bisaddle.problem import Point, Problem
from bisaddle.run.result import Result, Status
from bisaddle.sets import Box

# towards one model for all, and towards one for each: where tasks are not penalised at all, f hardly depends on how
# little, and a single run may end there
STARTS = ((-3.0, 4.0, -0.5), (-5.0, 1.5, -3.0))


class Choice(NamedTuple):
    """What the problem found: coefficients of standardised features, intercept first, and how they were chosen."""

    shared: np.ndarray
    own: np.ndarray
    penalties: np.ndarray
    losses: np.ndarray
    gap: float
    status: str
    steps: int


def choose(data: Moments | Rows, columns: int, tol: float, max_steps: int, named: str) -> Choice:
    """Penalties with the lowest cross-validated mean. columns: scores of a row, 0 for least squares."""
    T, d = len(data.shares), width(data)
    count = bucket(T)
    padded = emptied_moments(data, width_of(d - 1), count) if isinstance(data, Moments) else emptied_rows(data, count)
    with common.in_float64():
        problem, start = posed(padded, np.full(count, 1 / T), columns, protection="worst")
        # y fixed at the shares is the mean, and f_y then has the losses of the tasks
        problem = Problem(**{**vars(problem), "y_set": Box(np.asarray(padded.shares), np.asarray(padded.shares))})
        starts = [Point(np.array(x), start.theta, start.y) for x in STARTS[: 1 if T == 1 else None]]
        result = min((common.solved(problem, first, tol, max_steps) for first in starts), key=_order)
        common.warn_if_uncertified(result, tol, named)
        theta, losses = common.refined(problem, result.point)
    shared, slopes, levels = np.asarray(result.x)
    return Choice(
        theta["shared"][-1, :d],
        theta["own"][-1, :T, :d],
        np.exp([shared, shared + slopes, levels]),
        losses[:T],
        float(result.gap),
        result.status.name,
        result.steps,
    )


def _order(result: Result) -> tuple[bool, float]:
    return result.status is not Status.CERTIFIED, float(result.certificate.worst_value)


class _PartialPooling(BaseEstimator):
    """What regressor and classifier share: parameters, attributes, which task a row belongs to."""

    coef_: Any
    intercept_: Any
    task_coef_: np.ndarray
    task_intercept_: np.ndarray

    def __init__(self, *, folds=3, task_column=None, tol=1e-4, max_steps=10_000, random_state=0):
        self.folds = folds
        self.task_column = task_column
        self.tol = tol
        self.max_steps = max_steps
        self.random_state = random_state

    def _keep(self, tasks: np.ndarray, found: Choice, unit: float, named: bool) -> None:
        self.tasks_, self._named = tasks, named
        self.task_loss_ = found.losses * unit
        self.shared_penalty_, self.slope_penalty_, self.level_penalty_ = map(float, found.penalties)
        self.gap_, self.status_, self.n_steps_ = found.gap, found.status, found.steps

    def _rows(self, X: Any, tasks: Any) -> tuple[np.ndarray, np.ndarray]:
        """(features, the place of each row's task in tasks_, or -1: the shared model)"""
        check_is_fitted(self)
        if self.task_column is not None and self.task_column in list(getattr(X, "columns", [])):
            X, tasks = common.taken_out(X, self.task_column, tasks, "tasks")
        X = common.features(self, X)
        if tasks is None:
            if self._named and len(self.tasks_) > 1:
                warnings.warn(
                    "no tasks given: every row is predicted with the shared part; pass tasks=, as in fit",
                    stacklevel=4,
                )
            return X, np.full(len(X), -1 if self._named else 0)
        tasks = np.asarray(tasks)
        if tasks.shape != (len(X),):
            raise ValueError(f"tasks must have one entry for each of the {len(X)} rows, given shape {tasks.shape}")
        known = {task: place for place, task in enumerate(self.tasks_.tolist())}
        return X, np.array([known.get(task, -1) for task in tasks.tolist()], dtype=int)

    def _scores(self, X: np.ndarray, places: np.ndarray) -> np.ndarray:
        """(rows, scores of a row), each row by its task's model, or by the shared one"""
        coef = np.concatenate([self.task_coef_, self.coef_[None]])  # place -1 is the last
        intercept = np.concatenate([self.task_intercept_, np.asarray(self.intercept_)[None]])
        found = np.empty((len(X), *np.shape(self.intercept_)))
        for place in np.unique(places):
            rows = places == place
            found[rows] = X[rows] @ coef[place].T + intercept[place]
        return found


class PartialPoolingRegressor(RegressorMixin, _PartialPooling):
    """Linear regression of several tasks, each drawn towards a shared model as strongly as suits rows left out.

        (c, v) = argmin sum_t (n_t / n) L_t(c + v_t) + (shared/2) |c|^2 + (1/2T) sum_t (slope |v_t|^2 + level b_t^2)

    with the three penalties that have the lowest cross-validated mean error; b_t is what v_t adds to the intercept,
    which is free in c. Tasks are passed to fit and to predict; one that fit has not seen gets the shared part, and so
    do all rows if no tasks are passed. Without tasks in fit it is ridge regression with a cross-validated penalty.
    Features are standardised inside.

    folds: rows of every task are dealt into this many folds. random_state: how they are shuffled.
    task_column: a column of X, a pandas or polars DataFrame, that has the tasks; it is not a feature.
    tol, max_steps: the gap to certify, and after how many steps to stop without (in units of the variance of y).

    coef_, intercept_ (the shared part); tasks_ and, in its order, task_coef_, task_intercept_ (shared and own part
    together) and task_loss_ (cross-validated mean squared error); shared_penalty_, slope_penalty_, level_penalty_ (on
    standardised features); gap_, status_, n_steps_ (of the certificate and the run).
    """

    def fit(self, X, y, tasks=None):
        common.checked_choices(self.folds, self.tol, self.max_steps)
        X, tasks = common.taken_out(X, self.task_column, tasks, "tasks")
        X, y = common.rows_to_fit(self, X, y, y_numeric=True)
        distinct, codes = common.codes_of(tasks, len(X), "tasks", self.folds)
        data, shift, scale, centre, unit = common.standard_moments(X, y, codes, self.folds, self.random_state)
        found = choose(data, 0, self.tol, self.max_steps, type(self).__name__)
        self.coef_, intercept = common.raw_coefficients(found.shared * unit, shift, scale)
        self.intercept_ = float(intercept + centre)
        self.task_coef_, intercepts = common.raw_coefficients((found.shared + found.own) * unit, shift, scale)
        self.task_intercept_ = intercepts + centre
        self._keep(distinct, found, 2 * unit**2, tasks is not None)
        return self

    def predict(self, X, tasks=None):
        return self._scores(*self._rows(X, tasks))

    def score(self, X, y, sample_weight=None, tasks=None):
        """R^2 of predict(X, tasks)."""
        return r2_score(y, self.predict(X, tasks), sample_weight=sample_weight)

    def worst_score(self, X, y, tasks=None):
        """1 - (mean squared error of the worst task) / (variance of y); tasks not seen in fit count as one."""
        X, places = self._rows(X, tasks)
        y = common.outcomes(y, len(X), number=True)
        errors = np.square(y - self._scores(X, places))
        return float(1 - max(errors[places == place].mean() for place in np.unique(places)) / np.var(y))


class PartialPoolingClassifier(ClassifierMixin, _PartialPooling):
    """Logistic regression of several tasks, each drawn towards a shared model as strongly as suits rows left out.

    As PartialPoolingRegressor, with the log loss; parameters and attributes are the same, task_loss_ is the
    cross-validated log loss. coef_ and the entries of task_coef_ have one row for two classes, and one each for more.
    """

    def fit(self, X, y, tasks=None):
        common.checked_choices(self.folds, self.tol, self.max_steps)
        X, tasks = common.taken_out(X, self.task_column, tasks, "tasks")
        X, y = common.rows_to_fit(self, X, y)
        self.classes_, labels = common.classes_of(y)
        distinct, codes = common.codes_of(tasks, len(X), "tasks", self.folds)
        data, columns, shift, scale = common.labelled_rows(X, labels, codes, self.folds, self.random_state)
        named = type(self).__name__
        found, d = choose(data, columns, self.tol, self.max_steps, named), X.shape[1] + 1
        self.coef_, self.intercept_ = common.raw_coefficients(found.shared[:d].T, shift, scale)
        together = np.swapaxes(found.shared + found.own, 1, 2)[..., :d]
        self.task_coef_, self.task_intercept_ = common.raw_coefficients(together, shift, scale)
        self._keep(distinct, found, 1.0, tasks is not None)
        return self

    def decision_function(self, X, tasks=None):
        scores = self._scores(*self._rows(X, tasks))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict_proba(self, X, tasks=None):
        return common.probabilities(self.decision_function(X, tasks))

    def predict(self, X, tasks=None):
        scores = self.decision_function(X, tasks)
        return self.classes_[common.chosen(scores)]

    def score(self, X, y, sample_weight=None, tasks=None):
        """The accuracy of predict(X, tasks)."""
        return accuracy_score(y, self.predict(X, tasks), sample_weight=sample_weight)

    def worst_score(self, X, y, tasks=None):
        """The accuracy in the task where it is lowest; tasks not seen in fit count as one."""
        X, places = self._rows(X, tasks)
        scores = self._scores(X, places)
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
        right = self.classes_[common.chosen(scores)] == common.outcomes(y, len(X))
        return float(min(right[places == place].mean() for place in np.unique(places)))
