"""Which of several processes gives no sign of life: JAX then ends the others, with words that are hard to read."""

import atexit
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

# of the seconds after which JAX gives a process up: between two signs of life, and without one before it is told, which
# is less than half, since JAX may have heard of it last that long before
BEATS, TOLD = 0.05, 0.3


class Watch:
    """Each process counts up a number of its own in JAX's key-value store, and looks at those of the others.

    told: where words go. It runs in threads that are stopped before the process ends, and only ever writes: what has to
    be done, JAX does. Without a sign of life from the store itself, it is process 0 that is lost, which has it.
    """

    def __init__(self, client: Any, process: int, processes: int, heartbeat: int, told: Callable[[str], Any]):
        self.client, self.process, self.heartbeat, self.told = client, process, heartbeat, told
        now = time.monotonic()
        self.others = {i: ("", now) for i in range(processes) if i != process}
        self.answered, self.over, self.named = now, threading.Event(), set[int]()
        works = (self._beat, self._look)
        self.threads = [threading.Thread(target=work, daemon=True, name="bisaddle-watch") for work in works]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()
        # a thread that Python ends while it is inside JAX's client brings the whole process down
        atexit.register(self.stop)

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(self.heartbeat)

    def _beat(self) -> None:
        count = 0
        try:
            while not self.over.wait(BEATS * self.heartbeat if count else 0):
                count += 1
                self.client.key_value_set(f"bisaddle/alive/{self.process}", str(count), allow_overwrite=True)
                for key, value in self.client.key_value_dir_get("bisaddle/alive/"):
                    i = int(key.rsplit("/", 1)[1])
                    if i in self.others and self.others[i][0] != value:
                        self.others[i] = value, time.monotonic()
                self.answered = time.monotonic()
        except Exception:  # the run is over, here or at process 0: where it is not, JAX says so
            self.over.set()

    def _look(self) -> None:
        while not self.over.wait(BEATS * self.heartbeat):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Say of every process once that it is silent; of process 0 alone, if it does not answer at all."""
        silent = lambda since: now - since > TOLD * self.heartbeat
        lost = [0] if silent(self.answered) else [i for i, (_, since) in self.others.items() if silent(since)]
        for i in set(lost) - self.named - {self.process}:
            self.named.add(i)
            self.told(
                f"bisaddle: process {i} of this run has given no sign of life for {TOLD * self.heartbeat:.0f} seconds; "
                f"it is stopped, killed or cut off, or very busy. If it stays so, process {self.process} is ended too: "
                "start all of them again, with bs.resume if there is a checkpoint"
            )


def watch(heartbeat: int) -> None:
    """Begin to, once the processes have come together."""
    from jax._src import distributed

    state = distributed.global_state
    client, process, processes = (getattr(state, name, None) for name in ("client", "process_id", "num_processes"))
    if client is None or process is None or not processes or processes < 2 or not hasattr(client, "key_value_dir_get"):
        return
    Watch(client, process, processes, heartbeat, lambda words: print(words, file=sys.stderr, flush=True)).start()
