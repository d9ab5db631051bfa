"""The loop of one run of a method that is driven from the host: every step is seen, few are certified."""

import time
from collections.abc import Iterator

import numpy as np

from bisaddle.certificate.certifier import Certifier
from bisaddle.methods.base import Counts, HostMethod, Look
from bisaddle.problem import Point, Problem
from bisaddle.programs import watch
from bisaddle.run.loop import DIVERGENCE, Limits, Run
from bisaddle.run.result import Estimate, Record, Status

# steps between two records that a callback sees, where the user has not said
CALLBACK_STEPS = 100
# steps until a certificate that costs much is tried again, unless the gap has halved
PATIENCE = 10


class HostRun(Run):
    """A run of a method that yields a Look after every step.

    look: where it stands; best: where the method's own estimate of the gap was least; tried: the last one looked at
    closely because that estimate met tol.
    """

    def __init__(self, problem: Problem, method: HostMethod, start: Point, certifier: Certifier):
        super().__init__(problem, method, certifier)
        self.kernels = certifier.kernels
        x, theta, y = self.kernels.flat(start)
        self.look = self.best = Look(0, x, theta, y, theta, np.inf, np.inf, np.nan, Counts())
        self.tried: Look | None = None
        self.looks = method.looks(problem, self.kernels, x, theta, y)

    @property
    def k(self) -> int:
        return self.look.k

    def advance(self) -> Look:
        """One step; its time is the method's own, without what was compiled for it."""
        clock, compiling = time.perf_counter(), watch().seconds
        with np.errstate(all="ignore"):  # NaN and infinity are seen below
            look = next(self.looks)
        self.seconds += time.perf_counter() - clock - (watch().seconds - compiling)
        self.estimates.append(Estimate(look.k, self.seconds, look.x_gap, look.y_gap, look.value, look.counts))
        return look

    def record(self, look: Look) -> Record:
        return self._keep(look, self.certifier.certificate(look.x, look.theta, look.y))

    def try_to_end(self, look: Look, tol: float) -> bool:
        """A record at a place whose gap the method takes to be at most tol; False if it is not worth one."""
        if not self.kernels.heavy:
            self.record(look)
            return True
        if self.tried is not None and look.gap > 0.5 * self.tried.gap and look.k < self.tried.k + PATIENCE:
            return False
        self.tried = look
        certificate = self.certifier.decisive(look.x, look.theta, look.y, look.w, tol)
        if certificate is None:
            return False
        self._keep(look, certificate)
        return True

    def finish(self) -> None:
        """A record of where the run stands and, if it did not succeed, of the place that seems best."""
        known = {record.k for record in self.records}
        better = self.status is not Status.CERTIFIED and self.best.gap < 0.9 * self.look.gap
        if better and self.best.k not in known:
            self.record(self.best)
        if self.look.k not in known:
            self.record(self.look)
        self.records.sort(key=lambda record: record.k)

    def _keep(self, look: Look, certificate) -> Record:
        seconds = next((e.seconds for e in reversed(self.estimates) if e.k == look.k), 0.0)
        point = self.kernels.point(look.x, look.theta, look.y)
        self.records.append(Record(look.k, seconds, point, certificate, look.counts))
        return self.records[-1]


def host_steps(run: HostRun, limits: Limits) -> Iterator[None]:
    """A run to its end, a step at a time; run.status tells how it ended."""
    tol, callback = limits.tol, limits.callback
    limit = DIVERGENCE
    # with much data a certificate of the start costs as much as many steps, and tells what the first step tells
    if not (limits.sparse and callback is None and run.kernels.heavy):
        run.record(run.look)
        run.status = run.judge(limits)
    while run.status is None:
        run.status = limits.reached(run.k)
        if run.status is not None:
            return
        look = run.advance()
        size = magnitude(look)
        limit = max(limit, DIVERGENCE * size) if look.k == 1 and np.isfinite(size) else limit
        finite = np.isfinite(size + look.gap + look.value)
        if not (finite and size <= limit):
            run.status = Status.DIVERGED if finite else Status.NONFINITE
            return
        run.look = look
        if look.gap <= run.best.gap or not limits.sparse:  # what is recorded regularly needs no other best
            run.best = look
        limits.bar.show(look.k, look.gap)
        due = not limits.sparse and look.k % limits.every == 0
        due = due or (callback is not None and limits.sparse and look.k % CALLBACK_STEPS == 0)
        if due or look.k >= limits.max_steps:
            run.record(look)
            run.status = run.judge(limits)
        elif limits.sparse and tol is not None and look.gap <= tol and run.try_to_end(look, tol):
            run.status = run.judge(limits)
        yield


def magnitude(look: Look) -> float:
    """The largest absolute entry; NaN if there is one."""
    return float(np.max([np.max(np.abs(part)) for part in (look.x, look.theta, look.y, look.w) if part.size]))
