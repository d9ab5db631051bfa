"""CPU seconds from a fresh process to a first answer, and what a later answer costs.

    python benchmarks/first_answer.py [--runs 5] [--only NAME ...]

The columns are problems, solved to 1e-6: README's example, the same by FullyProjected with README's step sizes, the
Gram form of robust regression (T = 5, d = 20), and a logistic lower level. The rows are readings: the median of the
runs, with the least and the most in brackets; every run is a process of its own. Seconds are CPU seconds of all threads
together, unless the row says wall. "another shape" is the same code with more tasks, rows and columns, in the same
process. The warm solves have the shapes of the first but other numbers, so only programs can be reused. BLAS has as
many threads as the caller's environment gives it, as it has for a user; the cache of programs on disk is off.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

README = Path(__file__).parents[1] / "README.md"
TOL = 1e-6
WARM = 20
COMPILED = "/jax/core/compile/backend_compile_duration"
FIRST, OTHER = (3, 40, 5), (4, 60, 8)  # tasks, rows, columns
GRAM, OTHER_GRAM = (5, 400, 20), (6, 480, 24)
LOGISTIC, OTHER_LOGISTIC = (5, 120, 10), (6, 160, 12)


COMPILATIONS: list[float] = []  # seconds of XLA, one entry a program


def note_compilation(event: str, seconds: float, **_: Any) -> None:
    if event == COMPILED:
        COMPILATIONS.append(seconds)


class Clock:
    cpu = wall = 0.0
    programs = 0


@contextmanager
def clocked() -> Iterator[Clock]:
    """CPU and wall seconds of the block, and how many programs XLA compiled in it."""
    clock, before = Clock(), len(COMPILATIONS)
    cpu, wall = time.process_time(), time.perf_counter()
    yield clock
    clock.cpu, clock.wall = time.process_time() - cpu, time.perf_counter() - wall
    clock.programs = len(COMPILATIONS) - before


# --- the problems; jax and bisaddle are imported inside, for their imports are readings ------------------------------


class Case(NamedTuple):
    """(problem, start): the first, of another shape, and like the first with the numbers of a seed; the method."""

    first: Callable[[], tuple]
    other: Callable[[], tuple]
    like: Callable[[int], tuple]
    method: Callable[[], Any] = lambda: None  # solve's own choice


def regression_rows(shape: tuple[int, int, int], seed: int) -> dict[str, tuple]:
    """README's data in NumPy: jax.random compiles a program for every new shape, which is not what is read here."""
    T, n, d = shape
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(T, n, d))
    b = np.einsum("tnd,td->tn", A, 1 + 0.5 * rng.normal(size=(T, d)))
    b += np.linspace(0.1, 0.5, T)[:, None] * rng.normal(size=(T, n))
    cut = n * 3 // 4
    return {"train": (A[:, :cut], b[:, :cut]), "val": (A[:, cut:], b[:, cut:])}


def shared_start(T: int, d: int) -> Any:
    import bisaddle as bs

    x = {"x": np.zeros(d), "lam": np.full(T, 0.5)}
    return bs.Point(x=x, theta=np.zeros((T, d)), y=np.full(T, 1 / T))


def readme() -> Case:
    """README's code up to its call of solve; the other shape and the later numbers go to its own f, g and sets."""
    import jax

    import bisaddle as bs

    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    code = next(block for block in blocks if "result = bs.solve" in block)
    names: dict[str, Any] = {}

    def first() -> tuple:
        exec(code.split("result = bs.solve")[0], names)
        return names["problem"], names["start"]

    def like(seed: int, shape: tuple[int, int, int] = FIRST) -> tuple:
        data = jax.tree.map(jax.numpy.asarray, regression_rows(shape, seed))
        problem = names["problem"]
        made = bs.Problem(names["upper"], names["lower"], problem.x_set, problem.y_set, data)
        return made, shared_start(shape[0], shape[2])

    return Case(first, partial(like, 0, OTHER), like)


def fully_projected() -> Case:
    """The method as README spells it."""
    import bisaddle as bs

    found = re.search(r"`(bs\.methods\.FullyProjected\(.*?\))`", README.read_text(), re.S)
    assert found is not None, "README.md no longer names step sizes of FullyProjected"
    return readme()._replace(method=lambda: eval(found[1], {"bs": bs}))


def gram() -> Case:
    def make(shape: tuple[int, int, int], seed: int) -> tuple:
        from bisaddle.apps import multitask

        T, n, d = shape
        return multitask.regression(multitask.synthetic(T * n, d, T, seed=seed), form="gram")

    return Case(partial(make, GRAM, 0), partial(make, OTHER_GRAM, 0), partial(make, GRAM))


def logistic_upper(x, theta, y, data):
    import jax
    import jax.numpy as jnp

    return y @ jnp.mean(jax.nn.softplus(-jnp.einsum("tnd,td->tn", data["valid"], theta)), axis=1)


def logistic_lower(x, theta, data):
    import jax
    import jax.numpy as jnp

    lam = x["lam"][:, None]
    margins = jnp.einsum("tnd,td->tn", data["train"], lam * theta + (1 - lam) * x["x"])
    return jnp.sum(jnp.mean(jax.nn.softplus(-margins), axis=1)) + 0.05 * jnp.sum(jnp.square(theta))


