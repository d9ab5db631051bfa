"""Compiled programs kept on disk between commands: JAX's own cache, set up before a command loads JAX.

What counts first: --no-compile-cache, BISADDLE_COMPILE_CACHE, JAX_COMPILATION_CACHE_DIR, the user's cache.
"""

import hashlib
import os
import platform
import sys
import time
import warnings
from importlib.metadata import version
from itertools import takewhile
from pathlib import Path

from bisaddle.cli import screen

VARIABLE = "BISADDLE_COMPILE_CACHE"
JAX_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
OFF = ("", "0", "off", "no", "false")
ON = ("1", "on", "yes", "true")
# JAX can limit the size itself, but needs filelock for it, and then reads the whole folder at every program it writes
MOST_BYTES = 2**28
TRIM_EVERY = 3600  # seconds


def use() -> None:
    """Have JAX keep its programs, if it is still to be loaded; it reads these variables then.

    Where it is loaded already its settings are somebody else's. Nothing that goes wrong here stops a command.
    """
    if "jax" in sys.modules:
        return
    folder = place()
    if folder is None:
        return
    if not _writable(folder):
        if os.environ.get(VARIABLE, "").strip().lower() not in ON + OFF:
            screen.note(f"{VARIABLE} names {folder.parent}, which cannot be written to: nothing is kept")
        return
    trim(folder)
    os.environ[JAX_VARIABLE] = str(folder)
    # even the lightest program takes 10 ms to compile and 3 ms to read
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    if _complains():
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # one for each program, where a disk is full or a file is cut; the program is compiled then, as without a cache
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def place() -> Path | None:
    """The folder that the command line chooses; None where it chooses none."""
    named = os.environ.get(VARIABLE)
    if named is None and os.environ.get(JAX_VARIABLE):
        return None
    word = ON[0] if named is None else named.strip()
    if word.lower() in OFF:
        return None
    root = user_cache() if word.lower() in ON else Path(os.path.expanduser(word)).absolute()
    return None if root is None else root / f"jax-{_machine()}"


def words() -> str:
    """Where programs are kept, for `bisaddle info`."""
    folder = place()
    if folder is None:
        other = os.environ.get(JAX_VARIABLE)
        return f"{other} ({JAX_VARIABLE})" if other else "none"
    return str(folder) if _writable(folder, make=False) else f"none: {folder} cannot be written to"


def user_cache() -> Path | None:
    """The folder of bisaddle in the user's cache: that of the downloads, found without pooch, and before JAX."""
    try:
        home = Path.home()
    except RuntimeError:
        return None
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "bisaddle" / "bisaddle" / "Cache"
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "bisaddle"
    named = os.environ.get("XDG_CACHE_HOME", "").strip()
    return (Path(named) if named else home / ".cache") / "bisaddle"


def trim(folder: Path, most: int = MOST_BYTES) -> None:
    """Once an hour: of more than `most` bytes keep three quarters, the programs used last, whatever machine's.

    Empty files, left by a process that was killed, go too: JAX would never write them again.
    """
    stamp = folder / "trimmed"
    try:
        if stamp.exists() and time.time() - stamp.stat().st_mtime < TRIM_EVERY:
            return
        stamp.touch()
        found = []
        for path in folder.parent.glob("jax-*/*-cache"):  # the user may have named a folder with other files
            status = path.stat()
            found.append((status.st_size > 0, max(status.st_atime, status.st_mtime), status.st_size, path))
        size = sum(length for _, _, length, _ in found)
        limit = size if size <= most else 3 * most // 4
        for whole, _, length, path in sorted(found):
            if whole and size <= limit:
                break
            path.unlink(missing_ok=True)
            size -= length
    except OSError:  # another command trims at the same time
        return


def _writable(folder: Path, make: bool = True) -> bool:
    try:
        if make:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = next(path for path in (folder, *folder.parents) if path.exists())
    except OSError:
        return False
    return there.is_dir() and os.access(there, os.R_OK | os.W_OK | os.X_OK)


def _machine() -> str:
    """Names what programs are compiled for: machines that share a home folder must not share programs.

    XLA loads those of another machine too, with no more than a log line, and they may end in an illegal instruction.
    """
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            first = list(takewhile(str.strip, lines))
    except OSError:
        first = [platform.processor()]
    kind = [line for line in first if line.startswith(("model name", "flags", "Features", "CPU"))] or first[:1]
    return hashlib.sha256("\n".join([platform.machine(), *kind]).encode()).hexdigest()[:12]


def _complains() -> bool:
    """Whether this jaxlib logs an error for each program that it reads, on the very machine that compiled it.

    It takes preferences of the code generator for features of the processor: github.com/jax-ml/jax/issues/38445.
    """
    try:
        return tuple(int(part) for part in version("jaxlib").split(".")[:3]) < (0, 10, 2)
    except (ImportError, ValueError):
        return False
