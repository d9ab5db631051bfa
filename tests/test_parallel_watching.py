"""Processes that watch each other: which one is silent or killed, and how the others end."""

import atexit
import socket
import subprocess
import sys
from types import SimpleNamespace

import jax
import pytest

from bisaddle.devices import is_lost
from bisaddle.parallel import watching
from bisaddle.parallel.watching import Watch


def test_a_process_without_a_sign_of_life_is_named_once_and_given_up_later():
    said, ended = [], []
    watch = Watch(None, process=1, processes=3, heartbeat=10, told=said.append, ended=lambda: ended.append(len(said)))
    began = watch.answered
    watch.look(began + 2)
    assert not said
    watch.answered = began + 4  # process 0, where the store is, answers; process 2 is silent
    watch.others[0] = "5", began + 4
    watch.look(began + 4)
    watch.look(began + 4.1)
    assert len(said) == 1 and "process 2 of this run has given no sign of life for 3 seconds" in said[0]
    watch.others[2] = "over", began  # it has come to its end, and no longer counts
    watch.look(began + 13.9)
    assert len(said) == 2 and "process 0 of this run has given no sign" in said[1] and not ended
    watch.look(began + 14.1)
    watch.look(began + 14.2)
    assert ended == [3] and "process 0 of this run is lost" in said[2] and "exit code 75" in said[2]


def test_silence_of_another_process_is_given_up_after_the_heartbeat():
    said, ended = [], []
    watch = Watch(None, process=0, processes=3, heartbeat=10, told=said.append, ended=lambda: ended.append(len(said)))
    began = watch.others[2][1]
    watch.others[1] = "7", began + 9
    watch.look(began + 9.9)
    assert not ended
    watch.look(began + 10.1)
    assert ended and "process 2 of this run is lost" in said[-1] and "process 1" not in "".join(said)


def test_a_process_that_has_come_to_its_end_is_not_missed():
    said = []
    watch = Watch(None, process=0, processes=2, heartbeat=10, told=said.append, ended=lambda: said.append("ended"))
    watch.others[1] = watching.OVER, watch.answered
    watch.look(watch.answered + 100)
    assert not said


class Store(dict):
    def key_value_set(self, key, value, allow_overwrite):
        self[key] = value

    def key_value_dir_get(self, prefix):
        return list(self.items())


def beating(store, beats):
    """Process 0 of 3 after so many beats, one a second, and when it began."""
    watch = Watch(store, process=0, processes=3, heartbeat=10, told=lambda words: None, ended=lambda: None)
    began = watch.answered
    clock = [began]

    def wait(seconds):
        clock[0] += 1
        return clock[0] > began + beats

    watch.over = SimpleNamespace(wait=wait, is_set=lambda: False, set=lambda: None)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bisaddle.parallel.watching.time.monotonic", lambda: clock[0])
        watch._beat()
    return watch, began


def test_a_count_that_stands_still_is_no_sign_of_life():
    """Process 1 counts up with every look, process 2 has stopped at 7; this one counts for the others."""
    store = Store()

    def everything(prefix):
        store["bisaddle/alive/1"] = str(int(store.get("bisaddle/alive/1", "0")) + 1)
        store["bisaddle/alive/2"] = "7"
        return list(store.items())

    store.key_value_dir_get = everything
    watch, began = beating(store, 5)
    assert watch.others == {1: ("5", began + 5), 2: ("7", began + 1)} and watch.answered == began + 5
    assert store["bisaddle/alive/0"] == "5"


def test_a_process_that_gives_up_another_ends_with_its_code_and_its_last_words():
    code = f"import runpy; print('last words'); runpy.run_path({watching.__file__!r})['end']()"  # without JAX: quick
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (75, "last words\n")


