"""The work of an experiment in pieces that may be stopped: sweeps over nu, and runs of Adaptive."""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import jax
import numpy as np
from jaxtyping import PyTree

from bisaddle.certificate import Gap, certify
from bisaddle.experiments import build
from bisaddle.experiments.build import Instance
from bisaddle.experiments.metrics import COLUMNS, Scale, measure_all
from bisaddle.experiments.spec import MethodSpec
from bisaddle.methods.base import Method, State
from bisaddle.problem import Point
from bisaddle.report.files import finite
from bisaddle.report.records import Rerun
from bisaddle.run.blocks import Lanes
from bisaddle.run.interrupts import Interrupt
from bisaddle.run.loop import Limits
from bisaddle.run.result import Record, Status
from bisaddle.run.solve import solve

Progress = Callable[[int, int, str, float | None], object]
WORKERS = min(2, os.cpu_count() or 1)
_COMPILING: dict[tuple, threading.Lock] = {}
# records that a compiled block of a sweep holds; the host looks at progress and Ctrl-C between blocks
BLOCK = 100
# steps between two records of Adaptive, which takes far fewer of them
ADAPTIVE_EVERY = 5
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


def points_of(states: State) -> PyTree:
    """What is measured of the states of a sweep."""
    return states.x, states.y


def side_by_side(built: Instance, methods: list[Method], width: int, effort: int = 2) -> Lanes:
    """Methods of one class in one program, the last one repeated up to `width`: one program for every sweep so wide."""
    methods = [*methods, *(width - len(methods)) * methods[-1:]]
    # numbers side by side; arrays (a spectrum) are the same for all, and stay as they are
    joined = lambda *leaves: np.stack(list(map(np.asarray, leaves))) if np.ndim(leaves[0]) == 0 else leaves[0]
    together = jax.tree.map(joined, *methods)
    states = width * [methods[0].init(built.problem, built.start)]  # the first state does not depend on step sizes
    return Lanes(built.problem, together, states, stacked=True, keep=points_of, capacity=BLOCK, effort=effort)


