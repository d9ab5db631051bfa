"""Adaptive: certified answers with nothing tuned, its parts against independent formulas, and what it promises."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import oracle, trees
from bisaddle.methods.face_step import Pairs, face_direction, two_loops
from bisaddle.methods.inner_solves import Cost, Inner, Memory, conjugate_gradients, evaluate, solve_lower
from tests.registry import PROBLEMS

LINEAR_QUADRATICS = [name for name in PROBLEMS if name.startswith("linear-quadratic")]
FREE = Cost(*(jnp.zeros((), jnp.int32) for _ in Cost._fields))
ELSEWHERE = jnp.asarray(False)


def unsolved(start):
    """Inner variables to begin with; the gradients are not used elsewhere."""
    gradients = (start.x, start.theta, start.y)
    numbers = (jnp.zeros(()), jnp.asarray(1.0))
    return Inner(start.theta, start.y, jnp.zeros_like(start.theta), start.theta, gradients, *numbers)


def solved(problem, start, tol, **options):
    options = {"max_steps": 4000, "every": 10, "progress": False} | options
    return bs.solve(problem, start, bs.methods.Adaptive(tol), tol=tol, **options)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "linear-quadratic, nu > 0" else pytest.mark.slow)
        for name in (*LINEAR_QUADRATICS, "generator", "generator, ball active", "logistic", "CB2", "QL", "CB2 lifted")
    ],
)
def test_problems_are_certified_without_tuning(name):
    for seed in range(2):
        problem, start, answer = PROBLEMS[name](seed)
        result = solved(problem, start, 1e-8)
        assert result.status is bs.Status.CERTIFIED, f"{name}: {result.certificate}"
        if answer is not None:
            np.testing.assert_allclose(result.x, answer.x, atol=1e-5)


def multitask(seed=0, divergence=0.0):
    tasks = bs.apps.multitask.synthetic(rows=300, width=8, tasks=3, noise=0.1, seed=seed)
    return bs.apps.multitask.regression(tasks, radius=5.0, ridge=0.1, divergence=divergence)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", [0.0, 0.1])
def test_the_paper_s_experiments_are_certified_to_1e_8(divergence):
    problem, start = multitask(divergence=divergence)
    result = solved(problem, start, 1e-8)
    assert result.status is bs.Status.CERTIFIED
    check = bs.certify(problem, result.point)
    assert check.gap + check.error_bound <= 1e-8 and check.violation <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multitask", "logistic", "CB2 lifted", "QL"])
def test_float32_is_certified_to_1e_4_and_stays_float32(name):
    """Float64 agrees with the gap."""
    problem, start = multitask() if name == "multitask" else PROBLEMS[name](0)[:2]
    single = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), (problem, start))
    result = solved(*single, 1e-4)
    assert {leaf.dtype for leaf in jax.tree.leaves(result.point)} == {jnp.dtype(jnp.float32)}
    assert result.status is bs.Status.CERTIFIED
    found = result.point
    double = bs.Point(*jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), (found.x, found.theta, found.y)))
    assert float(bs.certify(problem, double).gap) <= 1e-4


def test_the_state_keeps_its_form_and_is_the_same_under_jit_and_vmap():
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0)
    method = bs.methods.Adaptive()
    state = method.init(problem, start)
    after = jax.eval_shape(method.step, problem, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)


def test_the_value_is_that_of_the_regularised_maximum_and_gx_its_gradient():
    """Against central differences of max_y f - mu/2 |y - y0|^2, with both inner problems solved to rounding."""
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](1)
    mu, tight = jnp.asarray(0.7), jnp.asarray(1e-13)
    inner, memory = unsolved(start), Memory(None, None)

    @jax.jit
    def at(x):
        found = evaluate(problem, x, inner, memory, ELSEWHERE, start.y, mu, tight, jnp.asarray(1.0), FREE)
        return found.value, found.Gx

    x = start.x
    direction = jnp.asarray(np.random.default_rng(0).normal(size=x.shape))
    h = 1e-5
    slope = (at(x + h * direction)[0] - at(x - h * direction)[0]) / (2 * h)
    np.testing.assert_allclose(slope, jnp.vdot(at(x)[1], direction), rtol=1e-7)


def test_an_inexact_lower_solution_spoils_the_value_only_to_second_order():
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](2)
    at = (start.x, unsolved(start), Memory(None, None), ELSEWHERE, start.y)
    run = jax.jit(lambda R: evaluate(problem, *at, jnp.asarray(1.0), R, jnp.asarray(1.0), FREE))
    exact, rough = run(jnp.asarray(1e-13)), run(jnp.asarray(1e-3))
    off = float(jnp.linalg.norm(rough.inner.theta - exact.inner.theta))
    assert abs(float(rough.value - exact.value)) <= 100 * (off**2 + 1e-12)


def test_conjugate_gradients_and_newton_against_dense_solves():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(9, 9))
    H, b = jnp.asarray(A @ A.T + np.eye(9)), jnp.asarray(rng.normal(size=9))
    w, r, products, least = jax.jit(lambda: conjugate_gradients(lambda v: H @ v, jnp.zeros(9), b, jnp.asarray(1e-12)))()
    np.testing.assert_allclose(w, np.linalg.solve(H, b), atol=1e-10)
    np.testing.assert_allclose(b - H @ w, r, atol=1e-10)
    assert products <= 20 and float(least) >= np.linalg.eigvalsh(H)[0] * (1 - 1e-9)
    problem, start, _ = PROBLEMS["logistic"](0)
    g = oracle.lower_gradient(problem, start.x, start.theta)
    at = (start.x, start.theta, g, jnp.asarray(1e-11), FREE)
    theta, g, products, _, cost = jax.jit(lambda: solve_lower(problem, *at))()
    assert float(trees.norm(oracle.lower_gradient(problem, start.x, theta))) <= 1e-11
    np.testing.assert_allclose(g, oracle.lower_gradient(problem, start.x, theta), atol=1e-15)
    assert int(cost.gradients) >= 1 and int(cost.hvps) == int(products) >= 1


def test_the_two_loops_are_the_bfgs_formula():
    """B built densely from the same pairs, oldest first, from the scale of the newest."""
    rng = np.random.default_rng(4)
    n, rows = 6, 20
    A = rng.normal(size=(n, n))
    H = A @ A.T + np.eye(n)
    s = np.zeros((rows, n))
    s[:3] = rng.normal(size=(3, n))
    q = s @ H
    usable = np.arange(rows) < 3
    curvature = np.where(usable, np.sum(s * q, axis=1), 1.0)
    v = rng.normal(size=n)
    B = curvature[0] / (q[0] @ q[0]) * np.eye(n)
    for i in (2, 1, 0):
        rho = 1 / curvature[i]
        left = np.eye(n) - rho * np.outer(s[i], q[i])
        B = left @ B @ left.T + rho * np.outer(s[i], s[i])
    found = jax.jit(two_loops)(*(jnp.asarray(a) for a in (v, s, q, curvature, usable)))
    np.testing.assert_allclose(found, B @ v, rtol=1e-10)


def test_the_face_step_stays_in_the_set_and_is_the_projected_step_without_pairs():
    box = bs.sets.Box(0.0, 1.0)
    x, G = jnp.asarray([0.0, 0.5, 1.0]), jnp.asarray([1.0, -0.2, -3.0])
    d0, d = face_direction(box.project, x, G, jnp.asarray(0.5), Pairs.empty(x))
    np.testing.assert_array_equal(d, d0)
    np.testing.assert_allclose(d0, np.clip(x - 0.5 * G, 0, 1) - x)
    pairs = Pairs.empty(x).with_pair(jnp.asarray([0.1, 0.2, 0.3]), jnp.asarray([0.1, 0.8, 0.3]))
    _, d = face_direction(box.project, x, G, jnp.asarray(0.5), pairs)
    np.testing.assert_allclose(d, [0.0, 0.2 * 0.2 / 0.8, 0.0], atol=1e-15)  # only the middle coordinate is free


def test_bad_tolerances_are_named():
    with pytest.raises(ValueError, match="tol must be finite and > 0, given -1"):
        bs.methods.Adaptive(-1)
