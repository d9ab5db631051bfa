"""Files read and written: bounded, plain documents in; whole files with finite numbers, and versions, out."""

import io
import json
import math
import os
import platform
import sys
import threading
import tomllib
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from bisaddle.report.schema import plain

# far above the results of a whole reproduction; a device that never ends is none
MOST_BYTES = 2**29
# at once: memory for more than is there is not asked for
PIECE = 2**20
# the file of a checkpoint in a folder
CHECKPOINT = "checkpoint"


def read(path: str | os.PathLike) -> bytes:
    """The content of a file; OSError if it cannot be had, or has no end."""
    content = bytearray()
    try:
        with open(path, "rb") as file:
            while len(content) <= MOST_BYTES and (piece := file.read(PIECE)):
                content += piece
    except ValueError as error:  # a name that no file can have
        raise OSError(str(error)) from error
    if len(content) > MOST_BYTES:
        raise OSError(f"more than {MOST_BYTES} bytes")
    return bytes(content)


def parsed_json(content: bytes) -> Any:
    """A JSON document in UTF-8, no key twice in a table, plain; else ValueError."""
    return _parsed(lambda: json.loads(content.decode("utf-8-sig"), object_pairs_hook=_no_key_twice))


def parsed_toml(content: bytes) -> dict[str, Any]:
    """A TOML document, plain; else ValueError."""
    return _parsed(lambda: tomllib.loads(content.decode("utf-8-sig")))


def _parsed(parse: Callable[[], Any]) -> Any:
    try:
        return plain(parse())
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text in UTF-8: byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _no_key_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} stands twice in a table")
    return table


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
    beside = _beside(path)
    try:
        occupied = path.exists() and not path.is_file()
        if not occupied:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.touch()
    except OSError as error:
        raise type(error)(f"{path} cannot be written ({error.strerror or error}); name a place that can") from error
    finally:
        with suppress(OSError):
            beside.unlink()
    if occupied:
        what = "folder" if path.is_dir() else "device"
        raise IsADirectoryError(f"{path} is a {what}; the name of a file is needed")


def checkpoint_file(path: str | os.PathLike) -> Path:
    """The file of a checkpoint: in a folder, if the name ends in a slash, and else the name itself."""
    return Path(path, CHECKPOINT) if os.fspath(path).endswith(("/", os.sep)) else Path(path)


def kept_file(path: str | os.PathLike) -> Path:
    """The same of one that is there: a folder that is needs no slash."""
    return Path(path, CHECKPOINT) if Path(path).is_dir() else checkpoint_file(path)


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
