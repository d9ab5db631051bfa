"""The loop of one run: compiled blocks of steps, looks between them, stop rules."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.methods.base import UNROLL, Method, State
from bisaddle.problem import Problem
from bisaddle.progress import Progress
from bisaddle.result import Record, Status
from bisaddle.trees import Number

# host-driven blocks aim at this many seconds: long enough to hide the dispatch, short enough for limits and Ctrl-C
BLOCK_SECONDS = 0.1
# recorded states wait in a buffer on the device until the block ends
BUFFER_RECORDS = 256
BUFFER_BYTES = 2**22
# an iterate this much larger than the start and the exact theta*, w there is not coming back
DIVERGENCE = 1e8
# looks at a method that knows its own gap, until one is recorded although that gap is above tol
LOOKS = 10


class Run:
    """The mutable part of one run: where it is, what it has recorded, how long the method has worked."""

    def __init__(
        self, problem: Problem, method: Method, state: State, certificate: Callable, gap_steps: tuple, sparse: bool
    ):
        self.problem, self.method, self.state, self.sparse = problem, method, state, sparse
        self.certificate, self.gap_steps = certificate, gap_steps
        self.records: list[Record] = []
        self.status: Status | None = None
        self.seconds = 0.0
        self.seconds_per_step = None
        self.capacity = _capacity(method.recorded(state))
        self.compile_seconds = 0.0

    def compile(self) -> None:
        compiling = time.perf_counter()
        self._block(1, 0, 0.0)  # no step
        self.compile_seconds = time.perf_counter() - compiling

    @property
    def k(self) -> int:
        return int(self.state.k)

    def promising(self, state: State, tol) -> bool:
        """Whether a certificate is worth its time: a method that knows its gap is believed when it says "not yet"."""
        gap = self.method.gap_estimate(state) if self.sparse else None
        last = self.records[-1].k if self.records else -LOOKS * self.method.look_every
        return (
            gap is None
            or int(state.k) - last >= LOOKS * self.method.look_every
            or (tol is not None and float(gap) <= tol)
        )

    def record(self, state: State, seconds: float | None = None) -> Record:
        certificate = self.certificate(self.problem, state.point, *self.gap_steps, 0.0)
        counts = self.method.counts(self.problem, state)
        seconds = self.seconds if seconds is None else seconds
        self.records.append(Record(int(state.k), seconds, state.point, certificate, counts))
        return self.records[-1]

    def _block(self, every: int, records: int, enough: float) -> tuple[State, PyTree, int]:
        known = self.sparse and self.method.gap_estimate(self.state) is not None
        state, states, count = _block(
            self.problem, self.method, self.state, every, records, enough, self.capacity, known
        )
        return state, jax.block_until_ready(states), int(count)

    def advance(self, every: int, records: int, tol) -> tuple[PyTree, np.ndarray, np.ndarray, float]:
        """One compiled block: the recorded states, their steps and magnitudes, and the time before it began.

        Fewer states than `records` come back from a method that knows its gap and has met tol.
        """
        before, k = self.seconds, self.k
        clock = time.perf_counter()
        state, states, records = self._block(every, records, -1.0 if tol is None else float(tol))
        elapsed = time.perf_counter() - clock
        magnitudes = np.asarray(_magnitudes(states))[:records]
        self.state = state
        self.seconds += elapsed
        self.seconds_per_step = elapsed / (self.k - k)
        return states, np.asarray(states.k)[:records], magnitudes, before


def run_to_end(run: Run, bar: Progress, tol, max_steps: int, deadline, every: int, callback) -> Status:
    def finished(record: Record) -> Status | None:
        bar.show(record.k, record.certificate)
        if tol is not None and record.certificate.within(tol):
            return Status.CERTIFIED
        if callback is not None and callback(record):
            return Status.INTERRUPTED
        return None

    run.compile()
    first = run.record(run.state)
    limit = DIVERGENCE * float(magnitude((iterates(run.state), first.certificate.theta, first.certificate.w)))
    limit = max(limit, DIVERGENCE)
    status = finished(first)
    while status is None:
        k = run.k
        if k >= max_steps:
            return Status.MAX_STEPS
        if deadline is not None and time.perf_counter() >= deadline:
            if run.records[-1].k < k:
                run.record(run.state)
            return Status.MAX_SECONDS
        begin = run.state
        size, records = _plan(k, every, max_steps, run.seconds_per_step, deadline, run.capacity)
        states, steps, magnitudes, before = run.advance(size, records, tol)
        records = len(steps)
        for i, reached in enumerate(steps):
            if not magnitudes[i] <= limit:
                run.state = last_within(run.problem, run.method, begin, int(reached) - k, limit)
                run.record(run.state)
                return Status.DIVERGED if np.isfinite(magnitudes[i]) else Status.NONFINITE
            early = (reached - k) % size > 0  # tol seems to be met
            if early or reached % every == 0 or reached == max_steps:
                state = pick(states, i)
                if reached < max_steps and not run.promising(state, tol):
                    continue
                share = (i + 1) / records
                status = finished(run.record(state, before + share * (run.seconds - before)))
                if status is not None:
                    break
    return status


def _plan(k: int, every: int, max_steps: int, seconds_per_step, deadline, capacity: int) -> tuple[int, int]:
    """(steps between records, records) of the next block.

    A record boundary splits into pieces only at multiples of UNROLL, so that the arithmetic never depends on timing.
    """
    to_record = min(every - k % every, max_steps - k)
    if seconds_per_step is None:  # a first small piece tells how long a step takes
        return min(to_record, 4 * UNROLL), 1
    budget = BLOCK_SECONDS if deadline is None else min(BLOCK_SECONDS, max(deadline - time.perf_counter(), 0.0))
    affordable = max(int(budget / max(seconds_per_step, 1e-9)), 1)
    if k % every == 0 and affordable >= every and max_steps - k >= every:
        return every, max(1, min(affordable // every, (max_steps - k) // every, capacity))
    if affordable >= to_record:
        return to_record, 1
    return min(to_record, max(affordable // UNROLL, 1) * UNROLL), 1


def _capacity(state: State) -> int:
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    return int(min(BUFFER_RECORDS, max(1, BUFFER_BYTES // max(size, 1))))


@jax.jit
def pick(states: PyTree, i: Number) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], states)


@jax.jit
def advance(problem: Problem, method: Method, state: State, steps: Number) -> State:
    """The state after `steps` more steps, in one compiled loop; the number of steps is traced."""
    return steps_of(problem, method, state, steps)


def steps_of(problem: Problem, method: Method, state: State, steps) -> State:
    def one(_, state):
        return method.step(problem, state)

    if method.unroll == 1:
        return lax.fori_loop(0, steps, one, state)

    def several(_, state):
        for _ in range(method.unroll):
            state = method.step(problem, state)
        return state

    state = lax.fori_loop(0, steps // method.unroll, several, state)
    return lax.fori_loop(0, steps % method.unroll, one, state)


@partial(jax.jit, static_argnames=("capacity", "known"))
def _block(problem: Problem, method: Method, state: State, every, records, enough, capacity: int, known: bool):
    """`records` times `every` steps; the state at the end, what is kept of each record in a buffer of length
    `capacity`, and how many there are. A method that knows its gap stops at the step with which that gets to be enough.
    """
    kept = method.recorded(state)
    buffer = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), kept)

    def met(state):
        gap = method.gap_estimate(state) if known else None
        return jnp.asarray(False) if gap is None else gap <= enough

    fresh = ~met(state)

    def some_steps(state):
        if not known:
            return steps_of(problem, method, state, every)
        unmet = lambda carry: (carry[1] < every) & ~(fresh & met(carry[0]))
        return lax.while_loop(unmet, lambda carry: (method.step(problem, carry[0]), carry[1] + 1), (state, 0))[0]

    def one_record(carry):
        state, buffer, i = carry
        state = some_steps(state)
        return state, jax.tree.map(lambda rows, leaf: rows.at[i].set(leaf), buffer, method.recorded(state)), i + 1

    unfinished = lambda carry: (carry[2] < records) & ((carry[2] == 0) | ~met(carry[0]))
    return lax.while_loop(unfinished, one_record, (state, buffer, 0))


@jax.jit
def last_within(problem: Problem, method: Method, state: State, steps, limit) -> State:
    """Step by step from a good state, up to the last one whose magnitude is within the limit (NaN is not)."""

    def go_on(carry):
        _, following, i = carry
        return (i < steps) & (magnitude(iterates(following)) <= limit)

    def one(carry):
        _, following, i = carry
        return following, method.step(problem, following), i + 1

    return lax.while_loop(go_on, one, (state, method.step(problem, state), 0))[0]


@jax.jit
def _magnitudes(states: PyTree) -> Array:
    return jax.vmap(lambda state: magnitude(iterates(state)))(states)


def iterates(state: State) -> PyTree:
    """What must not grow without bound; the rest of a state may well be large or infinite."""
    return state.point, state.w


def magnitude(tree: PyTree) -> Array:
    """The largest absolute entry; NaN if there is one."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in floats if leaf.size]))
