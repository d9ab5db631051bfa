"""bisaddle solve --checkpoint, resume, --out and --force: nothing that was computed is lost, no code is run unasked."""

import importlib.util
import json
import os
import py_compile
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("click")

from bisaddle.cli import documents, solving
from tests.cli_helpers import bisaddle, refused
from tests.test_cli_solve import LISTENING, ROOT, model as model  # the fixture

STEPS = ("--method", "GDA", "--step", "tau=0.5", "--step", "sigma=0.4")
SLOW = ("--method", "GDA", "--step", "tau=1e-4", "--step", "sigma=1e-4", "--tol", "1e-12")


def solution(path):
    """What a result says, without the times and the limits of the command."""
    document = documents.load(Path(path))
    for key in ("seconds", "compile_seconds", "settings"):
        del document[key]
    del document["trace"]["seconds"]
    return document


CASES = {
    "GDA": ("model.py:plain", *SLOW, "--max-steps", "30"),
    "Adaptive": ("model:plain", "--tol", "1e-8"),
}


@pytest.mark.parametrize("case", CASES)
def test_resume_goes_on_to_the_same_result(model, case):
    bisaddle("solve", *CASES[case], "--out", "whole.json")
    bisaddle("solve", *CASES[case], "--checkpoint", "run.ckpt", "--checkpoint-every", "0")
    done = bisaddle("resume", "run.ckpt", "--out", "resumed.json")
    assert done.exit_code in (0, 1) and "Traceback" not in done.output, done.output
    assert solution("whole.json") == solution("resumed.json")


def test_resume_in_single_precision_from_several_starts(model):
    options = ("--precision", "32", "--starts", "2", "--tol", "1e-3")
    bisaddle("solve", "model.py:plain", *STEPS, *options, "--out", "whole.json", "--checkpoint", "run.ckpt")
    done = bisaddle("resume", "run.ckpt", "--json", "--out", "resumed.json")
    assert done.exit_code == 0 and solution("whole.json") == solution("resumed.json"), done.output
    assert json.loads(done.stdout)["settings"]["precision"] == 32


def test_sigterm_leaves_a_checkpoint_and_the_code_of_an_interruption(model):
    command = ("solve", "model.py:plain", *SLOW, "--max-steps", "2000000000", "--checkpoint", "run.ckpt")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    call = [sys.executable, "-c", LISTENING, *command]
    with subprocess.Popen(call, env=environment, stdout=-1, stderr=-1, text=True) as process:
        limit = time.monotonic() + 120
        while not Path("running").exists() and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "INTERRUPTED" in out and "bisaddle resume run.ckpt" in err, (out, err)
    done = bisaddle("resume", "run.ckpt", "--max-steps", "3000000", "--max-seconds", "0.5", "--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["steps"] > 0


def test_a_checkpoint_that_is_there_is_refused_unless_forced(model):
    arguments = ("solve", "model.py:plain", *STEPS, "--checkpoint", "run.ckpt")
    assert bisaddle(*arguments).exit_code == 0
    refused(bisaddle(*arguments), 2, "run.ckpt is there already")
    done = bisaddle(*arguments, "--force")
    assert done.exit_code == 0 and "--force: the run in run.ckpt is given up" in done.stderr


def test_resume_refuses_what_it_cannot_go_on_from(model):
    import bisaddle as bs

    refused(bisaddle("resume", "none.ckpt"), 3, "none.ckpt cannot be read")
    Path("bad.ckpt").write_bytes(b"PK\x03\x04")
    refused(bisaddle("resume", "bad.ckpt"), 3, "is no file of bisaddle")
    bisaddle("solve", "model.py:plain", *STEPS, "--checkpoint", "run.ckpt")
    Path("model.py").write_text(
        Path("model.py").read_text().replace("ball = bs.sets.L2Ball(1.0)", "ball = bs.sets.L2Ball(2.0)")
    )
    refused(bisaddle("resume", "run.ckpt"), 3, "model.py has changed since", "--problem model.py:plain")
    refused(bisaddle("resume", "run.ckpt", "--problem", "model.py:plain"), 2, "the problem is not that", "radius")
    from tests.test_solve import quadratic

    bs.solve(*quadratic(), checkpoint="own.ckpt")
    refused(bisaddle("resume", "own.ckpt"), 3, "bs.resume in Python")


# --- outputs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "path"), [("--out", "/proc/none/r.json"), ("--out", "model.py/r.json"), ("--checkpoint", "/proc/1.ckpt")]
)
def test_an_output_that_cannot_be_written_is_refused_before_the_work(model, option, path, monkeypatch):
    monkeypatch.setattr(solving, "build", lambda *arguments: pytest.fail("there was work"))
    refused(bisaddle("solve", "model.py:plain", option, path), 3, path, "cannot be written")


