"""Second-order steps of Adaptive: what they reach, where they end, and that a run can be taken up again."""

from dataclasses import replace
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import bisaddle as bs
from bisaddle.methods.adaptive import constants as const, second
from bisaddle.methods.adaptive.method import Search
from bisaddle.methods.adaptive.model import Model
from tests.small_minimax import X_SETS, bent, f_mu, kernels_at, problem_of, squares


def steps_of(problem, start, tol, count=1000):
    kernels, x, theta, y = kernels_at(problem, start)
    search = Search(kernels, x)
    for look in islice(search.from_start(x, theta, y, None, tol), count):
        yield search, look


def test_value_and_gradient_at_every_place_are_those_of_f_mu():
    """At the exact maximiser, although f was asked at another y; and each Hessian counts as three products."""
    kernels = None
    for search, look in steps_of(*problem_of(bent, shift=4.0), tol=1e-9, count=12):
        if search.second is None or look.state is None:
            break
        kernels, here, centre = search.kernels, search.here, search.centre
        f_y = kernels.upper(here.x, np.zeros(0), here.inner.y).f_y
        np.testing.assert_allclose(here.inner.y, kernels.y_set.project(centre.y0 + f_y / centre.mu), atol=1e-12)
        np.testing.assert_allclose(here.Gx, kernels.upper(here.x, np.zeros(0), here.inner.y).f_x, rtol=1e-9, atol=1e-9)
        assert here.value == pytest.approx(f_mu(kernels, here.x, centre.y0, centre.mu), rel=1e-6)
        assert look.counts.hvps == 3 * (look.counts.hvps // 3) >= 3
    assert kernels is not None


def rosenbrock(x, theta, y):
    rows = jnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]])
    return y @ jnp.concatenate([rows, -rows])


def watson(x, theta, y):
    t, j = np.arange(1, 30)[:, None] / 29, np.arange(20)
    rows = (j * t ** np.maximum(j - 1, 0)) @ x - (t**j @ x) ** 2 - 1
    rows = jnp.concatenate([rows, jnp.stack([x[0], x[1] - x[0] ** 2 - 1])])
    return y @ jnp.concatenate([rows, -rows])


@pytest.mark.parametrize(
    ("upper", "x", "count", "most"), [(rosenbrock, np.array([-1.2, 1.0]), 4, 60), (watson, np.zeros(20), 62, 40)]
)
def test_hard_published_problems_take_few_steps(upper, x, count, most):
    """Both have the value 0, Watson's nearly; before, they took 283 to 1180 steps, and more than 10,000."""
    problem = bs.Problem(upper, None, bs.sets.FreeBall(), bs.sets.Simplex())
    result = bs.solve(problem, bs.Point(x=x, y=np.full(count, 1 / count)), tol=1e-6)
    assert result.status is bs.Status.CERTIFIED and result.steps <= most
    assert abs(result.certificate.worst_value) <= 1e-6


@pytest.mark.parametrize("name", X_SETS)
def test_the_answer_is_that_of_the_other_steps(name, monkeypatch):
    problem = problem_of(bent, x_set=X_SETS[name], seed=5, shift=6.0)
    newton = bs.solve(*problem, tol=1e-8)
    monkeypatch.setattr(const, "SECOND_ENTRIES", 0)
    other = bs.solve(*problem, tol=1e-8)
    assert newton.status is other.status is bs.Status.CERTIFIED
    assert newton.steps < other.steps
    assert newton.certificate.worst_value == pytest.approx(other.certificate.worst_value, abs=1e-7)


@pytest.mark.parametrize(("name", "value"), [("SECOND_MOST", 3), ("SECOND_REFUSED", 0), ("SECOND_LOST", -1)])
def test_where_they_end_the_other_steps_go_on(name, value, monkeypatch):
    monkeypatch.setattr(const, name, value)
    problem = problem_of(bent, seed=5, shift=6.0)
    kinds = [search.second is None for search, _ in islice(steps_of(*problem, tol=1e-6), 12)]
    assert not kinds[0] and kinds[-1]
    assert bs.solve(*problem, tol=1e-6).status is bs.Status.CERTIFIED


