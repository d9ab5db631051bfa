"""Every bilevel method on the closed-form quadratics: the gap its class allows, feasible at every step; and the rest of
what all methods promise: counts, dtypes, default steps, mistakes named."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from tests.method_cases import sampled
from tests.method_cases.bilevel import METHODS
from tests.method_cases.runs import run, unless_quick
from tests.registry import PROBLEMS, generator, linear_quadratic, one_sided_projection_free
from tests.test_certificate import certify

LINEAR, SUBLINEAR = 1e-8, 1e-3
TIGHT = {"neumann_terms": 60}  # kappa is at most 3: a bias below rounding

# name: (options, steps, the gap that its theory allows). LINEAR: the publication has a linear rate for strongly convex
# F or, for AID, ITD and DoubleLoop, the gradient descent has that they imitate; the others are sublinear on paper, and
# most of them linear here all the same, since nothing is sampled.
BILEVEL = {
    "AID": ({}, 2_000, LINEAR),
    "AmIGO": ({}, 2_000, LINEAR),
    "BA": ({}, 2_000, LINEAR),
    "ITD": ({"inner_steps": 40}, 2_000, LINEAR),
    "SABA": ({}, 2_000, LINEAR),
    "BSA": (TIGHT, 2_000, SUBLINEAR),
    "F2SA": ({"penalty": 1e4}, 5_000, SUBLINEAR),
    "FSLA": ({}, 2_000, SUBLINEAR),
    "SOBA": ({}, 2_000, SUBLINEAR),
    "SUSTAIN": (TIGHT, 2_000, SUBLINEAR),
    "TTSA": ({}, 2_000, SUBLINEAR),
}
SADDLE = {
    "DoubleLoop": ({"tau": 0.1, "sigma": 0.1, "tolerance": 1e-11}, 10_000, LINEAR),
    "FirstOrderPenalty": ({"penalty": 1e4, "tau": 0.02, "sigma": 0.02}, 20_000, SUBLINEAR),
    "MORBiT": ({"tau": 0.1, "sigma": 0.1}, 5_000, SUBLINEAR),
    "MultiBlockV1": ({"tau": 0.1, "sigma": 0.1}, 5_000, SUBLINEAR),
    "MultiBlockV2": ({"tau": 0.1, "sigma": 0.1}, 5_000, SUBLINEAR),
}
LINEAR_QUADRATICS = [name for name in PROBLEMS if name.startswith("linear-quadratic")]


def reached(method, problem, start, count):
    state, violation = run(method, problem, start, count)
    measure = "lmo" if method.about.x_oracle == "lmo" else "projection"
    return state.point, certify(problem, state.point, measure=measure), float(violation)


def solutions(name, case, problem_name, record):
    """The point reached, the answer and the gap asked for, of two problems; the gap is met and the point feasible."""
    options, count, gap = case
    for seed in range(2):
        problem, start, answer = PROBLEMS[problem_name](seed)
        point, certificate, violation = reached(METHODS[name](problem, **options), problem, start, count)
        record(f"gap of methods with theory to {gap:.0e}", certificate.gap)
        assert certificate.within(gap), f"{problem_name}: {certificate}"
        assert violation <= 1e-12
        yield point, answer, gap


@pytest.mark.parametrize("name", unless_quick(BILEVEL, ("SOBA",)))
def test_a_bilevel_method_solves_the_quadratics(name, record):
    for problem_name in ("generator", "generator, ball active"):
        for point, answer, gap in solutions(name, BILEVEL[name], problem_name, record):
            if answer is not None:
                np.testing.assert_allclose(point.x, answer.x, atol=10 * gap)


@pytest.mark.parametrize("name", unless_quick(SADDLE, ()))
@pytest.mark.parametrize(
    "problem_name",
    [
        p if "simplex" not in p and p.endswith("> 0") else pytest.param(p, marks=pytest.mark.slow)
        for p in LINEAR_QUADRATICS
    ],
)
def test_a_saddle_method_solves_the_quadratics(name, problem_name, record):
    for point, answer, gap in solutions(name, SADDLE[name], problem_name, record):
        np.testing.assert_allclose(point.x, answer.x, atol=30 * gap)
        np.testing.assert_allclose(point.y, answer.y, atol=30 * gap)


@pytest.mark.parametrize("name", unless_quick(["IBCG", "SBFW"], ()))
def test_a_projection_free_method_solves_the_quadratics(name, record):
    """gamma = 2 / (k + 2): the rate for convex F. The ball is the answer's neighbourhood, or cuts it off."""
    falling = bs.schedules.Power(2.0, -1.0, 1.0)
    options = {} if name == "IBCG" else TIGHT
    for radius, count in ((2.0, 40_000), (0.2, 2_000)):
        for seed in range(2):
            problem, start, answer = generator(seed, radius)
            point, certificate, violation = reached(METHODS[name](problem, falling, **options), problem, start, count)
            record(f"gap of methods with theory to {SUBLINEAR:.0e}", certificate.gap)
            assert certificate.within(SUBLINEAR), str(certificate)
            assert violation <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("nu", [0.0, 0.5])
