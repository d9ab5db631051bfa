"""Ctrl-C, also at the moments when an exception would be swallowed."""

import gc
import signal
import threading

import jax
import pytest

import bisaddle as bs
from bisaddle.run.interrupts import noted
from tests.test_solve import fully_projected, quadratic


@pytest.fixture(autouse=True)
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest's workers ignore it
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def press_during_garbage_collection():
    """Python prints what is raised in a callback of its collector, and goes on as if nothing had been."""

    def press(phase, info):
        if phase == "start":
            signal.raise_signal(signal.SIGINT)

    gc.callbacks.append(press)
    try:
        gc.collect()
    finally:
        gc.callbacks.remove(press)


@pytest.mark.parametrize("method", [None, fully_projected()], ids=["Adaptive", "FullyProjected"])
@pytest.mark.parametrize("count", [None, 2], ids=["one start", "two"])
def test_ctrl_c_during_garbage_collection_ends_the_run(method, count):
    problem, start = quadratic()
    start = start if count is None else bs.start_points(problem, start, count, jax.random.key(0))
    seen = []

    def callback(record):
        seen.append(record.k)
        if len(seen) == 3:
            press_during_garbage_collection()

    options = {"tol": None, "max_steps": 100_000, "max_seconds": 60, "every": 5, "callback": callback}
    result = bs.solve(problem, start, method, **options)
    assert result.status is bs.Status.INTERRUPTED and 0 < result.steps < 100_000


def test_the_second_ctrl_c_is_not_kept_waiting():
    with noted() as interrupt:
        signal.raise_signal(signal.SIGINT)
        assert interrupt.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_handler_of_the_callers_stays_in_place():
    heard = []
    signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    with noted() as interrupt:
        signal.raise_signal(signal.SIGINT)
    assert heard == [1] and not interrupt.asked
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_have_no_signals_to_note():
    asked = []

    def work():
        with noted() as interrupt:
            asked.append(interrupt.asked)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert asked == [False]
