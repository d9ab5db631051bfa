"""What stands between a user and the first answer, counted: programs compiled, functions traced; and the trace."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import programs
from bisaddle.oracle import validate
from bisaddle.programs import Watch

ROOT = Path(__file__).parents[1]
STEPS = bs.StepSizes(alpha=0.5, eta=0.5, gamma=0.5, tau=0.7, sigma=1.0, mu=0.0)

# a listener cannot be taken away again, so there is one for the process
EVENTS: list[tuple[str, float]] = []


def _listen(event, seconds, **about):
    if event == "/jax/core/compile/backend_compile_duration":
        EVENTS.append((about.get("fun_name", "?"), seconds))


jax.monitoring.register_event_duration_secs_listener(_listen)


class Compiled(NamedTuple):
    """What XLA was asked to compile, and what the library says that it compiled."""

    programs: int
    seconds: float
    names: list[str]

    def at_most(self, limit: int) -> None:
        assert self.programs <= limit, f"{self.programs} programs, of which the library knows {self.names}"


@pytest.fixture
def compiled(monkeypatch):
    """compiled(function, *arguments, **options) -> (its answer, what was compiled meanwhile)"""
    names = []
    usual = Watch.compiling

    @contextmanager
    def compiling(self, what):
        names.append(what)
        with usual(self, what):
            yield

    monkeypatch.setattr(Watch, "compiling", compiling)

    def call(function, *arguments, **options):
        before = len(EVENTS)
        names.clear()
        answer = function(*arguments, **options)
        met = EVENTS[before:]
        eager = [name for name, _ in met if name != "jit(<lambda>)"]
        return answer, Compiled(len(met), sum(seconds for _, seconds in met), names + eager)

    return call


@pytest.fixture
def cold():
    """Nothing is compiled yet, and no function traced."""
    programs.clear()
    jax.clear_caches()


# --- README's example ------------------------------------------------------------------------------------------------


def readme():
    """(all before the solve, the line of the solve)"""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    code = next(block for block in blocks if "result = bs.solve" in block)
    head, tail = code.split("result = bs.solve", 1)
    return head, "result = bs.solve" + tail.split("\n")[0]


# what stands after README's problem: its functions count their calls
COUNTED = """
calls = {"upper": 0, "lower": 0}

def counted(name, function):
    def counting(*arguments):
        calls[name] += 1
        return function(*arguments)
    return counting

functions = counted("upper", upper), counted("lower", lower)
problem = bs.Problem(*functions, problem.x_set, problem.y_set, problem.data)
"""


@cache
def _example():
    names = {}
    exec(readme()[0] + COUNTED, names)
    return names["problem"], names["start"], names["calls"]


def example():
    """README's problem and start, and how often its functions have been called since."""
    problem, start, calls = _example()
    calls.update(upper=0, lower=0)
    return problem, start, calls


# run in a process of its own: nothing is loaded, traced or compiled before the solve but what the user wrote
FRESH = """
import json, sys
import jax
head, solve = json.load(sys.stdin)
names, events = {}, []
exec(head, names)
listen = lambda event, seconds, **about: events.append([about.get("fun_name", "?"), seconds]) if event.endswith(
    "/backend_compile_duration") else None
jax.monitoring.register_event_duration_secs_listener(listen)
exec(solve, names)
result = names["result"]
print(json.dumps([names["calls"], events, result.status.name, result.compile_seconds]))
"""


def test_the_first_solve_of_a_process_compiles_few_programs_and_traces_the_user_s_functions_seldom():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", FRESH],
        input=json.dumps([readme()[0] + COUNTED, readme()[1]]),
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    calls, events, status, compile_seconds = json.loads(done.stdout)
    assert status == "CERTIFIED"
    assert len(events) <= 6, events
    assert 1 <= calls["upper"] <= 6 and 1 <= calls["lower"] <= 6
    assert compile_seconds >= sum(seconds for _, seconds in events) > 0


