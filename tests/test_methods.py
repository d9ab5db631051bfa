"""Both methods against the algorithm box of the paper, run in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import bisaddle as bs
from tests import reference
from tests.registry import PROBLEMS, REGULARIZED, TWINS, flat

STEPS = 500
# alpha and eta come from each problem's mu_g and L_g. Small enough for the iterates to contract: with larger steps they
# cycle, and the NumPy loop departs from itself by 1e-3 when its start moves by 1e-14.
SIZES = {
    "FullyProjected": {"gamma": 0.3, "tau": 0.1, "sigma": 0.05, "mu": 0.5},
    "OneSidedProjectionFree": {"gamma": 0.002, "sigma": 0.05, "mu": 0.5},
}


@jax.jit
def trajectory(method, problem, start):
    """x, theta, y, w after each of STEPS steps, in the user's own jit and scan."""

    def step(state, _):
        state = method.step(problem, state)
        return state, (state.x, state.theta, state.y, state.w)

    return lax.scan(step, method.init(problem, start), None, STEPS)[1]


def numbers(method):
    return {name: float(value) for name, value in method.steps.at(jnp.asarray(0)).items()}


def expected(problem_name, seed, start, sizes, method_name, **options):
    lmo = method_name == "OneSidedProjectionFree"
    twin = TWINS[problem_name](seed)
    return reference.run(twin, flat(start.x), flat(start.theta), flat(start.y), sizes, STEPS, lmo, **options)


def deviation(given, wanted):
    """The largest |given - wanted| / max(1, |wanted|) over all steps and variables."""
    worst = 0.0
    for tree, rows in zip(given, wanted, strict=True):
        assert (tree is None) == (rows is None)
        if rows is not None:
            columns = np.concatenate([np.asarray(a).reshape(STEPS, -1) for a in jax.tree.leaves(tree)], axis=1)
            worst = max(worst, np.max(np.abs(columns - rows) / np.maximum(1, np.abs(rows))))
    return worst


# the other form of an experiment and of a quadratic compile anew
LATER = ("Experiment 1", "Experiment 2", "Experiment 2, rows", "linear-quadratic on the simplex, nu = 0")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "problem_name", [pytest.param(name, marks=pytest.mark.slow if name in LATER else ()) for name in TWINS]
)
@pytest.mark.parametrize("method_name", REGULARIZED)
def test_trajectory_equals_the_numpy_loop(method_name, problem_name, seed, record):
    problem, start, _ = PROBLEMS[problem_name](seed)
    method = REGULARIZED[method_name](problem, **SIZES[method_name])
    wanted = expected(problem_name, seed, start, numbers(method), method_name)
    worst = deviation(trajectory(method, problem, start), wanted)
    record(f"trajectory of {method_name} against NumPy, {STEPS} steps", worst)
    assert worst <= 1e-10


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_trajectory_equals_the_numpy_loop_with_schedules(method_name):
    problem, start, _ = PROBLEMS["logistic"](0)
    lower = REGULARIZED[method_name](problem).steps
    power = bs.schedules.Power
    steps = bs.StepSizes(
        alpha=lower.alpha,
        eta=power(0.2, -0.1),
        gamma=power(0.5, -0.5, 3.0),
        sigma=power(1.0, -0.25),
        mu=lambda k: 0.1 / (k + 1.0),
        tau=None if method_name == "OneSidedProjectionFree" else 0.3,
    )
    method = getattr(bs.methods, method_name)(steps)
    sizes = {
        "alpha": float(lower.alpha(jnp.asarray(0))),
        "eta": lambda k: 0.2 * (k + 1) ** -0.1,
        "gamma": lambda k: 0.5 * (k + 4) ** -0.5,
        "sigma": lambda k: (k + 1) ** -0.25,
        "mu": lambda k: 0.1 / (k + 1),
        "tau": 0.3,
    }
    wanted = expected("logistic", 0, start, sizes, method_name)
    assert deviation(trajectory(method, problem, start), wanted) <= 1e-10


