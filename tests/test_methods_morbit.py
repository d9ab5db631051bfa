"""MORBiT and TTSA: the NumPy loop, the identity of the two, the bias of the series, and the randomised estimator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import oracle
from tests import reference_methods_bilevel as loops
from tests.method_cases.bilevel import lower_step, morbit, ttsa
from tests.method_cases.runs import deviation, numbers, run, trajectory
from tests.registry import PROBLEMS, TWINS, flat

STEPS = 200


def expected(method, problem, problem_name, seed, start, **options):
    terms, L_g = int(method.series(problem)[1]), float(problem.constants.L_g)
    twin = TWINS[problem_name](seed)
    return loops.morbit(
        twin, flat(start.x), flat(start.theta), flat(start.y), numbers(method), STEPS, L_g, terms, **options
    )


@pytest.mark.parametrize(
    "problem_name",
    ["logistic", "linear-quadratic on the simplex, nu = 0", pytest.param("Experiment 1", marks=pytest.mark.slow)],
)
def test_morbit_equals_the_numpy_loop(problem_name, record):
    for seed in range(2):
        problem, start, _ = PROBLEMS[problem_name](seed)
        method = morbit(problem)
        wanted = expected(method, problem, problem_name, seed, start)
        worst = deviation(trajectory(method, problem, start, STEPS), wanted)
        record(f"trajectory of MORBiT against NumPy, {STEPS} steps", worst)
        assert worst <= 1e-10


def test_ttsa_equals_the_numpy_loop(record):
    for seed in range(3):
        problem, start, _ = PROBLEMS["generator, ball active"](seed)
        method = ttsa(problem)
        wanted = expected(method, problem, "generator, ball active", seed, start)
        worst = deviation(trajectory(method, problem, start, STEPS), wanted)
        record(f"trajectory of TTSA against NumPy, {STEPS} steps", worst)
        assert worst <= 1e-10


def test_schedules_and_terms_by_hand():
    problem, start, _ = PROBLEMS["logistic"](1)
    power = bs.schedules.Power
    steps = bs.StepSizes(alpha=power(0.5, -0.4), tau=power(0.3, -0.6), sigma=lambda k: 0.2 / (k + 1.0) ** 0.6)
    method = bs.methods.MORBiT(steps, 7, 2.5)
    sizes = {
        "alpha": lambda k: 0.5 * (k + 1) ** -0.4,
        "tau": lambda k: 0.3 * (k + 1) ** -0.6,
        "sigma": lambda k: 0.2 / (k + 1) ** 0.6,
    }
    wanted = loops.morbit(TWINS["logistic"](1), flat(start.x), flat(start.theta), flat(start.y), sizes, STEPS, 2.5, 7)
    assert deviation(trajectory(method, problem, start, STEPS), wanted) <= 1e-10


@pytest.mark.parametrize("wrong", loops.MORBIT_WRONG)
def test_a_wrong_update_order_would_be_noticed(wrong):
    problem_name = "linear-quadratic on the simplex, nu = 0" if wrong == "y at the new x" else "logistic"
    problem, start, _ = PROBLEMS[problem_name](0)
    method = morbit(problem)
    wanted = expected(method, problem, problem_name, 0, start, wrong=wrong)
    assert deviation(trajectory(method, problem, start, STEPS), wanted) > 1e-4


def _one_task(x, theta, y, data):
    return y[0] * (0.5 * jnp.sum((theta - data["d"]) ** 2) + 0.5 * data["r"] * jnp.sum(x**2))


@pytest.mark.parametrize("randomised", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ttsa_is_morbit_with_one_task(randomised):
    problem, start, _ = PROBLEMS["generator, ball active"](0)
    simplex = bs.sets.Simplex()
    single = bs.Problem(_one_task, problem.lower, problem.x_set, simplex, problem.data, problem.constants)
    begin = bs.Point(x=start.x, theta=start.theta, y=jnp.ones(1))
    alone = trajectory(ttsa(problem, randomised=randomised, seed=3), problem, start, STEPS)
    with_y = trajectory(morbit(problem, randomised=randomised, seed=3), single, begin, STEPS)
    np.testing.assert_array_equal(with_y[2], np.ones((STEPS, 1)))
    for i in (0, 1, 3):
        np.testing.assert_array_equal(with_y[i], alone[i])


@pytest.fixture(scope="module")
def system():
    """The lower Hessian of a problem with kappa about 9, in full, and a right-hand side."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    H = (basis * np.geomspace(1 / 9, 1, 6)) @ basis.T
    problem = bs.Problem(
        lambda x, theta, y, data: jnp.sum(theta) + jnp.sum(x),
        lambda x, theta, data: 0.5 * theta @ data @ theta - jnp.sum(theta),
        bs.sets.L2Ball(1.0),
        None,
        jnp.asarray(H),
        bs.Constants(mu_g=1 / 9, L_g=1.0),
    )
    return problem, H, rng.normal(size=6)


