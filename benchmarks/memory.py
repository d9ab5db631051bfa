"""How much memory a solve holds: in copies of x or theta where they are large, in copies of the data where they are.

    python benchmarks/memory.py [--size 1000000] [--rows 400000] [--only theta]

Of a large x or theta, what is held at the worst moment: by NumPy, by JAX's arrays, and by the program that runs, its
work space included, as XLA's buffer assignment has it. On a busy machine JAX may give an array back late, which then
counts once more. Also by how much the process grows at its highest (Linux only). What is there before the solve (the
problem, the start) counts only where the line says so.
"""

import argparse
import ctypes
import gc
import os
import time
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import jax
import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from bisaddle import programs
from bisaddle.apps import multitask
from bisaddle.trees import ALIGNED

jax.config.update("jax_enable_x64", True)


def live() -> int:
    """JAX arrays; one that is the memory of a NumPy array counts with that."""
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


class Account:
    """The most bytes that are held at any moment of a call: with Account() as account: account.of(call).

    NumPy's by tracemalloc; JAX's arrays from when a program gives them, or NumPy's are copied for them, until they are
    freed; and while a program runs its answers, its work space and those arguments that it copies, because they do not
    begin where XLA wants them to.
    """

    def __enter__(self) -> "Account":
        self.make, self.put = programs.Program._program, jax.device_put
        self.arrays, self.most, self.base, self.number = 0, 0, 0, 0
        programs.clear()
        account = self

        def make(self: programs.Program, arrays: tuple, shapes: tuple) -> Callable:
            compiled = account.make(self, arrays, shapes)
            sizes = compiled.memory_analysis()
            work = sizes.output_size_in_bytes + sizes.temp_size_in_bytes
            return lambda leaves, *arrays: account._run(compiled, work, leaves, arrays)

        def put(given: Any, *where: Any, **options: Any) -> Any:
            placed = account.put(given, *where, **options)
            if isinstance(given, np.ndarray) and placed.unsafe_buffer_pointer() != given.ctypes.data:
                account._made(placed)
            return placed

        programs.Program._program, jax.device_put = make, put
        return self

    def __exit__(self, *_: Any) -> None:
        programs.Program._program, jax.device_put = self.make, self.put
        programs.clear()

    def of(self, call: Callable[[], Any]) -> int:
        call()  # all is compiled
        gc.collect()
        self.number, self.arrays, self.most = self.number + 1, 0, 0
        tracemalloc.start()
        self.base = tracemalloc.get_traced_memory()[0]
        try:
            call()
            self._look()
        finally:
            tracemalloc.stop()
        return self.most

    def _run(self, compiled: Any, work: int, leaves: list, arrays: tuple) -> Any:
        self._look()
        copied = sum(a.nbytes for a in arrays if isinstance(a, np.ndarray) and a.ctypes.data % ALIGNED)
        self.most = max(self.most, self._held(0) + work + copied)
        found = compiled(leaves, *arrays)
        for leaf in jax.tree.leaves(found):
            self._made(leaf)
        return found

    def _made(self, array: Any) -> None:
        self.arrays += array.nbytes
        weakref.finalize(array, self._freed, array.nbytes, self.number)

    def _freed(self, size: int, number: int) -> None:
        if number == self.number:  # of this call
            self._look()
            self.arrays -= size

    def _look(self) -> None:
        """At the most since the last look, between which JAX's arrays were the same."""
        self.most = max(self.most, self._held(1))
        if tracemalloc.is_tracing():
            tracemalloc.reset_peak()

    def _held(self, which: int) -> int:
        return tracemalloc.get_traced_memory()[which] - self.base + self.arrays


def copies(problem: bs.Problem, start: bs.Point, size: int, **options: Any) -> tuple[bs.Result, float, float]:
    """A result, and how many copies of so many bytes a solve and certify hold at the most, by an Account."""
    solve = lambda: bs.solve(problem, start, progress=False, **options)
    with Account() as account:
        result = solve()
        end = result.point
        point = bs.Point(*(None if part is None else np.asarray(part) for part in (end.x, end.theta, end.y)))
        return result, account.of(solve) / size, account.of(lambda: bs.certify(problem, point)) / size


def grown(problem: bs.Problem, start: bs.Point, size: int, **options: Any) -> float:
    """By how many copies of so many bytes the process grows at its highest in a solve."""
    solve = lambda: bs.solve(problem, start, progress=False, **options)
    solve()  # all is compiled
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before = _status("VmRSS")
    solve()
    return (_status("VmHWM") - before) * 2**20 / size


def x_alone(size: int) -> tuple[bs.Problem, bs.Point]:
    """One function of x, quadratic but for a cosine."""
    rng = np.random.default_rng(0)
    data = {"c": jnp.asarray(rng.normal(size=size)), "d": jnp.asarray(rng.uniform(0.1, 1, size))}

    def upper(x, theta, y, data):
        return jnp.sum(data["d"] * jnp.square(x - data["c"])) + 0.1 * jnp.sum(jnp.cos(x))

    return bs.Problem(upper, None, bs.sets.Box(-1.0, 1.0), None, data), bs.Point(x=np.zeros(size))


