"""Clinics of very different sizes, one of them unlike the others: logistic regression for the mean and for the worst.

Six tasks of 30 to 600 training rows; every other row of a task is for validation. The sixth clinic depends on other
features than the rest. The picture shows the loss on the validation rows, whose largest the worst-task choice makes as
small as it can be, what is left of that on fresh rows, and the weights.
"""

from pathlib import Path

import jax
import numpy as np

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

SIZES = (600, 400, 300, 200, 80, 60)
CHOICES = {"mean": "mean", "KL ball, 0.1": ("kl", 0.1), "worst task": "simplex"}


def clinics(seed: int) -> tuple[list[tuple], list[tuple]]:
    """(tasks, fresh rows of each)"""
    rng = np.random.default_rng(seed)
    common, own = rng.normal(size=12), rng.normal(size=(len(SIZES), 12))
    tasks, fresh = [], []
    for i, rows in enumerate(SIZES):
        truth = own[i] if i == len(SIZES) - 1 else common + 0.4 * own[i]
        A = np.c_[rng.normal(size=(rows + 4000, 12)), np.ones(rows + 4000)]
        b = (A[:, :12] @ truth + rng.logistic(size=len(A)) > 0).astype(float)
        tasks.append((A[:rows:2], b[:rows:2], A[1:rows:2], b[1:rows:2]))
        fresh.append((A[rows:], b[rows:]))
    return tasks, fresh


def loss(A: np.ndarray, b: np.ndarray, v: np.ndarray) -> float:
    return float(np.mean(np.logaddexp(0, A @ v) - b * (A @ v)))


def main(path: str = "results/multitask_heads.png") -> None:
    import matplotlib.pyplot as plt

    tasks, fresh = clinics(seed=0)
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.4), constrained_layout=True)
    axes[0].sharey(axes[1])
    places = np.arange(len(SIZES))
    for k, (name, weights) in enumerate(CHOICES.items()):
        problem, start = bs.apps.multitask.logistic(tasks, radius=5.0, ridge=0.1, weights=weights)
        result = bs.solve(problem, start, tol=1e-4)
        held_out = [loss(A, b, v) for (_, _, A, b), v in zip(tasks, result.theta, strict=True)]
        losses = [loss(A, b, v) for (A, b), v in zip(fresh, result.theta, strict=True)]
        print(
            f"{name:13} {result.status}, gap {float(result.gap):.0e}; validation: mean {np.mean(held_out):.3f}, worst "
            f"{max(held_out):.3f}; fresh rows: mean {np.mean(losses):.3f}, worst {max(losses):.3f}"
        )
        axes[0].plot(places + 0.16 * (k - 1), held_out, "o", label=name)
        axes[1].plot(places + 0.16 * (k - 1), losses, "o", label=name)
        axes[2].bar(places + 0.27 * (k - 1), result.y, 0.25, label=name)
    titles = ("log loss on validation rows", "log loss on fresh rows", "weight y of the task")
    for axis, title in zip(axes, titles, strict=True):
        axis.set_xticks(places, [f"{rows // 2}" for rows in SIZES])
        axis.set(title=title, xlabel="training rows of the task")
        axis.spines[["top", "right"]].set_visible(False)
    axes[2].legend(frameon=False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