@pytest.mark.parametrize("terms", [1, 5, 20, 80])
def test_the_bias_of_the_series_obeys_its_bound(system, terms, record):
    problem, H, r = system
    method = bs.methods.TTSA(bs.StepSizes(alpha=0.1, tau=0.1), terms)
    v, products = method.inverse_product(problem, jnp.zeros(2), jnp.zeros(6), jnp.asarray(r), jax.random.key(0))
    np.testing.assert_allclose(v, loops.neumann(H, r, 1.0, terms), rtol=1e-12)
    assert products == terms - 1
    bias = np.linalg.norm(v - np.linalg.solve(H, r))
    bound = (1 - 1 / 9) ** terms * np.linalg.norm(r) * 9
    record("Neumann bias as a share of its bound", bias / bound)
    assert 0 < bias <= bound * (1 + 1e-12)
    # the component along the least eigenvalue alone attains it
    least = np.linalg.eigh(H)[1][:, 0]
    v, _ = method.inverse_product(problem, jnp.zeros(2), jnp.zeros(6), jnp.asarray(least), jax.random.key(0))
    np.testing.assert_allclose(np.linalg.norm(v - np.linalg.solve(H, least)), (8 / 9) ** terms * 9, rtol=1e-9)


@pytest.mark.parametrize("kappa", [1.0, 1.5, 9.0, 400.0])
def test_the_default_number_of_terms_is_the_least_that_meets_the_bias(system, kappa):
    problem, _, _ = system
    problem = bs.Problem(
        *(getattr(problem, n) for n in ("upper", "lower", "x_set", "y_set", "data")), bs.Constants(2, 2 * kappa)
    )
    q, N = bs.methods.TTSA(bs.StepSizes(alpha=0.1, tau=0.1)).series(problem)
    assert N == loops.terms_for(2.0, 2 * kappa) and N <= max(1, np.ceil(kappa * np.log(1e4)))
    np.testing.assert_allclose(q, 1 / (2 * kappa))
    q, N = bs.methods.TTSA(bs.StepSizes(alpha=0.1, tau=0.1), None, 4 * kappa).series(problem)
    assert N == loops.terms_for(2.0, 4 * kappa) and q == 1 / (4 * kappa)


def test_the_randomised_estimator_is_unbiased_by_enumeration(system):
    """Its value is a function of p alone; over all p, each as likely, the mean is the series."""
    problem, H, r = system
    N = 7
    method = bs.methods.TTSA(bs.StepSizes(alpha=0.1, tau=0.1), N, randomised=True)
    keys = jax.random.split(jax.random.key(0), 1400)
    estimate = jax.vmap(lambda key: method.inverse_product(problem, jnp.zeros(2), jnp.zeros(6), jnp.asarray(r), key))
    values, products = jax.jit(estimate)(keys)
    found = {p: np.asarray(values)[np.asarray(products) == p] for p in range(N)}
    assert all(len(rows) > 130 for rows in found.values()), "p is uniform: 200 of each expected, 5 deviations allowed"
    for p, rows in found.items():
        exact = N * np.linalg.matrix_power(np.eye(6) - H, p) @ r
        np.testing.assert_allclose(rows, np.tile(exact, (len(rows), 1)), rtol=1e-11, atol=1e-13)
    mean = np.mean([rows[0] for rows in found.values()], axis=0)
    np.testing.assert_allclose(mean, loops.neumann(H, r, 1.0, N), rtol=1e-12)


def test_the_same_seed_gives_the_same_trajectory_and_another_seed_another():
    problem, start, _ = PROBLEMS["generator"](0)
    first, again, other = (trajectory(ttsa(problem, randomised=True, seed=s), problem, start, 20) for s in (1, 1, 2))
    np.testing.assert_array_equal(first[0], again[0])
    assert np.max(np.abs(first[0] - other[0])) > 1e-6


@pytest.mark.slow
def test_seeds_can_be_swept_in_one_trace():
    problem, start, _ = PROBLEMS["generator"](0)
    final = jax.vmap(lambda seed: run(ttsa(problem, randomised=True, seed=seed), problem, start, 5)[0].x)
    swept = final(jnp.arange(3, dtype=jnp.uint32))
    alone = run(ttsa(problem, randomised=True, seed=2), problem, start, 5)[0].x
    np.testing.assert_allclose(swept[2], alone, rtol=1e-13)
    assert not np.allclose(swept[0], swept[1])


