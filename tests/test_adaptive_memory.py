"""What Adaptive remembers: places to begin from, an inverse Hessian, and what a function does not depend on."""

import gc
import tracemalloc
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import oracle
from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.constants import FREE_PRODUCTS, RECALLED, RECALLED_ENTRIES
from bisaddle.methods.adaptive.inner import Residuals, Solver
from bisaddle.methods.adaptive.inverse import Inverse
from bisaddle.methods.adaptive.parts import most_pairs
from bisaddle.methods.adaptive.recall import Recall, most_recalled
from bisaddle.oracle.depends import depends
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.theta_blocks import MOST, matrix_blocks
from bisaddle.trees import Shape
from tests.reference import project_simplex
from tests.registry import PROBLEMS
from tests.test_adaptive import solver_of, unsolved


def test_affine_theta_and_w_are_recalled_exactly_where_the_places_reach():
    """theta(x) and w(x, y) affine, x in a plane and y on a line: four places tell everything."""
    rng = np.random.default_rng(0)
    plane, A, B, line = rng.normal(size=(2, 5)), rng.normal(size=(5, 7)), rng.normal(size=(3, 7)), rng.normal(size=3)
    place = lambda a, b, c: (np.array([a, b]) @ plane, c * line)
    answers = lambda x, y: (1 + x @ A, x @ A**2 + y @ B - 2)
    recall = Recall()
    for a, b, c in ((1, 0, 1e-6), (2, 1e-3, 0.1), (0, 1, 3), (1e-4, -1, 1), (1, 1, 1)):
        x, y = place(a, b, c)
        recall.add(x, y, *answers(x, y))
    x, y = place(0.3, -0.7, 2.0)
    theta, w = answers(x, y)
    np.testing.assert_allclose(recall.theta_at(x), theta, atol=1e-6)
    np.testing.assert_allclose(recall.w_at(x, y), w, atol=1e-6)


def test_rounding_does_not_weigh_what_is_recalled():
    """Nine bent answers in two dimensions: weights are not unique, and other last digits choose no others."""
    rng = np.random.default_rng(1)
    places, noise = rng.normal(size=(9, 2)), rng.uniform(-1, 1, size=(9, 2))
    guesses = []
    for digits in (0.0, 1e-15):
        recall = Recall()
        for x in places + digits * noise:
            recall.add(x, np.zeros(0), np.array([x @ x, np.sin(3 * x[0])]), np.zeros(1))
        guesses.append(recall.theta_at(np.array([0.2, -0.1])))
    assert np.max(np.abs(guesses[1] - guesses[0])) <= 1e-15 / const.RECALL_LEAST


def test_large_x_are_held_in_few_copies(monkeypatch):
    """What a search keeps between two steps, and the looks that a run keeps of it, in copies of x."""
    assert most_pairs(8, 8) == const.PAIRS and most_pairs(10**6, 8) == 2
    monkeypatch.setattr(const, "PAIR_BYTES", 0)  # as if x were larger
    monkeypatch.setattr(const, "RECALLED_INPUTS", 0)
    size = 50_000
    centres = jnp.asarray(np.random.default_rng(0).normal(size=(3, size)))
    losses = lambda x, data: jnp.mean(jnp.square(x - data), axis=1)
    upper = lambda x, theta, y, data: y @ theta + jnp.mean(x**4)
    lower = lambda x, theta, data: 0.5 * jnp.sum(jnp.square(theta - losses(x, data)))
    problem = bs.Problem(upper, lower, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex(), centres, bs.Constants(mu_g=1.0))
    start = bs.Point(x=np.zeros(size), theta=np.zeros(3), y=np.full(3, 1 / 3))
    kernels = Kernels(problem, start)
    run = lambda: bs.methods.Adaptive(1e-12).looks(problem, kernels, *kernels.flat(start))
    list(islice(run(), 5))  # everything is compiled
    gc.collect()
    on_device = lambda: sum(array.nbytes for array in jax.live_arrays())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0] + on_device()
        best, held = None, []
        for look in islice(run(), 25):
            best = look if best is None or look.gap <= best.gap else best
            if look.state is None:  # amidst a line search, which has a direction and a trial to hold
                continue
            held.append((tracemalloc.get_traced_memory()[0] + on_device() - before) / (8 * size))
    finally:
        tracemalloc.stop()
    assert len(held) > 5 and max(held) <= 12.5, held


