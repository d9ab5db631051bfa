"""Gram matrices of more rows than memory holds, in one pass: all that least squares ask of their rows."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from bisaddle.programs import one_blas_thread
from bisaddle.streams.sources import ahead, reader, whole
from bisaddle.streams.spread import gathered


class Gram:
    """Sums over the rows of every task: how many there are, of u and of u u', u = (features, target).

        counts_t = sum 1,     first_t = sum (u - shift),     second_t = sum (u - shift) (u - shift)'

    shift: the mean of the first chunk, one for all tasks, so that a mean far from 0 takes no digits from the spread.
    The sums are float64, and what is rounded away when a chunk is added is added up as well. folds: with K of them the
    rows of task t in fold k are entry k tasks + t. merge(other) adds the rows of another, however it was shifted.
    """

    def __init__(self, width: int, tasks: int = 1, folds: int = 1):
        self.width, self.tasks, self.folds = width, whole("tasks", tasks), whole("folds", folds)
        cells, size = tasks * folds, width + 1
        self.counts = np.zeros(cells)
        self.shift = np.zeros(size)
        self._first, self._second = np.zeros((2, cells, size)), np.zeros((2, cells, size, size))  # sums and their rest

    @property
    def first(self) -> np.ndarray:
        return self._first[0] + self._first[1]

    @property
    def second(self) -> np.ndarray:
        return self._second[0] + self._second[1]

    def add(self, features: Any, targets: Any, task: Any = None, fold: Any = None) -> None:
        """The rows of one chunk; task, fold: whole numbers from 0 on, one for each row; None: all are 0."""
        u, cell = self._checked(features, targets, task, fold)
        if not self.counts.any() and len(u):
            self.shift = np.mean(u, axis=0)
        u -= self.shift
        if len(self.counts) == 1:
            return self._add(np.zeros(1, int), np.array([len(u)]), u.sum(axis=0)[None], (u.T @ u)[None])
        order = np.argsort(cell, kind="stable")
        u = u[order]
        present, starts = np.unique(cell[order], return_index=True)
        parts = np.split(u, starts[1:]) if len(u) else []
        if parts:
            first, second = (np.stack(sums) for sums in zip(*((p.sum(axis=0), p.T @ p) for p in parts), strict=True))
            self._add(present, np.array([len(part) for part in parts]), first, second)

    def merge(self, other: "Gram") -> "Gram":
        """This one, with the rows of the other as well."""
        mine, theirs = ((g.width, g.tasks, g.folds) for g in (self, other))
        if mine != theirs:
            raise ValueError(f"Grams of the same columns, tasks and folds can be merged, given {mine} and {theirs}")
        if not self.counts.any():
            self.shift = other.shift
        cells = np.flatnonzero(other.counts)
        self._add(cells, other.counts[cells], *(part[cells] for part in other._about(self.shift)))
        return self

    def over_processes(self) -> "Gram":
        """The rows of all processes, the same in each, bit by bit; every process has to call it."""
        if jax.process_count() == 1:
            return self
        sizes = gathered(np.array([self.width, self.tasks, self.folds], float))
        if np.ptp(sizes, axis=0).any():
            raise ValueError(f"every process needs the same columns, tasks and folds, given {sizes.tolist()}")
        names = ("counts", "shift", "_first", "_second")
        parts = [gathered(getattr(self, name)) for name in names]
        whole_gram = Gram(self.width, self.tasks, self.folds)
        for values in zip(*parts, strict=True):
            one = Gram(self.width, self.tasks, self.folds)
            for name, value in zip(names, values, strict=True):
                setattr(one, name, value)
            whole_gram.merge(one)
        return whole_gram

    def sums(self, shift: Any = None, scale: Any = None, intercept: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """(sums of z z' of every task and fold, their counts), z = ((features - shift) / scale, target).

        shift, scale: of the columns of features; None: 0 and 1. intercept: z begins with a 1.
        """
        at, by = np.zeros(self.width + 1), np.ones(self.width + 1)
        at[:-1], by[:-1] = (0.0 if shift is None else shift), (1.0 if scale is None else scale)
        first, second = self._about(at)
        second = second / np.outer(by, by)
        if intercept:
            ones = np.concatenate([self.counts[:, None], first / by], axis=1)
            second = np.concatenate([ones[:, None, 1:], second], axis=1)
            second = np.concatenate([ones[:, :, None], second], axis=2)
        return second, self.counts

    @property
    def mean(self) -> np.ndarray:
        """Of every column of features, over all tasks."""
        self._require_rows()
        return (self.shift + self.first.sum(axis=0) / self.counts.sum())[:-1]

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of every column of features, over all tasks."""
        self._require_rows()
        n = self.counts.sum()
        first, squares = self.first.sum(axis=0), np.einsum("tii->i", self.second)
        return np.sqrt(np.maximum(squares / n - (first / n) ** 2, 0.0))[:-1]

    def __repr__(self) -> str:
        folds = f", {self.folds} folds" if self.folds > 1 else ""
        return f"Gram({self.counts.sum():.0f} rows, {self.width} columns, {self.tasks} tasks{folds})"

    def _about(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """first and second as if shifted by `at`."""
        by = self.shift - at
        n, first = self.counts[:, None], self.first
        across = first[:, :, None] * by
        second = self.second + across + across.transpose(0, 2, 1) + n[:, None] * np.outer(by, by)
        return first + n * by, second

    def _add(self, cells: np.ndarray, counts: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
        self.counts[cells] += counts
        for sums, more in ((self._first, first), (self._second, second)):
            before = sums[0, cells]
            after = before + more
            part = after - before
            sums[0, cells] = after
            sums[1, cells] += (before - (after - part)) + (more - part)  # what `after` has lost

    def _checked(self, features: Any, targets: Any, task: Any, fold: Any) -> tuple[np.ndarray, np.ndarray]:
        features, targets = np.asarray(features), np.asarray(targets)
        if features.ndim != 2 or targets.shape != features.shape[:1] or features.shape[1] != self.width:
            raise ValueError(
                f"features (n, {self.width}) and targets (n,) are needed, given {features.shape} and {targets.shape}"
            )
        u = np.empty((len(features), self.width + 1))
        u[:, :-1], u[:, -1] = features, targets
        total = u.sum(axis=0)  # one number for each column: it is finite unless an entry is not
        if not np.all(np.isfinite(total)) and not np.all(np.isfinite(u)):
            raise ValueError("features and targets must be finite, given NaN or infinity; fill or drop such rows first")
        cell = self._codes("task", task, len(u), self.tasks)
        return u, self._codes("fold", fold, len(u), self.folds) * self.tasks + cell

    def _codes(self, name: str, given: Any, count: int, most: int) -> np.ndarray:
        if given is None:
            return np.zeros(count, int)
        codes = np.asarray(given)
        if codes.shape != (count,) or np.any(codes != np.floor(codes)) or np.any((codes < 0) | (codes >= most)):
            raise ValueError(f"{name} must be a whole number from 0 to {most - 1} for each of the {count} rows")
        return codes.astype(int)

    def _require_rows(self) -> None:
        if not self.counts.any():
            raise ValueError("a Gram without rows has no mean; add some")


def gram(chunks: Iterable[tuple], *, tasks: int = 1, folds: int = 1, seed: int = 0, width: int | None = None) -> Gram:
    """The Gram of all chunks, in one pass; a thread reads the next chunk meanwhile.

    chunks: any iterable of (features, targets) or (features, targets, task); streams.rows and streams.parquet make one.
    tasks: their number; task counts from 0. folds: > 1 deals the rows of each chunk out at random, by the seed.
    width: the number of columns, needed only where there may be no chunk. With several JAX processes each gives the
    chunks of its own files, and all get the Gram of all of them.
    """
    found = None if width is None else Gram(whole("width", width), tasks, folds)
    for number, chunk in enumerate(ahead(chunks, reader())):
        if not isinstance(chunk, tuple) or len(chunk) not in (2, 3):
            raise ValueError(f"chunk {number} must be (features, targets) or (features, targets, task)")
        found = found or Gram(np.shape(chunk[0])[-1], tasks, folds)
        fold = None
        if folds > 1:
            rng = np.random.default_rng([seed, jax.process_index(), number])
            fold = rng.permutation(len(chunk[1])) % folds
        try:
            with one_blas_thread():  # the other core reads
                found.add(chunk[0], chunk[1], chunk[2] if len(chunk) == 3 else None, fold)
        except ValueError as error:
            raise ValueError(f"chunk {number}: {error}") from error
    if found is None:
        raise ValueError("there is no chunk of rows, given an empty iterable; say width= if that may be")
    return found.over_processes()