def test_a_run_can_be_taken_up_again_at_every_step():
    problem, start = problem_of(bent, seed=1, shift=3.0)
    looks = list(islice(steps_of(problem, start, 1e-6), 9))
    kernels, x, theta, y = kernels_at(problem, start)
    method = bs.methods.Adaptive(1e-6)
    states = []
    for look in islice(method.looks(problem, kernels, x, theta, y), 5):
        states.append(look.state and look.state())
    assert sum(state is not None and state.second is not None for state in states) >= 3
    for i, state in enumerate(states):
        if state is not None:
            again = list(islice(method.looks(problem, kernels, x, theta, y, state), 3))
            for look, (_, whole) in zip(again, looks[i + 1 :], strict=False):
                np.testing.assert_array_equal(look.x, whole.x)
                assert (look.k, look.value, look.counts) == (whole.k, whole.value, whole.counts)


@jax.custom_vjp
def _own_square(x):
    return x**2


def _by_host(x, g):
    """A derivative that JAX cannot differentiate again."""
    return (jax.pure_callback(lambda x, g: 2 * x * g, jax.ShapeDtypeStruct(x.shape, x.dtype), x, g),)


_own_square.defvjp(lambda x: (x**2, x), _by_host)


def own_derivative(x, theta, y, data):
    return y @ (data[1] @ _own_square(x) + data[2])


def concave(x, theta, y, data):
    return squares(x, theta, y, data) - 0.5 * y @ y


def layered(x, theta, y, data):
    return y @ (data[1] @ (x * jnp.tanh(data[0][0] @ x)))


def started(problem, start):
    kernels, x, theta, y = kernels_at(problem, start)
    search = Search(kernels, x)
    next(search.from_start(x, theta, y, None, 1e-6))
    return search


def test_they_are_for_small_problems_that_are_linear_in_y(monkeypatch):
    problem, start = problem_of()
    assert started(problem, start).second is not None
    narrow = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), (problem.data, start.x, start.y))
    others = {
        "concave in y": (replace(problem, upper=concave), start),
        "a network": (replace(problem, upper=layered), start),
        "a penalty": (replace(problem, y_set=bs.sets.SquaredL2(0.1, bs.sets.Simplex())), start),
        "no y": (bs.Problem(lambda x: x @ x, None, bs.sets.FreeBall()), bs.Point(x=start.x)),
        "float32": (replace(problem, data=narrow[0]), bs.Point(x=narrow[1], y=narrow[2])),
        "derivatives by hand": (replace(problem, upper=own_derivative), start),
        "no projection": (replace(problem, x_set=bs.sets.Custom(lmo=lambda g: -jnp.sign(g), diameter=4.0)), start),
    }
    for name, given in others.items():
        assert started(*given).second is None, name
    monkeypatch.setattr(const, "SECOND_ENTRIES", 2)
    assert started(problem, start).second is None


def test_nothing_is_compiled_for_them_with_a_lower_level():
    lower = lambda x, theta: 0.5 * jnp.sum((theta - x) ** 2)
    problem = bs.Problem(lambda x, theta, y: y @ theta**2, lower, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex())
    start = bs.Point(x=np.array([0.5, 0.2]), theta=np.zeros(2), y=np.full(2, 0.5))
    search = started(problem, start)
    assert search.second is None and not search.kernels._curvature.compiled
    assert not second.suits(search)