def large_x(size: int, lower: bool) -> tuple[bs.Problem, bs.Point]:
    """Three quadratics of x, the worst of which counts, with or without a lower level of three variables."""
    rng = np.random.default_rng(0)
    data = {"c": jnp.asarray(rng.normal(size=(3, size))), "d": jnp.asarray(rng.uniform(0.1, 1, size))}

    def losses(x, data):
        return jnp.stack([jnp.mean(data["d"] * jnp.square(x - c)) for c in data["c"]])

    if not lower:
        upper = lambda x, theta, y, data: data["c"].shape[1] * (y @ losses(x, data))
        problem = bs.Problem(upper, None, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex(), data)
        return problem, bs.Point(x=np.zeros(size), y=np.full(3, 1 / 3))
    upper = lambda x, theta, y, data: y @ theta + 0.5 * jnp.mean(jnp.square(x))
    g = lambda x, theta, data: 0.5 * jnp.sum(jnp.square(theta - losses(x, data)))
    problem = bs.Problem(upper, g, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex(), data, bs.Constants(mu_g=1.0))
    return problem, bs.Point(x=np.zeros(size), theta=np.zeros(3), y=np.full(3, 1 / 3))


def softmax_head(classes: int, rows: int = 200) -> tuple[bs.Problem, bs.Point]:
    """A softmax head, classes x classes, whose ridge is chosen against the worst of two groups of rows."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(classes, classes)) / classes**0.5
    labels = rng.integers(0, classes, (2, rows))
    features = centres[labels] + rng.normal(size=(2, rows, classes)) / classes**0.5 * np.r_[1.0, 1.5][:, None, None]
    data = {"rows": features, "labels": labels}

    def losses(theta, rows, labels):
        scores = rows @ theta
        return jax.nn.logsumexp(scores, axis=1) - jnp.take_along_axis(scores, labels[:, None], 1)[:, 0]

    def upper(x, theta, y, data):
        found = losses(theta, data["rows"][1], data["labels"][1])
        return y @ jnp.mean(found.reshape(2, -1), axis=1)

    def lower(x, theta, data):
        found = losses(theta, data["rows"][0], data["labels"][0])
        return jnp.mean(found) + 0.5 * jnp.exp(x[0]) * jnp.sum(jnp.square(theta))

    known = bs.Constants(mu_g=float(np.exp(-12.0)))
    problem = bs.Problem(upper, lower, bs.sets.Box(-12.0, 0.0), bs.sets.Simplex(), data, known)
    return problem, bs.Point(x=np.array([-4.0]), theta=np.zeros((classes, classes)), y=np.full(2, 0.5))


def data_copies(rows: int, width: int = 50) -> tuple[float, float, float]:
    """(JAX arrays alive, high-water mark above what was there, size of the data), of a whole warm solve; in MB."""
    problem, start = multitask.regression(multitask.synthetic(rows, width), form="rows")
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(problem.data)) / 2**20
    bs.solve(problem, start, tol=1e-4, progress=False)
    alive = 0.0

    def look(record: bs.Record) -> None:
        nonlocal alive
        alive = max(alive, live() / 2**20)

    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
    before = _status("VmRSS")
    bs.solve(problem, start, tol=1e-4, progress=False)
    more = _status("VmHWM") - before
    bs.solve(problem, start, tol=1e-4, every=5, callback=look, progress=False)
    return alive, more, size


def _status(name: str) -> float:
    """MB, of Linux's own account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def told(name: str, problem: bs.Problem, start: bs.Point, entries: int, **options: Any) -> None:
    clock = time.process_time()
    result, solve, certify = copies(problem, start, 8 * entries, **options)
    seconds, process = time.process_time() - clock, grown(problem, start, 8 * entries, **options)
    gap = f"{result.gap:.1e} + {result.certificate.error_bound:.0e}"
    print(
        f"{entries} entries of {name}: {result.status.name} after {result.steps} steps, gap {gap}, {seconds:.0f} CPU s"
    )
    print(f"  {solve:.1f} copies in a solve, {certify:.1f} in certify; the process grows by {process:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000, help="entries of a large x")
    parser.add_argument("--steps", type=int, default=60, help="of a large x at most")
    parser.add_argument("--rows", type=int, default=400_000, help="rows of large data")
    parser.add_argument("--only", choices=("theta", "x"), help="nothing but a large theta, or x")
    options = parser.parse_args()
    mallopt = ctypes.CDLL("libc.so.6").mallopt
    mallopt(-3, 2**16)  # M_MMAP_THRESHOLD: what is freed is given back at once, so that what is resident is in use
    if options.only != "x":
        told("theta, a softmax head", *softmax_head(round(options.size**0.5)), options.size, tol=1e-3)
    if options.only == "theta":
        return
    kinds = {"x alone": x_alone, "minimax": lambda size: large_x(size, False)}
    kinds["with a lower level"] = lambda size: large_x(size, True)
    for kind, make in kinds.items():
        problem, start = make(options.size)
        for x_set in (problem.x_set, bs.sets.L2Ball(0.3 * options.size**0.5)):
            given = replace(problem, x_set=x_set)
            told(f"x, {kind}, {type(x_set).__name__}", given, start, options.size, max_steps=options.steps)
    if options.only:
        return
    alive, more, size = data_copies(options.rows)
    print(f"{size:.0f} MB of data: {alive / size:.2f} copies alive, the data among them;")
    print(
        f"in a later solve the process grows by {more:.0f} MB ({more / size:.2f} copies) beyond what it has with them"
    )


if __name__ == "__main__":
    main()
