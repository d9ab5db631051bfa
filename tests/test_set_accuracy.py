"""The error that every oracle states of its answer, against answers that are more exact."""

import cvxpy as cp
import jax
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import sets
from bisaddle.oracle.validate import check_problem_at
from bisaddle.sets.flat import FORMS, flat_set
from tests.set_cases.all_cases import CASES
from tests.set_cases.flat import rng_of
from tests.test_prox import PENALTIES
from tests.test_set_oracles import CLARABEL, _minima

SCALES = (1e-3, 0.1, 1.0, 10.0, 1e3)
LONG = np.longdouble


def _in_single(convex_set):
    """The set with sizes that single precision holds, so that it is the same set in both precisions."""
    rounded = lambda a: a.astype(np.float32).astype(np.float64)
    numbers = lambda a: rounded(a) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a
    return jax.tree.map(numbers, convex_set)


def _cases():
    for name, case in CASES.items():
        quick = type(case.make(rng_of(name), 2)) in FORMS
        yield pytest.param(name, case.quick_size, marks=[] if quick else [pytest.mark.slow])
        larger = max(size for size in case.sizes if size <= 60)
        yield pytest.param(name, larger, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "n"), list(_cases()))
def test_in_single_precision_an_answer_is_as_near_to_that_in_double_precision_as_it_says(name, n):
    case, rng = CASES[name], rng_of(name)
    convex_set, shape = _in_single(case.make(rng, n)), case.shape(n)
    double, single = flat_set(convex_set, np.zeros(shape)), flat_set(convex_set, np.zeros(shape, np.float32))
    for scale in np.resize(SCALES, 40):
        v = (rng.normal(size=double.size) * scale).astype(np.float32)
        wide = v.astype(np.float64)
        if "project" in single.capabilities:
            p, exact = single.project(v), double.project(wide)
            assert np.linalg.norm(p - exact) <= single.project_error(v, p) + double.project_error(wide, exact)
        if "lmo" in single.capabilities:
            s, exact = single.lmo(v), double.lmo(wide)
            assert wide @ (s - exact) <= single.lmo_error(v, s) + double.lmo_error(wide, exact)


def _bisect(decreasing, low, high):
    """The root of a decreasing function, in extended precision."""
    low, high = LONG(low), LONG(high)
    for _ in range(110):
        middle = (low + high) / 2
        low, high = (middle, high) if decreasing(middle) > 0 else (low, middle)
    return (low + high) / 2


def _on_simplex(v, radius):
    v = v.astype(LONG)
    t = _bisect(lambda t: np.maximum(v - t, 0).sum() - radius, v.min() - radius, v.max())
    return np.maximum(v - t, 0)


def _on_l1(v, radius):
    return v if np.abs(v).sum() <= radius else np.sign(v) * _on_simplex(np.abs(v), radius)


def _on_l2(v, radius):
    v = v.astype(LONG)
    return v * min(LONG(1), radius / np.sqrt((v * v).sum()))


def _on_chi_square(v, q, radius):
    v, q = v.astype(LONG), q.astype(LONG)
    divergence = lambda p: ((p - q) ** 2 / q).sum()
    # p + weight (p / q - 1) = v - t
    p = lambda weight, t: q * np.maximum(v - t + weight, 0) / (q + weight)
    of = lambda weight: p(weight, _bisect(lambda t: p(weight, t).sum() - 1, v.min() - 2, v.max() + weight))
    nearest = _on_simplex(v, LONG(1))
    if divergence(nearest) <= radius:
        return nearest
    # of a range as wide as that of double precision the logarithm is bisected
    return of(np.exp(_bisect(lambda log_weight: divergence(of(np.exp(log_weight))) - radius, -40, 40)))


