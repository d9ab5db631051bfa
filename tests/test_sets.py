"""The six sets the methods stand on, against their definitions in NumPy, up to the largest and smallest numbers."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisaddle import sets

SIZES = (*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 50, 1000)), 5)
SCALES = (1e-8, 1.0, 1e8, 1e16)


def _no_split(v):
    return v


class Case(NamedTuple):
    """A set over vectors of n entries, described a second time in NumPy."""

    make: Callable  # n -> set
    outside: Callable  # (n, v) -> how far the defining inequalities fail
    sample: Callable  # (n, rng) -> a random member
    extreme: Callable  # (n, v) -> whether v is an extreme point
    pack: Callable = _no_split  # vector -> what the set takes
    length: Callable = lambda n: n


def _array_bounds(n):
    return np.linspace(-1.0, 0.0, n), np.linspace(0.5, 3.0, n)


def _dirichlet(n, rng):
    weights = rng.exponential(size=n) ** 3
    return weights / weights.sum()


def _l1(radius):
    return Case(
        lambda n: sets.L1Ball(radius),
        lambda n, v: np.sum(np.abs(v)) - radius,
        lambda n, rng: radius * rng.uniform(0, 1) ** 0.1 * _dirichlet(n, rng) * rng.choice([-1.0, 1.0], n),
        lambda n, v: np.count_nonzero(v) == 1 and np.max(np.abs(v)) == radius,
    )


def _l2(radius):
    return Case(
        lambda n: sets.L2Ball(radius),
        lambda n, v: np.linalg.norm(v) - radius,
        lambda n, rng: radius * rng.uniform(0, 1) ** 0.1 * (g := rng.normal(size=n)) / np.linalg.norm(g),
        lambda n, v: abs(np.linalg.norm(v) - radius) <= 1e-14 * radius,
    )


def _linf(radius):
    return Case(
        lambda n: sets.LinfBall(radius),
        lambda n, v: np.max(np.abs(v)) - radius,
        lambda n, rng: rng.uniform(-radius, radius, n),
        lambda n, v: bool(np.all(np.abs(v) == radius)),
    )


def _box(make_bounds):
    return Case(
        lambda n: sets.Box(*make_bounds(n)),
        lambda n, v: max(np.max(make_bounds(n)[0] - v), np.max(v - make_bounds(n)[1])),
        lambda n, rng: rng.uniform(*make_bounds(n), n),
        lambda n, v: bool(np.all((v == make_bounds(n)[0]) | (v == make_bounds(n)[1]))),
    )


def _simplex(radius):
    return Case(
        lambda n: sets.Simplex(radius),
        lambda n, v: max(np.max(-v), abs(np.sum(v) - radius)),
        lambda n, rng: radius * _dirichlet(n, rng),
        lambda n, v: np.count_nonzero(v) == 1 and np.max(v) == radius,
    )


def _product():
    blocks = (_l1(2.0), _simplex(1.0), _box(_array_bounds))

    def pack(v):
        a, b, c = jnp.split(v, 3)
        return {"first": a, "rest": (b, [c])}

    def make(n):
        a, b, c = (block.make(n) for block in blocks)
        return sets.Product({"first": a, "rest": (b, [c])})

    def parts(n, v):
        return zip(blocks, np.split(v, 3), strict=True)

    return Case(
        make,
        lambda n, v: max(block.outside(n, part) for block, part in parts(n, v)),
        lambda n, rng: np.concatenate([block.sample(n, rng) for block in blocks]),
        lambda n, v: all(block.extreme(n, part) for block, part in parts(n, v)),
        pack,
        lambda n: 3 * n,
    )


CASES = {
    "l1": _l1(2.0),
    "l1 tiny": _l1(1e-8),
    "l1 huge": _l1(1e8),
    "l2": _l2(2.0),
    "linf": _linf(0.5),
    "box": _box(lambda n: (-1.0, 2.0)),
    "box of arrays": _box(_array_bounds),
    "simplex": _simplex(1.0),
    "simplex of radius 3": _simplex(3.0),
    "simplex huge": _simplex(1e8),
    "product": _product(),
}
RADIAL = {"l1": sets.L1Ball, "l2": sets.L2Ball, "linf": sets.LinfBall, "simplex": sets.Simplex}
POLYTOPES = [name for name in CASES if not name.startswith("l2")]
every_case = pytest.mark.parametrize("name", CASES)


@eqx.filter_jit
def _rows(convex_set, oracle, pack, matrix):
    """oracle(row) for each row of a matrix, in flat form again"""
    answers = jax.vmap(lambda row: getattr(convex_set, oracle)(pack(row)))(matrix)
    return jnp.concatenate([leaf.reshape(len(matrix), -1) for leaf in jax.tree.leaves(answers)], axis=1)


def _ask(name, n, oracle, matrix):
    case = CASES[name]
    padded = np.concatenate([matrix, np.zeros((24 - len(matrix), matrix.shape[1]), matrix.dtype)])  # one compilation
    return np.asarray(_rows(case.make(n), oracle, case.pack, jnp.asarray(padded)))[: len(matrix)]


def _size_of(members):
    return max(1.0, np.max(np.linalg.norm(members, axis=1)))


def _one(name, n, oracle, v):
    return _ask(name, n, oracle, np.asarray(v)[None])[0]


@pytest.mark.parametrize("n", SIZES)
@every_case
def test_projection_is_feasible_idempotent_nonexpansive_and_obeys_the_variational_inequality(name, n):
    case, rng = CASES[name], np.random.default_rng(n)
    scales = np.repeat(SCALES, 6)
    v = rng.normal(size=(len(scales), case.length(n))) * scales[:, None]
    v[1::6] = np.round(v[1::6] / scales[1::6, None]) * scales[1::6, None]  # ties
    members = np.stack([case.sample(n, rng) for _ in range(20)])
    projected, again = (p := _ask(name, n, "project", v)), _ask(name, n, "project", p)
    size = _size_of(members)
    for row, p, q in zip(v, projected, again, strict=True):
        assert case.outside(n, p) <= 1e-12 * size
        np.testing.assert_allclose(q, p, rtol=0, atol=1e-12 * size)
        tolerance = 1e-12 * size * max(size, np.linalg.norm(row))
        assert np.max((members - p) @ (row - p)) <= tolerance
    for (row, p), (other, q) in itertools.combinations(zip(v, projected, strict=True), 2):
        assert np.linalg.norm(p - q) <= np.linalg.norm(row - other) + 1e-12 * size


@pytest.mark.parametrize("n", SIZES)
@every_case
def test_projection_leaves_members_where_they_are(name, n):
    rng = np.random.default_rng(n)
    members = np.stack([CASES[name].sample(n, rng) for _ in range(10)])
    np.testing.assert_allclose(_ask(name, n, "project", members), members, rtol=0, atol=1e-12 * _size_of(members))


@pytest.mark.parametrize("n", SIZES)
@every_case
def test_lmo_gives_an_extreme_point_below_every_member_for_ties_and_zero_too(name, n):
    case, rng = CASES[name], np.random.default_rng(n)
    scales = np.repeat(SCALES, 4)
    d = rng.normal(size=(len(scales), case.length(n))) * scales[:, None]
    d = np.concatenate([d, np.zeros_like(d[:1]), np.ones_like(d[:1]), -np.ones_like(d[:1]), np.sign(d[:1])])
    members = np.stack([case.sample(n, rng) for _ in range(20)])
    size = _size_of(members)
    for row, s in zip(d, _ask(name, n, "lmo", d), strict=True):
        assert case.outside(n, s) <= 1e-12 * size
        assert case.extreme(n, s)
        assert row @ s <= np.min(members @ row) + 1e-12 * size * np.linalg.norm(row)


@pytest.mark.parametrize("largest", [1e155, 1e300, 1e308, 1.7e308])
@every_case
def test_entries_near_the_largest_number_are_projected_and_minimised_over_exactly(name, largest):
    case = CASES[name]
    for signs in ([1, 1, 0], [1, -1, 0], [0, 0, 1], [-1, -1, -1]):
        v = np.resize(np.array(signs) * largest, case.length(3))
        p, s = _one(name, 3, "project", v), _one(name, 3, "lmo", v)
        size = max(1.0, np.linalg.norm(s))
        assert case.outside(3, p) <= 1e-12 * size
        np.testing.assert_allclose(_one(name, 3, "project", p), p, rtol=0, atol=1e-12 * size)
        # what matters of a point that far out is its direction
        np.testing.assert_allclose(p, _one(name, 3, "project", v / largest * 1e12), rtol=0, atol=1e-11 * size)
        assert case.extreme(3, s)
        np.testing.assert_allclose(s, _one(name, 3, "lmo", v / largest), rtol=1e-15)


@every_case
def test_denormal_entries_are_harmless(name):
    case = CASES[name]
    v = np.resize([1e-310, -1e-310, 0.0], case.length(3))
    assert case.outside(3, _one(name, 3, "project", v)) <= 1e-12
    assert case.extreme(3, _one(name, 3, "lmo", v))


@pytest.mark.parametrize("oracle", ["project", "lmo", "violation"])
@every_case
def test_nan_in_gives_nan_out(name, oracle):
    for n, place in itertools.product((1, 5), (0, -1)):
        v = np.ones(CASES[name].length(n))
        v[place] = np.nan
        assert np.any(np.isnan(_one(name, n, oracle, v)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_case
def test_dtype_and_shape_are_kept(name, dtype):
    case = CASES[name]
    v = case.pack(jnp.asarray(np.linspace(-2, 3, case.length(5)), dtype))
    four = eqx.filter_eval_shape(lambda c: (c.project(v), c.lmo(v), c.violation(v), c.diameter(v)), case.make(5))
    for answer in four[:2]:
        assert jax.tree.map(lambda a: (a.shape, a.dtype), answer) == jax.tree.map(lambda a: (a.shape, a.dtype), v)
    for number in four[2:]:
        assert number.shape == () and number.dtype == dtype


@pytest.mark.parametrize("kind", RADIAL.values())
def test_a_matrix_is_treated_as_its_entries(kind):
    v = np.random.default_rng(0).normal(size=(2, 3))
    both = jax.jit(lambda v: jnp.stack([kind(0.7).project(v), kind(0.7).lmo(v)]))
    np.testing.assert_array_equal(both(v), both(v.ravel()).reshape(2, 2, 3))


@every_case
def test_float32_projections_are_accurate_to_float32(name):
    case, rng = CASES[name], np.random.default_rng(3)
    v = rng.normal(size=(8, case.length(50))) * np.repeat([1e-4, 1.0, 1e4, 1e10], 2)[:, None]
    v = v.astype(np.float32).astype(np.float64)
    exact, single = _ask(name, 50, "project", v), _ask(name, 50, "project", v.astype(np.float32))
    np.testing.assert_allclose(single, exact, rtol=0, atol=1e-5 * _size_of(exact))


@pytest.mark.parametrize("n", [1, 2, 5, 50])
@every_case
def test_violation_is_zero_on_the_set_and_the_distance_off_it(name, n):
    case, rng = CASES[name], np.random.default_rng(n)
    members = np.stack([case.sample(n, rng) for _ in range(5)])
    assert np.max(_ask(name, n, "violation", members)) <= 1e-12 * _size_of(members)
    v = rng.choice([-1e9, 1e9], (5, case.length(n))) * rng.uniform(1, 2, (5, case.length(n)))
    distance = np.linalg.norm(v - _ask(name, n, "project", v), axis=1)
    np.testing.assert_allclose(_ask(name, n, "violation", v)[:, 0], distance, rtol=1e-13)
    assert np.all(distance > 0)


@every_case
def test_violation_of_a_far_point_is_its_distance_not_infinity(name):
    v = np.resize([1e100, -1e100, 0.0], CASES[name].length(3))
    np.testing.assert_allclose(_one(name, 3, "violation", v), np.linalg.norm(v / 1e100) * 1e100, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("name", POLYTOPES)
def test_diameter_is_the_largest_distance_between_vertices(name, n):
    case = CASES[name]
    directions = np.array([*itertools.product((-1.0, 1.0), repeat=n), *np.eye(n), *-np.eye(n)])  # reach every vertex
    vertices = _ask(name, n, "lmo", np.tile(directions, (1, case.length(n) // n)))
    if name == "product":  # blocks are independent: pair the extremes of each
        spread = [np.max(_distances(part)) for part in np.split(vertices, 3, axis=1)]
        largest = np.linalg.norm(spread)
    else:
        largest = np.max(_distances(vertices))
    given = case.make(n).diameter(case.pack(jnp.zeros(case.length(n))))
    np.testing.assert_allclose(given, largest, rtol=1e-13)


def _distances(points):
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def test_diameter_of_the_euclidean_ball_is_twice_its_radius():
    assert float(sets.L2Ball(1.5).diameter(jnp.zeros(7))) == 3.0


@every_case
def test_what_fits_has_no_misfit(name):
    case = CASES[name]
    assert case.make(4).misfit(case.pack(jnp.zeros(case.length(4)))) is None


# the radius as a traced value


@pytest.mark.parametrize("kind", RADIAL.values())
def test_a_set_is_an_argument_of_jit_and_a_new_radius_does_not_retrace(kind):
    traces = []

    @jax.jit
    def both(convex_set, v):
        traces.append(1)
        return convex_set.project(v), convex_set.lmo(v)

    v = jnp.asarray([3.0, -1.0, 0.5])
    for radius in (0.5, 1.0, 2.0):
        for got, wanted in zip(both(kind(radius), v), (kind(radius).project(v), kind(radius).lmo(v)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-14)
    assert len(traces) == 1


@pytest.mark.parametrize("kind", RADIAL.values())
def test_vmap_over_radii_equals_one_call_per_radius(kind):
    v, radii = jnp.asarray([3.0, -1.0, 0.5]), np.asarray([0.5, 1.0, 2.0])
    swept = jax.vmap(lambda radius: kind(radius).project(v))(jnp.asarray(radii))
    np.testing.assert_allclose(swept, np.stack([kind(radius).project(v) for radius in radii]), rtol=1e-14)


def test_box_bounds_are_traced_too():
    v = jnp.asarray([3.0, -1.0, 0.5])
    swept = jax.jit(jax.vmap(lambda upper: sets.Box(-upper, upper).project(v)))(jnp.asarray([0.2, 1.0]))
    np.testing.assert_allclose(swept, [[0.2, -0.2, 0.2], [1.0, -1.0, 0.5]])


@pytest.mark.parametrize("spread", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("kind", RADIAL.values())
def test_gradients_in_the_point_and_the_radius_match_finite_differences(kind, spread):
    rng = np.random.default_rng(7)
    weights, v = rng.normal(size=6), spread * rng.normal(size=6)
    value = jax.jit(lambda v, radius: jnp.dot(weights, kind(radius).project(v)))
    by_v, by_radius = jax.grad(value, (0, 1))(jnp.asarray(v), 1.3)
    step = 1e-6 * spread
    differences = [(value(v + step * e, 1.3) - value(v - step * e, 1.3)) / (2 * step) for e in np.eye(6)]
    np.testing.assert_allclose(by_v, differences, atol=1e-7)
    np.testing.assert_allclose(by_radius, (value(v, 1.3 + 1e-6) - value(v, 1.3 - 1e-6)) / 2e-6, atol=1e-7)


@pytest.mark.parametrize("kind", [sets.L1Ball, sets.L2Ball, sets.LinfBall])
def test_gradient_at_the_centre_of_a_ball_is_that_of_the_identity(kind):
    jacobian = jax.jit(jax.jacobian(kind(1.0).project))(jnp.zeros(3))
    np.testing.assert_array_equal(jacobian, np.eye(3))
