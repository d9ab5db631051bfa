"""What the estimators share: input, standardised features, a solve in float64 that touches no global setting."""

import warnings
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from bisaddle.apps.folds import CHUNK, Moments, Rows, as_codes, deal, enough_rows, labelled, moments, sums
from bisaddle.estimators.padding import room
from bisaddle.oracle.implicit import Implicit
from bisaddle.oracle.kernels import Kernels
from bisaddle.problem import Point, Problem
from bisaddle.run.result import Result, Status
from bisaddle.run.solve import solve

# of the gradient of the lower level, in the model that is kept
ACCURACY = 1e-9
# rows of a group (task) below which its cross-validated loss says little
FEW = 50


class ByScores(ClassifierMixin):
    """A classifier whose classes follow from decision_function."""

    classes_: np.ndarray

    def decision_function(self, X) -> np.ndarray:
        raise NotImplementedError

    def predict_proba(self, X):
        return probabilities(self.decision_function(X))

    def predict(self, X):
        scores = self.decision_function(X)  # which says so first if nothing has been fitted
        return self.classes_[chosen(scores)]


def in_float64():
    """with in_float64(): in this thread, arrays made of NumPy's float64 stay float64. Nothing else changes."""
    switch: Any = getattr(jax, "enable_x64", None)
    if switch is None:  # before jax 0.8
        from jax.experimental import enable_x64 as switch  # pyright: ignore[reportAttributeAccessIssue]
    return switch(True)


def solved(problem: Problem, start: Point, tol: float, max_steps: int) -> Result:
    return solve(problem, start, tol=tol, max_steps=max_steps, progress=False)


def refined(problem: Problem, point: Point) -> tuple[Any, np.ndarray]:
    """(theta*(x), f_y there): a certificate speaks of x, and the theta of a run is only as near as its gap required."""
    kernels = Kernels(problem, point)
    found = Implicit(kernels, *kernels.flat(point), accuracy=ACCURACY)
    return kernels.theta.tree(found.theta), np.array(found.upper.f_y)


def warn_if_uncertified(result: Result, tol: float, named: str) -> None:
    """named: the estimator in whose name the warning is given."""
    if result.status not in (Status.CERTIFIED, Status.ACCEPTABLE):
        warnings.warn(
            f"{named} is not certified: {result.status.name}, gap {float(result.gap):.1e} against tol={tol:g}; "
            f"{result.status.advice} Raise max_steps or tol, or look at features that are nearly collinear.",
            ConvergenceWarning,
            stacklevel=4,
        )


def checked_choices(folds: Any, tol: Any, max_steps: Any) -> None:
    """ValueError for parameters that are not numbers of the right kind."""
    if isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2:
        raise ValueError(f"folds must be a whole number >= 2, given {folds!r}")
    if not is_number(tol) or not (np.isfinite(tol) and tol > 0):
        raise ValueError(f"tol must be a finite number > 0, given {tol!r}")
    if isinstance(max_steps, bool) or not isinstance(max_steps, int | np.integer) or max_steps < 1:
        raise ValueError(f"max_steps must be a whole number >= 1, given {max_steps!r}")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def taken_out(X: Any, column: Any, given: Any, what: str) -> tuple[Any, Any]:
    """(X without the column, the labels): from the argument of that name or from the column of a table, not both."""
    if column is None:
        return X, given
    if given is not None:
        raise ValueError(f"{what} are named twice, by {what}= and by the column {column!r}; leave one out")
    names = list(getattr(X, "columns", []))
    if column not in names:
        has = f"columns {names}" if names else f"no named columns ({type(X).__name__})"
        raise ValueError(f"the column {column!r} is not in X, which has {has}; pass a DataFrame, or use {what}=")
    return X[[name for name in names if name != column]], np.asarray(X[column])


def without(X: Any, column: Any) -> Any:
    """X without the column, if it is there."""
    names = list(getattr(X, "columns", []))
    return X[[name for name in names if name != column]] if column is not None and column in names else X