@pytest.mark.parametrize("y_size", [20.0, None])
def test_one_sided_projection_free_solves_the_quadratics(nu, y_size, record):
    """As IBCG, and with a max player. FullyProjected: tests/test_problems.py."""
    for seed in range(2):
        problem, start, answer = linear_quadratic(seed, nu, y_size, x_size=2.0)
        method = one_sided_projection_free(problem, bs.schedules.Power(2.0, -1.0, 1.0), 0.1)
        point, certificate, violation = reached(method, problem, start, 100_000)
        record(f"gap of methods with theory to {SUBLINEAR:.0e}", certificate.gap)
        assert certificate.within(SUBLINEAR), str(certificate)
        assert violation <= 1e-12
        np.testing.assert_allclose(point.x, answer.x, atol=1e-2)
        np.testing.assert_allclose(point.y, answer.y, atol=1e-2)


def test_every_method_of_this_part_is_tried():
    assert set(BILEVEL) | set(SADDLE) | {"IBCG", "SBFW"} == set(METHODS)


def example(name, seed=0):
    saddle = name in SADDLE
    problem, start, _ = PROBLEMS["logistic" if saddle else "generator, ball active"](seed)
    return METHODS[name](problem), problem, start


@pytest.mark.parametrize("name", unless_quick(METHODS))
def test_float32_stays_float32_and_the_state_keeps_its_form(name):
    method, problem, start = example(name)
    problem, start = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), (problem, start))
    state = jax.eval_shape(method.init, problem, start)
    after = jax.eval_shape(method.step, problem, state)
    assert jax.tree.structure(after) == jax.tree.structure(state)
    for old, new in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        assert old.dtype in (jnp.float32, jnp.int32, jnp.uint32)


