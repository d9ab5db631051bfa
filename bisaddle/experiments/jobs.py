"""The work of an experiment in pieces that may be stopped: sweeps over nu, and runs of Adaptive."""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import jax
import numpy as np

from bisaddle.certificate import certify
from bisaddle.experiments import build, sweep
from bisaddle.experiments.build import Instance
from bisaddle.experiments.metrics import COLUMNS, Scale, measure_all
from bisaddle.experiments.spec import MethodSpec
from bisaddle.methods.base import Method, State
from bisaddle.problem import Point
from bisaddle.run.result import Record
from bisaddle.run.solve import solve

Progress = Callable[[int, int, str, float | None], object]
WORKERS = min(2, os.cpu_count() or 1)
_COMPILING: dict[tuple, threading.Lock] = {}
# gaps of two runs of the same equations that differ by more than this, relatively and absolutely, have parted
ROUNDING, NOTHING = 1e-6, 1e-14


@dataclass(frozen=True)
class Lane:
    """One run of a sweep."""

    spec: MethodSpec
    nu: float | None


@dataclass
class Outcome:
    """What became of a lane: a column of numbers each, the last point, and how it ended."""

    lane: Lane
    built: Instance
    columns: dict[str, np.ndarray]
    hvps: np.ndarray
    k: np.ndarray
    point: Point
    status: str
    seconds: np.ndarray | None = None  # at each record, of a run that was alone
    pace: float | None = None  # seconds a step, of a sweep divided by its lanes


@dataclass(frozen=True)
class WarmUp:
    """Compiles certify for an instance, which takes longer than any sweep, while the sweeps are under way."""

    built: Instance
    gap: dict[str, float]
    steps: int = 0
    text: str = ""

    def run(self, stop: threading.Event, say: Callable[[int, float | None], None]) -> list[Outcome]:
        # NumPy arrays, as the last points of the sweeps: the weak types of a start would be another program
        point = jax.tree.map(np.asarray, self.built.start)
        certify(self.built.problem, point, measure="lmo", **self.gap)
        return []


