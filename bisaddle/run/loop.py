"""What every run has: limits, records, one function that says how it ended; and the loop of a host-driven method."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar
from zlib import crc32

import numpy as np

from bisaddle.certificate.certifier import Certificate, Certifier
from bisaddle.devices import Together
from bisaddle.methods.base import Counts, HostMethod, Look, Method, NotStronglyConvex
from bisaddle.oracle.kernels import Kernels
from bisaddle.problem import Point, Problem
from bisaddle.programs import watch
from bisaddle.run.checkpoint import Checkpoints
from bisaddle.run.history import History, K
from bisaddle.run.interrupts import Interrupt
from bisaddle.run.progress import Progress
from bisaddle.run.result import Record, Status
from bisaddle.showing import given_out

# an iterate this much larger than where the run began is not coming back
DIVERGENCE = 1e8
# steps between two records that a callback sees, where the user has not said how often
CALLBACK_STEPS = 100
# steps before an expensive certificate is tried again, unless the method's own gap has halved meanwhile
PATIENCE = 10
# steps of a host-driven run before the next start has its turn
TURN = 10
# steps of a host-driven run without a smaller gap of its own, after which it is asked whether there can be one, and
# what is wrong with the problem
STUCK, HOPELESS = 200, 1000
# the same in float32, where certificates are in float64: then it has met rounding, and goes on in float64
COARSE = 100
# share of tol in the gap of steps in float64 that leaves nothing but the rounding of their points
FINE = 0.01
# records with a gap of at most tol whose error bound forbids a certificate, after which it is not going to come
IDLE = 20
# factor on the score of the best record that counts as better
BETTER = 0.9
# factor on tol within which a point is acceptable when a budget ends
ACCEPTABLE = 10


@dataclass(frozen=True)
class Limits:
    """When a run ends and how often it is recorded; sparse: the user has not said how often.

    horizon: the steps that programs are compiled for; None is max_steps. together: the processes of the run, if there
    are several: what one of them decides by its clock, its callback or its keyboard, all of them do.
    """

    max_steps: int
    every: int
    tol: float | None = None
    deadline: float | None = None
    callback: Callable[[Record], Any] | None = None
    sparse: bool = False
    interrupt: Interrupt = field(default_factory=Interrupt)
    horizon: int | None = None
    together: Together | None = None

    def status(
        self,
        k: int,
        size: float,
        ceiling: float = np.inf,
        record: Record | None = None,
        idle: int = 0,
        look: Look | None = None,
    ) -> Status | None:
        """How a run ends that stands at step k; None: it goes on.

        size: the largest entry of its iterates, which may not exceed the ceiling. record: if one was made at k; idle:
        records since one was better than all before. look: where a run stands that is driven from the host.
        """
        if not np.isfinite(size):
            return Status.NONFINITE
        if size > ceiling:
            return Status.DIVERGED
        if record is not None:
            if self.tol is not None and record.certificate.gap <= self.tol:
                if Certificate.within(record.certificate, self.tol):
                    return Status.CERTIFIED
                if refuted := _refuted(record.certificate):
                    return refuted
                if idle >= IDLE:
                    return Status.STALLED
        called = record is not None and self.callback is not None and bool(self.callback(given_out(record)))
        late = self.deadline is not None and time.perf_counter() >= self.deadline
        asked = self.interrupt.asked
        if self.together is not None:
            called, asked, late = self.together.any(called, asked, late, mark=_checksum(look))
        if called:
            return Status.INTERRUPTED
        if k >= self.max_steps:
            return Status.MAX_STEPS
        if asked:
            return Status.INTERRUPTED
        return Status.MAX_SECONDS if late else None

    def ending(self, status: Status, certificate: Certificate) -> Status:
        """The status of a run that has ended with this one, in the light of the certificate of its best point."""
        if status in (Status.MAX_STEPS, Status.STALLED, Status.DIVERGED) and (refuted := _refuted(certificate)):
            return refuted
        budget = status in (Status.MAX_STEPS, Status.MAX_SECONDS, Status.STALLED)
        if budget and self.tol is not None and certificate.within(ACCEPTABLE * self.tol):
            return Status.CERTIFIED if certificate.within(self.tol) else Status.ACCEPTABLE
        return status

    def due(self, k: int) -> bool:
        """Whether step k is one to record."""
        return k % self.every == 0 or k >= self.max_steps


def _checksum(look: Look | None) -> int:
    """Of where a run stands: hosts that round differently would part without it, and wait for each other for ever."""
    return 0 if look is None else crc32(np.concatenate([look.x, look.theta, look.y, [look.gap]]).tobytes())


def _refuted(certificate: Certificate) -> Status | None:
    """What the certificate has against the problem."""
    if certificate.mismatch:
        return Status.WRONG_DERIVATIVES
    if certificate.lower_witness is not None:
        return Status.NOT_STRONGLY_CONVEX
    return None if certificate.upper_witness is None else Status.NOT_CONCAVE


class Run:
    """The mutable part of one run: where it stands, what it has recorded, how it ended, how long the method worked.

    ceiling: the magnitude above which it has diverged. begun: whether the start is behind it. score: the least gap with
    its error bound so far; idle: records since then. closely: the step at which `finish` looked, as for a result.
    """

    # what a checkpoint has of a run, besides the state of the method
    kept: ClassVar[tuple[str, ...]] = ("k", "history", "status", "seconds", "ceiling", "score", "idle")

    def __init__(self, problem: Problem, method: Method, certifier: Certifier, bar: Progress):
        self.problem, self.method, self.certifier, self.bar = problem, method, certifier, bar
        self.k = 0
        self.history = History()
        self.status: Status | None = None
        self.seconds, self.ceiling, self.begun = 0.0, DIVERGENCE, False
        self.score, self.idle = np.inf, 0
        self.closely: int | None = None

    def begin(self, limits: Limits) -> None:
        """Look at the start, unless that is behind it."""
        if not self.begun:
            self.begun = True
            self.look_at_start(limits)

    def look_at_start(self, limits: Limits) -> None:
        raise NotImplementedError

    def snapshot(self) -> dict[str, Any]:
        """Where the run stands; nothing in it changes later."""
        return {**{name: getattr(self, name) for name in self.kept}, "history": self.history.copy()}

    def restore(self, snapshot: Any) -> None:
        """Stand where the snapshot was taken; ValueError if it does not fit."""
        if not isinstance(snapshot, dict) or not set(self.kept) < set(snapshot):
            raise ValueError(f"a run has {', '.join(self.kept)}")
        for name in self.kept:
            usual, found = getattr(self, name), snapshot[name]
            if usual is not None and not isinstance(found, type(usual)):
                raise ValueError(f"{name} of a run must be a {type(usual).__name__}, found {type(found).__name__}")
            setattr(self, name, found)
        if self.status is not None and not isinstance(self.status, Status):
            raise ValueError(f"status of a run must be a Status, found {type(self.status).__name__}")
        if not (self.history.certified.sound and self.history.estimates.sound):
            raise ValueError("the rows of its trace do not fit together")
        self.begun = True

    def keep(self, k: int, seconds: float, point: Point, certificate: Certificate, counts: Counts) -> Record:
        record = Record(k, seconds, point, certificate, counts)
        self.history.add(record)
        score = certificate.gap + certificate.error_bound
        self.idle = 0 if score < BETTER * self.score else self.idle + 1
        self.score = min(self.score, score)  # a score that is no number is never the smaller one
        self.bar.show(k, certificate.gap)
        return record

    def finish(self) -> None:
        """Make sure that there is a record of where the run stands, whatever has happened."""
        raise NotImplementedError

    def let_go(self) -> None:
        """Forget what only further steps would need: the last certificates need its memory."""


class HostRun(Run):
    """A run of a method that yields a Look after every step.

    look: where it stands. best: where the method's own estimate of the gap was least. times: the seconds of these two.
    tried: the last look at which an expensive certificate was tried, bare. narrow: the last look of steps in float32,
    from whose best place the method has gone on in float64; None if it has not. Looks are in the dtype of the start.
    """

    kept: ClassVar[tuple[str, ...]] = (*Run.kept, "look", "best", "times", "tried", "narrow")

    def __init__(
        self,
        problem: Problem,
        method: HostMethod,
        start: Point,
        kernels: Kernels,
        certifier: Certifier,
        bar: Progress,
        sparse: bool,
    ):
        super().__init__(problem, method, certifier, bar)
        self.kernels, self.sparse = kernels, sparse
        x, theta, y = self.kernels.flat(start)
        self.look = self.best = Look(0, x, theta, y, theta, np.inf, np.inf, np.nan, Counts())
        self.times = {0: 0.0}
        self.tried: Look | None = None
        self.narrow: Look | None = None
        self.start, self.host = start, method
        self.looks = type(method).looks(method, problem, self.kernels, x, theta, y)

    def look_at_start(self, limits: Limits) -> None:
        # with much data a certificate of the start costs as much as many steps, and tells what the first step tells
        skip = limits.sparse and limits.callback is None and self.kernels.heavy
        self.status = limits.status(0, 0.0, record=None if skip else self.record(self.look))

    @property
    def at_rest(self) -> bool:
        """Whether the method can be taken up again from where it stands."""
        return self.k == 0 or self.look.state is not None

    def snapshot(self) -> dict[str, Any]:
        looks = {name: getattr(self, name) for name in ("look", "best", "tried", "narrow")}
        bare = {name: look and look._replace(state=None) for name, look in looks.items()}
        return super().snapshot() | bare | {"state": self.look.state and self.look.state()}

    def restore(self, snapshot: Any) -> None:
        super().restore(snapshot)
        start = self.kernels.flat(self.start)
        sizes = [part.shape for part in start]
        for look in (self.look, self.best):
            if [look.x.shape, look.theta.shape, look.y.shape] != sizes:
                raise ValueError(f"x, theta and y of a look must have the shapes {sizes}")
        self.looks = self._looks_from(*start, state=snapshot.get("state"))

    def _looks_from(self, x: np.ndarray, theta: np.ndarray, y: np.ndarray, state: Any = None) -> Iterator[Look]:
        """The method from a place, in float64 once it has left float32."""
        if self.narrow is None:
            return self.host.looks(self.problem, self.kernels, x, theta, y, state)
        problem, kernels = self.certifier.problem, self.certifier.kernels
        x, theta, y = (v.astype(kernels.dtype) for v in (x, theta, y))
        return self.host.looks(problem, kernels, x, theta, y, state)

    def advance(self) -> Look:
        """One step; its time is the method's own, without what was compiled for it."""
        clock, compiling = time.perf_counter(), watch().seconds
        with np.errstate(all="ignore"):  # NaN and infinity become a Status
            look = next(self.looks)
        if self.narrow is not None:
            look = _after(self.narrow, look, self.kernels.dtype)
        self.seconds += time.perf_counter() - clock - (watch().seconds - compiling)
        self.history.estimates.add(look.k, self.seconds, look, look.counts)
        return look

    def move_to(self, look: Look) -> None:
        self.look, self.k = look, look.k
        # what is recorded regularly needs no other best; an equal gap is no progress
        if look.gap < self.best.gap or not self.sparse:
            self.best = look._replace(w=np.zeros(0))  # a certificate finds its own
        self.times = {self.best.k: self.times.get(self.best.k, self.seconds), look.k: self.seconds}
        self.bar.show(look.k, look.gap)

    def record(self, look: Look, below: float | None = None) -> Record:
        return self._keep(look, self.certifier.certificate(look.x, look.theta, look.y, below=below))

    def record_if_within(self, look: Look, tol: float) -> Record | None:
        """A record where the method takes its gap to be at most tol; None if the certificate would not agree."""
        if not self.kernels.heavy:
            return self.record(look)
        if self.tried is not None and look.gap > 0.5 * self.tried.gap and look.k < self.tried.k + PATIENCE:
            return None
        self.tried = look.bare()
        certificate = self.certifier.decisive(look.x, look.theta, look.y, look.w, tol)
        return None if certificate is None else self._keep(look, certificate)

    def out_of_reach(self, tol: float | None) -> Status | None:
        """STALLED, where the method's own gap has not fallen for long and no point there could be certified.

        Or what the certificate has against the problem: a run may end at a kink. In float32 the steps may be what is
        too rough, and then float64 has its turn; once it has, the rounding of the points alone can be in the way.
        """
        idle = self.k - self.best.k
        if tol is None or not self.sparse:
            return None
        if self.kernels.dtype != self.certifier.kernels.dtype:
            if self.narrow is None:
                if idle >= COARSE:
                    self._widen()
                return None
            if self.look.gap <= FINE * tol and self.idle >= IDLE:
                return Status.STALLED
        if idle == 0 or idle % STUCK:
            return None
        if self.narrow is not None and self.best.gap <= tol:
            return Status.STALLED
        below = np.inf if idle >= HOPELESS else None  # what is wrong with the problem may be why
        best = self.certifier.certificate(self.best.x, self.best.theta, self.best.y, below=below)
        return _refuted(best) or (Status.STALLED if best.error_bound > tol else None)

    def _widen(self) -> None:
        """Go on in float64, from the best place."""
        self.record(self.best)  # by its gap as it is: one of float32 is no measure for those to come
        self.narrow = self.look = self.look._replace(state=None)  # what it had to go on with is float32
        self.looks = self._looks_from(self.best.x, self.best.theta, self.best.y)
        self.best, self.idle = self.look._replace(x_gap=np.inf), 0

    def finish(self) -> None:
        self.looks = iter(())  # nor the state behind them: a certificate of a large x needs its memory
        self.look, self.best = self.look._replace(state=None), self.best._replace(state=None)
        self.tried = None
        known = set(self.history.certified.rows()[:, K])
        # a run that did not succeed also shows the place that seemed best
        better = self.status is not Status.CERTIFIED and self.best.gap < 0.9 * self.look.gap
        if better and self.best.k not in known:
            self.record(self.best, below=np.inf)
            self.closely = self.best.k
        if self.look.k not in known:
            self.record(self.look, below=None if better else np.inf)
            self.closely = self.best.k if better else self.look.k

    def let_go(self) -> None:
        self.looks = iter(())
        self.look = self.best = self.tried = self.look.bare()

    def _keep(self, look: Look, certificate: Certificate) -> Record:
        point = self.kernels.point(look.x, look.theta, look.y)
        return self.keep(look.k, self.times[look.k], point, certificate, look.counts)


