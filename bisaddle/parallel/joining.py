"""Processes that come together before anything else."""

import atexit
import ctypes
import os
import socket
import sys
import time
from typing import Any

import jax
from jax._src import distributed

from bisaddle.devices import Together, is_lost
from bisaddle.parallel.watching import LATER, Watch, end, put_off_aborts

# seconds without a sign of life after which a process is given up, and to wait for all of them at the start
HEARTBEAT = 10
STARTING = 120
# that of this process, if it is one of several
WATCHES: list[Watch] = []


def initialize(
    address: str | None = None,
    processes: int | None = None,
    process: int | None = None,
    *,
    heartbeat: int = HEARTBEAT,
    timeout: int = STARTING,
) -> None:
    """Join the other processes: jax.distributed.initialize, to be called before anything else of JAX.

    address: host:port of process 0; processes: how many; process: which one this is. None: as Slurm, Open MPI,
    Kubernetes or a cloud's TPU says. heartbeat: seconds after which a process that gives no sign of life is given up,
    and all others end, with words on stderr that name it and exit code 75. timeout: seconds to wait for all of them.
    """
    for name, value in (("heartbeat", heartbeat), ("timeout", timeout)):
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of seconds >= 1, given {value!r}")
    if address is not None and process:
        _wait_for(address, timeout)  # with words: what JAX does when nobody answers is to end the process
    jax.distributed.initialize(
        address,
        processes,
        process,
        initialization_timeout=timeout,
        heartbeat_timeout_seconds=LATER * heartbeat,
        shutdown_timeout_seconds=LATER * heartbeat,
    )
    _watch(heartbeat)


def _wait_for(address: str, timeout: int) -> None:
    """RuntimeError if nobody answers at host:port within so many seconds."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"address must be host:port of process 0, given {address!r}")
    end = time.monotonic() + timeout
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
            return
        except OSError as error:
            if time.monotonic() > end:
                raise RuntimeError(
                    f"process 0 does not answer at {address} after {timeout} seconds ({error}); see that it is "
                    "started, that the address is its own, and that the port is open"
                ) from error
            time.sleep(0.1)


def _watch(heartbeat: int) -> None:
    """Begin to watch the others, once the processes have come together."""
    state = distributed.global_state
    client, process, processes = (getattr(state, name, None) for name in ("client", "process_id", "num_processes"))
    if client is None or process is None or not processes or processes < 2 or not hasattr(client, "key_value_dir_get"):
        return
    told = lambda words: os.write(2, f"{words}\n".encode())  # not by sys.stderr, which another thread may hold
    host, _, port = str(getattr(state, "coordinator_address", None)).rpartition(":")
    address = (host.strip("[]"), int(port)) if port.isdigit() else None
    if process:
        put_off_aborts()
    joined = lambda: state.client is client
    part = lambda: _part(state)
    WATCHES[:] = [Watch(client, process, processes, heartbeat, told, end, address, joined, part, _left)]
    WATCHES[0].start()


def leave(alike: bool) -> None:
    """What the end of Python does, before it. alike: the others end in order too; else this process does not care."""
    for watch in WATCHES:
        atexit.unregister(watch.stop)
        watch.stop() if alike else watch.let(False)
    jax.distributed.shutdown()


def _left() -> str | None:
    """By what error this process ends, as far as it can be told: one of its "own", or "lost" others."""
    error = getattr(sys, "last_value", None)  # that nobody has caught
    if is_lost(error) or is_lost(getattr(error, "__cause__", None)):
        return "lost"
    return Together.left if error is None else "own"


def _part(state: Any) -> None:
    """Let this process end as it likes, without the others: JAX's shutdown would wait for them, and abort.

    So would the ends of its client and its service, of which one reference is kept for ever.
    """
    for name in ("client", "service"):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(getattr(state, name)))
        setattr(state, name, None)
