"""bisaddle solve --processes: the answer of one process, and what is refused."""

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest


def bisaddle(*arguments, code=0):
    command = [sys.executable, "-m", "bisaddle", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert code in (None, done.returncode), done.stderr
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


@pytest.mark.slow
def test_a_run_of_two_processes_is_kept_and_goes_on_on_two_or_on_one(tmp_path):
    order = ["solve", "multitask", table(tmp_path / "houses.csv"), "--task-column", "region", "--target", "price"]
    order += ["--processes", 2, "--tol", 1e-7, "--json"]
    whole = json.loads(bisaddle(*order, "--max-steps", 40, code=None).stdout)
    kept = tmp_path / "run"
    bisaddle(*order, "--max-steps", 10, "--checkpoint", kept, code=None)
    for processes, atol in ((2, 0.0), (1, 1e-9)):
        shutil.copy(kept, tmp_path / "copy")
        more = ["--processes", processes, "--max-steps", 40, "--json"]
        found = json.loads(bisaddle("resume", tmp_path / "copy", *more, code=None).stdout)
        assert found["status"] == whole["status"]
        assert found["point"] == whole["point"] or processes == 1
        assert abs(found["certificate"]["gap"] - whole["certificate"]["gap"]) <= atol
