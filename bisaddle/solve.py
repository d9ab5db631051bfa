"""solve: the loop. It owns compilation, blocks, the clock, stop rules, trace and status; a method owns one step."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.certificate import check_measure, check_oracles, compiled_certificate
from bisaddle.defaults import default_method
from bisaddle.methods.base import UNROLL, Method, State
from bisaddle.problem import Point, Problem
from bisaddle.progress import Progress
from bisaddle.result import Record, Result, Status, best_of, trace_of
from bisaddle.theory.assumptions import quick_check
from bisaddle.trees import Number

# host-driven blocks aim at this many seconds: long enough to hide the dispatch, short enough for limits and Ctrl-C
BLOCK_SECONDS = 0.1
# recorded states wait in a buffer on the device until the block ends
BUFFER_RECORDS = 256
BUFFER_BYTES = 2**26
# an iterate this much larger than the start and the exact theta*, w there is not coming back
DIVERGENCE = 1e8


def solve(
    problem: Problem,
    start: Point,
    method: Method | None = None,
    *,
    tol: Number | None = 1e-4,
    max_steps: int | np.integer = 10_000,
    max_seconds: Number | None = None,
    every: int | np.integer | None = None,
    measure: str | None = None,
    sigma: Number = 1.0,
    tau: Number = 1.0,
    callback: Callable[[Record], Any] | None = None,
    progress: bool | None = None,
    check: bool = False,
) -> Result:
    """Run a method until the certificate says that the point is stationary, or a limit says stop.

    method: None takes Adaptive, which has no steps to choose (OneSidedProjectionFree if x_set has no projection).
    tol: the gap to certify; None runs all steps. max_seconds: of wall time, all included.
    every: steps between records (certificate, trace, stop rules, callback); None records 100 times, at least every 1000
    steps, every 10 for Adaptive. measure, sigma, tau: of the gap, as in certify; measure None is "projection" where
    x_set can project.
    callback: gets a Record; what it returns stops the run if true. progress: a bar; None shows one on a terminal.
    check: samples the assumptions first (strongly convex g, concave f, finite values) and raises ValueError with the
    witness if one fails; theory.check_assumptions is the thorough form.
    """
    _check_limits(tol, max_steps, max_seconds, every)
    deadline = None if max_seconds is None else time.perf_counter() + max_seconds
    if check:
        report = quick_check(problem, start)
        if not report.ok:
            raise ValueError(f"the problem does not meet the assumptions; mend it, or use check=False\n{report}")
    if method is None:
        method = default_method(problem, start, int(max_steps), tol)
    if not isinstance(method, Method):
        raise ValueError(f"method must be a bisaddle.methods.Method, given {type(method).__name__}")
    state = method.init(problem, start)
    if measure is None:
        measure = "projection" if "project" in problem.x_set.capabilities else "lmo"
    check_measure(measure, sigma, tau)
    check_oracles(problem, measure)
    max_steps, every = int(max_steps), int(every or max(1, min(method.look_every, max_steps // 100)))
    run = _Run(problem, method, state, partial(compiled_certificate, measure=measure), (sigma, tau))
    status = Status.MAX_STEPS
    with Progress(progress, method.name, max_steps) as bar:
        try:
            status = _loop(run, bar, tol, max_steps, deadline, every, callback)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
    if not run.records:
        run.record(state)
    best = best_of(run.records)
    return Result(
        point=best.point,
        certificate=best.certificate,
        last=run.records[-1].point,
        trace=trace_of(run.records),
        method=method,
        status=status,
        seconds=run.seconds,
        compile_seconds=run.compile_seconds,
    )


def _check_limits(tol, max_steps, max_seconds, every) -> None:
    if tol is not None and not tol > 0:
        raise ValueError(f"tol must be > 0, given {tol}; use tol=None to run all steps")
    if not isinstance(max_steps, int | np.integer) or not 1 <= max_steps < 2**31:
        raise ValueError(f"max_steps must be a whole number from 1 to 2^31 - 1, given {max_steps}")
    if max_seconds is not None and not max_seconds > 0:
        raise ValueError(f"max_seconds must be > 0, given {max_seconds}; use None for no limit")
    if every is not None and (not isinstance(every, int | np.integer) or every < 1):
        raise ValueError(f"every must be a whole number >= 1, given {every}; use None for the default")


class _Run:
    """The mutable part of one run: where it is, what it has recorded, how long the method has worked."""

    def __init__(self, problem: Problem, method: Method, state: State, certificate: Callable, gap_steps: tuple):
        self.problem, self.method, self.state = problem, method, state
        self.certificate, self.gap_steps = certificate, gap_steps
        self.records: list[Record] = []
        self.seconds = 0.0
        self.seconds_per_step = None
        self.capacity = _capacity(state)
        compiling = time.perf_counter()
        jax.block_until_ready(_block(problem, method, state, 1, 0, self.capacity))  # no step: compiles only
        self.compile_seconds = time.perf_counter() - compiling

    @property
    def k(self) -> int:
        return int(self.state.k)

    def record(self, state: State, seconds: float | None = None) -> Record:
        certificate = self.certificate(self.problem, state.point, *self.gap_steps, 0.0)
        counts = self.method.counts(self.problem, state)
        seconds = self.seconds if seconds is None else seconds
        self.records.append(Record(int(state.k), seconds, state.point, certificate, counts))
        return self.records[-1]

    def advance(self, every: int, records: int) -> tuple[PyTree, np.ndarray, float]:
        """One compiled block: the recorded states, their magnitudes, and the time before it began."""
        before = self.seconds
        clock = time.perf_counter()
        state, states = _block(self.problem, self.method, self.state, every, records, self.capacity)
        jax.block_until_ready(states)
        elapsed = time.perf_counter() - clock
        magnitudes = np.asarray(_magnitudes(states))[:records]
        self.state = state
        self.seconds += elapsed
        self.seconds_per_step = elapsed / (every * records)
        return states, magnitudes, before


def _loop(run: _Run, bar: Progress, tol, max_steps: int, deadline, every: int, callback) -> Status:
    def finished(record: Record) -> Status | None:
        bar.show(record.k, record.certificate)
        if tol is not None and record.certificate.within(tol):
            return Status.CERTIFIED
        if callback is not None and callback(record):
            return Status.INTERRUPTED
        return None

    first = run.record(run.state)
    limit = DIVERGENCE * float(_magnitude((_iterates(run.state), first.certificate.theta, first.certificate.w)))
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
        states, magnitudes, before = run.advance(size, records)
        for i in range(records):
            if not magnitudes[i] <= limit:
                good = begin if i == 0 else _pick(states, i - 1)
                run.state = _last_within(run.problem, run.method, good, size, limit)
                run.record(run.state)
                return Status.DIVERGED if np.isfinite(magnitudes[i]) else Status.NONFINITE
            reached = k + (i + 1) * size
            if reached % every == 0 or reached == max_steps:
                share = (i + 1) / records
                status = finished(run.record(_pick(states, i), before + share * (run.seconds - before)))
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
def _pick(states: PyTree, i: Number) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], states)


@jax.jit
def advance(problem: Problem, method: Method, state: State, steps: Number) -> State:
    """The state after `steps` more steps, in one compiled loop; the number of steps is traced."""
    return _advance(problem, method, state, steps)


def _advance(problem: Problem, method: Method, state: State, steps) -> State:
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


@partial(jax.jit, static_argnames="capacity")
def _block(problem: Problem, method: Method, state: State, every, records, capacity: int):
    """`records` times `every` steps; the state at the end, and after each record in a buffer of length `capacity`."""
    buffer = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), state)

    def one_record(i, carry):
        state, buffer = carry
        state = _advance(problem, method, state, every)
        return state, jax.tree.map(lambda rows, leaf: rows.at[i].set(leaf), buffer, state)

    return lax.fori_loop(0, records, one_record, (state, buffer))


@jax.jit
def _last_within(problem: Problem, method: Method, state: State, steps, limit) -> State:
    """Step by step from a good state, up to the last one whose magnitude is within the limit (NaN is not)."""

    def go_on(carry):
        _, following, i = carry
        return (i < steps) & (_magnitude(_iterates(following)) <= limit)

    def one(carry):
        _, following, i = carry
        return following, method.step(problem, following), i + 1

    return lax.while_loop(go_on, one, (state, method.step(problem, state), 0))[0]


@jax.jit
def _magnitudes(states: PyTree) -> Array:
    return jax.vmap(lambda state: _magnitude(_iterates(state)))(states)


def _iterates(state: State) -> PyTree:
    """What must not grow without bound; the rest of a state may well be large or infinite."""
    return state.point, state.w


def _magnitude(tree: PyTree) -> Array:
    """The largest absolute entry; NaN if there is one."""
    floats = [leaf for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in floats if leaf.size]))
