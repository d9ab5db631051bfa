"""Which of several processes gives no sign of life, and how this one ends: not by JAX, which would abort it."""

import atexit
import ctypes
import math
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

# of the seconds after which a process is given up: between two signs of life, and without one before it is told
BEATS, TOLD = 0.05, 0.3
# the same for JAX's own heartbeats, whose answer is an abort: it may have heard of a process last half of that before,
# and comes second even then
LATER = 3
# the exit code where another process was given up, "temporary failure" in sysexits.h, and seconds for the last output
LOST, FLUSHING = 75, 2
# seconds between two looks whether process 0 is there at all, and to say in Python what its end has broken
NEAR, SAYING = 0.5, 2
ENDED = "over, by an error of its own"
# what a process that ends leaves in the place of its count: in order, or by an error of its own
OVER, FAILED = "over", "failed"


class Watch:
    """Each process counts up a number of its own in JAX's key-value store, and looks at those of the others.

    told: where words go; ended: what ends this process, for no exception reaches one that waits for another inside a
    program. It runs in threads that are stopped before the process ends. Without a sign of life from the store itself,
    it is process 0 that is lost, which has it. address: of process 0, with which a connection is held then: it breaks
    at once when that is killed. joined: whether this process is still one of them. parted: called where it ends without
    the others; where all end in order, JAX has its own way. left: by what error this process ends, one of its "own" or
    "lost" others; None is in order.
    """

    def __init__(
        self,
        client: Any,
        process: int,
        processes: int,
        heartbeat: int,
        told: Callable[[str], Any],
        ended: Callable[[], Any],
        address: tuple[str, int] | None = None,
        joined: Callable[[], bool] = lambda: True,
        parted: Callable[[], Any] = lambda: None,
        left: Callable[[], str | None] = lambda: None if getattr(sys, "last_value", None) is None else "own",
    ):
        self.client, self.process, self.heartbeat, self.told, self.ended = client, process, heartbeat, told, ended
        now = time.monotonic()
        self.others = {i: ("", now) for i in range(processes) if i != process}
        self.answered, self.over, self.named = now, threading.Event(), set[int]()
        self.broken = False  # whether the store has failed
        self.asleep = 0.0  # seconds in which this process did not run itself, and could not see the others do
        self.address, self.joined, self.parted, self.left = address, joined, parted, left
        self.last, self.writing = "", threading.Lock()  # its last word, once it ends
        works = (self._beat, self._look, *([self._hold] if process and address is not None else []))
        self.threads = [threading.Thread(target=work, daemon=True, name="bisaddle-watch") for work in works]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()
        # a thread that Python ends while it is inside JAX's client brings the whole process down
        atexit.register(self.stop)

    def stop(self) -> None:
        """The end of this process: together with all others, or with a last word to them that it ends by an error.

        JAX's own end waits for all of them too, for some time, and aborts all if one does not come.
        """
        left = self.left()
        if left == "lost":
            self._hear()
        gone = [i for i, (word, _) in self.others.items() if word == FAILED]
        if left == "lost" and gone and not self.over.is_set():
            self._give_up(gone[0], ENDED)
        with suppress(Exception):
            self._write(FAILED if left else OVER)
        try:
            self._hear() if left else self._wait()
        except KeyboardInterrupt:  # which ends the others too
            left = "own"
            with suppress(Exception):
                self._write(FAILED)
        if left == "lost" and self.broken:  # by the end of process 0, which `_hold` is about to see
            self.threads[-1].join(2 * NEAR + 2 * SAYING)
        alike = not left and all(word == OVER for word, _ in self.others.values())
        if not alike and not self.process:  # without it JAX aborts the others, whose last words come first
            time.sleep(SAYING + 4 * BEATS * self.heartbeat)
        self.let(alike)

    def let(self, alike: bool) -> None:
        """No more watching. alike: all end together, as far as this process knows."""
        self.over.set()
        for thread in self.threads:
            thread.join(self.heartbeat)
        # where a thread does not end, the store does not answer
        if not alike or self.broken or any(thread.is_alive() for thread in self.threads):
            self.parted()

    def _write(self, word: str) -> None:
        """To the store: a count, or the last word of this process, which no count replaces."""
        with self.writing:
            self.last = word if word in (OVER, FAILED) else self.last
            self.client.key_value_set(f"bisaddle/alive/{self.process}", self.last or word, allow_overwrite=True)

    def _hear(self) -> None:
        """Wait for a sign of life from each of the others; where there is none, `look` ends this process."""
        # what is read first may have been written before
        begin = time.monotonic() - self.asleep + 2 * BEATS * self.heartbeat
        self._until(lambda: all(since > begin or word in (OVER, FAILED) for word, since in list(self.others.values())))

    def _wait(self) -> None:
        """Wait for the others to come to their ends too, however long that takes: this one has what they may need."""
        there = lambda: [i for i, (word, _) in list(self.others.items()) if word not in (OVER, FAILED)]
        self._until(lambda: not there(), TOLD * self.heartbeat)
        if (missing := there()) and not self.over.is_set() and not self.broken:
            self.told(
                f"bisaddle: process {self.process} of this run has come to its end, and waits for that of process "
                f"{', '.join(map(str, missing))}"
            )
            self._until(lambda: not there())

    def _until(self, true: Callable[[], bool], seconds: float = math.inf) -> None:
        end = time.monotonic() + seconds
        while not true() and not self.broken and time.monotonic() < end:
            if self.over.wait(BEATS * self.heartbeat):
                return

    def _beat(self) -> None:
        count = 0
        try:
            while not self.over.wait(BEATS * self.heartbeat if count else 0):
                count += 1
                self._write(str(count))
                for key, value in self.client.key_value_dir_get("bisaddle/alive/"):
                    i = int(key.rsplit("/", 1)[1])
                    if i in self.others and self.others[i][0] != value:
                        self.others[i] = value, time.monotonic() - self.asleep
                self.answered = time.monotonic() - self.asleep
        except Exception:  # the run is over, here or at process 0: where it is not, `_hold` or JAX says so
            self.broken = True

    def _look(self) -> None:
        last = time.monotonic()
        while not self.over.wait(BEATS * self.heartbeat) and not self.broken:
            now = time.monotonic()
            self.asleep += max(now - last - 2 * BEATS * self.heartbeat, 0.0)
            last = now
            self.look(now - self.asleep)

    def _hold(self) -> None:
        assert self.address is not None
        while not self.over.wait(NEAR) and self.joined():
            try:
                with socket.create_connection(self.address, timeout=NEAR) as line:
                    self._until_closed(line)
            except ConnectionRefusedError:
                if self.others[0][0] != OVER and self.joined():  # else it has ended in order
                    time.sleep(SAYING)  # where a run is broken by it, that is told first
                    self._give_up(0, ENDED if self.others[0][0] == FAILED else "lost, and its connections are closed")
                return
            except OSError:  # it may be there still, and only be slow
                pass

    def _until_closed(self, line: socket.socket) -> None:
        """By process 0, which also closes connections on which nobody speaks, or with all others at its end."""
        while not self.over.is_set():
            try:
                if not line.recv(4096):
                    return
            except TimeoutError:
                pass

    def _give_up(self, i: int, why: str, more: str = "") -> None:
        self.over.set()
        self.told(
            f"bisaddle: process {i} of this run is {why}; process {self.process} ends with exit code {LOST}. Start all "
            f"of them again, with bs.resume if there is a checkpoint{more}"
        )
        self.ended()

    def look(self, now: float) -> None:
        """Say of every process once that it is silent; of process 0 alone, if it does not answer at all.

        One that stays so for all of the heartbeat is given up, and this one ended.
        """
        silent = {i: now - since for i, (count, since) in self.others.items() if count not in (OVER, FAILED)}
        if now - self.answered > TOLD * self.heartbeat and self.process:
            silent = {0: now - self.answered}
        for i, seconds in silent.items():
            if seconds > TOLD * self.heartbeat and i not in self.named:
                self.named.add(i)
                self.told(
                    f"bisaddle: process {i} of this run has given no sign of life for {TOLD * self.heartbeat:.0f} "
                    "seconds; it is stopped, killed or cut off, or very busy. If it stays so, process "
                    f"{self.process} is ended too"
                )
            if seconds > self.heartbeat and not self.over.is_set():
                without = f"lost, without a sign of life for {self.heartbeat} seconds"
                self._give_up(i, without, "; parallel.initialize(heartbeat=) waits longer")
        # where all fail alike, each says so itself
        failed = [i for i, (word, since) in self.others.items() if word == FAILED and now - since > SAYING]
        if failed and not self.last and not self.over.is_set():
            self._give_up(failed[0], ENDED)


def put_off_aborts() -> None:
    """Let abort() wait for some seconds before it ends this process, so that the watch comes first.

    JAX aborts the others at once when process 0 is killed, and takes no function of Python's to call instead. What C
    calls before is sleep, whose seconds are the number of the signal, 6: no Python runs where it might not.
    """
    if signal.getsignal(signal.SIGABRT) != signal.SIG_DFL:  # somebody else's
        return
    with suppress(OSError, AttributeError, TypeError):  # where C's library has no such names
        library = ctypes.CDLL(None)
        library.signal.argtypes, library.signal.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_void_p
        library.signal(signal.SIGABRT, ctypes.cast(library.sleep, ctypes.c_void_p))


def end() -> None:
    """End this process at once, but for what it has printed: exits in order would wait for the lost process too."""
    flush = threading.Thread(target=lambda: (sys.stdout.flush(), sys.stderr.flush()), daemon=True)
    flush.start()
    flush.join(FLUSHING)
    os._exit(LOST)
