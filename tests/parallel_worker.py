"""Runs on several devices or in several processes, as the tests start them: python -m tests.parallel_worker JSON."""

import json
import random
import re
import resource
import sys
import time
from typing import Any

import jax
import numpy as np

# what an XLA program is made of that talks to other devices
COLLECTIVE = re.compile(r" = (.*?) (all-reduce|all-gather|collective-permute|all-to-all|reduce-scatter)(?:-start)?\(")


def problem_of(form: str, tasks: int = 6, divergence: float = 0.0):
    from bisaddle.apps import multitask

    made = multitask.synthetic(rows=tasks * 42, width=5, tasks=tasks)
    return multitask.regression(made, form=form, divergence=divergence)


def methods(problem) -> dict[str, Any]:
    import bisaddle as bs

    M = bs.methods
    first = {name: getattr(M, name).default(problem, K=60) for name in ("OneSidedProjectionFree", "FullyProjected")}
    return {**first, "MORBiT": M.MORBiT.default(problem, K=60), "Adaptive": None}


def flat(point) -> list[float]:
    from bisaddle.devices import whole

    return np.concatenate([whole(leaf).ravel() for leaf in jax.tree.leaves(point)]).tolist()


def told(result) -> dict[str, Any]:
    certificate = result.certificate
    numbers = [float(certificate.gap), float(certificate.error_bound), float(certificate.worst_value)]
    trace = result.trace
    return {
        "status": result.status.name,
        "steps": int(trace.k[-1]),
        "point": flat(result.point),
        "numbers": numbers,
        "trace": np.concatenate([trace.k, trace.gap, trace.value]).tolist(),
    }


def collectives() -> dict[str, list[str]]:
    """Of every program compiled since the last clear: what its collectives move, as XLA writes it."""
    from bisaddle import programs

    found: dict[str, list[str]] = {}
    for key, program in programs._PROGRAMS.items():
        moved = [f"{kind} {what}" for what, kind in COLLECTIVE.findall(program.as_text())]
        found.setdefault(getattr(key[0], "__name__", str(key[0])), []).extend(moved)
    return found


def devices(divergence: float) -> dict[str, Any]:
    """All methods by tasks and by rows, on one device and on all of them; and what the programs say to each other."""
    import bisaddle as bs
    from bisaddle import programs

    found: dict[str, Any] = {}
    for kind, form, tasks in (("tasks", "gram", 6), ("tasks", "rows", 8), ("rows", "rows", 6)):
        problem, start = problem_of(form, tasks, divergence)
        mesh = bs.parallel.mesh(kind)
        placed, begin = bs.parallel.shard(problem, start, mesh)
        for name, method in methods(problem).items():
            if form == "rows" and kind == "tasks" and name in ("MORBiT", "OneSidedProjectionFree"):
                continue  # as with Gram matrices
            options: dict[str, Any] = {"tol": 1e-6 if method is None else None, "max_steps": 60, "every": 30}
            one = told(bs.solve(problem, start, method, **options))
            programs.clear()
            many = told(bs.solve(placed, begin, method, **options))
            # A'b/n has the shape of theta, which may be gathered: nothing as small is looked for
            data = [list(leaf.shape) for leaf in jax.tree.leaves(placed.data) if leaf.size > 8 * 5]
            found[f"{kind} {form} {name}"] = {"one": one, "many": many, "collectives": collectives(), "data": data}
    return found


def in_order(cases: list[list[str]], seed: int = 0) -> dict[str, Any]:
    """Of each (kind, form, method) the answers in a fixed order, four shards on one, two and four devices."""
    import bisaddle as bs
    from bisaddle.apps import multitask

    found: dict[str, Any] = {}
    for kind, form, name in cases:
        made = multitask.synthetic(rows=6 * 42, width=5, tasks=6, seed=seed)
        problem, start = multitask.regression(made, form=form)
        options: dict[str, Any] = {"tol": 1e-9 if name == "Adaptive" else None, "max_steps": 150, "every": 50}
        meshes = [bs.parallel.mesh(kind, jax.devices()[:count]) for count in (1, 2, 4)]
        placed = [bs.parallel.shard(problem, start, mesh, shards=4, deterministic=True) for mesh in meshes]
        answers = [told(bs.solve(*each, methods(problem)[name], **options)) for each in placed]
        found[f"{kind} {form} {name}"] = answers
    return found


def process(
    kind: str, form: str, method: str, options: dict[str, Any], slow=False, resume=False, deterministic=False, tasks=8
) -> dict[str, Any]:
    """One of several processes that run together. slow: all but the first sleep at random."""
    import bisaddle as bs

    problem, start = problem_of(form, tasks)
    mesh = bs.parallel.mesh(kind)
    placed, begin = bs.parallel.shard(problem, start, mesh, shards=4, deterministic=deterministic)
    drawn = random.Random(jax.process_index())

    def sleep(record) -> None:
        if slow and jax.process_index() > 0:
            time.sleep(0.2 * drawn.random())

    if resume:
        more = {"max_steps": options["max_steps"], "checkpoint_every": 0.0}
        return told(bs.resume(options["checkpoint"], placed, callback=sleep, **more))
    return told(bs.solve(placed, begin, methods(problem)[method], callback=sleep, **options))


def memory(records: int) -> dict[str, Any]:
    """Resident MB after every tenth of the records of FullyProjected and of Adaptive."""
    import bisaddle as bs

    problem, start = problem_of("gram")
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"))
    found: dict[str, list[float]] = {}
    for name in ("FullyProjected", "Adaptive"):
        seen = found[name] = []

        def look(record, seen=seen) -> None:
            if record.k % (records // 10) == 0:
                with open("/proc/self/statm") as file:
                    seen.append(int(file.read().split()[1]) * resource.getpagesize() / 2**20)

        method = methods(problem)[name]
        bs.solve(placed, begin, method, tol=None, max_steps=records, every=1, callback=look)
    return found


def keeping(folder: str, begun: bool, tasks: int = 8) -> dict[str, Any]:
    """A state saved after 7 steps, or one restored, where a new one lies, and 5 more steps of it."""
    import bisaddle as bs
    from bisaddle.run.blocks import advance

    problem, start = problem_of("gram", tasks)
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"))
    method, more = methods(problem)["FullyProjected"], jax.jit(advance)
    state = method.init(placed, begin)
    if begun:
        at = jax.tree.leaves(jax.tree.map(lambda leaf: leaf.sharding, state))
        state = bs.parallel.restore(folder, state)
        assert at == jax.tree.leaves(jax.tree.map(lambda leaf: leaf.sharding, state))
    else:
        state = more(placed, method, state, 7)
        bs.parallel.save(folder, state)
    return {"kept": flat(state), "after": flat(more(placed, method, state, 5))}


def main() -> None:
    order = json.loads(sys.argv[1])
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", order.pop("devices"))
    if join := order.pop("join", None):
        import bisaddle as bs

        bs.parallel.initialize(*join, timeout=30)
    does = {"devices": devices, "process": process, "memory": memory, "keeping": keeping, "in_order": in_order}
    from tests import parallel_streams  # which imports this module

    does |= {"streaming": parallel_streams.streaming, "gram": parallel_streams.gram}
    do = does[order.pop("do")]
    found = do(**order)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
