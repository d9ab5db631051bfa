"""Adaptive in other units of x, y and f; gaps relative to the gradient at the start."""

from dataclasses import replace
from itertools import islice

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.scale import gradient_scale
from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.inner import Residuals, Solver
from bisaddle.methods.adaptive.method import Search
from bisaddle.methods.adaptive.parts import Centre, Gaps
from bisaddle.oracle.kernels import Kernels

# powers of two, so that other units change no digit
UNITS = [(1.0, 1.0, 1.0), (2.0**-10, 1.0, 1.0), (2.0**10, 1.0, 1.0), (1.0, 2.0**-10, 1.0), (1.0, 2.0**10, 1.0)]
UNITS += [(1.0, 1.0, 2.0**-20), (1.0, 1.0, 2.0**20)]


def _minimax(x):
    """CB2: x* = (1.139, 0.8996), value 1.9522"""
    return jnp.stack([x[0] ** 2 + x[1] ** 4, (2 - x[0]) ** 2 + (2 - x[1]) ** 2, 2 * jnp.exp(x[1] - x[0])])


def _upper(x, theta, y, units):
    return units[2] * (y / units[1]) @ _minimax(theta + 0.1 * x / units[0])


def _lower(x, theta, units):
    weights = jnp.array([1.0, 3.0])
    return 0.5 * jnp.sum(weights * (theta - x / units[0]) ** 2)


def problem_in(units, lower=True):
    x_set, y_set = bs.sets.L2Ball(50 * units[0]), bs.sets.Simplex(units[1])
    given = bs.Constants(mu_g=1.0) if lower else bs.Constants()
    plain = lambda x, theta, y, units: units[2] * (y / units[1]) @ _minimax(x / units[0])
    problem = bs.Problem(_upper if lower else plain, _lower if lower else None, x_set, y_set, jnp.array(units), given)
    theta = np.zeros(2) if lower else None
    return problem, bs.Point(x=units[0] * np.array([1.0, -0.1]), theta=theta, y=units[1] * np.full(3, 1 / 3))


@pytest.mark.parametrize("lower", [False, True])
def test_other_units_change_no_step(lower):
    """32 steps, to a gap of 4e-12 here, towards one that is never reached, since tol is in units itself.

    At rounding, a few steps later, the target, which has units, may be met in some of them. Second-order steps, without
    a lower level, are there after 9, with a gap of 2e-11.
    """

    def path(units):
        problem, start = problem_in(units, lower)
        kernels = Kernels(problem, start)
        x, theta, y = kernels.flat(start)
        looks = islice(Search(kernels, x).from_start(x, theta, y, problem.constants.mu_g, 1e-100), 32 if lower else 9)
        return [(look.k, *look.x / units[0], *look.theta, *look.y / units[1], look.value / units[2]) for look in looks]

    own = path(UNITS[0])
    for units in UNITS[1:]:
        np.testing.assert_allclose(path(units), own, rtol=1e-12, atol=1e-14)


def test_mu_is_not_lowered_at_once_to_where_x_was_slow():
    centre = Centre(np.zeros(2), mu=1.0, age=25)
    gaps = Gaps(1.0, 1.0, 1.0, decrease=0.01, lag=1.0)
    centre.move(np.ones(2), True, gaps)
    assert (centre.mu, centre.slow) == (4.0, 1.0)
    fallen = []
    for _ in range(40):
        centre.age, centre.best = 1, (np.inf, np.inf)  # quick, never circling, and no progress
        centre.move(centre.y0 + 1, True, gaps)
        fallen.append(centre.mu)
    assert fallen[:10] == [4.0] * 10
    assert fallen[-1] < 1.0


def test_mu_is_not_raised_again_where_that_did_not_help():
    """x takes 100 steps with every mu, and never follows: mu rises once, then the centre moves."""
    centre, gaps = Centre(np.zeros(2), mu=1.0), Gaps(1.0, 1.0, 1.0, decrease=1.0, lag=1.0)
    for k in range(6):
        centre.age = const.STALE
        centre.move(np.full(2, k + 1.0), False, gaps)
        assert centre.mu == const.MU_FACTOR
        np.testing.assert_array_equal(centre.y0, np.full(2, k + 1.0 if k else 0.0))
    centre.age = 30  # fewer steps than when it was raised: that did help, and may again
    centre.move(np.ones(2), True, gaps)
    assert centre.mu == const.MU_FACTOR**2


