"""Checkpoints in a folder: states that are not gathered, written by all processes, and whole whenever one is killed."""

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import programs
from bisaddle.parallel import keeping
from bisaddle.run import blocks
from bisaddle.run.checkpoint import Checkpoints, read
from bisaddle.run.states import States
from tests.parallel_start import answer, end, free_port, together, worker
from tests.test_checkpoint import assert_same
from tests.test_parallel_keeping import orbax as orbax
from tests.test_solve import fully_projected, quadratic

OPTIONS = {"tol": None, "max_steps": 60, "every": 10}
RUN = {"do": "folders", "kind": "tasks", "form": "gram", "method": "FullyProjected", "tasks": 8}
# the survivor has to be gone by then
SECONDS = 60


def kept(folder):
    """(names in the folder, the state that the file names)"""
    return sorted(path.name for path in Path(folder).iterdir()), read(folder).beside


def is_one(folder):
    """Whether there is one state, which is the one that the file names."""
    names, beside = kept(folder)
    return names == ["checkpoint", *beside] and len(beside) == 1


@pytest.mark.usefixtures("orbax")
def test_a_run_on_four_devices_goes_on_bit_by_bit_and_on_one_up_to_rounding(tmp_path):
    found = answer(worker({"devices": 4, "do": "folders on devices", "folder": str(tmp_path)}))
    sent, (small, large) = found.pop("sent"), found.pop("diverged")
    assert small == large and large["status"] == "DIVERGED"
    for case in found.values():
        assert case["again"] == case["whole"]
        assert case["one"]["steps"] == case["whole"]["steps"] == 60
        np.testing.assert_allclose(case["one"]["point"], case["whole"]["point"], rtol=0, atol=1e-12)
    for name in ("FullyProjected", "MORBiT"):  # what is not sent to every host changes nothing
        assert found[f"large {name}"]["whole"] == found[f"small {name}"]["whole"]
    assert len(sent["small"]) > 4 and sent["large"] == [[1, 1], [1, 1]]  # a step and a magnitude
    assert all(map(is_one, tmp_path.iterdir()))


@pytest.mark.usefixtures("orbax")
@pytest.mark.parametrize("method", [None, fully_projected()], ids=["Adaptive", "FullyProjected"])
@pytest.mark.parametrize("count", [None, 2], ids=["one start", "two"])
def test_a_folder_holds_what_a_file_holds(method, count, tmp_path):
    problem, start = quadratic()
    start = start if count is None else bs.start_points(problem, start, count, jax.random.key(0))
    options: dict[str, Any] = {"tol": 1e-12, "checkpoint_every": 0.0}
    whole = bs.solve(problem, start, method, max_steps=30, **options)
    folder = tmp_path / "run"
    bs.solve(problem, start, method, max_steps=10, checkpoint=f"{folder}/", **options)
    assert method is None or is_one(folder)
    for again in (folder, f"{folder}/", folder / "checkpoint"):  # the folder, as it is there, needs no slash
        assert_same(bs.resume(again, problem, max_steps=30, checkpoint_every=0.0), whole)
    with pytest.raises(ValueError, match="checkpoint is there already"):
        bs.solve(problem, start, method, checkpoint=f"{folder}/")
    with pytest.raises(OSError, match="is a folder; use the name of a file, or '.*run/'"):
        bs.solve(problem, start, method, checkpoint=folder)
    assert not list(tmp_path.rglob("*.previous"))


def test_without_the_extra_nothing_is_compiled(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "orbax", None)
    monkeypatch.setitem(sys.modules, "orbax.checkpoint", None)
    programs.clear()
    problem, start = quadratic()
    with pytest.raises(ImportError, match=r"a checkpoint in a folder needs orbax; use pip install .bisaddle\[orbax\]"):
        bs.solve(problem, start, rtol=0.1, check=True, checkpoint=f"{tmp_path}/run/")
    assert not programs._PROGRAMS and not list(tmp_path.iterdir())


