"""Regression with natural groups, for usefulness.py: every grouping of every table, 20 splits, paired differences."""

import time
from collections.abc import Callable

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.usefulness_data import CHOSEN, CONFIRMED, load
from bisaddle.estimators import PartialPoolingRegressor, WorstGroupRegressor

PENALTIES = np.exp(np.linspace(-9, 4, 27))
# of the rows, for tests
SHARE = 0.5


def corrected(differences: np.ndarray, ratio: float = SHARE / (1 - SHARE)) -> tuple[float, float]:
    """(mean, standard error) over splits, for training rows that overlap; ratio: test rows to training rows.

    Nadeau and Bengio 2003: se^2 = (1/J + ratio) var. ratio = 0 is the plain standard error.
    """
    return float(differences.mean()), float(np.sqrt((1 / len(differences) + ratio) * differences.var(ddof=1)))


def verdict(mean: float, error: float) -> str:
    return "win" if mean < -2 * error else "loss" if mean > 2 * error else "tie"


def ridge(X, y, weights=None):
    model = make_pipeline(StandardScaler(), RidgeCV(PENALTIES * len(y)))
    return model.fit(X, y, **({} if weights is None else {"ridgecv__sample_weight": weights}))


def regression_models() -> dict[str, Callable]:
    """name -> function(X, y, groups) that gives a function(X, groups) -> predictions"""

    def balanced(X, y, groups):
        _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
        model = ridge(X, y, len(y) / len(counts) / counts[codes])
        return lambda X, groups: model.predict(X)

    def pooled(X, y, groups):
        model = ridge(X, y)
        return lambda X, groups: model.predict(X)

    def dummies(X, y, groups):
        names = np.unique(groups)[1:]
        widen = lambda X, groups: np.column_stack([X, groups[:, None] == names])
        model = ridge(widen(X, groups), y)
        return lambda X, groups: model.predict(widen(X, groups))

    def separate(X, y, groups):
        models = {group: ridge(X[groups == group], y[groups == group]) for group in np.unique(groups)}

        def predict(X, groups):
            found = np.empty(len(X))
            for group, model in models.items():
                if np.any(groups == group):
                    found[groups == group] = model.predict(X[groups == group])
            return found

        return predict

    def worst_group(protection):
        def fit(X, y, groups):
            model = WorstGroupRegressor(protection).fit(X, y, groups=groups)
            return lambda X, groups: model.predict(X)

        return fit

    def pooling(X, y, groups):
        model = PartialPoolingRegressor().fit(X, y, tasks=groups)
        return lambda X, groups: model.predict(X, groups)

    return {
        "ridge": pooled,
        "balanced ridge": balanced,
        "WorstGroup 0.5": worst_group(0.5),
        "WorstGroup worst": worst_group("worst"),
        "ridge, group dummies": dummies,
        "separate ridges": separate,
        "PartialPooling": pooling,
    }


def regression(names, splits: int) -> dict:
    """table -> model -> (worst, mean, equal mix), one entry a split: mean squared errors on half of the rows"""
    results: dict = {}
    for table in (table for name in names for table in load(name)):
        found, clock = {}, time.process_time()
        for seed in range(splits):
            parts = train_test_split(
                table.features, table.target, table.groups, test_size=SHARE, random_state=seed, stratify=table.groups
            )
            X, X_test, y, y_test, groups, groups_test = parts
            for label, fit in regression_models().items():
                errors = (fit(X, y, groups)(X_test, groups_test) - y_test) ** 2
                by_group = [errors[groups_test == group].mean() for group in np.unique(groups_test)]
                found.setdefault(label, []).append((max(by_group), errors.mean(), np.mean(by_group)))
        results[table.name] = {label: np.array(values).T for label, values in found.items()}
        _, counts = np.unique(table.groups, return_counts=True)
        size = f"{len(table.target)} rows, {table.features.shape[1]} features, groups of {counts.tolist()}"
        print(f"{table.name}: {size}, {time.process_time() - clock:.1f} CPU s", flush=True)
    return results


# heading, which measure (0 the worst group, 1 all rows, 2 groups equally frequent), [(model, base)]
COMPARISONS = (
    (
        "Groups known in training only, against ridge regression",
        0,
        [(label, "ridge") for label in ("balanced ridge", "WorstGroup 0.5", "WorstGroup worst")],
    ),
    (
        "Groups known at prediction",
        0,
        [("PartialPooling", base) for base in ("ridge", "separate ridges", "ridge, group dummies")],
    ),
    (
        "Another mix of groups at prediction: all equally frequent, against ridge regression",
        2,
        [(label, "ridge") for label in ("balanced ridge", "WorstGroup 0.5", "WorstGroup worst")],
    ),
)


def regression_tables(results: dict) -> str:
    return "\n\n".join(_table(results, *comparison) for comparison in COMPARISONS)


def _table(results: dict, title: str, measure: int, pairs: list[tuple[str, str]]) -> str:
    what = "of the error of the worst group" if measure == 0 else "of the mean error"
    alone = len({base for _, base in pairs}) == 1
    heads = [label if alone else f"{label} against {base}" for label, base in pairs]
    lines = [f"### {title}", "", f"Change in % {what} ± 2 se (of the mean over all rows in brackets).", ""]
    lines += [f"| set, groups | {' | '.join(heads)} |", "|---" * (len(pairs) + 1) + "|"]
    for part, names in (("used to choose the defaults", CHOSEN), ("not used", CONFIRMED)):
        mine = {name: found for name, found in results.items() if name.split(",")[0] in names}
        for name, found in mine.items():
            lines.append(f"| {name} | {' | '.join(_cell(found[a], found[b], measure) for a, b in pairs)} |")
        for kind, ratio in (("", SHARE / (1 - SHARE)), (", by plain standard errors", 0.0)):
            won = [
                [verdict(*corrected(found[a][measure] / found[b][measure] - 1, ratio)) for found in mine.values()]
                for a, b in pairs
            ]
            cells = [" / ".join(str(column.count(word)) for word in ("win", "tie", "loss")) for column in won]
            lines.append(f"| wins / ties / losses, sets {part}{kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(found: np.ndarray, base: np.ndarray, measure: int) -> str:
    change, error = corrected(found[measure] / base[measure] - 1)
    mark = {"win": "**", "tie": "", "loss": "*"}[verdict(change, error)]
    return f"{mark}{100 * change:+.1f} ± {200 * error:.1f}{mark} ({100 * np.mean(found[1] / base[1] - 1):+.1f})"
