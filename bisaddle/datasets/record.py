"""Dataset, and the way from rows to it: split into tasks, into training and validation rows, standardised."""

import json
import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from bisaddle.datasets.errors import TaskError

Task = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Group(NamedTuple):
    """Rows that belong together by nature: a set of the five, a gender, a generated task."""

    name: str
    features: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True)
class Choices:
    """How rows become tasks: options of every data set, refused outside their range before any file is looked for.

    split: "even" shuffles all rows into equal tasks (5 if tasks is None); "natural" has a task a group of rows.
    train: the fraction of training rows of a task. standardize: "features", "targets", both or none of them.
    """

    split: str = "even"
    tasks: int | None = None
    train: float = 0.75
    standardize: Sequence[str] = ("features", "targets")
    seed: int = 0

    def __post_init__(self) -> None:
        tasks, seed, known = self.tasks, self.seed, ("features", "targets")
        if self.split not in ("even", "natural"):
            raise ValueError(f'split must be "even" or "natural", given {self.split!r}')
        if tasks is not None and (isinstance(tasks, bool) or not isinstance(tasks, int | np.integer) or tasks < 2):
            raise ValueError(f"tasks must be an integer >= 2 (the worst of one task is that task), given {tasks!r}")
        if not 0 < self.train < 1:
            raise ValueError(f"train must lie between 0 and 1 (the fraction of training rows), given {self.train!r}")
        if isinstance(self.standardize, str) or not all(what in known for what in self.standardize):
            raise ValueError(f"standardize must be a list of none, one or both of {known}, given {self.standardize!r}")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
            raise ValueError(f"seed must be an integer >= 0, given {seed!r}")


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Tasks ready for apps.multitask.regression, with everything that was chosen on the way to them.

    label: what the data really are. tasks: (A_train, b_train, A_valid, b_valid) each, float64, read-only.
    config: split, seed, standardisation, sizes, checksums of the files read, ...; a fresh copy, always JSON.
    """

    name: str
    label: str
    tasks: tuple[Task, ...]
    task_names: tuple[str, ...]
    features: tuple[str, ...]
    _config: str = field(default="{}")

    @property
    def config(self) -> dict[str, Any]:
        return json.loads(self._config)

    def summary(self) -> str:
        """A few lines: what it is, its size, a line per task."""
        config = self.config
        scaled = " and ".join(config["standardize"]) or "nothing"
        wide = max(map(len, self.task_names))
        lines = [
            f"{self.name}: {self.label}",
            f"{config['rows']} rows, {len(self.features)} features, {len(self.tasks)} tasks; "
            f"split {config['split']}, seed {config['seed']}; standardised: {scaled}",
        ]
        for name, (A, _, V, _) in zip(self.task_names, self.tasks, strict=True):
            lines.append(f"  {name:{wide}}  {len(A):6d} training, {len(V):6d} validation rows")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<Dataset {self.summary()}>"


def build(
    name: str,
    label: str,
    groups: Sequence[Group],
    features: Sequence[str],
    choices: Choices,
    config: dict[str, Any],
) -> Dataset:
    """Groups of rows into a Dataset.

    even:     perm = default_rng(seed).permutation(n); array_split(perm, tasks)
    natural:  perm = default_rng(seed).permutation(n_i) of each group i
    the first int(train * len) rows of each part train, the others validate
    standardised: (column - mean) / deviation over all training rows of all tasks; constant columns become 0
    """
    split, tasks, seed = choices.split, choices.tasks, choices.seed
    if split == "even":
        A, b = np.concatenate([g.features for g in groups]), np.concatenate([g.targets for g in groups])
        parts = np.array_split(np.random.default_rng(seed).permutation(len(b)), 5 if tasks is None else tasks)
        shuffled = [Group(f"part {i}", A[part], b[part]) for i, part in enumerate(parts, 1)]
    else:
        if tasks not in (None, len(groups)):
            raise ValueError(
                f'tasks={tasks} does not fit split="natural", where {name} has {len(groups)} tasks; leave it out, '
                f'or use split="even"'
            )
        perms = [np.random.default_rng(seed).permutation(len(g.targets)) for g in groups]
        shuffled = [Group(g.name, g.features[p], g.targets[p]) for g, p in zip(groups, perms, strict=True)]
    made, scale = _standardize([_cut(name, group, choices.train) for group in shuffled], choices.standardize)
    config = {
        "name": name,
        "label": label,
        **config,
        "split": split,
        "tasks": len(made),
        "train": float(choices.train),
        "standardize": list(choices.standardize),
        "seed": operator.index(seed),
        "rows": sum(len(g.targets) for g in groups),
        "columns": len(features),
        "train_rows": [len(task[0]) for task in made],
        "valid_rows": [len(task[2]) for task in made],
        **scale,
    }
    for task in made:
        for array in task:
            array.flags.writeable = False
    names = tuple(group.name for group in shuffled)
    return Dataset(name, label, tuple(made), names, tuple(features), json.dumps(config, allow_nan=False))


def _cut(name: str, group: Group, train: float) -> Task:
    found, cut = len(group.targets), int(train * len(group.targets))
    if not 1 <= cut < found:
        needed = next(rows for rows in count(2) if 1 <= int(train * rows) < rows)
        raise TaskError(
            f"{name}, task {group.name}: {found} rows found; at least {needed} are needed for training and "
            f"validation rows with train={train}; use fewer tasks, or leave this one out"
        )
    return group.features[:cut], group.targets[:cut], group.features[cut:], group.targets[cut:]


def _standardize(tasks: list[Task], what: Sequence[str]) -> tuple[list[Task], dict[str, Any]]:
    chosen = ("features" in what, "targets" in what)
    moments = [_moments(np.concatenate([task[i] for task in tasks])) for i in (0, 1)]
    made: list[Task] = []
    for task in tasks:
        A, b, V, c = (_scaled(array, *moments[i % 2]) if chosen[i % 2] else array for i, array in enumerate(task))
        made.append((A, b, V, c))
    # what brings a loss back to the target's own unit
    unit = {"target_mean": float(moments[1][0]), "target_deviation": float(moments[1][1])}
    return made, unit if chosen[1] else {}


def _moments(pooled: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation; a constant column has deviation 0, whatever rounding makes of it."""
    deviation = np.where(np.ptp(pooled, axis=0) > 0, np.std(pooled, axis=0), 0.0)
    return np.asarray(np.mean(pooled, axis=0)), deviation


def _scaled(array: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    shifted = array - mean
    return np.divide(shifted, deviation, out=np.zeros_like(shifted), where=deviation > 0)
