"""Chunks on several devices and processes: each brings its own rows, and step k is made with those of all of them."""

from typing import Any

import numpy as np
import pytest

import bisaddle as bs
from bisaddle.streams.spread import Spread
from tests.parallel_start import answer, together, worker
from tests.test_streams import ARRAYS, METHOD, PART, START

STOPPED, WHOLE = 7, 50


def on(processes, devices, **order):
    """The answers of all processes; of one, a list of its own."""
    order = {"do": "streaming", **order}
    return [answer(worker({"devices": devices, **order}))] if processes == 1 else together(processes, devices, **order)


def options(tmp_path, name, steps):
    return {"tol": None, "max_steps": steps, "every": 10, "checkpoint": str(tmp_path / name), "checkpoint_every": 0.0}


def moved(found):
    """What the collectives of the steps and of the certificate send, and how often a chunk is among it."""
    return [text for texts in found["collectives"].values() for text in texts]


@pytest.mark.slow
@pytest.mark.parametrize("sampled", [False, True], ids=["chunks", "batches"])
def test_processes_stream_their_own_files_and_resume_amidst_an_epoch_bit_by_bit(sampled, tmp_path):
    order = {"folder": str(tmp_path), "sampled": sampled}
    (one,) = on(1, 1, options=options(tmp_path, "one", WHOLE), **order)
    whole, other = on(2, 1, options=options(tmp_path, "two", WHOLE), **order)
    assert whole == other and whole["steps"] == one["steps"] == WHOLE and whole["words"] == one["words"]
    np.testing.assert_allclose(whole["last"], one["last"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(whole["gaps"], [one["gaps"][1]] * 3, rtol=1e-9)  # that of all rows at once
    np.testing.assert_allclose(whole["values"], [one["values"][1]] * 2, rtol=1e-9)
    assert whole["blocks"] == 1 and moved(whole)
    assert not any("all-gather" in text and "[60" in text for text in moved(whole))  # no chunk is gathered
    on(2, 1, options=options(tmp_path, "run", STOPPED), **order)
    for found in on(2, 1, options=options(tmp_path, "run", WHOLE), resume=True, **order):
        assert (found["last"], found["trace"]) == (whole["last"], whole["trace"])


@pytest.mark.slow
def test_a_run_of_two_processes_goes_on_in_one(tmp_path):
    order = {"folder": str(tmp_path)}
    on(2, 1, options=options(tmp_path, "run", STOPPED), **order)
    (found,) = on(1, 2, options=options(tmp_path, "run", WHOLE), resume=True, **order)
    (whole,) = on(1, 1, options=options(tmp_path, "whole", WHOLE), over=False, **order)
    np.testing.assert_allclose(found["last"], whole["last"], rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("odd", "words"),
    [
        ({"rows": 90}, "the same number of chunks in its Chunks, given 4 in process 0, 3 in process 1"),
        ({"size": 24}, "number of chunks|rows in a chunk"),
        ({"seed": 4}, "the same seed in its Chunks, given 3 in process 0, 4 in process 1"),
        ({"steps": 2}, "the same steps"),
    ],
)
def test_what_cannot_go_together_is_refused_in_every_process_before_anything_compiles(odd, words, tmp_path):
    odd = {**odd, "last": "drop"} if odd.get("size") else odd
    run = {"tol": None, "max_steps": 10}
    for found in together(2, 1, do="streaming", folder=str(tmp_path), options=run, odd=odd):
        assert any(word in found["error"] for word in words.split("|")), found
        assert found["programs"] == 0


@pytest.mark.slow
def test_a_gram_of_files_that_each_process_has_for_itself(tmp_path):
    first, second = together(2, 1, do="gram", folder=str(tmp_path))
    assert first == second
    table = np.column_stack([ARRAYS["rows"], ARRAYS["labels"]])
    np.testing.assert_allclose(first["sums"], (table.T @ table).ravel(), rtol=1e-12)
    np.testing.assert_allclose(first["mean"], table.mean(axis=0)[:-1], rtol=1e-12)
    assert first["counts"] == [len(table)]


def test_several_devices_share_each_chunk(tmp_path):
    order = {"folder": str(tmp_path), "options": {"tol": None, "max_steps": 22, "every": 10}}
    (many,), (one,) = on(1, 4, **order), on(1, 4, over=False, **order)
    np.testing.assert_allclose(many["last"], one["last"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(many["gaps"], one["gaps"], rtol=1e-9)
    assert moved(many) and not moved(one)
    assert not any("all-gather" in text and "[60" in text for text in moved(many))
    (odd,) = on(1, 4, odd={"size": 30}, **order)
    assert "chunks of 30 rows cannot be split over 4 devices of a process; use size=28" in odd["error"]


def test_a_mesh_that_is_none_is_refused(unchecked_types):
    named: Any = "rows"
    chunks = bs.streams.Chunks(ARRAYS, 60, mesh=named)
    with pytest.raises(ValueError, match="mesh of Chunks must have one axis"):
        bs.solve(PART, START, METHOD, data=chunks)


def test_shares_count_the_rows_of_all_processes():
    """100 and 70 rows in chunks of 60: the second chunks have 40 and 10, and the others are padding."""
    spread = Spread(bs.parallel.mesh("rows"), [100, 70], 60)
    np.testing.assert_allclose([spread.share(0), spread.share(1)], [120 / 170, 50 / 170])
