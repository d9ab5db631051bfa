"""Methods with a pure step, run in compiled blocks: one lane, or several side by side in one program."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import programs
from bisaddle.certificate.certifier import Certifier
from bisaddle.devices import held_here, like, mesh_of, placed, replicated, whole
from bisaddle.methods.base import UNROLL, Method, State
from bisaddle.problem import Point, Problem
from bisaddle.run.checkpoint import Checkpoints
from bisaddle.run.loop import Limits, Run
from bisaddle.run.progress import Progress
from bisaddle.run.result import Record
from bisaddle.streams.chunks import Reader
from bisaddle.trees import Number

# a block aims at this many seconds: long enough to hide its dispatch, short enough for limits and Ctrl-C
BLOCK_SECONDS = 0.1
# recorded states wait in a buffer on the device until the block ends
BUFFER_RECORDS = 256
BUFFER_BYTES = 2**22
# up to this many steps a program is compiled lightly: it runs at a third of the speed, but is ready seconds earlier
FEW_STEPS = 100_000


class Mark(NamedTuple):
    """Of a state on several devices that is not gathered: its step and its magnitude."""

    k: Any
    size: Any


def _mark(state: State) -> Mark:
    return Mark(state.k, _size(state))


def _all(state: State) -> State:
    return state


def _is_large(state: State) -> bool:
    """Whether a block records one state at most, which the devices have anyway, and which need not go to every host."""
    return mesh_of(state) is not None and sum(leaf.nbytes for leaf in jax.tree.leaves(state)) > BUFFER_BYTES


class Lanes:
    """One method on one problem from one or more states, advanced together by one compiled program.

    A single state is not stacked: nothing is mapped over it, and its loop is as fast as it can be. Several have a
    leading axis. stacked: the numbers of the method have one too, a value for each lane. keep: what is recorded of the
    states. capacity: records that a block can hold. effort: of the compiler, as programs.cached takes it.
    """

    def __init__(
        self,
        problem: Problem,
        method: Method,
        states: Sequence[State],
        *,
        stacked: bool = False,
        keep: Callable[[State], PyTree] = _all,
        capacity: int | None = None,
        effort: int | None = None,
        unroll: bool = False,
    ):
        self.count, self.name, self.effort = len(states), method.name, effort
        mesh = mesh_of((problem, states))
        self.fixed = placed(programs.on_device((problem, method)), mesh)
        self.states = placed(states[0], mesh)
        if stacked or self.count > 1:
            stack = lambda *leaves: np.stack([whole(leaf) for leaf in leaves])
            self.states = placed(programs.on_device(jax.tree.map(stack, *states)), mesh)
        size = sum(leaf.nbytes for leaf in jax.tree.leaves(self.states))
        self.capacity = capacity or int(min(BUFFER_RECORDS, max(1, BUFFER_BYTES // max(size, 1))))
        mapped = None if not stacked and self.count == 1 else "with its method" if stacked else "one method"
        # states stay where they are; what is kept goes to every host
        shardings = lambda: jax.tree.map(lambda leaf: leaf.sharding, self.states)
        self.places = None if mesh is None else (shardings(), replicated(mesh))
        self.static = {"mapped": mapped, "keep": keep, "capacity": self.capacity, "unroll": unroll}

    def use(self, data: PyTree) -> None:
        """From now on other data of the same shapes."""
        problem, method = self.fixed
        if data is not problem.data:
            self.fixed = replace(problem, data=data), method

    def program(self) -> Callable:
        """Compiled when first asked for."""
        numbers = (np.int64(1), np.int64(1))
        what = f"the steps of {self.name}"
        options = {"effort": self.effort, "places": self.places}
        return programs.cached(_block, what, self.fixed, self.states, *numbers, **options, **self.static)

    def advance(self, every: int, records: int) -> tuple[PyTree, float]:
        """`records` times `every` steps: what was kept, NumPy arrays with a record and a lane axis; and the seconds."""
        program = self.program()
        clock = time.perf_counter()
        found = program(self.fixed, self.states, np.int64(every), np.int64(records))
        self.states, kept = jax.block_until_ready(found)
        seconds = time.perf_counter() - clock
        kept = jax.tree.map(lambda leaf: np.asarray(leaf)[:records], kept)
        return (kept if self.static["mapped"] else jax.tree.map(lambda leaf: leaf[:, None], kept)), seconds

    def state(self, i: int) -> State:
        """Where one lane stands."""
        if not self.static["mapped"]:
            return self.states
        # by way of NumPy: an index of JAX's would be a program for every shape
        return programs.on_device(jax.tree.map(lambda leaf: whole(leaf)[i], self.states))


def _block(
    fixed: tuple[Problem, Method],
    states: State,
    every: Array,
    records: Array,
    *,
    mapped: str | None,
    keep: Callable[[State], PyTree],
    capacity: int,
    unroll: bool,
) -> tuple[State, PyTree]:
    """`records` times `every` steps: the states at the end, and what is kept of each record in a buffer."""
    problem, method = fixed
    one = lambda state: method.step(problem, state)
    if mapped is not None:
        # what all lanes share is not mapped over: a product with it is one product of matrices
        own = lambda leaf: 0 if mapped == "with its method" and leaf.ndim == 1 else None
        each = jax.vmap(lambda m, state: m.step(problem, state), in_axes=(jax.tree.map(own, method), 0))
        one = lambda states: each(method, states)
    buffer = jax.tree.map(lambda leaf: jnp.zeros((capacity, *leaf.shape), leaf.dtype), keep(states))

    def one_record(i, carry):
        states, buffer = carry
        states = _repeated(one, states, every, unroll)
        return states, jax.tree.map(lambda rows, leaf: rows.at[i].set(leaf), buffer, keep(states))

    return lax.fori_loop(0, records, one_record, (states, buffer))


def _repeated(one: Callable[[State], State], state: State, steps: Any, unroll: bool) -> State:
    """unroll: faster to run, slower to compile."""
    if not unroll:
        return lax.fori_loop(0, steps, lambda _, state: one(state), state)

    def several(_, state):
        for _ in range(UNROLL):
            state = one(state)
        return state

    state = lax.fori_loop(0, steps // UNROLL, several, state)
    return lax.fori_loop(0, steps % UNROLL, lambda _, state: one(state), state)


@jax.jit
def advance(problem: Problem, method: Method, state: State, steps: Number) -> State:
    """The state after `steps` more steps, in one compiled loop; the number of steps is traced."""
    return _repeated(lambda state: method.step(problem, state), state, steps, unroll=True)


class BlockRun(Run):
    """A run of a method with a pure step."""

    def __init__(self, problem: Problem, method: Method, start: Point, certifier: Certifier, bar: Progress):
        super().__init__(problem, method, certifier, bar)
        state = method.init(problem, start)
        self.state = placed(state, mesh_of((problem, state)))

    def look_at_start(self, limits: Limits) -> None:
        first = self.record(self.state, 0.0)
        self.ceiling *= max(1.0, _magnitude((_iterates(self.state), first.certificate.theta, first.certificate.w)))
        self.status = limits.status(0, 0.0, record=first)

    def snapshot(self, gathered: bool = True) -> dict[str, Any]:
        """gathered: as a file can hold it; else the state is where it is."""
        return super().snapshot() | {"state": jax.tree.map(held_here, self.state) if gathered else self.state}

    def restore(self, snapshot: Any) -> None:
        super().restore(snapshot)
        found = snapshot.get("state")
        if jax.tree.structure(found) != jax.tree.structure(self.state) or _kinds(found) != _kinds(self.state):
            raise ValueError(f"its state is not that of {self.method.name} on this problem")
        self.state = like(found, self.state)

    def record(self, state: State, seconds: float, below: float | None = None) -> Record:
        kernels = self.certifier.kernels
        place = kernels.flat(state.point)
        certificate = self.certifier.certificate(*place, below=below)
        point = state.point if mesh_of(state) is None else kernels.point(*place)  # a record is whole on every host
        return self.keep(int(state.k), seconds, point, certificate, self.method.counts(self.problem, state))

    def take(self, states: "State | Mark", last: State, seconds: float, limits: Limits) -> None:
        """Go on to the states that a block has recorded, the last of which is on the device too."""
        begin, first, before = self.state, self.k, self.seconds
        self.seconds += seconds
        sizes = states.size if isinstance(states, Mark) else _magnitudes(states)
        for i, k in enumerate(map(int, states.k)):
            sound = sizes[i] <= self.ceiling  # NaN is not
            if not sound:
                self.state = _last_within(self.problem, self.method, begin, k - first, self.ceiling)
            else:
                at_end = i == len(sizes) - 1
                earlier = jax.tree.map(lambda leaf, i=i: leaf[i], states)
                self.state = last if at_end else like(programs.on_device(earlier), last)
            self.k = int(self.state.k)  # now: a certificate may run out of time
            record = None
            if sound and limits.due(k):
                record = self.record(self.state, before + (i + 1) / len(sizes) * seconds)
            self.status = limits.status(k, float(sizes[i]), self.ceiling, record)
            if self.status is not None:  # what the block did after it is not asked for
                break

    def finish(self) -> None:
        if self.history.last is None or self.history.last.k < self.k:
            self.record(self.state, self.seconds, below=np.inf)
            self.closely = self.k


def run_blocks(
    runs: Sequence[BlockRun], limits: Limits, checkpoints: Checkpoints | None = None, reader: Reader | None = None
) -> None:
    """All runs to their ends, side by side in one program. reader: the data of each step, where they are streamed."""
    for run in runs:
        run.begin(limits)
    few = (limits.horizon or limits.max_steps) <= FEW_STEPS
    states = [run.state for run in runs]
    keep = _mark if len(runs) == 1 and _is_large(states[0]) else _all
    lanes = Lanes(runs[0].problem, runs[0].method, states, keep=keep, effort=None if few else 2, unroll=not few)
    k, pace = max((run.k for run in runs if run.status is None), default=0), None
    while under_way := [(i, run) for i, run in enumerate(runs) if run.status is None]:
        left = np.inf if limits.deadline is None else limits.deadline - time.perf_counter()
        due = checkpoints is not None and checkpoints.due()
        if limits.together is not None:  # the slowest sets the pace, and every one has to gather what is kept
            due, left, slowest = limits.together.largest(due, -left, pace or 0.0)
            left, pace = -left, slowest or None
        if checkpoints is not None and due:
            checkpoints.keep({i: run.snapshot(gathered=not checkpoints.apart) for i, run in enumerate(runs)})
        if reader is not None:
            lanes.use(reader.at(k))
        room = limits.max_steps if reader is None else reader.left(k)
        every, records = _plan(k, limits, pace, lanes.capacity, room, left)
        states, seconds = lanes.advance(every, records)
        k, pace = k + every * records, seconds / (every * records)
        for i, run in under_way:
            run.problem = lanes.fixed[0]
            mine = jax.tree.map(lambda leaf, i=i: leaf[:, i], states)
            run.take(mine, lanes.state(i), seconds / len(under_way), limits)


def _plan(
    k: int, limits: Limits, seconds_per_step: float | None, capacity: int, room: int, left: float
) -> tuple[int, int]:
    """(steps between records, records) of the next block, of at most `room` steps. left: seconds until the deadline.

    A record boundary splits into pieces only at multiples of UNROLL, so that the arithmetic never depends on timing.
    """
    every, room = limits.every, min(limits.max_steps - k, room)
    to_record = min(every - k % every, room)
    if seconds_per_step is None:  # a first small piece tells how long a step takes
        return min(to_record, 4 * UNROLL), 1
    affordable = max(int(min(BLOCK_SECONDS, max(left, 0.0)) / max(seconds_per_step, 1e-9)), 1)
    if k % every == 0 and affordable >= every and room >= every:
        return every, max(1, min(affordable // every, room // every, capacity))
    if affordable >= to_record:
        return to_record, 1
    return min(to_record, max(affordable // UNROLL, 1) * UNROLL), 1


def _last_within(problem: Problem, method: Method, state: State, steps: int, limit: float) -> State:
    """Step by step from a good state, up to the last one whose magnitude is within the limit (NaN is not)."""
    with programs.compiling("the way back to the last sound step"):
        return _walk(problem, method, state, steps, limit)


@jax.jit
def _walk(problem: Problem, method: Method, state: State, steps: Number, limit: Number) -> State:
    def go_on(carry):
        _, following, i = carry
        return (i < steps) & (_size(following) <= limit)

    def one(carry):
        _, following, i = carry
        return following, method.step(problem, following), i + 1

    return lax.while_loop(go_on, one, (state, method.step(problem, state), 0))[0]


def _iterates(state: State) -> PyTree:
    """What must not grow without bound; the rest of a state may well be large or infinite."""
    return state.x, state.theta, state.y, state.w


def _size(state: State) -> Array:
    """Inside a program: the largest absolute entry; NaN if there is one."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(leaf)) for leaf in jax.tree.leaves(_iterates(state)) if leaf.size]))


def _kinds(tree: PyTree) -> list[tuple]:
    return [(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(tree)]


def _magnitude(tree: PyTree) -> float:
    """The largest absolute entry; NaN if there is one."""
    return float(np.max([np.max(np.abs(whole(leaf))) for leaf in jax.tree.leaves(tree) if leaf.size]))


def _magnitudes(states: Any) -> np.ndarray:
    """The magnitude of each of stacked states."""
    rows = [np.asarray(leaf).reshape(len(states.k), -1) for leaf in jax.tree.leaves(_iterates(states)) if leaf.size]
    return np.max([np.max(np.abs(row), axis=1) for row in rows], axis=0)
