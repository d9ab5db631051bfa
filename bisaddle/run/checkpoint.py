"""Checkpoints: the runs of a solve in one file, from which they go on bit by bit as if they had never stopped.

Or in a folder: the same file, and beside it states that are too large to gather (run/states.py).

What is kept is always from between two blocks, or two steps, that the whole run would have made too. A run that is
taken up again repeats the little that came after it.
"""

import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bisaddle.certificate.certifier import Gap
from bisaddle.devices import Together, axes_of, held_here, mesh_of, split, whole
from bisaddle.methods.base import HostMethod, Method
from bisaddle.problem import Point, Problem
from bisaddle.run import container
from bisaddle.run.plain import SUMS, Reader, Writer, described, difference
from bisaddle.run.states import States
from bisaddle.trees import Number

try:
    import fcntl
except ImportError:  # there is no such lock on Windows
    fcntl = None

# seconds between two checkpoints
EVERY = 60.0
# seconds between two looks at where the runs stand, so that little is lost when one is asked to stop
BETWEEN_LOOKS = 0.1


@dataclass(frozen=True)
class Settings:
    """What a run was asked for. several: from several starts; horizon: max_steps of the run that began; tol: rtol is
    in it, times the scale of the gradient at the start.

    The programs are compiled for the horizon, so that raising max_steps changes no digit.
    """

    tol: float | None
    max_steps: int
    max_seconds: float | None
    every: int
    sparse: bool
    gap: Gap
    several: bool
    horizon: int
    scale: float | None = None


