"""Tables and counts from runs and settings, for REPRODUCTION.md; every sentence there is chosen by these numbers."""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bisaddle.report.records import Rerun, Run

# orders of magnitude of the gap below which two curves count as alike
ALIKE = 0.1


@dataclass(frozen=True)
class Curves:
    """The tuned runs of one method on one data set, a run a seed."""

    runs: tuple[Run, ...]

    @property
    def first(self) -> Run:
        """For what is the same for all seeds."""
        return self.runs[0]

    @property
    def score(self) -> float:
        """Mean over the seeds of the mean log10 gap: what nu was chosen by, and what "faster" means here."""
        return float(np.mean(_numbers(run.final.mean_log10_gap for run in self.runs)))

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the largest mean log10 gap of a seed."""
        found = _numbers(run.final.mean_log10_gap for run in self.runs)
        return min(found), max(found)

    @property
    def corners(self) -> int:
        return sum(run.final.corner for run in self.runs)

    @property
    def reruns(self) -> list[Rerun]:
        """Of the runs that were made again by themselves."""
        return [run.final.alone for run in self.runs if run.final.alone is not None]

    def median(self, key: str) -> float:
        """Over the seeds, of a number of the last record."""
        return float(np.median(_numbers(getattr(run.final, key) for run in self.runs)))

    def after(self, products: float | int) -> float:
        """Median over the seeds of the last gap with no more than so many products taken."""
        gaps = [run.curve.gap[bisect_right(run.curve.hvps, products) - 1] for run in self.runs]
        return float(np.median(_numbers(gaps)))


# data set -> method -> Curves
Sets = dict[str, dict[str, Curves]]


def curves(runs: Iterable[Run]) -> dict[str, Sets]:
    """experiment (exp1, exp2, frozen, ...) -> data set -> method -> Curves, complete runs only."""
    found: dict[str, dict[str, dict[str, list[Run]]]] = {}
    for run in runs:
        if run.tuned and not run.partial:
            name = run.experiment.removesuffix(f"_{run.dataset}")
            found.setdefault(name, {}).setdefault(run.dataset, {}).setdefault(run.method, []).append(run)
    return {
        name: {data: {key: Curves(tuple(runs)) for key, runs in methods.items()} for data, methods in sets.items()}
        for name, sets in found.items()
    }


def order(methods: dict[str, Curves], keys: Sequence[str], score: Callable[[Curves], float]) -> list[str]:
    """The keys that were run, least score first."""
    return sorted((key for key in keys if key in methods), key=lambda key: score(methods[key]))


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(' --- ' for _ in head)}|"]
    return "\n".join([*lines, *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows)])


def short(value: float | int | None) -> str:
    """A number for a table."""
    if value is None or not math.isfinite(value):
        return "not finite"
    return "0" if value == 0 else f"{value:.1e}" if abs(value) < 1e-2 or abs(value) >= 1e3 else f"{value:.3g}"


def of(count: int, total: int, what: str) -> str:
    """ "on all 3 data sets", "on none of the 3 data sets", "on 1 of the 3 data sets" """
    if total == 1:
        return f"on the one {what}" if count else f"not on the one {what}"
    amount = f"all {total}" if count == total else f"none of the {total}" if count == 0 else f"{count} of the {total}"
    return f"on {amount} {what}s"


def verdict(count: int, total: int) -> str:
    """For the first table."""
    if not total:
        return "not run"
    return "holds" if count == total else "fails" if count == 0 else f"holds on {count} of {total}"


def compared(first: float | int, second: float | int) -> str:
    """The second score (a mean log10 gap) in words, before the name of the first."""
    change = second - first
    if not math.isfinite(change):
        return "not to be compared, as one is not finite,"
    if abs(change) < ALIKE:
        return "about the same as"
    return f"{'lower' if change < 0 else 'higher'} by {abs(change):.1f} orders of magnitude than"


def _numbers(values: Iterable[float | int | None]) -> list[float | int]:
    """What is not finite counts as infinite."""
    return [math.inf if value is None else value for value in values]
