"""solve: it owns compilation, blocks, the clock, stop rules, trace and status; a method owns one step."""

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np

from bisaddle.certificate.certifier import Certifier, Gap
from bisaddle.certificate.scale import gradient_scale
from bisaddle.certificate.wide import widened
from bisaddle.devices import Together, is_lost
from bisaddle.methods.adaptive import Adaptive
from bisaddle.methods.base import HostMethod, Method
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.validate import as_number, check_key, is_whole, require_concrete, require_whole
from bisaddle.problem import Point, Problem, described
from bisaddle.programs import OutOfTime, Watch, on_device, one_blas_thread, watched
from bisaddle.run.blocks import BlockRun, run_blocks
from bisaddle.run.checkpoint import EVERY, Checkpoints, Settings, read
from bisaddle.run.interrupts import not_lost, noted
from bisaddle.run.loop import HostRun, Limits, Run, run_hosts
from bisaddle.run.progress import Progress
from bisaddle.run.reasons import reason
from bisaddle.run.result import Record, Result, Status
from bisaddle.run.starts import as_starts, best_result, check_starts, moved_into, start_points
from bisaddle.run.streamed import kernels_of, reading, streamed
from bisaddle.showing import changed, given_out
from bisaddle.streams.chunks import Chunks, Reader
from bisaddle.trees import Number, Shape

# a run is recorded a hundred times, and at least as often as this
MOST_STEPS_BETWEEN = 1000
# a record of streamed data takes some dozens of passes over them, an epoch one
EPOCHS_BETWEEN = 10
# a tol of so few roundings is hardly ever certified: gradients of numbers of size 1 lose as many
ROUNDINGS = 20


class More(TypedDict, total=False):
    """What solve takes besides: data that are streamed; the step sizes inside the gap; starts to draw, and a key."""

    data: Any
    sigma: Number
    tau: Number
    starts: int | np.integer | None
    key: Any


