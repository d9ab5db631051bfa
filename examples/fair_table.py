"""A table with a column of clinics: what serving the worst one means, by its loss or by its regret.

The records of clinic C are noisy: no model predicts them well. By the loss, C is the worst whatever is done, and B,
whose patients follow a model of their own, pays for it. By the regret, the loss above that of the own best model, B is
the one that a shared model fails. Errors are on new rows. Writes results/fair_table.svg.
"""

from pathlib import Path

import jax
import numpy as np

import bisaddle as bs
from bisaddle.apps import fairness

jax.config.update("jax_enable_x64", True)

CLINICS, SIZES, NOISE = ("A", "B", "C"), (1200, 400, 600), (1.0, 1.0, 2.0)
SLOPES = np.array([[1.0, 0.6, 0.0, 0.3], [-0.2, 0.6, 1.0, 0.3], [1.0, 0.6, 0.0, 0.3]])
COLOURS = {"mean of all rows": "0.65", "worst loss": "#ccbb44", "worst regret": "#4477aa"}


def table(sizes, seed: int) -> dict:
    rng = np.random.default_rng(seed)
    clinic = np.repeat(np.arange(3), sizes)
    features = rng.normal(size=(len(clinic), 4))
    days = np.sum(features * SLOPES[clinic], axis=1) + np.array(NOISE)[clinic] * rng.normal(size=len(clinic))
    named = dict(zip(("age", "dose", "weight", "visits"), features.T, strict=True))
    return {**named, "clinic": np.array(CLINICS)[clinic], "days": days}


def coefficients(frame: dict, **options) -> tuple[bs.Result, np.ndarray]:
    """The certified run and the refit on all rows, intercept first, for standardised features."""
    problem, start = fairness.minimax(frame, target="days", group="clinic", **options)
    result = bs.solve(problem, start, tol=1e-4)
    return result, np.asarray(result.theta)[-1]


def main() -> None:
    frame, new = table(SIZES, seed=0), table((5000, 5000, 5000), seed=1)
    names = ("age", "dose", "weight", "visits")
    shift, scale = (np.array([getattr(frame[name], how)() for name in names]) for how in ("mean", "std"))
    rows = np.column_stack(
        [np.ones(15000), *((new[name] - m) / s for name, m, s in zip(names, shift, scale, strict=True))]
    )

    def errors(theta):
        squares = (new["days"] - rows @ theta) ** 2
        return np.array([squares[new["clinic"] == clinic].mean() for clinic in CLINICS])

    own = []
    for clinic in CLINICS:
        mine = new["clinic"] == clinic
        own.append(errors(np.linalg.lstsq(rows[mine], new["days"][mine], rcond=None)[0])[CLINICS.index(clinic)])
    found = {}
    for name, options in {
        "mean of all rows": {"protection": 1e-6},
        "worst loss": {"criterion": "loss"},
        "worst regret": {"criterion": "regret"},
    }.items():
        result, theta = coefficients(frame, **options)
        found[name] = errors(theta)
        weights = "  ".join(f"{clinic} {w:.2f}" for clinic, w in zip(CLINICS, result.x["weights"], strict=True))
        print(f"{name:17} {result.status}, gap {float(result.gap):.0e}; weights {weights}")
        print(f"{'':17} error on new rows {found[name].round(2)}, above the own best {(found[name] - own).round(2)}")
    draw(found, np.array(own))


def draw(found: dict, own: np.ndarray) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    places = np.arange(len(CLINICS))
    for k, (name, errors) in enumerate(found.items()):
        for axes, heights in ((left, errors), (right, errors - own)):
            bars = axes.bar(places + 0.27 * (k - 1), heights, 0.25, color=COLOURS[name], label=name)
            axes.bar_label(bars, fmt="%.2f", fontsize=8, padding=1)
    left.hlines(own, places - 0.42, places + 0.42, color="k", lw=1, label="best of its own")
    labels = [f"{clinic}, {rows} rows" for clinic, rows in zip(CLINICS, SIZES, strict=True)]
    left.set(title="mean squared error, new rows", xticks=places, xticklabels=labels)
    right.set(title="above the clinic's own best: regret", xticks=places, xticklabels=labels)
    left.legend(frameon=False, loc="upper left")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(y=0.12)
    path = Path("results") / "fair_table.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
