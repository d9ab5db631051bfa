"""Second-order steps of Adaptive: their model against SciPy, finite differences and direct evaluations of f_mu."""

from dataclasses import replace
from itertools import islice

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime, linprog, minimize

import bisaddle as bs
from bisaddle.methods.adaptive import constants as const, second
from bisaddle.methods.adaptive.coordinates import Space
from bisaddle.methods.adaptive.method import Search
from bisaddle.methods.adaptive.model import Model, _in_face, as_projector, derivative_times, minimised
from bisaddle.oracle.kernels import Kernels
from bisaddle.sets.flat import flat_set

Y_SETS = {
    "simplex": bs.sets.Simplex(),
    "box": bs.sets.Box(-0.3, 0.4),
    "ball": bs.sets.L2Ball(0.5),
    "KL ball": bs.sets.KLBall(np.full(5, 0.2), 0.1),
}
X_SETS = {"box": bs.sets.Box(-0.5, 0.4), "ball": bs.sets.L2Ball(0.6), "simplex": bs.sets.Simplex(), "far": None}


def squares(x, theta, y, data):
    """Five quadratics of three variables, convex and not."""
    A, b, c = data
    return y @ (0.5 * jnp.einsum("i,kij,j->k", x, A, x) + b @ x + c)


def alike(x, theta, y, data):
    """The same curvature for all y: then the model is exact."""
    A, b, c = data
    return 0.5 * x @ A[0] @ x + y @ (b @ x + c)


def bent(x, theta, y, data):
    """The same, bent: f_x_x depends on x and is not symmetric in what it is made of."""
    return squares(jnp.sin(x) + 0.3 * x[::-1] ** 3, theta, y, data)


def quadratics(seed, shift=2.0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(5, 3, 3))
    return A + A.transpose(0, 2, 1) + shift * np.eye(3), rng.normal(size=(5, 3)), rng.normal(size=5)


def problem_of(upper=squares, x_set=None, y_set=None, seed=0, **choices):
    y_set = bs.sets.Simplex() if y_set is None else y_set
    problem = bs.Problem(upper, None, x_set or bs.sets.FreeBall(), y_set, quadratics(seed, **choices))
    start = np.random.default_rng(seed + 100).normal(size=3)
    y = y_set.project(jnp.full(5, 0.2))
    return problem, bs.Point(x=problem.x_set.project(jnp.asarray(start)), y=y)


def kernels_at(*problem):
    kernels = Kernels(*problem)
    return kernels, *kernels.flat(problem[1])


def model_at(kernels, x, base, y0, mu):
    assert kernels.y_set is not None
    none = np.zeros(0)
    return Model(kernels.y_set, *kernels.curvature(x, none, base), base, y0, mu)


def f_mu(kernels, x, y0, mu):
    """By SciPy over differences of f: no projection of the library, no gradient."""
    y_set = kernels.y_set.of
    slopes = np.array([kernels.upper(x, np.zeros(0), e).value for e in np.eye(5)]) - (
        at_0 := kernels.upper(x, np.zeros(0), np.zeros(5)).value
    )
    limits, bounds = [], [(0.0, 1.0)] * 5
    if isinstance(y_set, bs.sets.Box):
        bounds = [(-0.3, 0.4)] * 5
    elif isinstance(y_set, bs.sets.L2Ball):
        bounds, limits = None, [{"type": "ineq", "fun": lambda y: 0.25 - y @ y}]
    else:
        limits = [{"type": "eq", "fun": lambda y: np.sum(y) - 1}]
    if isinstance(y_set, bs.sets.KLBall):
        bounds = [(1e-9, 1.0)] * 5
        limits.append({"type": "ineq", "fun": lambda y: 0.1 - np.sum(y * np.log(y / 0.2))})
    low = lambda y: 0.5 * mu * (y - y0) @ (y - y0) - slopes @ y
    found = minimize(low, np.full(5, 0.2), bounds=bounds, constraints=limits, options={"ftol": 1e-15, "maxiter": 500})
    return at_0 - found.fun


