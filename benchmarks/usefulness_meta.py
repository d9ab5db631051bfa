"""Few-shot sinusoids, for usefulness.py: layers trained for the worst task against layers trained for the mean.

Both take the same number of steps from the same layers; the worst task's begin with half of the mean's. Every seed has
tasks and layers of its own, so that the differences are independent and plain standard errors hold.
"""

import time
from typing import Any

import jax
import numpy as np

import bisaddle as bs
from bisaddle.apps import meta

# protocol and budget were settled on seeds 1 to 3
FIRST_SEED = 11
TASKS, SHOTS, QUERIES, HIDDEN, STEPS = 40, 10, 100, (10, 10), 3000
# frequencies of the sinusoids and how many of 40 tasks have them; amplitudes and phases as in meta.sinusoids
FAMILIES = {
    "one kind of tasks, frequencies in [1, 3]": {"all": (1.0, 3.0, 40)},
    "rare hard tasks: 4 of 40 with frequencies in [2.5, 3], the others in [0.5, 1]": {
        "rare": (2.5, 3.0, 4),
        "frequent": (0.5, 1.0, 36),
    },
}


def sinusoids(low: float, high: float, count: int, rng) -> list[tuple[float, float, float]]:
    """amplitude, frequency and phase of every task"""
    return [(rng.uniform(0.1, 5), rng.uniform(low, high), rng.uniform(0, np.pi)) for _ in range(count)]


def rows(kinds: list[tuple[float, float, float]], rng) -> list[tuple]:
    made = []
    for a, w, p in kinds:
        t = rng.uniform(-5, 5, size=(SHOTS + QUERIES, 1))
        b = a * np.sin(w * t[:, 0] - p)
        made.append((t[:SHOTS], b[:SHOTS], t[SHOTS:], b[SHOTS:]))
    return made


def errors(x: Any, tasks: list[tuple]) -> np.ndarray:
    """The mean squared error on the query rows of every task, after adaptation to its support rows."""
    return np.array([np.mean((meta.adapt(x, task[:2])(task[2]) - task[3]) ** 2) for task in tasks])


def trained(tasks: list[tuple], seed: int) -> dict[str, Any]:
    """name -> layers"""
    problem, start = meta.learn(tasks, hidden=HIDDEN, weights="mean", seed=seed)
    half = bs.solve(problem, start, max_steps=STEPS // 2, progress=False)
    found = {"mean": bs.solve(problem, half.point, max_steps=STEPS // 2, progress=False).x}
    for name, weights in (("worst task", "simplex"), ("KL ball 0.5", ("kl", 0.5))):
        problem, start = meta.learn(tasks, hidden=HIDDEN, weights=weights, seed=seed)
        start = bs.Point(x=half.x, theta=half.theta, y=start.y)
        found[name] = bs.solve(problem, start, max_steps=STEPS // 2, progress=False).x
    return found


def one_seed(family: dict, seed: int) -> dict[str, dict[str, float]]:
    """training -> measure -> error"""
    rng = np.random.default_rng(seed)
    seen = [kind for part in family.values() for kind in sinusoids(*part, rng)]
    tasks, again = rows(seen, rng), rows(seen, rng)
    new = {name: rows(sinusoids(low, high, 200, rng), rng) for name, (low, high, _) in family.items()}
    scores: dict = {}
    for name, x in trained(tasks, seed).items():
        found = {"training rows": errors(x, tasks), "new rows of the same tasks": errors(x, again)}
        scores[name] = {f"{place}, {what}": float(of(e)) for place, e in found.items() for what, of in MEASURES.items()}
        for kind, tasks_of_kind in new.items():
            e = errors(x, tasks_of_kind)
            label = "new tasks" if kind == "all" else f"new {kind} tasks"
            scores[name] |= {f"{label}, mean": float(e.mean()), f"{label}, worst of ten": _of_ten(e)}
    return scores


MEASURES = {"mean": np.mean, "worst": np.max}


def _of_ten(e: np.ndarray) -> float:
    return float(e.reshape(-1, 10).max(axis=1).mean())


def adaptation(seeds: int) -> dict:
    """family -> training -> measure -> one entry a seed"""
    results: dict = {}
    with jax.enable_x64(True):
        for title, family in FAMILIES.items():
            found: dict = {}
            for seed in range(FIRST_SEED, FIRST_SEED + seeds):
                clock = time.process_time()
                for name, scores in one_seed(family, seed).items():
                    for measure, value in scores.items():
                        found.setdefault(name, {}).setdefault(measure, []).append(value)
                print(f"{title}, seed {seed}, {time.process_time() - clock:.0f} CPU s", flush=True)
            results[title] = found
    return results


def adaptation_tables(results: dict) -> str:
    lines = []
    for title, found in results.items():
        names = [name for name in found if name != "mean"]
        lines += [f"### {title[0].upper()}{title[1:]}", ""]
        lines += [
            f"| squared error | trained for the mean | {' | '.join(f'for the {n}, change in %' for n in names)} |"
        ]
        lines += ["|---" * (len(names) + 2) + "|"]
        for measure, base in found["mean"].items():
            cells = [_change(np.array(found[name][measure]), np.array(base)) for name in names]
            lines.append(f"| {measure} | {np.mean(base):.3f} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def _change(found: np.ndarray, base: np.ndarray) -> str:
    """Of the average over seeds; its standard error from the seeds' own relative differences."""
    ratio = np.log(found / base)
    centre, error = ratio.mean(), 2 * ratio.std(ddof=1) / len(ratio) ** 0.5
    mark = "**" if centre < -error else "*" if centre > error else ""
    low, high = (100 * np.expm1(centre + sign * error) for sign in (-1, 1))
    return (
        f"{mark}{100 * np.expm1(centre):+.0f} ({low:+.0f} to {high:+.0f}){mark}, lower on {np.mean(found < base):.0%}"
    )