def test_mu_is_not_lowered_where_y_turns():
    for turn, lowered in ((np.array([1.0, 0.5]), True), (np.array([0.0, 1.0]), False), (np.array([-1.0, 0.0]), False)):
        centre = Centre(np.zeros(2), mu=1.0, age=1)
        gaps = Gaps(1.0, 1.0, 1.0, decrease=0.01, lag=1.0)
        centre.move(np.array([1.0, 0.0]), True, gaps)
        centre.age = 1
        centre.move(centre.y0 + turn, True, gaps)
        assert (centre.mu < 1.0) == lowered


def test_mu_is_not_lowered_where_x_falls_behind():
    """y goes on the same way; the gradient in x and mu |y - y0|, each beside its last value, count, not the gap."""
    for size, lag, lowered in (
        (1.0, 1.0, True),
        (1.3, 1.0, False),
        (1.3, 0.7, True),
        (0.7, 1.8, True),
        (1.0, 1.5, False),
    ):
        for gap in (1e-3, 1.0, 1e3):
            centre = Centre(np.zeros(2), mu=1.0)
            for step, gaps in ((1, Gaps(1.0, 1.0, 1.0, 0.01, 1.0)), (2, Gaps(gap, gap, size, 0.01, lag))):
                centre.age = 1
                centre.move(np.full(2, float(step)), True, gaps)
            assert (centre.mu < 1.0) == lowered


def test_mu_is_not_lowered_where_y_is_far_ahead():
    """y goes on the same way, both fall; of the most that each was off, x has a tenth left and y from 1 to 1/100."""
    for left, lowered in ((1.0, True), (0.1, True), (0.04, True), (0.03, False), (0.01, False)):
        centre = Centre(np.zeros(2), mu=1.0)
        for step, (size, shift) in enumerate([(5.0, 0.2), (0.5, 0.2 * left), (0.5, 0.2 * left)]):
            centre.age = 1 if step else const.QUICK + 1
            centre.move(np.full(2, step + 1.0), True, Gaps(1.0, 1.0, size, 0.0, shift**2))
        assert (centre.mu < 1.0) == lowered


def test_mu_is_not_lowered_again_before_x_has_caught_up():
    """The gradient in x is larger with a smaller mu; until it is back where it was, mu does not fall."""
    for careful in (False, True):
        centre, found = Centre(np.zeros(2), mu=1.0, careful=careful), []
        for k, size in enumerate((1.0, 1.0, 3.0, 3.0, 3.0, 1.1, 1.1)):
            centre.age = 1
            if not careful or size <= const.RISEN * centre.lowered:  # else x has not followed yet
                centre.move(np.full(2, k + 1.0), True, Gaps(1.0, 1.0, size, 0.001, centre.mu / 4))
            found.append(centre.mu)
        assert found == [1.0, 1 / 4, 1 / 4, 1 / 4, 1 / 4, 1 / 16 if not careful else 1 / 4, 1 / 16]


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("near", [False, True])
def test_mu_is_not_lowered_where_y_is_near(near, careful):
    """Two centres at which mu would fall, were the y gap not small enough as it is."""
    centre = Centre(np.zeros(2), mu=1.0, careful=careful)
    for k in (1.0, 2.0):
        centre.age = 1
        centre.move(np.full(2, k), True, Gaps(1.0, 1.0, 1.0, decrease=0.001, lag=1.0), near)
    assert (centre.mu < 1.0) is not near
    np.testing.assert_array_equal(centre.y0, [2.0, 2.0])


def test_a_larger_mu_forgets_what_x_had_when_mu_fell():
    centre = Centre(np.zeros(2), mu=1.0, age=const.SLOW + 1, lowered=1.0)
    centre.move(np.ones(2), True, Gaps(1.0, 1.0, 1.0, decrease=0.01, lag=1.0))
    assert centre.mu == const.MU_FACTOR and centre.lowered == np.inf


