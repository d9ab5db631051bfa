"""solve: stop rules, status, records, determinism, interruption, and what a user meets first."""

import re
import signal
import threading
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.methods.base import UNROLL
from bisaddle.run.blocks import advance

STEPS = dict(alpha=0.5, eta=0.5, gamma=0.2, tau=0.5, sigma=0.5, mu=0.0)


def _upper(x, theta, y, data):
    return theta @ data["P"] @ y + x @ data["R"] @ y - 0.5 * jnp.sum(y**2) + 0.5 * jnp.sum(x**2)


def _lower(x, theta, data):
    return 0.5 * theta @ data["A"] @ theta - theta @ (data["B"] @ x + data["c"])


def quadratic(seed=0, n=3, m=4, p=2, **parts):
    """A strongly convex - strongly concave bilevel saddle with inactive sets."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(m, m))
    data = {
        "A": np.eye(m) + 0.1 * root @ root.T,
        "B": 0.3 * rng.normal(size=(m, n)),
        "c": rng.normal(size=m),
        "P": 0.3 * rng.normal(size=(m, p)),
        "R": 0.3 * rng.normal(size=(n, p)),
    }
    sets = {"x_set": bs.sets.L2Ball(10.0), "y_set": bs.sets.Box(-10.0, 10.0), **parts}
    problem = bs.Problem(_upper, _lower, data=jax.tree.map(jnp.asarray, data), **sets)
    return problem, bs.Point(jnp.ones(n), jnp.zeros(m), jnp.ones(p))


def fully_projected(**changes):
    return bs.methods.FullyProjected(bs.StepSizes(**{**STEPS, **changes}))


def test_certified_means_that_the_gap_and_its_error_are_within_tol():
    problem, start = quadratic()
    result = bs.solve(problem, start, fully_projected(), tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    assert float(result.gap + result.certificate.error_bound) <= 1e-6
    independent = bs.certify(problem, result.point)
    np.testing.assert_allclose(result.gap, independent.gap, atol=1e-12)
    assert result.x.shape == (3,) and result.theta.shape == (4,) and result.y.shape == (2,)


def test_the_solution_is_that_of_the_linear_system():
    problem, start = quadratic(seed=1)
    result = bs.solve(problem, start, fully_projected(), tol=1e-9, max_steps=20_000)
    data = jax.tree.map(np.asarray, problem.data)
    K = np.linalg.solve(data["A"], data["B"])
    offset = np.linalg.solve(data["A"], data["c"])
    M = K.T @ data["P"] + data["R"]  # L(x, y) = |x|^2/2 + x'My + offset'Py - |y|^2/2
    x = np.linalg.solve(np.eye(3) + M @ M.T, -M @ data["P"].T @ offset)
    np.testing.assert_allclose(result.x, x, atol=1e-8)
    np.testing.assert_allclose(result.y, M.T @ x + data["P"].T @ offset, atol=1e-8)


def test_tol_none_runs_all_steps_and_records_the_last():
    problem, start = quadratic()
    result = bs.solve(problem, start, fully_projected(), tol=None, max_steps=1003, every=100)
    assert result.status is bs.Status.MAX_STEPS
    assert result.trace.k.tolist() == [*range(0, 1001, 100), 1003]
    assert result.steps == 1003


@pytest.mark.parametrize("every", [1, 7, 50])
def test_iterates_do_not_depend_on_how_often_they_are_recorded(every):
    problem, start = quadratic()
    seen = {}
    bs.solve(
        problem, start, fully_projected(), tol=None, max_steps=50, every=every, callback=lambda r: seen.update({r.k: r})
    )
    assert list(seen) == sorted({*range(0, 50, every), 50})
    method = fully_projected()
    state = advance(problem, method, method.init(problem, start), 50)
    np.testing.assert_allclose(seen[50].point.x, state.x, rtol=1e-13)
    np.testing.assert_allclose(seen[50].point.theta, state.theta, rtol=1e-13)


def test_two_runs_are_the_same_to_the_last_bit():
    problem, start = quadratic()
    runs = [bs.solve(problem, start, fully_projected(), tol=None, max_steps=333, every=10) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].trace.gap, runs[1].trace.gap)
    np.testing.assert_array_equal(runs[0].last.x, runs[1].last.x)


@pytest.mark.parametrize("steps", [0, 1, UNROLL, 2 * UNROLL + 1])
def test_advance_takes_exactly_that_many_steps(steps):
    problem, start = quadratic()
    method = fully_projected()
    state = method.init(problem, start)
    assert int(advance(problem, method, state, steps).k) == steps


def test_best_and_last_are_told_apart():
    problem, start = quadratic()
    # a schedule that converges and then spoils the iterate
    spoiling = fully_projected(gamma=lambda k: jnp.where(k < 400, 0.2, 1.0), tau=lambda k: jnp.where(k < 400, 0.5, 5.0))
    result = bs.solve(problem, start, spoiling, tol=None, max_steps=500, every=50)
    assert result.trace.gap[-1] > 100 * result.trace.gap.min()
    np.testing.assert_allclose(float(result.gap), result.trace.gap.min())
    assert float(bs.certify(problem, result.last).gap) == pytest.approx(result.trace.gap[-1])


def test_divergence_is_named_and_the_last_sound_iterate_comes_back():
    problem, start = quadratic()
    result = bs.solve(problem, start, fully_projected(alpha=5.0), max_steps=5000)
    assert result.status is bs.Status.DIVERGED
    assert np.all(np.isfinite(result.last.theta)) and np.all(np.isfinite(result.x))
    assert "alpha" in result.status.advice
    assert np.abs(result.last.theta).max() <= 1e9


def test_not_a_number_is_named_and_the_last_finite_iterate_comes_back():
    problem, start = quadratic()
    poisoned = fully_projected(gamma=lambda k: jnp.where(k == 137, jnp.nan, 0.2))
    result = bs.solve(problem, start, poisoned, tol=None, max_steps=1000, every=50)
    assert result.status is bs.Status.NONFINITE
    assert result.trace.k[-1] == 137  # 137 sound steps, the 138th is not
    method = fully_projected()
    np.testing.assert_allclose(result.last.x, advance(problem, method, method.init(problem, start), 137).x, rtol=1e-12)


def test_a_function_that_turns_nan_is_a_status_not_an_exception():
    problem, start = quadratic()
    bad = bs.Problem(
        lambda x, theta, y, data: jnp.sqrt(x[0] - 0.99) + _upper(x, theta, y, data),
        _lower, problem.x_set, problem.y_set, problem.data,
    )  # fmt: skip
    result = bs.solve(bad, start, fully_projected(), max_steps=500)
    assert result.status is bs.Status.NONFINITE
    assert np.all(np.isfinite(result.last.x))


def test_max_seconds_stops_in_time():
    problem, start = quadratic()
    method = fully_projected()
    options = {"tol": None, "max_steps": 2_000_000_000}
    bs.solve(problem, start, method, every=10, callback=lambda record: record.k > 0, **options)  # compiles it all
    result = bs.solve(problem, start, method, max_seconds=2, **options)
    assert result.status is bs.Status.MAX_SECONDS
    assert 0 < result.steps < 2_000_000_000


def test_ctrl_c_keeps_what_there_is():
    problem, start = quadratic()
    method = fully_projected()
    bs.solve(problem, start, method, tol=None, max_steps=10)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest's workers ignore it
    timer = threading.Timer(1.0, lambda: signal.raise_signal(signal.SIGINT))
    timer.start()
    try:
        result = bs.solve(problem, start, method, tol=None, max_steps=2_000_000_000, max_seconds=60)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert result.status is bs.Status.INTERRUPTED
    assert result.steps > 0 and np.isfinite(float(result.gap))


def test_the_callback_sees_every_record_and_can_stop():
    problem, start = quadratic()
    seen = []

    def stop_at_third(record):
        seen.append(record.k)
        return len(seen) == 3

    result = bs.solve(problem, start, fully_projected(), tol=None, max_steps=100, every=10, callback=stop_at_third)
    assert seen == [0, 10, 20]
    assert result.status is bs.Status.INTERRUPTED


def test_the_trace_counts_the_oracle_calls_of_the_paper():
    problem, start = quadratic()
    for method, projections, lmos in (
        (fully_projected(), 2, 0),
        (bs.methods.OneSidedProjectionFree(bs.StepSizes(**{**STEPS, "tau": None})), 1, 1),
    ):
        trace = bs.solve(problem, start, method, tol=None, max_steps=100, every=25).trace
        k = trace.k
        np.testing.assert_array_equal(trace.gradients, 2 * k)  # one of f, one of g
        np.testing.assert_array_equal(trace.hvps, k)
        np.testing.assert_array_equal(trace.cross_products, k)
        np.testing.assert_array_equal(trace.projections, projections * k)
        np.testing.assert_array_equal(trace.lmos, lmos * k)


def test_the_trace_is_a_dict_of_arrays_and_a_data_frame():
    problem, start = quadratic()
    trace = bs.solve(problem, start, fully_projected(), tol=None, max_steps=20, every=10).trace
    columns = trace.to_dict()
    assert {"k", "seconds", "x_gap", "y_gap", "value", "worst_value", "lower_error", "hvps", "lmos"} <= set(columns)
    assert all(len(column) == len(trace) == 3 for column in columns.values())
    frame = trace.to_pandas()
    assert frame.shape == (3, len(columns))
    assert np.all(np.diff(trace.seconds) > 0)


@pytest.mark.parametrize("missing", ["lower", "y"])
def test_the_default_method_solves_each_kind_of_problem(missing):
    problem, start = quadratic()
    if missing == "lower":
        problem = bs.Problem(
            lambda x, t, y, d: _upper(x, jnp.zeros(4), y, d), None, problem.x_set, problem.y_set, problem.data
        )
        start = bs.Point(start.x, None, start.y)
    else:
        problem = bs.Problem(lambda x, t, y, d: _upper(x, t, jnp.ones(2), d), _lower, problem.x_set, None, problem.data)
        start = bs.Point(start.x, start.theta, None)
    result = bs.solve(problem, start, tol=1e-3)
    assert result.status is bs.Status.CERTIFIED


def test_the_default_method_takes_the_linear_minimisation_oracle_where_there_is_no_projection():
    class OnlyLmo(bs.sets.L1Ball):
        capabilities = frozenset({"lmo"})

    problem, start = quadratic(x_set=OnlyLmo(5.0))
    result = bs.solve(problem, start, tol=1e-6)
    assert isinstance(result.method, bs.methods.Adaptive)
    assert result.certificate.measure == "lmo" and result.status is bs.Status.CERTIFIED
    assert result.trace.lmos[-1] > 0


def test_a_lower_level_without_curvature_is_refused_by_the_default_method():
    problem, start = quadratic()
    flat = bs.Problem(
        _upper, lambda x, theta, data: jnp.sum(theta) - jnp.sum(theta**2), problem.x_set, problem.y_set, problem.data
    )
    result = bs.solve(flat, start)
    assert result.status is bs.Status.NOT_STRONGLY_CONVEX and "ridge" in result.status.advice
    np.testing.assert_allclose(result.certificate.lower_witness.curvature, -2.0, rtol=1e-12)
    assert "curvature of g is -2" in str(result)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tol": 0.0}, "tol must be > 0.*tol=None"),
        ({"tol": -1.0}, "tol must be > 0"),
        ({"max_steps": 0}, "max_steps must be a whole number"),
        ({"max_seconds": 0.0}, "max_seconds must be > 0"),
        ({"every": 0}, "every must be a whole number"),
        ({"measure": "norm"}, '"projection", "lmo" or "mixed"'),
    ],
)  # fmt: skip
def test_bad_settings_raise_before_anything_runs(changes, message):
    problem, start = quadratic()
    settings = {"method": fully_projected(), **changes}
    with pytest.raises(ValueError, match=message):
        bs.solve(problem, start, **settings)


def test_float32_stays_float32():
    problem, start = quadratic()
    to32 = lambda tree: jax.tree.map(lambda a: a.astype(jnp.float32), tree)
    problem = bs.Problem(_upper, _lower, problem.x_set, problem.y_set, to32(problem.data))
    result = bs.solve(problem, to32(start), fully_projected(), tol=1e-3)
    assert result.status is bs.Status.CERTIFIED
    assert {leaf.dtype for leaf in jax.tree.leaves(result.point)} == {jnp.dtype(jnp.float32)}


def test_solving_twice_compiles_once():
    problem, start = quadratic()
    method = fully_projected()
    bs.solve(problem, start, method, max_steps=20)
    again = bs.solve(problem, start, fully_projected(gamma=0.3), max_steps=20)
    assert again.compile_seconds < 0.1  # a compilation takes several times that


def test_the_result_prints_its_status_and_what_to_do(tmp_path):
    problem, start = quadratic()
    result = bs.solve(problem, start, fully_projected(), tol=1e-12, max_steps=50)
    first, advice, certificate = str(result).split("\n")
    assert re.fullmatch(r"MAX_STEPS: 50 steps in [0-9.e-]+ s(, after [0-9.e-]+ s of compiling)?", first)
    assert "raise it" in advice and "gap" in certificate
    # of a run that compiled nothing nothing is said about it
    again = bs.solve(problem, start, fully_projected(), tol=1e-12, max_steps=50)
    assert again.compile_seconds == 0 and "compiling" not in str(again)
    slow = replace(again, seconds=0.0123, compile_seconds=0.612)
    assert str(slow).startswith("MAX_STEPS: 50 steps in 0.012 s, after 0.61 s of compiling\n")
    figure = result.plot(path=str(tmp_path / "trace.png"))
    assert (tmp_path / "trace.png").stat().st_size > 1000 and len(figure.axes) == 2
    result.plot(against="seconds")
    with pytest.raises(ValueError, match='"steps" or "seconds"'):
        result.plot(against="time")


def test_a_progress_bar_is_shown_when_asked_for(capsys):
    problem, start = quadratic()
    bs.solve(problem, start, fully_projected(), tol=None, max_steps=50, progress=True)
    assert "FullyProjected" in capsys.readouterr().err
    bs.solve(problem, start, fully_projected(), tol=None, max_steps=50)
    assert capsys.readouterr().err == ""
