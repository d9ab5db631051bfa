"""From bytes to columns: LIBSVM text, CSV with a header, and R's data frames; counted against the Source."""

import csv
import io
from collections.abc import Iterable, Mapping

import numpy as np

from bisaddle.datasets.errors import ContentError, TruncatedFileError
from bisaddle.datasets.files import File
from bisaddle.spelling import did_you_mean

Column = list[str] | np.ndarray
Columns = dict[str, Column]


def columns(file: File) -> Columns:
    """name: column. Rows and columns are as many as the source says; text columns are strings, not yet numbers."""
    source, name = file.source, str(file.path)
    if source.format == "libsvm":
        assert source.columns is not None
        found = libsvm(name, file.content, source.columns - 1)
    elif source.format == "rda":
        from bisaddle.datasets.rda import data_frame  # some builds of Python lack what it unpacks with

        found = data_frame(name, file.content)
    else:
        found = comma_separated(name, file.content)
    rows = len(next(iter(found.values())))
    if rows < source.rows:
        raise TruncatedFileError(f"{name} is truncated: {rows} rows found, {source.rows} needed")
    if rows > source.rows:
        raise ContentError(f"{name} has {rows} rows; {source.rows} are needed")
    if source.columns is not None and len(found) != source.columns:
        raise ContentError(f"{name} has {len(found)} columns; {source.columns} are needed")
    return found


def libsvm(name: str, content: bytes, width: int) -> Columns:
    """Lines `target index:value ...`, indices from 1, zeros left out; columns "target", "1", ..., str(width)."""
    rows = []
    for number, line in enumerate(text(name, content).splitlines(), 1):
        if not line.strip():
            continue
        first, *items = line.split()
        row = np.zeros(width + 1)
        try:
            row[0] = float(first)
            for item in items:
                index, value = item.split(":")
                if not 1 <= int(index) <= width:
                    raise ContentError(f"{name}, line {number}: index {index} found; 1 to {width} are needed")
                row[int(index)] = float(value)
        except ValueError:
            raise ContentError(f"{name}, line {number}: {line[:60]!r} found; `target index:value ...` needed") from None
        if not np.all(np.isfinite(row)):
            raise ContentError(f"{name}, line {number}: NaN or infinity found; finite numbers are needed")
        rows.append(row)
    if not rows:
        raise TruncatedFileError(f"{name} is truncated: no rows found")
    table = np.stack(rows)
    return {"target" if i == 0 else str(i): table[:, i] for i in range(width + 1)}


def comma_separated(name: str, content: bytes) -> Columns:
    """Columns of strings under the names of the first line."""
    lines = csv.reader(io.StringIO(text(name, content), newline=""))
    try:
        rows = [(lines.line_num, row) for row in lines if row]
    except csv.Error as error:
        raise ContentError(f"{name}, line {lines.line_num}: {error}; comma-separated values are needed") from error
    if len(rows) < 2:
        raise TruncatedFileError(f"{name} is truncated: {len(rows)} lines found; a line of names and rows are needed")
    names = [column.strip() for column in rows[0][1]]
    if len(set(names)) < len(names):
        raise ContentError(f"{name} has two columns of one name among {', '.join(names)}; different names are needed")
    for number, row in rows[1:]:
        if len(row) != len(names):
            raise ContentError(f"{name}, line {number}: {len(row)} values found; {len(names)} are needed")
    values = [[value.strip() for value in column] for column in zip(*(row for _, row in rows[1:]), strict=True)]
    return dict(zip(names, values, strict=True))


def text(name: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ContentError(f"{name} is not text: byte {error.start} found; UTF-8 is needed") from error


def take(name: str, found: Columns, wanted: Iterable[str]) -> Columns:
    """The wanted columns, in that order; missing ones are refused by name."""
    wanted = list(wanted)
    missing = [column for column in wanted if column not in found]
    if missing:
        there = did_you_mean(missing, found, f"it has {_few(list(found))}")
        raise ContentError(f"{name} has no column {', '.join(missing)}; {there}")
    return {column: found[column] for column in wanted}


def numbers(name: str, column: str, values: Column) -> np.ndarray:
    """A column of finite float64 numbers; the first value that is none is named with its row."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except ValueError:
        array = np.array([_number(value) for value in values])
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise ContentError(
            f"{name}, column {column}, row {bad[0] + 1}: {str(values[bad[0]])!r} found; a finite number is needed"
            + (f" ({bad.size} such rows)" if bad.size > 1 else "")
        )
    return array


def words(name: str, column: str, values: Column, codes: Mapping[str, float]) -> np.ndarray:
    """A column of words as the numbers that codes gives them."""
    unknown = sorted({str(value) for value in values} - set(codes))
    if unknown:
        raise ContentError(f"{name}, column {column}: {_few(unknown)} found; one of {', '.join(codes)} is needed")
    return np.array([codes[str(value)] for value in values])


def _number(value) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


def _few(items: list[str], most: int = 20) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")
