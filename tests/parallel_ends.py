"""Two processes of which one ends in another way than the other: what tests/parallel_worker.py runs for them."""

import sys
import time
from typing import Any

import jax

from tests.parallel_worker import methods, problem_of, told


def ending(how: str, who: int, seconds: float = 0.0) -> dict[str, Any]:
    """A run, which the process `who` ends by an error or an exit in its midst, or after which it takes more time."""
    import bisaddle as bs

    mine = jax.process_index() == who
    problem, start = problem_of("gram", 6)
    placed, begin = bs.parallel.shard(problem, start, bs.parallel.mesh("tasks"), shards=4)

    def callback(record: Any) -> None:
        if mine and record.k >= 4 and how == "raise":
            raise KeyError("of the callback")
        if mine and record.k >= 4 and how == "exit":
            sys.exit(3)

    options: dict[str, Any] = {"tol": None, "every": 2, "max_steps": 8 if how == "late" else 100_000}
    found = told(bs.solve(placed, begin, methods(problem)["FullyProjected"], callback=callback, **options))
    if mine:
        time.sleep(seconds)
    return found
