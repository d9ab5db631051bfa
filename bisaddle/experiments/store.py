"""Runs on disk: results.json, a list of runs as they are, and results.csv, a line a record."""

import csv
import json
import os
from pathlib import Path
from typing import Any

from bisaddle.experiments.errors import ExperimentError

RESULTS, TABLE, SENSITIVITY = "results.json", "results.csv", "sensitivity.json"
CURVE = ("k", "seconds", "hvps", "x_gap", "y_gap", "gap", "worst_value", "corner")
KEYS = ("experiment", "dataset", "method", "nu", "seed", "config", "curve")


def save(runs: list[dict[str, Any]], folder: str | os.PathLike) -> Path:
    """results.json and results.csv in a folder, made if it is not there; the path of the first."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(runs, folder / RESULTS)
    with _whole_file(folder / TABLE) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("experiment", "dataset", "method", "nu", "seed", *CURVE))
        for run in runs:
            head = [run[key] for key in ("experiment", "dataset", "method", "nu", "seed")]
            rows = zip(*(run["curve"][name] for name in CURVE), strict=True)
            writer.writerows([*head, *row] for row in rows)
    return folder / RESULTS


def write_json(content: Any, path: Path) -> None:
    """JSON without NaN, a run a line; never half a file."""
    lines = ",\n".join(json.dumps(item, allow_nan=False, separators=(",", ":")) for item in content)
    with _whole_file(path) as temporary:
        temporary.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


class _whole_file:
    """A temporary file beside the path, moved there when it is complete."""

    def __init__(self, path: Path):
        self.path, self.temporary = path, path.with_name(f".{path.name}.part")

    def __enter__(self) -> Path:
        return self.temporary

    def __exit__(self, kind, error, trace) -> None:
        if kind is None:
            os.replace(self.temporary, self.path)
        else:
            self.temporary.unlink(missing_ok=True)


def load(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The runs of a results.json, or of the folder that holds one."""
    found = read_json(path, RESULTS)
    for i, run in enumerate(found):
        lacking = [key for key in KEYS if not isinstance(run, dict) or key not in run]
        if lacking:
            raise ExperimentError(f"{path}: item {i} is not a run: it has no {', '.join(lacking)}")
        columns = {name: run["curve"].get(name) for name in CURVE} if isinstance(run["curve"], dict) else {}
        if not columns or any(not isinstance(values, list) for values in columns.values()):
            raise ExperimentError(f"{path}: run {i} has no complete curve; it needs the columns {', '.join(CURVE)}")
        if len({len(values) for values in columns.values()}) > 1:
            raise ExperimentError(f"{path}: the columns of the curve of run {i} differ in length")
    return found


def read_json(path: str | os.PathLike, name: str) -> list[Any]:
    """The list in a JSON file, or in the file of that name in a folder."""
    file = Path(path) / name if Path(path).is_dir() else Path(path)
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(
            f"{file} cannot be read ({error.strerror or error}); a {name}, or a folder that holds one, is needed"
        ) from error
    except ValueError as error:
        raise ExperimentError(f"{file} is not a {name}: no JSON in it ({error})") from error
    if not isinstance(content, list):
        raise ExperimentError(f"{file} is not a {name}: a list is needed, found {type(content).__name__}")
    return content


def save_sensitivity(entries: list[dict[str, Any]], folder: str | os.PathLike) -> Path:
    """sensitivity.json in a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_json(entries, Path(folder) / SENSITIVITY)
    return Path(folder) / SENSITIVITY


def load_sensitivity(path: str | os.PathLike) -> list[dict[str, Any]]:
    """The settings of a sensitivity.json, or of the folder that holds one."""
    found, needed = read_json(path, SENSITIVITY), ("setting", "cap", "order", "gaps")
    for i, entry in enumerate(found):
        lacking = [key for key in needed if not isinstance(entry, dict) or key not in entry]
        if lacking:
            raise ExperimentError(f"{path}: item {i} is not a setting: it has no {', '.join(lacking)}")
    return found
