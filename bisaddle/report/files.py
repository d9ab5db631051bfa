"""What every file that is written needs: to be whole or not there, finite numbers, and the versions behind them."""

import math
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def write(path: str | os.PathLike, content: str) -> Path:
    """The text in a file, whose folder is made if it is not there; never half a file: written beside, then renamed."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(content, encoding="utf-8", newline="\n")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    return path


def finite(value: Any) -> Any:
    """Numbers, and lists and dicts of them, as JSON has them: None for NaN and infinity."""
    if isinstance(value, list):
        return [finite(item) for item in value]
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def versions(*names: str) -> dict[str, str | None]:
    """Of bisaddle, python and libraries; None for a library that is not there."""
    return {name: _version(name) for name in names}


def _version(name: str) -> str | None:
    if name == "bisaddle":
        return sys.modules["bisaddle"].__version__
    if name == "python":
        return platform.python_version()
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def machine() -> str:
    return f"{platform.system()} {platform.machine()}"
