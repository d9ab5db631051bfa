"""Saved results and checkpoints as files: whole or not there, one run at a time, and nothing hostile gets in."""

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.report import files
from bisaddle.run import checkpoint, container
from bisaddle.run.checkpoint import Checkpoints
from bisaddle.run.plain import Absent, Reader, Writer, described, difference
from tests import stress_disks, stress_files, stress_kills
from tests.test_checkpoint import assert_same
from tests.test_solve import fully_projected, quadratic

ROOT = Path(__file__).parents[1]


def again(value):
    """A value by way of a file's bytes."""
    writer = Writer()
    return Reader(writer.arrays)(writer(value))


# --- results ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [None, 2], ids=["one start", "two"])
@pytest.mark.parametrize("method", [None, fully_projected()], ids=["Adaptive", "FullyProjected"])
def test_a_saved_result_comes_back_as_it_was(method, count, tmp_path):
    problem, start = quadratic()
    start = start if count is None else bs.start_points(problem, start, count, jax.random.key(0))
    result = bs.solve(problem, start, method, tol=1e-5)
    result.save(tmp_path / "result")
    found = bs.load_result(tmp_path / "result")
    assert str(found) == str(result) and found.seconds == result.seconds
    assert_same(found, result)
    assert jax.tree.structure(found) == jax.tree.structure(result)
    assert [type(leaf) for leaf in jax.tree.leaves(found)] == [type(leaf) for leaf in jax.tree.leaves(result)]
    np.testing.assert_array_equal(bs.certify(problem, found.point).gap, bs.certify(problem, result.point).gap)
    assert list(tmp_path.iterdir()) == [tmp_path / "result"]


class Pair(NamedTuple):
    first: object
    second: object


class Own(eqx.Module):
    a: jax.Array
    b: str = eqx.field(static=True)


def test_every_kind_of_value_comes_back():
    key = jax.random.key(3)
    values = {
        "numbers": [1, -2.5, 1e-320, float("inf"), -float("inf"), True, None, "word", 2**70],
        5: (np.float32(0.1), np.int8(-3), np.bool_(True)),
        "arrays": {"i": np.arange(6, dtype=np.int16).reshape(2, 3), "none": np.zeros((0, 4)), "zero": np.array(-0.0)},
        "device": jnp.asarray([1.0, np.nan]),
        "own": [Pair(1, (2, 3)), Own(jnp.ones(2), "b"), bs.Status.DIVERGED],
        "transposed": np.arange(6.0).reshape(2, 3).T,
    }
    found = again(values)
    assert not difference(described(values), described(found)) and list(found) == list(values)
    assert type(found[5][0]) is np.float32 and type(found["own"][0]) is Pair and isinstance(found["device"], jax.Array)
    assert np.signbit(found["arrays"]["zero"])
    assert jax.random.key_data(again(key)).tolist() == jax.random.key_data(key).tolist()
    assert np.isnan(again(float("nan")))


def test_functions_stay_behind_and_say_so():
    found = again(bs.schedules.FromFunction(lambda k: 0.1))
    with pytest.raises(ValueError, match="is not in the file, only its name"):
        found.function(1)
    assert isinstance(again(lambda: 0), Absent)


def test_the_description_of_a_function_is_that_of_its_code_and_of_what_it_holds():
    def made(factor, source="lambda x: x * factor + 1"):
        return eval(f"lambda factor: {source}")(factor)

    same = lambda a, b: described(a) == described(b)
    assert same(made(2.0), made(2.0)) and not same(made(2.0), made(3.0))
    assert same(made(np.ones(3)), made(np.ones(3))) and not same(made(np.ones(3)), made(np.zeros(3)))
    assert not same(made(2.0), made(2.0, "lambda x: x * factor + 2"))
    assert not same(made(2.0), made(2.0, "lambda x: x + factor + 1"))
    assert not same(made(2.0, "lambda x, y=1: x"), made(2.0, "lambda x, y=2: x"))
    old = {"f": f"name 3.10 {'a' * 64}"}
    assert not difference(old, {"f": f"name 3.11 {'b' * 64}"})  # other versions of Python compile to other code
    assert difference(old, {"f": f"other 3.11 {'b' * 64}"}) and difference(old, {"f": f"name 3.10 {'b' * 64}"})


def test_float64_is_not_cut_short(tmp_path):
    problem, start = quadratic()
    bs.solve(problem, start, max_steps=3).save(tmp_path / "result")
    code = "import sys, bisaddle as bs; bs.load_result(sys.argv[1])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, str(tmp_path / "result")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert "ValueError" in done.stderr and "jax_enable_x64" in done.stderr