def logistic() -> Case:
    """As in adaptive_families.py, which is not imported: it would load what solve may have to load by itself."""

    def make(shape: tuple[int, int, int], seed: int) -> tuple:
        import jax.numpy as jnp

        import bisaddle as bs

        T, n, d = shape
        rng = np.random.default_rng(seed)
        rows = rng.normal(size=shape)
        truth = rng.normal(size=d) + 0.7 * rng.normal(size=(T, d))
        labels = np.where(np.einsum("tnd,td->tn", rows, truth) + rng.logistic(size=(T, n)) > 0, 1.0, -1.0)
        rows, cut = rows * labels[:, :, None], n * 3 // 4
        data = {"train": jnp.asarray(rows[:, :cut]), "valid": jnp.asarray(rows[:, cut:])}
        x_set = bs.sets.Product({"x": bs.sets.L1Ball(5.0), "lam": bs.sets.Box(0.0, 1.0)})
        constants = bs.Constants(mu_g=0.1)
        problem = bs.Problem(logistic_upper, logistic_lower, x_set, bs.sets.Simplex(), data, constants)
        return problem, shared_start(T, d)

    return Case(partial(make, LOGISTIC, 0), partial(make, OTHER_LOGISTIC, 0), partial(make, LOGISTIC))


CASES = {"README": readme, "FullyProjected": fully_projected, "Gram": gram, "logistic": logistic}


# --- one process ------------------------------------------------------------------------------------------------------


def read(name: str) -> dict[str, Any]:
    """All readings of a problem in this process, which has imported nothing but NumPy so far."""
    with clocked() as jax_import:
        import jax
    with clocked() as our_import:
        import bisaddle as bs

        _ = bs.solve, bs.Problem, bs.sets  # names load when they are first used
    jax.config.update("jax_enable_x64", True)
    jax.monitoring.register_event_duration_secs_listener(note_compilation)
    case = CASES[name]()
    with clocked() as data:
        problem, start = jax.block_until_ready(case.first())
    solve = partial(bs.solve, tol=TOL, progress=False)
    method = case.method()
    with clocked() as first:
        result = solve(problem, start, method)
    in_xla = sum(COMPILATIONS[len(COMPILATIONS) - first.programs :])
    problem, start = jax.block_until_ready(case.other())
    with clocked() as other:
        other_result = solve(problem, start, method)
    later, statuses = [], [result.status.name, other_result.status.name]
    for seed in range(1, WARM + 1):
        problem, start = jax.block_until_ready(case.like(seed))
        with clocked() as warm:
            statuses.append(solve(problem, start, method).status.name)
        later.append(warm)
    return {
        "import jax": jax_import.cpu,
        "import bisaddle, beyond jax": our_import.cpu,
        "data": data.cpu,
        "first solve": first.cpu,
        "first solve: wall": first.wall,
        "first solve: Result.compile_seconds (wall)": result.compile_seconds,
        "first solve: in XLA (wall)": in_xla,
        "first solve: programs": first.programs,
        "another shape": other.cpu,
        "another shape: wall": other.wall,
        "another shape: Result.compile_seconds (wall)": other_result.compile_seconds,
        "another shape: programs": other.programs,
        f"warm, median of {WARM}": statistics.median(warm.cpu for warm in later),
        f"warm, median of {WARM}: wall": statistics.median(warm.wall for warm in later),
        f"warm, dearest of {WARM}": max(warm.cpu for warm in later),
        f"warm, all {WARM}: programs": sum(warm.programs for warm in later),
        f"solves not certified, of {WARM + 2}": sum(status != "CERTIFIED" for status in statuses),
    }


# --- the table --------------------------------------------------------------------------------------------------------


def fresh(name: str) -> dict[str, Any]:
    """The readings of a process of its own."""
    kept = {key: value for key, value in os.environ.items() if key != "JAX_COMPILATION_CACHE_DIR"}
    command = [sys.executable, __file__, "--child", name]
    found = subprocess.run(command, env=kept, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        raise SystemExit(f"{name}: the process ended with {found.returncode}")
    return json.loads(found.stdout.splitlines()[-1])


def cell(values: list[float]) -> str:
    middle, least, most = (f"{value:.3g}" for value in (statistics.median(values), min(values), max(values)))
    return middle if least == most else f"{middle} ({least}..{most})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    parser.add_argument("--child", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(read(options.child)))
        return
    found: dict[str, list[dict]] = {name: [] for name in options.only}
    for run in range(options.runs):  # in turns, so that a busy minute of the machine falls on all of them
        for name in options.only:
            found[name].append(fresh(name))
            print(f"run {run + 1}, {name}: {found[name][-1]['first solve']:.3g} s", file=sys.stderr, flush=True)
    print(f"| CPU seconds, median of {options.runs} (least..most) | {' | '.join(options.only)} |")
    print("|---" * (1 + len(options.only)) + "|")
    for reading in next(iter(found.values()))[0]:
        cells = [cell([row[reading] for row in found[name]]) for name in options.only]
        print(f"| {reading} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
