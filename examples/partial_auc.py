"""Ranking with few false alarms: the whole area under the ROC curve against its first tenth.

Three tasks. One negative in eight has the first feature of the positives and differs in the second; the others differ
in the first. The whole area is won by the first feature, its first tenth by the second. The curves are those of fresh
rows, averaged over the tasks. The sizes were chosen on rows of another seed.
"""

from pathlib import Path

import jax
import numpy as np

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

RATES = np.r_[np.linspace(0, 0.1, 101), np.linspace(0.11, 1, 90)]


def rows(count: int, turn: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    A, b = rng.normal(size=(count, 6)), (rng.uniform(size=count) < 0.4).astype(float)
    hard = (b == 0) & (rng.uniform(size=count) < 1 / 8)
    A[(b == 0) & ~hard, 0] -= 4
    A[hard, 1] -= 2.5
    cosine, sine = np.cos(turn), np.sin(turn)  # the tasks differ in how the features are measured
    A[:, 1:3] = A[:, 1:3] @ np.array([[cosine, sine], [-sine, cosine]])
    return A, b


def true_positives(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The rate of true positives at each of RATES."""
    limits = np.quantile(scores[labels == 0], 1 - RATES)
    return np.mean(scores[labels == 1] > limits[:, None], axis=1)


def main(path: str = "results/partial_auc.png") -> None:
    import matplotlib.pyplot as plt

    from bisaddle.apps import auc

    rng, turns = np.random.default_rng(0), (0.0, 0.3, 0.6)
    tasks = [(*rows(400, turn, rng), *rows(400, turn, rng)) for turn in turns]
    fresh = [rows(20_000, turn, rng) for turn in turns]
    problems = {
        "whole area, mean of tasks": auc.linear(tasks, 20.0, 0.01, weights="mean"),
        "whole area, worst task": auc.linear(tasks, 20.0, 0.01),
        "first tenth, mean of tasks": auc.partial(tasks, 0.1, 20.0, 0.01),
    }
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.6), constrained_layout=True)
    for (name, (problem, start)), line in zip(problems.items(), ("k:", "C1--", "C0-"), strict=True):
        result = bs.solve(problem, start, tol=1e-4)
        scores = [A @ np.asarray(v) for (A, _), v in zip(fresh, result.theta, strict=True)]
        areas = {rate: [auc.area(h, b, rate) for h, (_, b) in zip(scores, fresh, strict=True)] for rate in (1.0, 0.1)}
        told = [f"{np.mean(areas[rate]):.3f} ({min(areas[rate]):.3f})" for rate in areas]
        print(
            f"{name:26} {result.status}, {result.steps} steps; fresh rows, mean (worst) of the tasks: area {told[0]}, "
            f"first tenth {told[1]}"
        )
        found = np.mean([true_positives(h, b) for h, (_, b) in zip(scores, fresh, strict=True)], axis=0)
        for axis in axes:
            axis.plot(RATES, found, line, label=name)
    axes[0].axvspan(0, 0.1, color="0.93", zorder=0)
    for axis, right, title in ((axes[0], 1.0, "ROC curve"), (axes[1], 0.1, "its first tenth")):
        axis.set(xlim=(0, right), ylim=(0, 1), xlabel="rate of false positives", title=title)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("rate of true positives")
    axes[0].legend(frameon=False, loc="lower right")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
