"""Attacks on certificates: points and problems made to be certified wrongly, and what a certificate says of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate import wide
from bisaddle.certificate.noise import LONG, LONGER, SHORT, along_a_line, jitter, rounding_noise, sampled
from bisaddle.oracle.implicit import Implicit
from bisaddle.oracle.kernels import Kernels
from tests.registry import PROBLEMS

BOX = bs.sets.Box(-1.0, 1.0)
MOVES, EPS = (SHORT, LONG, LONGER), float(np.finfo(float).eps)
NOT_CONCAVE = ("cosine", "Forsaken")  # problems of the registry that are not


def _steep(x, theta, y, data):
    return data["slope"] * x[0] + data["pull"] * y[0]


@pytest.mark.parametrize("measure", ["lmo", "projection"])
@pytest.mark.parametrize("seed", range(5))
def test_a_point_outside_its_set_hides_nothing(measure, seed):
    """x beyond the border by less than tol: its linear gap is negative and would cancel the gap of y."""
    rng = np.random.default_rng(seed)
    data = {"slope": 10 ** rng.uniform(4, 7), "pull": 10 ** rng.uniform(-3, -1)}
    beyond = 10 ** rng.uniform(-8, -6.1)
    problem = bs.Problem(_steep, None, bs.sets.L2Ball(1.0), BOX, data)
    certificate = bs.certify(problem, bs.Point(np.array([-1 - beyond, 0.0]), None, np.zeros(1)), measure=measure)
    assert certificate.x_gap >= 0 and certificate.y_gap >= 0
    # what infeasibility can hide of the gap: the slope times the violation
    assert certificate.error_bound >= data["slope"] * beyond * (1 - 1e-6)
    assert not certificate.within(1e-6)


def _follow(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + 0.5 * jnp.mean((theta - 1) ** 2)


def _quadratic(x, theta, data):
    return 0.5 * jnp.sum(data * theta**2) - 0.1 * x[0] * jnp.sum(theta)


def indefinite(h, mu_g=None):
    constants = None if mu_g is None else bs.Constants(mu_g=mu_g)
    problem = bs.Problem(_follow, _quadratic, BOX, None, h, constants)
    return problem, bs.Point(np.array([0.1]), np.zeros(len(h)), None)


SPECTRA = {
    "one far below": lambda rng, n: np.append(np.ones(n - 1), -5.0),
    "one a little below": lambda rng, n: np.append(rng.uniform(0.1, 1.0, n - 1), -0.02),
    "half": lambda rng, n: rng.uniform(-1.0, 1.0, n),
    "a few": lambda rng, n: np.append(rng.uniform(0.5, 2.0, n - 5), rng.uniform(-2.0, -0.1, 5)),
    "flat": lambda rng, n: np.append(rng.uniform(0.5, 2.0, n - 1), 0.0),
}


@pytest.mark.parametrize("size", [6, 300])
@pytest.mark.parametrize("kind", SPECTRA)
def test_an_indefinite_lower_level_is_witnessed(kind, size):
    """Below and beyond the size up to which the Hessian is a matrix."""
    for seed in range(4):
        h = SPECTRA[kind](np.random.default_rng(seed), size)
        certificate = bs.certify(*indefinite(h))
        witness = certificate.lower_witness
        assert not certificate.within(1e3) and witness is not None
        v = np.asarray(witness.direction)
        np.testing.assert_allclose(v @ (h * v) / (v @ v), witness.curvature, rtol=1e-9, atol=1e-12)
        assert witness.curvature <= 1e-12
        assert "certificate.lower_witness" in str(certificate)


@pytest.mark.parametrize("size", [6, 150, 400])
def test_a_mu_g_that_is_too_large_is_refused_by_name(size):
    h = np.random.default_rng(size).uniform(0.5, 2.0, size)
    h[3] = 0.3
    wrong = bs.certify(*indefinite(h, mu_g=0.4))
    assert not wrong.within(1e3) and "mu_g = 0.4 was given" in str(wrong)
    np.testing.assert_allclose(wrong.lower_witness.curvature, 0.3, rtol=1e-3)
    for right in (0.3, 0.3 * (1 + 1e-8), 0.2):  # users round
        assert bs.certify(*indefinite(h, mu_g=right)).lower_witness is None


@pytest.mark.parametrize("size", [6, 300])
def test_a_solve_of_an_indefinite_lower_level_says_so(size):
    result = bs.solve(*indefinite(SPECTRA["one far below"](None, size)))
    assert result.status is bs.Status.NOT_STRONGLY_CONVEX and "ridge" in result.status.advice
    np.testing.assert_allclose(result.certificate.lower_witness.curvature, -5.0, rtol=1e-9)


def _in_y(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + 0.5 * y @ data @ y


def _waves(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + jnp.sum(jnp.cos(data * y))


def _bumps(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + jnp.sum(jnp.exp(-data * (y - 0.4) ** 2))


@pytest.mark.parametrize("y_set", [BOX, bs.sets.L2Ball(1.0), bs.sets.Simplex()], ids=["box", "ball", "simplex"])
@pytest.mark.parametrize("size", [2, 12])
def test_an_f_that_bends_up_in_one_direction_is_not_concave(size, y_set):
    """One positive eigenvalue among negative ones, at the point where the gradient in y is 0."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        basis, _ = np.linalg.qr(rng.normal(size=(size, size)) - (isinstance(y_set, bs.sets.Simplex)) / size)
        if isinstance(y_set, bs.sets.Simplex):  # a direction of the simplex adds up to 0
            basis[:, 0] = rng.permutation(np.append(np.ones(1), np.append(-np.ones(1), np.zeros(size - 2)))) / 2**0.5
        H = -0.5 * np.eye(size) + 1.5 * np.outer(basis[:, 0], basis[:, 0])
        problem = bs.Problem(_in_y, None, BOX, y_set, H)
        y = np.full(size, 1 / size) if isinstance(y_set, bs.sets.Simplex) else np.zeros(size)
        certificate = bs.certify(problem, bs.Point(np.zeros(2), None, y))
        witness = certificate.upper_witness
        assert witness is not None and not certificate.within(1e3)
        v = np.asarray(witness.direction)
        assert 0 < witness.curvature <= v @ H @ v / (v @ v) + 1e-9
        assert np.isinf(certificate.worst_value_error) and "not concave" not in str(certificate.measure)


