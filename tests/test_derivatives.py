"""check_derivatives says which derivative is wrong, and only that."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs

TASKS = bs.apps.multitask.synthetic(rows=400, width=6, tasks=3)


def problem_and_point():
    problem, start = bs.apps.multitask.regression(TASKS, divergence=0.05)
    rng = np.random.default_rng(0)
    return problem, bs.Point(start.x, start.theta + rng.normal(size=start.theta.shape), start.y)


def with_derivatives(problem, **changes):
    return dataclasses.replace(problem, derivatives=dataclasses.replace(problem.derivatives, **changes))


def test_right_derivatives_pass():
    report = bs.check_derivatives(*problem_and_point())
    assert report.ok and report.wrong == ()
    assert set(report.errors) == {"f_x", "f_theta", "f_y", "g_theta", "g_theta_theta", "g_theta_x", "hypergradient"}
    assert max(report.errors.values()) < 1e-6


@pytest.mark.parametrize("name", ["f_x", "f_theta", "f_y", "g_theta", "g_theta_theta", "g_theta_x"])
def test_a_wrong_derivative_is_named_and_no_other_but_the_hypergradient(name):
    problem, point = problem_and_point()
    right = getattr(problem.derivatives, name)
    off = lambda *arguments: jax.tree.map(lambda a: 1.001 * a + 0.001, right(*arguments))
    report = bs.check_derivatives(with_derivatives(problem, **{name: off}), point)
    assert name in report.wrong
    assert set(report.wrong) <= {name, "hypergradient"}
    assert f"{name:14}" in str(report) and "WRONG" in str(report)


def test_problems_without_a_part_are_checked_for_what_they_have():
    _, point = problem_and_point()
    saddle = bs.Problem(lambda x, t, y, d: jnp.sum(x * y), None, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex())
    report = bs.check_derivatives(saddle, bs.Point(jnp.ones(3), None, jnp.full(3, 1 / 3)))
    assert report.ok and set(report.errors) == {"f_x", "f_y"}
    bilevel = bs.Problem(
        lambda x, t, y, d: jnp.sum(x * t), lambda x, t, d: jnp.sum((t - x) ** 2), bs.sets.Box(-1.0, 1.0), None
    )
    report = bs.check_derivatives(bilevel, bs.Point(jnp.ones(3), jnp.zeros(3), None))
    assert report.ok and "f_y" not in report.errors and "hypergradient" in report.errors
