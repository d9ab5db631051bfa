"""Checkpoints in folders, on several devices or in several processes: what tests/parallel_worker.py runs for them."""

import os
import shutil
import signal
from importlib import import_module
from typing import Any

import jax

from tests.parallel_worker import flat, methods, problem_of, process, told


def devices(folder: str) -> dict[str, Any]:
    """A run that is stopped and goes on: on all devices, and on one; with small and with large states."""
    import bisaddle as bs
    from bisaddle.run import blocks

    def gathered(leaf: Any) -> None:
        raise AssertionError("a state was gathered")

    blocks.held_here = gathered
    found: dict[str, Any] = {}
    diverged = []
    options: dict[str, Any] = {"tol": None, "every": 10, "checkpoint_every": 0.0}
    problem, start = problem_of("gram", 8)
    on = lambda count: bs.parallel.shard(
        problem, start, bs.parallel.mesh("tasks", jax.devices()[:count]), shards=4, separable=False
    )
    for size in ("small", "large"):
        blocks.BUFFER_BYTES = 2**22 if size == "small" else 0
        for name in ("FullyProjected", "MORBiT"):
            method, place = methods(problem)[name], f"{folder}/{size}-{name}"
            whole = told(bs.solve(*on(4), method, max_steps=60, checkpoint=f"{place}-whole/", **options))
            bs.solve(*on(4), method, max_steps=20, checkpoint=f"{place}/", **options)
            shutil.copytree(place, f"{place}-one")
            again = told(bs.resume(f"{place}/", on(4)[0], max_steps=60, checkpoint_every=0.0))
            one = told(bs.resume(f"{place}-one", on(1)[0], max_steps=60))
            found[f"{size} {name}"] = {"whole": whole, "again": again, "one": one}
        steps = bs.StepSizes(alpha=30.0, eta=0.5, gamma=0.2, tau=0.5, sigma=0.5, mu=0.0)
        diverged.append(told(bs.solve(*on(4), bs.methods.FullyProjected(steps), tol=None, max_steps=60, every=10)))
    found["diverged"] = diverged
    found["sent"] = _sent(on(4), methods(problem)["FullyProjected"])
    return found


def _sent(placed: Any, method: Any) -> dict[str, list[list[int]]]:
    """The shapes of what a block gives to every host, besides the state that stays where it is."""
    from bisaddle.run.blocks import Lanes, _all, _mark

    problem, start = placed
    state = method.init(problem, start)
    lanes = {"small": Lanes(problem, method, [state], keep=_all), "large": Lanes(problem, method, [state], keep=_mark)}
    return {name: [list(leaf.shape) for leaf in jax.tree.leaves(lane.advance(1, 1)[0])] for name, lane in lanes.items()}


def folders(dies: list | None = None, fails: int | None = None, **order: Any) -> dict[str, Any]:
    """As `process`. dies: [number of a process, where in a write, in which one]; fails: where a callback raises."""
    import bisaddle as bs
    from bisaddle.run import blocks

    if dies is not None:
        blocks.BLOCK_SECONDS = 0.0  # many small blocks, and a write for each
        if dies[0] == jax.process_index():
            _arm(*dies[1:])
    if fails is not None:
        problem, start = problem_of(order["form"], order["tasks"])
        placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh(order["kind"]), shards=4)

        def callback(record: Any) -> None:
            if record.k >= fails and jax.process_index():
                raise KeyError("of the callback")

        return told(bs.solve(placed, begin, methods(problem)[order["method"]], callback=callback, **order["options"]))
    return process(**order)


def keeping(folder: str, begun: bool, tasks: int = 8, who: list[int] | None = None) -> dict[str, Any]:
    """A state saved after 7 steps, or one restored, where a new one lies, and 5 more steps of it.

    who: the processes on whose devices it lies; None is all.
    """
    import bisaddle as bs
    from bisaddle.run.blocks import advance

    where = [device for device in jax.devices() if who is None or device.process_index in who]
    if all(device.process_index != jax.process_index() for device in where):
        return {}
    problem, start = problem_of("gram", tasks)
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks", where))
    method, more = methods(problem)["FullyProjected"], jax.jit(advance)
    state = method.init(placed, begin)
    if begun:
        at = jax.tree.leaves(jax.tree.map(lambda leaf: leaf.sharding, state))
        state = bs.parallel.restore(folder, state)
        assert at == jax.tree.leaves(jax.tree.map(lambda leaf: leaf.sharding, state))
    else:
        state = more(placed, method, state, 7)
        try:
            bs.parallel.save(folder, state)
        except ValueError as error:
            return {"refused": str(error)}
    return {"kept": flat(state), "after": flat(more(placed, method, state, 5))}


def _arm(where: str, count: int) -> None:
    """End this process, as nobody can prevent, in the middle of the write of this number."""
    from bisaddle.run import checkpoint
    from bisaddle.run.states import States

    seen = []

    def die_at_last(function: Any, after: bool) -> Any:
        def instead(*arguments: Any, **more: Any) -> Any:
            seen.append(1)
            found = function(*arguments, **more) if after or len(seen) < count else None
            if len(seen) == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return instead

    if where == "part":  # its own part is written, and not all of them
        kind = import_module("orbax.checkpoint").StandardCheckpointHandler
        kind.save = die_at_last(kind.save, after=True)
    elif where == "switch":  # the state is whole, and no file names it
        checkpoint.Checkpoints._switch = die_at_last(checkpoint.Checkpoints._switch, after=False)
    else:  # the file names the new state, and the old one is there too
        count += 1  # there is one at the start
        States.tidy = die_at_last(States.tidy, after=False)