def test_a_device_is_no_output(model):
    refused(bisaddle("solve", "model.py:plain", "--out", "/dev/null"), 3, "/dev/null is a device")


def test_a_folder_of_results_that_cannot_be_made_is_refused_before_the_work(model):
    for command in (("reproduce", "--quick", "--dataset", "synthetic"), ("run", "exp1_synthetic", "--quick")):
        refused(bisaddle(*command, "--out", "/proc/none"), 3, "cannot be written")


def test_a_certified_result_is_not_replaced_by_a_worse_one(model):
    solve = lambda *options: bisaddle("solve", "model.py:plain", *STEPS, "--out", "r.json", *options)
    solve("--tol", "1e-6")
    best = Path("r.json").read_bytes()
    for worse, name in ((("--tol", "1e-9", "--max-steps", "2"), "max_steps"), (("--tol", "1e-2"), "certified")):
        done = solve(*worse)
        assert "r.json holds a result certified to 1e-06 and is kept" in done.stderr, done.output
        assert f"in r.{name}.json" in done.stderr and Path("r.json").read_bytes() == best
        assert documents.load(Path(f"r.{name}.json"))["status"] == name.upper()
    assert solve("--tol", "1e-8").exit_code == 0 and Path("r.json").read_bytes() != best
    done = solve("--tol", "1e-2", "--force")
    assert "--force: r.json held a result certified to 1e-08, which is replaced" in done.stderr
    assert documents.load(Path("r.json"))["settings"]["tol"] == 1e-2


# --- code ------------------------------------------------------------------------------------------------------------


def test_a_result_from_elsewhere_runs_no_code(model, tmp_path):
    bisaddle("solve", "model.py:plain", *STEPS, "--out", "r.json")
    document = documents.load(Path("r.json"))
    for source in ({"file": str(tmp_path / "evil.py")}, {"module": "evil", "folder": str(tmp_path)}):
        (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
        problem = {key: item for key, item in document["problem"].items() if key != "file"} | source
        documents.save({**document, "problem": problem}, tmp_path / "evil.json")
        refused(bisaddle("certify", "evil.json"), 3, "has changed since")
        (tmp_path / "evil.py").unlink()
        refused(bisaddle("certify", "evil.json"), 3, "is not there", "--problem")
        refused(bisaddle("certify", "evil.json", "--problem", "none.py:plain"), 2, "none.py is not there")
    assert not Path("ran").exists()


def test_the_code_that_is_run_is_the_code_that_was_looked_at(model):
    bisaddle("solve", "model.py:plain", *STEPS, "--out", "r.json")
    Path("other.py").write_text("from pathlib import Path\nPath('ran').touch()\n")
    cache = Path(importlib.util.cache_from_source(str(model)))
    cache.parent.mkdir(exist_ok=True)
    py_compile.compile("other.py", str(cache))
    of, stamp = bytearray(cache.read_bytes()), model.stat()
    of[8:16] = int(stamp.st_mtime).to_bytes(4, "little") + stamp.st_size.to_bytes(4, "little")
    cache.write_bytes(of)
    assert bisaddle("certify", "r.json").exit_code == 0
    assert not Path("ran").exists()
