"""Runs on disk: results.json, a list of runs as they are, and results.csv, a line a record."""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bisaddle.experiments import checks
from bisaddle.experiments.errors import ExperimentError
from bisaddle.report.files import parsed_json, write
from bisaddle.report.records import NEEDED, Run, Trial, runs_of

RESULTS, TABLE, SENSITIVITY = "results.json", "results.csv", "sensitivity.json"
HEAD = ("experiment", "dataset", "method", "nu", "seed")


def save(runs: list[dict[str, Any]], folder: str | os.PathLike) -> Path:
    """results.json and results.csv in a folder, made if it is not there; the path of the first."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow((*HEAD, *NEEDED))
    for run in runs_of(runs):
        head = [getattr(run, name) for name in HEAD]
        rows = zip(*(getattr(run.curve, name) for name in NEEDED), strict=True)
        writer.writerows([*head, *row] for row in rows)
    written = _write_json(runs, Path(folder) / RESULTS)
    write(Path(folder) / TABLE, table.getvalue())
    return written


def _write_json(content: Sequence[Any], path: Path) -> Path:
    """JSON without NaN, an item a line."""
    lines = ",\n".join(json.dumps(item, allow_nan=False, separators=(",", ":")) for item in content)
    return write(path, f"[\n{lines}\n]\n")


def load(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The runs of a results.json, or of the folder that holds one."""
    return _read_json(path, RESULTS, "a run", (*HEAD, "config", "curve"), Run)


def _read_json(
    path: str | os.PathLike, name: str, item: str, needed: Sequence[str], record: type[Run | Trial]
) -> list[dict[str, Any]]:
    """The list in a JSON file, or in the file of that name in a folder, of records with all needed keys."""
    file = Path(path) / name if Path(path).is_dir() else Path(path)
    found = checks.content_of(file, f"a {name}, or a folder that holds one, is needed")
    try:
        content = parsed_json(found)
    except ValueError as error:
        raise ExperimentError(f"{file} is not a {name}: no JSON in it that can be used ({error})") from error
    if not isinstance(content, list):
        raise ExperimentError(f"{file} is not a {name}: a list is needed, found {type(content).__name__}")
    for i, one in enumerate(content):
        lacking = [key for key in needed if not isinstance(one, dict) or key not in one]
        if lacking:
            raise ExperimentError(f"{file}: item {i} is not {item}: it has no {', '.join(lacking)}")
        try:
            record.from_dict(one)
        except ValueError as error:
            raise ExperimentError(f"{file}: item {i} is not {item}: {error}") from error
    return content


def save_sensitivity(entries: list[dict[str, Any]], folder: str | os.PathLike) -> Path:
    """sensitivity.json in a folder."""
    return _write_json(entries, Path(folder) / SENSITIVITY)


def load_sensitivity(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The settings of a sensitivity.json, or of the folder that holds one."""
    return _read_json(path, SENSITIVITY, "a setting", ("setting", "cap", "order", "gaps"), Trial)


def sensitivity_in(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """Likewise; none where the folder has no such file."""
    return load_sensitivity(folder) if (Path(folder) / SENSITIVITY).is_file() else []