@pytest.mark.parametrize("wrong", reference.WRONG_ORDERS)
@pytest.mark.parametrize("method_name", REGULARIZED)
def test_a_wrong_update_order_would_be_noticed(method_name, wrong):
    # f_y depends on x in the first, g_theta_theta in the second; a uniform y0 on the simplex is as good as 0
    first = wrong in ("Gy at the new x", "y regularised towards 0")
    problem_name = "linear-quadratic, nu > 0" if first else "logistic"
    problem, start, _ = PROBLEMS[problem_name](0)
    method = REGULARIZED[method_name](problem, **SIZES[method_name])
    wanted = expected(problem_name, 0, start, numbers(method), method_name, wrong=wrong)
    assert deviation(trajectory(method, problem, start), wanted) > 1e-4


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_w_starts_at_theta_and_the_state_shows_its_parts(method_name):
    problem, start, _ = PROBLEMS["logistic"](0)
    method = REGULARIZED[method_name](problem)
    state = method.init(problem, start)
    assert isinstance(state, bs.methods.State) and isinstance(method, bs.methods.Method)
    assert state.k == 0
    for name in ("x", "theta", "y"):
        np.testing.assert_array_equal(getattr(state, name), getattr(start, name))
    np.testing.assert_array_equal(state.w, start.theta)
    state = method.step(problem, method.step(problem, state))
    assert state.k == 2
    assert state.w.shape == state.theta.shape


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_step_by_hand_in_jit_equals_scan(method_name):
    problem, start, _ = PROBLEMS["logistic"](1)
    method = REGULARIZED[method_name](problem)
    state, step = method.init(problem, start), jax.jit(lambda problem, state: method.step(problem, state))
    for _ in range(5):
        state = step(problem, state)
    xs, thetas, ys, ws = trajectory(method, problem, start)
    for given, wanted in ((state.x, xs), (state.theta, thetas), (state.y, ys), (state.w, ws)):
        np.testing.assert_allclose(given, wanted[4], rtol=0, atol=1e-14)


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_a_vmapped_sweep_of_step_sizes_traces_once(method_name):
    problem, start, _ = PROBLEMS["Experiment 1"](0)
    base = REGULARIZED[method_name](problem, **SIZES[method_name])
    traces = []

    def final(gamma, sigma):
        traces.append(None)
        sizes = SIZES[method_name] | {"gamma": gamma, "sigma": sigma}
        swept = bs.StepSizes(alpha=base.steps.alpha, eta=base.steps.eta, **sizes)
        method = type(base)(swept)
        return lax.fori_loop(0, 20, lambda _, s: method.step(problem, s), method.init(problem, start))

    gammas, sigmas = jnp.array([0.01, 0.02, 0.04]), jnp.array([0.1, 0.2, 0.3])
    sweep = jax.jit(jax.vmap(final))
    together = sweep(gammas, sigmas)
    sweep(2 * gammas, 2 * sigmas)
    assert len(traces) == 1
    alone = final(gammas[1], sigmas[1])
    np.testing.assert_allclose(together.x["x"][1], alone.x["x"], atol=1e-13)
    np.testing.assert_allclose(together.theta[1], alone.theta, atol=1e-13)


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_step_sizes_built_from_arrays_vmap_without_a_new_trace(method_name):
    problem, start, _ = PROBLEMS["wavy saddle"](0)
    traces = []

    @jax.jit
    def sweep(method):
        traces.append(None)
        run = lambda m: lax.fori_loop(0, 5, lambda _, s: m.step(problem, s), m.init(problem, start))
        return jax.vmap(run)(method)

    for scale in (1.0, 2.0):
        steps = {"gamma": jnp.array([0.01, 0.02]) * scale, "sigma": jnp.array([0.1, 0.2]), "mu": jnp.array([0.0, 0.1])}
        if method_name == "FullyProjected":
            steps["tau"] = jnp.array([0.1, 0.3]) * scale
        states = sweep(getattr(bs.methods, method_name)(bs.StepSizes(**steps)))
    assert len(traces) == 1
    assert states.x.shape == (2, 4) and not np.allclose(states.x[0], states.x[1])


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_new_numbers_do_not_compile_again(method_name):
    problem, start, _ = PROBLEMS["logistic"](0)
    traces = []

    @jax.jit
    def step(method, problem, state):
        traces.append(None)
        return method.step(problem, state)

    for gamma in (0.1, 0.2, 0.3):
        method = REGULARIZED[method_name](problem, gamma=gamma)
        state = step(method, problem, method.init(problem, start))
        step(method, problem, state)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("method_name", "given", "lacking"),
    [
        ("FullyProjected", {"gamma": 0.1}, "tau"),
        ("FullyProjected", {"tau": 0.1}, "gamma"),
        ("FullyProjected", {"gamma": 0.1, "tau": 0.1, "alpha": 0.1}, "eta"),
        ("FullyProjected", {"gamma": 0.1, "tau": 0.1, "sigma": 0.1}, "mu"),
        ("OneSidedProjectionFree", {}, "gamma"),
        ("OneSidedProjectionFree", {"gamma": 0.1, "eta": 0.1}, "alpha"),
        ("OneSidedProjectionFree", {"gamma": 0.1, "mu": 0.1}, "sigma"),
    ],
)
def test_a_missing_step_size_raises_at_construction(method_name, given, lacking):
    with pytest.raises(ValueError, match=f"{method_name} needs the step sizes {lacking}"):
        getattr(bs.methods, method_name)(bs.StepSizes(**given))


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_a_step_size_the_method_does_not_use_may_be_left_out_or_given(method_name):
    problem, start, _ = PROBLEMS["wavy saddle"](0)
    steps = bs.StepSizes(alpha=0.1, eta=0.1, gamma=0.1, tau=0.1, sigma=0.1, mu=0.0)
    getattr(bs.methods, method_name)(steps).init(problem, start)


