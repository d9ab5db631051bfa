"""What a run remembers, in a bounded amount of memory: rows of its trace, its best and its last record."""

from dataclasses import dataclass, field, replace

import numpy as np

from bisaddle.certificate.certifier import Certificate
from bisaddle.methods.base import Counts, Look
from bisaddle.run.result import CERTIFICATE_COLUMNS, MOST_ROWS, Record, Trace

# the columns of a trace, in its order; all but seconds and what a certificate tells are whole numbers
COLUMNS = ("k", "seconds", *CERTIFICATE_COLUMNS, *Counts._fields, "estimated")
WHOLE = {"k": np.int64, "estimated": np.bool_, **dict.fromkeys(Counts._fields, np.int64)}
K, GAP = COLUMNS.index("k"), COLUMNS.index("gap")


def _no_rows() -> np.ndarray:
    return np.zeros((0, len(COLUMNS)))


@dataclass
class Rows:
    """Rows of a trace: the first, the last, and of every `stride` consecutive ones the one with the smallest gap.

    The stride is 1 until there are MOST_ROWS. table: kept rows, of which the first `filled` are in use; ends: the first
    and the last row; count: how many there have been.
    """

    table: np.ndarray = field(default_factory=_no_rows)
    ends: np.ndarray = field(default_factory=_no_rows)
    filled: int = 0
    stride: int = 1
    count: int = 0

    def add(self, k: int, seconds: float, told: Certificate | Look, counts: Counts) -> None:
        """A row from what a certificate, or a method, tells of step k."""
        numbers = [getattr(told, name, np.nan) for name in CERTIFICATE_COLUMNS]
        row = np.array([k, seconds, *numbers, *counts, isinstance(told, Look)], np.float64)
        if not self.count:
            self.ends = np.array([row, row])
        self.ends[1] = row
        if self.count % self.stride == 0:
            self._append(row)
        elif _size(row) < _size(self.table[self.filled - 1]):
            self.table[self.filled - 1] = row
        self.count += 1

    def _append(self, row: np.ndarray) -> None:
        if self.filled == MOST_ROWS:
            first, second = self.table[::2], self.table[1::2]
            self.table = np.where((_size(second) < _size(first))[:, None], second, first)
            self.filled, self.stride = len(self.table), 2 * self.stride
        if self.filled == len(self.table):
            more = min(max(64, self.filled), MOST_ROWS - self.filled)
            self.table = np.concatenate([self.table, np.zeros((more, len(COLUMNS)))])
        self.table[self.filled] = row
        self.filled += 1

    def rows(self) -> np.ndarray:
        """Those that are kept, in the order of k."""
        kept = self.table[: self.filled]
        if self.stride == 1 and np.all(kept[1:, K] > kept[:-1, K]):  # the first and the last among them
            return kept
        every = np.concatenate([kept, self.ends])
        return every[np.unique(every[:, K], return_index=True)[1]]

    @property
    def sound(self) -> bool:
        """Whether the parts fit together, also where they come from a file."""
        shaped = all(part.ndim == 2 and part.shape[1] == len(COLUMNS) for part in (self.table, self.ends))
        return (
            shaped
            and 0 <= self.filled <= len(self.table)
            and self.stride > 0
            and bool(self.count) == (len(self.ends) == 2)
        )

    def copy(self) -> "Rows":
        return replace(self, table=self.table[: self.filled].copy(), ends=self.ends.copy())


def _size(rows: np.ndarray) -> np.ndarray:
    """The gap, infinite if it is not a number."""
    gaps = rows[..., GAP]
    return np.where(np.isnan(gaps), np.inf, gaps)


@dataclass
class History:
    """certified: rows of the records; estimates: rows that a method driven from the host tells of itself.

    best: the record with the smallest gap, error bound included; None while none is a number. last: of the last step.
    """

    certified: Rows = field(default_factory=Rows)
    estimates: Rows = field(default_factory=Rows)
    best: Record | None = None
    last: Record | None = None

    def add(self, record: Record) -> None:
        self.certified.add(record.k, record.seconds, record.certificate, record.counts)
        if np.isfinite(_score(record)) and (self.best is None or _rank(record) < _rank(self.best)):
            self.best = record
        if self.last is None or record.k >= self.last.k:
            self.last = record

    def trace(self) -> Trace:
        """The records, and between them what the method has told of itself."""
        certified, estimates = self.certified.rows(), self.estimates.rows()
        rows = np.concatenate([certified, estimates[~np.isin(estimates[:, K], certified[:, K])]])
        columns = rows[np.argsort(rows[:, K], kind="stable")].T
        return Trace.made(
            **{name: column.astype(WHOLE.get(name, np.float64)) for name, column in zip(COLUMNS, columns, strict=True)}
        )

    def copy(self) -> "History":
        """As it is now, whatever is added later; records never change."""
        return replace(self, certified=self.certified.copy(), estimates=self.estimates.copy())


def _score(record: Record) -> float:
    # not the gap alone: a small gap with a large error bound is worth less than it seems
    return float(record.certificate.gap + record.certificate.error_bound)


def _rank(record: Record) -> tuple[float, int]:
    return _score(record), record.k
