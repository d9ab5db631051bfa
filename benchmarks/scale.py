"""What an evaluation of Adaptive sends, by tasks and by rows, and how much of its time is the host's own.

python -m benchmarks.scale            4 virtual devices; a JSON line for each case, the counts of docs/scale.md
"""

import json
import re
import time
from collections import defaultdict
from itertools import islice

import jax
import numpy as np

from bisaddle import programs
from bisaddle.oracle.kernels import FEW_COLUMNS
from tests.parallel_worker import COLLECTIVE

DEVICES = 4
SOLVES = ("_lower", "_upper")
SIZES = {"f64": 8, "f32": 4, "s32": 4, "u32": 4, "pred": 1}


def sent(program) -> list[int]:
    """Bytes of every collective that stands in a compiled program."""
    found = []
    for what, _ in COLLECTIVE.findall(program.as_text()):
        shapes = re.findall(r"(\w+)\[([\d,]*)\]", what)
        found.append(sum(SIZES[kind] * int(np.prod([int(n) for n in dims.split(",") if n])) for kind, dims in shapes))
    return found


class Watched(programs.Program):
    """Counts what is asked of f and g, and the seconds it takes."""

    seconds, asked = 0.0, defaultdict[str, float](float)

    def __call__(self, *arrays):
        clock = time.perf_counter()
        found = super().__call__(*arrays)
        Watched.seconds += time.perf_counter() - clock
        name = self.function.__name__
        if name == "_lower":
            limit, warm, gradient, cross = arrays[0][-4:]
            steps, start = int(found[-2]), int(warm * (limit >= 0))
            # of one system for all tasks, the first product goes with the gradient and with that of the start
            some = {"solve": 1, "gradient": int(gradient), "cross": int(cross), "product": steps + start}
            for what, count in {**some, "rounds": max(steps, 1)}.items():
                self.asked[what] += count
        elif "columns" in name:
            rounds = len(arrays[1]) / FEW_COLUMNS if name == "_columns_one_by_one" else 1
            # the last round, of fewer, stands in the program by itself
            self.asked["columns"] += -(-rounds // 1) / (2 if rounds > 1 and rounds % 1 else 1)
        else:
            self.asked[name] += 1
        return found


def measured(kind: str, tasks: int, rows: int, width: int, steps: int, separable: bool | None = None) -> dict:
    import bisaddle as bs
    from bisaddle.apps import multitask
    from bisaddle.oracle import kernels

    kernels.Program = Watched
    made = multitask.synthetic(rows=tasks * rows, width=width, tasks=tasks)
    problem, start = multitask.regression(made, form="gram" if kind == "tasks" else "rows")
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh(kind), separable=separable)
    programs.clear()
    bs.solve(placed, begin, tol=1e-12, max_steps=steps)  # compiles
    Watched.seconds = 0.0
    Watched.asked.clear()
    clock = time.perf_counter()
    with programs.one_blas_thread():
        search = placed_search(bs, placed, begin, steps)
    seconds = time.perf_counter() - clock
    static = {key[0].__name__: sent(program) for key, program in programs._PROGRAMS.items()}
    names = ("solve", "gradient", "product", "cross", "rounds", "columns", "_upper")
    each = {name: Watched.asked[name] / search for name in names}
    theta, x, number = tasks * width * 8, width * 8, 8
    if separable:  # the length of the gradient; answers and residuals of all tasks, and parts of x
        many = each["gradient"] + each["solve"]
        moved = each["gradient"] * number + each["solve"] * (3 * theta + 24 * tasks + DEVICES * x)
    elif kind == "tasks":  # with a product its part of x, at first two of each
        many, along = each["rounds"], 8 * tasks + DEVICES * x
        moved = (each["rounds"] + each["solve"]) * (theta + along)
    else:  # beside a row of zeros, which XLA sums too; with g_theta_x the same once more
        many = each["gradient"] + each["product"]
        moved = (each["gradient"] + 1.5 * each["product"]) * (2 * theta + number * tasks)
    columns = [sent(program) for key, program in programs._PROGRAMS.items() if "columns" in key[0].__name__]
    if columns:
        many += each["columns"] * len(columns[0])
        moved += each["columns"] * sum(columns[0])
    many += each["_upper"] * len(static["_upper"])
    moved += each["_upper"] * sum(static["_upper"])
    return {
        **{"kind": kind, "tasks": tasks, "rows": rows, "width": width, "separable": separable, "evaluations": search},
        "asked": {name: round(count, 2) for name, count in each.items()},
        "in the programs": {name: len(found) for name, found in static.items() if name in SOLVES},
        "collectives": round(many, 1),
        "bytes": int(moved),
        "ms": round(1e3 * seconds / search, 2),
        "host share": round(1 - Watched.seconds / seconds, 3),
    }


def placed_search(bs, placed, begin, steps: int) -> int:
    """Evaluations of Adaptive alone, without a certificate."""
    from bisaddle.oracle.kernels import Kernels

    kernels = Kernels(placed, begin)
    looks = bs.methods.Adaptive(1e-12).looks(placed, kernels, *kernels.flat(begin))
    return [look.k for look in islice(looks, steps)][-1]


def main() -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", DEVICES)
    tasks, rows = ("tasks", 60, 20, 40), ("rows", 2000, 50, 40)
    for count, separable in ((100, None), (101, None), (2000, None), (100, True), (2000, True)):
        print(json.dumps(measured(tasks[0], count, *tasks[1:], separable)), flush=True)
    for case in [("rows", 5, *rows[1:])]:
        print(json.dumps(measured(*case)), flush=True)


if __name__ == "__main__":
    main()