def searching(steps):
    problem, start = problem_in(UNITS[0], lower=False)
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    search = Search(kernels, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(const, "SECOND_ENTRIES", 0)  # the other steps are looked at
        assert len(list(islice(search.from_start(x, theta, y, None, 1e-2), steps))) == steps
    return search


@pytest.mark.parametrize(
    ("careful", "decrease", "size", "followed"),
    [
        (False, 0.09, 9.0, True),
        (False, 0.11, 1.0, False),
        (True, 0.009, 1.0, True),
        (True, 0.011, 1.0, False),
        (True, 0.009, 1.19, True),
        (True, 0.009, 1.21, False),
    ],
)
def test_x_follows_a_careful_centre_more_closely_and_with_as_small_a_gradient(careful, decrease, size, followed):
    """lag is 1, and the gradient in x was 1 when mu fell."""
    search = searching(1)
    search.gaps = Gaps(1.0, 1.0, size, decrease, lag=1.0)
    search.centre.careful, search.centre.lowered = careful, 1.0
    assert search._followed() is followed


@pytest.mark.parametrize("factor", [0.25, 1.0, 4.0])
def test_pairs_stiffen_as_mu_falls_and_a_centre_is_told_whether_y_is_near(factor, monkeypatch):
    """Half of what bends with 1 / mu, in powers: twice as stiff where mu is a quarter. y is near at 0.15 of tol."""
    search, told = searching(6), []
    assert search.descent.pairs and search.aim.target == 1e-2

    def moved(y, stationary, gaps, near):
        told.append(near)
        search.centre.mu *= factor

    monkeypatch.setattr(search.centre, "move", moved)
    for y_gap in (1.4e-3, 1.6e-3):
        search.gaps = Gaps(1.0, 1.0 + y_gap, 1.0, 0.01, 1.0)
        before = list(search.descent.pairs)
        search._move_centre(True)
        for (s, q), (s_now, q_now) in zip(before, search.descent.pairs, strict=True):
            np.testing.assert_array_equal(s_now, s)
            np.testing.assert_allclose(q_now, q / factor**0.5, rtol=1e-14)
    assert told == [True, False]


def test_rtol_is_relative_to_the_gradient_at_the_start():
    """The same point is certified in units of 1e6 and of 1e-6, without another tol."""
    found = {}
    for c in (1.0, 2.0**20, 2.0**-20):
        problem, start = problem_in((1.0, 1.0, c))
        scale = gradient_scale(Kernels(problem, start), start, "projection")
        result = bs.solve(problem, start, tol=None, rtol=1e-8, progress=False)
        assert result.status is bs.Status.CERTIFIED
        assert result.scale == scale and result.tol == 1e-8 * scale
        assert result.certificate.gap + result.certificate.error_bound <= result.tol
        assert f"relative to the gradient at the start, {scale:.3g}" in str(result)
        found[c] = result
    np.testing.assert_allclose(found[2.0**20].scale, 2.0**20 * found[1.0].scale, rtol=1e-12)
    np.testing.assert_allclose(found[2.0**20].x, found[1.0].x, atol=1e-5)
    np.testing.assert_allclose(found[2.0**-20].x, found[1.0].x, atol=1e-5)


def test_the_scale_is_that_of_the_gradients():
    """f = <a, x> + <b, y> + 7: |a| and, over a simplex, (max b - min b) / sqrt 2; over a ball X by its LMO 2 |a|."""
    a, b = np.array([3.0, 4.0]), np.array([1.0, 5.0, 2.0])
    upper = lambda x, theta, y, d: jnp.dot(d[0], x) + jnp.dot(d[1], y) + 7.0
    problem = bs.Problem(upper, None, bs.sets.L2Ball(1.0), bs.sets.Simplex(), (jnp.array(a), jnp.array(b)))
    point = bs.Point(x=np.zeros(2), y=np.full(3, 1 / 3))
    np.testing.assert_allclose(gradient_scale(Kernels(problem, point), point, "projection"), 5 + 4 / 2**0.5, rtol=1e-12)
    np.testing.assert_allclose(gradient_scale(Kernels(problem, point), point, "lmo"), 10 + 4 / 2**0.5, rtol=1e-12)


def test_with_both_the_larger_gap_is_enough():
    problem, start = problem_in(UNITS[0])
    result = bs.solve(problem, start, tol=1e-2, rtol=1e-8, progress=False)
    assert result.tol == 1e-2 and result.relative_gap == pytest.approx(result.gap / result.scale)
    assert bs.solve(problem, start, tol=1e-2, progress=False).scale is None


@pytest.mark.parametrize("rtol", [0.0, -1.0, 1.0, np.nan])
def test_a_bad_rtol_is_named(rtol):
    with pytest.raises(ValueError, match="rtol"):
        bs.solve(*problem_in(UNITS[0]), rtol=rtol)


def test_a_y_that_would_follow_x_is_no_degenerate_corner():
    """f = u'(Ax - b) + rho v'x: at the solution A'u + rho v = 0 for every x, but the y gap rises with |x - x*|."""
    rng = np.random.default_rng(0)
    A, b, rho = rng.normal(size=(6, 4)), rng.normal(size=6), 0.5
    upper = lambda x, theta, y, d: y["u"] @ (d[0] @ x - d[1]) + rho * y["v"] @ x
    y_set = bs.sets.Product({"u": bs.sets.L2Ball(1.0), "v": bs.sets.L2Ball(1.0)})
    problem = bs.Problem(upper, None, bs.sets.L2Ball(10.0), y_set, (jnp.array(A), jnp.array(b)))
    start = bs.Point(x=np.ones(4), y={"u": np.zeros(6), "v": np.zeros(4)})
    result = bs.solve(problem, start, tol=1e-8, progress=False)
    assert result.status is bs.Status.CERTIFIED and result.certificate.y_in_corner
    moved = bs.Point(x=result.x + 0.3, y=result.y)
    assert bs.certify(problem, moved).gap > 0.05
    assert not result.certificate.degenerate and not bs.certify(problem, result.point).degenerate


@pytest.mark.parametrize("radius", [1.0, 1e-2, 1e-4])
@pytest.mark.parametrize("x_set", [bs.sets.FreeBall(), bs.sets.L2Ball(3.0)], ids=["free", "ball"])
def test_nor_in_a_small_or_a_large_set(x_set, radius):
    """The least |Ax - b|, by y in a ball of any radius."""
    rng = np.random.default_rng(0)
    A, b = rng.normal(size=(4, 2)), rng.normal(size=4)
    x = np.linalg.lstsq(A, b, rcond=None)[0]
    y = radius * (A @ x - b) / np.linalg.norm(A @ x - b)
    problem = bs.Problem(lambda x, y, data: y @ (data[0] @ x - data[1]), None, x_set, bs.sets.L2Ball(radius), (A, b))
    certificate = bs.certify(problem, bs.Point(x, None, y))
    assert certificate.gap < 1e-12 and certificate.y_in_corner and not certificate.degenerate


def test_centres_without_progress_lower_mu_until_there_is_some():
    """Idle centres: mu is not raised any more, and falls unless mu |y - y0| halves, which then goes to 0 either way."""
    centre, gaps = Centre(np.zeros(2), mu=1.0), Gaps(1.0, 1.0, 1.0, decrease=0.01, lag=1.0)
    turned = np.array([0.0, 1.0])
    for _ in range(const.IDLE + 1):
        assert not centre.careful and centre.mu == 1.0
        centre.age = const.QUICK + 1
        centre.move(turned, True, gaps)
    assert centre.careful and centre.mu == 1 / const.MU_FACTOR
    for lag, mu in ((1.0, 1 / 4), (0.9, 1 / 16), (0.9, 1 / 16), (0.2, 1 / 16), (0.1, 1 / 64), (0.1, 1 / 64)):
        centre.age = 50
        centre.move(turned, True, gaps._replace(lag=lag))
        assert centre.mu == mu
    centre.age, y0 = const.STALE, centre.y0
    centre.move(np.ones(2), False, gaps)  # x has not followed: it goes on with the same centre and weight
    assert centre.mu == 1 / 64 and centre.y0 is y0


def test_a_centre_decides_alike_in_all_units():
    """Random histories, 60 centres each: mu in units of f / y^2, whatever the gaps of unit steps are there."""
    kinds = set()
    for seed, (x, y, f) in enumerate(5 * UNITS[1:]):
        rng = np.random.default_rng(seed)
        own, other = Centre(np.zeros(3), mu=1.0), Centre(np.zeros(3), mu=f / y**2)
        for _ in range(60):
            at, stationary, age = rng.normal(size=3), bool(rng.random() < 0.9), int(rng.integers(40))
            size, decrease, lag = np.exp(rng.normal(size=3)).tolist()
            own.age = other.age = age
            own.move(at, stationary, Gaps(size, 2 * size, size, decrease, lag))
            residual = float(np.exp(5 * rng.normal()))
            other.move(y * at, stationary, Gaps(residual, 2 * residual, size * f / x, decrease * f, lag * f))
            assert other.mu == own.mu * f / y**2 and other.careful == own.careful
            np.testing.assert_array_equal(other.y0, y * own.y0)
            kinds.add((own.careful, own.held > 0, own.raised > 0))
    assert len(kinds) >= 4


def test_a_descent_that_rounding_hides_is_seen():
    """Over a simplex, gradient 1e6 + e: <grad, d0> has rounding of 1e6 |d0| eps, and is -|d0|^2 / tau at most."""
    rng, hidden = np.random.default_rng(0), 0
    problem = bs.Problem(lambda x, theta, y, d: d @ x, None, bs.sets.Simplex(), data=jnp.zeros(6))
    for _ in range(30):
        start = bs.Point(x=rng.dirichlet(np.full(6, 5.0)))
        kernels = Kernels(replace(problem, data=jnp.asarray(1e6 + 1e-10 * rng.normal(size=6))), start)
        x, theta, y = kernels.flat(start)
        search = Search(kernels, x)
        next(search.from_start(x, theta, y, None, 1e-12))
        search.descent.tau = 1.0
        d0, _, slope, _ = search._direction()
        hidden += float(search.here.Gz @ d0) >= 0
        assert slope < 0 and (slope == pytest.approx(-d0 @ d0) or float(search.here.Gz @ d0) < 0)
    assert hidden > 5


def test_with_the_right_inverse_w_takes_one_product():
    """g has the same Hessian H everywhere: w = H^-1 f_theta from 0 by one product, from a guess by two."""
    rng = np.random.default_rng(0)
    H, C = np.cov(rng.normal(size=(5, 30))) + np.eye(5), rng.normal(size=(5, 3))
    upper = lambda x, theta, y, d: 0.5 * jnp.sum((theta - 1) ** 2) + 0.1 * jnp.sum(x**3)
    lower = lambda x, theta, d: 0.5 * theta @ d[0] @ theta - theta @ d[1] @ x
    problem = bs.Problem(upper, lower, bs.sets.L2Ball(10.0), data=(jnp.array(H), jnp.array(C)))
    start = bs.Point(x=np.ones(3), theta=np.zeros(5))
    kernels = Kernels(problem, start)
    solver, (x, theta, y) = Solver(kernels), kernels.flat(start)
    inner, _ = solver.begin(x, theta, y, 0.5)
    solver.inverse.matrices = np.linalg.inv(H)[None]
    spent = []
    for x in rng.normal(size=(3, 3)):
        before = solver.cost.hvps
        found = solver.evaluate(x, inner, False, y, 1.0, Residuals(1e-11, 1e-11, 1e-11))
        spent.append(solver.cost.hvps - before)
        theta = np.linalg.solve(H, C @ x)
        w = np.linalg.solve(H, theta - 1)
        np.testing.assert_allclose(found.Gx, 0.3 * x**2 + C.T @ w, rtol=1e-9)
        np.testing.assert_allclose(found.inner.w, w, rtol=1e-9)
        assert found.inner.left < 1e-12
    assert spent == [2, 2, 2]
    # with another inverse a product leaves much: w begins where it is recalled, and one product says that it is there
    solver.inverse.matrices = np.eye(5)[None]
    before = solver.cost.hvps
    again = solver.evaluate(x, inner._replace(left=0.5), False, y, 1.0, Residuals(1e-9, 1e-9, 1e-9))
    np.testing.assert_allclose(again.inner.w, np.linalg.solve(H, np.linalg.solve(H, C @ x) - 1), rtol=1e-7)
    assert solver.cost.hvps - before == 1
