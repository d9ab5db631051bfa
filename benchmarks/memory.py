"""How much memory a solve holds: in copies of x or theta where they are large, in copies of the data where they are.

    python benchmarks/memory.py [--size 1000000] [--rows 400000] [--only theta]

For a large x, by how much the process grows at its highest (Linux only): NumPy, JAX's arrays and XLA's work space. For
theta what NumPy holds (tracemalloc) and what XLA's buffer assignment says. What is there before the solve (the problem,
the start) counts only where the line says so.
"""

import argparse
import ctypes
import gc
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import jax
import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from bisaddle import programs
from bisaddle.apps import multitask

jax.config.update("jax_enable_x64", True)


def live() -> int:
    """JAX arrays; one that is the memory of a NumPy array counts with that."""
    gc.collect()
    return sum(array.nbytes for array in jax.live_arrays())


def x_copies(problem: bs.Problem, start: bs.Point, steps: int = 15) -> tuple[float, float]:
    """By how many copies of x the process grows at its highest, in a solve of so many steps and in certify."""
    x = np.asarray(start.x)
    solve = lambda: bs.solve(problem, start, tol=1e-12, max_steps=steps, progress=False)
    found = solve().point
    point = bs.Point(*(None if part is None else np.asarray(part) for part in (found.x, found.theta, found.y)))
    bs.certify(problem, point)  # all is compiled
    del found

    def grown(call: Callable[[], Any]) -> float:
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
        before = _status("VmRSS")
        call()
        return (_status("VmHWM") - before) * 2**20 / x.nbytes

    return grown(solve), grown(lambda: bs.certify(problem, point))


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


def theta_copies(classes: int) -> None:
    """Programs by XLA's buffer assignment (arguments, results and work space), NumPy's peak, and the process."""
    problem, start = softmax_head(classes)
    size = 8 * classes**2
    compile_one, largest = programs._compiled, {}

    def noted(lowered, leaves, effort=None):
        found = compile_one(lowered, leaves, effort)
        sizes = found.memory_analysis()
        data = sum(leaf.nbytes for leaf in jax.tree.leaves(problem.data))
        work = sizes.argument_size_in_bytes + sizes.output_size_in_bytes + sizes.temp_size_in_bytes
        largest[len(largest)] = (work - data) / size
        return found

    programs._compiled = noted
    result = bs.solve(problem, start, tol=1e-3, progress=False)
    steps, gap = int(np.max(result.trace.k)), f"{result.gap:.1e} + {result.certificate.error_bound:.0e}"
    print(f"theta of {classes**2} entries, a softmax head: {result.status.name}, gap {gap}, {steps} steps")
    print(
        f"  programs: at most {max(largest.values()):.1f} copies of theta beside the data, by XLA's buffer assignment"
    )
    for name, call in (
        ("solve", lambda: bs.solve(problem, start, tol=1e-3, progress=False)),
        ("certify", lambda: bs.certify(problem, result.point)),
    ):
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        clock = time.process_time()
        call()
        seconds, peak = time.process_time() - clock, (tracemalloc.get_traced_memory()[1] - before) / size
        tracemalloc.stop()
        print(
            f"  {name}: {peak:.1f} copies at the peak in NumPy, {seconds:.1f} s of CPU when all is compiled", flush=True
        )


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=1_000_000, help="entries of a large x")
    parser.add_argument("--rows", type=int, default=400_000, help="rows of large data")
    parser.add_argument("--only", choices=("theta", "x"), help="nothing but a large theta, or x")
    options = parser.parse_args()
    if options.only != "x":
        theta_copies(round(options.size**0.5))
    if options.only == "theta":
        return
    mallopt = ctypes.CDLL("libc.so.6").mallopt
    mallopt(-3, 2**16)  # M_MMAP_THRESHOLD: what is freed is given back at once, so that what is resident is in use
    kinds = ("x alone", lambda: x_alone(options.size)), ("minimax", lambda: large_x(options.size, False))
    for kind, make in (*kinds, ("with a lower level", lambda: large_x(options.size, True))):
        solve, certify = x_copies(*make())
        print(
            f"x of {options.size} entries, {kind}: {solve:.1f} copies in a solve, {certify:.1f} in certify", flush=True
        )
    if options.only:
        return
    alive, more, size = data_copies(options.rows)
    print(f"{size:.0f} MB of data: {alive / size:.2f} copies alive, the data among them;")
    print(
        f"in a later solve the process grows by {more:.0f} MB ({more / size:.2f} copies) beyond what it has with them"
    )


if __name__ == "__main__":
    main()