class Checkpoints:
    """The file of one solve: `keep` is told where the runs stand, and writes it down every so many seconds.

    path.previous is the checkpoint before. note: JSON of the caller's own, kept with it. While `held`, no other process
    can write to the file. good: whether the file, if it is there, is worth keeping. states: those of a folder, which
    has no checkpoint before; apart: whether the runs have such states, which all processes then write together.
    """

    def __init__(self, path: str | os.PathLike, every: Number = EVERY, note: Any = None):
        from bisaddle.report.files import checkpoint_file

        if not isinstance(path, str | os.PathLike):
            raise ValueError(f"checkpoint must be the name of a file or a folder, given {type(path).__name__}")
        if not isinstance(every, int | float | np.number) or not every >= 0:
            raise ValueError(f"checkpoint_every must be a number of seconds >= 0, given {every!r}")
        self.name, self.path = Path(path), checkpoint_file(path)
        self.states = None if self.name == self.path else States(self.name)
        self.every, self.note = float(every), note
        self.previous = self.path.with_name(f"{self.path.name}.previous")
        self.head: Kept | None = None
        self.runs: dict[int, Any] = {}
        self.looked: dict[int, float] = {}
        self.written, self.count, self.unwritten = -float("inf"), 0, False
        self.good = self.writes = True
        self.together: Together | None = None
        self.apart = False

    @classmethod
    def after(cls, path: str | os.PathLike, every: Number, kept: "Kept") -> "Checkpoints":
        """Of a run that goes on from this file; from FILE.previous it goes on in FILE, which is then no good."""
        path = Path(path)
        if kept.beside and path.is_file():  # the one in a folder
            path = path.parent
        home = f"{path}/" if path.is_dir() else path.with_name(path.name.removesuffix(".previous"))
        home = cls(home, every, kept.note)
        home.good = home.name == path
        if kept.beside and home.states is not None:
            home.states.go_on(kept.beside)
        return home

    @contextmanager
    def held(self, fresh: bool, together: Together | None = None) -> Iterator[None]:
        """with held(fresh): nobody else has the file. fresh: a file that is there already is refused.

        together: the processes of the run, if there are several. The first one has the file; what it is refused for,
        all of them are.
        """
        with ExitStack() as stack:
            refusal, self.writes, self.together = None, together is None or together.first, together
            if self.writes:
                try:
                    stack.enter_context(self._held(fresh))
                except (ValueError, OSError) as error:
                    refusal = error
            refused = refusal is not None if together is None else together.any(refusal is not None)[0]
            if refused:
                raise refusal or ValueError(f"{self.path}: refused in the first process of the run, which says why")
            yield
            if self.apart and self.unwritten:  # not after an error, which the other processes may not have
                self._write()

    @contextmanager
    def _held(self, fresh: bool) -> Iterator[None]:
        from bisaddle.report.files import check_writable

        if self.path.is_dir():
            raise IsADirectoryError(f"{self.path} is a folder; use the name of a file, or '{self.path}/'")
        check_writable(self.path)
        with self._locked():
            if fresh and (self.path.exists() or self.previous.exists()):
                there = self.path if self.path.exists() else self.previous
                raise ValueError(f"{there} is there already; go on with bs.resume, or remove it, or use another name")
            for left in self.path.parent.glob(f".{self.path.name}.*"):  # by a process that was killed
                left.unlink(missing_ok=True)
            if self.states is not None:
                if not fresh and read(self.path).beside != self.states.beside:
                    raise ValueError(f"{self.path} was written by another run just now; resume it again")
                self.states.tidy()
            try:
                yield
            finally:
                if self.unwritten and not (self.apart and self.together is not None):
                    self._write()

    def about(
        self, problem: Problem, method: Method, starts: Sequence[Point], settings: Settings, chunks: str = ""
    ) -> None:
        """What stays the same for all of the run; chunks: in words, where the data are streamed."""
        from bisaddle.report.files import versions

        if isinstance(method, HostMethod) and not method.resumable:
            raise ValueError(f"{method.name} is not resumable, and so has no checkpoints; leave checkpoint out")
        found = versions("bisaddle", "python", "jax", "jaxlib", "numpy")
        # what a method on the host has is whole everywhere, and goes into the file; and so does what one process of
        # several has for itself, since orbax waits for the others
        here = isinstance(method, HostMethod) or (self.together is None and jax.process_count() > 1)
        self.apart = self.states is not None and not here
        whole_starts = [jax.tree.map(_on_host if self.apart else held_here, start) for start in starts]
        places = [axes_of(leaf) for leaf in jax.tree.leaves(starts[0])]
        parts = _parts(problem, chunks, summed=mesh_of(problem) is not None), described(method)
        self.head = Kept(*parts, method, whole_starts, settings, [], self.note, found, places=places)
        self.count = len(starts)

    def restore(self, runs: Sequence[Any], snapshots: list) -> None:
        """Put the runs where they stood; ValueError if a snapshot does not fit."""
        try:
            if self.states is not None and self.states.beside and snapshots:
                found = self.states.read([run.state for run in runs])
                snapshots = [snapshot | {"state": state} for snapshot, state in zip(snapshots, found, strict=True)]
            for run, snapshot in zip(runs, snapshots, strict=False):
                run.restore(snapshot)
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.path} does not fit the problem and the method: {error}") from error

    def due(self, i: int = 0) -> bool:
        """Whether it is time to keep where run i stands."""
        return time.perf_counter() - self.looked.get(i, -float("inf")) >= min(BETWEEN_LOOKS, self.every)

    def keep(self, runs: dict[int, Any]) -> None:
        """Where these runs stand, by their numbers."""
        now = time.perf_counter()
        self.runs |= runs
        self.looked |= dict.fromkeys(runs, now)
        self.unwritten = (self.writes or self.apart) and len(self.runs) == self.count
        late = self.unwritten and now - self.written >= self.every
        if self.apart and self.together is not None:
            late = self.together.any(late)[0]
        if late:
            self._write()

    def _write(self) -> None:
        """A disk that is full now may not be so later: the run goes on, and the last checkpoint stays."""
        assert self.head is not None
        kept = replace(self.head, runs=[self.runs[i] for i in range(self.count)])
        try:
            if self.apart and self.states is not None:
                kept = self.states.write(kept, self.together)
            if self.writes:
                self._switch(kept)
        except OSError as error:
            why = error.strerror or error
            warnings.warn(f"no checkpoint was written to {self.path}: {why}; the run goes on", RuntimeWarning, 2)
            if self.states is not None and self.writes and self.states.beside != kept.beside:
                self.states.tidy()
        self.written, self.unwritten = time.perf_counter(), False

    def _switch(self, kept: "Kept") -> None:
        """Put a new file in the place of the old one."""
        from bisaddle.report.files import sync_folder, write

        writer = Writer()
        content = writer(kept)
        beside = self.path.with_name(f".{self.path.name}.new")
        write(beside, container.pack("checkpoint", content, writer.arrays))
        if self.good and self.states is None:
            self._keep_previous()
        self.good = True
        os.replace(beside, self.path)
        if self.states is not None:
            self.states.beside = kept.beside
        sync_folder(self.path.parent)
        if self.states is not None:  # on the disk now
            self.states.tidy()

    def _keep_previous(self) -> None:
        if not self.path.exists():
            return
        beside = self.path.with_name(f".{self.path.name}.old")
        try:
            os.link(self.path, beside)  # so that there is a file of that name at all times
            os.replace(beside, self.previous)
        except OSError:  # not every file system has links
            os.replace(self.path, self.previous)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock is the process's: it is gone when the process is, however it ended."""
        if fcntl is None:
            yield
            return
        place = self.path.with_name(f"{self.path.name}.lock")
        with open(place, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = place.exists() and os.path.samestat(os.fstat(file.fileno()), place.stat())
            except BlockingIOError:
                mine = False
            if not mine:  # held by another, or just given up by one
                raise ValueError(f"{self.path} is in use by another run; wait for it, or use another file")
            try:
                yield
            finally:
                place.unlink(missing_ok=True)


@dataclass
class Kept:
    """What a checkpoint holds. problem_parts, method_parts: as `described`; absent: functions that the method had.

    places: along which axes of a mesh the arrays of a start were split. beside: the name of the states that the runs
    do not have with them, if they are in a folder.
    """

    problem_parts: dict[str, str]
    method_parts: dict[str, str]
    method: Method
    starts: list[Point]
    settings: Settings
    runs: list[dict[str, Any]]
    note: Any
    versions: dict[str, str | None]
    absent: list[str] = field(default_factory=list)
    places: list[list] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)

    def check_problem(self, path: str | os.PathLike, problem: Problem, chunks: str = "") -> None:
        summed = any(f" {SUMS} " in words for words in self.problem_parts.values())
        if found := difference(self.problem_parts, _parts(problem, chunks, summed)):
            split = (
                "; it was split by parallel.shard, which has to be done again, with the same shards" if summed else ""
            )
            raise ValueError(f"the problem is not that of {path}: {found}{split}")

    def placed_starts(self, problem: Problem) -> list[Point]:
        """The starts, split over the mesh of the problem as they were."""
        mesh = mesh_of(problem.data)
        leaves, form = jax.tree.flatten(self.starts[0])
        if mesh is None or len(self.places) != len(leaves):
            return jax.tree.map(jax.device_put, self.starts)
        each = lambda start: map(lambda leaf, axes: split(leaf, axes, mesh), jax.tree.leaves(start), self.places)
        return [form.unflatten(each(start)) for start in self.starts]

    def method_for(self, path: str | os.PathLike, given: Method | None) -> Method:
        """The method of the file, or the same one as given: only that has its functions."""
        if given is None and self.absent:
            names = ", ".join(self.absent)
            raise ValueError(
                f"the method of {path} holds functions ({names}), and a file cannot; use bs.resume(path, problem, "
                "method) with the same method"
            )
        if given is not None and (found := difference(self.method_parts, described(given))):
            raise ValueError(f"the method is not that of {path}: {found}")
        return self.method if given is None else given


