"""Which of several processes gives no sign of life, and an end of this one before JAX aborts it without such words."""

import atexit
import ctypes
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
# what a process that ends leaves in the place of its count
OVER = "over"


class Watch:
    """Each process counts up a number of its own in JAX's key-value store, and looks at those of the others.

    told: where words go; ended: what ends this process, for no exception reaches one that waits for another inside a
    program. It runs in threads that are stopped before the process ends. Without a sign of life from the store itself,
    it is process 0 that is lost, which has it. address: of process 0, with which a connection is held then: it breaks
    at once when that is killed. joined: whether this process is still one of them.
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
    ):
        self.client, self.process, self.heartbeat, self.told, self.ended = client, process, heartbeat, told, ended
        now = time.monotonic()
        self.others = {i: ("", now) for i in range(processes) if i != process}
        self.answered, self.over, self.named = now, threading.Event(), set[int]()
        self.broken = False  # whether the store has failed
        self.asleep = 0.0  # seconds in which this process did not run itself, and could not see the others do
        self.address, self.joined = address, joined
        works = (self._beat, self._look, *([self._hold] if process and address is not None else []))
        self.threads = [threading.Thread(target=work, daemon=True, name="bisaddle-watch") for work in works]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()
        # a thread that Python ends while it is inside JAX's client brings the whole process down
        atexit.register(self.stop)

    def stop(self) -> None:
        failed = getattr(sys, "last_value", None) is not None  # an error that nobody has caught: no end in order
        if failed:
            self._hear()
        broken = failed or self.broken or self.over.is_set()
        self.over.set()
        for thread in self.threads:
            thread.join(self.heartbeat)
        # where a thread does not end, the store does not answer
        if not broken and not any(thread.is_alive() for thread in self.threads):
            with suppress(Exception):
                self.client.key_value_set(f"bisaddle/alive/{self.process}", OVER, allow_overwrite=True)

    def _hear(self) -> None:
        """Wait for a sign of life from each of the others; where there is none, `look` ends this process.

        Without it JAX would, which waits for all of them at the end.
        """
        # what is read first may have been written before
        begin = time.monotonic() - self.asleep + 2 * BEATS * self.heartbeat
        missed = lambda: any(count != OVER and since <= begin for count, since in list(self.others.values()))
        while missed() and not self.broken and not self.over.wait(BEATS * self.heartbeat):
            pass

    def _beat(self) -> None:
        count = 0
        try:
            while not self.over.wait(BEATS * self.heartbeat if count else 0):
                count += 1
                self.client.key_value_set(f"bisaddle/alive/{self.process}", str(count), allow_overwrite=True)
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
                    self._killed()
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

    def _killed(self) -> None:
        """The end of this process, a little later: where a run is broken by it, that is told first."""
        time.sleep(SAYING)
        self.told(
            f"bisaddle: process 0 of this run is lost, and its connections are closed; process {self.process} ends "
            f"with exit code {LOST}. Start all of them again, with bs.resume if there is a checkpoint"
        )
        self.ended()

    def look(self, now: float) -> None:
        """Say of every process once that it is silent; of process 0 alone, if it does not answer at all.

        One that stays so for all of the heartbeat is given up, and this one ended.
        """
        silent = {i: now - since for i, (count, since) in self.others.items() if count != OVER}
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
                self.over.set()
                self.told(
                    f"bisaddle: process {i} of this run is lost, without a sign of life for {self.heartbeat} seconds; "
                    f"process {self.process} ends with exit code {LOST}. Start all of them again, with bs.resume if "
                    "there is a checkpoint; parallel.initialize(heartbeat=) waits longer"
                )
                self.ended()


def watch(heartbeat: int) -> None:
    """Begin to, once the processes have come together."""
    from jax._src import distributed

    state = distributed.global_state
    client, process, processes = (getattr(state, name, None) for name in ("client", "process_id", "num_processes"))
    if client is None or process is None or not processes or processes < 2 or not hasattr(client, "key_value_dir_get"):
        return
    told = lambda words: os.write(2, f"{words}\n".encode())  # not by sys.stderr, which another thread may hold
    host, _, port = str(getattr(state, "coordinator_address", None)).rpartition(":")
    address = (host.strip("[]"), int(port)) if port.isdigit() else None
    if process:
        put_off_aborts()
    Watch(client, process, processes, heartbeat, told, end, address, lambda: state.client is client).start()


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
