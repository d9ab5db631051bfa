"""How the time of a solve grows with the number of tasks T and with the number of rows n.

    python benchmarks/growth.py [--most-tasks 10000] [--most-rows 1000000] [--tol 1e-4] [--seeds 3]

CPU seconds of a second solve, when everything is compiled, by the method and by its certificates; an evaluation is a
gradient of f or g or a product with the Hessian or the cross derivative of g. The exponent is the slope of a straight
line through logarithms, of the instances of all seeds. "certified" is the share of the time in certificates.
"""

import argparse
import gc
import os
import time
from itertools import product
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import jax
import numpy as np

import bisaddle as bs
from bisaddle.apps import multitask
from bisaddle.certificate.certifier import Certifier

jax.config.update("jax_enable_x64", True)


class Measured(NamedTuple):
    """Of one solve: its size, CPU seconds, those of certificates among them, evaluations, steps, status."""

    size: int
    seconds: float
    certified: float
    evaluations: int
    steps: int
    status: str


def measured(size: int, problem: bs.Problem, start: bs.Point, tol: float) -> Measured:
    bs.solve(problem, start, tol=tol, progress=False)
    gc.collect()
    inside, certificate = [0.0], Certifier.certificate

    def timed(self, *arguments, **keywords):
        clock = time.process_time()
        try:
            return certificate(self, *arguments, **keywords)
        finally:
            inside[0] += time.process_time() - clock

    Certifier.certificate = timed
    clock = time.process_time()
    result = bs.solve(problem, start, tol=tol, progress=False)
    seconds = time.process_time() - clock
    Certifier.certificate = certificate
    trace = result.trace
    evaluations = sum(int(np.max(calls)) for calls in (trace.gradients, trace.hvps, trace.cross_products))
    return Measured(size, seconds, inside[0], evaluations, int(np.max(trace.k)), result.status.name)


def exponent(sizes: list[int], values: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def decades(least: int, most: int, parts: int) -> list[int]:
    count = round(parts * np.log10(most / least))
    return [round(least * (most / least) ** (i / count)) for i in range(count + 1)]


def tasks(count: int, seed: int) -> tuple[bs.Problem, bs.Point]:
    """Gram form, 20 columns and 50 rows a task."""
    return multitask.regression(multitask.synthetic(50 * count, 20, count, seed=seed), form="gram")


def rows(count: int, seed: int) -> tuple[bs.Problem, bs.Point]:
    """Five tasks with all their rows, 50 columns."""
    return multitask.regression(multitask.synthetic(count, 50, seed=seed), form="rows")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--most-tasks", type=int, default=10_000)
    parser.add_argument("--most-rows", type=int, default=1_000_000)
    parser.add_argument("--tol", type=float, default=1e-4)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for name, make, sizes in (
        ("tasks", tasks, decades(100, options.most_tasks, 2) if options.most_tasks > 100 else []),
        ("rows", rows, decades(10_000, options.most_rows, 2) if options.most_rows > 10_000 else []),
    ):
        found = []
        for size, seed in product(sizes, range(options.seeds)):
            one = measured(size, *make(size, seed), options.tol)
            found.append(one)
            each = 1e3 * one.seconds / one.evaluations
            print(
                f"{one.size:>9} {name}: {one.seconds:8.3f} s, {one.certified / one.seconds:4.0%} certified, "
                f"{one.steps:4d} steps, {one.evaluations:6d} evaluations, {each:9.4f} ms each, {one.status}",
                flush=True,
            )
        if len(found) > 1:
            sizes = [one.size for one in found]
            each = exponent(sizes, [one.seconds / one.evaluations for one in found])
            total = exponent(sizes, [one.seconds for one in found])
            print(f"{name}: exponent of an evaluation {each:.2f}, of the whole {total:.2f}", flush=True)


if __name__ == "__main__":
    main()