def test_the_first_solve_is_as_cheap_in_a_process_that_has_solved_before(cold, compiled):
    problem, start, calls = example()
    result, first = compiled(bs.solve, problem, start, tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    first.at_most(6)
    assert 1 <= calls["upper"] <= 6 and 1 <= calls["lower"] <= 6
    assert result.compile_seconds >= first.seconds > 0
    certificate, more = compiled(bs.certify, problem, result.point)
    more.at_most(0)
    np.testing.assert_allclose(certificate.gap, result.gap, atol=1e-12)


def test_a_first_solve_with_steps_of_one_s_own_compiles_few_programs(cold, compiled):
    problem, start, calls = example()
    result, first = compiled(bs.solve, problem, start, bs.methods.FullyProjected(STEPS), tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    first.at_most(8)
    assert 1 <= calls["upper"] <= 6 and 1 <= calls["lower"] <= 6
    assert result.compile_seconds >= first.seconds > 0


@pytest.mark.parametrize("method", [None, bs.methods.FullyProjected(STEPS)], ids=["Adaptive", "FullyProjected"])
def test_a_second_solve_with_other_numbers_compiles_nothing(compiled, method):
    """Other data, set sizes, tol, start, limits; the same functions and shapes."""
    problem, start, calls = example()
    bs.solve(problem, start, method, tol=1e-4)
    traced = dict(calls)
    x_set = bs.sets.Product({"x": bs.sets.L1Ball(3.0), "lam": bs.sets.Box(0.1, 0.9)})
    data = jax.tree.map(lambda a: 1.1 * a, problem.data)
    other = bs.Problem(problem.upper, problem.lower, x_set, bs.sets.Simplex(), data)
    x = {"x": jnp.full(5, 0.1), "lam": jnp.full(3, 0.4)}
    begin = bs.Point(x=x, theta=jnp.ones((3, 5)), y=jnp.array([0.2, 0.3, 0.5]))
    steps = bs.StepSizes(alpha=0.4, eta=0.4, gamma=0.4, tau=0.6, sigma=0.9, mu=0.0)
    changed = None if method is None else bs.methods.FullyProjected(steps)
    result, second = compiled(
        bs.solve, other, begin, changed, tol=1e-7, max_steps=20_000, max_seconds=60, measure=bs.Gap(sigma=0.5, tau=2.0)
    )
    assert result.status is bs.Status.CERTIFIED
    second.at_most(0)
    assert result.compile_seconds == 0
    assert calls == traced


def test_several_starts_compile_no_more_than_where_they_lie(compiled):
    problem, start, _ = example()
    key = jax.random.split(jax.random.key(0))[0]
    bs.solve(problem, start, tol=1e-6)
    several = lambda: bs.solve(problem, bs.start_points(problem, start, 4, key), tol=1e-6)
    _, more = compiled(several)
    more.at_most(1)
    _, again = compiled(several)
    again.at_most(0)


def test_the_gram_form_is_compiled_once_for_every_number_of_rows(compiled):
    def regression(rows, seed):
        tasks = bs.apps.multitask.synthetic(rows=rows, width=4, tasks=3, seed=seed)
        return bs.apps.multitask.regression(tasks, radius=5.0, ridge=0.1, form="gram")

    bs.solve(*regression(120, 0), tol=1e-6)
    problem, start = regression(210, 1)
    result, second = compiled(bs.solve, problem, start, tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    second.at_most(0)


# --- other sets, other kinds of problem ------------------------------------------------------------------------------


def only_lmo(a_set, diameter):
    return bs.sets.Custom(lmo=a_set.lmo, diameter=diameter, violation=a_set.violation)


def only_project(a_set, diameter):
    return bs.sets.Custom(project=a_set.project, diameter=diameter, violation=a_set.violation)


def _by_theta(x, theta, y, data):
    losses = jnp.sum((theta - data["goal"]) ** 2, axis=1)
    return jnp.mean(losses) if y is None else losses @ y


def _by_x(x, theta, y, data):
    return _by_theta(x, x, y, data)


def _bent(x, theta, data):
    return 0.5 * jnp.sum((theta - x * data["scale"]) ** 2) + 0.05 * jnp.sum(theta**4)


def matrices(x_set, y_set, has_lower=True, seed=0):
    """A 4 x 3 matrix to be found, a row for each of four tasks."""
    rng = np.random.default_rng(seed)
    data = {"goal": jnp.asarray(rng.normal(size=(4, 3))), "scale": jnp.asarray(rng.uniform(0.5, 1.0, (4, 3)))}
    functions = (_by_theta, _bent) if has_lower else (_by_x, None)
    problem = bs.Problem(*functions, x_set, y_set, data)
    theta, y = jnp.zeros((4, 3)) if has_lower else None, None if y_set is None else jnp.full(4, 0.25)
    return problem, bs.Point(jnp.zeros((4, 3)), theta, y)


def mixed():
    """Of two blocks one has only an LMO and the other only a projection; y with a penalty."""
    blocks = (only_lmo(bs.sets.L1Ball(2.0), 4.0), only_project(bs.sets.Box(-0.2, 0.2), 1.0))

    def upper(x, theta, y, data):
        v = jnp.concatenate(x)
        return y @ jnp.sum((data["A"] @ v - data["b"]) ** 2, axis=1) / 12 + 0.1 * v @ v

    rng = np.random.default_rng(5)
    data = {"A": jnp.asarray(rng.normal(size=(4, 6, 7))), "b": jnp.asarray(rng.normal(size=(4, 6)))}
    problem = bs.Problem(upper, None, bs.sets.Product(blocks), bs.sets.Entropy(0.1), data)
    return problem, bs.Point((jnp.zeros(4), jnp.zeros(3)), None, jnp.full(4, 0.25))


KINDS = {
    "nuclear ball and CVaR": lambda: matrices(bs.sets.NuclearBall(1.0), bs.sets.CVaRSet(0.5)),
    "nuclear ball and entropy": lambda: matrices(bs.sets.NuclearBall(1.0), bs.sets.Entropy(0.1)),
    "nuclear ball and square": lambda: matrices(
        bs.sets.NuclearBall(1.0), bs.sets.SquaredL2(0.1, bs.sets.CVaRSet(0.5)), seed=1
    ),
    "nuclear ball and CVaR, no lower level": lambda: matrices(
        bs.sets.NuclearBall(1.0), bs.sets.CVaRSet(0.5), has_lower=False
    ),
    "nuclear ball, no y": lambda: matrices(bs.sets.NuclearBall(1.0), None),
    "nuclear ball, neither": lambda: matrices(bs.sets.NuclearBall(1.0), None, has_lower=False),
    "an LMO": lambda: matrices(only_lmo(bs.sets.L1Ball(2.0), 4.0), bs.sets.Simplex()),
    "an LMO and a projection": mixed,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_first_solve_of_another_kind_compiles_at_most_twelve_programs(kind, cold, compiled):
    problem, start = KINDS[kind]()
    result, first = compiled(bs.solve, problem, start, tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    first.at_most(12)
    assert result.compile_seconds >= first.seconds > 0
    again, second = compiled(bs.solve, problem, start, tol=1e-6)
    second.at_most(0)
    assert again.compile_seconds == 0


def test_a_second_solve_in_another_nuclear_ball_compiles_nothing(compiled):
    """Though it takes more steps, and so more pairs for its quasi-Newton steps."""
    problem, start = matrices(bs.sets.NuclearBall(1.0), bs.sets.CVaRSet(0.5))
    few = bs.solve(problem, start, tol=1e-3)  # with a quasi-Newton step or two
    sets = bs.sets.NuclearBall(2.5), bs.sets.CVaRSet(0.4)
    other = bs.Problem(problem.upper, problem.lower, *sets, jax.tree.map(lambda a: 1.2 * a, problem.data))
    result, second = compiled(bs.solve, other, start, tol=1e-8)
    assert result.status is bs.Status.CERTIFIED and result.steps > few.steps
    second.at_most(0)


# --- deadlines -------------------------------------------------------------------------------------------------------


METHODS = {"Adaptive": None, "FullyProjected": bs.methods.FullyProjected(STEPS)}


@pytest.mark.parametrize("method", METHODS)
def test_a_cold_problem_without_time_comes_back_with_a_certificate(method, cold, compiled):
    problem, start, _ = example()
    result, met = compiled(bs.solve, problem, start, METHODS[method], tol=1e-6, max_seconds=1e-6)
    assert result.status is bs.Status.MAX_SECONDS and result.steps == 0
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(result.point))
    assert np.isfinite(result.gap) and np.isfinite(result.certificate.error_bound)
    np.testing.assert_allclose(result.gap, bs.certify(problem, start).gap, rtol=1e-12)
    assert not any("steps" in name for name in met.names)


@pytest.mark.parametrize("method", METHODS)
def test_several_cold_starts_without_time_come_back_with_a_certificate(method, cold):
    problem, start, _ = example()
    starts = bs.start_points(problem, start, 3, jax.random.key(0))
    result = bs.solve(problem, starts, METHODS[method], tol=1e-6, max_seconds=1e-6)
    assert result.status is bs.Status.MAX_SECONDS
    assert len(result.starts) >= 1 and np.isfinite(result.gap)


def test_the_run_ends_at_the_first_program_after_the_deadline(cold, monkeypatch):
    """The clock stands still but for a program: the second one finds the time gone."""
    import time

    problem, start, _ = example()
    now = [1000.0]
    said = []
    usual = Watch.compiling

    @contextmanager
    def compiling(self, what):
        with usual(self, what):
            said.append((what, self.deadline is None))
            yield
            now[0] += 10.0

    monkeypatch.setattr(Watch, "compiling", compiling)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    result = bs.solve(problem, start, tol=1e-6, max_seconds=5.0)
    monkeypatch.undo()
    assert result.status is bs.Status.MAX_SECONDS
    assert [late for _, late in said][:2] == [False, True]  # one in time; the others are those of the certificate
    assert all(late for _, late in said[1:])
    assert result.compile_seconds == 10.0 * len(said)
    assert np.isfinite(result.gap)


# --- functions defined again and again --------------------------------------------------------------------------------


def _closed_over(ridge):
    """A problem whose lower function is defined anew at every call."""

    def lower(x, theta, data):
        return 0.5 * jnp.sum((theta - x) ** 2) + ridge * jnp.sum(theta**2)

    box = bs.sets.Box(-1.0, 1.0)
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum((theta - 1) ** 2), lower, box, None)
    return problem, bs.Point(x=np.zeros(2), theta=np.zeros(2))


def test_a_function_defined_anew_again_and_again_is_named_once():
    """Five times is nobody's business; the sixth is a warning, the seventh is silent again."""
    for ridge in range(validate.MOST_ALIKE):
        validate.check_problem_at(*_closed_over(ridge))
    with pytest.warns(UserWarning, match=r"upper .*\n?.*defined anew 6 times.*data=") as caught:
        validate.check_problem_at(*_closed_over(7.0))
    assert {str(w.message).split(" ")[0] for w in caught} == {"upper", "lower"}
    validate.check_problem_at(*_closed_over(8.0))
