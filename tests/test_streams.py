"""Rows that are streamed: the certificate is that of all rows, steps and resumed steps are those of a plain loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import programs
from bisaddle.certificate.certifier import Certifier, Gap
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.streamed import StreamedKernels
from bisaddle.run.blocks import _block
from bisaddle.streams import Chunks
from bisaddle.streams.chunks import Reader

rng = np.random.default_rng(0)
N, D = 240, 3
ROWS = rng.normal(size=(N, D))
LABELS = (ROWS @ [1.0, -1.0, 0.5] + 0.5 * rng.normal(size=N) > 0).astype(float)
FIXED = {"ridge": np.asarray(0.3)}
START = bs.Point(x=np.zeros(D), theta=np.zeros(D), y=np.full(2, 0.5))


def _mean(losses, data):
    weights = data.get("weights")
    return jnp.mean(losses) if weights is None else jnp.sum(weights * losses) / jnp.sum(weights)


def upper(x, theta, y, data):
    logistic = _mean(jax.nn.softplus(data["rows"] @ theta) - data["labels"] * (data["rows"] @ theta), data)
    other = _mean(jnp.square(data["rows"] @ (theta - x) - data["labels"]), data)
    return y @ jnp.stack([logistic, other]) - 0.1 * y @ y + 0.05 * x @ x


def lower(x, theta, data):
    z = data["rows"] @ theta
    return _mean(jax.nn.softplus(z) - data["labels"] * z, data) + data["ridge"] * jnp.sum(jnp.square(theta - x))


def posed(data):
    return bs.Problem(upper, lower, bs.sets.L2Ball(1.0), bs.sets.Simplex(), data=data)


WHOLE = posed(FIXED | {"rows": ROWS, "labels": LABELS})
PART = posed(FIXED)
ARRAYS = {"rows": ROWS, "labels": LABELS}
STEPS = bs.StepSizes(alpha=0.5, eta=0.5, gamma=0.3, tau=0.5, sigma=0.5, mu=0.0)
METHOD = bs.methods.FullyProjected(STEPS)


def kernels_of(chunks):
    beside = chunks.beside(PART.data)
    return StreamedKernels(posed(beside.data(0)), START, beside)


@pytest.mark.parametrize("chunks", [Chunks(ARRAYS, 60), Chunks(ARRAYS, 100, last="pad")], ids=["even", "padded"])
def test_kernels_are_those_of_all_rows(chunks):
    mine, theirs = kernels_of(chunks), Kernels(WHOLE, START)
    draw = np.random.default_rng(1).normal
    x, theta, v, w = (0.3 * draw(size=D) for _ in range(4))
    y, ends = np.array([0.3, 0.7]), draw(size=(2, D))

    def same(call, rtol=1e-12):
        for a, b in zip(jax.tree.leaves(call(mine)), jax.tree.leaves(call(theirs)), strict=True):
            np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-13)

    same(lambda k: k.upper(x, theta, y))
    same(lambda k: k.lower_gradient(x, theta))
    same(lambda k: k.hessian_product(x, theta, v))
    same(lambda k: k.cross_product(x, theta, v))
    same(lambda k: k.products(x, theta, v, w))
    same(lambda k: k.columns(x, theta))
    same(lambda k: k.bends(x, theta, y, w, ends))
    same(lambda k: k.norms(x, theta, y, w, ends))
    same(lambda k: k.norms(x, theta, y, w, ends, 2))
    for options in ({}, {"start": w}, {"cross": True}, {"limit": 2}, {"enough": 1e9}):
        same(lambda k, o=options: k.solve(x, theta, v, 1e-11, **o)[:4], 1e-8)
        same(lambda k, o=options: k.solve(x, theta, None, 1e-11, **o)[:4], 1e-8)
    assert mine.solve(x, theta, v, 1e-11).products == theirs.solve(x, theta, v, 1e-11).products


def test_a_large_x_sees_all_chunks(monkeypatch):
    monkeypatch.setattr("bisaddle.oracle.kernels.LARGE", 1)  # as if it were
    mine = kernels_of(Chunks(ARRAYS, 60))
    monkeypatch.undo()
    assert mine.wide
    x, theta, y = np.full(D, 0.1), np.full(D, 0.2), np.array([0.3, 0.7])
    for a, b in zip(mine.upper(x, theta, y), Kernels(WHOLE, START).upper(x, theta, y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_a_solve_meets_a_lower_level_that_is_not_convex():
    chunks = Chunks({"rows": ROWS, "labels": LABELS}, 60)
    beside = chunks.beside({"ridge": np.asarray(-3.0)})
    kernels = StreamedKernels(posed(beside.data(0)), START, beside)
    found = kernels.solve(np.zeros(D), np.zeros(D), np.ones(D), 1e-9)
    assert np.linalg.norm(found.r) > 1e-9 and found.products < D


def test_the_certificate_is_that_of_all_rows():
    chunks = Chunks(ARRAYS, 100, last="pad")
    point = bs.solve(WHOLE, START, tol=1e-3, progress=False).point
    here = bs.certify(WHOLE, point)
    there = bs.certify(PART, point, data=chunks)
    for name in ("x_gap", "y_gap", "value", "worst_value", "lower_error"):
        np.testing.assert_allclose(getattr(there, name), getattr(here, name), rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(there.x_gradient, here.x_gradient, atol=1e-11)
    assert there.error_bound <= 1e-9 and there.within(1e-3)
    # of one chunk alone it is another number
    alone = bs.certify(posed(chunks.beside(FIXED).data(0)), point)
    assert abs(alone.gap - here.gap) > 1e-3


def test_large_lower_levels_are_certified_by_products_alone(monkeypatch):
    monkeypatch.setattr("bisaddle.oracle.implicit.DENSE_LIMIT", 2)
    kernels = kernels_of(Chunks(ARRAYS, 60))
    monkeypatch.setattr(kernels, "columns", None)
    streamed = Certifier(PART, kernels, Gap("projection")).certificate(*kernels.flat(START))
    whole = Certifier(WHOLE, Kernels(WHOLE, START), Gap("projection")).certificate(*kernels.flat(START))
    np.testing.assert_allclose(streamed.gap, whole.gap, rtol=1e-9)
    assert streamed.error_bound <= 1e-8


def test_steps_are_those_of_a_plain_loop_over_the_chunks():
    chunks = Chunks(ARRAYS, 60, steps=3, seed=5)
    result = bs.solve(PART, START, METHOD, data=chunks, tol=None, max_steps=25, progress=False)
    state = METHOD.init(WHOLE, START)
    step = jax.jit(lambda data, state: METHOD.step(posed(data), state))
    for k in range(25):
        epoch, place = divmod(k // 3, 4)
        i = np.random.default_rng([5, epoch]).permutation(4)[place]
        part = slice(60 * i, 60 * (i + 1))
        state = step(FIXED | {"rows": ROWS[part], "labels": LABELS[part]}, state)
    for mine, theirs in zip(jax.tree.leaves(result.last), jax.tree.leaves(state.point), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-12)


def test_a_run_certifies_with_one_program_of_steps():
    programs.clear()
    decreasing = bs.StepSizes(alpha=0.5, eta=0.5, gamma=lambda k: 1 / (1 + 0.03 * k), tau=0.5, sigma=0.5, mu=0.0)
    batch = bs.methods.Batch(lambda data: (data["rows"], data["labels"]), 40)
    method = bs.methods.FullyProjected(decreasing, sampler=bs.methods.Sampler(upper=batch, lower=batch), seed=1)
    chunks = Chunks(ARRAYS, 60, steps=10)
    result = bs.solve(PART, START, method, data=chunks, tol=0.05, max_steps=4000, progress=False)
    assert result.status is bs.Status.CERTIFIED, result
    assert bs.certify(WHOLE, result.point).within(0.05)
    assert sum(key[0] is _block for key in programs._PROGRAMS) == 1


@pytest.mark.parametrize("stop", [7, 30])
def test_a_run_is_taken_up_amidst_an_epoch_bit_by_bit(tmp_path, stop):
    chunks = Chunks(ARRAYS, 60, steps=5, seed=3)
    batch = bs.methods.Batch(lambda data: (data["rows"], data["labels"]), 16)
    method = bs.methods.FullyProjected(STEPS, sampler=bs.methods.Sampler(upper=batch, lower=batch), seed=2)
    options = {"tol": None, "progress": False, "data": chunks, "every": 10}
    whole = bs.solve(PART, START, method, max_steps=50, checkpoint=tmp_path / "whole", **options)
    file = tmp_path / "run"
    bs.solve(PART, START, method, max_steps=stop, checkpoint=file, checkpoint_every=0, **options)
    resumed = bs.resume(file, PART, method, max_steps=50, data=chunks, progress=False)
    for mine, theirs in zip(jax.tree.leaves(resumed.last), jax.tree.leaves(whole.last), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert resumed.trace.k[-1] == 50


def test_resume_wants_the_same_chunks(tmp_path):
    chunks = Chunks(ARRAYS, 60, steps=5)
    file = tmp_path / "run"
    bs.solve(PART, START, METHOD, data=chunks, tol=None, max_steps=7, checkpoint=file, progress=False)
    for others in (None, Chunks(ARRAYS, 60, steps=4), Chunks(ARRAYS, 60, steps=5, seed=1), Chunks(ARRAYS, 80, steps=5)):
        with pytest.raises(ValueError, match="the problem is not that of"):
            bs.resume(file, WHOLE if others is None else PART, METHOD, data=others, progress=False)


def test_several_starts_share_the_chunks():
    starts = [START, bs.Point(x=np.full(D, 0.5), theta=np.zeros(D), y=np.array([1.0, 0.0]))]
    options = {"data": Chunks(ARRAYS, 60, steps=5), "tol": None, "max_steps": 22, "progress": False}
    both = bs.solve(PART, starts, METHOD, **options)
    for start, result in zip(starts, both.starts, strict=True):
        alone = bs.solve(PART, start, METHOD, **options)
        np.testing.assert_allclose(result.last.theta, alone.last.theta, rtol=1e-10)


def test_an_epoch_visits_every_chunk_once_and_the_seed_makes_the_order():
    chunks = Chunks(ARRAYS, 20, seed=1)
    epochs = [[chunks.visited(12 * e + i) for i in range(12)] for e in range(3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert [Chunks(ARRAYS, 20, seed=2).visited(i) for i in range(12)] != epochs[0]
    assert [Chunks(ARRAYS, 20, shuffle=False).visited(i) for i in range(13)] == [*range(12), 0]
    assert Chunks(ARRAYS, 20, steps=7).epochs(3) == 3 * 12 * 7


def test_a_function_of_chunks_may_fill_the_same_arrays_again():
    buffer = {"rows": np.empty((60, D)), "labels": np.empty(60)}

    def load(i):
        buffer["rows"][:] = ROWS[60 * i : 60 * (i + 1)]
        buffer["labels"][:] = LABELS[60 * i : 60 * (i + 1)]
        return buffer

    chunks, expected = Chunks(load, count=4), Chunks(ARRAYS, 60)
    assert (chunks.rows, chunks.size) == (N, 60)
    readers = Reader(chunks), Reader(expected)
    for k in range(9):
        mine, theirs = (reader.at(k) for reader in readers)
        np.testing.assert_array_equal(mine["rows"], theirs["rows"])
    for reader in readers:
        reader.close()


def test_what_goes_wrong_while_reading_ends_the_run():
    def load(i):
        if i == 2 and not first:
            raise OSError("the disk is gone")
        return {"rows": ROWS[60 * i : 60 * (i + 1)], "labels": LABELS[60 * i : 60 * (i + 1)]}

    first = True
    chunks = Chunks(load, count=4)
    first = False
    with pytest.raises(OSError, match="the disk is gone"):
        bs.solve(PART, START, METHOD, data=chunks, max_steps=20, progress=False)


def test_dropped_rows_are_said():
    chunks = Chunks(ARRAYS, 100, last="drop")
    assert (chunks.count, chunks.rows, chunks.dropped) == (2, 200, 40)
    assert "40 rows left out" in repr(chunks)
    here = bs.certify(PART, START, data=chunks)
    kept = bs.certify(posed(FIXED | {"rows": ROWS[:200], "labels": LABELS[:200]}), START)
    np.testing.assert_allclose(here.gap, kept.gap, rtol=1e-10)


def _uneven(i):
    return {"rows": ROWS[: 60 - (i == 1)], "labels": LABELS[: 60 - (i == 1)]}


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("leave 40 over; last=.drop", lambda: Chunks(ARRAYS, 100)),
        ("count=", lambda: Chunks(lambda i: ARRAYS)),
        ("count is for a function", lambda: Chunks(ARRAYS, 60, count=4)),
        ("same number of rows", lambda: Chunks({"rows": ROWS, "labels": LABELS[1:]}, 60)),
        ("an iterator can be read once only", lambda: Chunks(iter([ARRAYS]), 60)),
        ("last must be", lambda: Chunks(ARRAYS, 60, last="keep")),
        ("chunk 1 has 59 rows, 60 are needed", lambda: Chunks(_uneven, count=3)[1]),
        ("a dict without 'weights'", lambda: Chunks(ROWS, 100, last="pad")),
        ("with other names", lambda: bs.solve(WHOLE, START, METHOD, data=Chunks(ARRAYS, 60))),
        ("must be a bs.streams.Chunks", lambda: bs.solve(PART, START, METHOD, data=ARRAYS)),
        ("Adaptive is driven by values", lambda: bs.solve(PART, START, data=Chunks(ARRAYS, 60))),
        ("SABA remembers", lambda: _solve_with(bs.methods.SABA(bs.StepSizes(alpha=0.1, eta=0.1, tau=0.1)))),
        ("GDA asks for all rows", lambda: _solve_with(bs.methods.GDA(bs.StepSizes(tau=0.1, sigma=0.1)))),
    ],
)
def test_bad_input_is_refused(unchecked_types, words, call):
    with pytest.raises(ValueError, match=words):
        call()


def _solve_with(method):
    bs.solve(PART, START, method, data=Chunks(ARRAYS, 60))


def test_chunks_of_another_shape_are_refused():
    def load(i):
        return {"rows": ROWS[:60, : D - (i == 1)], "labels": LABELS[:60]}

    with pytest.raises(ValueError, match="chunk 1 has arrays .*those of chunk 0"):
        Chunks(load, count=3)[1]