@dataclass(frozen=True)
class WarmUp:
    """Compiles certify for an instance, which takes longer than any sweep, while the sweeps are under way."""

    built: Instance
    gap: dict[str, float]
    steps: int = 0
    text: str = ""

    def run(self, stop: Interrupt, say: Callable[[int, float | None], None]) -> list[Outcome]:
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
    def sweeps(self) -> bool:
        return self.lanes[0].spec.method != "Adaptive"

    @property
    def text(self) -> str:
        keys = dict.fromkeys(lane.spec.key for lane in self.lanes)
        return f"{self.built.data.name}, {', '.join(keys)}, seed {self.built.seed}"

    def run(self, stop: Interrupt, say: Callable[[int, float | None], None]) -> list[Outcome]:
        """say(steps more, gap): between compiled blocks. Stopped, the outcomes are those of the steps taken."""
        if not self.sweeps:
            return [self._adaptive(stop, say)]
        methods = [build.method(lane.spec, self.built, lane.nu, self.steps) for lane in self.lanes]
        limits = Limits(self.steps, self.every, interrupt=stop)
        lanes = side_by_side(self.built, methods, self.width, self.effort)
        scales = self._scales()
        first = points_of(lanes.states)
        pieces = [self._measured(scales, jax.tree.map(lambda leaf: np.asarray(leaf)[None], first))]
        with self._compiling(type(methods[0]).__name__):
            lanes.program()
        k, seconds, status = 0, 0.0, limits.status(0, 0.0)
        while status is None:
            records = min(BLOCK, (self.steps - k) // self.every)
            points, elapsed = lanes.advance(self.every, records)
            k, seconds = k + records * self.every, seconds + elapsed
            pieces.append(self._measured(scales, points))
            say(records * self.every, float(np.nanmin(pieces[-1]["gap"][:, -1], initial=np.inf)))
            status = limits.status(k, 0.0)
        columns = {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in COLUMNS}
        steps = self.every * np.arange(columns["gap"].shape[1])
        pace = seconds / max(k, 1) / self.width
        made = []
        for i, (lane, method) in enumerate(zip(self.lanes, methods, strict=True)):
            own, state = {name: values[i] for name, values in columns.items()}, lanes.state(i)
            counts = method.counts(self.built.problem, state)
            each = (counts.hvps + counts.cross_products) // max(k, 1)
            status = limits.status(k, float(np.max(np.abs(own["gap"]))))
            # all steps of a sweep are asked for: to have taken them is no failure to reach a gap
            word = "COMPLETED" if status is Status.MAX_STEPS else str(status)
            point = jax.tree.map(np.asarray, state.point)
            made.append(Outcome(lane, self.built, own, each * steps, steps, point, word, pace=pace))
        return made

    def _compiling(self, name: str) -> threading.Lock:
        """So that two threads do not compile the same program."""
        return _COMPILING.setdefault((name, self.width, self.built.start.theta.shape), threading.Lock())

    def _scales(self) -> Scale:
        sizes = [build.step_sizes(lane.spec, self.built, lane.nu, self.steps) for lane in self.lanes]
        shared = (np.full(len(sizes), self.gap[name]) for name in ("sigma", "tau"))
        own = (np.array([one.get(name, 1.0) for one in sizes]) for name in ("sigma", "tau"))
        return Scale(*shared, *own)

    def _measured(self, scales: Scale, points) -> dict[str, np.ndarray]:
        """The measures at points stacked by record and lane, by lane and record; idle lanes are left out."""
        x, y = jax.tree.map(lambda leaf: np.swapaxes(leaf, 0, 1)[: len(self.lanes)], points)
        return measure_all(self.built.problem, self.built.spectrum, scales, x, y)

    def _adaptive(self, stop: Interrupt, say: Callable[[int, float | None], None]) -> Outcome:
        lane, seen = self.lanes[0], []

        def look(record: Record) -> bool:
            say(record.k - (seen[-1][0] if seen else 0), float(record.certificate.gap))
            seen.append((record.k, record.point))
            return stop.asked

        result = solve(
            self.built.problem,
            self.built.start,
            build.method(lane.spec, self.built, None, self.steps),
            tol=lane.spec.tol,
            max_steps=self.steps,
            every=min(self.every, ADAPTIVE_EVERY),
            measure=Gap("lmo", **self.gap),
            callback=look,
            progress=False,
        )
        trace = result.trace.certified
        if len(seen) < len(trace):  # the callback does not see the record that certifies
            seen.append((int(trace.k[-1]), result.last))
        say(self.steps - seen[-1][0], float(trace.gap[-1]))
        points = [jax.tree.map(np.asarray, (point.x, point.y)) for _, point in seen]
        columns = self._measured(self._scales(), jax.tree.map(lambda *leaves: np.stack(leaves)[:, None], *points))
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
    stop: Interrupt = field(default_factory=Interrupt)

    def work(self, jobs: Sequence[Job | WarmUp], alone: Sequence[Job] = ()) -> list[list[Outcome]]:
        """The outcomes of each job, in the order of the jobs; none for one not begun before an interruption.

        alone: jobs whose seconds are looked at, one after the other when the rest is done.
        """
        total = sum(job.steps for job in [*jobs, *alone])
        first = self._side(jobs, WORKERS, 0, total)
        return first + self._side(alone, 1, sum(job.steps for job in jobs), total)

    def _side(self, jobs: Sequence[Job | WarmUp], workers: int, done: int, total: int) -> list[list[Outcome]]:
        reports = SimpleQueue()
        with ThreadPoolExecutor(workers) as pool:
            futures = [pool.submit(self._one, job, reports) for job in jobs]
            try:
                for steps, text, gap in self._reports(futures, reports):
                    done += steps
                    if self.progress is not None:
                        self.progress(done, total, text, gap)
            except KeyboardInterrupt:
                self.stop.asked = True
            except BaseException:
                self.stop.asked = True
                raise
            return [future.result() for future in futures]

    def _one(self, job: Job | WarmUp, reports: SimpleQueue) -> list[Outcome]:
        if self.stop.asked:
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


def made_again(outcome: Outcome, steps: int, every: int, gap: dict[str, float], effort: int) -> tuple[float, Rerun]:
    """The run by itself, as published: its seconds without measures, and how long it stays with its lane of the sweep.

    Two runs of the same equations whose rounding differs. effort: of the compiler.
    """
    lane, built = outcome.lane, outcome.built
    job = Job(built, (lane,), steps, every, gap, 1)
    methods = [build.method(lane.spec, built, lane.nu, steps, as_published=True)]
    lanes = side_by_side(built, methods, 1, effort)
    lanes.program()
    blocks = [lanes.advance(every, min(BLOCK, (steps - k) // every)) for k in range(0, steps, every * BLOCK)]
    points = jax.tree.map(lambda *parts: np.concatenate(parts), *(points for points, _ in blocks))
    alone, swept = job._measured(job._scales(), points)["gap"][0], outcome.columns["gap"][1:]
    apart = ~(np.abs(alone - swept) <= ROUNDING * np.abs(swept) + NOTHING)
    parted = int(outcome.k[1:][np.argmax(apart)]) if np.any(apart) else None
    return sum(elapsed for _, elapsed in blocks), Rerun(finite(float(alone[-1])), parted)
