"""Nothing public escapes the common tests, and every method runs on every problem."""

import inspect
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bisaddle as bs
from bisaddle import trees
from bisaddle.methods.base import HostMethod, able
from bisaddle.oracle.kernels import Kernels
from bisaddle.sets.prox import Penalty
from tests.registry import METHODS, NOT_BILINEAR, PROBLEMS, REGULARIZED, TWINS
from tests.set_cases.all_cases import CASES
from tests.test_prox import PENALTIES

# one problem of each kind
SHORT = ("logistic", "wavy saddle", "generator, ball active")
# those on which the common test runs the paper's two methods every time; all methods on all problems when slow
QUICK = (*SHORT, "CB2 lifted", "linear-quadratic, nu > 0")


def public(module, base):
    classes = inspect.getmembers(module, inspect.isclass)
    return {name for name, kind in classes if issubclass(kind, base) and kind is not base and name[0] != "_"}


def test_every_public_set_is_under_the_common_tests():
    cases = {type(case.make(np.random.default_rng(0), 2)).__name__ for case in CASES.values()}
    penalties = {type(penalty).__name__ for penalty, _, _ in PENALTIES.values()}
    of_pytrees = {"Product"}  # tests/test_sets.py
    assert public(bs.sets, bs.sets.ConvexSet) == cases | penalties | of_pytrees


def test_every_set_says_what_it_costs():
    for name in public(bs.sets, bs.sets.ConvexSet):
        words = getattr(bs.sets, name).__doc__
        oracles = ("prox:",) if name in public(bs.sets, Penalty) else ("project:", "lmo:")
        assert all(oracle in words for oracle in oracles), f"{name}: the docstring states the cost of {oracles}"


def test_every_public_method_is_registered():
    assert public(bs.methods, bs.methods.Method) == set(METHODS)


def test_registered_names_are_those_of_the_classes():
    for problem_name in SHORT:
        problem, _, _ = PROBLEMS[problem_name](0)
        for name in set(able(problem)) & set(METHODS):
            assert type(METHODS[name](problem)).__name__ == name


def test_every_twin_is_a_problem():
    assert set(TWINS) <= set(PROBLEMS)


@jax.jit
def watched(method, problem, start):
    """Violation after each of 50 steps, and whether everything stayed finite."""

    def step(state, _):
        state = method.step(problem, state)
        violation = problem.x_set.violation(state.x)
        if problem.y_set is not None:
            violation = jnp.maximum(violation, problem.y_set.violation(state.y))
        return state, (violation, trees.all_finite((state.x, state.theta, state.y, state.w)))

    return lax.scan(step, method.init(problem, start), None, 50)[1]


def watched_on_host(method, problem, start):
    """The same for a method that is driven from the host."""
    kernels = Kernels(problem, start)
    violations, finite = [], []
    for look in islice(method.looks(problem, kernels, *kernels.flat(start)), 50):
        of_y = 0.0 if kernels.y_set is None else kernels.y_set.violation(look.y)
        violations.append(max(kernels.x_set.violation(look.x), of_y))
        finite.append(all(np.all(np.isfinite(part)) for part in (look.x, look.theta, look.y, look.w)))
    return np.array(violations), np.array(finite)


def _pairs():
    """Every method on every problem it takes; when quick, Adaptive on all and the paper's two on some."""
    for problem_name, make in PROBLEMS.items():
        for method_name in able(make(0)[0]):
            if method_name == "PDHG" and problem_name in NOT_BILINEAR:
                continue  # which its init refuses: tests/test_methods_saddle_use.py
            quick = method_name == "Adaptive" or (method_name in REGULARIZED and problem_name in QUICK)
            marks = () if quick else pytest.mark.slow
            yield pytest.param(method_name, problem_name, marks=marks)


@pytest.mark.parametrize(("method_name", "problem_name"), list(_pairs()))
def test_fifty_steps_stay_finite_and_feasible(method_name, problem_name, record):
    for seed in range(2):
        problem, start, _ = PROBLEMS[problem_name](seed)
        method = METHODS[method_name](problem)
        method.check(problem)
        steps = watched_on_host if isinstance(method, HostMethod) else watched
        violations, finite = steps(method, problem, start)
        record("violation along 50 steps", np.max(violations))
        assert np.all(violations <= 1e-9)
        assert np.all(finite)
