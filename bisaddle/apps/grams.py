"""Least squares from Gram matrices that were collected in one pass over the rows: bs.streams.gram.

The problems are those of multitask.regression and hyperparameter.tuning; only the rows are gone.
"""

from typing import Any

import numpy as np

from bisaddle.apps import hyperparameter
from bisaddle.apps.folds import moments
from bisaddle.apps.multitask import GramData, Sizes, quadratic
from bisaddle.apps.tasks import Weights, device, penalties, shared_part
from bisaddle.problem import Point, Problem
from bisaddle.sets import ConvexSet, L1Ball
from bisaddle.streams.grams import Gram
from bisaddle.trees import Number


def regression(
    train: Gram,
    valid: Gram,
    radius: Number = 5.0,
    ridge: Number = 0.1,
    divergence: Number = 0.0,
    *,
    shared: str = "vector",
    x_set: ConvexSet | None = None,
    weights: Weights = "simplex",
    shift: Any = None,
    scale: Any = None,
) -> tuple[Problem, Point]:
    """multitask.regression in Gram form, of training and validation rows with the same columns and tasks.

    shift, scale: of the features, such as train.mean and train.deviation, which standardise them. The others are those
    of multitask.regression.
    """
    mine, theirs = (_one_fold("regression", given) for given in (train, valid))
    if mine != theirs:
        raise ValueError(f"train and valid need the same columns and tasks, given {mine} and {theirs}")
    d, T = mine
    (H, c, q), (valid_H, valid_c, valid_q) = (_means(given, shift, scale) for given in (train, valid))
    ridge, divergence = penalties(ridge, divergence)
    part = shared_part(shared, x_set, radius, T, (d,))
    data = GramData(*map(device, (H, c, q, valid_H, valid_c, valid_q, ridge, divergence)))
    norm, top = np.linalg.norm, np.linalg.eigvalsh(H)[:, -1]
    columns = np.sqrt(np.max(np.einsum("tii->ti", H), axis=1))
    along = part.reach * (np.sqrt(top) * columns if isinstance(part.x_set, L1Ball) else top)
    sizes = Sizes(top, along, norm(c, axis=1), np.linalg.eigvalsh(valid_H)[:, -1], norm(valid_c, axis=1))
    return quadratic(data, part, weights, sizes)


def tuning(
    found: Gram,
    *,
    penalties: Any = "one",
    reweight: bool = True,
    against: str = "groups",
    protection: Number | str = 0.5,
    intercept: bool = True,
    bounds: tuple[Number, Number] = (hyperparameter.LOWEST, hyperparameter.HIGHEST),
    offset: Any = None,
    standardise: bool = True,
) -> tuple[Problem, Point]:
    """hyperparameter.tuning with the squared loss, of rows that were dealt into folds: gram(..., folds=3).

    The tasks of the Gram are the groups. standardise: features get mean 0 and variance 1, for which the bounds are
    made. The others are those of hyperparameter.tuning.
    """
    folds, groups = found.folds, found.tasks
    hyperparameter.check_choices("squared", against, bounds)
    if folds < 2:
        raise ValueError("tuning needs rows in at least 2 folds, given a Gram without folds; use gram(..., folds=3)")
    counts = found.counts.reshape(folds, groups)
    if np.any(counts.sum(axis=0) - counts < 1):
        short = int(np.argmax(np.any(counts.sum(axis=0) - counts < 1, axis=0)))
        raise ValueError(f"every group needs rows outside each fold; group number {short} has none")
    scale = found.deviation
    if standardise and not np.all(scale > 0):
        raise ValueError(f"column {int(np.argmin(scale))} of the features is constant; leave it out")
    change = {"shift": found.mean, "scale": scale} if standardise else {}
    sums, _ = found.sums(intercept=intercept, **change)
    data = moments(sums.reshape(folds, groups, *sums.shape[1:]), counts, offset)
    kind = hyperparameter.kinds(penalties, found.width, intercept)
    made = hyperparameter.posed(data, kind, np.zeros(len(kind)), 0, against, protection, bounds, reweight)
    return hyperparameter.with_constants(*made, 0, against)


def _one_fold(who: str, given: Gram) -> tuple[int, int]:
    """(columns, tasks); ValueError unless all tasks have rows, and there are no folds."""
    if not isinstance(given, Gram):
        raise ValueError(f"{who} needs a bs.streams.Gram, given {type(given).__name__}; use bs.streams.gram(chunks)")
    if given.folds > 1:
        raise ValueError(f"{who} needs a Gram without folds, given one with {given.folds}")
    if not np.all(given.counts > 0):
        raise ValueError(f"task {int(np.argmin(given.counts))} has no rows; leave it out")
    return given.width, given.tasks


def _means(given: Gram, shift: Any, scale: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A'A/n, A'b/n, b'b/n of every task."""
    sums, counts = given.sums(shift, scale)
    mean = sums / counts[:, None, None]
    return np.ascontiguousarray(mean[:, :-1, :-1]), np.ascontiguousarray(mean[:, :-1, -1]), mean[:, -1, -1].copy()
