"""Time per step of the compiled loop against a plain C loop and a NumPy loop; ratios within one process.

    python benchmarks/loop.py [rounds]

The problem is robust multi-task regression in Gram form, T = 5 tasks, d = 20 and 100, float64. All contestants must
agree on the iterates before the clock starts; then they take turns, and the minimum over the rounds counts, since the
machine is shared. "plain C", which the targets refer to, is loop.c with matrix products as dot products of rows;
"vectorised C" takes them by columns, so that gcc -O3 vectorises without -ffast-math. The last table repeats d = 20 with
the XLA flag, off by default, that compiles a small loop into one kernel.
"""

import ctypes
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

import bisaddle as bs
from bisaddle.run.blocks import advance

T = 5
STEPS = {"alpha": 0.5, "eta": 0.5, "gamma": 0.05, "tau": 0.7, "sigma": 0.1, "mu": 0.1}
RADIUS, RIDGE, DIVERGENCE = 5.0, 0.1, 0.1
METHODS = {"FullyProjected": bs.methods.FullyProjected, "OneSidedProjectionFree": bs.methods.OneSidedProjectionFree}
SECONDS_A_TURN = 0.004
TARGETS = {"jax, by hand": 1.1, "jax, autodiff": 2.0}
FLAG = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=1000000"


class CSteps(ctypes.Structure):
    _fields_ = [(name, ctypes.c_double) for name in (*STEPS, "radius", "ridge", "divergence")]