Q = np.array([0.05, 0.2, 0.3, 0.4, 0.05])
EXACT = {
    "Simplex": (sets.Simplex(1.3), lambda v: _on_simplex(v, LONG(1.3)), (7,)),
    "Simplex of many": (sets.Simplex(1.3), lambda v: _on_simplex(v, LONG(1.3)), (3000,)),
    "L1Ball": (sets.L1Ball(1.3), lambda v: _on_l1(v, LONG(1.3)), (60,)),
    "L2Ball": (sets.L2Ball(1.3), lambda v: _on_l2(v, LONG(1.3)), (60,)),
    "FreeBall": (sets.FreeBall(), lambda v: _on_l2(v, LONG(1e6)), (9,)),
    "ChiSquareBall": (sets.ChiSquareBall(Q, 0.3), lambda v: _on_chi_square(v, Q, LONG(0.3)), (5,)),
    "ChiSquareBall, tiny": (sets.ChiSquareBall(Q, 1e-10), lambda v: _on_chi_square(v, Q, LONG(1e-10)), (5,)),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_closed_form_is_within_its_bound_of_an_answer_in_extended_precision(name):
    convex_set, exact, shape = EXACT[name]
    form, rng = flat_set(convex_set, np.zeros(shape)), rng_of(name)
    assert form.error_is_bound
    for scale in SCALES:
        for _ in range(1 if "Chi" in name else 6):
            v = rng.normal(size=form.size) * scale
            p = form.project(v)
            stated = form.project_error(v, p)
            assert float(np.sqrt(((p - exact(v)) ** 2).sum())) <= stated
            if "tiny" not in name:  # far below what would spoil a certificate
                assert stated <= 1e-13 * form.size**0.5 * (np.linalg.norm(v) + np.linalg.norm(p))


@pytest.mark.parametrize("radius", [1e-12, 1e-6, 0.1])
def test_a_kl_ball_states_what_its_divergence_may_be_off(radius):
    """p = q exp((v - p - t) / weight) by the optimality conditions, solved to the end in extended precision."""
    rng = np.random.default_rng(3)
    convex_set = sets.KLBall(Q, radius)
    form = flat_set(convex_set, Q)
    q = np.asarray(convex_set.reference, LONG)
    divergence = lambda p: (p * np.log(p / q) - p + q).sum()
    for scale in (0.1, 1.0, 100.0):
        v = rng.normal(size=5) * scale
        p = form.project(v)
        stated = form.project_error(v, p)
        exact = p.astype(LONG)
        weight, t = None, None
        for _ in range(60):  # Newton's method on (p, t, weight)
            slope = np.log(exact / q)
            if weight is None:
                weight, t = (LONG(x) for x in np.linalg.lstsq(np.c_[slope, np.ones(5)].astype(float), v - p)[0])
            rows = np.zeros((7, 7), LONG)
            rows[:5, :5] = np.diag(1 + weight / exact)
            rows[:5, 5], rows[:5, 6], rows[5, :5], rows[6, :5] = 1, slope, 1, slope
            left = np.r_[exact + weight * slope + t - v, exact.sum() - 1, divergence(exact) - LONG(radius)]
            step = _solve_long(rows, left)
            exact, t, weight = exact - step[:5], t - step[5], weight - step[6]
        assert float(np.sqrt(((p - exact) ** 2).sum())) <= stated <= 1e-2 * np.sqrt(radius)


def _solve_long(rows, right):
    """Gauss-Jordan elimination with pivots: NumPy has no solver for extended precision."""
    table = np.c_[rows, right]
    for i in range(len(table)):
        pivot = i + int(np.argmax(np.abs(table[i:, i])))
        table[[i, pivot]] = table[[pivot, i]]
        table[i] /= table[i, i]
        for j in range(len(table)):
            if j != i:
                table[j] -= table[j, i] * table[i]
    return table[:, -1]


def _l1_and_l2(v):
    """The projection onto {|u|_1 <= 1, |u|_2 <= 0.8}: soft thresholding, then a rescaling."""
    v = v.astype(LONG)
    soft = lambda t: np.sign(v) * np.maximum(np.abs(v) - t, 0)
    most = 1 + LONG(1e-18)
    for candidate in (v, _on_l2(v, LONG(0.8)), _on_l1(v, LONG(1))):
        if np.abs(candidate).sum() <= most and np.sqrt((candidate**2).sum()) <= 0.8 * most:
            return candidate
    # with both active |u|_2 / |u|_1 = 0.8, and that quotient grows with the threshold
    t = _bisect(lambda t: 0.8 - np.sqrt((soft(t) ** 2).sum()) / np.abs(soft(t)).sum(), 0, np.sort(np.abs(v))[-2])
    return soft(t) / np.abs(soft(t)).sum()


def _simplex_and_l2(v):
    """The projection onto {u >= 0, sum u = 1, |u|_2 <= 0.6}."""
    v = v.astype(LONG)
    nearest = _on_simplex(v, LONG(1))
    if np.sqrt((nearest**2).sum()) <= LONG(0.6):
        return nearest
    above = lambda t: np.maximum(v - t, 0)
    quotient = lambda t: np.sqrt((above(t) ** 2).sum()) / above(t).sum()
    t = _bisect(lambda t: 0.6 - quotient(t), v.min() - 10 * (1 + v.max() - v.min()), np.sort(v)[-2])
    return above(t) / above(t).sum()


PARTS = {
    "l1 and l2": ([sets.L1Ball(1.0), sets.L2Ball(0.8)], _l1_and_l2),
    "simplex and l2": ([sets.Simplex(1.0), sets.L2Ball(0.6)], _simplex_and_l2),
}


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-9])
@pytest.mark.parametrize("name", PARTS)
def test_an_intersection_states_an_error_that_holds_at_every_tolerance(name, tolerance, record):
    parts, exact = PARTS[name]
    form, rng = flat_set(sets.Intersection(parts, tolerance=tolerance), np.zeros(6)), rng_of(name)
    assert not form.error_is_bound and form.estimates == {"project"}
    for scale in np.resize((0.3, 1.0, 3.0, 30.0, 1e3), 100):
        v = rng.normal(size=6) * scale
        p = form.project(v)
        stated, error = form.project_error(v, p), float(np.sqrt(((p - exact(v)) ** 2).sum()))
        record("error of an Intersection / what it states", error / stated)
        assert error <= stated
        assert stated <= 20 * tolerance * (1 + np.linalg.norm(v)) + 1e-10 * np.linalg.norm(v)


