"""Curves with fewer points: of every stretch the least and the largest, so that nothing seen in a curve is lost."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from bisaddle.report.records import Curve, Numbers

# columns against which a page draws, those that it draws, and what it does not
ACROSS = ("k", "hvps", "seconds")
DRAWN = ("gap", "gap_projection", "gap_paper", "x_gap", "y_gap", "worst_value")
# stretches on a linear axis, and as many on a logarithmic one, shared by the seeds of a method
STRETCHES, FEWEST = 90, 30
# a column this close to even steps, relatively, is written as its ends
EVEN = 1e-5


def thinned(curves: Sequence[Curve]) -> list[dict[str, Any]]:
    """A method's curves, a curve a seed, for the page.

    at      by column the places that are kept, the same for all seeds where their records are at the same steps
    values  by column the numbers there, to four digits; the least and the last keep all of theirs
    k, hvps, seconds   of every record: a list, or {first, last, count} where the steps are even
    corner  stretches of records at a degenerate corner, [from, to)
    """
    together = len({tuple(curve.k) for curve in curves}) == 1
    made = []
    for curve in curves:
        seeds = curves if together else [curve]
        stretches = max(STRETCHES // len(seeds), FEWEST)
        names = [name for name in DRAWN if getattr(curve, name) is not None]
        at = {
            name: places([column for seed in seeds if (column := getattr(seed, name)) is not None], stretches)
            for name in names
        }
        values = {name: _values(getattr(curve, name), at[name]) for name in names}
        across = {name: _short(getattr(curve, name)) for name in ACROSS}
        made.append({"at": at, "values": values, **across, "corner": _stretches(curve.corner)})
    return made


def places(columns: Sequence[Numbers], stretches: int) -> list[int]:
    """The first and the last record, and the least and the largest of each column in each stretch."""
    count = len(columns[0])
    linear = [round(i * count / stretches) for i in range(stretches + 1)]
    log = [round(math.expm1(i * math.log1p(count) / stretches)) for i in range(stretches + 1)]
    kept = {0, count - 1}
    for edges in (linear, log):
        for start, stop in zip(edges, edges[1:], strict=False):
            for column in columns:
                found = [(value, i) for i, value in enumerate(column[start:stop], start) if value is not None]
                if found:
                    kept |= {min(found)[1], max(found, key=lambda pair: pair[0])[1]}
                if len(found) < stop - start:
                    kept.add(column.index(None, start))  # where there is no number the line has a hole
    return sorted(kept)


def _values(column: Numbers, at: Iterable[int]) -> Numbers:
    last = len(column) - 1
    least = min((value for value in column if value is not None), default=None)
    return [column[i] if i == last or column[i] == least else _rounded(column[i]) for i in at]


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _short(column: Sequence[Any]) -> list | dict[str, Any]:
    count, first, last = len(column), column[0], column[-1]
    if count < 3 or None in column:
        return list(column)
    step = (last - first) / (count - 1)
    even = all(abs(value - first - i * step) <= EVEN * abs(last - first) for i, value in enumerate(column))
    return {"first": first, "last": last, "count": count} if even else list(column)


def _stretches(flags: Sequence[bool]) -> list[tuple[int, int]]:
    edges = [i for i, (before, flag) in enumerate(zip([False, *flags], [*flags, False], strict=True)) if before != flag]
    return list(zip(edges[::2], edges[1::2], strict=True))
