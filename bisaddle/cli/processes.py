"""`bisaddle solve --processes N` and `resume`: N processes of this machine that solve one problem together.

The command itself is the first of them, which prints and writes; the others run this module.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from bisaddle.cli.errors import NOT_CONVERGED, Failure
from bisaddle.cli.options import precision_of
from bisaddle.cli.problems import build
from bisaddle.cli.stepping import method_named
from bisaddle.report.files import checkpoint_file

# seconds that the others get to end after the first one has
ENDING = 5
# of the options of `solve`, what the others have to know
SHARED = ("method", "step", "nu", "tol", "max_steps", "starts", "seed", "precision", "processes", "shard")
FILES = ("checkpoint", "resumed", "problem", "data_dir")


def begin(built: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """(problem, start): split over the processes, if there are several; several starts, if they are asked for."""
    import jax

    from bisaddle import parallel
    from bisaddle.run.starts import start_points

    problem, first = built.problem, built.start
    if options["processes"] > 1:
        problem, first = parallel.shard(problem, first, parallel.mesh(options["shard"]))
    if options["starts"] == 1:
        return problem, first
    drawn = start_points(built.problem, built.start, options["starts"], jax.random.key(options["seed"] or 0))
    return problem, drawn


def check_extra(checkpoint: str | Path | None) -> None:
    """ImportError if the checkpoint is a folder and the extra for it is not here, before others are started for it."""
    if checkpoint is not None and checkpoint_file(checkpoint) != Path(checkpoint):
        from bisaddle.parallel import keeping

        keeping.orbax("a checkpoint in a folder")


@contextmanager
def joined(specification: dict[str, Any], options: dict[str, Any], limits: dict[str, Any]) -> Iterator[None]:
    """with joined(...): the other processes run the same solve, and this one is the first of them."""
    count = options["processes"]
    if count == 1:
        yield
        return
    address = f"127.0.0.1:{_free_port()}"
    shared = {name: options[name] for name in SHARED if name in options}
    shared |= {name: str(options[name]) for name in FILES if options.get(name) is not None}
    order = [specification, shared, limits, address]
    with TemporaryDirectory(prefix="bisaddle-") as folder:
        said, alike = [Path(folder) / str(i) for i in range(1, count)], False
        others = [_started([*order, i], path) for i, path in enumerate(said, 1)]
        try:
            with _own_stdout():
                _join(address, count, 0)
                yield
            alike = True
        except click.exceptions.Exit:  # a code to end with, which is a RuntimeError too
            alike = True
            raise
        except RuntimeError as error:
            told = [line for path in said for line in path.read_text(errors="replace").splitlines() if line.strip()]
            last = f" (one of them: {told[-1]})" if told else ""
            raise Failure(f"{error}{last}", NOT_CONVERGED) from error
        finally:
            _end(others, alike)


@contextmanager
def _own_stdout() -> Iterator[None]:
    """with _own_stdout(): what is not Python's goes to stderr. The collectives of JAX greet each other on stdout."""
    ours, python = os.dup(1), sys.stdout
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(ours), "w", encoding=python.encoding, errors=python.errors) as sys.stdout:
            yield
    finally:
        sys.stdout = python
        os.dup2(ours, 1)
        os.close(ours)


def _started(order: list, said: Path) -> subprocess.Popen:
    with said.open("w") as file:
        made = subprocess.Popen(
            [sys.executable, "-m", "bisaddle.cli.processes"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=file,
            text=True,
        )
    assert made.stdin is not None
    made.stdin.write(json.dumps(order))
    made.stdin.close()
    return made


def _end(processes: list[subprocess.Popen], alike: bool) -> None:
    """alike: the others end as this one does; else they are ended."""
    from bisaddle.parallel.joining import leave

    for process in processes:
        if not alike:
            process.kill()
    leave(alike)
    for process in processes:
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _join(address: str, count: int, number: int) -> None:
    from bisaddle import parallel

    parallel.initialize(address, count, number)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def main() -> None:
    """One of the others: what to do comes as JSON."""
    specification, options, limits, address, number = json.load(sys.stdin)
    _join(address, options["processes"], number)
    # a callback, since the first process has one: records are made for it
    seen = {"callback": lambda record: None, "progress": False}
    if "resumed" in options:
        _resume(options, limits | seen)
        return
    from bisaddle.run.solve import solve

    with precision_of(options["precision"]):
        built, _ = build(specification)
        chosen = (options[key] for key in ("tol", "max_steps", "step", "nu"))
        method = method_named(options["method"], built.problem, built.start, *chosen)
        kept = {"checkpoint": options["checkpoint"]} if "checkpoint" in options else {}  # which the first one writes
        solve(*begin(built, options), method, **limits, **kept, **seen)


def _resume(options: dict[str, Any], limits: dict[str, Any]) -> None:
    from bisaddle.cli.resuming import noted, prepared
    from bisaddle.run.solve import resume

    path, folder = Path(options["resumed"]), options.get("data_dir")
    specification, settings = noted(path)
    with precision_of(settings["precision"]):
        again = prepared(path, specification, settings, options.get("problem"), folder and Path(folder))
        resume(path, again.placed, again.method, **limits)


if __name__ == "__main__":
    main()
