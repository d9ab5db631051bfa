"""What every file that is written needs: to be whole or not there, finite numbers, and the versions behind them."""

import io
import math
import os
import platform
import sys
import threading
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def write(path: str | os.PathLike, content: str | bytes) -> Path:
    """Text or bytes in a file, whose folder is made if it is not there.

    Never half a file, whenever the process or the machine stops: written beside, forced to the disk, then renamed.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    beside = _beside(path)
    try:
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(path.parent)
    return path


def write_figure(path: str | os.PathLike, figure: Any, **options: Any) -> Path:
    """A matplotlib figure in the format that the name ends with; options: those of its savefig."""
    kind = Path(path).suffix.removeprefix(".") or "png"
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, **options)
    return write(path, drawn.getvalue())


def check_writable(path: str | os.PathLike) -> None:
    """Raise OSError, before any work is done for it, if `write` could not write there. The folder is made."""
    path = Path(path)
    if path.exists() and not path.is_file():
        what = "folder" if path.is_dir() else "device"
        raise IsADirectoryError(f"{path} is a {what}; the name of a file is needed")
    beside = _beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.touch()
    except OSError as error:
        raise type(error)(f"{path} cannot be written ({error.strerror or error}); name a place that can") from error
    finally:
        with suppress(OSError):
            beside.unlink()


def _beside(path: Path) -> Path:
    """A name of this process and thread alone, in the same folder: a rename does not cross file systems."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")


def sync_folder(folder: Path) -> None:
    """Force a rename to the disk, where the system can."""
    with suppress(OSError):  # some file systems, and Windows, have no such thing
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


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
