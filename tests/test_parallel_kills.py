"""One of two processes is killed at a random moment: the other ends, and the run goes on from its checkpoint."""

import json
import random
import subprocess
import time

import pytest

from tests.parallel_start import end, free_port, together, worker

KILLS = 20
# the survivor has to be gone by then
SECONDS = 60


def order(path, **more):
    options = {"tol": None, "max_steps": 40, "every": 1, "checkpoint": str(path), "checkpoint_every": 0.0}
    kind = {"kind": "tasks", "form": "gram", "method": "Adaptive", "deterministic": True, "tasks": 6}
    return {**kind, "options": options, "slow": True, **more}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What a run on one process gives that nobody kills, and how long one on two takes."""
    folder = tmp_path_factory.mktemp("whole")
    clock = time.monotonic()
    first, second = together(2, 2, **order(folder / "two"))
    seconds = time.monotonic() - clock
    (one,) = together(1, 4, **order(folder / "one"))
    assert first == second == one  # bitwise, on any number of processes
    return one, seconds


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_process_ends_the_other_and_the_run_goes_on_bitwise(number, whole, tmp_path):
    expected, seconds = whole
    path, drawn = tmp_path / "run", random.Random(number)
    victim = drawn.randrange(2)
    address = f"127.0.0.1:{free_port()}"
    pair = [worker({"do": "process", "devices": 2, "join": [address, 2, i], **order(path)}) for i in range(2)]
    try:
        time.sleep(drawn.uniform(0.2, 1.0) * seconds)
        over = pair[victim].poll() is not None
        pair[victim].kill()
        clock = time.monotonic()
        out, err = pair[1 - victim].communicate(timeout=SECONDS)
        took = time.monotonic() - clock
        if over:
            assert json.loads(out.splitlines()[-1]) == expected
        elif pair[1 - victim].returncode:  # else it had all it needed
            words = (
                "another process of this run has ended",
                "process 0 does not answer",
                "distributed service",
                "DEADLINE",
            )
            assert any(word in err for word in words), err[-2000:]
        print(f"kill {number}: process {victim}, checkpoint {path.exists()}, the other ended after {took:.1f} s")
    except subprocess.TimeoutExpired:
        pytest.fail(f"the other process was still there {SECONDS} s after process {victim} was killed")
    finally:
        end(pair)
    for resumed in together(2, 2, **order(path, resume=path.exists())):
        assert resumed == expected