def test_second_derivatives_are_those_of_differences():
    kernels, x, theta, y = kernels_at(*problem_of(bent))
    upper, f_x_x, f_x_y = kernels.curvature(x, theta, y)
    for found, alone in zip(upper, kernels.upper(x, theta, y), strict=True):
        np.testing.assert_allclose(found, alone, rtol=1e-13, atol=1e-13)
    gradients = lambda x: np.concatenate([(upper := kernels.upper(x, theta, y)).f_x, upper.f_y])
    step = 1e-5
    rows = [(gradients(x + step * e) - gradients(x - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(np.column_stack([f_x_x, f_x_y]), rows, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", Y_SETS)
@pytest.mark.parametrize("mu", [0.3, 3.0])
def test_the_model_of_a_quadratic_is_f_mu_itself(name, mu):
    """Wherever the base is, and across pieces: f_mu at x + d beside that with y at the base."""
    kernels, x, _, y = kernels_at(*problem_of(alike, y_set=Y_SETS[name]))
    rng = np.random.default_rng(3)
    base, y0 = (kernels.y_set.project(y + 0.2 * rng.normal(size=5)) for _ in range(2))
    model = model_at(kernels, x, base, y0, mu)
    offset = model.upper.value - 0.5 * mu * (base - y0) @ (base - y0)
    for size in (0.0, 0.1, 1.0):
        d = size * rng.normal(size=3)
        spot = model.at(d)
        assert spot.value + offset == pytest.approx(f_mu(kernels, x + d, y0, mu), rel=1e-7, abs=1e-7)
        np.testing.assert_allclose(spot.gradient, kernels.upper(x + d, np.zeros(0), spot.y).f_x, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", Y_SETS)
def test_the_hessian_of_the_model_is_that_of_f_mu(name):
    """Of f_mu with bent functions, at d = 0: differences of its gradient, whose y is projected anew."""
    kernels, x, _, y = kernels_at(*problem_of(bent, y_set=Y_SETS[name]))
    mu, y0 = 2.5, y
    best = lambda x, y=y: kernels.y_set.project(y0 + kernels.upper(x, np.zeros(0), y).f_y / mu)
    gradient = lambda x: kernels.upper(x, np.zeros(0), best(x)).f_x
    model = model_at(kernels, x, best(x), y0, mu)
    step = 1e-6
    rows = [(gradient(x + step * e) - gradient(x - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(model.hessian(model.at(np.zeros(3))), rows, rtol=1e-5, atol=1e-6)


def test_the_derivative_of_a_projection_on_a_bent_border():
    ball = bs.sets.L2Ball(0.7)
    v, rows = np.array([0.9, -0.4, 1.2]), np.random.default_rng(0).normal(size=(2, 3))
    exact = np.asarray(jax.jacfwd(ball.project)(jnp.asarray(v)))
    np.testing.assert_allclose(derivative_times(flat_set(ball, v).face(v), rows), rows @ exact.T, rtol=1e-12)


def test_a_projector_stays_and_anything_else_becomes_one():
    E = np.diag([1.0, 0.0, 1.0])
    assert as_projector(E) is E
    np.testing.assert_allclose(as_projector(np.diag([1.0, 0.1, 0.5])), E, atol=1e-15)


@pytest.mark.parametrize("name", X_SETS)
@pytest.mark.parametrize("radius", [0.2, 10.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_least_value_of_a_convex_model_is_that_of_scipy(name, radius, seed):
    x_set = X_SETS[name]
    problem = problem_of(x_set=x_set, seed=seed, shift=8.0)
    kernels, x, _, y = kernels_at(*problem)
    mu = 0.5
    model = model_at(kernels, x, y, y, mu)
    found = minimised(model, Space(kernels.x_set, x), x, radius)
    limits, bounds = [{"type": "ineq", "fun": lambda d: radius**2 - d @ d}], None
    if name == "box":
        bounds = np.column_stack([-0.5 - x, 0.4 - x])
    elif name == "ball":
        limits.append({"type": "ineq", "fun": lambda d: 0.36 - (x + d) @ (x + d)})
    elif name == "simplex":
        bounds, other = np.column_stack([-x, 1 - x]), {"type": "eq", "fun": np.sum}
        limits.append(other)
    value = lambda d: model.at(d).value
    options = {"ftol": 1e-14, "maxiter": 500}
    exact = minimize(value, np.zeros(3), bounds=bounds, constraints=limits, options=options)
    assert np.linalg.norm(found.d) <= radius * (1 + 1e-12)
    assert kernels.x_set.violation(x + found.d) <= 1e-12
    assert found.decrease == pytest.approx(model.at(np.zeros(3)).value - value(found.d), rel=1e-9, abs=1e-13)
    decrease = model.at(np.zeros(3)).value - exact.fun
    # at the radius it is no more than a good step
    share = 0.99 if radius > 1 else 0.7
    assert found.decrease >= share * decrease - 1e-10


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


def test_differences_confirm_scipy_itself():
    """f_mu, on which tests above rest, has the gradient of Danskin's theorem."""
    kernels, x, _, y = kernels_at(*problem_of(bent))
    best = kernels.y_set.project(y + kernels.upper(x, np.zeros(0), y).f_y / 0.7)
    slope = approx_fprime(x, lambda x: f_mu(kernels, x, y, 0.7), 1e-6)
    np.testing.assert_allclose(slope, kernels.upper(x, np.zeros(0), best).f_x, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("curved", [0.0, 1e-200, 1e-12])
def test_a_model_that_hardly_curves_is_followed_as_far_as_the_radius(curved):
    right = np.array([-0.9, 0.0, 0.1])
    t = _in_face(curved * np.eye(3), np.eye(3), None, right, 2.0)
    np.testing.assert_allclose(t / np.linalg.norm(t), right / np.linalg.norm(right), atol=1e-12)
    assert 1.9 <= np.linalg.norm(t) <= 1.1 * 2.0


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


def test_the_error_of_the_model_grows_as_the_square_of_the_length():
    """Relative to the decrease, from the maximiser down the gradient: what the growth of the radius rests on."""
    kernels, x, _, y0 = kernels_at(*problem_of(bent, shift=4.0))
    mu, none = 30.0, np.zeros(0)

    def highest(x):
        y = kernels.y_set.project(y0 + kernels.upper(x, none, y0).f_y / mu)
        return y, kernels.upper(x, none, y).value - 0.5 * mu * (y - y0) @ (y - y0)

    model = model_at(kernels, x, highest(x)[0], y0, mu)
    down = -model.at(np.zeros(3)).gradient
    off = [
        (highest(x)[1] - highest(x + length * down)[1]) / -model.at(length * down).value - 1
        for length in (0.008, 0.004)
    ]
    assert off[0] / off[1] == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize(
    ("ratio", "longer"), [(None, 3), (1.0, 3), (1.001, 10), (0.999, 10), (1.1, 3), (0.75, 3), (1 + 1e-9, 30)]
)
def test_a_radius_grows_to_where_the_model_would_be_off_by_a_tenth(ratio, longer):
    assert second._longer(ratio) == pytest.approx(longer)
