"""Starts tests/parallel_worker.py: one process with several devices, or several processes that run together."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIGHT = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)


def worker(order):
    environment = {**os.environ, "XLA_FLAGS": LIGHT, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.parallel_worker", json.dumps(order)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, **pipes)


def answer(process, seconds=240):
    out, err = process.communicate(timeout=seconds)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def together(processes, devices, **order):
    """The answers of so many processes, each with so many devices, that run together."""
    address = f"127.0.0.1:{free_port()}"
    order = {"do": "process", "devices": devices, **order}
    started = [worker({**order, "join": [address, processes, i]}) for i in range(processes)]
    try:
        return [answer(process) for process in started]
    finally:
        end(started)


def end(processes):
    for process in processes:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            pipe.close()
