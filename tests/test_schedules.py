"""Step sizes: numbers are array leaves, anything callable is a schedule, ranges are checked, a sweep traces once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.schedules import Constant, FromFunction, Power, Schedule, StepSizes

NAMES = ("alpha", "eta", "gamma", "tau", "sigma", "mu")
POSITIVE = ("alpha", "eta", "tau", "sigma")


def _problem():
    problem = bs.Problem(
        lambda x, theta, y, data: jnp.dot(y, theta) - 0.5 * jnp.sum(jnp.square(y)),
        lambda x, theta, data: 0.5 * jnp.sum(jnp.square(theta - x)),
        bs.sets.L2Ball(1.0),
        bs.sets.Simplex(),
    )
    return problem, bs.Point(x=jnp.zeros(3), theta=jnp.ones(3), y=jnp.full(3, 1 / 3))


@pytest.mark.parametrize("value", [0.5, 1, np.float32(0.5), np.float64(0.5), np.asarray(0.5), jnp.asarray(0.5)])
def test_a_number_becomes_a_constant_with_an_array_leaf(value):
    schedule = StepSizes(alpha=value).alpha
    assert isinstance(schedule, Constant)
    (leaf,) = jax.tree.leaves(schedule)
    assert isinstance(leaf, np.ndarray | jax.Array) and leaf.shape == ()
    assert schedule(jnp.asarray(3)) == value


def test_what_is_left_out_is_absent():
    steps = StepSizes(gamma=0.1)
    assert set(steps.at(jnp.asarray(0))) == {"gamma"}
    assert [name for name in NAMES if getattr(steps, name) is None] == [name for name in NAMES if name != "gamma"]


def test_power_is_its_formula():
    k = np.arange(6)
    got = [Power(2.0, -0.75, offset=3.0)(jnp.asarray(i, jnp.int32)) for i in k]
    np.testing.assert_allclose(got, 2.0 * (k + 4.0) ** -0.75, rtol=1e-14)
    np.testing.assert_allclose([Power(0.5, -1)(jnp.asarray(i)) for i in k], 0.5 / (k + 1), rtol=1e-14)


def test_any_function_of_k_is_a_schedule():
    schedule = StepSizes(gamma=lambda k: 2 / (k + 2)).gamma
    assert isinstance(schedule, FromFunction)
    np.testing.assert_allclose([schedule(jnp.asarray(k)) for k in range(4)], [1.0, 2 / 3, 0.5, 0.4])


def test_a_python_function_that_branches_with_jnp_where_runs_in_the_compiled_loop():
    problem, start = _problem()
    steps = StepSizes(alpha=lambda k: jnp.where(k < 2, 1.0, 0.25), eta=0.5, gamma=0.0, tau=1.0, sigma=1.0, mu=0.0)
    method = bs.methods.FullyProjected(steps)
    state = jax.jit(lambda s: jax.lax.fori_loop(0, 3, lambda _, s: method.step(problem, s), s))(
        method.init(problem, start)
    )
    assert state.k == 3
    np.testing.assert_allclose(state.theta, np.zeros(3), atol=1e-15)  # alpha = 1 solves this lower level at once


def test_a_schedule_of_the_users_own_class_is_taken_as_it_is():
    class Halving(Schedule):
        first: float

        def __call__(self, k):
            return self.first * 0.5**k

    assert StepSizes(gamma=Halving(1.0)).at(jnp.asarray(3))["gamma"] == 0.125


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf, -np.inf])
def test_a_step_size_below_zero_or_not_finite_is_refused(name, value):
    with pytest.raises(ValueError, match=rf"StepSizes: {name} must lie in [\[(]0, .*, given {value} at k = 0"):
        StepSizes(**{name: value})


@pytest.mark.parametrize("name", NAMES)
def test_zero_is_refused_where_it_would_stop_a_variable_for_good(name):
    if name in POSITIVE:
        with pytest.raises(ValueError, match=rf"StepSizes: {name} must lie in \(0, infinity\), given 0.0 at k = 0"):
            StepSizes(**{name: 0.0})
    else:
        assert StepSizes(**{name: 0.0}).at(jnp.asarray(0))[name] == 0


def test_gamma_is_at_most_one():
    assert StepSizes(gamma=1.0).at(jnp.asarray(0))["gamma"] == 1
    with pytest.raises(ValueError, match=r"StepSizes: gamma must lie in \[0, 1\], given 1.5 at k = 0"):
        StepSizes(gamma=1.5)


@pytest.mark.parametrize("schedule", [Constant(-1.0), Power(-1.0, -0.5), lambda k: -1.0 / (k + 1), lambda k: jnp.nan])
def test_schedules_are_checked_at_k_zero(schedule):
    with pytest.raises(ValueError, match=r"StepSizes: alpha must lie in \(0, infinity\), given (-1.0|nan) at k = 0"):
        StepSizes(alpha=schedule)


def test_a_function_that_gives_a_vector_is_refused():
    with pytest.raises(ValueError, match=r"StepSizes: gamma must be a number at each k, given shape \(2,\)"):
        StepSizes(gamma=lambda k: jnp.ones(2))


@pytest.mark.parametrize("value", ["fast", {"value": 0.1}, 1j])
def test_what_is_no_number_is_refused(value):
    with pytest.raises(ValueError, match="must be a number or an array of numbers, given"):
        StepSizes(alpha=value)


@pytest.mark.parametrize("function", [lambda: 0.5, lambda k: "fast", lambda k: None, lambda k: 0.5 if k > 3 else 0.1])
def test_a_function_that_cannot_be_a_schedule_is_refused_by_name(function):
    with pytest.raises(ValueError, match="StepSizes: alpha"):
        StepSizes(alpha=function)


def test_step_sizes_are_made_inside_jit_from_traced_values_and_from_floats():
    problem, start = _problem()

    @jax.jit
    def one_step(alpha):
        steps = StepSizes(alpha=alpha, eta=0.5, gamma=Power(0.5, -0.5), tau=1.0, sigma=lambda k: 1.0, mu=0.01)
        method = bs.methods.FullyProjected(steps)
        return method.step(problem, method.init(problem, start)).theta

    method = bs.methods.FullyProjected(StepSizes(alpha=0.25, eta=0.5, gamma=0.5, tau=1.0, sigma=1.0, mu=0.01))
    by_hand = method.step(problem, method.init(problem, start)).theta
    np.testing.assert_allclose(one_step(0.25), by_hand, rtol=1e-14)


def test_step_sizes_made_inside_jit_from_floats_are_still_checked():
    with pytest.raises(ValueError, match="gamma must lie in"):
        jax.jit(lambda v: v * StepSizes(gamma=1.5).at(jnp.asarray(0))["gamma"])(1.0)


def test_a_function_of_k_may_close_over_a_traced_value():
    by_closure = jax.jit(lambda scale: StepSizes(gamma=lambda k: scale / (k + 1)).at(jnp.asarray(1))["gamma"])
    assert by_closure(0.5) == 0.25
    swept = jax.vmap(lambda scale: StepSizes(gamma=lambda k: scale / (k + 1)).at(jnp.asarray(1))["gamma"])(
        jnp.asarray([0.2, 0.4])
    )
    np.testing.assert_allclose(swept, [0.1, 0.2])


def test_step_sizes_are_made_inside_vmap():
    swept = jax.vmap(lambda value: StepSizes(gamma=value, tau=Power(value, -1.0)).at(jnp.asarray(1)))(
        jnp.asarray([0.2, 0.4])
    )
    np.testing.assert_allclose(swept["gamma"], [0.2, 0.4])
    np.testing.assert_allclose(swept["tau"], [0.1, 0.2])


@pytest.mark.parametrize("make", [lambda v: v, Constant, lambda v: Power(v, -0.5), lambda v: Power(0.5, -v, v)])
def test_a_sweep_over_five_values_traces_once(make):
    problem, start = _problem()
    traces = []

    @jax.jit
    def run(method, state):
        traces.append(1)
        return jax.lax.fori_loop(0, 5, lambda _, s: method.step(problem, s), state)

    for value in (0.1, 0.2, 0.3, 0.4, 0.5):
        steps = StepSizes(alpha=make(value), eta=make(value), gamma=make(value), tau=value, sigma=value, mu=value)
        method = bs.methods.FullyProjected(steps)
        assert run(method, method.init(problem, start)).k == 5
    assert len(traces) == 1


def test_a_function_of_k_traces_once_however_often_it_is_wrapped():
    traces = []

    @jax.jit
    def use(steps):
        traces.append(1)
        return steps.at(jnp.asarray(0))["gamma"]

    def gamma(k):
        return 1 / (k + 1)

    for _ in range(3):
        use(StepSizes(gamma=gamma))
    assert len(traces) == 1


def test_a_sweep_as_one_vmapped_run_equals_one_run_per_value():
    problem, start = _problem()

    def run(alpha):
        steps = StepSizes(alpha=alpha, eta=alpha, gamma=0.1, tau=0.7, sigma=1.0, mu=0.01)
        method = bs.methods.OneSidedProjectionFree(steps)
        state = method.init(problem, start)
        return jax.lax.fori_loop(0, 20, lambda _, s: method.step(problem, s), state).theta

    values = jnp.asarray([0.1, 0.3, 0.9])
    np.testing.assert_allclose(jax.vmap(run)(values), jnp.stack([jax.jit(run)(value) for value in values]), atol=1e-13)


@pytest.mark.parametrize("dtype", [np.dtype("float32"), np.dtype("float64")])
def test_step_sizes_leave_the_dtype_of_the_iterates_alone(dtype):
    problem, start = _problem()
    start = jax.tree.map(lambda a: a.astype(dtype), start)
    steps = StepSizes(alpha=0.5, eta=Power(0.5, -0.1), gamma=lambda k: 1 / (k + 2), tau=0.7, sigma=1, mu=0.01)
    method = bs.methods.FullyProjected(steps)
    state = method.step(problem, method.init(problem, start))
    assert {leaf.dtype for leaf in jax.tree.leaves((state.x, state.theta, state.y, state.w, state.y0))} == {dtype}