def test_another_schema_and_another_kind_are_refused_in_words(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(container.pack("result", None, []))
    with pytest.raises(ValueError, match="is a 'result' of bisaddle, a 'checkpoint' is needed"):
        container.unpack(path, "checkpoint")
    path.write_bytes(stress_files.sealed({"schema": 2, "kind": "result", "arrays": [], "content": 1}, b""))
    with pytest.raises(ValueError, match="has schema 2, and this version of bisaddle reads up to 1"):
        bs.load_result(path)
    with pytest.raises(ValueError, match="cannot be saved; use one of"):
        container.pack("result", None, [np.array(["a"])])


def test_mutated_files_are_refused_with_a_reason(tmp_path, unchecked_types):
    found = stress_files.attack(*stress_files.samples(tmp_path), 150)
    good = {what for what in found if what.startswith("still good")}  # one experiment for another
    assert set(found) - good == {"refused"} and found["refused"] > 140, found


def test_what_is_not_a_regular_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    handle = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        with pytest.raises(ValueError, match="a regular file is needed"):
            bs.load_result(tmp_path / "pipe")
    finally:
        os.close(handle)


def test_a_damaged_checkpoint_names_the_one_before_which_goes_on_in_its_place(tmp_path):
    problem, start = quadratic()
    path = tmp_path / "run.ckpt"
    whole = bs.solve(problem, start, tol=1e-6, checkpoint=path, checkpoint_every=0)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"truncated or damaged.*the checkpoint before it is .*run.ckpt.previous"):
        bs.resume(path, problem)
    assert_same(whole, bs.resume(tmp_path / "run.ckpt.previous", problem))
    assert_same(whole, bs.resume(path, problem))
    assert checkpoint.read(tmp_path / "run.ckpt.previous").settings.tol == 1e-6


def test_the_example_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    exec(page.split("```python\n")[1].split("```")[0], {})
    assert "CERTIFIED" in capsys.readouterr().out


# --- disks -----------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_last_checkpoint_and_the_result(tmp_path, monkeypatch):
    problem, start = quadratic()
    path, written = tmp_path / "run.ckpt", []

    def fsync(handle):
        written.append(handle)
        if len(written) > 10:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.warns(RuntimeWarning, match="no checkpoint was written to .*No space left on device; the run goes on"):
        result = bs.solve(problem, start, tol=1e-6, checkpoint=path, checkpoint_every=0)
    monkeypatch.undo()
    assert result.status is bs.Status.CERTIFIED
    assert sorted(left.name for left in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.previous"]
    assert_same(result, bs.resume(path, problem))


def test_disks_that_are_really_full_and_folders_that_are_really_closed():
    """Limits of the system itself, in a process of its own; the tests beside these make the errors up."""
    found = stress_disks.tried()
    assert all(outcome == "held" or outcome.startswith("not possible") for outcome in found.values()), found
    assert found["a limit on the size of files"] == found["a device as a file"] == "held"


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(tmp_path, monkeypatch):
    problem, start = quadratic()

    def touch(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "touch", touch)
    monkeypatch.setattr(checkpoint, "described", lambda value: pytest.fail("there was work"))
    with pytest.raises(PermissionError, match="run.ckpt cannot be written .Permission denied.; name a place that can"):
        bs.solve(problem, start, checkpoint=tmp_path / "run.ckpt")


def test_a_file_is_whole_or_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    files.write(path, "old")

    def fail(*arguments):
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="broken"):
        files.write(path, b"new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_without_hard_links_two_are_kept_as_well(tmp_path, monkeypatch):
    def link(*arguments):
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", link)
    problem, start = quadratic()
    bs.solve(problem, start, tol=1e-6, checkpoint=tmp_path / "run.ckpt", checkpoint_every=0)
    assert sorted(left.name for left in tmp_path.iterdir()) == ["run.ckpt", "run.ckpt.previous"]
    checkpoint.read(tmp_path / "run.ckpt.previous")


# --- two runs, and kills ---------------------------------------------------------------------------------------------


def hold(path, ready):
    with Checkpoints(path).held(fresh=True):
        ready.set()
        time.sleep(60)


def test_two_runs_on_one_file_and_a_lock_that_dies_with_its_process(tmp_path):
    problem, start = quadratic()
    path = tmp_path / "run.ckpt"
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    other = spawn.Process(target=hold, args=(path, ready), daemon=True)
    other.start()
    assert ready.wait(60)
    try:
        with pytest.raises(ValueError, match="run.ckpt is in use by another run"):
            bs.solve(problem, start, checkpoint=path)
    finally:
        assert other.pid is not None
        os.kill(other.pid, signal.SIGKILL)
        other.join()
    bs.solve(problem, start, checkpoint=path)
    with Checkpoints(path).held(fresh=False), pytest.raises(ValueError, match="in use by another run"):
        bs.resume(path, problem)
    assert {left.name for left in tmp_path.iterdir()} <= {"run.ckpt", "run.ckpt.previous"}  # no lock is left


def test_what_a_killed_run_has_left_half_written_is_removed(tmp_path):
    (tmp_path / ".run.ckpt.new").write_bytes(b"half")
    (tmp_path / ".run.ckpt.12.34").write_bytes(b"half")
    with Checkpoints(tmp_path / "run.ckpt").held(fresh=True):
        assert [left.name for left in tmp_path.iterdir()] == ["run.ckpt.lock"]


def test_kills_at_random_moments_leave_a_file_that_goes_on():
    found = stress_kills.main(2, ["FullyProjected"])  # `make stress` has a hundred
    assert found == 0
