"""The second checker: it agrees with the certificate where all is well, and catches what must not be certified."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import bisaddle as bs
from bisaddle import sets
from bisaddle.auditing import textbook
from bisaddle.auditing.regions import region_of
from bisaddle.sets.flat import FORMS, flat_set
from tests.registry import PROBLEMS, flat
from tests.set_cases.all_cases import CASES
from tests.set_cases.flat import rng_of
from tests.test_certificate import difference, feasible_point
from tests.test_prox import PENALTIES

BOX = sets.Box(-1.0, 1.0)
QUICK = {"QL lifted", "generator, ball active", "logistic", "wavy saddle", "Experiment 1", "two by two"}
QUICK |= {"linear-quadratic on the simplex, nu > 0"}
# f is not concave in y there, and the audit says so
NOT_CONCAVE = {"cosine", "Forsaken"}
# the sets of matrices and of distributions that compile for seconds
SLOW_SETS = ("Nuclear", "Spectra", "KL", "Chi", "Intersection")


def slow_unless(quick, names):
    return [pytest.param(name, marks=[] if quick(name) else [pytest.mark.slow]) for name in names]


# -- agreement ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", slow_unless(QUICK.__contains__, PROBLEMS))
def test_agrees_with_the_certificate_on_well_scaled_problems(name, record):
    problem, start, _ = PROBLEMS[name](0)
    point = feasible_point(problem, start, np.random.default_rng(0), spread=0.3)
    for measure, sigma, tau in (("projection", 1.0, 1.0), ("lmo", 0.3, 2.0)):
        given = bs.certify(problem, point, measure=measure, sigma=sigma, tau=tau)
        audited = bs.audit(problem, point, measure=measure, sigma=sigma, tau=tau)
        pairs = [(getattr(audited, part), getattr(given, part)) for part in ("x_gap", "y_gap", "gap", "value")]
        pairs += zip(flat(audited.x_gradient), flat(given.x_gradient), strict=True)
        pairs += [] if given.theta is None else zip(flat(audited.theta), flat(given.theta), strict=True)
        worst = max(difference(ours, theirs) for ours, theirs in pairs)
        record("audit against certificate, relative", worst)
        assert worst <= 1e-9
        assert abs(audited.gap - given.gap) <= given.error_bound + audited.uncertainty
        assert audited.uncertainty <= 1e-9 * max(1.0, audited.gap)
        assert audited.strongly_convex and audited.mu_g_holds
        assert audited.concave == (name not in NOT_CONCAVE)
        if audited.concave:
            assert difference(audited.worst_value, given.worst_value) <= 1e-7


def _concave_quadratic(x, theta, y, data):
    return 0.5 * jnp.sum((x - data) ** 2) - 0.5 * jnp.sum(y**2)


def test_a_solved_point_is_agreed_with_and_another_refuted():
    problem = bs.Problem(_concave_quadratic, None, BOX, BOX, np.array([0.3, -0.2]))
    solved = bs.audit(problem, bs.Point(x=np.array([0.3, -0.2]), y=np.zeros(1)))
    assert solved.agrees_within(1e-10) and not solved.refutes(1e-10) and solved.notes == ()
    assert "audit: gap" in str(solved)
    off = bs.audit(problem, bs.Point(x=np.array([0.3, -0.2 + 1e-3]), y=np.zeros(1)))
    assert not off.agrees_within(1e-4) and off.refutes(1e-4) and off.agrees_within(2e-3)


def test_works_in_float64_whatever_the_dtypes_and_changes_no_setting():
    problem, start, _ = PROBLEMS["logistic"](0)
    narrow = jax.tree.map(lambda leaf: leaf.astype(np.float32), (problem.data, start))
    problem = bs.Problem(problem.upper, problem.lower, problem.x_set, problem.y_set, narrow[0])
    wide = bs.audit(problem, narrow[1])
    with jax.enable_x64(False):
        audited = bs.audit(problem, narrow[1])
        assert jnp.zeros(1).dtype == np.float32
    assert audited.gap == wide.gap and audited.uncertainty <= 1e-12
    assert flat(audited.x_gradient).dtype == np.float64


def test_mixed_measures_are_those_of_the_certificate():
    hidden = sets.Custom(lmo=lambda d: jnp.where(d > 0, -1.0, 1.0), diameter=2.0**1.5)
    shown = sets.Custom(project=lambda v: jnp.clip(v, -1.0, 1.0), diameter=2.0**1.5)
    product = sets.Product({"free": shown, "lmo": hidden})
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum((x["free"] - 2) ** 2 + x["lmo"]), None, product, None)
    point = bs.Point(x={"free": np.array([0.5, 1.0]), "lmo": np.array([0.2, -1.0])})
    audited, given = bs.audit(problem, point), bs.certify(problem, point, measure="mixed")
    assert audited.measure == "mixed" and abs(audited.gap - given.gap) <= 1e-12
    assert any("Custom" in note for note in audited.notes)


# -- what must not be certified ----------------------------------------------------------------------------------------


def _bent(x, theta, data):
    return 0.5 * jnp.sum(data * theta**2) - 0.1 * x[0] * jnp.sum(theta)


def _near_one(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + 0.5 * jnp.mean((theta - 1) ** 2)


def test_catches_an_indefinite_lower_level_of_150_variables():
    h = np.ones(150)
    h[0] = -5.0
    problem = bs.Problem(_near_one, _bent, BOX, None, h)
    audited = bs.audit(problem, bs.Point(x=np.zeros(1), theta=np.zeros(150)))
    assert not audited.strongly_convex and audited.least_curvature == pytest.approx(-5.0)
    direction, curvature = audited.lower_witness
    assert direction @ (h * direction) == pytest.approx(curvature) and curvature == pytest.approx(-5.0)
    assert audited.refutes(1e3) and not audited.agrees_within(1e3)
    assert "not strongly convex" in str(audited)


@pytest.mark.parametrize("size", [2, 200])
def test_catches_a_singular_lower_level(size):
    h = np.ones(size)
    h[-1] = 0.0
    audited = bs.audit(bs.Problem(_near_one, _bent, BOX, None, h), bs.Point(x=np.zeros(1), theta=np.zeros(size)))
    assert not audited.strongly_convex and audited.refutes(1e3)


def test_catches_mu_g_that_is_too_large():
    h = np.linspace(0.5, 2.0, 7)
    point = bs.Point(x=np.zeros(1), theta=np.zeros(7))
    for mu_g, holds in ((0.5, True), (0.51, False), (2.0, False)):
        problem = bs.Problem(_near_one, _bent, BOX, None, h, bs.Constants(mu_g=mu_g, L_g=2.0))
        audited = bs.audit(problem, point)
        assert audited.mu_g_holds is holds and audited.strongly_convex
        assert audited.refutes(1e3) is not holds and ("too large" in str(audited)) is not holds


def _convex_in_y(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + jnp.sum(y**2)


def test_catches_f_that_is_not_concave_in_y():
    audited = bs.audit(bs.Problem(_convex_in_y, None, BOX, BOX), bs.Point(x=np.zeros(2), y=np.zeros(2)))
    assert audited.gap == 0 and not audited.concave and audited.refutes(1e3)
    assert audited.upper_witness.curvature == pytest.approx(2.0)
    assert audited.worst_value == pytest.approx(2.0)


def _hinge(x, theta, y, data):
    return jnp.sum(jnp.abs(y - 0.2)) + 0 * jnp.sum(x)


def test_catches_a_kink_that_no_hessian_shows():
    audited = bs.audit(bs.Problem(_hinge, None, BOX, BOX), bs.Point(x=np.zeros(1), y=np.zeros(1)))
    assert not audited.concave and audited.worst_value == pytest.approx(1.2)


def test_curvature_across_a_set_without_that_direction_is_no_matter():
    # (sum y)^2 is constant on the simplex
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(y) ** 2 + jnp.sum(x), None, BOX, sets.Simplex())
    assert bs.audit(problem, bs.Point(x=np.zeros(1), y=np.full(3, 1 / 3))).concave


def _steep(x, theta, y, data):
    return 1e6 * x[0] + 0.09 * y[0]


@pytest.mark.parametrize("measure", ["projection", "lmo"])
def test_a_point_outside_its_set_hides_nothing(measure):
    problem = bs.Problem(_steep, None, sets.L2Ball(1.0), BOX)
    point = bs.Point(x=np.array([-1 - 1e-7, 0.0]), y=np.zeros(1))
    audited = bs.audit(problem, point, measure=measure)
    assert audited.x_gap >= 0 and audited.y_gap == pytest.approx(0.09)
    assert audited.hidden == pytest.approx(0.1, rel=1e-6)
    assert not audited.agrees_within(0.1) and audited.refutes(0.1)


def _cancelling(x, theta, y, data):
    return 0.5 * jnp.sum(((x + data) - data - 0.3) ** 2)


def test_rounding_inside_f_is_part_of_the_uncertainty():
    for offset in (0.0, 1e3, 1e6, 1e10, 1e14):
        point = bs.Point(x=np.array([0.3 + 1e-3]))
        audited = bs.audit(bs.Problem(_cancelling, None, BOX, None, np.array(offset)), point)
        assert abs(audited.gap - 1e-3) <= audited.uncertainty <= 1e-14 + 1e-14 * offset


def test_nan_is_an_answer_and_agrees_with_nothing():
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(jnp.log(x) * y), None, BOX, BOX)
    audited = bs.audit(problem, bs.Point(x=np.array([-0.5]), y=np.zeros(1)))
    assert np.isnan(audited.gap) and not audited.agrees_within(1e9) and audited.refutes(1e9)
    flat_lower = bs.Problem(_near_one, lambda x, theta, data: jnp.sum(jnp.sqrt(theta)), BOX, None)
    audited = bs.audit(flat_lower, bs.Point(x=np.zeros(1), theta=np.array([-1.0])))
    assert not audited.strongly_convex and not audited.agrees_within(1e9)


# -- sets --------------------------------------------------------------------------------------------------------------


def _fast(name):
    kind = type(CASES[name].make(np.random.default_rng(0), 2))
    return (kind in FORMS or name in ("Translated", "Scaled")) and not name.startswith(SLOW_SETS)


@pytest.mark.parametrize("name", slow_unless(_fast, CASES))
def test_projections_and_minimisers_are_those_of_the_sets(name):
    case, rng = CASES[name], rng_of(name)
    convex_set = case.make(rng, case.quick_size)
    like = np.zeros(case.shape(case.quick_size))
    region, form = region_of(convex_set, like), flat_set(convex_set, like)
    for scale in (0.1, 1.0, 30.0):
        v, d = scale * rng.normal(size=(2, like.size))
        allowed = 10 * max(convex_set.tolerance, 1e-11) * (1 + scale + form.diameter())
        if "project" in convex_set.capabilities:
            assert np.linalg.norm(region.nearest(v) - form.project(v)) <= allowed
            assert abs(region.violation(v) - form.violation(v)) <= allowed
        if "lmo" in convex_set.capabilities:
            assert abs(d @ (region.cheapest(d) - form.lmo(d))) <= allowed * np.linalg.norm(d)
    points = region.points(rng, region.nearest(v) if region.project else region.cheapest(d), 6)
    assert max(map(form.violation, points)) <= allowed


@pytest.mark.parametrize("name", slow_unless(lambda name: name in ("Entropy", "ElasticNet", "SquaredL2"), PENALTIES))
def test_proximal_points_are_those_of_the_penalties(name):
    penalty, rng = PENALTIES[name][0], rng_of(name)
    region, form = region_of(penalty, np.zeros(6)), flat_set(penalty, np.zeros(6))
    for scale in (0.1, 1.0, 30.0):
        v = scale * rng.normal(size=6)
        moved = region.moved(v, 0.7)
        assert np.linalg.norm(moved - form.prox(v, 0.7)) <= 1e-10 * (1 + scale)
        assert abs(region.penalty(moved) - form.penalty(moved)) <= 1e-12


def test_slices_along_an_axis_are_sets_of_their_own():
    rows, like = sets.Simplex(axis=0), np.zeros((3, 2))
    projected = region_of(rows, like).nearest(np.arange(6.0)).reshape(3, 2)
    np.testing.assert_allclose(projected, [[0, 0], [0, 0], [1, 1]], atol=1e-15)


@pytest.mark.parametrize("scale", [0.3, 1.0, 10.0, 1e3, 1e6])
def test_an_intersection_is_projected_to_rounding_and_says_how_far_it_may_be_off(scale):
    """With both balls active the projection is v moved towards 0 by a threshold, and scaled to the l2 radius."""
    rng = np.random.default_rng(0)
    for _ in range(5):
        one, two = 1.0, rng.uniform(0.6, 0.95)
        v = scale * rng.normal(size=4)
        region = region_of(sets.Intersection([sets.L1Ball(one), sets.L2Ball(two)]), v)
        moved = lambda t, v=v: np.sign(v) * np.maximum(np.abs(v) - t, 0.0)
        ratio = lambda t, one=one, two=two, moved=moved: np.sum(np.abs(moved(t))) / np.linalg.norm(moved(t)) - one / two
        wanted = textbook.project_l1(v, one)
        if np.linalg.norm(wanted) > two:
            wanted = textbook.project_l2(v, two)
        if np.sum(np.abs(wanted)) > one * (1 + 1e-12):
            wanted = moved(brentq(ratio, 0, np.max(np.abs(v)) * (1 - 1e-12), xtol=1e-300, rtol=1e-15))
            wanted *= two / np.linalg.norm(wanted)
        assert np.linalg.norm(region.nearest(v) - wanted) <= region.slack + 1e-15
        assert region.slack <= 1e-12 and region.textbook


def test_a_set_that_does_not_project_is_found_out():
    wrong = sets.Custom(project=lambda v: jnp.clip(v, -1, 1) * 0.99, diameter=4.0)
    region = region_of(wrong, np.zeros(2))
    region.nearest(np.array([3.0, 0.5]))
    assert region.slack >= 5e-3 and not region.textbook


# -- input -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"measure": "norm"}, "projection"),
        ({"sigma": 0.0}, "sigma"),
        ({"tau": float("nan")}, "tau"),
        ({"measure": "mixed"}, "Product"),
        ({"point": bs.Point(x=np.zeros(1))}, "has y"),
        ({"point": bs.Point(x=np.zeros(1), theta=np.zeros(1), y=np.zeros(1))}, "no theta"),
        ({"point": bs.Point(x=np.zeros((0,)), y=np.zeros(1))}, "x does not fit"),
        ({"point": bs.Point(x=np.zeros(1), y=np.zeros(6000))}, "5000"),
    ],
)
def test_refuses_bad_input(change, words):
    arguments = {"problem": bs.Problem(_convex_in_y, None, BOX, BOX), "point": bs.Point(x=np.zeros(1), y=np.zeros(1))}
    arguments |= change
    with pytest.raises(ValueError, match=words):
        bs.audit(arguments.pop("problem"), arguments.pop("point"), **arguments)


def test_f_may_index_with_a_numpy_array():
    # under the switch to float32 JAX kept the dtype that such an array had before
    i, j = np.triu_indices(4, 1)
    upper = lambda x, theta, y, data: -y @ jnp.sum((x[i] - x[j]) ** 2, axis=1)
    problem = bs.Problem(upper, None, bs.sets.Box(0.0, 1.0), bs.sets.Simplex())
    x, y = np.random.default_rng(0).uniform(0.2, 0.8, (4, 2)), np.full(6, 1 / 6)
    audit, certificate = (by(problem, bs.Point(x, None, y)) for by in (bs.audit, bs.certify))
    assert abs(audit.gap - certificate.gap) <= 1e-12 + audit.uncertainty
