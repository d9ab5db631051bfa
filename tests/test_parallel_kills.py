"""One of two processes is killed at a random moment: the other ends, and the run goes on from its checkpoint."""

import json
import random
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

from bisaddle.parallel.watching import LOST
from bisaddle.run import container
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


def wait_until(true, seconds=120):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method"), [("rows", "Adaptive"), ("rows", "FullyProjected"), ("tasks", "MORBiT")])
def test_in_a_fixed_order_the_digits_do_not_depend_on_the_number_of_processes(kind, method):
    run = {"kind": kind, "form": "rows", "method": method, "tasks": 6, "deterministic": True}
    options = {"tol": None, "max_steps": 40, "every": 20}
    (one,) = together(1, 4, **run, options=options)
    assert together(2, 2, **run, options=options) == [one, one]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tasks", "rows"])
def test_a_run_is_taken_up_on_another_number_of_processes(kind, tmp_path):
    path = tmp_path / "run"
    options = {"tol": None, "max_steps": 20, "every": 10, "checkpoint": str(path)}
    run = {"kind": kind, "form": "rows", "method": "FullyProjected", "tasks": 6}
    together(2, 2, **run, options=options)
    more = {**options, "max_steps": 60}
    whole = together(2, 2, **run, options={**more, "checkpoint": str(tmp_path / "whole")})[0]
    for processes, devices, atol in ((2, 2, 0.0), (1, 4, 1e-12), (1, 1, 1e-12)):
        shutil.copy(path, tmp_path / "copy")
        found = together(processes, devices, **run, options={**more, "checkpoint": str(tmp_path / "copy")}, resume=True)
        for each in found:
            np.testing.assert_allclose(each["point"], whole["point"], rtol=0, atol=atol)
            assert (each["status"], each["steps"]) == (whole["status"], whole["steps"])


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_stopped_process_is_named_and_the_other_ends_in_order(victim, tmp_path):
    path, address = tmp_path / "run", f"127.0.0.1:{free_port()}"
    run = order(path)
    run["options"]["max_steps"] = 100_000
    pair = [worker({"do": "process", "devices": 2, "join": [address, 2, i], **run}) for i in range(2)]
    try:
        wait_until(path.exists)
        pair[victim].send_signal(signal.SIGSTOP)
        clock = time.monotonic()
        _, err = pair[1 - victim].communicate(timeout=SECONDS)
        assert 9 < time.monotonic() - clock < 25
        assert pair[1 - victim].returncode == LOST, err[-2000:]  # and not by an abort of JAX
        assert f"process {victim} of this run has given no sign of life for 3 seconds" in err, err[-2000:]
        assert f"process {victim} of this run is lost, without a sign of life for 10 seconds" in err
    finally:
        end(pair)
    container.unpack(path, "checkpoint")  # of the last agreed step, and whole: its checksum is compared


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_a_killed_process_ends_the_other_and_the_run_goes_on_bitwise(number, whole, tmp_path):
    expected, seconds = whole
    path, drawn = tmp_path / "run", random.Random(number)
    victim = drawn.randrange(2)
    address = f"127.0.0.1:{free_port()}"
    pair = [worker({"do": "process", "devices": 2, "join": [address, 2, i], **order(path)}) for i in range(2)]
    try:
        if number % 2:  # while it runs; else at any moment since it was started
            wait_until(path.exists)
        time.sleep(drawn.uniform(0.0, 0.3 if number % 2 else 1.0) * seconds)
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
                "of this run is lost",
                "process 0 does not answer",
                "distributed service",
                "DEADLINE",
            )
            assert any(word in err for word in words), err[-2000:]
            if number % 2 and victim == 0:  # they had come together: it ends in order, and not by an abort of JAX
                assert f"process {victim} of this run is lost" in err, err[-2000:]
                assert pair[1 - victim].returncode == LOST, err[-2000:]
        print(
            f"kill {number}: process {victim}, checkpoint {path.exists()}, the other ended after {took:.1f} s, "
            f"code {pair[1 - victim].returncode}"
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"the other process was still there {SECONDS} s after process {victim} was killed")
    finally:
        end(pair)
    for resumed in together(2, 2, **order(path, resume=path.exists())):
        assert resumed == expected
