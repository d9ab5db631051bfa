"""What an evaluation of Adaptive sends, by tasks and by rows, and how much of its time is the host's own.

python -m benchmarks.scale            4 virtual devices; a JSON line for each case, the counts of docs/scale.md
"""

import json
import re
import time
from collections import Counter
from itertools import islice

import jax
import numpy as np

from bisaddle import programs
from tests.parallel_worker import COLLECTIVE

DEVICES = 4
SOLVES = ("_lower", "task_solves", "_upper")
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

    seconds, asked = 0.0, Counter()

    def __call__(self, *arrays):
        clock = time.perf_counter()
        found = super().__call__(*arrays)
        Watched.seconds += time.perf_counter() - clock
        name = self.function.__name__
        if name in ("_lower", "task_solves"):
            warm, gradient, cross = arrays[0][-3:]
            products = found[-2] + warm * (arrays[0][-4] >= 0)
            self.asked.update({"solve": 1, "gradient": int(gradient), "cross": int(cross), "product": int(products)})
        else:
            self.asked[name] += 1
        return found


def measured(kind: str, tasks: int, rows: int, width: int, steps: int, separable: bool = False) -> dict:
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
    each = {name: Watched.asked[name] / search for name in ("solve", "gradient", "product", "cross", "_upper")}
    theta, x, number = tasks * width * 8, width * 8, 8
    if kind == "tasks":  # theta is gathered, x summed
        many = each["gradient"] + 2 * each["cross"] + (each["solve"] if separable else each["product"])
        answers = each["solve"] * (2 * theta + 16 * tasks) if separable else each["product"] * theta
        moved = each["gradient"] * theta + answers + each["cross"] * (x + 8 * tasks)
    else:  # beside a row of zeros, which XLA sums too
        many = each["gradient"] + each["product"] + each["cross"]
        moved = (each["gradient"] + each["product"] + each["cross"]) * 2 * theta + each["cross"] * number * tasks
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
    cases = [("tasks", 100, 60, 20, 40, False), ("tasks", 2000, 60, 20, 40, False), ("tasks", 2000, 60, 20, 40, True)]
    for case in [*cases, ("rows", 5, 2000, 50, 40)]:
        print(json.dumps(measured(*case)), flush=True)


if __name__ == "__main__":
    main()
