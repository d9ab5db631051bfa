"""What the estimators are good for, on data readable without a download: writes docs/usefulness.md.

    python -m benchmarks.usefulness --splits 20              all parts, then the page
    python -m benchmarks.usefulness --splits 5 --part patch  one part, printed only

Needs the extra `usefulness`. Every comparison is paired over random splits; standard errors are corrected for the
overlap of training rows (Nadeau and Bengio 2003): se^2 = (1/J + n_test/n_train) var. A win is more than 2 se.
"""

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.usefulness_data import CHOSEN, CONFIRMED, load
from bisaddle.estimators import (
    AdversarialClassifier,
    PartialPoolingRegressor,
    WorstGroupClassifier,
    WorstGroupRegressor,
)

PAGE = Path(__file__).parents[1] / "docs" / "usefulness.md"
PENALTIES = np.exp(np.linspace(-9, 4, 27))


# --- paired differences -----------------------------------------------------------------------------------------------


def corrected(differences: np.ndarray, test_share: float) -> tuple[float, float]:
    """(mean, corrected standard error) over splits."""
    J = len(differences)
    ratio = test_share / (1 - test_share)
    return float(differences.mean()), float(np.sqrt((1 / J + ratio) * differences.var(ddof=1)))


def verdict(mean: float, error: float) -> str:
    return "win" if mean < -2 * error else "loss" if mean > 2 * error else "tie"


def change(found: np.ndarray, base: np.ndarray, test_share: float) -> tuple[str, str]:
    """(the relative change in %, with 2 corrected standard errors; win, tie or loss)"""
    mean, error = corrected(found / base - 1, test_share)
    return f"{100 * mean:+.1f} ± {200 * error:.1f}", verdict(mean, error)


# --- regression with groups -------------------------------------------------------------------------------------------


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
    """set -> model -> (worst, mean, equal mix), one entry a split: mean squared errors by group, on half of the rows"""
    results: dict = {}
    for name in names:
        table, clock = load(name), time.process_time()
        found: dict = {}
        for seed in range(splits):
            parts = train_test_split(
                table.features, table.target, table.groups, test_size=0.5, random_state=seed, stratify=table.groups
            )
            X, X_test, y, y_test, groups, groups_test = parts
            for label, fit in regression_models().items():
                errors = (fit(X, y, groups)(X_test, groups_test) - y_test) ** 2
                by_group = [errors[groups_test == group].mean() for group in np.unique(groups_test)]
                found.setdefault(label, []).append((max(by_group), errors.mean(), np.mean(by_group)))
        results[name] = {label: np.array(values).T for label, values in found.items()}
        size = f"{len(table.target)} rows, {table.features.shape[1]} features, {len(np.unique(table.groups))} groups"
        print(f"{name}: {size}, {time.process_time() - clock:.1f} CPU s", flush=True)
    return results


def regression_tables(results: dict) -> str:
    lines = []
    pairs = [
        (
            "Groups known in training only, against ridge regression",
            "ridge",
            ["balanced ridge", "WorstGroup 0.5", "WorstGroup worst"],
        ),
        (
            "Groups known at prediction, against ridge regression with group dummies",
            "ridge, group dummies",
            ["separate ridges", "PartialPooling"],
        ),
    ]
    for title, base, labels in pairs:
        lines += [
            f"### {title}",
            "",
            "Change in % of the error of the worst group ± 2 se (of the mean over all rows in brackets).",
            "",
        ]
        lines += [f"| set | {' | '.join(labels)} |", "|---" * (len(labels) + 1) + "|"]
        for part, names in (("used to choose the defaults", CHOSEN), ("not used", CONFIRMED)):
            counts = {label: {"win": 0, "tie": 0, "loss": 0} for label in labels}
            for name in (name for name in names if name in results):
                cells = []
                for label in labels:
                    text, won = change(results[name][label][0], results[name][base][0], 0.5)
                    mean, _ = change(results[name][label][1], results[name][base][1], 0.5)
                    counts[label][won] += 1
                    mark = {"win": "**", "tie": "", "loss": "*"}[won]
                    cells.append(f"{mark}{text}{mark} ({mean.split(' ')[0]})")
                lines.append(f"| {name} | {' | '.join(cells)} |")
            total = [f"{c['win']} / {c['tie']} / {c['loss']}" for c in counts.values()]
            lines.append(f"| wins / ties / losses, sets {part} | {' | '.join(total)} |")
        lines.append("")
    lines += [
        "### Another mix of groups at prediction",
        "",
        "All groups equally frequent: change in % of the mean error ± 2 se, against ridge regression.",
        "",
    ]
    labels = ["balanced ridge", "WorstGroup 0.5", "WorstGroup worst"]
    lines += [f"| set | {' | '.join(labels)} |", "|---" * (len(labels) + 1) + "|"]
    for name, found in results.items():
        cells = [change(found[label][2], found["ridge"][2], 0.5)[0] for label in labels]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


# --- digits with a spurious patch -------------------------------------------------------------------------------------