@dataclass(frozen=True)
class Job:
    """Lanes of one method class on one instance; width: lanes of the compiled program, some of them idle.

    effort: of the compiler.
    """

    built: Instance
    lanes: tuple[Lane, ...]
    steps: int
    every: int
    gap: dict[str, float]
    width: int
    effort: int = 2

    @property
    def text(self) -> str:
        keys = dict.fromkeys(lane.spec.key for lane in self.lanes)
        return f"{self.built.data.name}, {', '.join(keys)}, seed {self.built.seed}"

    def run(self, stop: threading.Event, say: Callable[[int, float | None], None]) -> list[Outcome]:
        """say(steps more, gap): between compiled blocks. Stopped, the outcomes are those of the steps taken."""
        if self.lanes[0].spec.method == "Adaptive":
            with self._compiling("Adaptive"):  # short once compiled
                return [self._adaptive(stop, say)]
        problem = self.built.problem
        methods = [build.method(lane.spec, self.built, lane.nu, self.steps) for lane in self.lanes]
        together, states = sweep.begin(problem, self.built.start, methods, self.width)
        scales = self._scales()
        first = jax.tree.map(lambda leaf: np.asarray(leaf)[:, None], (states.x, states.y))
        pieces, taken, seconds = [self._measured(scales, first)], 0, 0.0
        with self._compiling(type(methods[0]).__name__):
            jax.block_until_ready(
                sweep.block(problem, together, states, self.every, 0, self.steps)
            )  # no step: compiles
        while taken < self.steps and not stop.is_set():
            records = min(sweep.BLOCK, (self.steps - taken) // self.every)
            clock = time.perf_counter()
            states, points = jax.block_until_ready(
                sweep.block(problem, together, states, self.every, records, self.steps)
            )
            seconds += time.perf_counter() - clock
            pieces.append(self._measured(scales, jax.tree.map(lambda leaf, n=records: np.asarray(leaf)[:, :n], points)))
            taken += records * self.every
            say(records * self.every, float(np.nanmin(pieces[-1]["gap"][:, -1], initial=np.inf)))
        columns = {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in COLUMNS}
        k = self.every * np.arange(columns["gap"].shape[1])
        pace = seconds / max(taken, 1) / self.width
        return [
            self._outcome(lane, methods[i], {n: c[i] for n, c in columns.items()}, k, sweep.lane(states, i), pace)
            for i, lane in enumerate(self.lanes)
        ]

    def _compiling(self, name: str) -> threading.Lock:
        """So that two threads do not compile the same program."""
        return _COMPILING.setdefault((name, self.width, self.built.start.theta.shape), threading.Lock())

    def _scales(self) -> Scale:
        own = [build.step_sizes(lane.spec, self.built, lane.nu, self.steps) for lane in self.lanes]
        ones = np.ones(len(own))
        own_sigma = np.array([sizes.get("sigma", 1.0) for sizes in own])
        own_tau = np.array([sizes.get("tau", 1.0) for sizes in own])
        return Scale(self.gap["sigma"] * ones, self.gap["tau"] * ones, own_sigma, own_tau)

    def _measured(self, scales: Scale, points) -> dict[str, np.ndarray]:
        x, y = jax.tree.map(lambda leaf: leaf[: len(self.lanes)], points)
        return measure_all(self.built.problem, self.built.spectrum, scales, x, y)

    def _outcome(self, lane: Lane, method: Method, columns: dict, k: np.ndarray, state: State, pace: float) -> Outcome:
        counts = method.counts(self.built.problem, state)
        each = (counts.hvps + counts.cross_products) // max(int(k[-1]), 1)
        finished = int(k[-1]) == self.steps
        finite = bool(np.all(np.isfinite(columns["gap"])))
        status = "NONFINITE" if not finite else "COMPLETED" if finished else "INTERRUPTED"
        return Outcome(lane, self.built, columns, each * k, k, state.point, status, pace=pace)

    def _adaptive(self, stop: threading.Event, say: Callable[[int, float | None], None]) -> Outcome:
        lane, seen = self.lanes[0], []

        def look(record: Record) -> bool:
            say(record.k - (seen[-1][0] if seen else 0), float(record.certificate.gap))
            seen.append((record.k, record.point))
            return stop.is_set()

        result = solve(
            self.built.problem,
            self.built.start,
            build.method(lane.spec, self.built, None, self.steps),
            tol=lane.spec.tol,
            max_steps=self.steps,
            every=self.every,
            measure="lmo",
            sigma=self.gap["sigma"],
            tau=self.gap["tau"],
            callback=look,
            progress=False,
        )
        trace = result.trace.certified
        if len(seen) < len(trace):  # the callback does not see the record that certifies
            seen.append((int(trace.k[-1]), result.last))
        say(self.steps - seen[-1][0], float(trace.gap[-1]))
        points = [jax.tree.map(np.asarray, (point.x, point.y)) for _, point in seen]
        columns = self._measured(self._scales(), jax.tree.map(lambda *leaves: np.stack(leaves)[None], *points))
        return Outcome(
            lane,
            self.built,
            {name: values[0] for name, values in columns.items()},
            trace.hvps + trace.cross_products,
            trace.k,
            result.last,
            result.status.name,
            trace.seconds,
        )


@dataclass
class Crew:
    """Two threads at the jobs (XLA lets go of the interpreter), the main thread at the progress."""

    progress: Progress | None
    done: int = 0
    interrupted: bool = False
    stop: threading.Event = field(default_factory=threading.Event)

    def work(self, jobs: Sequence[Job | WarmUp]) -> list[list[Outcome]]:
        """The outcomes of each job, in the order of the jobs; none for one not begun before an interruption."""
        total, reports = sum(job.steps for job in jobs), SimpleQueue()
        with ThreadPoolExecutor(WORKERS) as pool:
            futures = [pool.submit(self._one, job, reports) for job in jobs]
            try:
                for steps, text, gap in self._reports(futures, reports):
                    self.done += steps
                    if self.progress is not None:
                        self.progress(self.done, total, text, gap)
            except KeyboardInterrupt:
                self.interrupted = True
                self.stop.set()
            except BaseException:
                self.stop.set()
                raise
            return [future.result() for future in futures]

    def _one(self, job: Job | WarmUp, reports: SimpleQueue) -> list[Outcome]:
        if self.stop.is_set():
            return []
        # the setting is one of the thread
        with jax.enable_x64(True):
            return job.run(self.stop, lambda steps, gap: reports.put((steps, job.text, gap)))

    def _reports(self, futures: list[Future], reports: SimpleQueue) -> Iterator[tuple[int, str, float | None]]:
        while True:
            finished = all(future.done() for future in futures)
            failed = next((f for f in futures if f.done() and f.exception() is not None), None)
            if failed is not None:
                failed.result()
            try:
                yield reports.get(timeout=0 if finished else 0.1)
            except Empty:
                if finished:
                    return


@dataclass(frozen=True)
class Alone:
    """A run by itself, as published: its time without measures, and how long it stays with its lane of the sweep."""

    seconds: float
    gap: float
    parted: int | None

    @classmethod
    def of(cls, outcome: Outcome, steps: int, every: int, gap: dict[str, float]) -> "Alone":
        """Two runs of the same equations whose rounding differs; parted: the first record where the gaps differ."""
        lane, built = outcome.lane, outcome.built
        job = Job(built, (lane,), steps, every, gap, 1)
        methods = [build.method(lane.spec, built, lane.nu, steps, as_published=True)]
        together, states = sweep.begin(built.problem, built.start, methods, 1)
        jax.block_until_ready(sweep.block(built.problem, together, states, every, 0))
        seconds, pieces = 0.0, []
        for taken in range(0, steps, every * sweep.BLOCK):
            records = min(sweep.BLOCK, (steps - taken) // every)
            clock = time.perf_counter()
            states, points = jax.block_until_ready(sweep.block(built.problem, together, states, every, records))
            seconds += time.perf_counter() - clock
            pieces.append(jax.tree.map(lambda leaf, n=records: np.asarray(leaf)[:, :n], points))
        points = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *pieces)
        alone, swept = job._measured(job._scales(), points)["gap"][0], outcome.columns["gap"][1:]
        apart = ~(np.abs(alone - swept) <= ROUNDING * np.abs(swept) + NOTHING)
        parted = int(outcome.k[1:][np.argmax(apart)]) if np.any(apart) else None
        return cls(seconds, float(alone[-1]), parted)
