"""Gaussian tasks from the model of section 6; no file."""

from collections.abc import Sequence

import numpy as np

from bisaddle.apps import multitask
from bisaddle.datasets.record import Dataset, Group, build, check_options


def synthetic(
    n: int = 5000,
    d: int = 100,
    tasks: int = 5,
    noise: float = 0.1,
    seed: int = 0,
    split: str = "natural",
    train: float = 0.75,
    standardize: Sequence[str] = ("features", "targets"),
) -> Dataset:
    """b_i = A_i (lambda_i y_i + (1 - lambda_i) x) + noise, the rows of apps.multitask.synthetic.

    split: "natural" keeps the generated tasks; "even" mixes their rows.
    """
    check_options(split, tasks, train, standardize, seed)
    if n < tasks or n % tasks:
        raise ValueError(f"n must be a multiple of tasks (as many rows each), given n={n} and tasks={tasks}")
    if d < 1:
        raise ValueError(f"d must be at least 1, given {d}")
    if not (np.isfinite(noise) and noise >= 0):
        raise ValueError(f"noise must be finite and >= 0 (a standard deviation), given {noise}")
    made = multitask.synthetic(n, d, tasks, noise, seed)
    groups = [
        Group(f"task {i}", np.concatenate([A, V]), np.concatenate([b, c])) for i, (A, b, V, c) in enumerate(made, 1)
    ]
    return build(
        "synthetic",
        f"synthetic, Gaussian, noise {noise:g}",
        groups,
        [f"x{j}" for j in range(1, d + 1)],
        split=split,
        tasks=tasks,
        train=train,
        standardize=standardize,
        seed=seed,
        config={"n": int(n), "d": int(d), "noise": float(noise), "files": {}},
    )