@pytest.mark.parametrize(("upper", "wavelength"), [(_waves, 3.0), (_waves, 9.0), (_bumps, 30.0)])
def test_a_hill_elsewhere_is_found(upper, wavelength):
    """f is concave around y, and not in between it and the rest of Y."""
    problem = bs.Problem(upper, None, BOX, BOX, np.array(wavelength))
    y = np.zeros(2) if upper is _waves else np.full(2, 0.4)
    certificate = bs.certify(problem, bs.Point(np.zeros(2), None, y))
    assert certificate.y_gap <= 1e-9 and certificate.upper_witness is not None


def test_the_start_of_a_nonconcave_problem_is_not_certified():
    problem = bs.Problem(_in_y, None, BOX, BOX, 2 * np.eye(2))
    result = bs.solve(problem, bs.Point(np.full(2, 0.3), None, np.zeros(2)))
    assert result.status is bs.Status.NOT_CONCAVE and "concave" in result.status.advice
    np.testing.assert_allclose(result.certificate.upper_witness.curvature, 2.0, rtol=1e-6)
    np.testing.assert_allclose(result.certificate.worst_value, 2.0)  # of the points that were tried


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name not in NOT_CONCAVE])
def test_no_witness_where_there_is_none(name):
    problem, start, _ = PROBLEMS[name](0)
    measure = next(
        m for m, oracle in (("projection", "project"), ("lmo", "lmo")) if oracle in problem.x_set.capabilities
    )
    certificate = bs.certify(problem, start, measure=measure)
    assert certificate.lower_witness is None and certificate.upper_witness is None and certificate.mismatch == ""


def _cancelling(x, theta, y, data):
    return 0.5 * jnp.sum(((x + data) - data - 0.3) ** 2) + jnp.sum(y * x) - 0.5 * jnp.sum(((y + data) - data) ** 2)


