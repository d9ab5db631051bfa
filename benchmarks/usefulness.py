"""What the estimators are good for, on data readable without a download: writes docs/usefulness.md.

    python -m benchmarks.usefulness               all parts
    python -m benchmarks.usefulness --part patch  one part of the page made anew

Needs the extra `usefulness`. Every comparison is paired over random splits; standard errors are corrected for the
overlap of training rows (Nadeau and Bengio 2003): se^2 = (1/J + n_test/n_train) var. A win is more than 2 se.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.usefulness_data import CHOSEN, CONFIRMED
from benchmarks.usefulness_meta import adaptation, adaptation_tables
from benchmarks.usefulness_regression import corrected, regression, regression_tables
from bisaddle.estimators import AdversarialClassifier, WorstGroupClassifier

PAGE = Path(__file__).parents[1] / "docs" / "usefulness.md"


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
        gain, error = corrected(worst - base)
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
            gain, error = corrected(attacked - found["logistic regression"][0])
            text = "" if label == "logistic regression" else f"{100 * gain:+.1f} ± {200 * error:.1f}"
            lines.append(f"| {name} | {label} | {100 * attacked.mean():.1f} | {100 * clean.mean():.1f} | {text} |")
    return "\n".join(lines)


# --- the page ---------------------------------------------------------------------------------------------------------

HEAD = """# What the estimators are good for, and what not

Made by `python -m benchmarks.usefulness`: 20 random splits, half of the rows for training. Differences are paired;
standard errors are corrected for overlapping training rows (Nadeau and Bengio 2003), which makes them 4.6 times the
plain ones. **Bold**: a win by more than 2 se, *italic*: a loss. Losses and ties are shown as well. The data come with
scikit-learn and the packages of the extra `usefulness`, the NLSY from the folder of BISADDLE_DATA. The estimators have
their defaults; the radius 0.5 was chosen earlier, on the first block of sets.
"""
REGRESSION = """## Regression with natural groups

Every grouping that a table has columns for (sex, race, region, ...), so that none is picked; groups of 40 rows or more.
`benchmarks/usefulness_data.py` lists columns and features; no column of a grouping is a feature.

An earlier study of the first nine sets, with one grouping of each and plain standard errors, found a lower worst group
in four of them (by 14, 6, 5 and 2 %) with WorstGroup 0.5, in none a higher one, and with partial pooling a lower one in
six. The largest gains are here again: gpa2 by race, and the NLSY by sex, at the same cost of its mean. **On sets that
were not used to choose the defaults the gain of WorstGroup is not confirmed**: all ties, and by plain standard errors
more losses than wins. Partial pooling has no loss against ridge regression and separate models by corrected standard
errors, on either kind of sets; against one ridge regression with a dummy for each group it gains next to nothing."""
ADAPTATION = """## Adaptation to new tasks from ten rows

Sinusoids, two layers of 10 units, 40 training tasks; in place of splits, seeds with tasks and layers of their own.
Ratios are geometric means with 2 se (plain: seeds are independent). Trained for the worst task, the worst of the
training tasks falls by half or more, on the rows it was trained on. New tasks of a kind that is rare in training gain
12 %, and the frequent kind pays for it; new tasks of the one kind that was trained on gain next to nothing."""
PARTS = {
    "regression": (REGRESSION, lambda splits: regression_tables(regression((*CHOSEN, *CONFIRMED), splits))),
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
    "adaptation": (ADAPTATION, lambda splits: adaptation_tables(adaptation(splits))),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--part", choices=tuple(PARTS), action="append", help="only these; the page keeps the others")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")  # of small groups and of what protection costs: the tables say it
    for name in chosen.part or PARTS:
        title, made = PARTS[name]
        print(text := made(chosen.splits))
        written = {part.splitlines()[0]: part for part in PAGE.read_text().split("\n## ")[1:]}
        written[title.splitlines()[0].removeprefix("## ")] = f"{title.removeprefix('## ')}\n\n{text}"
        order = [title.splitlines()[0].removeprefix("## ") for title, _ in PARTS.values()]
        sections = [f"## {written[head].strip()}" for head in order if head in written]
        PAGE.write_text("\n\n".join([HEAD.strip(), *sections]) + "\n")  # after every part: they take minutes


if __name__ == "__main__":
    main()