def rows_to_fit(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """X and y, checked; a float32 X stays one, so that nothing is copied."""
    checked: Any = validate_data(estimator, X, y, dtype=[np.float64, np.float32], ensure_min_samples=2, **options)
    return checked


def features(estimator: Any, X: Any) -> np.ndarray:
    """X at prediction, checked against what was fitted."""
    checked: Any = validate_data(estimator, X, reset=False, dtype=[np.float64, np.float32])
    return checked


def outcomes(y: Any, rows: int, number: bool = False) -> np.ndarray:
    """y at a score, one entry for each row; number: as float64, which must be finite."""
    array = np.asarray(y, dtype=np.float64) if number else np.asarray(y)
    if array.shape != (rows,):
        raise ValueError(f"y must have one entry for each of the {rows} rows, given shape {array.shape}")
    if number and not np.all(np.isfinite(array)):
        raise ValueError("y must be finite, given NaN or infinity")
    return array


def codes_of(labels: Any, rows: int, what: str, folds: int) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct labels, the place of each row's); None is one label for all. All need a row in every fold."""
    if labels is None:
        enough_rows(rows, folds)
        return np.zeros(1, int), np.zeros(rows, int)
    distinct, codes = as_codes(labels, what, rows)
    counts = np.bincount(codes)
    if counts.min() < folds:
        enough_rows(int(counts.min()), folds, f"{what[:-1]} '{distinct[np.argmin(counts)]}'", what)
    if len(distinct) > 1 and counts.min() < FEW:
        few = np.flatnonzero(counts < FEW)
        shown = ", ".join(f"{distinct[g]} ({counts[g]})" for g in few[:5]) + (", ..." if len(few) > 5 else "")
        warnings.warn(
            f"{len(few)} of {len(counts)} {what} have fewer than {FEW} rows: {shown}. Their cross-validated losses say "
            f"little, and the weights may follow chance; merge small {what}.",
            stacklevel=3,
        )
    return distinct, codes


def standard(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, standard deviation) of each column, a chunk of rows at a time; 1 for a column that does not vary."""
    parts = [slice(start, start + CHUNK) for start in range(0, len(X), CHUNK)]
    mean = np.sum([X[part].sum(axis=0, dtype=np.float64) for part in parts], axis=0) / len(X)
    spread = np.sqrt(np.sum([np.square(X[part] - mean).sum(axis=0) for part in parts], axis=0) / len(X))
    return mean, np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)


class Standard(NamedTuple):
    """Moments of standardised rows and targets in folds, and the units that bring coefficients back."""

    data: Moments
    shift: np.ndarray
    scale: np.ndarray
    centre: float
    unit: float


def standard_moments(X: np.ndarray, y: np.ndarray, codes: np.ndarray, folds: int, seed: Any) -> Standard:
    shift, scale = standard(X)
    y = np.asarray(y, dtype=np.float64)
    (centre,), (unit,) = standard(y[:, None])
    fold, sizes = deal(codes, folds, seed), (folds, int(codes.max()) + 1)
    data = moments(*sums(X, (y - centre) / unit, codes, fold, sizes, shift=shift, scale=scale))
    return Standard(data, shift, scale, float(centre), float(unit))


def labelled_rows(
    X: np.ndarray, labels: np.ndarray, codes: np.ndarray, folds: int, seed: Any
) -> tuple[Rows, int, np.ndarray, np.ndarray]:
    """(rows, scores of a row, shift, scale) of a logistic fit: standardised, with a 1 in front, in folds."""
    shift, scale = standard(X)
    classes, sizes = int(labels.max()) + 1, (folds, int(codes.max()) + 1)
    fold = deal(codes, folds, seed, labels)
    rows = labelled(X, labels, codes, fold, sizes, shift=shift, scale=scale, shape=room(*X.shape))
    return rows, 1 if classes == 2 else classes, shift, scale


def raw_coefficients(theta: np.ndarray, shift: np.ndarray, scale: np.ndarray) -> tuple[np.ndarray, Any]:
    """(coefficients, intercepts) for the features as given, from those for standardised ones, intercepts first."""
    coef = theta[..., 1:] / scale
    return coef, theta[..., 0] - coef @ shift


def classes_of(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    check_classification_targets(y)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least 2 classes, given one class: {classes[0]}")
    return classes, labels


def decisions(X: np.ndarray, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    scores = X @ coef.T + intercept
    return scores[:, 0] if len(coef) == 1 else scores


def probabilities(scores: np.ndarray) -> np.ndarray:
    return np.column_stack([expit(-scores), expit(scores)]) if scores.ndim == 1 else softmax(scores, axis=1)


def chosen(scores: np.ndarray) -> np.ndarray:
    return (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
