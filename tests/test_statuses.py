"""Every way that a run can end, reached on purpose; and a limit of seconds, by counting what is done after it."""

import dataclasses
import time

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.programs import OutOfTime, Program, watch
from bisaddle.run import blocks
from tests.test_solve import fully_projected, quadratic

BOX = bs.sets.Box(-1.0, 1.0)


def _run(problem=None, start=None, method=None, **options):
    made, begin = quadratic()
    return bs.solve(problem or made, start or begin, method, **options)


def _wrong_slope():
    problem, _ = quadratic()
    by_hand = bs.Derivatives(f_x=lambda x, theta, y, data: 0 * x)
    return dataclasses.replace(problem, derivatives=by_hand)


def _plain(upper):
    return bs.Problem(upper, None, BOX, BOX), bs.Point(np.full(2, 0.5), None, np.zeros(2))


def _acceptable():
    """A run that a limit ends near tol: which number of steps does so depends on tol."""
    for tol in (1e-6, 1e-7, 1e-8):
        for steps in range(1, 60):
            result = _run(tol=tol, max_steps=steps)
            if result.status is bs.Status.ACCEPTABLE:
                return result
            if result.status is bs.Status.CERTIFIED:
                break
    raise AssertionError("no number of steps ends near tol")


def _unstable():
    return bs.methods.FullyProjected(bs.StepSizes(alpha=50.0, eta=0.1, gamma=0.5, tau=0.1, sigma=0.1, mu=0.0))


ENDINGS = {
    bs.Status.CERTIFIED: lambda: _run(),
    bs.Status.ACCEPTABLE: _acceptable,
    bs.Status.MAX_STEPS: lambda: _run(max_steps=1, tol=1e-9),
    bs.Status.MAX_SECONDS: lambda: _run(max_seconds=1e-9, tol=1e-9),
    bs.Status.STALLED: lambda: _run(dataclasses.replace(quadratic()[0], noise=1e-3), tol=1e-6),
    bs.Status.NOT_STRONGLY_CONVEX: lambda: bs.solve(
        bs.Problem(
            lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + 0 * jnp.sum(theta),
            lambda x, theta, data: -0.5 * jnp.sum(theta**2) + jnp.sum(x * theta),
            BOX,
            None,
        ),
        bs.Point(np.zeros(2), np.zeros(2)),
    ),
    bs.Status.NOT_CONCAVE: lambda: bs.solve(
        *_plain(lambda x, theta, y, data: 0.5 * jnp.sum(x**2) + 0.5 * jnp.sum(y**2))
    ),
    bs.Status.WRONG_DERIVATIVES: lambda: _run(_wrong_slope(), max_steps=300),
    bs.Status.NONFINITE: lambda: bs.solve(
        *_plain(lambda x, theta, y, data: jnp.sum(jnp.sqrt(x - 2)) + jnp.sum(y)), max_steps=5
    ),
    bs.Status.DIVERGED: lambda: _run(method=_unstable(), tol=1e-9, max_steps=400, every=20),
    bs.Status.INTERRUPTED: lambda: _run(callback=lambda record: True, tol=1e-9),
}


def test_all_of_them_are_here():
    assert set(ENDINGS) == set(bs.Status)


@pytest.mark.parametrize("status", ENDINGS, ids=str)
def test_a_run_can_end_so_and_says_what_to_do(status):
    result = ENDINGS[status]()
    assert result.status is status
    assert status.advice in str(result) or status is bs.Status.CERTIFIED
    # something to do: a verb, or a name to look at
    words = ("raise", "accept", "go on", "use", "add", "change", "correct", "lower", "check")
    assert any(word in status.advice for word in words) or status is bs.Status.CERTIFIED
    assert np.all(np.isfinite(result.last.x))


# -- max_seconds ------------------------------------------------------------------------------------------------------


def _clocked(monkeypatch):
    """A clock that only calls of programs move, by a second each; the time, and which calls were within a limit."""
    now, calls, usual = [1000.0], [], Program.__call__

    def call(self, *arrays):
        found = usual(self, *arrays)
        now[0] += 1.0
        calls.append(watch().deadline is not None)
        return found

    monkeypatch.setattr(Program, "__call__", call)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return now, calls


@pytest.mark.parametrize("seconds", [3, 10, 40, 100])
def test_a_host_driven_run_ends_with_the_evaluation_that_is_late(seconds, monkeypatch):
    problem, start = quadratic()
    whole = bs.solve(problem, start, tol=1e-9)
    _, calls = _clocked(monkeypatch)
    result = bs.solve(problem, start, tol=1e-9, max_seconds=seconds)
    monkeypatch.undo()
    in_time = sum(calls)
    assert result.status is not bs.Status.CERTIFIED or result.certificate.within(1e-9)  # by the last look
    assert 0 < in_time <= seconds
    # and what was found has its certificate: those of two places at most, whatever the limit was
    assert len(calls) - in_time <= 400 and np.isfinite(result.gap) and result.steps <= whole.steps
    assert result.status is bs.Status.MAX_SECONDS or seconds == 100


def test_a_program_that_is_late_is_not_called(monkeypatch):
    twice = Program(lambda fixed, v: fixed * v, "a product", 2.0)
    assert twice(np.ones(1)) == 2.0
    with (
        bs.programs.watched(bs.programs.Watch(deadline=time.perf_counter() - 1)),
        pytest.raises(OutOfTime, match="product"),
    ):
        twice(np.ones(1))


@pytest.mark.parametrize("seconds", [2.0, 25.0])
def test_a_compiled_loop_plans_its_blocks_within_the_limit(seconds, monkeypatch):
    """A step takes a tenth of a second: no more than the limit has, a tenth and one block of the smallest size."""
    problem, start = quadratic()
    method = fully_projected()
    bs.solve(problem, start, method, tol=None, max_steps=40)
    now, usual = [0.0], blocks.Lanes.advance

    def advance(self, every, records):
        kept, _ = usual(self, every, records)
        now[0] += 0.1 * every * records
        return kept, 0.1 * every * records

    monkeypatch.setattr(blocks.Lanes, "advance", advance)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    result = bs.solve(problem, start, method, max_seconds=seconds, tol=None, max_steps=100_000)
    monkeypatch.undo()
    assert result.status is bs.Status.MAX_SECONDS
    assert 10 * seconds <= result.steps <= 1.1 * 10 * seconds + 4 * blocks.UNROLL
