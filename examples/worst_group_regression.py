"""Three regions of very different size, one of them with a slope of its own: what protection does for each.

Ridge regression follows the large region. WorstGroupRegressor weighs the regions in training, as far as protection lets
the mix of regions differ from that of the rows. Errors are on new rows. Writes results/worst_group.svg.
"""

import warnings
from pathlib import Path

import numpy as np

from bisaddle.estimators import WorstGroupRegressor

NAMES, SIZES = np.array(["plains", "coast", "hills"]), (1500, 400, 150)
SLOPES = np.array([[1.0, 0.5, 0.0], [0.6, 0.5, 0.6], [-0.2, 0.5, 1.2]])
PROTECTIONS = (0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, "worst")


def rows(sizes, seed):
    rng = np.random.default_rng(seed)
    region = np.repeat(np.arange(3), sizes)
    features = rng.normal(size=(len(region), 3))
    target = np.sum(features * SLOPES[region], axis=1) + rng.normal(size=len(region))
    return features, target, NAMES[region]


def main() -> None:
    features, target, region = rows(SIZES, seed=0)
    new = rows((5000, 5000, 5000), seed=1)
    errors, weights = [], []
    print(f"{'protection':>10}  " + "  ".join(f"{name:>7}" for name in NAMES) + "   mean   status")
    for protection in PROTECTIONS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what protection costs is what the picture shows
            model = WorstGroupRegressor(protection).fit(features, target, groups=region)
        squares = (new[1] - model.predict(new[0])) ** 2
        errors.append([squares[new[2] == name].mean() for name in NAMES])
        weights.append([model.group_weights_[list(model.groups_).index(name)] for name in NAMES])
        mean = np.average(errors[-1], weights=SIZES)
        shown = "  ".join(f"{error:7.3f}" for error in errors[-1])
        print(
            f"{protection!s:>10}  {shown}  {mean:6.3f}  {model.status_}, gap {model.gap_:.0e}, {model.n_steps_} steps"
        )
    draw(np.array(errors), np.array(weights))


def draw(errors: np.ndarray, weights: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colours = ["#4477aa", "#ccbb44", "#ee6677"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    places = np.arange(len(PROTECTIONS))
    for g, name in enumerate(NAMES):
        left.plot(places, errors[:, g], "o-", color=colours[g], label=f"{name}, {SIZES[g]} rows")
    left.plot(places, errors @ np.array(SIZES) / sum(SIZES), "k--", label="mean over the training mix")
    left.set(
        xticks=places,
        xticklabels=PROTECTIONS,
        xlabel="protection",
        ylabel="mean squared error, new rows",
        ylim=(0.8, 3.9),
    )
    left.legend(frameon=False)
    bottom = np.zeros(len(PROTECTIONS))
    for g, name in enumerate(NAMES):
        right.bar(places, weights[:, g], bottom=bottom, color=colours[g], label=name)
        bottom += weights[:, g]
    right.set(
        xticks=places, xticklabels=PROTECTIONS, xlabel="protection", ylabel="weight in the training loss", ylim=(0, 1)
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    path = Path("results") / "worst_group.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
