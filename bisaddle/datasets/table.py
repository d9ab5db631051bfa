"""The user's own CSV file, a task for each value of a column."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bisaddle.datasets.errors import ContentError, MissingFileError, TaskError
from bisaddle.datasets.read import comma_separated, numbers, take
from bisaddle.datasets.record import Choices, Dataset, Group, build


def from_csv(
    file: str | os.PathLike,
    target: str,
    task_column: str,
    features: Sequence[str] | None = None,
    train: float = 0.75,
    standardize: Sequence[str] = ("features", "targets"),
    seed: int = 0,
) -> Dataset:
    """A CSV file with a line of names; tasks in order of their first row.

    features: the columns used, by default all but target and task_column; all of them numbers, none missing.
    """
    choices = Choices("natural", None, train, standardize, seed)
    path = Path(file).expanduser()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read ({error.strerror or error}); a CSV file is needed") from error
    found = comma_separated(str(path), content)
    chosen = [name for name in found if name not in (target, task_column)] if features is None else list(features)
    if target == task_column or {target, task_column} & set(chosen) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"target, task_column and features must be different columns, given {target}, {task_column} and {chosen}"
        )
    wanted = take(str(path), found, [task_column, target, *chosen])
    if not chosen:
        raise ContentError(f"{path} has no column but {target} and {task_column}; at least one feature is needed")
    A = np.column_stack([numbers(str(path), name, wanted[name]) for name in chosen])
    b, labels = numbers(str(path), target, wanted[target]), np.array(wanted[task_column])
    names = list(dict.fromkeys(wanted[task_column]))
    if "" in names:
        row = int(np.flatnonzero(labels == "")[0]) + 1
        raise ContentError(f"{path}, column {task_column}, row {row}: nothing found; the name of a task is needed")
    if len(names) < 2:
        raise TaskError(f"{path}, column {task_column}: one task only ({names[0]}) found; at least two are needed")
    groups = [Group(str(name), A[labels == name], b[labels == name]) for name in names]
    files = {path.name: hashlib.sha256(content).hexdigest()}
    config = {"target": target, "task_column": task_column, "files": files}
    return build(path.stem, f"{path.name}, {target} by {task_column}", groups, chosen, choices, config)
