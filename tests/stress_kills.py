"""SIGKILL at random moments of a checkpointing run, also during the save: the file is always whole, and goes on.

python -m tests.stress_kills 100
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
COUNTED = ("kills", "kills with a checkpoint", "unreadable", "resumed", "ends", "other digits", "errors")
# a child solves from the start, or goes on where there is a checkpoint, and keeps every block or step that it can
CHILD = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
import bisaddle as bs
from bisaddle.run import blocks
from tests.stress_kills import problem_and_method
blocks.BLOCK_SECONDS = 1e-3
path, kind = sys.argv[1:]
problem, start, method, options = problem_and_method(kind)
print("ready", flush=True)
import os
if os.path.exists(path):
    result = bs.resume(path, problem, method, checkpoint_every=0)
else:
    result = bs.solve(problem, start, method, checkpoint=path, checkpoint_every=0, **options)
result.save(path + ".result")
"""


def problem_and_method(kind):
    from tests.test_solve import fully_projected, quadratic

    problem, start = quadratic(n=6, m=8, p=3)
    if kind == "Adaptive":
        return problem, start, None, {"tol": None, "max_steps": 300, "every": 10}
    return problem, start, fully_projected(), {"tol": None, "max_steps": 3000, "every": 10}


def main(count=100, kinds=("Adaptive", "FullyProjected"), seed=0):
    """Counts of `count` kills, printed; 0 if every file could be read and every end was the uninterrupted one's."""
    import jax

    jax.config.update("jax_enable_x64", True)
    found: Counter[str] = Counter()
    draw = random.Random(seed)
    for kind in kinds:
        found.update(kills(kind, count // len(kinds), draw))
    for what, number in found.items():
        print(f"{number:6} {what}")
    return int(bool(found["unreadable"] or found["other digits"] or found["errors"]))


def kills(kind, count, draw):
    """Kill a run again and again until it ends; then the next one, until there were so many kills."""
    import bisaddle as bs
    from bisaddle.run.plain import described, difference
    from tests.test_checkpoint import timeless

    problem, start, method, options = problem_and_method(kind)
    whole = described(timeless(bs.solve(problem, start, method, **options)))
    found: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    longest = 1.0  # seconds that a run takes once it is ready, as far as is known
    with tempfile.TemporaryDirectory() as folder:
        while found["kills"] < count:
            path = Path(folder) / f"run {found['ends']}.ckpt"
            ended, seconds = _run(path, kind, draw.uniform(0, longest))
            if ended is None:
                found["kills"] += 1
                if path.exists():
                    found["kills with a checkpoint"] += 1
                    found.update(_after_kill(path, problem, method, whole))
                continue
            longest = seconds
            if ended:
                found["errors"] += 1
                return found
            found["ends"] += 1
            found["other digits"] += bool(difference(whole, described(timeless(bs.load_result(f"{path}.result")))))
    return found


def _after_kill(path, problem, method, whole):
    """What a copy of the file that a kill has left is good for: it goes on to the end of the uninterrupted run."""
    import bisaddle as bs
    from bisaddle.run.plain import described, difference
    from tests.test_checkpoint import timeless

    copy = shutil.copy(path, path.with_name("copy.ckpt"))
    try:
        ended = bs.resume(copy, problem, method)
        return {"resumed": 1, "other digits": int(bool(difference(whole, described(timeless(ended)))))}
    except ValueError as error:
        print(error)
        return {"unreadable": 1}


def _run(path, kind, seconds):
    """(exit code, seconds since it was ready) of a child that is killed after so many; None: it was."""
    programs = {
        "JAX_COMPILATION_CACHE_DIR": str(path.parent / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    environment = {**os.environ, **programs, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", CHILD, path, kind], stdout=-1, env=environment, cwd=ROOT) as child:
        assert child.stdout is not None
        child.stdout.readline()
        clock = time.perf_counter()
        try:
            return child.wait(seconds), time.perf_counter() - clock
        except subprocess.TimeoutExpired:
            child.kill()
            return None, 0.0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
