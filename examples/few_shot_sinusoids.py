"""Few-shot regression of sinusoids: what a learned representation gives, and what training for the worst task adds.

40 training tasks with 10 shots each: 36 slow sinusoids and 4 quick ones. Then 200 new tasks of each kind, adapted to
from 10 rows and judged on 100 others. The layers are learned for the mean of the tasks, or half of the steps for the
mean and half for the worst task; "random layers" are those of the start. Writes results/few_shot_sinusoids.svg.
"""

from pathlib import Path

import jax
import numpy as np

import bisaddle as bs
from bisaddle.apps import meta

jax.config.update("jax_enable_x64", True)

STEPS, SEED = 2400, 2
STYLES = {"random layers": "k:", "for the mean": "C0-", "for the worst task": "C1--"}


def sinusoids(frequencies: tuple[float, float], count: int, queries: int, rng) -> list[tuple]:
    made = []
    for _ in range(count):
        a, w, p = rng.uniform(0.1, 5), rng.uniform(*frequencies), rng.uniform(0, np.pi)
        t = rng.uniform(-5, 5, size=(10 + queries, 1))
        b = a * np.sin(w * t[:, 0] - p)
        made.append((t[:10], b[:10], t[10:], b[10:]))
    return made


def learned(tasks: list[tuple]) -> dict:
    """name -> layers"""
    problem, start = meta.learn(tasks, hidden=(10, 10), weights="mean", seed=SEED)
    half = bs.solve(problem, start, max_steps=STEPS // 2)
    mean = bs.solve(problem, half.point, max_steps=STEPS // 2)
    problem, robust = meta.learn(tasks, hidden=(10, 10), weights="simplex", seed=SEED)
    worst = bs.solve(problem, bs.Point(x=half.x, theta=half.theta, y=robust.y), max_steps=STEPS // 2)
    return {"random layers": start.x, "for the mean": mean.x, "for the worst task": worst.x}


def adapted(x, tasks: list[tuple]) -> np.ndarray:
    """The mean squared error of every task, after adaptation to its support rows"""
    return np.array([np.mean((meta.adapt(x, task[:2])(task[2]) - task[3]) ** 2) for task in tasks])


def main() -> None:
    rng = np.random.default_rng(SEED)
    tasks = sinusoids((2.5, 3), 4, 100, rng) + sinusoids((0.5, 1), 36, 100, rng)
    new = {"quick, 4 of 40 in training": sinusoids((2.5, 3), 200, 100, rng)}
    new["slow, 36 of 40 in training"] = sinusoids((0.5, 1), 200, 100, rng)
    errors = {}
    layers = learned(tasks)
    for name, x in layers.items():
        found = {kind: adapted(x, made) for kind, made in {"training": tasks, **new}.items()}
        errors[name] = found
        text = ", ".join(f"{kind} {e.mean():.3f} (largest {e.max():.2f})" for kind, e in found.items())
        print(f"{name:18} mean squared errors: {text}")
    draw(layers, errors, new)


def draw(layers: dict, errors: dict, new: dict) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, *others) = plt.subplots(1, 3, figsize=(11, 3.5), layout="constrained", width_ratios=(1.2, 1, 1))
    grid, quick = np.linspace(-5, 5, 300)[:, None], next(iter(new.values()))
    # a new task of middling difficulty for the mean
    order = np.argsort(next(iter(errors["for the mean"][kind] for kind in new)))
    A, b, query, c = quick[order[len(order) // 2]]
    along = np.argsort(query[:, 0])
    left.plot(query[along, 0], c[along], color="0.8", linewidth=4, label="a new quick task")
    for name, x in layers.items():
        left.plot(grid, meta.adapt(x, (A, b))(grid), STYLES[name], label=name)
    left.plot(A, b, "ko", markersize=5, label="its 10 rows")
    left.set(title="adapted from 10 rows", xlabel="t", ylim=(1.4 * np.min(c), 2.8 * np.max(c)))
    left.legend(frameon=False, ncols=2, loc="upper left", fontsize="small")
    for axes, kind in zip(others, new, strict=True):
        for name, found in errors.items():
            e = np.sort(found[kind])
            axes.plot(e, np.arange(1, len(e) + 1) / len(e), STYLES[name], label=f"{name}: {e.mean():.2f}")
        axes.set(xscale="log", title=f"new tasks: {kind}", xlabel="squared error after adaptation")
        axes.set(ylim=(0, 1), xlim=(1e-4, 3e4), xticks=[1e-4, 1e-2, 1, 100])
        axes.legend(frameon=False, loc="lower right", fontsize="small", borderpad=0)
    others[0].set_ylabel("share of the tasks")
    for axes in (left, *others):
        axes.spines[["top", "right"]].set_visible(False)
    path = Path("results") / "few_shot_sinusoids.svg"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
