"""Few-shot regression of sinusoids: what a learned representation gives, and what training for the worst task adds.

20 training tasks with 10 shots each; then 300 new tasks, each adapted to from 10 rows and judged on 100 others. The
layers are learned for the mean of the tasks and for the worst of them; "random layers" are those of the start.
"""

from pathlib import Path

import jax
import numpy as np

import bisaddle as bs

jax.config.update("jax_enable_x64", True)

STEPS = 1500


def main(path: str = "results/few_shot_sinusoids.png") -> None:
    import matplotlib.pyplot as plt

    from bisaddle.apps import meta

    tasks, new = meta.sinusoids(20, 10, seed=1), meta.sinusoids(300, 10, seed=1001, queries=100)
    layers = {}
    for name, weights in (("learned, mean of tasks", "mean"), ("learned, worst task", "simplex")):
        problem, start = meta.learn(tasks, hidden=(24, 24), weights=weights, seed=1)
        result = bs.solve(problem, start, max_steps=STEPS)
        layers |= {"random layers": start.x, name: result.x}
        worst, gap = float(result.certificate.worst_value), float(result.gap)
        print(
            f"{name:23} {result.status}, {result.steps} steps, gap {gap:.0e}: query losses, worst mixture {worst:.4f}"
        )
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), constrained_layout=True)
    grid, (A, b, query, c) = np.linspace(-5, 5, 300)[:, None], new[3]
    order = np.argsort(query[:, 0])
    left.plot(query[order, 0], c[order], color="0.75", linewidth=4, label="a new task")
    for (name, x), line in zip(layers.items(), ("k:", "C0-", "C1--"), strict=True):
        errors = np.array([np.mean((meta.adapt(x, task[:2])(task[2]) - task[3]) ** 2) for task in new])
        tens = np.mean(np.max(errors.reshape(30, 10), axis=1))
        print(
            f"{name:23} new tasks: mean squared error {np.mean(errors):.2f}, median {np.median(errors):.2f}, largest "
            f"of ten tasks {tens:.2f} on average, largest of all {np.max(errors):.1f}"
        )
        left.plot(grid, meta.adapt(x, (A, b))(grid), line, label=name)
        right.plot(np.sort(errors), np.arange(1, len(errors) + 1) / len(errors), line, label=name)
    left.plot(A, b, "ko", markersize=5, label="its 10 rows")
    left.set(title="adapted from 10 rows", xlabel="t", ylim=(1.6 * np.min(c), 2.6 * np.max(c)))
    left.legend(frameon=False, ncols=2, loc="upper left", fontsize="small")
    right.set(xscale="log", title="300 new tasks", xlabel="squared error after adaptation", ylabel="share of the tasks")
    right.set(xlim=(1e-3, 100), ylim=(0, 1))
    right.legend(frameon=False, loc="upper left")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)
    print(f"drawn in {path}")


if __name__ == "__main__":
    main()