def test_a_linear_program_is_solved_by_them():
    A = np.random.default_rng(0).normal(size=(7, 5))
    simplex = bs.sets.Simplex()
    game = bs.Problem(lambda x, theta, y, data: y @ data @ x, None, simplex, simplex, jnp.asarray(A))
    result = bs.solve(game, bs.Point(x=np.full(5, 0.2), y=np.full(7, 1 / 7)), tol=1e-8)
    # the value of a game by its linear program: least v with A x <= v, x in the simplex
    limits = np.hstack([A, -np.ones((7, 1))])
    lp = linprog(
        np.eye(6)[5], limits, np.zeros(7), np.array([[1.0] * 5 + [0.0]]), [1.0], [(0, None)] * 5 + [(None, None)]
    )
    assert result.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(result.certificate.worst_value, lp.fun, atol=1e-7)


def test_where_the_model_is_too_hard_the_other_steps_go_on():
    """Beyond a few entries a matrix game has too many pieces: second-order steps alone took ten times as long."""
    A, simplex = np.random.default_rng(0).normal(size=(50, 50)), bs.sets.Simplex()
    game = bs.Problem(lambda x, theta, y, data: y @ data @ x, None, simplex, simplex, jnp.asarray(A))
    start = bs.Point(x=np.full(50, 0.02), y=np.full(50, 0.02))
    assert bs.solve(game, start, tol=1e-6, max_steps=400).status is bs.Status.CERTIFIED
    first = None
    for search, look in steps_of(game, start, 1e-6, count=40):
        if search.second is None:
            assert search.centre.mu == first and look.k <= 20
            return
        first = search.second.first_mu
    raise AssertionError("they go on")


def test_a_model_at_its_minimum_is_left_alone(monkeypatch):
    """Where f_mu is a quadratic, one step is exact, and the next model has nothing but rounding to offer."""
    rng, count = np.random.default_rng(0), []
    Q, B, c = rng.normal(size=(20, 20)), rng.normal(size=(20, 20)), rng.normal(size=20)
    upper = lambda x, theta, y: 0.5 * jnp.sum((Q @ x) ** 2) / 20 + 0.05 * x @ x + x @ B @ y + c @ x
    at = Model.at
    monkeypatch.setattr(Model, "at", lambda self, d: count.append(1) or at(self, d))
    box = bs.sets.Box(-1.0, 1.0)
    result = bs.solve(bs.Problem(upper, None, box, box), bs.Point(x=np.zeros(20), y=np.zeros(20)), tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    assert len(count) <= 25 * result.steps  # 130 before


def bard(x):
    u = np.arange(1.0, 16)
    y = np.array([0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.1, 4.39])
    return y - (x[0] + u / (x[1] * (16 - u) + x[2] * np.minimum(u, 16 - u)))


def test_a_first_step_is_not_so_long_that_another_minimum_is_found():
    def upper(x, theta, y, data):
        return y @ jnp.concatenate([bard(x), -bard(x)])

    problem = bs.Problem(upper, None, bs.sets.L2Ball(1e3), bs.sets.Simplex())
    result = bs.solve(problem, bs.Point(x=np.ones(3), y=np.full(30, 1 / 30)), tol=1e-6, max_steps=900)
    assert result.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(result.certificate.worst_value, 0.050816327, rtol=1e-5)  # as published


def test_a_radius_that_holds_x_back_is_no_reason_for_a_larger_mu():
    problem = bs.Problem(rosenbrock, None, bs.sets.L2Ball(50.0), bs.sets.Simplex())
    last, held = None, 0
    for search, look in steps_of(problem, bs.Point(x=np.array([-1.2, 1.0]), y=np.full(4, 0.25)), 1e-6, count=40):
        if search.second is None:
            break
        if last is not None and np.linalg.norm(look.x - last[0]) >= 0.999 * last[1]:
            held += 1
            assert search.centre.age <= last[2]
        last = look.x, search.second.radius, search.centre.age
    assert held >= 2


@pytest.mark.parametrize(
    ("ratio", "longer"), [(None, 3), (1.0, 3), (1.001, 10), (0.999, 10), (1.1, 3), (0.75, 3), (1 + 1e-9, 30)]
)
def test_a_radius_grows_to_where_the_model_would_be_off_by_a_tenth(ratio, longer):
    assert second._longer(ratio) == pytest.approx(longer)
