"""How many copies of a large x or theta a solve and a certificate hold: a process of its own, for test_large_memory."""

import json
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import memory

import bisaddle as bs
from bisaddle.methods.adaptive import constants as const
from bisaddle.oracle import sketch

CLASSES, SIZE, MOST = 380, 150_000, 12


def counted(problem: bs.Problem, start: bs.Point, size: int, **options) -> tuple[str, float, float]:
    """Status, copies in a solve and in certify; once more if they are many: JAX may have given an array back late."""
    for _ in range(2):
        result, solve, certify = memory.copies(problem, start, 8 * size, **options)
        if max(solve, certify) <= MOST:
            break
    return result.status.name, solve, certify


def main() -> None:
    # what does not grow with the vectors is as small beside them as beside those of 1e6 entries
    const.PAIR_BYTES = const.RECALLED_INPUTS = 0
    const.RECALLED_ENTRIES, sketch.SKETCHED = 500_000, 1024
    if sys.argv[1] == "theta":
        found = counted(*memory.softmax_head(CLASSES, 20), CLASSES**2, tol=1e-3)
    else:
        problem, start = memory.large_x(SIZE, sys.argv[1] == "lower")
        problem = replace(problem, x_set=bs.sets.L2Ball(0.3 * SIZE**0.5))
        found = counted(problem, start, SIZE, tol=1e-12, max_steps=25)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
