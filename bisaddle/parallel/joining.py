"""Processes that come together before anything else."""

import socket
import time

import jax

from bisaddle.parallel.watching import LATER, watch

# seconds without a sign of life after which a process is given up, and to wait for all of them at the start
HEARTBEAT = 10
STARTING = 120


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
        shutdown_timeout_seconds=heartbeat,
    )
    watch(heartbeat)


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