def test_one_place_and_equal_places_are_recalled_as_they_are():
    x, y, theta = np.arange(3.0), np.ones(2), np.array([1.0, 1, 1, 1, 0, 0, 0])
    recall = Recall()
    most = RECALLED_ENTRIES // RECALLED
    assert most_recalled(8, most - 8) == RECALLED and most_recalled(8, most - 7) == RECALLED - 1
    assert most_recalled(10**6, 3) == 2 and most_recalled(8, RECALLED_ENTRIES // 2) == 1  # none is kept then
    for _ in range(RECALLED + 2):
        recall.add(x, y, theta, theta)
        np.testing.assert_array_equal(recall.theta_at(x + 1), theta)
        np.testing.assert_array_equal(recall.w_at(x + 1, y - 1), theta)


def test_what_lies_too_far_back_is_forgotten():
    """The first place contradicts the others, which lie on a line; at the newest its own answer is given."""
    recall = Recall()
    recall.add(np.full(2, 0.5), np.zeros(0), np.full(3, 1e6), np.full(3, 1e6))
    for i in range(RECALLED):
        assert np.max(np.abs(recall.theta_at(np.full(2, -1.0)))) > 1e3
        recall.add(np.full(2, float(i)), np.zeros(0), np.full(3, 2.0 * i), np.full(3, -float(i)))
        np.testing.assert_array_equal(recall.theta_at(np.full(2, float(i))), np.full(3, 2.0 * i))
    np.testing.assert_allclose(recall.theta_at(np.full(2, -1.0)), np.full(3, -2.0), rtol=1e-6)
    np.testing.assert_allclose(recall.w_at(np.full(2, -1.0), np.zeros(0)), np.full(3, 1.0), rtol=1e-6)


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
    start = bs.Point(jnp.zeros(10), jnp.zeros((30, 10)), None)
    kernels = Kernels(problem, start)
    x, theta, _ = kernels.flat(start)
    assert theta.size > MOST and kernels.blocks == 30
    inverse = Inverse(kernels)
    unknown = np.asarray(inverse.matrices)
    np.testing.assert_array_equal(unknown, np.tile(np.eye(10), (30, 1, 1)))
    inverse.after(10 + FREE_PRODUCTS)
    inverse.after(FREE_PRODUCTS)
    assert inverse.renew(x, theta) == 0 and inverse.excess == 10
    inverse.after(1 + FREE_PRODUCTS)
    assert inverse.renew(x, theta) == 11
    if coupling:
        np.testing.assert_array_equal(inverse.matrices, unknown)
        inverse.after(1000)
        assert inverse.renew(x, theta) == 0  # and never again
        return
    assert inverse.excess == 0
    np.testing.assert_allclose(inverse.matrices, np.linalg.inv(problem.data), rtol=1e-8, atol=1e-10)
    right = np.random.default_rng(2).normal(size=300)
    solved = kernels.solve(x, theta, right, 1e-10, inverse=inverse.matrices)
    product = oracle.hessian_product(problem, start.x, start.theta, jnp.asarray(solved.w.reshape(30, 10)))
    np.testing.assert_allclose(product, right.reshape(30, 10), atol=1e-9)
    assert solved.products <= 2 < kernels.solve(x, theta, right, 1e-10, inverse=unknown).products


@pytest.mark.parametrize("coupling", [0.0, 0.5])
def test_tasks_of_a_small_lower_level_share_products_until_they_touch(coupling):
    """theta is 4 tasks of 3 + 2 variables in two leaves: 5 products and one to look, or 20 for all of it."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(4, 5, 5))
    H = A @ A.transpose(0, 2, 1) + np.eye(5)
    rows = lambda theta: jnp.concatenate([theta["a"], theta["b"]], axis=1)

    def lower(x, theta, data):
        return 0.5 * jnp.einsum("ti,tij,tj->", rows(theta), data, rows(theta)) + coupling * jnp.sum(rows(theta)) ** 2

    upper = lambda x, theta, y, data: jnp.sum(rows(theta))
    problem = bs.Problem(upper, lower, bs.sets.Box(-1.0, 1.0), None, jnp.asarray(H))
    start = bs.Point(jnp.zeros(1), {"a": jnp.zeros((4, 3)), "b": jnp.zeros((4, 2))}, None)
    kernels = Kernels(problem, start)
    x, theta, _ = kernels.flat(start)
    inverse = Inverse(kernels)
    inverse.after(26 + FREE_PRODUCTS)
    assert inverse.price == 6 == inverse.renew(x, theta)
    if coupling:
        np.testing.assert_array_equal(inverse.matrices, np.eye(20)[None])
        assert inverse.price == inverse.excess == 20 == inverse.renew(x, theta)
    whole = np.stack([kernels.hessian_product(x, theta, e) for e in np.eye(20)])
    assert inverse.excess == 0
    np.testing.assert_allclose(inverse.matrices[0] @ whole, np.eye(20), atol=1e-10)


def test_an_inverse_that_would_not_be_positive_definite_is_not_taken():
    lower = lambda x, theta, data: 0.5 * jnp.sum(data * theta**2)
    diagonal = jnp.asarray([1.0, 2.0, -3.0])
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(theta), lower, bs.sets.Box(0.0, 1.0), None, diagonal)
    kernels = Kernels(problem, bs.Point(jnp.zeros(1), jnp.zeros(3), None))
    inverse = Inverse(kernels)
    inverse.after(100)
    assert inverse.renew(np.zeros(1), np.zeros(3)) == 3 and inverse.excess == 0
    np.testing.assert_array_equal(inverse.matrices, np.eye(3)[None])


def test_small_lower_levels_have_one_inverse_and_large_ones_none():
    problem = tasks_problem(0.0)

    def matrices(theta):
        kernels = Kernels(problem, bs.Point(jnp.zeros(10), theta, None))
        assert matrix_blocks(Shape.of(theta)) == kernels.blocks == len(kernels.identity)
        return Inverse(kernels).matrices

    whole = matrices({"a": jnp.zeros((4, 3)), "b": jnp.zeros(5)})
    np.testing.assert_array_equal(whole, np.eye(17)[None])
    assert matrices(jnp.zeros(MOST + 1)).shape == (MOST + 1, 1, 1)
    for none in (
        jnp.zeros((2, MOST + 1)),
        jnp.zeros((10**4, MOST)),
        {"a": jnp.zeros((3, MOST)), "b": jnp.zeros(5)},
        None,
    ):
        assert len(matrices(none)) == 0


def test_a_lower_level_too_large_for_an_inverse_is_solved_without():
    lower = lambda x, theta, data: 0.5 * jnp.sum(data * theta**2)
    diagonal = jnp.asarray(np.random.default_rng(3).uniform(1, 2, (2, MOST + 1)))
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(theta), lower, bs.sets.Box(0.0, 1.0), None, diagonal)
    start = bs.Point(jnp.zeros(1), jnp.zeros(diagonal.shape), None)
    kernels = Kernels(problem, start)
    x, theta, _ = kernels.flat(start)
    inverse = Inverse(kernels)
    inverse.after(10**6)
    assert inverse.renew(x, theta) == 0
    right = np.random.default_rng(4).normal(size=theta.size)
    solved = kernels.solve(x, theta, right, 1e-10, inverse=inverse.matrices)
    np.testing.assert_allclose(solved.w, right / np.ravel(diagonal), atol=1e-9)


@pytest.mark.parametrize("name", ["linear-quadratic, nu > 0", "logistic"])
def test_what_is_known_at_a_place_gives_the_same_evaluation_for_fewer_calls(name):
    """A new centre at the same x, from the variables found there: told so, and not."""
    problem, start, _ = PROBLEMS[name](0)

    def at(warm, stays, y0, accuracy):
        """The evaluation, and what it cost."""
        solver = solver_of(problem, start)
        x, _, y = solver.kernels.flat(start)
        warm = unsolved(solver.kernels, start, 0.5) if warm is None else warm
        residuals = Residuals(0.5 * accuracy, 0.5 * accuracy, 0.1 * accuracy)
        found = solver.evaluate(x, warm, stays, y if y0 is None else y0, mu=0.3, residuals=residuals)
        return found, solver.cost

    tight = 1e-9
    rough, _ = at(None, False, None, 1e-2)
    (told, cost), (untold, full) = (at(rough.inner, stays, None, tight) for stays in (True, False))
    assert cost.gradients == full.gradients - 1  # theta moves on, and f_theta with it
    np.testing.assert_allclose(told.Gx, untold.Gx, rtol=1e-9, atol=1e-12)
    first, _ = at(None, False, None, tight)
    (told, cost), (untold, full) = (at(first.inner, stays, first.inner.y, tight) for stays in (True, False))
    assert cost.gradients == full.gradients - 2
    assert cost.hvps == full.hvps
    np.testing.assert_allclose(told.value, untold.value, rtol=1e-12)
    np.testing.assert_allclose(told.Gx, untold.Gx, rtol=1e-9, atol=1e-12)
    g_theta = oracle.lower_gradient(problem, start.x, jnp.asarray(told.inner.theta))
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
    for name, wanted in (("linear-quadratic, nu > 0", True), ("logistic", False), ("wavy saddle", False)):
        problem, start, _ = PROBLEMS[name](0)
        assert Kernels(problem, start).quadratic is wanted


def test_a_run_stops_at_the_step_that_meets_the_goal():
    """Not at the next multiple of the steps between two looks; the trace has it."""
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0)
    result = bs.solve(problem, start, tol=1e-6, progress=False)
    kernels = Kernels(problem, start)
    looks = bs.methods.Adaptive(1e-6).looks(problem, kernels, *kernels.flat(start))
    gaps = {look.k: look.gap for look in islice(looks, len(set(result.trace.k) - {0}))}
    assert list(gaps) == [*range(1, result.steps + 1)]
    assert result.status is bs.Status.CERTIFIED
    assert gaps.pop(result.steps) <= 1e-6 < min(gaps.values())
    assert int(result.trace.k[-1]) == result.steps


def test_y_is_foreseen_where_f_is_linear_in_it():
    """f_y affine in x: once three places of a plane are known, a fourth takes one gradient instead of two."""
    rng = np.random.default_rng(3)
    A, b, y0, mu = rng.normal(size=(2, 3)), rng.normal(size=3), np.full(3, 1 / 3), 2.0
    exact = lambda x: project_simplex(y0 + (x @ A + b) / mu)
    places = (np.zeros(2), np.array([0.1, 0.2]), np.array([-0.2, 0.1]), np.array([0.15, -0.1]))
    linear = lambda x, theta, y, data: y @ (x @ A + b)
    unsure = lambda x, theta, y, data: linear(x, theta, y, data) + data * (y @ y)  # data is 0, which no program tells
    for upper, calls in ((linear, 1), (unsure, 2)):
        problem = bs.Problem(upper, None, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex(), jnp.zeros(()))
        solver = Solver(Kernels(problem, bs.Point(x=places[0], y=y0)))
        inner, _ = solver.begin(places[0], np.zeros(0), y0, None)
        before = 0
        for i, x in enumerate(places):
            before = solver.cost.gradients
            inner = solver.evaluate(x, inner, i == 0, y0, mu, Residuals(0.0, 0.0, 1e-6)).inner
            np.testing.assert_allclose(inner.y, exact(x), atol=1e-6)
        assert solver.cost.gradients - before == calls
