"""bisaddle solve --processes: the answer of one process, and what is refused."""

import json
import subprocess
import sys

import numpy as np
import pytest


def bisaddle(*arguments, code=0):
    command = [sys.executable, "-m", "bisaddle", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == code, done.stderr
    return done


def table(path):
    rng = np.random.default_rng(0)
    lines = ["region,a,b,price"]
    for region in range(5):
        own = rng.normal(size=2)
        for a in rng.normal(size=(40, 2)):
            lines.append(f"r{region},{a[0]},{a[1]},{a @ own + 0.1 * rng.normal()}")
    path.write_text("\n".join(lines))
    return path


@pytest.mark.slow
def test_two_processes_certify_what_one_does(tmp_path):
    order = ["solve", "multitask", table(tmp_path / "houses.csv"), "--task-column", "region", "--target", "price"]
    out = tmp_path / "result.json"
    found = json.loads(bisaddle(*order, "--processes", 2, "--json", "--out", out).stdout)
    assert found["status"] == "CERTIFIED"
    bisaddle("certify", out)  # on one process, from the file
    assert "form=" in bisaddle(*order, "--processes", 2, "--shard", "rows", code=2).stderr
    assert "--checkpoint is for one process" in bisaddle(*order, "--processes", 2, "--checkpoint", "c", code=2).stderr
