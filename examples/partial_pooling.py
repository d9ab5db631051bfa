"""Twenty shops, some with a dozen sales and some with hundreds: one slope for each, drawn towards a shared one.

A model for each shop alone is wild where there are few rows, one for all is wrong everywhere; PartialPoolingRegressor
chooses by cross-validation how strongly shops are drawn together. Writes results/partial_pooling.svg.
"""

import warnings
from pathlib import Path

import numpy as np
from sklearn.linear_model import LinearRegression

from bisaddle.estimators import PartialPoolingRegressor

SHOPS = 20


def main() -> None:
    rng = np.random.default_rng(3)
    sizes = np.sort(rng.integers(8, 30, SHOPS) * rng.choice([1, 1, 4, 12], SHOPS))
    slopes, levels = 1.0 + 0.5 * rng.normal(size=SHOPS), 2.0 + rng.normal(size=SHOPS)

    def rows(sizes):
        shop = np.repeat(np.arange(SHOPS), sizes)
        features = rng.normal(size=(len(shop), 4))
        others = features[:, 1:] @ [0.5, -0.3, 0.2]
        return features, levels[shop] + slopes[shop] * features[:, 0] + others + 1.5 * rng.normal(size=len(shop)), shop

    (features, target, shop), (new, wanted, new_shop) = rows(sizes), rows(np.full(SHOPS, 500))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of shops with few rows: they are the point
        pooled = PartialPoolingRegressor().fit(features, target, tasks=shop)
    alone = [LinearRegression().fit(features[shop == t], target[shop == t]) for t in range(SHOPS)]
    together = LinearRegression().fit(features, target)
    predictions = {
        "one for all": together.predict(new),
        "one for each": np.concatenate([alone[t].predict(new[new_shop == t]) for t in range(SHOPS)]),
        "partial pooling": pooled.predict(new, new_shop),
    }
    errors = {name: np.bincount(new_shop, (found - wanted) ** 2) / 500 for name, found in predictions.items()}
    print(f"{pooled.status_}, gap {pooled.gap_:.0e}, {pooled.n_steps_} steps; noise alone gives an error of 2.25")
    for name, found in errors.items():
        print(f"{name:>16}: mean error {found.mean():.2f}, worst shop {found.max():.2f}")
    draw(sizes, slopes, pooled, np.array([model.coef_[0] for model in alone]), together.coef_[0], errors)


def draw(sizes, slopes, pooled, alone, together, errors) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", width_ratios=(1.6, 1))
    places = np.arange(SHOPS)
    left.axhline(together, color="0.7", lw=1, label="one for all")
    left.vlines(places, alone, pooled.task_coef_[:, 0], color="0.85", lw=3)
    left.plot(places, alone, "o", color="#ee6677", mfc="white", label="one for each")
    left.plot(places, pooled.task_coef_[:, 0], "o", color="#4477aa", label="partial pooling")
    left.plot(places, slopes, "k_", ms=10, mew=1.5, label="truth")
    left.set(xticks=places[::2], xticklabels=sizes[::2], xlabel="rows of the shop", ylabel="slope")
    left.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 0.02))
    colours = {"one for all": "0.6", "one for each": "#ee6677", "partial pooling": "#4477aa"}
    for place, (name, found) in enumerate(errors.items()):
        spread = np.linspace(-0.18, 0.18, SHOPS)
        right.plot(place + spread, found, ".", color=colours[name])
        right.hlines(found.mean(), place - 0.25, place + 0.25, color="k")
    labels = [name.replace(" ", "\n", 1) for name in errors]
    right.set(xticks=range(3), xticklabels=labels, ylabel="error of each shop, new rows", ylim=(0, None))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    path = Path("results") / "partial_pooling.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
