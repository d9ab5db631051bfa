"""Handwritten digits of which a third have a wrong label, and a hundred that are right: which rows to believe.

apps.hyperparameter.cleaning gives every training row a weight in [0, 1], so that the model does well on the hundred
right rows. Accuracy is on 1197 others. Writes results/data_cleaning.svg.
"""

from pathlib import Path

import jax
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import bisaddle as bs
from bisaddle.apps import hyperparameter

jax.config.update("jax_enable_x64", True)

ROWS, RIGHT, WRONG = 500, 100, 1 / 3


def main() -> None:
    digits, rng = load_digits(), np.random.default_rng(0)
    order = rng.permutation(len(digits.target))
    images, labels = digits.data[order] / 16, digits.target[order]
    train, right, test = slice(ROWS), slice(ROWS, ROWS + RIGHT), slice(ROWS + RIGHT, ROWS + RIGHT + 1197)
    wrong = rng.random(ROWS) < WRONG
    given = np.where(wrong, (labels[train] + rng.integers(1, 10, ROWS)) % 10, labels[train])
    problem, start = hyperparameter.cleaning(images[train], given, images[right], labels[right], loss="softmax")
    result = bs.solve(problem, start, tol=1e-4)
    weights = np.asarray(result.x)
    print(
        f"{result.status}, gap {float(result.gap):.0e}, {result.steps} steps; {wrong.sum()} of {ROWS} labels are wrong"
    )
    print(f"average weight of wrong rows {weights[wrong].mean():.2f}, of right rows {weights[~wrong].mean():.2f}")

    def accuracy(rows, targets, weight=None):
        model = LogisticRegression(C=1 / (0.01 * len(targets)), max_iter=2000).fit(rows, targets, sample_weight=weight)
        return model.score(images[test], labels[test])

    scores = {
        "the right rows alone": accuracy(images[right], labels[right]),
        "all rows as they are": accuracy(images[train], given),
        "rows by weight": accuracy(images[train], given, weights + 1e-9),
        "wrong rows left out": accuracy(images[train][~wrong], given[~wrong]),
    }
    for name, score in scores.items():
        print(f"{name:>21}: {score:.1%} of new digits right")
    draw(images[train], given, wrong, weights, scores)


def draw(images, given, wrong, weights, scores) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(9.5, 3.4), layout="constrained")
    left, middle, right = figure.subfigures(1, 3, width_ratios=(1, 1.15, 1))
    axes = left.subplots()
    bins = np.linspace(0, 1, 11)
    axes.hist(
        [weights[~wrong], weights[wrong]], bins, color=["#4477aa", "#ee6677"], label=["right label", "wrong label"]
    )
    axes.set(xlabel="weight of the row", ylabel="rows")
    axes.legend(frameon=False)
    middle.suptitle("the 15 rows of least weight, and their labels", fontsize=10)
    for place, row in zip(middle.subplots(3, 5).flat, np.argsort(weights, kind="stable")[:15], strict=True):
        place.imshow(images[row].reshape(8, 8), cmap="Greys")
        place.set_title(str(given[row]), fontsize=10, pad=2, color="#ee6677" if wrong[row] else "k")
        place.set(xticks=[], yticks=[])
    bars = right.subplots()
    for name, score in scores.items():
        bars.plot(100 * score, name, "o", ms=9, color="#4477aa" if name == "rows by weight" else "0.6")
        bars.annotate(f"{score:.1%}", (100 * score, name), (0, 9), textcoords="offset points", ha="center")
    bars.set(xlabel="new digits right, %", xlim=(86, 95))
    bars.margins(y=0.15)
    bars.invert_yaxis()
    for place in (axes, bars):
        place.spines[["top", "right"]].set_visible(False)
    path = Path("results") / "data_cleaning.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