def test_gu_2021_is_morbit_with_the_randomised_estimator():
    problem, start, _ = PROBLEMS["logistic"](0)
    steps = bs.StepSizes(alpha=lower_step(problem), tau=0.05, sigma=0.05)
    method = bs.methods.MORBiT.gu2021(steps, 9, seed=4)
    same = bs.methods.MORBiT(steps, 9, randomised=True, seed=4)
    for a, b in zip(jax.tree.leaves(method), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert isinstance(method, bs.methods.MORBiT) and method.randomised


@pytest.mark.slow
def test_counts_are_the_oracle_calls_made():
    problem, start, _ = PROBLEMS["logistic"](0)
    method = morbit(problem, neumann_terms=6)
    state = run(method, problem, start, 3)[0]
    assert tuple(method.counts(problem, state)) == (6, 15, 3, 6, 0)
    problem, start, _ = PROBLEMS["generator"](0)
    method = ttsa(problem, neumann_terms=6, randomised=True)
    state = run(method, problem, start, 100)[0]
    counts = method.counts(problem, state)
    assert counts[0] == 200 and 150 < counts.hvps < 350 and counts[2:] == (100, 100, 0)


def test_default_steps_have_the_published_exponents():
    problem, _, _ = PROBLEMS["Experiment 1"](0)
    K = 10_000
    method = bs.methods.MORBiT.with_default_steps(problem, K, 3.0)
    planned = bs.theory.steps_for(problem, "morbit", K=K, nu=3.0).steps.at(jnp.asarray(0))
    for name, value in method.steps.at(jnp.asarray(0)).items():
        np.testing.assert_allclose(value, planned[name])
    stiff = bs.Constants(mu_g=1.0, L_g=1000.0)
    problem = bs.Problem(problem.upper, problem.lower, problem.x_set, problem.y_set, problem.data, stiff)
    assert bs.methods.MORBiT.with_default_steps(problem, K).steps.alpha(jnp.asarray(0)) == 2 / 1001


@pytest.mark.parametrize(
    ("constants", "terms", "lipschitz", "words"),
    [
        (bs.Constants(), None, None, "MORBiT needs L_g .* lower_lipschitz=.*estimate_constants"),
        (bs.Constants(mu_g=0.1), 5, None, "MORBiT needs L_g"),
        (bs.Constants(L_g=2.0), None, None, "MORBiT needs the number of terms .* neumann_terms=.*estimate_constants"),
        (bs.Constants(), None, 3.0, "MORBiT needs the number of terms"),
    ],
)
def test_what_the_series_lacks_is_named(constants, terms, lipschitz, words):
    problem, start, _ = PROBLEMS["logistic"](0)
    problem = bs.Problem(problem.upper, problem.lower, problem.x_set, problem.y_set, problem.data, constants)
    method = bs.methods.MORBiT(bs.StepSizes(alpha=0.1, tau=0.1, sigma=0.1), terms, lipschitz)
    with pytest.raises(ValueError, match=words):
        method.init(problem, start)
    bs.methods.MORBiT(method.steps, 5, 3.0).init(problem, start)


def test_bad_options_are_refused():
    steps = bs.StepSizes(alpha=0.1, tau=0.1, sigma=0.1)
    with pytest.raises(ValueError, match="neumann_terms must be finite and > 0, given 0"):
        bs.methods.MORBiT(steps, 0)
    with pytest.raises(ValueError, match="lower_lipschitz must be finite and > 0, given -1"):
        bs.methods.MORBiT(steps, 5, -1.0)
    with pytest.raises(ValueError, match="MORBiT needs the step sizes sigma, given alpha, tau"):
        bs.methods.MORBiT(bs.StepSizes(alpha=0.1, tau=0.1))
    with pytest.raises(ValueError, match="nu must be finite and > 0, given 0"):
        bs.methods.MORBiT.with_default_steps(PROBLEMS["logistic"](0)[0], 100, 0)
    bare = bs.Problem(lambda x, t, y, d: jnp.sum(x), lambda x, t, d: jnp.sum(t**2), bs.sets.Box(0, 1), None)
    with pytest.raises(ValueError, match="TTSA.with_default_steps needs the constants mu_g and L_g"):
        bs.methods.TTSA.with_default_steps(bare, 100)


@pytest.mark.slow
def test_the_hypergradient_tends_to_the_exact_one():
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0)
    theta = jnp.linalg.solve(problem.data["A"], problem.data["B"] @ start.x + problem.data["c"])
    P, R, A, B = (np.asarray(problem.data[name]) for name in "PRAB")
    exact = R @ start.y + start.x + B.T @ np.linalg.solve(A, P @ start.y)  # r = 1
    keys = jax.random.split(jax.random.key(0), 3)
    errors = []
    for terms in (5, 20, 80):
        Gx, f_y, _, _ = morbit(problem, neumann_terms=terms).hypergradient(problem, start.x, theta, start.y, keys)
        errors.append(float(np.linalg.norm(Gx - exact)))
    assert errors[0] > 10 * errors[1] > 100 * errors[2] and errors[2] < 1e-12
    np.testing.assert_allclose(f_y, oracle.upper_gradients(problem, start.x, theta, start.y)[2])