# what three steps cost: gradients, Hessian products, cross products, projections, LMOs
COUNTS = {
    "AID": ({"inner_steps": 4, "cg_steps": 2}, (15, 9, 3, 3, 0)),
    "AmIGO": ({"inner_steps": 4, "linear_steps": 2}, (15, 6, 3, 3, 0)),
    "BSA": ({"inner_steps": 4, "neumann_terms": 3}, (15, 6, 3, 3, 0)),
    "F2SA": ({"inner_steps": 4}, (45, 0, 0, 3, 0)),
    "FSLA": ({}, (9, 3, 6, 3, 0)),
    "FirstOrderPenalty": ({}, (18, 0, 0, 6, 0)),
    "IBCG": ({}, (6, 3, 3, 0, 3)),
    "ITD": ({"inner_steps": 4}, (15, 12, 12, 3, 0)),
    "MORBiT": ({"neumann_terms": 3}, (6, 6, 3, 6, 0)),
    "MultiBlockV1": ({}, (6, 16, 3, 6, 0)),  # theta has 4 entries, and the start a Hessian of its own
    "MultiBlockV2": ({}, (6, 3, 3, 6, 0)),
    "SABA": ({}, (8, 4, 4, 3, 0)),  # a pass over the only block at the start
    "SBFW": ({"neumann_terms": 3}, (9, 12, 6, 0, 3)),
    "SOBA": ({}, (6, 3, 3, 3, 0)),
    "SUSTAIN": ({"neumann_terms": 3}, (12, 12, 6, 3, 0)),
    "TTSA": ({"neumann_terms": 3}, (6, 6, 3, 3, 0)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_the_oracle_calls_made(name):
    options, wanted = COUNTS[name]
    _, problem, start = example(name)
    method = METHODS[name](problem, **options)
    assert tuple(method.counts(problem, run(method, problem, start, 3)[0])) == wanted


@pytest.mark.slow
def test_counts_of_loops_that_stop_by_themselves():
    method, problem, start = example("DoubleLoop")
    method = METHODS["DoubleLoop"](problem, limit=5, tolerance=1e-14, ascent_steps=2)
    state = run(method, problem, start, 3)[0]
    # 5 steps and one more gradient to look at, 2 ascents, 1 at the end; conjugate gradients in 4 dimensions
    assert tuple(method.counts(problem, state)) == (3 * 9, state.products, 3, 9, 0)
    assert 3 * 4 <= state.products <= 3 * 6
    _, problem, start = example("BA")
    method = METHODS["BA"](problem, inner_steps=lambda k: 1.0 + k)
    assert method.counts(problem, run(method, problem, start, 3)[0]).gradients == 1 + 2 + 3 + 3


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_default_steps_bring_the_gap_down(name):
    """With nu chosen from three, a tenth of the gap of the start or less after 3000 steps."""
    saddle = name in SADDLE
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0) if saddle else generator(0, 2.0)
    kind = getattr(bs.methods, name)
    measure = "lmo" if kind.about.x_oracle == "lmo" else "projection"
    before = certify(problem, start, measure=measure).gap
    gaps = [reached(kind.with_default_steps(problem, 3000, nu), problem, start, 3000)[1].gap for nu in (0.1, 1.0, 10.0)]
    assert np.nanmin(gaps) <= 0.1 * before


def test_default_steps_need_the_constants():
    _, problem, _ = example("SOBA")
    bare = bs.Problem(problem.upper, problem.lower, problem.x_set, None, problem.data)
    for name in set(BILEVEL) | {"IBCG", "SBFW"}:
        with pytest.raises(ValueError, match=f"{name}.with_default_steps needs the constants mu_g and L_g"):
            getattr(bs.methods, name).with_default_steps(bare, 100)


STEPS = bs.StepSizes(alpha=0.1, eta=0.1, gamma=0.1, tau=0.1, sigma=0.1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda m: m.FSLA(STEPS, momentum=0.0), "momentum must lie in \\(0, 1\\], given 0"),
        (lambda m: m.SUSTAIN(STEPS, momentum=1.5), "momentum must lie in"),
        (lambda m: m.SBFW(STEPS, momentum=None), "momentum must be a number .* given None"),
        (lambda m: m.F2SA(STEPS, -1.0), "penalty must be a number > 0 or a function of k, given -1"),
        (lambda m: m.F2SA(STEPS, 1.0, 0), "inner_steps must be a whole number >= 1, given 0"),
        (lambda m: m.BA(STEPS, 0), "inner_steps must be a number >= 1"),
        (lambda m: m.AID(STEPS, 10, 0), "cg_steps must be a whole number >= 1, given 0"),
        (lambda m: m.DoubleLoop(STEPS, 0.0), "tolerance must be finite and > 0, given 0"),
        (lambda m: m.MultiBlockV2(STEPS, momentum=0.5, blocks=0), "blocks must be a whole number >= 1, given 0"),
        (lambda m: m.SOBA(bs.StepSizes(alpha=0.1, tau=0.1)), "SOBA needs the step sizes eta, given alpha, tau"),
        (lambda m: m.IBCG(bs.StepSizes(alpha=0.1, eta=0.1)), "IBCG needs the step sizes gamma"),
    ],
)
def test_bad_options_are_refused_at_construction(make, words):
    with pytest.raises(ValueError, match=words):
        make(bs.methods)


def test_what_does_not_fit_the_problem_is_refused_before_anything_compiles():
    problem, start = sampled.regressions(0, saddle=False)
    with pytest.raises(ValueError, match="SABA remembers one batch for each of f and g, given 2"):
        bs.methods.SABA(STEPS, sampler=sampled.both(1, 1)).init(problem, start)
    with pytest.raises(ValueError, match="size must divide the number of rows"):
        bs.methods.SABA(STEPS, sampler=sampled.rows(3)).init(problem, start)
    problem, start, _ = PROBLEMS["logistic"](0)
    with pytest.raises(ValueError, match="MultiBlockV2 with blocks=2 needs a first axis .* use blocks=None"):
        bs.methods.MultiBlockV2(STEPS, momentum=0.5, blocks=2).init(problem, start)


@pytest.mark.slow
def test_solve_takes_any_of_them():
    problem, start, answer = PROBLEMS["generator"](0)
    result = bs.solve(problem, start, METHODS["AID"](problem), max_steps=2000, tol=1e-8, progress=False)
    assert result.status is bs.Status.CERTIFIED and result.trace.k[-1] < 2000
    np.testing.assert_allclose(result.x, answer.x, atol=1e-6)
