"""What an evaluation of Adaptive sends, by tasks and by rows, and how much of its time is the host's own.

python -m benchmarks.scale            4 virtual devices; a JSON line for each case, the counts of docs/scale.md
"""

import json
import time

import jax
import numpy as np

from bisaddle import programs
from tests.parallel_worker import COLLECTIVE

DEVICES = 4
SIZES = {"f64": 8, "f32": 4, "s32": 4, "u32": 4, "pred": 1}


def sent(program) -> list[int]:
    """Bytes of every collective that stands in a compiled program."""
    import re

    found = []
    for what, _ in COLLECTIVE.findall(program.as_text()):
        shapes = re.findall(r"(\w+)\[([\d,]*)\]", what)
        found.append(sum(SIZES[kind] * int(np.prod([int(n) for n in dims.split(",") if n])) for kind, dims in shapes))
    return found


class Watched(programs.Program):
    """Counts calls and their seconds, by the name of the function."""

    seconds: dict = {}
    calls: dict = {}

    def __call__(self, *arrays):
        clock = time.perf_counter()
        found = super().__call__(*arrays)
        name = self.function.__name__
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - clock
        self.calls[name] = self.calls.get(name, 0) + 1
        return found


def measured(kind: str, tasks: int, rows: int, width: int, steps: int) -> dict:
    import bisaddle as bs
    from bisaddle.apps import multitask
    from bisaddle.oracle import kernels

    kernels.Program = Watched
    made = multitask.synthetic(rows=tasks * rows, width=width, tasks=tasks)
    problem, start = multitask.regression(made, form="gram" if kind == "tasks" else "rows")
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh(kind))
    programs.clear()
    bs.solve(placed, begin, tol=1e-12, max_steps=3)  # compiles
    Watched.seconds.clear()
    Watched.calls.clear()
    clock = time.perf_counter()
    result = bs.solve(placed, begin, tol=1e-12, max_steps=steps)
    seconds = time.perf_counter() - clock
    trace, count = result.trace, int(result.trace.k[-1])
    static = {key[0].__name__: sent(program) for key, program in programs._PROGRAMS.items()}
    products, calls = trace.hvps[-1] / count, Watched.calls
    lower, upper = sorted(static["_lower"]), static["_upper"]
    each = lower[-1]  # a gradient of g, and a product with its Hessian
    crossed = sum(lower) - 2 * each  # by rows one of the three is for the cross product, and as large as the others
    # the first steps and the certificate at the end are among the calls, and weigh little in many steps
    gradients, uppers = calls["_lower"] / count / 2, calls["_upper"] / count
    return {
        "kind": kind,
        "tasks": tasks,
        "rows": rows,
        "width": width,
        "evaluations": count,
        "products": round(float(products), 1),
        "collectives in the programs": {"solve": len(lower), "f": len(upper)},
        "collectives": round(float(gradients + products + (len(lower) - 2) + uppers * len(upper)), 1),
        "bytes": int((gradients + products) * each + crossed + uppers * sum(upper)),
        "ms": round(1e3 * seconds / count, 2),
        "host share": round(1 - sum(Watched.seconds.values()) / seconds, 3),
    }


def main() -> None:
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", DEVICES)
    for case in (("tasks", 100, 60, 20, 40), ("tasks", 2000, 60, 20, 40), ("rows", 5, 2000, 50, 40)):
        print(json.dumps(measured(*case)), flush=True)


if __name__ == "__main__":
    main()
