"""The certificate against dense linear algebra in extended precision, and at answers known in closed form."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog, lsq_linear, minimize

import bisaddle as bs
from bisaddle.certificate.certifier import MEASURES
from bisaddle.oracle import implicit
from tests import reference
from tests.registry import PROBLEMS, TWINS, extremes, flat, linear_quadratic, linear_quadratic_data

ALL_TWINS = tuple(TWINS)


@jax.jit
def project(convex_set, v):
    return convex_set.project(v)


def feasible_point(problem, start, rng, spread=1.0):
    """A random point of the sets, theta anywhere."""
    draw = lambda v: v + spread * rng.normal(size=v.shape)
    x = {name: draw(v) for name, v in start.x.items()} if isinstance(start.x, dict) else draw(start.x)
    return bs.Point(
        x=project(problem.x_set, x),
        theta=None if start.theta is None else draw(start.theta),
        y=None if start.y is None else project(problem.y_set, draw(start.y)),
    )


def exact(name, seed, point, sigma=1.0, tau=1.0):
    twin = TWINS[name](seed, reference.EXTENDED)
    return reference.certificate(twin, flat(point.x), flat(point.theta), flat(point.y), sigma, tau)


def certify(problem, point, measure="projection", sigma=1.0, tau=1.0, accuracy=0.0):
    """bs.certify with its numbers as arrays, so that one compilation serves them all."""
    numbers = {"sigma": np.float64(sigma), "tau": np.float64(tau), "accuracy": np.float64(accuracy)}
    return bs.certify(problem, point, measure=measure, **numbers)


def difference(given, wanted):
    return abs(float(given) - float(wanted)) / max(1.0, abs(float(wanted)))


@pytest.mark.parametrize("measure", ["projection", "lmo"])
@pytest.mark.parametrize("name", ALL_TWINS)
def test_agrees_with_an_independent_computation(name, measure, record):
    for seed, (sigma, tau) in enumerate([(1.0, 1.0), (0.3, 2.0), (10.0, 0.05)]):
        problem, start, _ = PROBLEMS[name](seed)
        point = feasible_point(problem, start, np.random.default_rng(seed))
        given = certify(problem, point, measure, sigma=sigma, tau=tau)
        wanted = exact(name, seed, point, sigma, tau)
        lower_error = 0.0 if point.theta is None else np.linalg.norm((flat(point.theta) - wanted.theta).astype(float))
        worst = max(
            difference(given.x_gap, wanted.x_gap[measure]),
            difference(given.y_gap, wanted.y_gap),
            difference(given.gap, wanted.x_gap[measure] + wanted.y_gap),
            difference(given.value, wanted.value),
            difference(given.worst_value, wanted.worst_value),
            difference(given.lower_error, lower_error),
        )
        record("certificate against extended precision", worst)
        assert worst <= 1e-9
        assert given.measure == measure
        assert float(given.violation) <= 1e-12


@pytest.mark.parametrize(
    "name",
    [
        *("DEM", "QL", "Mifflin1", "Crescent", "DEM lifted", "QL lifted", "Mifflin1 lifted", "Crescent lifted"),
        *("not Nash", "rock-paper-scissors", "two by two", "Bard98", "Henderson-Quandt", "generator"),
        *("linear-quadratic, nu = 0", "linear-quadratic, nu > 0"),
        *("linear-quadratic on the simplex, nu = 0", "linear-quadratic on the simplex, nu > 0"),
    ],
)
def test_zero_at_known_solutions_and_positive_off_them(name, record):
    problem, start, answer = PROBLEMS[name](1)
    y = None if answer.y is None else np.asarray(answer.y)
    point = bs.Point(x=np.asarray(answer.x), theta=start.theta, y=y)
    here = certify(problem, point)
    record("gap at known solutions", here.gap)
    assert here.gap <= 1e-8 and here.within(1e-7)
    if answer.value is not None:
        assert difference(here.value, answer.value) <= 1e-6
        assert difference(here.worst_value, answer.value) <= 1e-6
    if answer.theta is not None:
        np.testing.assert_allclose(here.theta, answer.theta, atol=1e-6)
    for direction in (1.0, -1.0):
        shift = direction * 0.05 * np.cos(np.arange(point.x.size))
        away = certify(problem, bs.Point(problem.x_set.project(point.x + shift), start.theta, y))
        assert away.gap >= 1e-3 and not away.within(5e-4)


def test_the_six_digits_of_cb2_are_nearly_stationary():
    for name in ("CB2", "CB2 lifted"):
        problem, start, answer = PROBLEMS[name](0)
        given = certify(problem, bs.Point(answer.x, start.theta, problem.y_set.project(jnp.asarray(answer.y))))
        assert given.gap <= 1e-4
        assert difference(given.worst_value, answer.value) <= 1e-5


# -- error_bound -----------------------------------------------------------------------------------------------------

ACCURACIES = (0.0, 1e-12, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
BOUND_CASES = 20


def nearly_solved(name, seed, point, accuracy, rng):
    """theta off theta*(x) by as much as lets certify accept it: its residual is 0.9 accuracy, in a bad direction."""
    twin = TWINS[name](seed, reference.EXTENDED)
    x = flat(point.x).astype(reference.EXTENDED)
    theta = reference.solve_lower(twin, x, flat(point.theta))
    eigenvalues, basis = np.linalg.eigh(twin.g_tt(x, theta).astype(float))
    weights = 1 / eigenvalues if rng.integers(2) else np.ones(len(eigenvalues))
    direction = basis @ (weights * rng.normal(size=len(eigenvalues)))
    offset = direction * 0.9 * accuracy
    while accuracy > 0 and np.linalg.norm(twin.g_theta(x, theta + offset).astype(float)) > 0.95 * accuracy:
        offset = 0.9 * offset
    return (theta + offset).astype(float).reshape(point.theta.shape)


@pytest.mark.parametrize("known", [True, False], ids=["mu_g given", "mu_g unknown"])
@pytest.mark.parametrize(
    "name",
    [
        "Experiment 1, rows",
        "Experiment 2, rows",
        "logistic",
        "linear-quadratic, nu > 0",
        "linear-quadratic on the simplex, nu = 0",
    ],
)
def test_error_bound_holds(name, known, record):
    rng = np.random.default_rng(1000 * len(name) + known)
    for case in range(BOUND_CASES):  # 5 problems, mu_g given or not: 200 cases
        problem, start, _ = PROBLEMS[name](case)
        # the rounding inside these small functions: a hundred roundings of numbers of size 1 to 10
        problem = dataclasses.replace(problem, noise=1e-13)
        if not known:
            problem = dataclasses.replace(problem, constants=bs.Constants(), noise=None)
        accuracy = ACCURACIES[case % len(ACCURACIES)]
        measure = MEASURES[
            (case if known else len(name)) % 2
        ]  # one measure a problem in the second half saves compiling
        point = feasible_point(problem, start, rng, spread=(1.0, 0.1)[case % 3 == 0])
        if accuracy > 0:
            theta = nearly_solved(name, case, point, accuracy, rng)
            point = bs.Point(x=point.x, theta=theta, y=point.y)
        sigma, tau = ((1.0, 1.0), (0.3, 2.0), (10.0, 0.05))[case % 3]
        given = certify(problem, point, measure, sigma=sigma, tau=tau, accuracy=accuracy)
        wanted = exact(name, case, point, sigma, tau)
        off = abs(reference.EXTENDED(float(given.gap)) - wanted.x_gap[measure] - wanted.y_gap)
        record("gap error / error_bound, to be at most 1", off / float(given.error_bound))
        assert off <= float(given.error_bound), (case, accuracy, measure)
        # far from theta*(x) it is to first order only, unless f and g are seen to be quadratic in theta
        bound = known and (accuracy <= 1e-6 or name.startswith("linear-quadratic"))
        assert given.error_is_bound is bound
        assert f"error {'bound' if bound else 'estimate'}" in str(given)
        if accuracy == 0:
            record("error_bound at accuracy 0, relative", given.error_bound / max(1.0, float(given.gap)))
            assert given.error_bound <= 1e-9 * max(1.0, float(given.gap))  # and is of use


@pytest.mark.parametrize("limit", [256, 128])
def test_error_bound_holds_on_both_sides_of_the_dense_limit(limit, monkeypatch):
    """theta of size 150; beyond it conjugate gradients stop early where accuracy allows, and the bound covers that."""
    monkeypatch.setattr(implicit, "FEW_DENSE_LIMIT", limit)
    for seed, accuracy in enumerate([0.0, 1e-10, 1e-6, 1e-4, 1e-2]):
        problem, start, _ = linear_quadratic(seed, 0.5, m=150)
        point = feasible_point(problem, start, np.random.default_rng(seed))
        given = certify(problem, point, accuracy=accuracy)
        twin = reference.linear_quadratic(linear_quadratic_data(seed, 0.5, 150), 50.0, 20.0, reference.EXTENDED)
        wanted = reference.certificate(twin, flat(point.x), flat(point.theta), flat(point.y))
        off = abs(reference.EXTENDED(float(given.gap)) - wanted.x_gap["projection"] - wanted.y_gap)
        assert off <= float(given.error_bound)


def _cubed(x, theta, y, data):
    return jnp.sum(theta**3)


def _follow(x, theta, data):
    return 0.5 * jnp.sum((theta - x) ** 2)


def test_error_bound_holds_where_the_derivative_of_the_equations_vanishes():
    # f_theta_theta = 6 theta is 0 at the accepted theta = 0 and not at theta* = x = 0.01; the true gap is 3 x^2
    problem = bs.Problem(_cubed, _follow, bs.sets.Box(-1.0, 1.0), None, constants=bs.Constants(mu_g=1.0, L_g=1.0))
    given = certify(problem, bs.Point(x=np.array([0.01]), theta=np.array([0.0])), accuracy=0.02)
    assert abs(given.gap - 3e-4) <= given.error_bound


def test_error_is_bound_exactly_when_nothing_was_estimated():
    for name in ("wavy saddle", "generator"):
        problem, start, _ = PROBLEMS[name](0)
        assert certify(problem, start).error_is_bound is False  # the rounding inside f was
        assert certify(dataclasses.replace(problem, noise=1e-14), start).error_is_bound is True
    problem = dataclasses.replace(problem, constants=bs.Constants(L_g=4.0), noise=1e-14)
    assert certify(problem, start).error_is_bound is False


# -- worst value -----------------------------------------------------------------------------------------------------


def _concave(x, theta, y, data):
    return data["c"] @ y - 0.5 * y @ data["H"] @ y + jnp.sum(x**2)


def _entropy(x, theta, y, data):
    return data["c"] @ y - jnp.sum((y + 0.05) * jnp.log(y + 0.05)) + 0 * jnp.sum(x)


def worst_value(upper, y_set, data, y):
    problem = bs.Problem(upper, None, bs.sets.Box(-1.0, 1.0), y_set, data)
    return certify(problem, bs.Point(x=np.zeros(1), y=y))


def check_worst(given, wanted):
    """The number given is at most the maximum, and lacks at most worst_value_error."""
    assert difference(given.worst_value, wanted) <= 1e-9
    slack = 1e-13 * max(1.0, abs(wanted))
    assert -slack <= wanted - float(given.worst_value) <= float(given.worst_value_error) + slack


@pytest.mark.parametrize("seed", range(5))
def test_worst_value_equals_that_of_independent_solvers(seed):
    rng = np.random.default_rng(seed)
    n = 6
    root, c = rng.normal(size=(n, n)), rng.normal(size=n)
    H = root.T @ root + 1e-3 * np.eye(n)
    data, y = {"H": jnp.asarray(H), "c": jnp.asarray(c)}, jnp.full(n, 1 / n)
    value = lambda y: c @ y - 0.5 * y @ H @ y
    check_worst(worst_value(_concave, bs.sets.Simplex(), data, y), value(reference.maximise_qp_on_simplex(H, c)))
    # max c'y - y'Hy/2 is a least-squares problem in the Cholesky factor
    factor = np.linalg.cholesky(H)
    in_box = lsq_linear(factor.T, np.linalg.solve(factor, c), bounds=(-0.3, 0.3), method="bvls", tol=1e-14).x
    check_worst(worst_value(_concave, bs.sets.Box(-0.3, 0.3), data, y), value(in_box))
    flat_data = data | {"H": jnp.zeros((n, n))}
    linear = linprog(-c, A_eq=np.ones((1, n)), b_eq=[1.0], bounds=(0, None))
    check_worst(worst_value(_concave, bs.sets.Simplex(), flat_data, y), -linear.fun)
    split = linprog(np.concatenate([-c, c]), A_ub=np.ones((1, 2 * n)), b_ub=[1.5], bounds=(0, None))
    check_worst(worst_value(_concave, bs.sets.L1Ball(1.5), flat_data, y), -split.fun)
    entropy = lambda y: -(c @ y - np.sum((y + 0.05) * np.log(y + 0.05)))
    slope = lambda y: -(c - np.log(y + 0.05) - 1)
    budget = {"type": "eq", "fun": lambda y: y.sum() - 1, "jac": lambda y: np.ones(n)}
    options = {"ftol": 1e-15, "maxiter": 500}
    solved = minimize(
        entropy, np.full(n, 1 / n), jac=slope, bounds=[(0, 1)] * n, constraints=budget, method="SLSQP", options=options
    )
    assert difference(worst_value(_entropy, bs.sets.Simplex(), data, y).worst_value, -solved.fun) <= 1e-9


# -- the other fields ------------------------------------------------------------------------------------------------


def test_lower_error_and_violation_are_distances():
    problem, start, answer = linear_quadratic(0, 0.5, y_size=None)
    theta = answer.theta + np.array([3.0, 4.0, 0.0, 0.0, 0.0])
    x = answer.x + 100 * np.eye(4)[0]
    x[0] = 53.0  # the ball has radius 50
    given = certify(problem, bs.Point(answer.x, theta, answer.y))
    assert difference(given.lower_error, 5.0) <= 1e-10
    assert given.violation <= 1e-12
    given = certify(problem, bs.Point(x, theta, answer.y + 1.0))
    assert difference(given.x_violation, 3.0) <= 1e-10
    assert difference(given.y_violation, np.sqrt(3.0)) <= 1e-10
    assert difference(given.violation, 3.0) <= 1e-10
    assert not given.within(2.9)


def test_an_infeasible_point_is_never_within():
    problem, start, _ = PROBLEMS["two by two"](0)
    x, y = np.array([0.5, 0.5]), np.array([0.6, 0.4])
    assert certify(problem, bs.Point(x=x, y=y)).within(1e-8)
    assert not certify(problem, bs.Point(x=x + 1e-3, y=y)).within(1e-4)


def test_without_a_max_player_the_value_is_the_worst_value():
    problem, start, _ = PROBLEMS["generator, ball active"](0)
    given = certify(problem, start)
    assert given.y_gap == 0 and given.y_violation == 0 and 0 < given.worst_value_error < 1e-12
    assert given.worst_value == given.value and given.gap == given.x_gap


def test_without_a_lower_level_nothing_is_left_to_solve():
    problem, start, _ = PROBLEMS["wavy saddle"](0)
    given = certify(problem, start)
    assert given.theta is None
    assert given.lower_error == 0 and given.lower_residual == 0 and given.linear_residual == 0


def test_new_numbers_do_not_compile_again():
    traces = []

    def upper(x, theta, y, data):
        traces.append(None)
        return jnp.sum(x * y)

    box = bs.sets.Box(-1.0, 1.0)
    problem, point = bs.Problem(upper, None, box, box), bs.Point(x=np.array([0.5]), y=np.array([0.1]))
    bs.certify(problem, point)
    first = len(traces)
    for sigma, tau, accuracy in ((0.5, 1.0, 0.0), (0.5, 0.7, 0.0), (0.5, 0.7, 1e-6)):
        bs.certify(problem, point, sigma=sigma, tau=tau, accuracy=accuracy)
    # the checks before compilation may evaluate upper, abstractly, once a call
    assert len(traces) - first <= 3


# -- lower levels without strong convexity ----------------------------------------------------------------------------


def _energy(x, theta, y, data):
    return 0.5 * jnp.sum(theta**2) + 0.5 * jnp.sum(x**2)


def _total(x, theta, y, data):
    return jnp.sum(theta) + 0.5 * jnp.sum(x**2)


def _squares(x, theta, data):
    return 0.5 * jnp.sum((data["V"] @ theta - data["B"] @ x) ** 2)


def _indefinite(x, theta, data):
    return 0.5 * theta @ data["V"] @ theta - theta @ data["B"] @ x


@pytest.mark.parametrize("upper", [_energy, _total])
def test_a_singular_lower_level_is_never_within_tolerance(upper):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        data = {"V": jnp.asarray(rng.normal(size=(2, 3))), "B": jnp.asarray(rng.normal(size=(2, 2)))}
        problem = bs.Problem(upper, _squares, bs.sets.Box(-1.0, 1.0), None, data)
        for x, theta in ((0.0, 0.0), (0.3, 0.0), (0.3, 1.0)):  # the first is stationary in every equation
            given = certify(problem, bs.Point(x=jnp.full(2, x), theta=jnp.full(3, theta)))
            assert not given.within(1e3), (seed, x, theta, str(given))


@pytest.mark.parametrize("upper", [_energy, _total])
def test_a_lower_level_with_negative_curvature_is_never_within_tolerance(upper):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        root = rng.normal(size=(3, 3))
        data = {"V": jnp.asarray(root + root.T - 2 * np.eye(3)), "B": jnp.asarray(rng.normal(size=(3, 2)))}
        assert extremes(np.asarray(data["V"]))[0] < 0
        problem = bs.Problem(upper, _indefinite, bs.sets.Box(-1.0, 1.0), None, data)
        for x, theta in ((0.0, 0.0), (0.3, 1.0)):
            given = certify(problem, bs.Point(x=jnp.full(2, x), theta=jnp.full(3, theta)))
            assert not given.within(1e3), (seed, x, theta, str(given))


def _few_equations(x, theta, data):
    return 0.5 * jnp.sum((data["V"] @ theta - data["B"] @ x) ** 2)


def _half_squares(x, theta, y, data):
    return 0.5 * jnp.sum(theta**2) + 0.5 * jnp.sum(x**2)


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("size", [200, 300])  # with a matrix, and beyond
def test_one_flat_direction_among_many_is_not_looked_past(size, extra):
    # an equation less than variables leaves one eigenvalue at 0, a ridge of 0.3^2 lifts it
    rng = np.random.default_rng(0)
    V = rng.normal(size=(size - 1, size)) / np.sqrt(size)
    V = np.vstack([V, 0.3 * np.eye(size)]) if extra else V
    data = {"V": jnp.asarray(V), "B": jnp.asarray(rng.normal(size=(len(V), 3)))}
    problem = bs.Problem(_half_squares, _few_equations, bs.sets.L2Ball(1.0), None, data)
    certificate = bs.certify(problem, bs.Point(jnp.zeros(3), jnp.zeros(size)))
    assert certificate.within(1e-6) == extra
    assert not certificate.error_is_bound


def test_a_corner_is_degenerate_beside_a_small_gradient_in_another_part():
    """lam = 1 holds x free whatever the size of its own gradient, which pushes it against its bound."""

    def upper(x, y):
        return y[0] * (1 + (1 - x["lam"]) * jnp.sum(x["x"]) - 1e-4 * x["lam"]) + y[1] * (0.1 * jnp.sum(x["x"] ** 2) - 5)

    x_set = bs.sets.Product({"lam": bs.sets.Box(0.0, 1.0), "x": bs.sets.Box(-1.0, 1.0)})
    problem = bs.Problem(upper, x_set=x_set, y_set=bs.sets.Simplex())
    point = bs.Point(x={"lam": np.array(1.0), "x": np.zeros(3)}, y=np.array([1.0, 0.0]))
    certificate = bs.certify(problem, point)
    assert certificate.gap == 0 and certificate.free_parts == ("['x']",)