def _on_host(leaf: Any) -> Any:
    return whole(leaf) if mesh_of(leaf) is not None else leaf


def _parts(problem: Problem, chunks: str, summed: bool) -> dict[str, str]:
    return described(problem, summed) | ({"chunks": chunks} if chunks else {})


def read(path: str | os.PathLike) -> Kept:
    """A checkpoint; if it cannot be read, ValueError that names the one before, where there is one."""
    from bisaddle.methods.base import public_methods
    from bisaddle.report.files import kept_file

    public_methods()  # whose classes the file may name
    path = kept_file(path)
    try:
        content, arrays = container.unpack(path, "checkpoint")
        reader = Reader(arrays)
        kept = reader(content)
        if not isinstance(kept, Kept) or not kept.starts or len(kept.starts) != len(kept.runs):
            raise ValueError("it holds no runs, or not all of them")
        if not reader.absent and (found := difference(kept.method_parts, described(kept.method))):
            raise ValueError(f"its method is not the one that it describes: {found}")
        kept.absent = reader.absent
        return kept
    except ValueError as error:
        previous = path.with_name(f"{path.name}.previous")
        instead = f"; the checkpoint before it is {previous}" if previous.is_file() else ""
        words = str(error) if str(path) in str(error) else f"{path} is damaged: {error}"
        raise ValueError(words + instead) from error
