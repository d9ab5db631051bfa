"""What Adaptive remembers: places to begin from, an inverse Hessian, and what a function does not depend on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import oracle
from bisaddle.methods.dense_inverse import FREE, MOST, Inverse
from bisaddle.methods.inner_solves import Cost, Inner, Memory, conjugate_gradients, evaluate
from bisaddle.methods.recall import ENTRIES, PLACES, Recall
from bisaddle.structure import depends, quadratic_lower
from tests.registry import PROBLEMS


def test_affine_theta_and_w_are_recalled_exactly_where_the_places_reach():
    """theta(x) and w(x, y) affine, x in a plane and y on a line: four places tell everything."""
    rng = np.random.default_rng(0)
    plane, A, B, line = rng.normal(size=(2, 5)), rng.normal(size=(5, 7)), rng.normal(size=(3, 7)), rng.normal(size=3)
    place = lambda a, b, c: (np.array([a, b]) @ plane, c * line)
    answers = lambda x, y: (1 + x @ A, x @ A**2 + y @ B - 2)
    recall = None
    for a, b, c in ((1, 0, 1e-6), (2, 1e-3, 0.1), (0, 1, 3), (1e-4, -1, 1), (1, 1, 1)):
        x, y = place(a, b, c)
        parts = [jnp.asarray(part) for part in (x, y, *answers(x, y))]
        recall = Recall.at(*parts) if recall is None else recall.with_place(*parts)
    assert recall is not None
    x, y = place(0.3, -0.7, 2.0)
    theta, w = answers(x, y)
    zero = jnp.zeros(7)
    np.testing.assert_allclose(recall.theta_at(jnp.asarray(x), zero), theta, atol=1e-6)
    np.testing.assert_allclose(recall.w_at(jnp.asarray(x), jnp.asarray(y), zero), w, atol=1e-6)


def test_one_place_and_equal_places_are_recalled_as_they_are():
    x, y, theta = jnp.arange(3.0), jnp.ones(2), {"a": jnp.ones((2, 2)), "b": jnp.zeros(3)}
    recall = Recall.at(x, y, theta, theta)
    assert recall is not None and Recall.at(x, y, jnp.zeros(ENTRIES // PLACES), None) is None
    for _ in range(PLACES + 2):
        found = recall.theta_at(x + 1, theta)
        jax.tree.map(np.testing.assert_array_equal, found, theta)
        recall = recall.with_place(x, y, theta, theta)


def tasks_problem(coupling):
    """theta (30, 10) in 30 separate quadratics, tied together by the coupling."""
    rng = np.random.default_rng(1)
    A = rng.normal(size=(30, 10, 10))
    H = jnp.asarray(A @ A.transpose(0, 2, 1) + 0.1 * np.eye(10))

    def lower(x, theta, data):
        own = 0.5 * jnp.einsum("ti,tij,tj->", theta, data, theta)
        return own + coupling * jnp.sum(jnp.sum(theta, axis=0) ** 2) + jnp.sum(x * theta[0])

    box = bs.sets.Box(-1.0, 1.0)
    return bs.Problem(lambda x, theta, y, data: jnp.sum(theta), lower, box, None, H)


@pytest.mark.parametrize("coupling", [0.0, 0.5])
def test_the_inverse_is_bought_at_its_price_and_only_where_blocks_are_separate(coupling):
    problem = tasks_problem(coupling)
    x, theta = jnp.zeros(10), jnp.zeros((30, 10))
    assert theta.size > MOST
    inverse = Inverse.unknown(theta)
    assert inverse is not None
    step = jax.jit(lambda inverse: inverse.renewed(problem, x, theta))
    inverse = inverse.after(jnp.asarray(10 + FREE)).after(jnp.asarray(FREE))
    kept, paid = step(inverse)
    assert int(paid) == 0 and int(kept.excess) == 10
    bought, paid = step(inverse.after(jnp.asarray(1 + FREE)))
    assert int(paid) == 11
    if coupling:
        np.testing.assert_array_equal(bought.matrices, inverse.matrices)
        assert int(step(bought.after(jnp.asarray(1000)))[1]) == 0  # and never again
        return
    np.testing.assert_allclose(bought.matrices, np.linalg.inv(problem.data), rtol=1e-8, atol=1e-10)
    product = lambda v: oracle.hessian_product(problem, x, theta, v)
    right = jnp.asarray(np.random.default_rng(2).normal(size=(30, 10)))
    solved = jax.jit(lambda inverse: conjugate_gradients(product, 0 * right, right, jnp.asarray(1e-10), inverse))
    w, _, products, _ = solved(bought)
    np.testing.assert_allclose(product(w), right, atol=1e-9)
    assert int(products) <= 2 < int(solved(inverse)[2])


def test_small_lower_levels_have_one_inverse_and_large_ones_none():
    theta = {"a": jnp.zeros((4, 3)), "b": jnp.zeros(5)}
    whole = Inverse.unknown(theta)
    assert whole is not None and whole.matrices.shape == (1, 17, 17)
    jax.tree.map(np.testing.assert_array_equal, whole.times(theta), theta)
    diagonal = Inverse.unknown(jnp.zeros(MOST + 1))
    assert diagonal is not None and diagonal.matrices.shape == (MOST + 1, 1, 1)
    assert Inverse.unknown(jnp.zeros((2, MOST + 1))) is None
    assert Inverse.unknown(jnp.zeros((10**4, MOST))) is None
    assert Inverse.unknown({"a": jnp.zeros((3, MOST)), "b": jnp.zeros(5)}) is None
    assert Inverse.unknown(None) is None


@pytest.mark.parametrize("name", ["linear-quadratic, nu > 0", pytest.param("logistic", marks=pytest.mark.slow)])
def test_what_is_known_at_a_place_gives_the_same_evaluation_for_fewer_calls(name):
    """A new centre at the same x, from the variables found there: told so, and not."""
    problem, start, _ = PROBLEMS[name](0)
    gradients = (start.x, start.theta, start.y)
    numbers = (jnp.zeros(()), jnp.asarray(0.5))
    unsolved = Inner(start.theta, start.y, jnp.zeros_like(start.theta), start.theta, gradients, *numbers)
    free = Cost(*(jnp.zeros((), jnp.int32) for _ in Cost._fields))

    @jax.jit
    def at(warm, stays, y0, accuracy):
        memory, mu, c_low = Memory(None, None), jnp.asarray(0.3), jnp.asarray(1.0)
        return evaluate(problem, start.x, warm, memory, stays, y0, mu, accuracy, c_low, free)

    tight = jnp.asarray(1e-9)
    rough = at(unsolved, jnp.asarray(False), start.y, jnp.asarray(1e-2))
    told, untold = (at(rough.inner, jnp.asarray(stays), start.y, tight) for stays in (True, False))
    assert int(told.cost.gradients) == int(untold.cost.gradients) - 1  # theta moves on, and f_theta with it
    np.testing.assert_allclose(told.Gx, untold.Gx, rtol=1e-9, atol=1e-12)
    first = at(unsolved, jnp.asarray(False), start.y, tight)
    told, untold = (at(first.inner, jnp.asarray(stays), first.inner.y, tight) for stays in (True, False))
    assert int(told.cost.gradients) == int(untold.cost.gradients) - 2
    assert int(told.cost.hvps) == int(untold.cost.hvps)
    np.testing.assert_allclose(told.value, untold.value, rtol=1e-12)
    np.testing.assert_allclose(told.Gx, untold.Gx, rtol=1e-9, atol=1e-12)
    g_theta = oracle.lower_gradient(problem, start.x, told.inner.theta)
    np.testing.assert_allclose(told.inner.g_theta, g_theta, atol=1e-13)


def test_what_a_function_depends_on():
    A, t = jnp.eye(3), jnp.ones(3)
    quadratic = (
        lambda t: jnp.sum(jnp.square(A @ t)),
        lambda t: jnp.mean((A @ t - 1) ** 2),
        lambda t: t @ A @ t,
        lambda t: jnp.sum(jax.vmap(lambda a: (a @ t) ** 2)(A)),
        lambda t: jax.checkpoint(lambda t: jnp.vdot(t, t))(t),
    )
    other = (
        lambda t: jnp.sum(jax.nn.softplus(t)),
        lambda t: jnp.sum(t**3),
        lambda t: jnp.sum(jnp.where(jnp.abs(t) < 1, t**2, jnp.abs(t))),
        lambda t: jax.lax.cond(t[0] > 0, lambda t: t @ t, lambda t: 2 * t @ t, t),
    )
    for function in (*quadratic, *other):
        product = lambda t, v, function=function: jax.jvp(jax.grad(function), (t,), (v,))[1]
        assert depends(product, t, t) == (function in other)


def test_a_lower_level_is_quadratic_if_its_hessian_is_constant():
    for name, wanted in (("linear-quadratic, nu > 0", True), ("logistic", False)):
        problem, start, _ = PROBLEMS[name](0)
        assert quadratic_lower(problem, start.x, start.theta) is wanted


def test_a_run_stops_at_the_step_that_meets_the_goal():
    """Not at the next multiple of the steps between two looks; the trace has it."""
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0)
    result = bs.solve(problem, start, tol=1e-6, progress=False)
    method = bs.methods.Adaptive(1e-6)
    state, gaps = method.init(problem, start), []
    step = jax.jit(method.step)
    for _ in range(result.steps):
        state = step(problem, state)
        gaps.append(float(state.gap))
    assert result.status is bs.Status.CERTIFIED and gaps[-1] <= 1e-6 < min(gaps[:-1])
    assert int(result.trace.k[-1]) == result.steps
