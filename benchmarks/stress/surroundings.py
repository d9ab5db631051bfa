"""Long runs, threads, runs inside runs, Ctrl-C while compiling: serial results, bounded memory, no setting changed."""

import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_info

import bisaddle as bs
from benchmarks.stress import families

ROOT = Path(__file__).parents[2]
THREADS = 8
# how much the memory of a run may grow after the first hundredth of its steps
GROWTH = 0.05
# seconds after which Ctrl-C is sent to a process that has just begun to compile
MOMENTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 1.0)

# one small saddle, many steps; callbacks say how much memory there is
LONG = """
import sys, jax
jax.config.update("jax_enable_x64", True)
import numpy as np, bisaddle as bs
steps = int(sys.argv[1])
page = __import__("resource").getpagesize()
resident = lambda: int(open("/proc/self/statm").read().split()[1]) * page
seen = {}
def look(record):
    if record.k <= max(steps // 100, 1):
        seen["early"] = resident()
box = bs.sets.Box(-1.0, 1.0)
problem = bs.Problem(lambda x, theta, y, data: x @ data @ y, None, box, box, np.array([[0.3, -1.0], [0.7, 0.2]]))
start = bs.Point(np.array([0.5, -0.3]), None, np.array([0.1, 0.9]))
method = bs.methods.AlternatingGDA(bs.StepSizes(tau=1e-3, sigma=1e-3))
result = bs.solve(problem, start, method, tol=None, max_steps=steps, callback=look, progress=False)
print(result.steps, len(result.trace), seen["early"], resident())
"""

# Ctrl-C may come at any moment of the first run; the second one must be as if nothing had happened
# runs until Ctrl-C is heard, or for so many seconds: a run may end before a signal that a busy machine sends late
INTERRUPTED = """
import signal, sys, time
import jax
signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background of a shell it is ignored
jax.config.update("jax_enable_x64", True)
import numpy as np, bisaddle as bs
from benchmarks.stress import families
problem, start, tol, measure = families.logistic(np.random.default_rng(0))
solve = bs.solve  # loaded here: a KeyboardInterrupt during imports is Python's and JAX's
run = lambda: solve(problem, start, tol=tol, max_steps=50, measure=measure, progress=False)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
try:
    told = str(run().status)
    while told != "INTERRUPTED" and time.monotonic() < end:
        told = str(run().status)
except KeyboardInterrupt:
    told = "KeyboardInterrupt"
print(told, np.asarray(run().point.x).tobytes().hex(), flush=True)
"""


def settings() -> dict[str, Any]:
    """Everything global that a library could leave changed."""
    return {
        "jax.config": dict(jax.config.values),
        "NumPy's errors": np.geterr(),
        "NumPy's random state": np.random.get_state()[1].tobytes(),
        "Python's random state": random.getstate(),
        "print options": str(np.get_printoptions()),
        "signal handlers": {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)},
        "BLAS threads": {library["filepath"]: library["num_threads"] for library in threadpool_info()},
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "hooks": (sys.excepthook, sys.unraisablehook, sys.gettrace(), sys.getrecursionlimit()),
        "limits": resource.getrlimit(resource.RLIMIT_NOFILE),
    }


def changed(before: dict[str, Any]) -> list[str]:
    after = settings()
    return [name for name in before if before[name] != after[name]]


def _run(seed: int, callback: Any = None) -> bs.Result:
    problem, start, tol, measure = families.quadratic(np.random.default_rng(seed))
    return bs.solve(problem, start, tol=tol, max_steps=50, measure=measure, callback=callback, progress=False)


def _same(one: bs.Result, other: bs.Result) -> bool:
    leaves = lambda result: jax.tree.leaves((result.point, result.last, result.certificate.theta))
    equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(leaves(one), leaves(other), strict=True))
    return equal and one.status is other.status and one.steps == other.steps


def threads(count: int) -> list[str]:
    """count runs in eight threads at once against the same runs one after the other."""
    serial = [_run(seed) for seed in range(count)]
    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(_run, range(count)))
    return [f"thread {i}: another result" for i in range(count) if not _same(serial[i], together[i])]


def inside_a_callback() -> list[str]:
    """A run whose callback runs another one, against both alone."""
    inner: list[bs.Result] = []
    outer = _run(1, lambda record: inner.append(_run(2)) if len(inner) < 3 else None)
    plain = _run(1, lambda record: None)
    wrong = [] if _same(outer, plain) else ["callback: the outer run has another result"]
    return wrong + ["callback: an inner run has another result" for one in inner if not _same(one, _run(2))]


def interrupted(moments: tuple[float, ...] = MOMENTS) -> list[str]:
    """Ctrl-C at moments of the first compilation, in processes of their own; None sends none, for comparison."""
    answers = {}
    for moment in (None, *moments):
        process = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, "0" if moment is None else "30"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        if moment is not None:
            time.sleep(moment)
            process.send_signal(signal.SIGINT)
        try:
            out, error = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            out, error = "hang -", ""
        answers[moment] = out.split() if process.returncode == 0 else ["crash", error[-300:]]
    print("  Ctrl-C while compiling:", ", ".join(f"{m} s: {told[0]}" for m, told in answers.items() if m is not None))
    wanted = answers.pop(None)[1]
    wrong = [f"Ctrl-C after {m} s: {told}" for m, told in answers.items() if told[1] != wanted]
    heard = ("KeyboardInterrupt", "INTERRUPTED")
    return wrong + [f"Ctrl-C after {m} s is lost" for m, told in answers.items() if told[0] not in heard]


def long_run(steps: int) -> list[str]:
    """So many steps with a trace, in a process of their own."""
    done = subprocess.run(
        [sys.executable, "-c", LONG, str(steps)], capture_output=True, cwd=ROOT, text=True, timeout=900
    )
    if done.returncode != 0:
        return [f"a run of {steps} steps: {done.stderr[-300:]}"]
    taken, rows, early, late = map(int, done.stdout.split())
    growth = late / early - 1
    print(f"  {taken} steps: {rows} rows of trace, {early / 2**20:.0f} MB after 1 %, {growth:+.1%} at the end")
    return [f"memory grew by {growth:.1%}"] if growth > GROWTH or taken != steps else []


def main(count: int) -> int:
    """count steps in the long run; the number of failures."""
    _run(0)  # what is loaded and compiled once is not a change
    before = settings()
    failures = threads(4 * THREADS) + inside_a_callback()
    failures += [f"changed: {name}" for name in changed(before)]
    failures += interrupted() + long_run(count)
    for failure in failures:
        print(f"      {failure}")
    return len(failures)
