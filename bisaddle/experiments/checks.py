"""What a file may say: a value checked or refused, with the key, what was given and what is needed."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from bisaddle.experiments.errors import ExperimentError
from bisaddle.report.files import read
from bisaddle.report.schema import shortened
from bisaddle.spelling import did_you_mean


def content_of(path: Path, needed: str) -> bytes:
    """Of a file; needed: what kind of file, in the words of the refusal."""
    try:
        return read(path)
    except OSError as error:
        raise ExperimentError(f"{path} cannot be read ({error.strerror or error}); {needed}") from error


def one_of(where: str, value: Any, allowed: Iterable[str]) -> str:
    if value not in (known := list(allowed)):
        near = did_you_mean(value, known)
        raise ExperimentError(
            f"{where} must be one of {', '.join(known)}, given {shortened(value)}; {near}".rstrip("; ")
        )
    return value


def only(where: str, table: dict[str, Any], allowed: Iterable[str]) -> None:
    """No other keys."""
    known = list(allowed)
    for key in table:
        if key not in known:
            there = did_you_mean(key, known, f"it may have {', '.join(known)}")
            raise ExperimentError(f"{where}: unknown key {key!r}; {there}")


def table(where: str, value: Any, kind: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ExperimentError(f"{where} must be a table{kind}, given {shortened(value)}")
    return value


def text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ExperimentError(f"{where} must be a text, given {shortened(value)}")
    return value


def is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond float64
        return False


def is_whole(value: Any, least: int) -> TypeGuard[int]:
    return not isinstance(value, bool) and isinstance(value, int | np.integer) and bool(value >= least)


def number(where: str, value: Any, zero: bool = False) -> float:
    """A finite number above 0; zero: or 0."""
    if not is_number(value) or value < 0 or (value == 0 and not zero):
        raise ExperimentError(f"{where} must be a finite number {'>= 0' if zero else '> 0'}, given {shortened(value)}")
    return float(value)


def numbers(where: str, values: Any) -> tuple[float, ...]:
    """Numbers above 0, at least one."""
    if not isinstance(values, list | tuple | np.ndarray) or len(values) == 0:
        raise ExperimentError(f"{where} must be a list of numbers > 0, given {shortened(values)}")
    return tuple(number(where, value) for value in values)


def whole(where: str, value: Any, least: int, most: int | None = None) -> int:
    if not is_whole(value, least) or (most is not None and value > most):
        upto = "" if most is None else f" and <= {most}"
        raise ExperimentError(f"{where} must be a whole number >= {least}{upto}, given {shortened(value)}")
    return int(value)


def seeds(where: str, values: Any) -> tuple[int, ...]:
    """Different whole numbers, at least one."""
    if isinstance(values, str | bytes | dict) or not isinstance(values, Iterable):
        raise ExperimentError(f"{where} must be a list of whole numbers >= 0, given {shortened(values)}")
    found = tuple(whole(where, seed, 0) for seed in values)
    if not found or len(set(found)) < len(found):
        raise ExperimentError(f"{where} must be different whole numbers, at least one, given {shortened(list(found))}")
    return found
