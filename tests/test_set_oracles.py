"""Projections against Clarabel and linear minimisation against HiGHS, both through CVXPY: nobody here wrote them."""

import warnings

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.set_cases.all_cases import CASES


def _points(name, n, count):
    case = CASES[name]
    rng = np.random.default_rng([n, len(name)])
    convex_set = case.make(rng, n)
    return case, convex_set, 2 * rng.normal(size=(count, *case.shape(n)))


def _counts():
    for name, case in CASES.items():
        if case.constraints is None:
            continue
        n = max(size for size in case.sizes if size <= 5)
        yield pytest.param(name, n, 20, id=f"{name}-20", marks=[] if case.quick else [pytest.mark.slow])
        yield pytest.param(name, n, 200, id=f"{name}-200", marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "n", "count"), list(_counts()))
def test_projection_agrees_with_clarabel(name, n, count):
    case, convex_set, points = _points(name, n, count)
    if "project" not in convex_set.capabilities:
        return
    ours = jax.jit(jax.vmap(convex_set.project))(jnp.asarray(points))
    u = cp.Variable(case.shape(n), **case.variable)
    target = cp.Parameter(case.shape(n))
    problem = cp.Problem(cp.Minimize(cp.sum_squares(u - target)), case.constraints(convex_set, u))
    for v, mine in zip(points, np.asarray(ours), strict=True):
        target.value = v
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY's own remarks on its compilation
            problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        np.testing.assert_allclose(mine, u.value, atol=1e-6)


@pytest.mark.parametrize(("name", "n", "count"), list(_counts()))
def test_linear_minimisation_agrees_with_an_independent_solver(name, n, count):
    case, convex_set, directions = _points(name, n, count)
    if "lmo" not in convex_set.capabilities:
        return
    ours = np.asarray(jax.jit(jax.vmap(convex_set.lmo))(jnp.asarray(directions)))
    u = cp.Variable(case.shape(n), **case.variable)
    direction = cp.Parameter(case.shape(n))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(direction, u))), case.constraints(convex_set, u))
    for d, mine in zip(directions, ours, strict=True):
        direction.value = d
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if case.polyhedral:
                problem.solve(solver=cp.SCIPY, scipy_options={"method": "highs"})
            else:
                problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        relative = 1e-9 if case.polyhedral else 1e-6
        assert np.sum(d * mine) == pytest.approx(problem.value, rel=relative, abs=relative)
