"""The MTL data set of section 6: five regression sets of the LIBSVM page, 5642 rows, 14 columns."""

import os
from collections.abc import Sequence

import numpy as np

from bisaddle.datasets.catalogue import parts
from bisaddle.datasets.files import obtain
from bisaddle.datasets.read import columns
from bisaddle.datasets.record import Dataset, Group, build, check_options

WIDTH = 14


def mtl(
    split: str = "even",
    tasks: int | None = None,
    train: float = 0.75,
    standardize: Sequence[str] = ("features", "targets"),
    seed: int = 0,
    directory: str | os.PathLike | None = None,
    download: bool = True,
) -> Dataset:
    """bodyfat, housing, mg, mpg and space_ga, zero-padded to 14 columns.

    split: "even" shuffles all rows into equal tasks (5, as in the paper); "natural" has one task a set.
    Column j means something else in each set.
    """
    check_options(split, tasks, train, standardize, seed)
    groups, checksums = [], {}
    for name, alternatives in parts("mtl").items():
        file = obtain(alternatives, directory, download)
        target, *features = columns(file).values()
        narrow = np.column_stack(features)
        padded = np.pad(narrow, ((0, 0), (0, WIDTH - narrow.shape[1])))
        groups.append(Group(name, padded, np.asarray(target)))
        checksums[file.source.file] = file.sha256
    return build(
        "mtl",
        f"MTL: {', '.join(group.name for group in groups)} of the LIBSVM page, scaled files, zero-padded",
        groups,
        [f"x{j}" for j in range(1, WIDTH + 1)],
        split=split,
        tasks=tasks,
        train=train,
        standardize=standardize,
        seed=seed,
        config={"files": checksums},
    )
