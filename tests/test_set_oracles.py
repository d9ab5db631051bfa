"""Projections against Clarabel and linear minimisation against HiGHS, both through CVXPY: nobody here wrote them."""

import warnings

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.set_cases.all_cases import CASES

CLARABEL = dict(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
HIGHS = dict(solver=cp.SCIPY, scipy_options={"method": "highs"})


def _points(name, n, count):
    case = CASES[name]
    rng = np.random.default_rng([n, len(name)])
    convex_set = case.make(rng, n)
    return case, convex_set, 2 * rng.normal(size=(count, *case.shape(n)))


def _counts():
    for name, case in CASES.items():
        if case.constraints is None:
            continue
        n = case.quick_size
        yield pytest.param(name, n, 20, id=f"{name}-20", marks=[] if case.quick else [pytest.mark.slow])
        yield pytest.param(name, n, 200, id=f"{name}-200", marks=pytest.mark.slow)


def _minima(case, convex_set, objective, points, solver):
    """(minimum, minimiser) over the set of objective(u, point), for each point."""
    u, parameter = cp.Variable(points[0].shape, **case.variable), cp.Parameter(points[0].shape)
    problem = cp.Problem(cp.Minimize(objective(u, parameter)), case.constraints(convex_set, u))
    for point in points:
        parameter.value = point
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CVXPY's own remarks on its compilation
            problem.solve(**solver)
        yield problem.value, u.value


@pytest.mark.parametrize(("name", "n", "count"), list(_counts()))
def test_projection_agrees_with_clarabel(name, n, count):
    case, convex_set, points = _points(name, n, count)
    if "project" not in convex_set.capabilities:
        return
    ours = jax.jit(jax.vmap(convex_set.project))(jnp.asarray(points))
    theirs = _minima(case, convex_set, lambda u, v: cp.sum_squares(u - v), points, CLARABEL)
    for mine, (_, nearest) in zip(np.asarray(ours), theirs, strict=True):
        np.testing.assert_allclose(mine, nearest, atol=1e-6)


@pytest.mark.parametrize(("name", "n", "count"), list(_counts()))
def test_linear_minimisation_agrees_with_an_independent_solver(name, n, count):
    case, convex_set, directions = _points(name, n, count)
    if "lmo" not in convex_set.capabilities:
        return
    ours = np.asarray(jax.jit(jax.vmap(convex_set.lmo))(jnp.asarray(directions)))
    solver, relative = (HIGHS, 1e-9) if case.polyhedral else (CLARABEL, 1e-6)
    theirs = _minima(case, convex_set, lambda u, d: cp.sum(cp.multiply(d, u)), directions, solver)
    for d, mine, (least, _) in zip(directions, ours, theirs, strict=True):
        assert np.sum(d * mine) == pytest.approx(least, rel=relative, abs=relative)
