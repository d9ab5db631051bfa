"""Data sets as tasks: synthetic, MTL, NLSY79, diabetes, your own CSV; with checksums and every choice recorded."""

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from bisaddle.datasets.catalogue import Source as Source, parts as _parts, sources as sources
from bisaddle.datasets.diabetes import diabetes as _diabetes
from bisaddle.datasets.errors import (
    ChecksumError as ChecksumError,
    ContentError as ContentError,
    DataError as DataError,
    DownloadError as DownloadError,
    MissingFileError as MissingFileError,
    MissingLibraryError as MissingLibraryError,
    TaskError as TaskError,
    TruncatedFileError as TruncatedFileError,
)
from bisaddle.datasets.files import cache as cache, find as _find, folders as folders, read as _read, renew as _renew
from bisaddle.datasets.mtl import mtl as _mtl
from bisaddle.datasets.nlsy79 import nlsy79 as _nlsy79
from bisaddle.datasets.read import columns as _columns
from bisaddle.datasets.record import Choices as _Choices, Dataset as Dataset
from bisaddle.datasets.synthetic import synthetic as _synthetic
from bisaddle.datasets.table import from_csv as from_csv
from bisaddle.spelling import did_you_mean

_LOADERS: dict[str, Callable[..., Dataset]] = {
    "synthetic": _synthetic,
    "mtl": _mtl,
    "nlsy79": _nlsy79,
    "diabetes": _diabetes,
}
NAMES = tuple(_LOADERS)


@dataclass(frozen=True)
class FileReport:
    """One part of a data set: the file found for it, or None, and what is wrong, or "".

    Nothing is wrong with an optional part that is not there.
    """

    source: Source
    path: Path | None
    problem: str

    @property
    def ok(self) -> bool:
        return not self.problem


def load(name: str, **options) -> Dataset:
    """The data set called "synthetic", "mtl", "nlsy79" or "diabetes", as tasks.

    Options of all: split ("even", "natural"), tasks, train=0.75, standardize=("features", "targets"), seed=0. An even
    split has 5 tasks if not said, as in the paper; a natural one those that the data come in.
    synthetic: n, d, noise. mtl, nlsy79: directory, download=True.
    nlsy79: version ("public", "raw"), reading ("A", "B").
    Files: from directory, else BISADDLE_DATA, else the cache, else downloaded; a wrong one raises a DataError.
    """
    loader = _LOADERS[_known(name)]
    shared = [part.name for part in fields(_Choices)]
    own = list(inspect.signature(loader).parameters)[1:]
    unknown = [option for option in options if option not in (*shared, *own)]
    if unknown:
        raise ValueError(f"{name} has no option {', '.join(unknown)}; it has {', '.join((*shared, *own))}")
    # generated tasks stay as they are, unless the user mixes them
    chosen: dict[str, Any] = {"split": "natural" if name == "synthetic" else "even"} | options
    choices = _Choices(**{option: chosen.pop(option) for option in shared if option in chosen})
    return loader(choices, **chosen)


def where(name: str, directory: str | os.PathLike | None = None) -> dict[str, Path | None]:
    """part: the file that load would read for it, not yet checked; None where there is none."""
    places = {part: _find(alternatives, directory) for part, alternatives in _parts(_known(name)).items()}
    return {part: None if place is None else place[1] for part, place in places.items()}


def fetch(name: str, directory: str | os.PathLike | None = None) -> tuple[Path, ...]:
    """Have every file that load needs by default, checked: found, or downloaded into the cache."""
    needed = [alternatives for alternatives in _parts(_known(name)).values() if not alternatives[0].optional]
    return tuple(_renew(alternatives, directory).path for alternatives in needed)


def check(name: str, directory: str | os.PathLike | None = None) -> tuple[FileReport, ...]:
    """A report on each part: checksum, rows and columns. Downloads nothing; raises nothing for a bad file."""
    return tuple(_check(alternatives, directory) for alternatives in _parts(_known(name)).values())


def _check(alternatives: tuple[Source, ...], directory: str | os.PathLike | None) -> FileReport:
    place = _find(alternatives, directory)
    if place is None:
        return FileReport(alternatives[0], None, "" if alternatives[0].optional else "not found")
    try:
        _columns(_read(*place))
    except DataError as error:
        return FileReport(*place, str(error))
    return FileReport(*place, "")


def _known(name: str) -> str:
    if name not in _LOADERS:
        there = did_you_mean(name, _LOADERS, f"there are {', '.join(_LOADERS)}")
        raise ValueError(f"no data set is called {name!r}; {there}")
    return name