def test_the_watch_ends_when_it_is_told_to():
    store, beats = Store({"bisaddle/alive/1": "over"}), []
    look = lambda self, prefix: beats.append(1) or list(self.items())
    store.__class__ = type("Counted", (Store,), {"key_value_dir_get": look})
    watch = Watch(store, process=0, processes=2, heartbeat=1, told=lambda words: None, ended=lambda: None)
    watch.start()
    watch.stop()  # as at the end of Python: a thread inside JAX's client then would end the process
    atexit.unregister(watch.stop)
    assert not any(thread.is_alive() for thread in watch.threads)
    assert len(beats) <= 2 and store["bisaddle/alive/0"] == "over"


def ending(store, left=None):
    """What process 0 of 2 says at its end, with "parted" where it ends without the other, and "ended" at once."""
    said = []
    ended, parted = lambda: said.append("ended"), lambda: said.append("parted")
    watch = Watch(store, 0, 2, 4, said.append, ended, parted=parted, left=lambda: left)
    watch.start()
    watch.stop()
    atexit.unregister(watch.stop)
    return said


class Counting(Store):
    """Process 1 counts up until a look of this number, and then says its last word."""

    def __init__(self, looks, last):
        super().__init__()
        self.looks, self.word, self.seen = looks, last, 0

    def key_value_dir_get(self, prefix):
        self.seen += 1
        self["bisaddle/alive/1"] = str(self.seen) if self.seen < self.looks else self.word
        return super().key_value_dir_get(prefix)


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(watching, "SAYING", 0.05)


@pytest.mark.usefixtures("soon")
def test_a_process_at_its_end_waits_for_the_others():
    store = Counting(10, watching.OVER)  # 2 seconds
    (said,) = ending(store)
    assert "process 0 of this run has come to its end, and waits for that of process 1" in said
    assert store.seen >= 10 and store["bisaddle/alive/0"] == watching.OVER


@pytest.mark.usefixtures("soon")
def test_after_an_error_of_another_a_process_at_its_end_leaves_by_itself():
    assert ending(Counting(3, watching.FAILED)) == ["parted"]


@pytest.mark.usefixtures("soon")
def test_a_process_that_an_error_ends_is_heard_and_leaves_by_itself():
    store = Counting(10**6, "")
    assert ending(store, left="own") == ["parted"]
    assert store["bisaddle/alive/0"] == watching.FAILED and store.seen > 2


@pytest.mark.usefixtures("soon")
def test_a_process_that_has_lost_another_one_says_by_what():
    said = ending(Counting(2, watching.FAILED), left="lost")
    assert "process 1 of this run is over, by an error of its own" in said[0] and said[1:] == ["ended", "parted"]


