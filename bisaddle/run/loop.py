"""The loop of one run in compiled blocks of steps: looks between them, stop rules."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

from bisaddle import programs
from bisaddle.certificate.certifier import Certifier
from bisaddle.methods.base import UNROLL, Method, State
from bisaddle.problem import Point, Problem
from bisaddle.run.interrupts import Interrupt
from bisaddle.run.progress import Progress
from bisaddle.run.result import Estimate, Record, Status
from bisaddle.trees import Number

# host-driven blocks aim at this many seconds: long enough to hide the dispatch, short enough for limits and Ctrl-C
BLOCK_SECONDS = 0.1
# recorded states wait in a buffer on the device until the block ends
BUFFER_RECORDS = 256
BUFFER_BYTES = 2**22
# an iterate this much larger than the start and the exact theta*, w there is not coming back
DIVERGENCE = 1e8
# a block of at most so many steps is compiled lightly: it runs at a third of the speed, and is there seconds earlier
FEW_STEPS = 100_000


@dataclass(frozen=True)
class Limits:
    """When a run ends, and how often it is looked at; sparse: every was not given."""

    tol: float | None
    max_steps: int
    deadline: float | None
    every: int
    sparse: bool
    callback: Callable[[Record], Any] | None
    bar: Progress
    interrupt: Interrupt

    def reached(self, k: int) -> Status | None:
        """The limit that a run stands at after k steps."""
        if k >= self.max_steps:
            return Status.MAX_STEPS
        if self.interrupt.asked:
            return Status.INTERRUPTED
        late = self.deadline is not None and time.perf_counter() >= self.deadline
        return Status.MAX_SECONDS if late else None


class Run:
    """The mutable part of one run: what it has recorded, how it ended, how long the method has worked."""

    def __init__(self, problem: Problem, method: Method, certifier: Certifier):
        self.problem, self.method, self.certifier = problem, method, certifier
        self.records: list[Record] = []
        self.estimates: list[Estimate] = []
        self.status: Status | None = None
        self.seconds = 0.0

    def judge(self, limits: Limits) -> Status | None:
        """What the last record says."""
        record = self.records[-1]
        limits.bar.show(record.k, record.certificate.gap)
        if limits.tol is not None and record.certificate.within(limits.tol):
            return Status.CERTIFIED
        if limits.callback is not None and limits.callback(record):
            return Status.INTERRUPTED
        return None

    def finish(self) -> None:
        """Whatever has happened, there is a record of where the run stands."""
        raise NotImplementedError


class BlockRun(Run):
    """A run of a method with a pure step, in compiled blocks."""

    def __init__(self, problem: Problem, method: Method, start: Point, certifier: Certifier, max_steps: int):
        super().__init__(problem, method, certifier)
        self.fixed = programs.on_device((problem, method))
        self.state = method.init(problem, start)
        self.seconds_per_step: float | None = None
        self.capacity = _capacity(self.state)
        self.max_steps = max_steps

    @property
    def k(self) -> int:
        return int(self.state.k)

    def record(self, state: State, seconds: float | None = None) -> Record:
        certificate = self.certifier.certificate(*self.certifier.kernels.flat(state.point))
        counts = self.method.counts(self.problem, state)
        seconds = self.seconds if seconds is None else seconds
        self.records.append(Record(int(state.k), seconds, state.point, certificate, counts))
        return self.records[-1]

    def finish(self) -> None:
        if not self.records or self.records[-1].k < self.k:
            self.record(self.state)

    def advance(self, every: int, records: int) -> tuple[PyTree, np.ndarray, np.ndarray, float]:
        """One compiled block: the recorded states, their steps and magnitudes, and the time before it began."""
        before, k = self.seconds, self.k
        numbers = (np.int64(every), np.int64(records))
        few = self.max_steps <= FEW_STEPS
        static = {"capacity": self.capacity, "unroll": not few}
        what = f"the steps of {self.method.name}"
        block = programs.cached(_block, what, self.fixed, self.state, *numbers, effort=None if few else 2, **static)
        clock = time.perf_counter()
        self.state, states = jax.block_until_ready(block(self.fixed, self.state, *numbers))
        elapsed = time.perf_counter() - clock
        states = jax.tree.map(lambda leaf: np.asarray(leaf)[:records], states)
        self.seconds += elapsed
        self.seconds_per_step = elapsed / (self.k - k)
        return states, states.k, magnitudes(states, records), before


def run_blocks(run: BlockRun, limits: Limits) -> Status:
    """A run to its end."""
    first = run.record(run.state)
    limit = divergence_limit(run.state, first)
    status = run.judge(limits)
    while status is None:
        k, begin = run.k, run.state
        end = limits.reached(k)
        if end is not None:
            return end
        size, records = _plan(k, limits, run.seconds_per_step, run.capacity)
        states, steps, sizes, before = run.advance(size, records)
        for i, reached in enumerate(steps):
            if not sizes[i] <= limit:
                run.state = last_within(run.problem, run.method, begin, int(reached) - k, limit)
                run.record(run.state)
                return Status.DIVERGED if np.isfinite(sizes[i]) else Status.NONFINITE
            if reached % limits.every == 0 or reached == limits.max_steps:
                share = (i + 1) / len(steps)
                state = pick(states, i)
                run.record(state, before + share * (run.seconds - before))
                status = run.judge(limits)
                if status is not None:
                    run.state = state  # what the block did after it is not asked for
                    break
    return status


def divergence_limit(state: State, first: Record) -> float:
    scale = magnitude((iterates(state), first.certificate.theta, first.certificate.w))
    return max(DIVERGENCE * scale, DIVERGENCE)


def _plan(k: int, limits: Limits, seconds_per_step: float | None, capacity: int) -> tuple[int, int]:
    """(steps between records, records) of the next block.

    A record boundary splits into pieces only at multiples of UNROLL, so that the arithmetic never depends on timing.
    """
    every, max_steps = limits.every, limits.max_steps
    to_record = min(every - k % every, max_steps - k)
    if seconds_per_step is None:  # a first small piece tells how long a step takes
        return min(to_record, 4 * UNROLL), 1
    budget = BLOCK_SECONDS
    if limits.deadline is not None:
        budget = min(budget, max(limits.deadline - time.perf_counter(), 0.0))
    affordable = max(int(budget / max(seconds_per_step, 1e-9)), 1)
    if k % every == 0 and affordable >= every and max_steps - k >= every:
        return every, max(1, min(affordable // every, (max_steps - k) // every, capacity))
    if affordable >= to_record:
        return to_record, 1
    return min(to_record, max(affordable // UNROLL, 1) * UNROLL), 1


def _capacity(state: State) -> int:
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return int(min(BUFFER_RECORDS, max(1, BUFFER_BYTES // max(size, 1))))


def pick(states: PyTree, i: int) -> Any:
    """The i-th of stacked states."""
    return programs.on_device(jax.tree.map(lambda leaf: leaf[i], states))


@jax.jit
def advance(problem: Problem, method: Method, state: State, steps: Number) -> State:
    """The state after `steps` more steps, in one compiled loop; the number of steps is traced."""
    return steps_of(problem, method, state, steps)


def steps_of(problem: Problem, method: Method, state: State, steps, unroll: bool = True) -> State:
    """unroll: faster to run, slower to compile."""

    def one(_, state):
        return method.step(problem, state)

    if not unroll:
        return lax.fori_loop(0, steps, one, state)

    def several(_, state):
        for _ in range(UNROLL):
            state = method.step(problem, state)
        return state

    state = lax.fori_loop(0, steps // UNROLL, several, state)
    return lax.fori_loop(0, steps % UNROLL, one, state)


def _block(fixed: tuple[Problem, Method], state: State, every, records, *, capacity: int, unroll: bool):
    """`records` times `every` steps: the state at the end, and each recorded one in a buffer of length `capacity`."""
    problem, method = fixed
    buffer = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), state)

    def one_record(i, carry):
        state, buffer = carry
        state = steps_of(problem, method, state, every, unroll)
        return state, jax.tree.map(lambda rows, leaf: rows.at[i].set(leaf), buffer, state)

    return lax.fori_loop(0, records, one_record, (state, buffer))


@jax.jit
def _last_within(problem: Problem, method: Method, state: State, steps, limit) -> State:
    def go_on(carry):
        _, following, i = carry
        return (i < steps) & (_traced_magnitude(iterates(following)) <= limit)

    def one(carry):
        _, following, i = carry
        return following, method.step(problem, following), i + 1

    return lax.while_loop(go_on, one, (state, method.step(problem, state), 0))[0]


def last_within(problem: Problem, method: Method, state: State, steps: int, limit: float) -> State:
    """Step by step from a good state, up to the last one whose magnitude is within the limit (NaN is not)."""
    with programs.compiling("the way back to the last sound step"):
        return _last_within(problem, method, state, steps, limit)


def iterates(state: State) -> PyTree:
    """What must not grow without bound; the rest of a state may well be large or infinite."""
    return state.x, state.theta, state.y, state.w


def _traced_magnitude(tree: PyTree):
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(tree) if leaf.size]))


def magnitude(tree: PyTree) -> float:
    """The largest absolute entry; NaN if there is one."""
    return float(np.max([np.max(np.abs(np.asarray(leaf))) for leaf in jax.tree.leaves(tree) if leaf.size]))


def magnitudes(states: PyTree, count: int) -> np.ndarray:
    """The magnitude of each of stacked states."""
    rows = [np.asarray(leaf).reshape(count, -1) for leaf in jax.tree.leaves(iterates(states)) if leaf.size]
    return np.max([np.max(np.abs(row), axis=1) for row in rows], axis=0)