def run_hosts(runs: Sequence[HostRun], limits: Limits, checkpoints: Checkpoints | None = None) -> None:
    """All runs to their ends, in turns: when time is over, every start has had its share."""
    under_way = [_steps(run, i, limits, checkpoints) for i, run in enumerate(runs)]
    while under_way:
        # a generator that yields fewer than it was asked for has ended
        under_way = [steps for steps in under_way if sum(1 for _ in islice(steps, TURN)) == TURN]


def _steps(run: HostRun, number: int, limits: Limits, checkpoints: Checkpoints | None) -> Iterator[None]:
    """A run to its end, a step at a time; run.status tells how it ended."""
    run.begin(limits)
    while run.status is None:
        if checkpoints is not None and run.at_rest and checkpoints.due(number):
            checkpoints.keep({number: run.snapshot()})
        try:
            look = run.advance()
        except NotStronglyConvex:
            run.status = Status.NOT_STRONGLY_CONVEX
            return
        size = _magnitude(look)
        if look.k == 1 and np.isfinite(size):  # the first step solves the lower level: the scale of theta and w
            run.ceiling = max(run.ceiling, DIVERGENCE * size)
        if not np.isfinite(look.gap + look.value):
            size = np.nan
        record = None
        if np.isfinite(size) and size <= run.ceiling:
            run.move_to(look)
            record = _record(run, look, limits)
        run.status = limits.status(look.k, size, run.ceiling, record, run.idle, look) or run.out_of_reach(limits.tol)
        yield


def _record(run: HostRun, look: Look, limits: Limits) -> Record | None:
    regular = look.k % CALLBACK_STEPS == 0 if limits.callback is not None else False
    if look.k >= limits.max_steps or (regular if limits.sparse else limits.due(look.k)):
        return run.record(look)
    if limits.sparse and limits.tol is not None and look.gap <= limits.tol:
        return run.record_if_within(look, limits.tol)
    return None


def _after(before: Look, look: Look, dtype: np.dtype) -> Look:
    """A look of a method that was begun anew after another one, its vectors rounded to this dtype."""
    rounded = {name: getattr(look, name).astype(dtype) for name in ("x", "theta", "y", "w")}
    counts = Counts(*map(sum, zip(before.counts, look.counts, strict=True)))
    return look._replace(k=before.k + look.k, counts=counts, **rounded)


def _magnitude(look: Look) -> float:
    """The largest absolute entry; NaN if there is one."""
    parts = [part for part in (look.x, look.theta, look.y, look.w) if part.size]
    # both find a NaN first, and take a fraction of the time of np.max and np.abs
    ends = [abs(float(part[at])) for part in parts for at in (part.argmin(), part.argmax())]
    return math.nan if any(map(math.isnan, ends)) else max(ends)
