"""The regression tasks of benchmarks/adaptive.py: lists of (A_train, b_train, A_valid, b_valid).

Files from the folder BISADDLE_DATA are read, split and standardised as in the paper's default configuration: rows
permuted by the seed, three quarters of each task for training, features and target standardised with the training
rows of all tasks.
"""

import csv
import os
import re
from functools import cache
from pathlib import Path

import numpy as np

SETS = ("bodyfat", "housing", "mg", "mpg", "space_ga")
WIDTH = 14
JOBS = ("agri", "mining", "construction", "manuf", "transp", "wholesale", "retail", "fin", "busi", "personal", "enter",
        "pro", "pub")  # fmt: skip
HEALTH = ("Excellent", "Very Good", "Good", "Fair", "Poor")
NUMBERS = ("age", "illegalact", "charged", "jobsnum90", "afqt89")


def folder() -> Path | None:
    named = os.environ.get("BISADDLE_DATA")
    return Path(named) if named else None


def _file(name: str) -> Path:
    where = folder()
    if where is None or not (where / name).is_file():
        raise FileNotFoundError(f"{name} is not in the folder BISADDLE_DATA names ({where})")
    return where / name


def _svmlight(path: Path) -> tuple[np.ndarray, np.ndarray]:
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    A, b = np.zeros((len(lines), WIDTH)), np.array([float(line[0]) for line in lines])
    for row, line in zip(A, lines, strict=True):
        for item in line[1:]:
            place, value = item.split(":")
            row[int(place) - 1] = float(value)
    return A, b


@cache
def _mtl() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    parts = [_svmlight(_file(f"{name}_scale")) for name in SETS]
    labels = np.repeat(np.arange(len(SETS)), [len(b) for _, b in parts])
    return np.concatenate([A for A, _ in parts]), np.concatenate([b for _, b in parts]), labels


def _grade(words: str) -> float:
    years = re.match(r"\d+", words)
    assert years is not None, words
    return float(years.group()) + (12 if "COL" in words else 0)


@cache
def _nlsy() -> tuple[np.ndarray, np.ndarray]:
    """The public stand-in, reading B: age, seven numbers, thirteen indicators of industry; income in 1990."""
    with _file("national.longitudinal.survey.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    columns = [[float(row[name]) for row in rows] for name in NUMBERS]
    columns.append([HEALTH.index(row["genhealth"]) + 1.0 for row in rows])
    columns.append([_grade(row["grade90"]) for row in rows])
    columns.append([float(row["jobtrain90"] == "Yes") for row in rows])
    columns += [[float(row["typejob90"] == job) for row in rows] for job in JOBS]
    return np.array(columns).T, np.array([float(row["income90"]) for row in rows])


def _tasks(A: np.ndarray, b: np.ndarray, parts: list[np.ndarray]) -> list[tuple]:
    cuts = [(part[: int(0.75 * len(part))], part[int(0.75 * len(part)) :]) for part in parts]
    train = np.concatenate([rows for rows, _ in cuts])

    def standard(values):
        spread = values[train].std(axis=0)
        constant = spread <= 1e-12 * np.abs(values[train]).max(axis=0)
        return np.where(constant, 0, (values - values[train].mean(axis=0)) / np.where(constant, 1, spread))

    A, b = standard(A), standard(b)
    return [(A[rows], b[rows], A[kept], b[kept]) for rows, kept in cuts]


def even(seed: int) -> list[tuple]:
    A, b, _ = _mtl()
    return _tasks(A, b, np.array_split(np.random.default_rng(seed).permutation(len(b)), 5))


def natural(seed: int) -> list[tuple]:
    A, b, labels = _mtl()
    order = np.random.default_rng(seed).permutation(len(b))
    return _tasks(A, b, [order[labels[order] == task] for task in range(len(SETS))])


def nlsy(seed: int) -> list[tuple]:
    A, b = _nlsy()
    return _tasks(A, b, np.array_split(np.random.default_rng(seed).permutation(len(b)), 5))


def labelled(seed: int, tasks: int = 5, rows: int = 120, width: int = 10) -> list[tuple]:
    """Gaussian rows with noisy signs, the sign multiplied into the row: (train, valid) of each task."""
    rng = np.random.default_rng(seed)
    shared, made = rng.normal(size=width), []
    for _ in range(tasks):
        truth, A = shared + 0.7 * rng.normal(size=width), rng.normal(size=(rows, width))
        A *= np.where(A @ truth + rng.logistic(size=rows) > 0, 1.0, -1.0)[:, None]
        made.append((A[: rows * 3 // 4], A[rows * 3 // 4 :]))
    return made
