"""A table with a group column, and a model whose worst group does as well as it can: by its loss, or by its regret."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bisaddle.apps.folds import as_codes, checked_labels, deal, moments, sums
from bisaddle.apps.hyperparameter import FAINT, HIGHEST, LOSSES, LOWEST, tuning
from bisaddle.apps.pooling import pooled
from bisaddle.apps.tasks import as_numbers
from bisaddle.problem import Point, Problem
from bisaddle.trees import Number

CRITERIA = ("loss", "regret")
MODELS = ("shared", "pooled")


def minimax(
    table: Any,
    target: str,
    group: str,
    *,
    columns: Sequence[str] | None = None,
    loss: str = "squared",
    criterion: str = "loss",
    model: str = "shared",
    protection: Number | str = "worst",
    folds: int = 3,
    seed: int = 0,
) -> tuple[Problem, Point]:
    """The problem of a fair linear model, from a table in one call.

        "loss":     min_x max_{y in U} sum_g y_g CV_g(theta(x))
        "regret":   min_x max_{y in U} sum_g y_g (CV_g(theta(x)) - best_g)

    best_g: the lowest cross-validated loss of a model that is fitted to group g alone. A group that nothing can predict
    well decides the first, whatever is done for it; the second asks what a group loses by sharing the model.

    table: a pandas or polars DataFrame, or a dict of columns; target, group: columns of it; columns: the features,
    by default all others, as numbers, standardised here. loss: "squared", "logistic" or "softmax" (classes 0, 1, ...).
    model: "shared" is hyperparameter.tuning, which weighs the groups in training and does not need the group to
    predict; "pooled" is pooling.pooled, where each group has a part of its own. protection: U as in tuning.
    """
    for name, given, known in (("criterion", criterion, CRITERIA), ("model", model, MODELS), ("loss", loss, LOSSES)):
        if given not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, given {given!r}")
    features, targets, groups = read_table(table, target, group, columns)
    if loss == "squared" and np.std(checked_labels(targets, loss)) == 0:
        raise ValueError(f"the target {target!r} is constant; there is nothing to learn")
    offset = own_best(features, targets, groups, loss, folds, seed) if criterion == "regret" else None
    shared: dict[str, Any] = {"loss": loss, "protection": protection, "folds": folds, "offset": offset, "seed": seed}
    return (
        tuning(features, targets, groups, **shared)
        if model == "shared"
        else pooled(features, targets, groups, **shared)
    )


def read_table(
    table: Any, target: str, group: str, columns: Sequence[str] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(standardised features, targets, groups) from columns of a table; constant features become zeros."""
    names = list(table.keys() if isinstance(table, Mapping) else getattr(table, "columns", []))
    if not names:
        raise ValueError(
            f"the table must be a pandas or polars DataFrame or a dict of columns, given {type(table).__name__}"
        )
    if columns is None:
        columns = [name for name in names if name not in (target, group)]
    if isinstance(columns, str) or {target, group} & set(columns) or target == group:
        raise ValueError(
            f"target, group and the list columns must be different columns, given {target!r}, {group!r}, {columns!r}"
        )
    for name in (target, group, *columns):
        if name not in names:
            raise ValueError(f"the table has no column {name!r}; it has {names}")
    if not columns:
        raise ValueError(f"the table has no features besides {target!r} and {group!r}")
    lengths = {name: len(table[name]) for name in (target, group, *columns)}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"columns must be equally long, given {lengths}")
    features = np.column_stack([_number_column(table, name, "feature") for name in columns])
    if not np.all(np.isfinite(features)):
        missing = [name for name, column in zip(columns, features.T, strict=True) if not np.all(np.isfinite(column))]
        raise ValueError(f"features must be finite, and {missing} are not; fill them or drop the rows")
    spread = features.std(axis=0)
    varies = spread > 1e-12 * np.abs(features.mean(axis=0))
    features = np.where(varies, features - features.mean(axis=0), 0) / np.where(varies, spread, 1)
    _number_column(table, target, "target")  # classes stay whole numbers
    return features, np.asarray(table[target]), np.asarray(table[group])


def _number_column(table: Any, name: str, what: str) -> np.ndarray:
    return as_numbers(f"the {what} {name!r}", table[name])


def own_best(features, targets, groups, loss: str = "squared", folds: int = 3, seed: int = 0, tried: int = 27):
    """The lowest cross-validated loss of each group's own model, over penalties from exp(-9) to exp(4).

    The folds are those of `tuning` with the same seed. A group needs two rows in which something can be learned; one
    with a single class has the loss of a model that always says so.
    """
    features, labels = np.asarray(features, float), checked_labels(targets, loss)
    distinct, codes = as_codes(groups, "groups", len(features))
    penalties = np.exp(np.linspace(LOWEST, HIGHEST, tried))
    fold = deal(codes, folds, seed, None if loss == "squared" else labels)
    if loss == "squared":
        return _least_squares(moments(*sums(features, labels, codes, fold, (folds, len(distinct)))), penalties)
    rows = np.column_stack([np.ones(len(features)), features])
    hot = labels[:, None] if loss == "logistic" else np.eye(int(labels.max()) + 1)[labels]
    best = []
    for g in range(len(distinct)):
        mine = codes == g
        best.append(min(_held_out(rows[mine], hot[mine], fold[mine], folds, penalty) for penalty in penalties[::3]))
    return np.array(best)


def _least_squares(data: Any, penalties: np.ndarray) -> np.ndarray:
    K, G = data.left_out.shape
    losses = np.zeros((G, len(penalties)))
    free = np.eye(data.gram.shape[-1])
    free[0, 0] = 0
    for g in range(G):
        for k in range(K):
            kept = 1 - data.left_out[k, g]
            held = [data.gram[-1, g] - kept * data.gram[k, g], data.cross[-1, g] - kept * data.cross[k, g]]
            square = data.square[-1, g] - kept * data.square[k, g]
            for i, penalty in enumerate(penalties):
                theta = np.linalg.solve(data.gram[k, g] + penalty * free, data.cross[k, g])
                losses[g, i] += 0.5 * (theta @ held[0] @ theta - 2 * held[1] @ theta + square)
    return losses.min(axis=1)


def _held_out(rows: np.ndarray, hot: np.ndarray, fold: np.ndarray, folds: int, penalty: float) -> float:
    from scipy.optimize import minimize  # slow to load, and every user of apps would wait for it
    from scipy.special import expit, logsumexp, softmax

    ridge = np.array([FAINT, *np.full(rows.shape[1] - 1, penalty)])[:, None]
    shape = (rows.shape[1], hot.shape[1])

    def losses(scores, hot):
        if hot.shape[1] == 1:
            return (np.logaddexp(0, scores) - hot * scores)[:, 0]
        return logsumexp(scores, axis=1) - np.sum(hot * scores, axis=1)

    def total(flat, rows, hot):
        theta = flat.reshape(shape)
        scores = rows @ theta
        chance = expit(scores) if hot.shape[1] == 1 else softmax(scores, axis=1)
        value = losses(scores, hot).mean() + 0.5 * np.sum(ridge * theta**2)
        return value, (rows.T @ (chance - hot) / len(rows) + ridge * theta).ravel()

    held = 0.0
    for k in range(folds):
        kept = fold != k
        if kept.all():
            continue
        found = minimize(total, np.zeros(np.prod(shape)), (rows[kept], hot[kept]), method="L-BFGS-B", jac=True)
        held += losses(rows[~kept] @ found.x.reshape(shape), hot[~kept]).sum()
    return held / len(rows)
