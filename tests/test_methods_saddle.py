"""The methods for plain saddle problems: NumPy loops, known saddles, identities with the paper's two methods."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bisaddle as bs
from tests import reference_methods_saddle as loops
from tests.method_cases.saddle import SADDLE_METHODS, quadratic, quadratic_data
from tests.registry import PROBLEMS, TWINS, fully_projected, one_sided_projection_free

STEPS = 200
SLOW = pytest.mark.slow  # each combination compiles anew
Power = bs.schedules.Power


@jax.jit
def block(method, problem, state):
    """STEPS steps: the last state, and the iterates and points (they differ where a mean is reported) after each."""

    def step(state, _):
        state = method.step(problem, state)
        return state, ((state.x, state.y), (state.point.x, state.point.y))

    return lax.scan(step, state, None, STEPS)


@jax.jit
def worst_violation(convex_set, rows):  # apart from the steps, so that it compiles once per set
    return jnp.max(jax.vmap(convex_set.violation)(rows))


def violation(problem, pairs):
    sets = (problem.x_set, problem.y_set)
    return max(float(worst_violation(a_set, v)) for z in pairs for a_set, v in zip(sets, z, strict=True))


def trajectory(method, problem, start):
    _, (_, points) = block(method, problem, method.init(problem, start))
    return tuple(np.asarray(rows) for rows in points)


def reach(method, problem, start, count, measure="projection"):
    """The point after `count` steps and its certificate; feasible at every step."""
    state = method.init(problem, start)
    for _ in range(count // STEPS):
        state, pairs = block(method, problem, state)
        assert violation(problem, pairs) <= 1e-12
    return state.point, bs.certify(problem, state.point, measure=measure)


def deviation(given, wanted):
    return max(np.max(np.abs(a - b)) for a, b in zip(given, wanted, strict=True))


# -- trajectories -----------------------------------------------------------------------------------------------------

# name: (loop, sizes of the method, sizes of the loop where they differ). Schedules where the order of k matters.
FADING = {"tau": Power(0.3, -0.5), "sigma": Power(0.2, -0.25)}
FADING_LOOP = {"tau": lambda k: 0.3 * (k + 1) ** -0.5, "sigma": lambda k: 0.2 * (k + 1) ** -0.25}
CONSTANT = {"tau": 0.1, "sigma": 0.07}
RUNS = {
    "GDA": (loops.gda, CONSTANT | {"mu": 0.4}, {}),
    "AlternatingGDA": (loops.alternating_gda, CONSTANT | {"mu": 0.4}, {}),
    "AGP": (
        loops.agp,
        FADING | {"mu": Power(0.5, -0.25), "b": Power(0.2, -1.0)},
        FADING_LOOP | {"mu": lambda k: 0.5 * (k + 1) ** -0.25, "b": lambda k: 0.2 / (k + 1)},
    ),
    "SmoothedGDA": (loops.smoothed_gda, CONSTANT | {"p": 1.5, "beta": 0.3}, {}),
    "Extragradient": (loops.extragradient, CONSTANT, {}),
    "OptimisticGDA": (loops.optimistic_gda, FADING, FADING_LOOP),
    "MirrorProx": (loops.mirror_prox, FADING, FADING_LOOP),
    "CGRPGA": (
        loops.cg_rpga,
        {"gamma": Power(0.5, -0.75), "sigma": 0.1, "mu": 0.2},
        {"gamma": lambda k: 0.5 * (k + 1) ** -0.75},
    ),
    "SPFW": (loops.sp_fw, {"curvature": 30.0, "capacity": 128}, {"C": 30.0}),
    "PDHG": (loops.pdhg, CONSTANT | {"momentum": 0.9}, {}),
}


def saddle(name, seed):
    """(problem, start, its NumPy form, options of the mirror-prox loop)"""
    if name == "wavy":
        problem, start, _ = PROBLEMS["wavy saddle"](seed)
        return problem, start, TWINS["wavy saddle"](seed), {}
    kinds = {"simplices": ("simplex", "simplex"), "l1, hypersimplex": ("l1", "hypersimplex")}[name]
    problem, start, _, _ = quadratic(seed, *kinds)
    maps = {"maps": (loops.entropic, loops.entropic)} if name == "simplices" else {}
    return problem, start, loops.quadratic(quadratic_data(seed), *kinds), maps


def both(method_name, problem_name, seed, wrong=""):
    loop, sizes, changes = RUNS[method_name]
    problem, start, twin, maps = saddle(problem_name, seed)
    method = SADDLE_METHODS[method_name](**sizes)
    options = maps if method_name == "MirrorProx" else {}
    wanted = loop(twin, np.asarray(start.x), np.asarray(start.y), sizes | changes, STEPS, wrong=wrong, **options)
    return trajectory(method, problem, start), wanted


# GDA and CGRPGA are held to the paper's methods below; the rest of those not here are among the slow tests
QUICK = ("AGP", "SmoothedGDA", "Extragradient", "MirrorProx", "SPFW")


def trajectory_cases():
    for method_name in RUNS:
        yield pytest.param(method_name, "wavy", marks=() if method_name in QUICK else SLOW)
        quick = method_name in ("SPFW", "MirrorProx")  # which treat simplices in their own way
        yield pytest.param(method_name, "simplices", marks=() if quick else SLOW)


@pytest.mark.parametrize(("method_name", "problem_name"), list(trajectory_cases()))
def test_trajectory_equals_the_numpy_loop(method_name, problem_name, record):
    for seed in range(2):
        worst = deviation(*both(method_name, problem_name, seed))
        record(f"trajectory of {method_name} against NumPy, {STEPS} steps", worst)
        assert worst <= 1e-10


def test_every_method_has_a_loop():
    assert set(RUNS) == set(SADDLE_METHODS)


WRONG = [
    ("GDA", "f_y at the new x"),
    ("AlternatingGDA", "f_y at the old x"),
    ("AGP", "f_y at the old x"),
    ("AGP", "mu towards y0"),
    ("SmoothedGDA", "f_y at the old x"),
    ("SmoothedGDA", "z follows the old x"),
    ("Extragradient", "v after u"),
    ("Extragradient", "from the trial point"),
    ("OptimisticGDA", "the new step for the change"),
    ("MirrorProx", "equal weights"),
    ("MirrorProx", "mean of the iterates"),
    ("CGRPGA", "f_y at the new x"),
    ("PDHG", "x with the old y"),
]


@pytest.mark.parametrize(
    ("method_name", "wrong"), [pytest.param(*case, marks=() if case[0] in QUICK else SLOW) for case in WRONG]
)
def test_a_wrong_update_would_be_noticed(method_name, wrong):
    assert deviation(*both(method_name, "wavy", 0, wrong)) > 1e-4


# -- SP-FW ------------------------------------------------------------------------------------------------------------


def vertex_start(problem, start):
    return bs.Point(x=problem.x_set.lmo(start.x + jnp.arange(start.x.size)), y=problem.y_set.lmo(-start.y))


@pytest.mark.parametrize(
    ("rule", "away", "capacity"),
    [
        ({"curvature": 12.0}, True, 4),
        pytest.param({"curvature": 12.0}, True, None, marks=SLOW),
        pytest.param({}, True, None, marks=SLOW),
        pytest.param({}, True, 4, marks=SLOW),
        pytest.param({}, False, None, marks=SLOW),
        pytest.param({"curvature": 12.0}, False, None, marks=SLOW),
    ],
)
def test_frank_wolfe_on_an_l1_ball_and_a_hypersimplex(rule, away, capacity, record):
    for seed in range(2):
        problem, start, twin, _ = saddle("l1, hypersimplex", seed)
        start = vertex_start(problem, start)
        method = bs.methods.SPFW(**rule, away=away, capacity=capacity)
        sizes = {"C": rule["curvature"]} if rule else {}
        room = 10**6 if capacity is None else capacity
        wanted = loops.sp_fw(twin, np.asarray(start.x), np.asarray(start.y), sizes, STEPS, away, room)
        worst = deviation(trajectory(method, problem, start), wanted)
        record(f"trajectory of SPFW against NumPy, {STEPS} steps", worst)
        assert worst <= 1e-10


@SLOW
def test_drop_steps_happen_and_are_not_counted():
    problem, start, twin, _ = saddle("l1, hypersimplex", 0)
    start = vertex_start(problem, start)
    wanted = loops.sp_fw(twin, np.asarray(start.x), np.asarray(start.y), {}, STEPS, wrong="drops count")
    assert deviation(trajectory(bs.methods.SPFW(), problem, start), wanted) > 1e-4


@SLOW
def test_away_steps_make_frank_wolfe_linear():
    problem, start, x, y = quadratic(1, "simplex", "simplex")
    gaps = {}
    for away in (True, False):
        point, certificate = reach(bs.methods.SPFW(curvature=20.0, away=away), problem, start, 4000, "lmo")
        gaps[away] = float(certificate.gap)
    assert gaps[True] <= 1e-12
    assert gaps[False] >= 1e3 * gaps[True]


def test_the_atoms_add_up_to_the_iterate_when_there_is_no_room_left():
    problem, start, _, _ = saddle("l1, hypersimplex", 0)
    method = bs.methods.SPFW(curvature=12.0, capacity=4)
    state = method.init(problem, start)
    for _ in range(3):
        state, _ = block(method, problem, state)
        assert state.weights.shape == (4,) and float(jnp.sum(state.weights)) == pytest.approx(1.0, abs=1e-14)
        for iterate, atoms in zip((state.x, state.y), state.atoms, strict=True):
            np.testing.assert_allclose(state.weights @ atoms, iterate, atol=1e-14)
        used = np.asarray(state.weights) > 0
        assert violation(problem, [[atoms[used] for atoms in state.atoms]]) <= 1e-12
    vertices = np.asarray(state.atoms[1][used])
    assert used.sum() >= 3 and not np.all((vertices == 0) | (vertices == 1))  # something was merged


@SLOW
def test_without_room_for_atoms_frank_wolfe_is_still_frank_wolfe():
    problem, start, _, _ = saddle("l1, hypersimplex", 0)
    _, certificate = reach(bs.methods.SPFW(curvature=12.0, capacity=4), problem, start, 20_000, "lmo")
    assert certificate.gap <= 1e-3  # no longer linear: about 8 / k


def test_the_room_for_atoms_follows_the_size_of_the_problem():
    problem, start, _, _ = quadratic(0, "simplex", "simplex")
    assert bs.methods.SPFW().init(problem, start).weights.shape == (2 * 7 + 2,)
    assert bs.methods.SPFW(away=False).init(problem, start).atoms is None
    big = bs.Problem(lambda x, theta, y, data: jnp.sum(x) * jnp.sum(y), None, bs.sets.Simplex(), bs.sets.Simplex())
    start = bs.Point(x=jnp.full(300, 1 / 300), y=jnp.full(2, 0.5))
    assert bs.methods.SPFW().init(big, start).weights.shape == (256,)


# -- identities -------------------------------------------------------------------------------------------------------


def same_bits(first, second, problem, start):
    for given, wanted in zip(trajectory(first, problem, start), trajectory(second, problem, start), strict=True):
        np.testing.assert_array_equal(given, wanted)


@pytest.mark.parametrize("problem_name", ["wavy saddle", pytest.param("CB2", marks=SLOW)])
def test_cg_rpga_is_opf_without_theta(problem_name):
    problem, start, _ = PROBLEMS[problem_name](0)
    sizes = {"gamma": 0.01, "sigma": 0.05, "mu": 0.3}
    same_bits(SADDLE_METHODS["CGRPGA"](**sizes), one_sided_projection_free(problem, **sizes), problem, start)


@pytest.mark.parametrize("problem_name", ["wavy saddle", pytest.param("CB2", marks=SLOW)])
def test_fp_with_gamma_1_and_no_lower_level_is_regularised_gda(problem_name):
    problem, start, _ = PROBLEMS[problem_name](0)
    sizes = {"tau": 0.04, "sigma": 0.05, "mu": 0.3}
    same_bits(SADDLE_METHODS["GDA"](**sizes), fully_projected(problem, gamma=1.0, **sizes), problem, start)


def test_agp_without_regularisation_is_alternating_gda_and_so_is_smoothing_with_p_0():
    problem, start, _ = PROBLEMS["wavy saddle"](1)
    plain = SADDLE_METHODS["AlternatingGDA"](**CONSTANT)
    same_bits(SADDLE_METHODS["AGP"](**CONSTANT, mu=0.0), plain, problem, start)
    same_bits(SADDLE_METHODS["SmoothedGDA"](**CONSTANT, p=0.0, beta=0.5), plain, problem, start)


def test_mirror_prox_away_from_simplices_is_extragradient():
    problem, start, _ = PROBLEMS["wavy saddle"](1)
    sizes = {"tau": 0.1, "sigma": 0.1}
    mirror, extra = SADDLE_METHODS["MirrorProx"](**sizes, average=False), SADDLE_METHODS["Extragradient"](**sizes)
    assert deviation(trajectory(mirror, problem, start), trajectory(extra, problem, start)) <= 1e-13


# -- known saddles ----------------------------------------------------------------------------------------------------

# strongly convex-concave, inactive sets and simplices: method -> number of steps for 1e-8 with steps from constants
LINEAR = {
    "GDA": (lambda c: bs.methods.GDA.from_constants(c, mu_x=1.0), 4_000),
    "AlternatingGDA": (bs.methods.AlternatingGDA.from_constants, 1_000),
    "AGP": (lambda c: SADDLE_METHODS["AGP"](tau=0.1, sigma=0.1, mu=0.0), 1_000),
    "SmoothedGDA": (bs.methods.SmoothedGDA.from_constants, 40_000),
    "Extragradient": (bs.methods.Extragradient.from_constants, 1_000),
    "OptimisticGDA": (bs.methods.OptimisticGDA.from_constants, 1_000),
    "MirrorProx": (lambda c: bs.methods.MirrorProx.from_constants(c, average=False), 6_000),
    "PDHG": (bs.methods.PDHG.from_constants, 1_000),
}


def linear_cases():
    for method_name in LINEAR:
        quick = method_name in ("GDA", "Extragradient")
        yield pytest.param(method_name, "box", marks=() if quick else SLOW)
        yield pytest.param(method_name, "simplex", marks=SLOW)


@pytest.mark.parametrize(("method_name", "name"), list(linear_cases()))
def test_linear_convergence_to_1e_8_on_quadratic_saddles(method_name, name, record):
    make, count = LINEAR[method_name]
    for seed in range(2):
        problem, start, x, y = quadratic(seed, name, name)
        point, certificate = reach(make(problem.constants), problem, start, count)
        record("gap on strongly convex-concave quadratics, linear methods", certificate.gap)
        assert certificate.within(1e-8), str(certificate)
        np.testing.assert_allclose(point.x, x, atol=1e-8)
        np.testing.assert_allclose(point.y, y, atol=1e-8)


@SLOW
def test_frank_wolfe_reaches_1e_8_on_quadratic_saddles_over_simplices():
    for seed in range(2):
        problem, start, x, y = quadratic(seed, "simplex", "simplex")
        constants = bs.Constants(**dict(problem.constants.items()) | {"D_X": 2**0.5, "D_Y": 2**0.5})
        method, start = bs.methods.SPFW.from_constants(constants, mu_x=1.0), vertex_start(problem, start)
        point, certificate = reach(method, problem, start, 4_000, "lmo")
        assert certificate.gap <= 1e-8
        np.testing.assert_allclose(point.x, x, atol=1e-8)
        np.testing.assert_allclose(point.y, y, atol=1e-8)


@SLOW
@pytest.mark.parametrize("name", ["two by two", "rock-paper-scissors"])
@pytest.mark.parametrize("method_name", ["Extragradient", "MirrorProx", "OptimisticGDA", "PDHG"])
def test_games_are_solved_without_regularisation(method_name, name):
    step = {"Extragradient": 0.15, "OptimisticGDA": 0.08, "PDHG": 0.15, "MirrorProx": 0.4}[method_name]
    problem, start, answer = PROBLEMS[name](0)
    method = SADDLE_METHODS[method_name](tau=step, sigma=step)
    mean = method_name == "MirrorProx"  # its mean, O(1/k), is judged; the others' last iterates are linear here
    point, certificate = reach(method, problem, start, 40_000 if mean else 4_000)
    assert certificate.gap <= (1e-3 if mean else 1e-8)
    np.testing.assert_allclose(point.x, answer.x, atol=1e-3 if mean else 1e-8)
    np.testing.assert_allclose(point.y, answer.y, atol=1e-3 if mean else 1e-8)


def test_the_mean_of_mirror_prox_obeys_its_bound():
    """Duality gap <= Omega L / k, Omega = log n + log m (entropy from uniform starts), L = max |payoff|, step 1/L."""
    problem, start, _ = PROBLEMS["two by two"](0)
    start = bs.Point(x=jnp.full(2, 0.5), y=jnp.full(2, 0.5))
    payoff = np.asarray(problem.data)
    L = np.abs(payoff).max()
    xs, ys = trajectory(SADDLE_METHODS["MirrorProx"](tau=1 / L, sigma=1 / L), problem, start)
    gaps = np.max(xs @ payoff, axis=1) - np.min(ys @ payoff.T, axis=1)
    assert np.all(gaps <= 2 * np.log(2) * L / np.arange(1, STEPS + 1) + 1e-12)


# nonconvex, or merely concave: name -> (step size, number of steps); every method to 1e-3 of the known saddle
CONCAVE = {"CB2": (0.02, 20_000), "Crescent": (0.02, 20_000), "DEM": (0.005, 60_000), "QL": (0.002, 60_000)}


def concave_method(name, step):
    sizes = {"tau": step, "sigma": step}
    if name == "AGP":
        sizes["mu"] = Power(0.003, -0.25)
    if name == "MirrorProx":
        sizes["average"] = False
    return SADDLE_METHODS[name](**sizes)


def concave_cases():
    for problem_name in CONCAVE:
        for method_name in (name for name in LINEAR if name != "PDHG"):
            yield pytest.param(method_name, problem_name)


@SLOW
@pytest.mark.parametrize(("method_name", "problem_name"), list(concave_cases()))
def test_finite_minimax_problems_are_solved_to_1e_3(method_name, problem_name, record):
    step, count = CONCAVE[problem_name]
    problem, start, answer = PROBLEMS[problem_name](0)
    point, certificate = reach(concave_method(method_name, step), problem, start, count)
    record(f"gap of {method_name} on finite minimax problems", certificate.gap)
    assert certificate.within(1e-3), str(certificate)
    np.testing.assert_allclose(point.x, answer.x, atol=1e-3)
    np.testing.assert_allclose(point.y, answer.y, atol=1e-3)


@SLOW
def test_cg_rpga_comes_within_1e_3_of_quadratic_saddles():
    problem, start, x, y = quadratic(0, "simplex", "simplex")
    method = SADDLE_METHODS["CGRPGA"](gamma=2e-4, sigma=0.3, mu=1e-4)
    point, certificate = reach(method, problem, start, 60_000, "lmo")
    assert certificate.gap <= 1e-3
    np.testing.assert_allclose(point.x, x, atol=1e-3)
    np.testing.assert_allclose(point.y, y, atol=1e-3)


@pytest.mark.slow
def test_cg_rpga_with_its_own_schedule_improves_with_the_number_of_steps():
    problem, start, _, _ = quadratic(0, "simplex", "simplex")
    gaps = []
    for K in (2_000, 20_000, 200_000):
        method = bs.methods.CGRPGA.from_constants(problem.constants, K=K)
        gaps.append(float(reach(method, problem, start, K, "lmo")[1].gap))
    assert gaps[0] > 1.5 * gaps[1] > 2.25 * gaps[2]  # K^(-1/4) promises a factor of 1.78 each


@SLOW
def test_agp_with_its_own_schedule_forgets_the_regularisation():
    """f linear in y: the fading mu leaves a gap of its own order, mu_k |y|."""
    problem, start, _ = PROBLEMS["CB2"](0)
    method = bs.methods.AGP.from_constants(bs.Constants(L_xx=8.0, L_xy=4.0, L_yx=4.0, L_yy=0.0))
    gaps = [float(reach(method, problem, start, count)[1].gap) for count in (400, 40_000)]
    assert gaps[1] <= 0.4 * gaps[0]
    mu = float(method.steps.mu(jnp.asarray(40_000)))
    assert gaps[1] <= 1.1 * mu