def solve(
    problem: Problem,
    start: Point | Sequence[Point],
    method: Method | None = None,
    *,
    tol: Number | None = 1e-4,
    rtol: Number | None = None,
    max_steps: int | np.integer = 10_000,
    max_seconds: Number | None = None,
    every: int | np.integer | None = None,
    measure: Gap | str | None = None,
    callback: Callable[[Record], Any] | None = None,
    progress: bool | None = None,
    check: bool = False,
    checkpoint: str | os.PathLike | Checkpoints | None = None,
    checkpoint_every: Number = EVERY,
    **more: Unpack[More],
) -> Result:
    """Run a method until the certificate says that the point is stationary, or a limit says stop.

    start: several are run in turns, and the certified point with the lowest worst value is returned; Result.starts has
    all results. starts=4, key=jax.random.key(0) draws some around one, as bs.start_points does.
    method: None is Adaptive, which has no step sizes to choose.
    tol: the gap to certify; None runs all steps. rtol: the same relative to the gradient at the start, |grad_x L| and
    how much grad_y L differs across Y; with both, the larger gap is enough, and tol=None leaves rtol alone.
    max_seconds: wall time from the call, compilation included.
    every: steps between records (certificate, trace, stop rules, callback). None: 100 records a run, at most 1000 steps
    apart; Adaptive then records at the start, when its own gap meets tol and, if there is a callback, every 100 steps.
    data: bs.streams.Chunks, where there are more rows than memory, for the methods that take a sampler: each chunk is
    problem.data for some steps, and the certificate is of all of them. every: None is then 10 epochs.
    measure, sigma, tau: define the gap, as in certify; a bs.Gap has all three. measure None: "projection" if x_set has
    one, else "lmo", else "mixed".
    callback: called with every Record; a true return value stops the run. progress: show a progress bar; None: only on
    a terminal.
    check: samples the assumptions first (strongly convex g, concave f, finite values) and raises ValueError with a
    witness if one fails; theory.check_assumptions looks more closely.
    checkpoint, checkpoint_every: a file in which the run is kept every so many seconds, and when it ends, also by
    Ctrl-C or SIGTERM; bs.resume goes on from it. The one before is kept too, in checkpoint.previous. A file that is
    there, or in use by another run, is refused. "folder/", with a slash, keeps states ungathered (extra `orbax`).
    """
    began = time.perf_counter()
    starts = as_starts(start)
    problem, chunks = streamed(problem, method, more.pop("data", None))
    require_concrete("solve", problem, *starts)
    _check_limits(tol, max_steps, max_seconds, every)
    if rtol is not None and not 0 < as_number("rtol", rtol) < 1:
        raise ValueError(f"rtol must be > 0 and < 1, given {rtol}; use None, and tol for a gap in the units of f")
    _check_choices(callback, progress, check)
    if checkpoint is not None and not isinstance(checkpoint, Checkpoints):
        checkpoint = Checkpoints(checkpoint, checkpoint_every)
    gap, drawn = _with_more(measure, starts, dict(more))
    if check:
        _check_assumptions(problem, starts[0])
    if method is not None and not isinstance(method, Method):
        raise ValueError(f"method must be one of bs.methods, given {described(method)}; use bs.methods.Adaptive()")
    watch = Watch()
    with watched(watch), not_lost():
        check_starts(problem, starts)
    gap = Gap.of(gap, problem)
    scale = None
    if rtol is not None:
        with watched(watch), one_blas_thread():
            scale = gradient_scale(kernels_of(problem, starts[0], chunks), starts[0], gap.measure)
        tol = max(tol or 0.0, float(rtol) * scale) or None
    if method is None:
        method = Adaptive(1e-6 if tol is None else tol)
    method.check(problem)
    max_steps, sparse = int(max_steps), every is None
    usual = min(MOST_STEPS_BETWEEN, max_steps // 100) if chunks is None else chunks.epochs(EPOCHS_BETWEEN)
    every = int(every or max(1, usual))
    tol = None if tol is None else float(tol)
    max_seconds = None if max_seconds is None else float(max_seconds)
    alone = isinstance(start, Point) and drawn is None
    settings = Settings(tol, max_steps, max_seconds, every, sparse, gap, not alone, max_steps, scale)
    _warn_of_rounding(tol, starts[0])
    if drawn is not None:
        with watched(watch), not_lost():
            starts = start_points(problem, starts[0], *drawn)
    task = Task(problem, method, starts, settings, chunks)
    return _solved(task, began, watch, callback, progress, checkpoint)


def resume(
    path: str | os.PathLike,
    problem: Problem,
    method: Method | None = None,
    *,
    max_steps: int | np.integer | None = None,
    max_seconds: Number | None = None,
    callback: Callable[[Record], Any] | None = None,
    progress: bool | None = None,
    checkpoint_every: Number = EVERY,
    data: Any = None,
) -> Result:
    """Go on with a run from its checkpoint: the result is, bit by bit, that of a run that was never stopped.

    Only its seconds differ, and callback may see a record again: the last moments before the stop are repeated. The
    machine and the versions must be the same for that. problem: the same as then; another one is refused, with the
    first difference. method: needed if it holds functions, such as a sampler's; else the file has it.
    max_steps: to raise or lower it; None leaves it. max_seconds: from this call on. The run is kept in the same file.
    data: the same bs.streams.Chunks as then, if there were any; of their rows only the first chunk is compared.
    """
    began = time.perf_counter()
    kept = read(path)
    checkpoints = Checkpoints.after(path, checkpoint_every, kept)
    settings = replace(
        kept.settings,
        max_steps=kept.settings.max_steps if max_steps is None else max_steps,
        max_seconds=None if max_seconds is None else float(max_seconds),
    )
    _check_limits(settings.tol, settings.max_steps, settings.max_seconds, settings.every)
    problem, chunks = streamed(problem, method or kept.method, data)
    require_concrete("resume", problem, *kept.starts)
    kept.check_problem(path, problem, "" if chunks is None else chunks.words())
    method = kept.method_for(path, method)
    watch = Watch()
    try:
        with watched(watch), not_lost():
            check_starts(problem, kept.starts)
    except ValueError as error:
        raise ValueError(f"{path} is damaged: its start does not fit the problem: {error}") from error
    method.check(problem)
    settings = replace(settings, gap=Gap.of(replace(settings.gap), problem))  # looked at again: it comes from a file
    task = Task(problem, method, kept.placed_starts(problem), settings, chunks)
    return _solved(task, began, watch, callback, progress, checkpoints, kept.runs)


class Task(NamedTuple):
    """What is to be solved, how, and from where."""

    problem: Problem
    method: Method
    starts: list[Point]
    settings: Settings
    chunks: Chunks | None


def _solved(
    task: Task,
    began: float,
    watch: Watch,
    callback: Callable[[Record], Any] | None,
    progress: bool | None,
    checkpoints: Checkpoints | None,
    snapshots: list | None = None,
) -> Result:
    """Runs from the starts to their ends. snapshots: where they stand already."""
    problem, method, starts, settings, chunks = task
    deadline = None if settings.max_seconds is None else began + settings.max_seconds
    if not isinstance(method, HostMethod):  # whose kernels have the data on the device
        problem = changed(problem, data=on_device(problem.data))  # once for all that follows
    together = Together.of((problem.data, starts))
    shown = together is None or together.first
    with (
        _lost_processes(together, checkpoints),
        nullcontext() if checkpoints is None else checkpoints.held(fresh=snapshots is None, together=together),
        Progress(progress if shown else False, method.name, settings.max_steps) as bar,
        watched(watch),
        one_blas_thread(),
        noted(terminate=checkpoints is not None) as interrupt,
        reading(chunks) as reader,
    ):
        watch.say = bar.compiling
        if checkpoints is not None:
            checkpoints.about(problem, method, starts, settings, "" if chunks is None else chunks.words())
        kernels, tol = kernels_of(problem, starts[0], chunks), settings.tol
        below = -np.inf if tol is None else tol
        certifier = Certifier(*widened(problem, starts[0], kernels), settings.gap, below)
        runs, run_all = _runs(task._replace(problem=problem), kernels, certifier, bar, reader)
        if checkpoints is not None:
            checkpoints.restore(runs, snapshots or [])
        # from here on there is something to give back; several processes look at the clock between steps only
        watch.deadline = deadline if together is None else None
        limits = Limits(
            settings.max_steps,
            settings.every,
            tol,
            deadline,
            callback,
            settings.sparse,
            interrupt,
            settings.horizon,
            together,
        )
        try:
            run_all(runs, limits, checkpoints)
        except (KeyboardInterrupt, OutOfTime) as stop:
            for run in runs:
                interrupted = Status.INTERRUPTED if isinstance(stop, KeyboardInterrupt) else Status.MAX_SECONDS
                run.status = run.status or interrupted
        watch.deadline = None  # what was found gets its certificate, however late it is
        results = [_result(run, limits, watch, settings.scale) for run in runs]
    return best_result(results) if settings.several else results[0]


@contextmanager
def _lost_processes(together: Together | None, checkpoints: Checkpoints | None) -> Iterator[None]:
    """Where several processes run together: what a broken connection means, and what to do."""
    if together is None:
        yield
        return
    Together.left = None
    try:
        yield
    except BaseException as error:
        Together.left = "lost" if is_lost(error) else "own"
        if Together.left == "own":
            raise
        then = (
            "" if checkpoints is None else f"; go on from the last checkpoint with bs.resume({str(checkpoints.name)!r})"
        )
        raise RuntimeError(
            f"another process of this run has ended, or cannot be reached; start all of them again{then}"
        ) from error


def _runs(
    task: Task, kernels: Kernels, certifier: Certifier, bar: Progress, reader: Reader | None
) -> tuple[Sequence[Any], Callable[[Sequence[Any], Limits, Checkpoints | None], None]]:
    """A run from every start, and what takes them all to their ends."""
    problem, method, starts, settings, _ = task
    if isinstance(method, HostMethod):
        return [HostRun(problem, method, p, kernels, certifier, bar, settings.sparse) for p in starts], run_hosts
    return [BlockRun(problem, method, point, certifier, bar) for point in starts], partial(run_blocks, reader=reader)


def _result(run: Run, limits: Limits, watch: Watch, scale: float | None) -> Result:
    run.finish()
    run.let_go()
    last = run.history.last
    assert last is not None
    best = run.history.best or last
    end, point, k, certificate = last.point, best.point, best.k, best.certificate
    status = run.status or Status.MAX_STEPS
    if status is not Status.CERTIFIED:  # looked at as closely as one that is
        if k != run.closely:
            # the gradients of a large x in the old ones make room first
            last = best = certificate = run.history.last = run.history.best = None
            flat = run.certifier.kernels.flat(point, own=False)
            certificate = run.certifier.certificate(*flat, below=np.inf)
        status = limits.ending(status, certificate)
    point, end = given_out((point, end)) if end is not point else (given_out(point),) * 2
    return Result.made(
        point=point,
        certificate=run.certifier.with_free_parts(point, certificate),
        last=end,
        trace=run.history.trace(),
        method=run.method,
        status=status,
        seconds=run.seconds,
        compile_seconds=watch.seconds,
        starts=(),
        reason=reason(status, run.problem, run.certifier, point, certificate),
        tol=limits.tol,
        scale=scale,
    )


def solve_path(
    problems: Iterable[Problem], start: Point | Sequence[Point], method: Method | None = None, **options
) -> list[Result]:
    """Solve a sequence of problems of the same shapes (say, with a changing radius or ridge), each from the last.

    Every problem starts from the best point of the one before, moved into its own sets: by projection or, if x_set has
    no projection and does not contain the point, to a vertex; of several starts, each from its own. options: as in
    solve. Problems that differ only in numbers are compiled once.
    """
    if isinstance(problems, Problem | dict) or not isinstance(problems, Iterable):
        raise ValueError(f"problems must be several of bisaddle.Problem, given {described(problems)}; use a list")
    results: list[Result] = []
    for problem in problems:
        if results:
            ends = [moved_into(problem, end.point) for end in results[-1].starts or results[-1:]]
            start = ends if results[-1].starts else ends[0]
        results.append(solve(problem, start, method, **options))
    return results


def _check_limits(tol, max_steps, max_seconds, every) -> None:
    if tol is not None and not as_number("tol", tol) > 0:
        raise ValueError(f"tol must be > 0, given {tol}; use tol=None to run all steps")
    require_whole("max_steps", max_steps, 1)
    if max_seconds is not None and not as_number("max_seconds", max_seconds) > 0:
        raise ValueError(f"max_seconds must be > 0, given {max_seconds}; use None for no limit")
    if every is not None and (not is_whole(every) or not 1 <= every < 2**31):
        raise ValueError(f"every must be a whole number >= 1, given {every}; use None for the default")


def _warn_of_rounding(tol: float | None, start: Point) -> None:
    dtype = Shape.of(start.x).dtype
    eps = float(np.finfo(dtype).eps)
    if tol is not None and tol < ROUNDINGS * eps:
        warnings.warn(
            f"tol={tol:g} is hardly more than rounding in {dtype}, and may not be certified; raise it"
            + (', or call jax.config.update("jax_enable_x64", True) and give float64 arrays' if eps > 1e-10 else ""),
            stacklevel=3,
        )


def _with_more(measure: Any, starts: list[Point], more: dict[str, Any]) -> tuple[Any, tuple[int, Any] | None]:
    """The gap with its step sizes, and (count, key) of the starts to draw; None: those given are all."""
    if unknown := sorted(set(more) - set(More.__annotations__)):
        raise TypeError(f"solve() got an unexpected keyword argument {unknown[0]!r}")
    sizes = {name: more[name] for name in ("sigma", "tau") if name in more}
    if sizes:
        if isinstance(measure, Gap):
            raise ValueError(f"measure is a Gap with step sizes of its own, given {', '.join(sizes)} besides")
        measure = Gap(measure, **sizes)
    count, key = more.get("starts"), more.get("key")
    if count is None and key is None:
        return measure, None
    if not is_whole(count) or not 1 <= count < 2**31:
        raise ValueError(f"starts must be a whole number >= 1, given {count}; leave starts and key out for one start")
    if len(starts) > 1:
        raise ValueError(f"starts are drawn around one start, given {len(starts)}; use bs.start_points for each")
    if key is None and count > 1:
        raise ValueError(f"starts={count} needs a key for the random ones; use key=jax.random.key(0)")
    if key is not None:
        check_key(key)
    return measure, (int(count), key)


def _check_assumptions(problem: Problem, start: Point) -> None:
    from bisaddle.theory.assumptions import quick_check  # seldom used, and slow to load

    report = quick_check(problem, start)
    if not report.ok:
        raise ValueError(f"the problem does not meet the assumptions; mend it, or use check=False\n{report}")


def _check_choices(callback, progress, check) -> None:
    if callback is not None and not callable(callback):
        raise ValueError(f"callback must be a function of a Record, given {described(callback)}; use None for none")
    for name, value, may in (("progress", progress, (True, False, None)), ("check", check, (True, False))):
        if not (value is None or isinstance(value, bool | np.bool_)) or value not in may:
            raise ValueError(f"{name} must be one of {', '.join(map(str, may))}, given {value!r}")
