"""Gram matrices in one pass, against direct sums whatever the chunks; problems made of them, against those of rows."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.apps import grams, hyperparameter, multitask
from bisaddle.apps.folds import deal, moments, sums
from bisaddle.streams import Gram, gram, parquet, rows

rng = np.random.default_rng(0)
N, D, T = 500, 4, 3
FEATURES = rng.normal(size=(N, D)) * [1, 10, 0.1, 1] + [0, 3, -1, 5]
TARGETS = FEATURES @ rng.normal(size=D) + rng.normal(size=N)
TASK = rng.integers(0, T, N)


def direct(shift=0.0, scale=1.0, task=TASK, count=T):
    """Row by row, in long doubles."""
    z = np.column_stack([(FEATURES - shift) / scale, TARGETS]).astype(np.longdouble)
    return np.stack([sum(np.outer(u, u) for u in z[task == t]) for t in range(count)])


@pytest.mark.parametrize("size", [1, 7, 128, N, 10 * N])
def test_sums_are_those_of_all_rows_whatever_the_chunks(size):
    found = gram(rows(FEATURES, TARGETS, TASK, size=size), tasks=T)
    second, counts = found.sums()
    np.testing.assert_array_equal(counts, np.bincount(TASK))
    np.testing.assert_allclose(second, direct(), rtol=1e-12, atol=1e-12)
    shift, scale = FEATURES.mean(axis=0), FEATURES.std(axis=0)
    np.testing.assert_allclose(found.mean, shift, rtol=1e-14)
    np.testing.assert_allclose(found.deviation, scale, rtol=1e-13)
    np.testing.assert_allclose(found.sums(shift, scale)[0], direct(shift, scale), rtol=1e-10, atol=1e-10)


def test_an_intercept_is_a_column_of_ones():
    found = gram(rows(FEATURES, TARGETS, TASK, size=50), tasks=T)
    second, _ = found.sums(found.mean, found.deviation, intercept=True)
    z = np.column_stack([np.ones(N), (FEATURES - found.mean) / found.deviation, TARGETS])
    expected = np.stack([z[TASK == t].T @ z[TASK == t] for t in range(T)])
    np.testing.assert_allclose(second, expected, rtol=1e-10, atol=1e-10)


def test_a_mean_far_away_takes_no_digits_from_the_spread():
    """Sums of squares without a shift would have lost all of them: 1e9^2 has a rounding of 100."""
    far = FEATURES + 1e9
    found = gram(rows(far, TARGETS, size=17))
    exact = far.astype(np.longdouble).std(axis=0)
    np.testing.assert_allclose(found.deviation, exact, rtol=1e-8)
    plain = (far**2).mean(axis=0) - far.mean(axis=0) ** 2
    assert np.max(np.abs(plain / exact**2 - 1)) > 1


def test_what_many_additions_round_away_is_kept():
    chunks = [(np.full((1, 1), 1.0 + (i % 7)), np.ones(1)) for i in range(20_001)]
    values = np.array([chunk[0][0, 0] for chunk in chunks])
    found = Gram(1)
    found.shift, found.counts[:] = np.array([-1e-3, 0.0]), 1e-300  # a shift that no sum is exact with
    for chunk in chunks:
        found.add(*chunk)
    exact = float(np.sum((values.astype(np.longdouble) + np.longdouble(1e-3)) ** 2))
    assert abs(found.second[0, 0, 0] / exact - 1) <= 4e-16


def test_parts_merge_into_the_whole():
    parts = [gram(rows(FEATURES[i::3], TARGETS[i::3], TASK[i::3], size=20), tasks=T) for i in range(3)]
    merged = Gram(D, T)
    for part in parts:
        merged.merge(part)
    np.testing.assert_allclose(merged.sums()[0], direct(), rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="same columns, tasks and folds"):
        merged.merge(Gram(D + 1, T))


def test_a_memory_map_is_read_in_chunks_and_a_view_of_one_too(tmp_path):
    np.save(tmp_path / "features.npy", FEATURES)
    mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
    found = gram(rows(mapped[100:], TARGETS[100:], TASK[100:], size=64), tasks=T)
    expected = gram([(FEATURES[100:], TARGETS[100:], TASK[100:])], tasks=T)
    np.testing.assert_allclose(found.sums()[0], expected.sums()[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(mapped, FEATURES)
    changed = np.load(tmp_path / "features.npy", mmap_mode="c")
    changed[3] = 7.0  # on pages of this process alone: giving them back would lose it
    gram(rows(changed, TARGETS, size=64))
    assert np.all(changed[3] == 7.0)


def test_columns_of_parquet_files(tmp_path):
    write_table = pytest.importorskip("pyarrow.parquet").write_table
    table = pytest.importorskip("pyarrow").table
    names = [f"c{i}" for i in range(D)]
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        columns = dict(zip(names, FEATURES[part].T, strict=True)) | {"t": TARGETS[part], "task": TASK[part]}
        write_table(table(columns), tmp_path / f"{i}.parquet")
    paths = sorted(tmp_path.glob("*.parquet"))
    found = gram(parquet(paths, names, "t", "task", size=40), tasks=T)
    np.testing.assert_allclose(found.sums()[0], direct(), rtol=1e-12, atol=1e-12)
    with pytest.raises(ValueError, match="no column 'c9'"):
        gram(parquet(paths[0], ["c9"], "t"))
    hole = table({"c0": [1.0, None], "t": [1.0, 2.0]})
    write_table(hole, tmp_path / "hole.parquet")
    with pytest.raises(ValueError, match="chunk 0: .*finite"):
        gram(parquet(tmp_path / "hole.parquet", ["c0"], "t"))


def test_regression_is_that_of_the_rows():
    tasks = multitask.synthetic(300, 5, 3)
    stacked = [np.concatenate(part) for part in zip(*tasks, strict=True)]
    codes = [np.repeat(np.arange(3), [len(task[i]) for task in tasks]) for i in (0, 2)]
    train = gram(rows(stacked[0], stacked[1], codes[0], size=31), tasks=3)
    valid = gram(rows(stacked[2], stacked[3], codes[1], size=31), tasks=3)
    sizes = (3.0, 0.2, 0.1)  # radius, ridge, divergence
    wanted, start = multitask.regression(tasks, *sizes, form="gram")
    problem, first = grams.regression(train, valid, *sizes)
    for mine, theirs in zip(jax.tree.leaves((problem, first)), jax.tree.leaves((wanted, start)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-12)
    result = bs.solve(problem, first, tol=1e-5, progress=False)
    assert result.status is bs.Status.CERTIFIED
    assert bs.certify(wanted, result.point).within(2e-5)


def test_tuning_is_that_of_the_rows():
    fold = deal(TASK, 3, 0)
    found = Gram(D, T, 3)
    for at in range(0, N, 64):
        part = slice(at, at + 64)
        found.add(FEATURES[part], TARGETS[part], TASK[part], fold[part])
    problem, start = grams.tuning(found, penalties="each")
    z = (FEATURES - FEATURES.mean(axis=0)) / FEATURES.std(axis=0)
    wanted, first = hyperparameter.tuning(z, TARGETS, TASK, penalties="each", folds=3, seed=0)
    assert jax.tree.structure((problem, start)) == jax.tree.structure((wanted, first))
    for mine, theirs in zip(jax.tree.leaves((problem, start)), jax.tree.leaves((wanted, first)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)
    exact = moments(*sums(z, TARGETS, TASK, fold, (3, T)))
    np.testing.assert_allclose(problem.data["rows"].gram, exact.gram, atol=1e-11)


def test_folds_are_dealt_evenly_and_by_the_seed():
    dealt = [gram(rows(FEATURES, TARGETS, TASK, size=50), tasks=T, folds=4, seed=seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(dealt[0].counts, dealt[1].counts)
    assert not np.array_equal(dealt[0].counts, dealt[2].counts)
    per_fold = dealt[0].counts.reshape(4, T).sum(axis=1)
    assert np.ptp(per_fold) <= 10  # one a chunk at most
    np.testing.assert_allclose(dealt[0].second.sum(axis=0), gram(rows(FEATURES, TARGETS, size=50)).second[0], rtol=1e-9)


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("no chunk of rows", lambda: gram([])),
        ("chunk 0 must be", lambda: gram([FEATURES])),  # pyright: ignore
        ("chunk 1: features .n, 4.", lambda: gram([(FEATURES, TARGETS), (FEATURES[:, :2], TARGETS)])),
        ("finite", lambda: gram([(FEATURES * np.nan, TARGETS)])),
        ("task must be a whole number from 0 to 1", lambda: gram([(FEATURES, TARGETS, TASK)], tasks=2)),
        ("features .n, d., targets", lambda: rows(FEATURES, TARGETS[1:])),
        ("size must be", lambda: rows(FEATURES, TARGETS, size=0)),
        ("same columns and tasks", lambda: grams.regression(Gram_of(2), Gram_of(3))),
        ("has no rows", lambda: grams.regression(gram([(FEATURES, TARGETS)], tasks=2), Gram_of(2))),
        ("without folds", lambda: grams.regression(gram([(FEATURES, TARGETS)], folds=2), Gram_of(1))),
        ("needs a bs.streams.Gram", lambda: grams.regression(FEATURES, TARGETS)),  # pyright: ignore
        ("at least 2 folds", lambda: grams.tuning(Gram_of(3))),
    ],
)
def test_bad_input_is_refused(unchecked_types, words, call):
    with pytest.raises(ValueError, match=words):
        call()


def Gram_of(tasks):
    return gram([(FEATURES, TARGETS, np.arange(N) % tasks)], tasks=tasks)


PROCESS = """
import sys, jax, numpy as np
jax.config.update("jax_platforms", "cpu")
me = int(sys.argv[1])
jax.distributed.initialize(f"127.0.0.1:{sys.argv[2]}", 2, me, heartbeat_timeout_seconds=20, initialization_timeout=60)
from bisaddle.streams import gram, rows
all_rows = np.random.default_rng(0).normal(size=(300, 3)) + 5
mine = all_rows[:100] if me == 0 else all_rows[100:]
found = gram(rows(mine[:, :2], mine[:, 2], size=33))
exact = all_rows.T @ all_rows
assert found.counts.sum() == 300 and np.allclose(found.sums()[0][0], exact, rtol=1e-13), found.sums()
print("sums", found.sums()[0].tobytes().hex())
"""


@pytest.mark.slow
def test_processes_merge_what_each_has_read(tmp_path):
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "process.py"
    script.write_text(PROCESS)
    started = [
        subprocess.Popen([sys.executable, str(script), str(i), str(port)], stdout=-1, stderr=-1, text=True)
        for i in range(2)
    ]
    ends = [process.communicate(timeout=180) for process in started]
    assert [process.returncode for process in started] == [0, 0], ends
    lines = [next(line for line in out.splitlines() if line.startswith("sums")) for out, _ in ends]
    assert lines[0] == lines[1]