@pytest.mark.usefixtures("orbax")
def test_a_write_that_fails_leaves_the_last_one(monkeypatch, tmp_path):
    problem, start = quadratic()
    options: dict[str, Any] = {"every": 5, "checkpoint": f"{tmp_path}/run/", "checkpoint_every": 0.0}
    whole = bs.solve(problem, start, fully_projected(), tol=None, every=5, max_steps=30)
    saved, calls = keeping.save, []
    monkeypatch.setattr(blocks, "BLOCK_SECONDS", 0.0)  # many small blocks, and a write for each

    def full(folder, tree):
        saved(folder, tree)
        calls.append(folder.name)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(keeping, "save", full)
    with pytest.warns(RuntimeWarning, match="no checkpoint was written to .*No space left"):
        bs.solve(problem, start, fully_projected(), tol=None, max_steps=20, **options)
    assert len(calls) > 2 and kept(tmp_path / "run") == (["checkpoint", calls[1]], calls[1:2])
    monkeypatch.undo()
    # the same where the state is written, and the file is not
    calls.clear()
    switch = Checkpoints._switch

    def no_file(self, kept):
        calls.append(kept.beside[0])
        if len(calls) > 1:
            raise OSError(28, "No space left on device")
        switch(self, kept)

    monkeypatch.setattr(Checkpoints, "_switch", no_file)
    with pytest.warns(RuntimeWarning, match="No space left"):
        bs.resume(tmp_path / "run", problem, max_steps=20, checkpoint_every=0.0)
    assert len(calls) > 1 and kept(tmp_path / "run") == (["checkpoint", calls[0]], calls[:1])
    monkeypatch.undo()
    assert_same(bs.resume(tmp_path / "run", problem, max_steps=30), whole)


@pytest.mark.usefixtures("orbax")
def test_a_callback_that_raises_leaves_one_where_nobody_else_has_to_write(tmp_path):
    problem, start = quadratic()
    options: dict[str, Any] = {"tol": None, "every": 5, "max_steps": 30}
    whole = bs.solve(problem, start, fully_projected(), **options)

    def callback(record):
        if record.k >= 20:
            raise KeyError("of the callback")

    with pytest.raises(KeyError):
        bs.solve(problem, start, fully_projected(), checkpoint=f"{tmp_path}/", callback=callback, **options)
    assert is_one(tmp_path)
    assert_same(bs.resume(tmp_path, problem), whole)


@pytest.mark.usefixtures("orbax")
def test_what_is_not_whole_is_refused_in_words(tmp_path):
    problem, start = quadratic()
    bs.solve(problem, start, fully_projected(), tol=None, max_steps=5, checkpoint=f"{tmp_path}/")
    (named,) = kept(tmp_path)[1]
    shutil.copytree(tmp_path / named, tmp_path / "aside")
    for path in (tmp_path / named).rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="does not fit the problem and the method: .*state-"):
        bs.resume(tmp_path, problem)
    shutil.rmtree(tmp_path / named)
    with pytest.raises(ValueError, match=f"{named} is no folder"):
        bs.resume(tmp_path, problem)
    assert (tmp_path / "aside").is_dir()  # which is not ours
    with pytest.raises(ValueError, match="it names the state .*other"):
        States(tmp_path).go_on(["../other"])