def test_an_intersection_that_runs_out_of_rounds_says_so():
    wedge = [sets.HalfspaceBox(np.array([side, 0.01]), 0.0, -2.0, 2.0) for side in (1.0, -1.0)]
    form = flat_set(sets.Intersection(wedge, max_rounds=20), np.zeros(2))
    for v in (np.array([3.0, 900.0]), np.array([0.5, 40.0])):
        p = form.project(v)
        assert 1e-3 < np.linalg.norm(p) <= form.project_error(v, p)  # the tip of the wedge, 0, is nearest


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-9])
@pytest.mark.parametrize("name", ["Intersection", "Intersection of three"])
def test_an_intersection_of_polytopes_is_within_its_error_of_clarabel(name, tolerance):
    case, rng = CASES[name], rng_of(name)
    convex_set = sets.Intersection(case.make(rng, 4).sets, tolerance=tolerance)
    form = flat_set(convex_set, np.zeros(4))
    points = rng.normal(size=(100, 4)) * np.resize((0.3, 1.0, 3.0, 30.0), (100, 1))
    theirs = _minima(case, convex_set, lambda u, v: cp.sum_squares(u - v), points, CLARABEL)
    for v, (_, nearest) in zip(points, theirs, strict=True):
        p = form.project(v)
        assert np.linalg.norm(p - nearest) <= form.project_error(v, p) + 1e-7 * (1 + np.linalg.norm(v))


@pytest.mark.parametrize("kind", [sets.HyperplaneBox, sets.HalfspaceBox])
def test_a_section_states_what_the_rounding_of_its_offset_does(kind):
    """The first coordinate is at its bound; the second, of a small entry in the normal, makes up for the offset."""
    normal, offset = np.array([1.0, 1e-9]), 0.1 + 3e-10
    form = flat_set(kind(normal, offset, np.array([0.1, -1.0]), 1.0), np.zeros(2))
    v = np.array([-3.0, 0.9])
    p = form.project(v)
    exact = (LONG(offset) - LONG(0.1)) / LONG(1e-9)
    assert abs(p[1] - exact) <= form.project_error(v, p) <= 1e-5
    assert p[0] == 0.1 and form.error_is_bound


@pytest.mark.parametrize("kind", ["nuclear", "spectrahedron", "fantope"])
def test_an_iterative_linear_minimisation_states_its_error(kind):
    rng = np.random.default_rng(5)
    make = {"nuclear": sets.NuclearBall(1.5), "spectrahedron": sets.Spectrahedron(1.5), "fantope": sets.Fantope(2)}
    form = flat_set(make[kind], np.zeros((40, 40)))
    assert form.estimates == {"lmo"}
    for decay in (0.0, 1.0):
        d = rng.normal(size=(40, 40)) * np.arange(1, 41.0) ** -decay
        if kind == "nuclear":
            least = -1.5 * np.linalg.svd(d)[1][0]
        else:
            values = np.linalg.eigvalsh((d + d.T) / 2)
            least = 1.5 * values[0] if kind == "spectrahedron" else values[:2].sum()
        s = form.lmo(d.ravel())
        stated = form.lmo_error(d.ravel(), s)
        assert d.ravel() @ s - least <= stated + 1e-13 * np.linalg.norm(d)
        assert stated <= 1e-10 * np.linalg.norm(d)