def test_an_interrupt_of_a_process_that_waits_at_its_end_ends_the_others_too(monkeypatch):
    monkeypatch.setattr(watching, "SAYING", 0.05)
    store = Counting(10**6, "")
    monkeypatch.setattr(Watch, "_wait", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    assert ending(store) == ["parted"] and store["bisaddle/alive/0"] == watching.FAILED


def test_an_error_of_another_process_ends_this_one_a_little_later_unless_it_has_its_own():
    said = []
    watch = Watch(None, process=1, processes=2, heartbeat=10, told=said.append, ended=lambda: said.append("ended"))
    watch.others[0] = watching.FAILED, watch.answered
    watch.look(watch.answered + 1.9)
    watch.last = watching.FAILED
    watch.look(watch.answered + 2.1)
    assert not said
    watch.last = ""
    watch.look(watch.answered + 2.1)
    assert "process 0 of this run is over, by an error of its own" in said[0] and said[1:] == ["ended"]


def test_what_may_come_from_a_lost_process_is_told_from_a_mistake_here():
    broken = "UNKNOWN: Gloo all-reduce failed: Connection reset by peer"
    for error in (ValueError(broken), jax.errors.JaxRuntimeError(broken), jax.errors.JaxRuntimeError("other words")):
        assert is_lost(error)
    for error in (
        ValueError("tol must be > 0"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 8 GB"),
        OSError(broken),
    ):
        assert not is_lost(error)


def test_a_process_that_an_error_ends_waits_for_a_sign_of_life_of_the_others(monkeypatch):
    store, ended = Store({"bisaddle/alive/1": "3", "bisaddle/alive/2": watching.OVER}), []
    monkeypatch.setattr(sys, "last_value", RuntimeError("of a run"), raising=False)
    watch = Watch(store, process=0, processes=3, heartbeat=1, told=ended.append, ended=lambda: ended.append("ended"))
    watch.start()
    watch.stop()  # process 1 stands at 3
    atexit.unregister(watch.stop)
    assert "process 1 of this run is lost" in ended[1] and ended[2] == "ended" and "process 2" not in "".join(ended)
    assert store["bisaddle/alive/0"] != watching.OVER  # it is no end in order, for the others either


def held(monkeypatch, **given):
    """Process 1 of 2, which holds a connection to a socket; the socket, and what it has said."""
    monkeypatch.setattr(watching, "NEAR", 0.01)
    monkeypatch.setattr(watching, "SAYING", 0)
    service, said = socket.create_server(("127.0.0.1", 0)), []
    address = service.getsockname()
    watch = Watch(Store(), 1, 2, 10, said.append, lambda: said.append("ended"), address, **given)
    (hold,) = [thread for thread in watch.threads if thread._target == watch._hold]  # pyright: ignore[reportAttributeAccessIssue]
    hold.start()
    return watch, hold, service, said


def test_a_connection_that_is_closed_and_refused_is_a_killed_process(monkeypatch):
    watch, hold, service, said = held(monkeypatch)
    for _ in range(2):  # one that is closed, as for its silence, is made again
        line, _ = service.accept()
        line.sendall(b"settings")
        line.close()
    line, _ = service.accept()
    assert not said
    service.close()
    line.close()
    hold.join(10)
    assert "process 0 of this run is lost" in said[0] and "exit code 75" in said[0] and said[1:] == ["ended"]


@pytest.mark.parametrize("why", ["process 0 is over", "this process has left", "the watch is over"])
def test_a_connection_that_is_closed_in_order_is_no_killed_process(monkeypatch, why):
    left = []
    watch, hold, service, said = held(monkeypatch, joined=lambda: not left)
    line, _ = service.accept()
    if why == "process 0 is over":
        watch.others[0] = watching.OVER, 0.0
    elif why == "this process has left":
        left.append(1)
    else:
        watch.over.set()
    service.close()
    line.close()
    hold.join(10)
    assert not hold.is_alive() and not said


ABORTED = """
import ctypes, runpy, sys, threading, time
found = runpy.run_path(sys.argv[1])
found["put_off_aborts"]()
threading.Thread(target=ctypes.CDLL(None).abort, daemon=True).start()
time.sleep(0.5)
found["end"]()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a process of Windows is aborted in another way")
@pytest.mark.parametrize(("own", "code"), [(False, 75), (True, -6)])
def test_an_abort_leaves_the_watch_some_seconds_unless_somebody_else_handles_it(own, code):
    command = [sys.executable, *(["-X", "faulthandler"] if own else []), "-c", ABORTED, watching.__file__]
    assert subprocess.run(command, capture_output=True, timeout=60).returncode == code


def test_a_process_that_did_not_run_itself_does_not_give_up_others():
    """The looks come late, as where a call holds Python's lock: what was not seen meanwhile is no silence."""
    ended, pauses = [], iter([0.05, 30.0, 0.05])
    watch = Watch(Store(), process=0, processes=2, heartbeat=1, told=lambda words: None, ended=lambda: ended.append(1))
    clock = [watch.answered]

    def wait(seconds):
        pause = next(pauses, None)
        clock[0] += pause or 0.0
        return pause is None

    watch.over = SimpleNamespace(wait=wait, is_set=lambda: False, set=lambda: None)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bisaddle.parallel.watching.time.monotonic", lambda: clock[0])
        watch._look()
    assert watch.asleep == pytest.approx(29.9) and not ended
