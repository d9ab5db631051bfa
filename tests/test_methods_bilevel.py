"""The bilevel methods against plain NumPy loops, and the identities between them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from tests import reference_methods_bilevel as loops
from tests.method_cases.bilevel import METHODS, fsla, ibcg, lower_step, multi_block_v1, multi_block_v2, soba
from tests.method_cases.runs import deviation, numbers, run, trajectory, unless_quick
from tests.method_cases.weighted import g_x, twin, weighted
from tests.registry import PROBLEMS, TWINS, flat, one_sided_projection_free

STEPS = 200
SLOW = pytest.mark.slow


def compared(name, problem, start, wanted, record, **options):
    given = trajectory(METHODS[name](problem, **options), problem, start, STEPS)
    worst = deviation(given[: len(wanted)], wanted)
    record(f"trajectory of {name} against NumPy, {STEPS} steps", worst)
    return worst


def sizes(name, problem, **options):
    return numbers(METHODS[name](problem, **options))


def descent(p, steps):
    """w by 4 gradient steps, as AmIGO does it."""

    def solve(x, theta, rhs, w):
        for _ in range(4):
            w = w - steps["eta"] * (p.g_tt(x, theta) @ w - rhs)
        return w

    return solve


def series(p, problem, terms):
    return lambda x, theta, rhs, w: loops.neumann(p.g_tt(x, theta), rhs, float(problem.constants.L_g), terms)


# name -> (options of the method, the loop as a function of (twin, x, theta, steps, problem, seed))
BILEVEL = {
    "SOBA": ({}, lambda p, x, t, s, q, seed: loops.soba(p, x, t, s, STEPS)),
    "SABA": ({}, lambda p, x, t, s, q, seed: loops.soba(p, x, t, s, STEPS)),
    "IBCG": ({"gamma": 0.002}, lambda p, x, t, s, q, seed: loops.ibcg(p, x, t, s, STEPS)),
    "FSLA": ({"momentum": 0.3}, lambda p, x, t, s, q, seed: loops.fsla(p, x, t, s, STEPS, 0.3)),
    "SUSTAIN": (
        {"momentum": 0.3, "neumann_terms": 9},
        lambda p, x, t, s, q, seed: loops.sustain(p, x, t, s, STEPS, float(q.constants.L_g), 9, 0.3),
    ),
    "SBFW": (
        {"momentum": 0.3, "neumann_terms": 9, "gamma": 0.002},
        lambda p, x, t, s, q, seed: loops.sustain(p, x, t, s, STEPS, float(q.constants.L_g), 9, 0.3, lmo=True),
    ),
    "F2SA": (
        {"penalty": 5.0, "inner_steps": 2},
        lambda p, x, t, s, q, seed: loops.penalty(p, x, t, None, s, STEPS, 5.0, g_x(seed), 2),
    ),
    "BA": (
        {},
        lambda p, x, t, s, q, seed: loops.inner_loops(
            p,
            x,
            t,
            None,
            s,
            STEPS,
            loops.gradient_steps(p, s["alpha"], lambda k: int(np.ceil((k + 1) ** 0.25 - 1e-12))),
            lambda x, theta, rhs, w: np.linalg.solve(p.g_tt(x, theta), rhs),
        ),
    ),
    "BSA": (
        {"neumann_terms": 9, "inner_steps": 3},
        lambda p, x, t, s, q, seed: loops.inner_loops(
            p, x, t, None, s, STEPS, loops.gradient_steps(p, s["alpha"], lambda k: 3), series(p, q, 9)
        ),
    ),
    "AID": (
        {"inner_steps": 3, "cg_steps": 2},
        lambda p, x, t, s, q, seed: loops.inner_loops(
            p,
            x,
            t,
            None,
            s,
            STEPS,
            loops.gradient_steps(p, s["alpha"], lambda k: 3),
            loops.conjugate_gradient_steps(p, 2),
        ),
    ),
    "AmIGO": (
        {"inner_steps": 3, "linear_steps": 4},
        lambda p, x, t, s, q, seed: loops.inner_loops(
            p, x, t, None, s, STEPS, loops.gradient_steps(p, s["alpha"], lambda k: 3), descent(p, s)
        ),
    ),
    "ITD": ({"inner_steps": 7}, lambda p, x, t, s, q, seed: loops.itd(p, x, t, s, STEPS, 7)),
}


@pytest.mark.parametrize("name", unless_quick(BILEVEL))
def test_a_bilevel_method_equals_the_numpy_loop(name, record):
    options, loop = BILEVEL[name]
    for seed in range(2):
        problem, start = weighted(seed)
        steps = sizes(name, problem, **options)
        wanted = loop(twin(seed), flat(start.x), flat(start.theta), steps, problem, seed)
        assert compared(name, problem, start, wanted, record, **options) <= 1e-10


@pytest.mark.parametrize("name", ["SOBA", "IBCG"])
def test_with_an_active_ball_and_schedules(name):
    problem, start, _ = PROBLEMS["generator, ball active"](0)
    power = bs.schedules.Power
    steps = bs.StepSizes(alpha=power(0.4, -0.5), eta=power(0.3, -0.25), gamma=power(0.5, -1.0), tau=power(0.2, -0.5))
    by_hand = {
        "alpha": lambda k: 0.4 * (k + 1) ** -0.5,
        "eta": lambda k: 0.3 * (k + 1) ** -0.25,
        "gamma": lambda k: 0.5 / (k + 1),
        "tau": lambda k: 0.2 * (k + 1) ** -0.5,
    }
    loop = loops.soba if name == "SOBA" else loops.ibcg
    wanted = loop(TWINS["generator, ball active"](0), flat(start.x), flat(start.theta), by_hand, STEPS)
    given = trajectory(getattr(bs.methods, name)(steps), problem, start, STEPS)
    assert deviation(given, wanted) <= 1e-10


@SLOW
def test_the_saddle_methods_equal_the_numpy_loops(record):
    for seed in range(2):
        problem, start, _ = PROBLEMS["logistic"](seed)
        p, begin = TWINS["logistic"](seed), (flat(start.x), flat(start.theta), flat(start.y))
        options = {"momentum": 0.3, "averaging": 0.2}
        wanted = loops.multi_block(p, *begin, sizes("MultiBlockV1", problem), STEPS, 0.3, averaging=0.2)
        assert compared("MultiBlockV1", problem, start, wanted, record, **options) <= 1e-10
        wanted = loops.multi_block(p, *begin, sizes("MultiBlockV2", problem), STEPS, 0.3)
        assert compared("MultiBlockV2", problem, start, wanted, record, momentum=0.3) <= 1e-10
        steps = sizes("FirstOrderPenalty", problem, penalty=5.0)
        wanted = loops.penalty(p, *begin, steps, STEPS, 5.0, g_x(seed))
        assert compared("FirstOrderPenalty", problem, start, wanted, record, penalty=5.0) <= 1e-10
        steps = sizes("DoubleLoop", problem)
        exact = lambda x, theta, rhs, w, p=p: np.linalg.solve(p.g_tt(x, theta), rhs)
        inner = loops.gradient_steps(p, steps["alpha"], lambda k: 600)
        wanted = loops.inner_loops(p, *begin, steps, STEPS, inner, exact, ascent=2)
        options = {"tolerance": 1e-14, "ascent_steps": 2}
        assert compared("DoubleLoop", problem, start, wanted, record, **options) <= 1e-10


@SLOW
def test_the_ball_of_version_2_is_that_of_the_constants():
    problem, start, _ = PROBLEMS["logistic"](0)
    known = problem.constants
    constants = bs.Constants(mu_g=known.mu_g, L_g=known.L_g, C_theta=0.02)
    problem = bs.Problem(problem.upper, problem.lower, problem.x_set, problem.y_set, problem.data, constants)
    begin = (flat(start.x), flat(start.theta), flat(start.y))
    method = multi_block_v2(problem)
    radius = 0.02 / float(known.mu_g)
    wanted = loops.multi_block(TWINS["logistic"](0), *begin, numbers(method), STEPS, 0.5, radius=radius)
    given = trajectory(method, problem, start, STEPS)
    assert deviation(given, wanted) <= 1e-10
    assert np.isclose(np.linalg.norm(given[3], axis=1).max(), radius)


# -- identities -------------------------------------------------------------------------------------------------------


def test_ibcg_is_one_sided_projection_free_without_y():
    for make in (weighted, PROBLEMS["generator, ball active"]):
        problem, start = make(1)[:2]
        one, other = ibcg(problem, 0.02), one_sided_projection_free(problem, 0.02)
        for given, wanted in zip(
            trajectory(one, problem, start, STEPS), trajectory(other, problem, start, STEPS), strict=True
        ):
            if wanted is not None:
                np.testing.assert_array_equal(given, wanted)


def test_soba_and_fsla_without_momentum_differ_in_their_order_alone():
    """SOBA moves theta, w and x at once. FSLA with eta = 1 (momentum = 1) moves theta, then w at the new theta, then x
    at the new theta and w: the loop of SOBA in that order is FSLA. Where nothing moves, both stand still."""
    problem, start = weighted(0)
    p, begin = twin(0), (flat(start.x), flat(start.theta))
    at_once, in_turn = (
        trajectory(method, problem, start, STEPS) for method in (soba(problem), fsla(problem, momentum=1.0))
    )
    steps = numbers(soba(problem))
    assert deviation(in_turn, loops.soba(p, *begin, steps, STEPS, one_after_the_other=True)) <= 1e-10
    assert deviation(at_once, loops.soba(p, *begin, steps, STEPS)) <= 1e-10
    assert deviation(in_turn, [None if rows is None else np.asarray(rows) for rows in at_once]) > 1e-4
    # far along both are at the same point: they have the same fixed points
    ends = (run(method, problem, start, 20_000)[0] for method in (soba(problem), fsla(problem, momentum=1.0)))
    for given, wanted in zip(*((end.x, end.theta, end.w) for end in ends), strict=True):
        np.testing.assert_allclose(given, wanted, rtol=0, atol=1e-12)


@SLOW
def test_one_step_of_each_multi_block_method_on_all_blocks_is_that_on_one():
    problem, start, _ = PROBLEMS["CB2 lifted"](0)
    for make in (multi_block_v1, multi_block_v2):
        whole = trajectory(make(problem), problem, start, 50)
        blocks = trajectory(make(problem, blocks=3), problem, start, 50)
        for given, wanted in zip(blocks, whole, strict=True):
            np.testing.assert_allclose(given, wanted, rtol=1e-12, atol=1e-12)


@SLOW
@pytest.mark.parametrize("make", [multi_block_v1, multi_block_v2])
def test_sampled_blocks_move_alone_and_the_direction_is_unbiased_by_enumeration(make):
    problem, start, _ = PROBLEMS["CB2 lifted"](0)

    @jax.jit
    @jax.vmap
    def one(seed):
        method = make(problem, momentum=1.0, blocks=2, seed=seed)
        return method.step(problem, method.init(problem, start))

    states = one(jnp.arange(60, dtype=jnp.uint32))
    moved = np.any(np.asarray(states.theta) != np.asarray(start.theta), axis=2)
    assert np.all(moved.sum(axis=1) == 2)
    masks, first = np.unique(moved, axis=0, return_index=True)
    assert len(masks) == 3
    method = make(problem, momentum=1.0)
    whole = method.step(problem, method.init(problem, start))
    np.testing.assert_allclose(np.asarray(states.z)[first].mean(axis=0), whole.z, rtol=1e-12)
    for mask, i in zip(masks, first, strict=True):
        np.testing.assert_allclose(np.asarray(states.theta)[i][mask], np.asarray(whole.theta)[mask], rtol=1e-12)


@SLOW
def test_iterative_differentiation_tends_to_the_implicit_gradient_in_less_than_linear_memory():
    problem, start = weighted(0)
    exact = bs.hypergradient(problem, start.x, None, start.theta)
    tau, errors = 1e-3, []
    for inner_steps in (10, 100, 400):
        method = bs.methods.ITD(bs.StepSizes(alpha=lower_step(problem), tau=tau), inner_steps)
        after = method.step(problem, method.init(problem, start))
        errors.append(float(np.linalg.norm((start.x - after.x) / tau - exact)))
    assert errors[0] > 3 * errors[1] > 9 * errors[2] and errors[2] < 1e-9

    size = 20_000

    def held(inner_steps):
        wide = bs.Problem(
            lambda x, theta, y, data: jnp.sum(theta * data),
            lambda x, theta, data: jnp.sum(jnp.cosh(theta - x) + theta**2),
            bs.sets.L2Ball(1.0),
            None,
            jnp.ones(size),
            bs.Constants(mu_g=2.0, L_g=10.0),
        )
        method = bs.methods.ITD(bs.StepSizes(alpha=0.1, tau=0.1), inner_steps)
        state = method.init(wide, bs.Point(x=jnp.zeros(size), theta=jnp.zeros(size)))
        compiled = jax.jit(method.step).lower(wide, state).compile()
        return compiled.memory_analysis().temp_size_in_bytes / (8 * size)

    few, many = held(16), held(400)
    assert many < 3 * (2 * 20) and many < 8 * few  # 25 times the steps, 5 times the square root
