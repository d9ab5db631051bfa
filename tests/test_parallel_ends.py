"""How each of two processes ends where one raises, exits, or has more to do: by words and codes, not by JAX's abort."""

import json
import time

import pytest

from bisaddle.parallel.watching import LATER, LOST
from tests.parallel_start import end, free_port, worker

# after so many seconds without a sign of life one is given up; JAX's own end waits for all others LATER times as long
HEARTBEAT = 2


def both(**order):
    """Of each process its exit code, stdout, stderr, and how long all took."""
    address = f"127.0.0.1:{free_port()}"
    order = {"do": "ending", "devices": 2, "heartbeat": HEARTBEAT, **order}
    pair, clock = [worker({**order, "join": [address, 2, i]}) for i in range(2)], time.monotonic()
    try:
        said = [process.communicate(timeout=240) for process in pair]
        return [
            (process.returncode, *words) for process, words in zip(pair, said, strict=True)
        ], time.monotonic() - clock
    finally:
        end(pair)


@pytest.mark.slow
@pytest.mark.parametrize(("how", "who", "code"), [("raise", 0, 1), ("raise", 1, 1), ("exit", 1, 3)])
def test_an_error_of_one_process_is_its_own_end_and_soon_that_of_the_other(how, who, code):
    found, _ = both(how=how, who=who)
    ended, _, err = found[who]
    assert ended == code, err[-2000:]
    assert ("KeyError: 'of the callback'" in err) == (how == "raise")
    ended, _, err = found[1 - who]
    assert ended == LOST, err[-2000:]
    assert f"process {who} of this run is over, by an error of its own; process {1 - who} ends" in err
    assert not any("Check failure" in words for _, _, words in found)


@pytest.mark.slow
@pytest.mark.parametrize("who", [0, 1])
def test_a_process_that_has_come_to_its_end_waits_for_one_that_has_more_to_do(who):
    more = 2.0 * LATER * HEARTBEAT
    found, seconds = both(how="late", who=who, seconds=more)
    assert seconds > more
    assert [code for code, _, _ in found] == [0, 0], found
    assert len({json.loads(out.splitlines()[-1])["steps"] for _, out, _ in found}) == 1
    assert (
        f"process {1 - who} of this run has come to its end, and waits for that of process {who}" in found[1 - who][2]
    )