def patched(X, y, agreement: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """(rows whose corner is bright if a coin says so, the corner): it agrees with the label as often as given"""
    bright = np.where(rng.random(len(y)) < agreement, y, 1 - y)
    X = X.copy()
    X[:, [0, 1, 8, 9]] = 16.0 * bright[:, None]
    return X, bright


def group_dro(X, y, groups, steps: int = 2000, rate: float = 0.5, weight_rate: float = 0.05, penalty: float = 1e-3):
    """Sagawa et al. 2020, full batch: exponentiated ascent on group weights, gradient descent on the model."""
    scaler = StandardScaler().fit(X)
    rows = np.column_stack([np.ones(len(X)), scaler.transform(X)])
    _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
    theta, weights = np.zeros(rows.shape[1]), np.full(len(counts), 1 / len(counts))
    for _ in range(steps):
        scores = rows @ theta
        losses = np.bincount(codes, np.logaddexp(0, scores) - y * scores) / counts
        weights = weights * np.exp(weight_rate * losses)
        weights /= weights.sum()
        slope = rows.T @ ((weights / counts)[codes] * (1 / (1 + np.exp(-scores)) - y)) + penalty * theta
        theta = theta - rate * slope / 4
    return lambda X: (np.column_stack([np.ones(len(X)), scaler.transform(X)]) @ theta > 0).astype(int)


def bounded_group_loss(X, y, groups):
    """fairlearn's reduction with a bound on the squared error of every group, the tightest of three that it meets."""
    from fairlearn.reductions import BoundedGroupLoss, ExponentiatedGradient, SquareLoss
    from sklearn.linear_model import Ridge

    scaler = StandardScaler().fit(X)
    rows, best = scaler.transform(X), None
    for bound in (0.05, 0.1, 0.15):
        constraint = BoundedGroupLoss(SquareLoss(0, 1), upper_bound=bound)
        model = ExponentiatedGradient(Ridge(10.0), constraint, eps=0.01, max_iter=20)
        model.fit(rows, y.astype(float), sensitive_features=groups)
        errors = (_mixture(model, rows) - y) ** 2
        worst = max(errors[groups == g].mean() for g in np.unique(groups))
        if best is None or worst < best[0]:
            best = (worst, model)
    model = best[1]
    return lambda X: (_mixture(model, scaler.transform(X)) > 0.5).astype(int)


def _mixture(model, rows) -> np.ndarray:
    """The mean prediction of the randomised model: the public predict draws one of its parts for every row."""
    return np.asarray(model._pmf_predict(rows)[model.weights_.index]) @ np.asarray(model.weights_)


def patch(splits: int) -> dict:
    """model -> (worst-group accuracy, mean accuracy), one entry a split: even or odd, on half of the digits"""
    digits = load_digits()
    y = (digits.target % 2).astype(int)

    def logistic(X, y, groups, weight=None):
        model = make_pipeline(
            StandardScaler(),
            LogisticRegressionCV(Cs=10, cv=3, max_iter=2000, l1_ratios=(0,), use_legacy_attributes=False),
        )
        model.fit(X, y, logisticregressioncv__sample_weight=weight)
        return model.predict

    def balanced(X, y, groups):
        _, codes, counts = np.unique(groups, return_inverse=True, return_counts=True)
        return logistic(X, y, groups, len(y) / len(counts) / counts[codes])

    models = {
        "logistic regression": logistic,
        "balanced groups": balanced,
        "group DRO": group_dro,
        "fairlearn, bounded group loss": bounded_group_loss,
        "WorstGroup 0.5": lambda X, y, g: WorstGroupClassifier(0.5).fit(X, y, groups=g).predict,
        "WorstGroup worst": lambda X, y, g: WorstGroupClassifier("worst").fit(X, y, groups=g).predict,
    }
    found: dict = {}
    for seed in range(splits):
        rng = np.random.default_rng(seed)
        train, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=seed, stratify=digits.target)
        X, bright = patched(digits.data[train], y[train], 0.95, rng)
        X_test, bright_test = patched(digits.data[test], y[test], 0.5, rng)
        groups, groups_test = 2 * y[train] + bright, 2 * y[test] + bright_test
        for label, fit in models.items():
            clock = time.process_time()
            right = fit(X, y[train], groups)(X_test) == y[test]
            by_group = [right[groups_test == g].mean() for g in range(4)]
            found.setdefault(label, []).append((min(by_group), right.mean(), time.process_time() - clock))
        print(f"patch, split {seed}", flush=True)
    return {label: np.array(values).T for label, values in found.items()}


def patch_table(found: dict) -> str:
    base = found["logistic regression"][0]
    lines = [
        "| | worst group | all | worst group, against logistic regression ± 2 se | CPU s |",
        "|---|---|---|---|---|",
    ]
    for label, (worst, mean, seconds) in found.items():
        gain, error = corrected(worst - base, 0.5)
        text = "" if label == "logistic regression" else f"{100 * gain:+.1f} ± {200 * error:.1f}"
        lines.append(
            f"| {label} | {100 * worst.mean():.1f} | {100 * mean.mean():.1f} | {text} | {seconds.mean():.1f} |"
        )
    return "\n".join(lines)


