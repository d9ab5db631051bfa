"""Gaussian tasks from the model of section 6; no file."""

import numpy as np

from bisaddle.datasets.record import Choices, Dataset, Group, build

MOST_NUMBERS = 10**9


def synthetic(choices: Choices, n: int = 5000, d: int = 100, noise: float = 0.1) -> Dataset:
    """b_i = A_i (lambda_i y_i + (1 - lambda_i) x) + noise, the rows of apps.multitask.synthetic.

    split: "natural", the default here, keeps the generated tasks; "even" mixes their rows.
    """
    tasks = 5 if choices.tasks is None else choices.tasks
    if n < tasks or n % tasks:
        raise ValueError(f"n must be a multiple of tasks (as many rows each), given n={n} and tasks={tasks}")
    if d < 1:
        raise ValueError(f"d must be at least 1, given {d}")
    if n * d > MOST_NUMBERS:
        raise ValueError(f"n d must be at most {MOST_NUMBERS:g} (numbers in memory), given n={n} and d={d}")
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be finite and >= 0 (a standard deviation), given {noise}")
    from bisaddle.apps import multitask  # with JAX, which the other data sets do without

    made = multitask.synthetic(n, d, tasks, noise, choices.seed)
    groups = [
        Group(f"task {i}", np.concatenate([A, V]), np.concatenate([b, c])) for i, (A, b, V, c) in enumerate(made, 1)
    ]
    config = {"n": int(n), "d": int(d), "noise": float(noise), "files": {}}
    names = [f"x{j}" for j in range(1, d + 1)]
    return build("synthetic", f"synthetic, Gaussian, noise {noise:g}", groups, names, choices, config)
