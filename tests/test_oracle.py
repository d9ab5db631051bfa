"""Every derivative against closed forms and finite differences, and how many of them a step takes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.flatten_util import ravel_pytree

import bisaddle as bs
from bisaddle import oracle
from bisaddle.oracle import implicit
from tests import reference
from tests.jaxprs import equations
from tests.registry import PROBLEMS, REGULARIZED, TWINS, flat, linear_quadratic_data
from tests.test_certificate import certify, feasible_point

SECOND = ("g_theta_theta", "g_theta_x")


@jax.jit
def everything(problem, point, w):
    x, theta, y = point.x, point.theta, point.y
    return {
        "upper": oracle.upper_gradients(problem, x, theta, y),
        "g_theta": oracle.lower_gradient(problem, x, theta),
        "g_theta_theta": oracle.hessian_product(problem, x, theta, w),
        "g_theta_x": oracle.cross_product(problem, x, theta, w),
    }


def relative(given, wanted):
    given, wanted = np.asarray(given), np.asarray(wanted, float)
    return np.linalg.norm(given - wanted) / max(np.linalg.norm(wanted), 1e-300)


# -- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TWINS)
def test_derivatives_equal_those_written_out_in_numpy(name, seed, record):
    problem, start, _ = PROBLEMS[name](seed)
    rng = np.random.default_rng(seed)
    point = feasible_point(problem, start, rng)
    twin, x, theta, y = TWINS[name](seed), flat(point.x), flat(point.theta), flat(point.y)
    w = None if theta is None else jnp.asarray(rng.normal(size=point.theta.shape))
    given = everything(problem, point, w)
    pairs = [(given["upper"][0], twin.f_x(x, theta, y))]
    if y is not None:
        pairs += [(given["upper"][2], twin.f_y(x, theta, y))]
    if theta is None:
        assert given["upper"][1] is None and given["g_theta"] is None and given["g_theta_theta"] is None
        assert not np.any(flat(given["g_theta_x"]))
    else:
        pairs += [(given["upper"][1], twin.f_theta(x, theta, y))]
        pairs += [(given["g_theta"], twin.g_theta(x, theta))]
        pairs += [(given["g_theta_theta"], twin.g_tt(x, theta) @ flat(w))]
        pairs += [(given["g_theta_x"], twin.g_tx(x, theta).T @ flat(w))]
    for mine, wanted in pairs:
        worst = np.max(np.abs(flat(mine) - wanted) / np.maximum(1, np.abs(wanted)))
        record("derivatives against closed forms", worst)
        assert worst <= 1e-12


def _mixed_upper(x, theta, y, data):
    inner = jnp.sum(theta["a"] * x[0]) + jnp.sum(jnp.sin(theta["b"])) * x[1]
    return inner * jnp.sum(y["p"]) + jnp.sum(y["q"][0] * jnp.tanh(theta["a"])) + jnp.sum(x[0] ** 3)


def _mixed_lower(x, theta, data):
    tilt = jnp.sum(jnp.exp(0.3 * theta["a"]) * x[0]) + x[1] * jnp.sum(theta["b"]) * jnp.sum(theta["a"])
    return tilt + data * (jnp.sum(theta["a"] ** 2) + jnp.sum(theta["b"] ** 2))


def mixed():
    """x a tuple, theta a dict of a vector and a matrix, y a dict with a tuple inside."""
    problem = bs.Problem(
        _mixed_upper,
        _mixed_lower,
        bs.sets.Product((bs.sets.L2Ball(2.0), bs.sets.Box(-1.0, 1.0))),
        bs.sets.Product({"p": bs.sets.Simplex(), "q": (bs.sets.L1Ball(1.0),)}),
        jnp.asarray(8.0),
    )
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape))
    x = problem.x_set.project((draw(3), draw()))
    y = problem.y_set.project({"p": draw(2), "q": (draw(3),)})
    return problem, bs.Point(x=x, theta={"a": draw(3), "b": draw(2, 2)}, y=y)


def test_derivatives_on_pytrees_equal_finite_differences():
    problem, point = mixed()
    w = jax.tree.map(lambda a: jnp.cos(a + 1), point.theta)
    given = everything(problem, point, w)
    unravel = {name: ravel_pytree(getattr(point, name))[1] for name in ("x", "theta", "y")}
    parts = {name: flat(getattr(point, name)) for name in unravel}

    def upper(**moved):
        at = {name: unravel[name](jnp.asarray(value)) for name, value in (parts | moved).items()}
        return float(problem.upper(at["x"], at["theta"], at["y"], problem.data))

    def lower_gradient(x, theta):
        return flat(jax.grad(problem.lower, 1)(unravel["x"](x), unravel["theta"](theta), problem.data))

    def differences(function, v, h=1e-6):
        return np.array([(function(v + h * e) - function(v - h * e)) / (2 * h) for e in np.eye(len(v))])

    for name, gradient in zip(("x", "theta", "y"), given["upper"], strict=True):
        assert jax.tree.structure(gradient) == jax.tree.structure(getattr(point, name))
        wanted = differences(lambda v, name=name: upper(**{name: v}), parts[name])
        np.testing.assert_allclose(flat(gradient), wanted, atol=1e-7)
    x, theta = parts["x"], parts["theta"]
    np.testing.assert_allclose(flat(given["g_theta"]), lower_gradient(x, theta), atol=1e-12)
    hessian = differences(lambda v: lower_gradient(x, v), theta)
    cross = differences(lambda v: lower_gradient(v, theta), x)
    np.testing.assert_allclose(flat(given["g_theta_theta"]), hessian.T @ flat(w), atol=1e-6)
    np.testing.assert_allclose(flat(given["g_theta_x"]), cross @ flat(w), atol=1e-6)


def test_methods_and_certificate_take_pytrees():
    problem, point = mixed()
    steps = bs.StepSizes(alpha=0.05, eta=0.05, gamma=0.1, tau=0.1, sigma=0.1, mu=0.1)
    for method in (bs.methods.FullyProjected(steps), bs.methods.OneSidedProjectionFree(steps)):
        state = method.init(problem, point)
        for _ in range(3):
            state = method.step(problem, state)
        assert jax.tree.structure((state.x, state.theta, state.y)) == jax.tree.structure(
            (point.x, point.theta, point.y)
        )
    given = certify(problem, state.point)
    assert np.isfinite(given.gap) and given.gap > 0
    assert jax.tree.structure(bs.hypergradient(problem, point.x, point.y, point.theta)) == jax.tree.structure(point.x)


def test_supplied_derivatives_are_used_instead_of_automatic_ones():
    problem, start, _ = PROBLEMS["logistic"](0)
    for name in ("f_x", "f_theta", "f_y", "g_theta", *SECOND):
        part = {"f_theta": "theta", "f_y": "y", "g_theta": "theta", "g_theta_theta": "theta"}.get(name, "x")
        mark = jax.tree.map(lambda a: jnp.full_like(a, 7.0), getattr(start, part))
        by_hand = bs.Derivatives(**{name: lambda *arguments, mark=mark: mark})
        changed = bs.Problem(
            problem.upper, problem.lower, problem.x_set, problem.y_set, problem.data, derivatives=by_hand
        )
        given, usual = (
            dict(zip(("f_x", "f_theta", "f_y"), oracle.upper_gradients(p, start.x, start.theta, start.y), strict=True))
            | {
                "g_theta": oracle.lower_gradient(p, start.x, start.theta),
                "g_theta_theta": oracle.hessian_product(p, start.x, start.theta, start.theta),
                "g_theta_x": oracle.cross_product(p, start.x, start.theta, start.theta),
            }
            for p in (changed, problem)
        )
        np.testing.assert_array_equal(given[name], mark)
        untouched = set(given) - {name} - ({"g_theta_theta"} if name == "g_theta" else set())
        for other in untouched:  # the Hessian product is the tangent of g_theta, supplied or not
            np.testing.assert_allclose(given[other], usual[other], atol=1e-14)


# -- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_a_step_makes_two_second_order_products_and_one_call_of_each_gradient(method_name):
    problem, start, _ = PROBLEMS["Experiment 1"](0)
    calls = []

    def counted(name):
        by_hand = getattr(problem.derivatives, name)

        def function(*arguments):
            jax.debug.callback(lambda: calls.append(name))
            return by_hand(*arguments)

        return function

    names = ("f_x", "f_theta", "f_y", "g_theta", *SECOND)
    derivatives = bs.Derivatives(**{name: counted(name) for name in names})
    counting = bs.Problem(
        problem.upper, problem.lower, problem.x_set, problem.y_set, problem.data, problem.constants, derivatives
    )
    method = REGULARIZED[method_name](problem)
    state = method.init(counting, start)
    steps = 7
    state = jax.jit(lambda state: lax.fori_loop(0, steps, lambda _, s: method.step(counting, s), state))(state)
    jax.effects_barrier()
    assert {name: calls.count(name) for name in names} == dict.fromkeys(names, steps)
    assert sum(name in SECOND for name in calls) == 2 * steps


@pytest.mark.parametrize("method_name", REGULARIZED)
def test_a_step_differentiates_upper_once_and_lower_three_times(method_name):
    """An arctangent in upper, an erf in lower: every pass evaluates its own once, and no derivative has either."""
    calls = []

    def upper(x, theta, y, data):
        calls.append("upper")
        return jnp.sum(x * theta * y) + jnp.arctan(jnp.sum(x * theta * y))

    def lower(x, theta, data):
        calls.append("lower")
        return 0.5 * jnp.sum((theta - x) ** 2) + lax.erf(jnp.sum(theta) - jnp.sum(x))

    problem = bs.Problem(upper, lower, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex(), constants=bs.Constants(1.0, 1.0))
    method = REGULARIZED[method_name](problem)
    state = method.init(problem, bs.Point(x=jnp.zeros(2), theta=jnp.zeros(2), y=jnp.full(2, 0.5)))
    step = jax.make_jaxpr(method.step)(problem, state).jaxpr
    # f_x, f_theta, f_y in one pass; g for its gradient, its Hessian product and its cross product
    names = [equation.primitive.name for equation in equations(step)]
    assert names.count("atan") == 1
    assert names.count("erf") == 3
    # however many passes there are, in however many programs, the user's code runs once: in the checks of init
    assert calls.count("upper") == 1
    assert calls.count("lower") == 1
    jax.make_jaxpr(lambda *at: method.step(*at).x)(problem, state)
    certify(problem, state.point)
    assert len(calls) == 2


# -- hypergradient -----------------------------------------------------------------------------------------------------


@pytest.fixture(params=["dense", "conjugate gradients"])
def path(request, monkeypatch):
    """Both linear solvers."""
    if request.param != "dense":
        monkeypatch.setattr(implicit, "FEW_DENSE_LIMIT", 0)
    return request.param


def test_hypergradient_equals_the_closed_form(path, record):
    for seed in range(50):
        problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](seed)
        point = feasible_point(problem, start, np.random.default_rng(seed))
        M, _ = reference.reduced(linear_quadratic_data(seed, 0.5))
        given = bs.hypergradient(problem, point.x, point.y, start.theta)
        worst = relative(given, M @ point.y + np.asarray(point.x))
        record(f"hypergradient against closed forms, {path}", worst)
        assert worst <= 1e-10


def slope_along(function, x, direction, h=1e-5):
    """Central difference."""
    x = np.asarray(x, reference.EXTENDED)
    return (function(x + h * direction) - function(x - h * direction)) / (2 * h)


def value_function(p, theta, y):
    """x -> f(x, theta*(x), y), exactly."""
    return lambda x: p.f(x, None if p.g_theta is None else reference.solve_lower(p, x, theta), y)


@pytest.mark.parametrize("name", ["logistic", "Experiment 1, rows", "generator, ball active"])
def test_hypergradient_equals_extended_precision_and_central_differences(name, path, record):
    for seed in range(50):
        problem, start, _ = PROBLEMS[name](seed)
        point = feasible_point(problem, start, np.random.default_rng(seed), spread=0.3)
        x, theta, y = flat(point.x), flat(point.theta), flat(point.y)
        given = flat(bs.hypergradient(problem, point.x, point.y, start.theta))
        twin = TWINS[name](seed, reference.EXTENDED)
        worst = relative(given, reference.certificate(twin, x, theta, y).Gx)
        record(f"hypergradient against extended precision, {path}", worst)
        assert worst <= 1e-10
        if path == "dense" or seed < 5:  # the differences are slow, and the two paths already agree with the above
            along = np.random.default_rng(seed).normal(size=len(x))
            slope = slope_along(value_function(twin, theta, y), x, along)
            error = abs(given @ along - float(slope)) / np.linalg.norm(given) / np.linalg.norm(along)
            record(f"hypergradient against central differences, {path}", error)
            assert error <= 1e-6


def test_hypergradient_without_a_lower_level_is_f_x():
    problem, start, _ = PROBLEMS["wavy saddle"](0)
    given = bs.hypergradient(problem, start.x, start.y)
    np.testing.assert_allclose(given, TWINS["wavy saddle"](0).f_x(flat(start.x), None, flat(start.y)), atol=1e-13)


def test_hypergradient_says_what_it_needs():
    problem, start, _ = PROBLEMS["logistic"](0)
    with pytest.raises(ValueError, match="needs a theta"):
        bs.hypergradient(problem, start.x, start.y)


def test_hypergradient_does_not_depend_on_where_the_lower_solve_starts():
    problem, start, _ = PROBLEMS["logistic"](0)
    wanted = bs.hypergradient(problem, start.x, start.y, start.theta)
    for theta in (jnp.zeros(4), jnp.full(4, 30.0), jnp.array([-100.0, 50.0, 0.0, 20.0])):
        assert relative(bs.hypergradient(problem, start.x, start.y, theta), wanted) <= 1e-10