# --- attacks ----------------------------------------------------------------------------------------------------------


def adversarially_trained(X, y, radius: float, steps: int = 1000, rate: float = 0.5) -> tuple[np.ndarray, float]:
    """Gradient descent on rows that are attacked anew before every step, a fixed small penalty (Madry et al. 2018)."""
    theta, intercept, signs = np.zeros(X.shape[1]), 0.0, 2 * y - 1
    for _ in range(steps):
        length = max(np.linalg.norm(theta), 1e-12)
        moved = X - radius * signs[:, None] * theta / length
        slope = -signs / (1 + np.exp(signs * (moved @ theta + intercept))) / len(y)
        theta = theta - rate * (moved.T @ slope + 1e-4 * theta)
        intercept -= rate * slope.sum()
    return theta, intercept


def attack(splits: int) -> dict:
    """set -> model -> (accuracy under attack, clean accuracy), one entry a split; features standardised"""
    cancer, digits = load_breast_cancer(), load_digits()
    hard = np.isin(digits.target, (3, 8))
    sets = {
        "breast cancer, radius 0.5": (cancer.data, cancer.target, 0.5),
        "breast cancer, radius 1": (cancer.data, cancer.target, 1.0),
        "digits 3 and 8, radius 1": (digits.data[hard], (digits.target[hard] == 8).astype(int), 1.0),
        "digits odd, radius 0.5": (digits.data, digits.target % 2, 0.5),
    }
    results: dict = {}
    for name, (X, y, radius) in sets.items():
        found: dict = {}
        for seed in range(splits):
            train, test = train_test_split(np.arange(len(y)), test_size=0.5, random_state=seed, stratify=y)
            scaler = StandardScaler().fit(X[train])
            rows, held = scaler.transform(X[train]), scaler.transform(X[test])
            plain = LogisticRegressionCV(Cs=10, cv=3, max_iter=5000, l1_ratios=(0,), use_legacy_attributes=False)
            plain.fit(rows, y[train])
            ours = AdversarialClassifier(radius).fit(rows, y[train])
            models = {
                "logistic regression": (plain.coef_[0], plain.intercept_[0]),
                "adversarially trained": adversarially_trained(rows, y[train], radius),
                "AdversarialClassifier": (ours.coef_[0], ours.intercept_[0]),
            }
            for label, (coef, intercept) in models.items():
                margins = (2 * y[test] - 1) * (held @ coef + intercept)
                scores = (np.mean(margins > radius * np.linalg.norm(coef)), np.mean(margins > 0))
                found.setdefault(label, []).append(scores)
        results[name] = {label: np.array(values).T for label, values in found.items()}
        print(name, flush=True)
    return results


def attack_table(results: dict) -> str:
    lines = [
        "| set | model | attacked | not attacked | attacked, against logistic regression ± 2 se |",
        "|---|---|---|---|---|",
    ]
    for name, found in results.items():
        for label, (attacked, clean) in found.items():
            gain, error = corrected(attacked - found["logistic regression"][0], 0.5)
            text = "" if label == "logistic regression" else f"{100 * gain:+.1f} ± {200 * error:.1f}"
            lines.append(f"| {name} | {label} | {100 * attacked.mean():.1f} | {100 * clean.mean():.1f} | {text} |")
    return "\n".join(lines)


# --- the page ---------------------------------------------------------------------------------------------------------

HEAD = """# What the estimators are good for, and what not

Made by `python -m benchmarks.usefulness --splits {splits}`: {splits} random splits, half of the rows for training.
Differences are paired; standard errors are corrected for overlapping training rows (Nadeau and Bengio 2003). **Bold**:
a win by more than 2 se, *italic*: a loss. Losses and ties are shown as well. The data come with the packages of the
extra `usefulness`, and `benchmarks/usefulness_data.py` says which columns make the groups. The estimators have their
defaults; the radius 0.5 was chosen earlier, on the first block of sets, with groups made in another way.
"""
PARTS = {
    "regression": (
        "## Regression with natural groups",
        lambda splits: regression_tables(regression((*CHOSEN, *CONFIRMED), splits)),
    ),
    "patch": (
        "## Digits with a spurious patch\n\nEven or odd; a bright corner agrees with the label in 95 % of the training "
        "rows and in half of the test rows.\nGroups: label and patch. Accuracy in %.",
        lambda splits: patch_table(patch(splits)),
    ),
    "attack": (
        "## Attacks\n\nStandardised features; every test row is moved by the radius, in the Euclidean norm, in the "
        "direction that hurts most.\nAccuracy in %.",
        lambda splits: attack_table(attack(splits)),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--part", choices=tuple(PARTS))
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # of small groups and of what protection costs: the tables say it
    if chosen.part:
        print(PARTS[chosen.part][1](chosen.splits))
        return
    sections = [HEAD.format(splits=chosen.splits).rstrip()]
    for title, made in PARTS.values():
        sections += [title, made(chosen.splits)]
        PAGE.write_text("\n\n".join(sections) + "\n")  # after every part: they take minutes
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