def test_cancellation_inside_f_is_counted():
    """(x + o) - o rounds x to the spacing of numbers around o, and the gradient with it."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(40):
        point = bs.Point(rng.uniform(-0.9, 0.9, 2), None, rng.uniform(-0.9, 0.9, 2))
        offset = 10 ** rng.uniform(3, 14)
        found, exact = (bs.certify(bs.Problem(_cancelling, None, BOX, BOX, np.array(o)), point) for o in (offset, 0.0))
        assert not found.error_is_bound
        held += abs(found.gap - exact.gap) <= found.error_bound
    assert held >= 38  # an estimate from a few differences: it may miss now and then, and is not called a bound


@pytest.mark.parametrize("spacing", [1e-12, 1e-9, 1e-6, 1e-3])
def test_jitter_is_the_spacing_to_which_a_function_rounds(spacing):
    smooth = lambda v: np.array([np.sin(v[0]) + v[1] ** 3, np.exp(v[1]), 2 * v[0], 1.0])
    rounded = lambda v: np.append(spacing * np.round(smooth(v)[:3] / spacing), 1.0)
    at, line = np.array([0.3, -0.7]), np.array([0.66**0.5, 1.3**0.5])  # no multiples of the spacing
    seen = lambda function: jitter(sampled(function, at, line, MOVES, 7), (3, 4, 5), MOVES, EPS)
    found = seen(rounded)
    # uniform errors of half a spacing at most have a deviation of 0.29 of it
    assert np.all(found[:3] >= 0.03 * spacing) and np.all(found[:3] <= 2 * spacing + 1e-14) and found[3] <= 1e-15
    assert np.all(seen(smooth) <= 1e-14)


def test_what_bends_a_lot_within_the_longest_move_only_is_no_rounding():
    """cos(45 t) turns by 1.35 from point to point of the longest move, and by 0.45 of the long one."""
    wave = lambda v: np.cos(45 * v)
    rows = sampled(wave, np.array([0.1]), np.array([1.0]), MOVES, 7)
    found = [jitter(sampled_rows, (3, 4, 5), MOVES, EPS) for sampled_rows in (rows, rows[[0, 2, 2]])]
    assert found[0] <= 1e-12 < 1e-2 < found[1]


@pytest.mark.parametrize(("units", "counts"), [(8, False), (1e3, True), (1e7, True)])
def test_rounding_along_long_moves_counts_beyond_what_is_usual(units, counts):
    """Random digits of values of 1, in units of their rounding, that no short move shows; 64 are usual."""
    rows = 1 + units * EPS * np.random.default_rng(1).normal(size=(3, 7, 20))
    rows[0] = 1
    found = jitter(rows, (3, 4, 5), MOVES, EPS)  # some of it may look smooth by chance
    assert 0.1 * units * EPS < np.median(found) < units * EPS if counts else np.all(found < EPS)


def test_rounding_whose_differences_shrink_by_chance_is_counted():
    """Of three deviations of the same rounding each may be below half of the one before."""
    rng = np.random.default_rng(0)
    found = [jitter(1 + 1e-9 * rng.normal(size=(1, 7, 1)), (3, 4, 5), MOVES[:1], EPS)[0] for _ in range(300)]
    assert min(found) >= 1e-11


def estimated(function, at, offset=0.0):
    """The noise of a function of x, as a certificate estimates it; x rounded to multiples of offset / 2^52."""
    rounded = lambda x, theta, y, offset: function((x + offset) - offset)
    problem = bs.Problem(rounded, None, bs.sets.FreeBall(), None, np.array(offset))
    kernels = Kernels(problem, point := bs.Point(x=at))
    solved = Implicit(kernels, *kernels.flat(point))
    return rounding_noise(along_a_line(solved))


BENT = {
    "waves": lambda x: jnp.sum(jnp.cos(300 * x)),  # 30 radians from the first point to the last of the longest move
    "pole": lambda x: 1 / (x[0] + 0.1) + jnp.sum(x**3),
    "steep": lambda x: jnp.sum(jax.nn.softplus(100 * x)),
    "network": lambda x: jnp.sum(jnp.tanh(3 * jnp.tanh(20 * x) + 1) ** 2),
    "exponential": lambda x: 1e-4 * jnp.sum(jnp.exp(300 * x)),  # 1e27 times as large at the end of the longest move
}


@pytest.mark.parametrize("name", BENT)
def test_what_bends_within_a_long_move_is_followed_from_shorter_ones(name):
    found = estimated(BENT[name], np.array([0.03, -0.02]))
    assert found.value <= 1e-11 and found.f_x <= 1e-9


@pytest.mark.parametrize("name", BENT)
@pytest.mark.parametrize("spacing", [1e-11, 1e-9, 1e-7, 1e-5, 1e-4, 3e-4])
def test_rounding_is_seen_in_what_bends(name, spacing):
    """Numbers that are rounded on the way, by more than a short move or by less."""
    for at in ([0.03, -0.02], [0.041, 0.013], [-0.033, 0.07]):
        at, offset = np.array(at), spacing * 2.0**52
        (value, slope), (value_off, slope_off) = (
            jax.value_and_grad(BENT[name])(place) for place in (at, (at + offset) - offset)
        )
        found = estimated(BENT[name], at, offset)
        assert found.f_x >= float(jnp.linalg.norm(slope - slope_off)) / 3 and found.value >= abs(value - value_off) / 3


@pytest.mark.parametrize("pace", [300.0, 700.0, 3000.0])
def test_exponentials_that_grow_by_orders_of_magnitude_are_no_rounding(pace):
    found = estimated(lambda x: 1e-4 * jnp.sum(jnp.exp(pace * x)), np.array([9.0, -6.0]) / pace)
    assert found.f_x <= 1e-9 and found.value <= 1e-11


@pytest.mark.parametrize("slack", [0.005, 0.01, 0.02, 0.03])
def test_derivatives_beyond_a_pole_are_no_rounding(slack):
    """A long move leads beyond a pole of the logarithms, where their derivatives are numbers all the same."""
    at = np.array([0.1, -0.08])
    found = estimated(lambda x: -jnp.sum(jnp.log(slack + jnp.concatenate([x - at, at - x]))), at)
    assert found.f_x <= 1e-9


def test_values_that_are_large_a_short_move_away_have_their_own_rounding():
    """Columns in units of 1e-4 to 1e4, where a move along x is far too long for the last."""
    rng = np.random.default_rng(0)
    units = 10 ** np.linspace(-4, 4, 6)
    A = rng.normal(size=(40, 6)) * units
    x = rng.normal(size=6) / units
    b = A @ x + 0.1 * rng.normal(size=40)
    found = estimated(lambda x: 0.5 * jnp.mean((A @ x - b) ** 2), x)
    long = [v.astype(np.longdouble) for v in (A, x, b)]
    exact = long[0].T @ (long[0] @ long[1] - long[2]) / 40
    off = np.linalg.norm((A.T @ (A @ x - b) / 40 - exact).astype(float))
    assert off / 10 <= found.f_x <= 1e3 * max(off, 1e-13)


def test_smooth_functions_have_no_more_than_their_rounding():
    for name in ("logistic", "Experiment 1, rows", "wavy saddle", "generator"):
        problem, start, _ = PROBLEMS[name](0)
        kernels = Kernels(problem, start)
        solved = Implicit(kernels, *kernels.flat(start))
        noise = rounding_noise(along_a_line(solved))
        assert max(noise) <= 1e-13, name


def test_a_noise_that_is_given_is_the_one_that_counts():
    problem, start, _ = PROBLEMS["generator"](0)
    little, much = (bs.certify(dataclasses.replace(problem, noise=noise), start) for noise in (1e-15, 1e-3))
    assert much.error_bound > 1e-3 > little.error_bound
    with pytest.raises(ValueError, match="Problem noise must be finite and >= 0"):
        dataclasses.replace(problem, noise=-1.0)


def test_an_error_bound_that_cannot_shrink_ends_in_a_status():
    """The gap meets tol, the error that the user states does not: no number of steps will change it."""
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0)
    result = bs.solve(dataclasses.replace(problem, noise=1e-3), start, tol=1e-6)
    assert result.status is bs.Status.STALLED and result.steps < 1000
    tol = result.certificate.error_bound / 3
    near = bs.solve(dataclasses.replace(problem, noise=1e-3), start, tol=tol)
    assert near.status is bs.Status.ACCEPTABLE and near.certificate.within(10 * tol) and near.steps < 1000


@pytest.mark.parametrize("name", ["logistic", "QL"])
def test_a_tol_that_float32_cannot_deliver_is_told_soon_and_with_the_way_out(name, monkeypatch):
    monkeypatch.setattr(wide, "WIDE_BYTES", -1)  # certificates in float32 too, as without jax_enable_x64
    problem, start, _ = PROBLEMS[name](0)
    single = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), (problem, start))
    with pytest.warns(UserWarning, match="tol=1e-06 .*float32.*jax_enable_x64"):
        result = bs.solve(*single, tol=1e-6)
    assert result.status in (bs.Status.STALLED, bs.Status.ACCEPTABLE) and result.steps < 1000
    assert "jax_enable_x64" in result.reason and result.reason in str(result)
    assert result.certificate.error_bound > 1e-6
    monkeypatch.undo()
    with pytest.warns(UserWarning, match="float32"):
        result = bs.solve(*single, tol=1e-6)
    # steps in float64 then bring the point as near as its own rounding lets it come: of the larger numbers, not to tol
    assert result.status is {"logistic": bs.Status.CERTIFIED, "QL": bs.Status.ACCEPTABLE}[name] and result.steps < 1000
    assert result.certificate.error_bound < 1e-6 and (result.gap < 1e-6) == (name == "logistic")
    assert name == "logistic" or "float64 arrays" in result.reason


def _spread(x, theta, y, data):
    return data * y @ ((x[:, None] - jnp.arange(3.0)) ** 2).sum(axis=0) + jnp.sum(x**4)


def test_a_bound_that_large_units_forbid_names_them_and_the_way_out():
    point = bs.Point(np.full(4, 0.3), None, np.full(3, 1 / 3))
    problem = bs.Problem(_spread, None, bs.sets.FreeBall(), bs.sets.Simplex(), np.array(1e14))
    result = bs.solve(problem, point, tol=1e-4)
    assert result.status is bs.Status.STALLED and "divide it, or give solve an rtol" in result.reason
    assert f"{result.certificate.error_bound:.1e}" in result.reason
    assert bs.solve(problem, point, tol=None, rtol=1e-8).status is bs.Status.CERTIFIED


def test_a_run_that_ends_at_a_kink_is_not_run_to_its_last_step():
    kink = lambda x, theta, y, data: jnp.sqrt(x @ x) + y @ x
    result = bs.solve(bs.Problem(kink, None, BOX, bs.sets.L2Ball(0.5)), bs.Point(np.ones(3), None, np.zeros(3)))
    assert result.status is bs.Status.WRONG_DERIVATIVES and "a kink" in result.reason and result.steps < 5000


def test_nan_in_the_data_is_named_with_its_place():
    problem, start, _ = PROBLEMS["Experiment 1, rows"](0)
    data = jax.tree.map(np.array, problem.data)
    jax.tree.leaves(data)[0].flat[3] = np.nan
    result = bs.solve(dataclasses.replace(problem, data=data), start)
    assert result.status is bs.Status.NONFINITE
    assert "data.train_rows holds 1 NaN" in result.reason and "first at [0, 0, 3]" in result.reason


def _root(x, theta, y, data):
    return jnp.sum(jnp.sqrt(x - 2)) + jnp.sum(y)


def test_a_function_that_is_no_number_is_named():
    result = bs.solve(bs.Problem(_root, None, BOX, BOX), bs.Point(np.zeros(2), None, np.zeros(2)))
    assert result.status is bs.Status.NONFINITE and result.reason == "f, f_x is not finite at result.point"


def test_a_budget_that_ends_close_to_tol_is_acceptable():
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0)
    whole = bs.solve(problem, start, tol=1e-6)
    for steps in range(1, whole.steps):
        short = bs.solve(problem, start, tol=1e-6, max_steps=steps)
        wanted = bs.Status.ACCEPTABLE if short.certificate.within(1e-5) else bs.Status.MAX_STEPS
        assert short.status is wanted
    assert bs.solve(problem, start, tol=None, max_steps=3).status is bs.Status.MAX_STEPS


def test_every_status_tells_what_to_do():
    for status in bs.Status:
        assert status.advice.endswith(".") and len(status.advice) > 40, status


def test_negative_curvature_met_by_conjugate_gradients_is_a_proof():
    """One negative eigenvalue deep inside a wide spectrum, along the right side only: a short Lanczos run misses it."""
    n = 600
    h = np.geomspace(1e-4, 1e4, n)
    h[0] = -1e-4
    problem, start = indefinite(h)
    solved = Implicit(Kernels(problem, start), *Kernels(problem, start).flat(start))
    assert solved.hessian.stopped is not None
    assert not bs.certify(problem, start).within(1e3)