@pytest.mark.slow
@pytest.mark.parametrize("name", PENALTIES)
def test_the_prox_of_a_penalty_in_single_precision_is_as_exact_as_it_says(name):
    penalty, rng = _in_single(PENALTIES[name][0]), rng_of(name)
    double, single = flat_set(penalty, np.zeros(6)), flat_set(penalty, np.zeros(6, np.float32))
    for scale in np.resize(SCALES, 20):
        v = (rng.normal(size=6) * scale).astype(np.float32)
        p, exact = single.prox(v, 0.25), double.prox(v.astype(np.float64), 0.25)
        stated = single.prox_error(v, p, 0.25)
        assert np.linalg.norm(p - exact) <= stated <= 1e-4 * (np.linalg.norm(v) + np.linalg.norm(p))


def test_what_contains_an_inexact_set_is_inexact():
    rough = sets.Intersection([sets.L1Ball(1.0), sets.L2Ball(0.8)], tolerance=1e-2)
    inner = flat_set(rough, np.zeros(4))
    error_at = lambda v: inner.project_error(v, inner.project(v))
    v = max(np.random.default_rng(0).normal(size=(20, 4)), key=error_at)
    error = error_at(v)
    assert error > 1e-6
    for convex_set, times in ((sets.Scaled(rough, 3.0), 3.0), (sets.Translated(rough, 0.0), 1.0)):
        outer = flat_set(convex_set, v)
        assert outer.estimates == {"project"}
        assert np.isclose(outer.project_error(times * v, outer.project(times * v)), times * error, rtol=1e-6)
    half = flat_set(sets.SquaredL2(1.0, rough), v)
    assert half.prox_error(2 * v, half.prox(2 * v, 1.0), 1.0) >= error and not half.error_is_bound
    assert np.isclose(half.project_error(v, half.project(v)), error)
    product = flat_set(sets.Product((rough, sets.Simplex())), (v, v))
    both = np.r_[v, v]
    assert np.isclose(product.project_error(both, product.project(both)), error) and not product.error_is_bound
    assert sets.Product((rough, sets.Simplex())).tolerance == 1e-2


def test_a_custom_set_has_the_tolerance_that_the_user_says_or_what_is_seen():
    def rough(v):
        return np.float64(1 + 1e-5) * sets.L2Ball(1.0).project(v)

    v = np.array([3.0, 4.0])
    for tolerance in (1e-12, 1e-4):
        custom = sets.Custom(project=rough, lmo=sets.L2Ball(1.0).lmo, tolerance=tolerance)
        form = flat_set(custom, v)
        p = form.project(v)
        if tolerance == 1e-4:
            assert np.isclose(form.project_error(v, p), tolerance * 6, rtol=1e-4)
            assert np.linalg.norm(p - v / 5) <= form.project_error(v, p)
        else:  # it moves points between those that it gave, by 1e-5 of their size
            assert np.isclose(form.project_error(v, p), 1e-5, rtol=0.1)
        assert not form.error_is_bound
        assert np.isclose(form.lmo_error(v, form.lmo(v)), tolerance * 5 * 2)
    for wrong in (-1.0, 1.0, "small", np.nan):
        with pytest.raises(ValueError, match="Custom tolerance must be a number with 0 <= tolerance < 1"):
            sets.Custom(project=rough, tolerance=wrong)


@pytest.mark.parametrize("entry", [1e300, -1.7e308, 1e160, 20.0])
def test_a_start_far_outside_its_set_is_refused(entry):
    box = sets.Box(-1.0, 1.0)
    problem = bs.Problem(lambda x, theta, y, data: (x * y).sum(), None, box, box)
    check_problem_at(problem, bs.Point(x=np.ones(3), y=np.ones(3)))
    with pytest.raises(ValueError, match="x is not in x_set"):
        check_problem_at(problem, bs.Point(x=np.array([entry, 0.0, entry]), y=np.ones(3)))
