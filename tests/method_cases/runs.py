"""Compiled runs that the tests of methods share."""

from functools import partial

import jax
import numpy as np
import pytest
from jax import lax

# what the quick tests run; the slow ones run every method
QUICK = ("MORBiT", "TTSA", "SOBA", "IBCG", "DoubleLoop")


def unless_quick(names, quick=QUICK):
    """Parameters of a test over methods, all but the quick ones marked slow; a name may lead a tuple."""
    marked = []
    for item in names:
        values = item if isinstance(item, tuple) else (item,)
        marked.append(pytest.param(*values, marks=() if values[0] in quick else pytest.mark.slow))
    return marked


@partial(jax.jit, static_argnames="count")
def trajectory(method, problem, start, count):
    """x, theta, y, w after each step, in the user's own jit and scan."""

    def step(state, _):
        state = method.step(problem, state)
        return state, (state.x, state.theta, state.y, state.w)

    return lax.scan(step, method.init(problem, start), None, count)[1]


@jax.jit
def run(method, problem, start, count):
    """The state after `count` steps, and the largest violation on the way."""

    def step(_, carry):
        state, worst = carry
        state = method.step(problem, state)
        violation = problem.x_set.violation(state.x)
        if problem.y_set is not None:
            violation = violation + problem.y_set.violation(state.y)
        return state, jax.numpy.maximum(worst, violation)

    return lax.fori_loop(0, count, step, (method.init(problem, start), problem.x_set.violation(start.x)))


def numbers(method):
    """The step sizes at k = 0."""
    return {name: float(value) for name, value in method.steps.at(jax.numpy.asarray(0)).items()}


def deviation(given, wanted):
    """The largest |given - wanted| / max(1, |wanted|) over all steps and variables."""
    worst = 0.0
    for tree, rows in zip(given, wanted, strict=True):
        assert (tree is None) == (rows is None)
        if rows is not None:
            columns = np.concatenate([np.asarray(a).reshape(len(rows), -1) for a in jax.tree.leaves(tree)], axis=1)
            worst = max(worst, np.max(np.abs(columns - rows) / np.maximum(1, np.abs(rows))))
    return worst
