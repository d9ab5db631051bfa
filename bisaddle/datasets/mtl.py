"""The MTL data set of section 6: five regression sets of the LIBSVM page, 5642 rows, 14 columns."""

import os

import numpy as np

from bisaddle.datasets.catalogue import parts
from bisaddle.datasets.files import obtain
from bisaddle.datasets.read import columns
from bisaddle.datasets.record import Choices, Dataset, Group, build

WIDTH = 14


def mtl(choices: Choices, directory: str | os.PathLike | None = None, download: bool = True) -> Dataset:
    """bodyfat, housing, mg, mpg and space_ga, zero-padded to 14 columns; the natural tasks are these sets.

    Column j means something else in each set.
    """
    groups, checksums = [], {}
    for name, alternatives in parts("mtl").items():
        file = obtain(alternatives, directory, download)
        target, *features = columns(file).values()
        narrow = np.column_stack(features)
        padded = np.pad(narrow, ((0, 0), (0, WIDTH - narrow.shape[1])))
        groups.append(Group(name, padded, np.asarray(target)))
        checksums[file.source.file] = file.sha256
    label = f"MTL: {', '.join(group.name for group in groups)} of the LIBSVM page, scaled files, zero-padded"
    return build("mtl", label, groups, [f"x{j}" for j in range(1, WIDTH + 1)], choices, {"files": checksums})