@pytest.mark.usefixtures("orbax")
def test_a_folder_that_another_run_has_written_since_it_was_read_is_refused(tmp_path):
    problem, start = quadratic()
    bs.solve(problem, start, fully_projected(), tol=None, max_steps=5, checkpoint=f"{tmp_path}/")
    before = Checkpoints.after(tmp_path, 0.0, read(tmp_path))
    bs.resume(tmp_path, problem, max_steps=10)
    with pytest.raises(ValueError, match="written by another run just now"), before.held(fresh=False):
        pass
    assert is_one(tmp_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run on two processes that nobody kills, one of them slow, so that their clocks ask for other writes."""
    pytest.importorskip("orbax.checkpoint")
    folder = tmp_path_factory.mktemp("whole")
    options = {**OPTIONS, "checkpoint": f"{folder}/", "checkpoint_every": 0.05}
    first, second = together(2, 2, **RUN, slow=True, options=options)
    assert first == second
    assert is_one(folder)
    assert len(list(folder.glob("checkpoint.state-*/ocdbt.process_*"))) == 2  # each has written its own part
    return first


@pytest.mark.slow
@pytest.mark.usefixtures("orbax")
def test_a_folder_is_taken_up_on_another_number_of_processes(whole, tmp_path):
    place = tmp_path / "run"
    together(2, 2, **RUN, options={**OPTIONS, "max_steps": 20, "checkpoint": f"{place}/"})
    for processes, devices, atol in ((2, 2, 0.0), (1, 4, 1e-12), (1, 1, 1e-12)):
        copy = shutil.copytree(place, tmp_path / f"{processes}-{devices}")
        for each in together(processes, devices, **RUN, options={**OPTIONS, "checkpoint": f"{copy}/"}, resume=True):
            np.testing.assert_allclose(each["point"], whole["point"], rtol=0, atol=atol)
            assert (each["status"], each["steps"]) == (whole["status"], whole["steps"])
        assert is_one(copy)


def pair_with(**order):
    """(process 0, process 1), started."""
    address = f"127.0.0.1:{free_port()}"
    return [worker({**RUN, **order, "devices": 2, "join": [address, 2, i]}) for i in range(2)]


@pytest.mark.slow
@pytest.mark.usefixtures("orbax")
@pytest.mark.parametrize(
    ("victim", "where"), [(1, "part"), (0, "part"), (0, "switch"), (0, "tidy")], ids=lambda value: str(value)
)
def test_a_kill_in_the_middle_of_a_write_leaves_the_last_whole_one(victim, where, whole, tmp_path):
    options = {**OPTIONS, "checkpoint": f"{tmp_path}/", "checkpoint_every": 0.0}
    pair = pair_with(options=options, dies=[victim, where, 3])
    try:
        assert pair[victim].wait(timeout=240) == -9
        clock = time.monotonic()
        _, err = pair[1 - victim].communicate(timeout=SECONDS)
        print(f"{where}: the other ended after {time.monotonic() - clock:.1f} s, code {pair[1 - victim].returncode}")
        assert pair[1 - victim].returncode, err[-2000:]
        words = ("another process of this run has ended", "of this run is lost", "distributed service")
        assert any(word in err for word in words), err[-2000:]
    except subprocess.TimeoutExpired:
        pytest.fail(f"the other process was still there {SECONDS} s after process {victim} was killed")
    finally:
        end(pair)
    names, beside = kept(tmp_path)
    states = [name for name in names if ".state-" in name]
    left = {"part": "checkpoint.state-3.orbax", "switch": "checkpoint.state-3", "tidy": "checkpoint.state-2"}[where]
    assert beside == ["checkpoint.state-3" if where == "tidy" else "checkpoint.state-2"]
    assert len(states) == 2 and any(name.startswith(left) for name in states), names
    for found in together(2, 2, **RUN, options=options, resume=True):
        assert found == whole  # bit by bit
    assert is_one(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("orbax")
def test_after_an_error_in_one_process_nothing_is_written(whole, tmp_path):
    options = {**OPTIONS, "checkpoint": f"{tmp_path}/", "checkpoint_every": 3600.0}
    pair = pair_with(options=options, fails=30)
    try:
        errors = [process.communicate(timeout=240)[1] for process in pair]
        print("codes after an error in process 1:", [process.returncode for process in pair])
        assert all(process.returncode for process in pair)
        assert "of the callback" in errors[1]
    finally:
        end(pair)
    assert kept(tmp_path)[1] == ["checkpoint.state-1"]  # the one of the beginning
    for found in together(2, 2, **RUN, options=options, resume=True):
        assert found == whole
