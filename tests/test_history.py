"""What a run remembers is bounded, and keeps what matters."""

import numpy as np
import pytest

import bisaddle as bs
from bisaddle.methods.base import Counts, Look
from bisaddle.run import history
from bisaddle.run.history import COLUMNS, GAP, MOST_ROWS, K, Rows
from tests.test_solve import fully_projected, quadratic


def look(k, gap):
    empty = np.zeros(0)
    return Look(k, empty, empty, empty, empty, gap / 2, gap / 2, -gap, Counts(k, 2 * k, 3 * k, 4 * k, 5 * k))


def filled(gaps):
    rows = Rows()
    for k, gap in enumerate(gaps):
        one = look(k, gap)
        rows.add(k, 0.1 * k, one, one.counts)
    return rows


def test_the_columns_are_those_of_a_trace():
    assert COLUMNS == tuple(bs.Trace.__dataclass_fields__)


@pytest.mark.parametrize("count", [1, 2, 63, 65, 1000, MOST_ROWS])
def test_nothing_is_left_out_of_a_short_trace(count):
    gaps = np.random.default_rng(0).random(count)
    found = filled(gaps).rows()
    np.testing.assert_array_equal(found[:, K], np.arange(count))
    np.testing.assert_array_equal(found[:, GAP], gaps / 2 + gaps / 2)


@pytest.mark.parametrize("count", [MOST_ROWS + 1, 3 * MOST_ROWS + 5, 20_000])
def test_a_long_trace_keeps_its_ends_and_the_least_gap_of_every_bucket(count):
    rng = np.random.default_rng(1)
    gaps = np.where(rng.random(count) < 0.1, np.nan, rng.random(count))
    rows = filled(gaps)
    found = rows.rows()
    assert MOST_ROWS // 2 <= len(found) <= MOST_ROWS + 2 and rows.sound
    kept = found[:, K].astype(int)
    assert kept[0] == 0 and kept[-1] == count - 1 and np.all(np.diff(kept) > 0)
    np.testing.assert_array_equal(found[:, GAP], gaps[kept] / 2 + gaps[kept] / 2)
    for begin in range(0, count, rows.stride):
        bucket = np.where(np.isnan(gaps), np.inf, gaps)[begin : begin + rows.stride]
        assert begin + int(np.argmin(bucket)) in kept
    np.testing.assert_array_equal(found[:, COLUMNS.index("hvps")], 2 * kept)


def test_a_copy_stays_as_it_is_and_goes_on_as_the_original():
    gaps = np.random.default_rng(2).random(3 * MOST_ROWS)
    rows = filled(gaps[:5000])
    copy, before = rows.copy(), rows.rows().copy()
    for one in (rows, copy):
        for k in range(5000, len(gaps)):
            there = look(k, gaps[k])
            one.add(k, 0.1 * k, there, there.counts)
        if one is rows:
            np.testing.assert_array_equal(copy.rows(), before)
    np.testing.assert_array_equal(copy.rows(), rows.rows())
    np.testing.assert_array_equal(rows.rows(), filled(gaps).rows())


@pytest.mark.parametrize("method", [None, fully_projected()], ids=["Adaptive", "FullyProjected"])
def test_a_thinned_run_has_the_point_and_the_minima_of_the_whole_one(method, monkeypatch):
    problem, start = quadratic()
    options = {"tol": None, "max_steps": 40, "every": 1}
    whole = bs.solve(problem, start, method, **options)
    monkeypatch.setattr(history, "MOST_ROWS", 8)
    thin = bs.solve(problem, start, method, **options)
    assert len(whole.trace) == 41 and len(thin.trace) <= 2 * 10
    assert (thin.gap, thin.steps, thin.status) == (whole.gap, whole.steps, whole.status)
    np.testing.assert_array_equal(thin.x, whole.x)
    np.testing.assert_array_equal(thin.last.x, whole.last.x)
    certified = whole.trace.certified
    assert np.min(thin.trace.certified.gap) == np.min(certified.gap)
    for name, column in thin.trace.certified.to_dict().items():
        if name != "seconds":
            np.testing.assert_array_equal(column, getattr(certified, name)[thin.trace.certified.k])
