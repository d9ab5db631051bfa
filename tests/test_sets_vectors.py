"""Sets of vectors and of probabilities beyond the common laws: closed forms, special cases, derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisaddle import sets
from bisaddle.sets import extremes, knapsack, ordered
from bisaddle.sets.host import WORTH_A_CALL
from tests.set_cases import probability, vectors

CASES = {**vectors.CASES, **probability.CASES}
SCALES = (1e-8, 1.0, 1e8, 1e16)
N = 6
REFERENCE = np.array([0.1, 0.25, 0.05, 0.3, 0.2, 0.1])


def _points(seed=0, count=24, n=N):
    """Random vectors over all scales."""
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(count, n)) * np.resize(SCALES, count)[:, None])


@jax.jit  # the set is an argument: sets of one kind compile once
def _answers(convex_set, points):
    return jax.vmap(convex_set.project)(points), jax.vmap(convex_set.lmo)(points)


def _project_and_lmo(convex_set, points):
    return tuple(np.asarray(answer) for answer in _answers(convex_set, points))


SAME = {
    "CappedSimplex with a huge cap": (sets.CappedSimplex(50.0, 1.5), sets.Simplex(1.5)),
    "CappedSimplex with the radius as cap": (sets.CappedSimplex(np.full(N, 1.5), 1.5), sets.Simplex(1.5)),
    "CappedSimplex with cap 1": (sets.CappedSimplex(1.0, 3.0), sets.HyperSimplex(3)),
    "HyperSimplex of one": (sets.HyperSimplex(1), sets.Simplex()),
    "HyperSimplex of all": (sets.HyperSimplex(N), sets.Singleton(1.0)),
    "KSparsePolytope of one": (sets.KSparsePolytope(1, 0.7), sets.L1Ball(0.7)),
    "KSparsePolytope of all": (sets.KSparsePolytope(N, 0.7), sets.LinfBall(0.7)),
    "KSparsePolytope of more than all": (sets.KSparsePolytope(N + 3.5, 0.7), sets.LinfBall(0.7)),
    "WeightedL1Ball with equal weights": (sets.WeightedL1Ball(np.full(N, 2.0), 3.0), sets.L1Ball(1.5)),
    "LpBall 1": (sets.LpBall(1, 0.7), sets.L1Ball(0.7)),
    "LpBall 2": (sets.LpBall(2, 0.7), sets.L2Ball(0.7)),
    "LpBall infinity": (sets.LpBall(np.inf, 0.7), sets.LinfBall(0.7)),
    "Ellipsoid with equal axes": (sets.Ellipsoid(np.full(N, 0.7)), sets.L2Ball(0.7)),
    "GroupBall of singletons": (sets.GroupBall(range(N), 0.7), sets.L1Ball(0.7)),
    "GroupBall of one group": (sets.GroupBall([0] * N, 0.7), sets.L2Ball(0.7)),
    "OrderedWeightedL1Ball with equal weights": (sets.OrderedWeightedL1Ball(np.full(N, 2.0), 3.0), sets.L1Ball(1.5)),
    "OrderedWeightedL1Ball of the largest": (sets.OrderedWeightedL1Ball(np.eye(N)[0], 0.7), sets.LinfBall(0.7)),
    "Permutahedron of a vertex": (sets.Permutahedron(1.5 * np.eye(N)[2]), sets.Simplex(1.5)),
    "Permutahedron of zeros and ones": (sets.Permutahedron([0, 1, 0, 1, 1, 0]), sets.HyperSimplex(3)),
    "HyperplaneBox of the simplex": (sets.HyperplaneBox(1.0, 1.5, 0.0, 1.5), sets.Simplex(1.5)),
    "HalfspaceBox of the unit simplex": (sets.HalfspaceBox(2.0, 3.0, 0.0, 1.5), sets.UnitSimplex(1.5)),
    "HalfspaceBox with a loose halfspace": (sets.HalfspaceBox(1.0, 100.0, -0.7, 0.7), sets.LinfBall(0.7)),
    "KLBall with a large radius": (sets.KLBall(REFERENCE, 10.0), sets.Simplex()),
    "ChiSquareBall with a large radius": (sets.ChiSquareBall(REFERENCE, 30.0), sets.Simplex()),
    "TVBall with a large radius": (sets.TVBall(REFERENCE, 1.0), sets.Simplex()),
    "CVaRSet at level 0": (sets.CVaRSet(0.0, REFERENCE), sets.Singleton(REFERENCE)),
    "CVaRSet close to level 1": (sets.CVaRSet(0.99, REFERENCE), sets.Simplex()),
    "CVaRSet under the uniform reference": (sets.CVaRSet(0.5), sets.CVaRSet(0.5, np.full(N, 1 / N))),
    "MeanConstrainedSimplex, loose": (sets.MeanConstrainedSimplex(np.arange(N), -1.0, 9.0), sets.Simplex()),
    "MeanConstrainedSimplex, values equal": (sets.MeanConstrainedSimplex(np.ones(N), 0.0, 2.0), sets.Simplex()),
    "MeanConstrainedSimplex at the least": (
        sets.MeanConstrainedSimplex(np.arange(N), 0.0, 0.0),
        sets.Singleton(np.eye(N)[0]),
    ),
    "MeanConstrainedSimplex at the largest": (
        sets.MeanConstrainedSimplex(np.arange(N), 5.0, 7.0),
        sets.Singleton(np.eye(N)[-1]),
    ),
    "FreeBall": (sets.FreeBall(0.7), sets.L2Ball(0.7)),
}


@pytest.mark.parametrize("name", SAME)
def test_special_cases_agree_with_the_simpler_set(name):
    special, simple = SAME[name]
    points = _points()
    scales = np.resize(SCALES, len(points))[:, None]
    (projected, vertices), (expected, others) = (_project_and_lmo(s, points) for s in (special, simple))
    assert np.max(np.abs(projected - expected) / np.maximum(1, scales)) <= 1e-12
    directions = np.asarray(points) / scales
    np.testing.assert_allclose(np.sum(directions * vertices, axis=1), np.sum(directions * others, axis=1), atol=1e-12)


@pytest.mark.parametrize("p", [1.05, 1.5, 3.0, 20.0])
def test_lp_ball_solves_its_optimality_conditions(p):
    radius = 0.8
    points = _points(3)[1::4] * 2  # scale 1, all outside
    x, vertex = _project_and_lmo(sets.LpBall(p, radius), points)
    size, v = np.abs(x), np.abs(np.asarray(points))
    np.testing.assert_allclose(np.sum((size / radius) ** p, axis=1), 1, atol=1e-12 * p)
    # v - x is a multiple of the gradient x^(p - 1)
    normal = size ** (p - 1)
    weight = np.sum((v - size) * normal, axis=1, keepdims=True) / np.sum(normal**2, axis=1, keepdims=True)
    np.testing.assert_allclose(v - size, weight * normal, atol=1e-12 * p)
    q = p / (p - 1)
    np.testing.assert_allclose(np.sum(vertex * points, axis=1), -radius * np.sum(v**q, axis=1) ** (1 / q), rtol=1e-12)


def test_kl_projection_satisfies_its_optimality_conditions():
    kl = sets.KLBall(REFERENCE, 0.2)
    points = _points(4)[1::4]
    p, _ = _project_and_lmo(kl, points)
    np.testing.assert_allclose(np.sum(p * np.log(p / REFERENCE), axis=1), 0.2, atol=1e-14)
    for v, p_i in zip(np.asarray(points), p, strict=True):
        columns = np.stack([np.ones(N), np.log(p_i / REFERENCE)], axis=1)
        rest = np.linalg.lstsq(columns, v - p_i, rcond=None)[0]
        np.testing.assert_allclose(columns @ rest, v - p_i, atol=1e-12)
        assert rest[1] > 0


def test_chi_square_projection_satisfies_its_optimality_conditions():
    points = _points(5, 80)[1::4]
    projected, _ = _project_and_lmo(sets.ChiSquareBall(REFERENCE, 0.4), points)
    for v, p in zip(np.asarray(points), projected, strict=True):
        assert np.sum((p - REFERENCE) ** 2 / REFERENCE) == pytest.approx(0.4, abs=1e-14)
        positive = p > 0
        columns = np.stack([np.ones(N), (p - REFERENCE) / REFERENCE], axis=1)
        rest = np.linalg.lstsq(columns[positive], (v - p)[positive], rcond=None)[0]
        np.testing.assert_allclose((columns @ rest)[positive], (v - p)[positive], atol=1e-12)
        assert rest[1] > 0 and np.all((v - p - columns @ rest)[~positive] <= 1e-12)


def test_ellipsoid_projection_satisfies_its_optimality_conditions():
    rng = np.random.default_rng(6)
    axes, center = rng.uniform(0.2, 3, N), rng.normal(size=N)
    points = _points(6, 80)[1::4] * 4
    projected, _ = _project_and_lmo(sets.Ellipsoid(axes, center), points)
    for v, x in zip(np.asarray(points), projected, strict=True):
        normal = (x - center) / axes**2
        if np.sum(((v - center) / axes) ** 2) <= 1:
            assert np.all(x == v)
            continue
        assert np.sum(((x - center) / axes) ** 2) == pytest.approx(1, abs=1e-14)
        weight = (v - x) @ normal / (normal @ normal)
        np.testing.assert_allclose(v - x, weight * normal, atol=1e-12)
        assert weight > 0


def test_kl_minimiser_tilts_the_reference():
    d = np.array([0.3, -1.0, 2.0, 0.5, 0.1, -0.2])
    p = np.asarray(sets.KLBall(REFERENCE, 0.2).lmo(jnp.asarray(d)))
    slope, rest = np.polyfit(d, np.log(p / REFERENCE), 1)
    np.testing.assert_allclose(np.log(p / REFERENCE), slope * d + rest, atol=1e-12)
    assert slope < 0 and np.sum(p * np.log(p / REFERENCE)) == pytest.approx(0.2, abs=1e-13)


@pytest.mark.parametrize("kind", [sets.KLBall, sets.ChiSquareBall, sets.TVBall])
def test_ties_give_extreme_points(kind):
    ball = kind(REFERENCE, 0.3)
    for d in (np.zeros(N), np.array([0.0, 0, 0, 1, 1, 1]), np.array([1.0, 0, 1, 0, 0, 0])):
        p = np.asarray(ball.lmo(jnp.asarray(d)))
        distance = {
            "KLBall": np.sum(p * np.log(np.where(p > 0, p, 1) / REFERENCE)),
            "ChiSquareBall": np.sum((p - REFERENCE) ** 2 / REFERENCE),
            "TVBall": np.sum(np.abs(p - REFERENCE)) / 2,
        }[kind.__name__]
        assert distance == pytest.approx(0.3, abs=1e-12)


@pytest.mark.parametrize("level", [0.0, 0.25, 0.5, 0.83])
def test_cvar_support_is_the_mean_of_the_worst_losses(level):
    loss = np.random.default_rng(5).normal(size=N)
    remaining, total = 1 - level, 0.0
    for i in np.argsort(-loss):
        share = min(REFERENCE[i], remaining)
        total, remaining = total + share * loss[i], remaining - share
    support = sets.CVaRSet(level, REFERENCE).support(jnp.asarray(loss))
    assert float(support) == pytest.approx(total / (1 - level), abs=1e-14)


# name: the largest violation of the constraints that define the set, at a point x, relative to what they bound
DEFINITIONS = {
    "CappedSimplex": lambda s, x: max(-x.min(), (x - s.cap).max(), abs(x.sum() - s.radius)),
    "HyperSimplex": lambda s, x: max(-x.min(), x.max() - 1, abs(x.sum() / s.k - 1)),
    "UnitSimplex": lambda s, x: max(-x.min(), x.sum() - s.radius),
    "KSparsePolytope": lambda s, x: max(np.abs(x).max() - s.radius, np.abs(x).sum() / s.k - s.radius),
    "WeightedL1Ball": lambda s, x: s.weights @ np.abs(x) - s.radius,
    "LpBall-1.5": lambda s, x: np.sum(np.abs(x) ** 1.5) ** (1 / 1.5) - s.radius,
    "LpBall-3": lambda s, x: np.sum(np.abs(x) ** 3) ** (1 / 3) - s.radius,
    "Ellipsoid": lambda s, x: np.sum(((x - s.center) / s.axes) ** 2) - 1,
    "GroupBall": lambda s, x: (
        sum(np.linalg.norm(x[np.equal(s.groups, g)]) for g in range(max(s.groups) + 1)) - s.radius
    ),
    "OrderedWeightedL1Ball": lambda s, x: s.weights @ np.sort(np.abs(x))[::-1] - s.radius,
    "Permutahedron": lambda s, x: max(
        np.max(np.cumsum(np.sort(x)[::-1]) - np.cumsum(np.sort(s.values)[::-1])), abs(x.sum() - s.values.sum())
    ),
    "HyperplaneBox": lambda s, x: max((s.lower - x).max(), (x - s.upper).max(), abs(s.normal @ x - s.offset)),
    "HalfspaceBox": lambda s, x: max((s.lower - x).max(), (x - s.upper).max(), s.normal @ x - s.offset),
    "Singleton": lambda s, x: np.abs(x - s.value).max(),
    "KLBall": lambda s, x: max(
        -x.min(), abs(x.sum() - 1), np.sum(x * np.log(np.where(x > 0, x, 1) / s.reference)) - s.radius
    ),
    "ChiSquareBall": lambda s, x: max(
        -x.min(), abs(x.sum() - 1), np.sum((x - s.reference) ** 2 / s.reference) - s.radius
    ),
    "TVBall": lambda s, x: max(-x.min(), abs(x.sum() - 1), np.abs(x - s.reference).sum() / 2 - s.radius),
    "CVaRSet": lambda s, x: max(-x.min(), abs(x.sum() - 1), (x - s.reference / (1 - s.level)).max()),
    "MeanConstrainedSimplex": lambda s, x: max(
        -x.min(), abs(x.sum() - 1), s.lower - s.values @ x, s.values @ x - s.upper
    ),
}


@pytest.mark.parametrize("n", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3, 40))])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_answers_meet_the_definition_of_the_set_at_every_scale(name, n):
    convex_set = CASES[name].make(np.random.default_rng(n), n)
    for answers in _project_and_lmo(convex_set, _points(n, 24 if n == N else 80, n)):  # 24: compiled above already
        assert max(DEFINITIONS[name](convex_set, x) for x in answers) <= 3e-13


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFINITIONS)
def test_answers_meet_the_definition_in_single_precision_at_every_scale(name):
    convex_set = CASES[name].make(np.random.default_rng(N), N)
    points = _points(N, 80, N).astype(jnp.float32)
    for answers in _project_and_lmo(convex_set, points):
        assert answers.dtype == np.float32
        assert max(DEFINITIONS[name](convex_set, x.astype(np.float64)) for x in answers) <= 3e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_knapsack_is_filled_without_a_sort(dtype):
    n = knapsack.SORT_UP_TO + 500
    rng = np.random.default_rng(9)
    # ties, both zeros, all magnitudes
    price = np.round(rng.normal(size=n), 2).astype(dtype) * rng.choice([-0.0, 1e-20, 1.0, 1e16], n).astype(dtype)
    capacity = rng.integers(0, 8, n).astype(dtype)
    order = np.argsort(price, kind="stable")
    for budget in (0.0, 1.0, 1234.5, capacity.sum(), 2 * capacity.sum()):
        expected = np.zeros_like(price)
        before = np.concatenate([[0], np.cumsum(capacity[order])[:-1]])
        expected[order] = np.clip(budget - before, 0, capacity[order])
        filled = knapsack.fill_cheapest(jnp.asarray(price), jnp.asarray(capacity), jnp.asarray(budget, dtype))
        np.testing.assert_array_equal(filled, expected)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_derivatives_with_respect_to_every_size_agree_with_finite_differences(name):
    rng = np.random.default_rng(7)
    # at an integer k most answers are vertices, where the derivative in k has a jump
    convex_set = sets.HyperSimplex(2.3) if name == "HyperSimplex" else CASES[name].make(rng, 5)
    leaves, structure = jax.tree.flatten(convex_set)
    directions = [rng.normal(size=np.shape(leaf)) for leaf in leaves]
    if hasattr(convex_set, "reference"):  # stays a distribution; it is the field with entries
        directions = [u - u.mean() if u.ndim else u for u in directions]
    if name == "OrderedWeightedL1Ball":  # stay in order
        directions = [np.sort(u)[::-1] if u.ndim else u for u in directions]

    @jax.jit
    def value(t, v, weights):
        moved = structure.unflatten([leaf + t * u for leaf, u in zip(leaves, directions, strict=True)])
        return jnp.sum(weights * moved.project(v))

    slope = jax.jit(jax.grad(value))
    hits = 0
    for _ in range(6):
        v, weights = (jnp.asarray(2 * rng.normal(size=5)) for _ in range(2))
        differences = [float((value(h, v, weights) - value(-h, v, weights)) / (2 * h)) for h in (1e-4, 3e-5)]
        if abs(differences[0] - differences[1]) <= 1e-5 * (1 + abs(differences[0])):  # not at a kink
            assert float(slope(0.0, v, weights)) == pytest.approx(differences[1], rel=1e-4, abs=1e-5)
            hits += 1
    assert hits >= 2


SLICED = {
    "CappedSimplex": lambda axis: sets.CappedSimplex(np.array([0.5, 0.7, 0.9]), axis=axis),
    "KLBall": lambda axis: sets.KLBall(np.array([0.2, 0.3, 0.5]), 0.1, axis=axis),
    "Ellipsoid": lambda axis: sets.Ellipsoid(np.array([0.5, 1.0, 2.0]), axis=axis),
    "OrderedWeightedL1Ball": lambda axis: sets.OrderedWeightedL1Ball(np.array([3.0, 2.0, 0.0]), 1.0, axis=axis),
    "GroupBall": lambda axis: sets.GroupBall((0, 1, 0), 1.0, axis=axis),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ("CappedSimplex", "GroupBall") else [pytest.mark.slow]) for n in SLICED]
)
def test_an_axis_makes_every_slice_a_vector(name):
    v = np.random.default_rng(8).normal(size=(4, 3))
    whole, rows, columns = SLICED[name](None), SLICED[name](-1), SLICED[name](0)
    for oracle in ("project", "lmo"):
        of_whole, of_rows, of_columns = (jax.jit(getattr(a_set, oracle)) for a_set in (whole, rows, columns))
        expected = np.stack([of_whole(row) for row in v])
        np.testing.assert_allclose(of_rows(v), expected, atol=1e-14)
        np.testing.assert_allclose(of_columns(v.T), expected.T, atol=1e-14)
    v = jnp.asarray(v)
    assert rows.misfit(v) is None and "size 4" in columns.misfit(v)
    assert rows.sample(jax.random.key(0), (4, 3)).shape == (4, 3)


def test_a_free_ball_says_what_it_is_and_whether_it_binds():
    ball = sets.FreeBall()
    assert ball.stands_in_for == "an unconstrained variable" and float(ball.radius) == 1e6
    assert not bool(ball.binds(jnp.ones(3)))
    assert bool(ball.binds(ball.project(1e9 * jnp.ones(3))))
    assert bool(sets.FreeBall(1.0, axis=-1).binds(jnp.eye(2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 7, 257, 1000, 1024, 1056])
def test_the_smallest_entry_and_the_order_are_those_of_numpy(n, dtype):
    rng = np.random.default_rng(n)
    place_of_smallest, ascending_order, smallest = (
        jax.jit(f) for f in (extremes.place_of_smallest, extremes.ascending_order, extremes.smallest)
    )
    for v in (
        rng.normal(size=n),
        np.round(rng.normal(size=n), 1),  # ties
        np.zeros(n),
        rng.choice([-0.0, 0.0, 1e-30, -1e30, 1e30], n),
        np.r_[rng.normal(size=n - 1), -9.0],
    ):
        v = v.astype(dtype)
        assert int(place_of_smallest(v)) == int(np.argmin(v))
        order = np.asarray(ascending_order(v))
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
        np.testing.assert_array_equal(v[order], np.sort(v))
        if n < WORTH_A_CALL:  # there the order of ties is that of the entries
            np.testing.assert_array_equal(order, np.argsort(v, kind="stable"))
        place, spoilt = smallest(v)
        assert int(place) == int(np.argmin(v)) and not bool(spoilt)
    changed = lambda v, i, value: np.where(np.arange(n) == i, dtype(value), v)
    spoilt = changed(v, n // 2, np.nan)
    assert int(ascending_order(spoilt)[-1]) == n // 2
    assert bool(smallest(spoilt)[1])
    for infinity in (np.inf, -np.inf):  # alone, and before the NaN
        assert bool(smallest(changed(v, 0, infinity))[1])
        assert bool(smallest(changed(spoilt, 0, infinity))[1])


@pytest.mark.parametrize("scale", [1e-8, 1.0, 1e16])
def test_a_large_permutahedron_is_projected_alike_by_scipy_and_on_the_device(scale):
    n = WORTH_A_CALL
    rng = np.random.default_rng(3)
    v, values = jnp.asarray(scale * rng.normal(size=n)), jnp.asarray(rng.normal(size=n))
    there, here = sets.Permutahedron(values).project(v), ordered._sort_and_even_out(v, values)
    np.testing.assert_allclose(there, here, atol=1e-12)
    assert sets.Permutahedron(values).violation(there) <= 1e-11
    batch = jax.vmap(sets.Permutahedron(values).project)(jnp.stack([v, 2 * v]))
    np.testing.assert_array_equal(batch[0], there)