def compile_c(folder: Path, *flags: str) -> ctypes.CDLL | None:
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    source, library = Path(__file__).with_name("loop.c"), folder / f"loop{len(flags)}.so"
    subprocess.run([gcc, "-O3", "-march=native", *flags, "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def c_loop(library, projected: bool, data, start):
    """n -> the iterates after n steps from the start"""
    pointer = ctypes.POINTER(ctypes.c_double)
    steps = CSteps(**STEPS, radius=RADIUS, ridge=RIDGE, divergence=DIVERGENCE)
    y0 = start[3].copy()
    constant = [np.ascontiguousarray(a) for a in (*data, y0)]
    d = start[0].size
    fixed = [a.ctypes.data_as(pointer) for a in constant]

    def run(n):
        state = [a.copy() for a in start]
        addresses = [a.ctypes.data_as(pointer) for a in state]
        library.run(ctypes.c_long(n), int(projected), T, d, ctypes.byref(steps), *fixed, *addresses)
        return state

    run.keep = constant  # the library holds bare addresses
    return run


def numpy_loop(projected: bool, data, start):
    G, c, Gv, cv, qv = data
    alpha, eta, gamma, tau, sigma, mu = STEPS.values()

    def times(matrices, v):
        return np.matmul(matrices, v[:, :, None])[:, :, 0]

    def simplex(v, radius):
        descending = np.sort(v)[::-1]
        thresholds = (np.cumsum(descending) - radius) / np.arange(1, v.size + 1)
        return np.maximum(v - thresholds[np.count_nonzero(descending > thresholds) - 1], 0.0)

    def l1_ball(v):
        magnitude = np.abs(v)
        return v if magnitude.sum() <= RADIUS else np.copysign(simplex(magnitude, RADIUS), v)

    def run(n):
        x, lam, theta, y, w = start
        y0 = y
        for _ in range(n):
            column = lam[:, None]
            valid = times(Gv, theta)
            w = w - eta * (column * column * times(G, w) + RIDGE * w - y[:, None] * (valid - cv))
            gram_w = times(G, w)
            residual = times(G, column * theta + (1 - column) * x) - c
            along_x = (lam * (1 - lam)) @ gram_w
            along_lam = np.sum(residual * w + column * (theta - x) * gram_w, axis=1)
            f_y = 0.5 * np.sum(theta * (valid - 2 * cv), axis=1) + 0.5 * qv - DIVERGENCE * (T * y - 1)
            if projected:
                s, s_lam = l1_ball(x + tau * along_x), np.minimum(np.maximum(lam + tau * along_lam, 0.0), 1.0)
            else:
                best = np.argmax(np.abs(along_x))
                s = np.zeros_like(x)
                s[best] = -RADIUS if along_x[best] < 0 else RADIUS
                s_lam = np.where(along_lam < 0, 0.0, 1.0)
            x, lam = gamma * s + (1 - gamma) * x, gamma * s_lam + (1 - gamma) * lam
            column = lam[:, None]
            residual = times(G, column * theta + (1 - column) * x) - c
            theta = theta - alpha * (column * residual + RIDGE * theta)
            y = simplex(y + sigma * (f_y - mu * (y - y0)), 1.0)
        return [x, lam, theta, y, w]

    return run


def jax_loop(problem, method, start):
    state = method.init(problem, start)

    def run(n):
        out = jax.block_until_ready(advance(problem, method, state, n))
        return [out.x["x"], out.x["lam"], out.theta, out.y, out.w]

    return run


def seconds_per_step(contestants: dict, rounds: int) -> dict[str, tuple[float, float]]:
    """name: (minimum, median) over the rounds; everyone takes a turn of about the same length in each round"""
    lengths = {}
    for name, run in contestants.items():
        run(8)
        began = time.perf_counter()
        run(64)
        lengths[name] = 8 * max(1, round(SECONDS_A_TURN * 8 / (time.perf_counter() - began)))
    turns = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            began = time.perf_counter()
            run(lengths[name])
            turns[name].append((time.perf_counter() - began) / lengths[name])
    return {name: (min(times), statistics.median(times)) for name, times in turns.items()}


def first_call_seconds(run) -> float:
    began = time.perf_counter()
    run(1)
    return time.perf_counter() - began


def import_seconds(module: str) -> float:
    program = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = (subprocess.run([sys.executable, "-c", program], capture_output=True, text=True) for _ in range(5))
    return min(float(run.stdout) for run in runs)


def verdict(value: float, target: float) -> str:
    return f"(target <= {target:g}: {'met' if value <= target else 'MISSED'})"


def compare(d: int, name: str, libraries: dict, rounds: int) -> None:
    tasks = bs.apps.multitask.synthetic(rows=T * 4 * d, width=d, tasks=T)
    problem, start = bs.apps.multitask.regression(tasks, radius=RADIUS, ridge=RIDGE, divergence=DIVERGENCE, form="gram")
    automatic = dataclasses.replace(problem, derivatives=bs.Derivatives())
    method = METHODS[name](bs.StepSizes(**STEPS))
    projected = name == "FullyProjected"
    data = [np.asarray(a) for a in problem.data[:2] + problem.data[3:6]]
    plain = [np.array(a) for a in (start.x["x"], start.x["lam"], start.theta, start.y, start.theta)]
    contestants = {
        "numpy": numpy_loop(projected, data, plain),
        "jax, by hand": jax_loop(problem, method, start),
        "jax, autodiff": jax_loop(automatic, method, start),
    }
    in_c = {who: c_loop(library, projected, data, plain) for who, library in libraries.items()}
    contestants = {**in_c, **contestants}
    compiling = {who: first_call_seconds(contestants[who]) for who in ("jax, by hand", "jax, autodiff")}
    wanted = contestants["numpy"](200)
    for who, run in contestants.items():
        for a, b in zip(run(200), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-9, err_msg=f"{who} left the trajectory")

    print(f"\n{name}, T = {T}, d = {d}: the same iterates to 1e-9 after 200 steps")
    times = seconds_per_step(contestants, rounds)
    yardsticks = [who for who in ("plain C", "vectorised C", "numpy") if who in times]
    print(f"  {'':15}{'us a step':>10}{'median':>9}" + "".join(f"{'/ ' + who:>16}" for who in yardsticks))
    for who, (least, median) in times.items():
        ratios = {yardstick: least / times[yardstick][0] for yardstick in yardsticks}
        notes = ""
        if who in TARGETS:
            if "plain C" in ratios:
                notes += f"  plain C {verdict(ratios['plain C'], TARGETS[who])},"
            notes += f" numpy {verdict(ratios['numpy'], 1 / 8)}, first call {compiling[who]:.2f} s "
            notes += verdict(compiling[who], 2.0)
        columns = "".join(f"{ratio:16.3f}" for ratio in ratios.values())
        print(f"  {who:15}{1e6 * least:10.2f}{1e6 * median:9.2f}{columns}{notes}")


def recording(d: int, rounds: int) -> None:
    """The method's own clock with a record every 100 steps against a record at the end only."""
    tasks = bs.apps.multitask.synthetic(rows=T * 4 * d, width=d, tasks=T)
    problem, start = bs.apps.multitask.regression(tasks)
    method = bs.methods.FullyProjected(bs.StepSizes(**STEPS))
    steps = 20_000 if d == 20 else 4_000
    times = {100: [], steps: []}
    for _ in range(rounds):
        for every, seconds in times.items():
            seconds.append(bs.solve(problem, start, method, tol=None, max_steps=steps, every=every).seconds)
    ratio = min(times[100]) / min(times[steps])
    print(f"  d = {d}: recording every 100 of {steps} steps costs {100 * (ratio - 1):+.1f} % {verdict(ratio, 1.05)}")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    flagged = FLAG in os.environ.get("XLA_FLAGS", "")
    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        built = {"plain C": compile_c(Path(folder), "-DROW_DOTS"), "vectorised C": compile_c(Path(folder))}
        libraries = {who: library for who, library in built.items() if library is not None}
        if not libraries:
            print("gcc was not found: the C loops and the ratios to them are left out.")
        for d in (20,) if flagged else (20, 100):
            for name in METHODS:
                compare(d, name, libraries, rounds)
    if flagged:
        return
    print("\nThe method's own clock in bs.solve, FullyProjected:")
    for d in (20, 100):
        recording(d, max(rounds // 6, 1))
    ours, jax_alone = import_seconds("bisaddle"), import_seconds("jax")
    print(f"\nimport bisaddle {ours:.2f} s {verdict(ours, 1.0)}, of which import jax {jax_alone:.2f} s")
    print(f"\nWith XLA_FLAGS={FLAG}", flush=True)
    flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAG}".strip()
    subprocess.run([sys.executable, __file__, str(rounds)], env={**os.environ, "XLA_FLAGS": flags}, check=True)


if __name__ == "__main__":
    main()