@pytest.mark.parametrize(
    ("problem_name", "group", "part"),
    [("wavy saddle", "sigma, mu", "max player"), ("generator", "alpha, eta", "lower level")],
)
@pytest.mark.parametrize("method_name", REGULARIZED)
def test_a_missing_group_raises_against_a_problem_that_needs_it(method_name, problem_name, group, part):
    problem, start, _ = PROBLEMS[problem_name](0)
    tau = {"tau": 0.1} if method_name == "FullyProjected" else {}
    method = getattr(bs.methods, method_name)(bs.StepSizes(gamma=0.1, **tau))
    with pytest.raises(ValueError, match=f"needs the step sizes {group} for a problem with a {part}"):
        method.init(problem, start)


@pytest.mark.parametrize("problem_name", ["logistic", "Experiment 2", "wavy saddle", "generator"])
@pytest.mark.parametrize("method_name", REGULARIZED)
def test_float32_stays_float32_with_x64_on(method_name, problem_name):
    problem, start, _ = PROBLEMS[problem_name](0)
    problem, start = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), (problem, start))
    method = REGULARIZED[method_name](problem)  # its numbers are float64
    state = jax.eval_shape(method.step, problem, method.init(problem, start))
    assert {leaf.dtype for leaf in jax.tree.leaves((state.x, state.theta, state.y, state.w))} == {jnp.dtype("float32")}
    assert state.k.dtype == jnp.int32


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_counts_are_the_oracle_calls_made(method_name):
    for problem_name, lower, ascent in (("logistic", 1, 1), ("wavy saddle", 0, 1), ("generator", 1, 0)):
        problem, start, _ = PROBLEMS[problem_name](0)
        method = REGULARIZED[method_name](problem)
        state = method.init(problem, start)
        for _ in range(3):
            state = method.step(problem, state)
        projects = method_name == "FullyProjected"
        wanted = (1 + lower, lower, lower, projects + ascent, 1 - projects)
        assert tuple(method.counts(problem, state)) == tuple(3 * count for count in wanted)


def test_a_bound_step_is_a_function_to_jit():
    problem, start, _ = PROBLEMS["logistic"](0)
    for make in REGULARIZED.values():
        method = make(problem)
        state = method.init(problem, start)
        plain = method.step(problem, state)
        for leaf, expected in zip(
            jax.tree.leaves(jax.jit(method.step)(problem, state)), jax.tree.leaves(plain), strict=True
        ):
            np.testing.assert_allclose(leaf, expected, rtol=1e-12, atol=1e-14)
