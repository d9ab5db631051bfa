"""Every set at every scale that numbers have: finite input gives a member of the set, other input gives NaN."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisaddle import sets
from bisaddle.sets.flat import FORMS, flat_set
from tests.set_cases.all_cases import CASES
from tests.set_cases.flat import rng_of

# powers of 10 of the input, and what sizes of sets are multiplied by
POWERS = {np.float64: (-300, -150, -12, -3, 0, 3, 8, 16, 150, 300), np.float32: (-37, -18, -6, 0, 3, 7, 12, 18, 37)}
FACTORS = (1.0, 1e-12, 1e12)


def finite_inputs(rng, n, dtype):
    """Entries of one scale, a large entry among zeros, equal sizes, large entries among small ones, mixed scales, 0."""
    signs = lambda: rng.choice([-1.0, 1.0], n)
    rows = [np.zeros(n)]
    for power in POWERS[dtype]:
        scale = 10.0**power
        alone = np.where(np.arange(n) == rng.integers(n), scale, 0)
        rows += [signs() * rng.uniform(1, 3, n) * scale, alone, -alone, np.full(n, scale), signs() * scale]
        rows += [rng.normal(size=n) + np.where(rng.random(n) < 0.4, scale, 0)]
    most = POWERS[dtype][-1]
    for low, high in ((-most, most), (0, most // 10), (-8, 8)):
        rows += [signs() * 10.0 ** rng.uniform(low, high, n) for _ in range(4)]
    return np.array(rows).astype(dtype)


def other_inputs(rng, n, dtype):
    rows = []
    for bad in ([np.inf], [-np.inf], [np.inf, -np.inf], [np.nan], [np.nan, np.inf], [-np.inf, np.nan], [np.inf] * n):
        for row in (rng.normal(size=n), np.zeros(n)):
            places = rng.permutation(n)[: len(bad)]
            row[places] = bad[: len(places)]
            rows.append(row)
    return np.array(rows).astype(dtype)


@partial(jax.jit, static_argnames="oracle")
def _ask(oracle, convex_set, rows):
    return jax.vmap(getattr(convex_set, oracle))(rows)


def _compiled(convex_set, shape):
    """oracle(name, rows) -> rows, all of them in one program."""
    return lambda oracle, rows: np.asarray(_ask(oracle, convex_set, rows.reshape(-1, *shape))).reshape(len(rows), -1)


def _flat(convex_set, shape, dtype):
    """oracle(name, rows) -> rows, of the flat form."""
    form = flat_set(convex_set, np.zeros(shape, dtype))
    return lambda oracle, rows: np.stack([getattr(form, oracle)(row) for row in rows]).reshape(len(rows), -1)


def check(convex_set, shape, dtype, ask, rng, tolerance):
    """Hold the answers of `ask` to the set, whose own size all allowances are relative to."""
    n = int(np.prod(shape))
    near = (rng.normal(size=(40, n)) * 3).astype(dtype)
    members = np.concatenate([ask(oracle, near).astype(np.float64) for oracle in sorted(convex_set.capabilities)])
    size = max(float(convex_set.diameter(jnp.zeros(shape, dtype))), np.abs(members).max())
    rows, others = finite_inputs(rng, n, dtype), other_inputs(rng, n, dtype)
    v = rows.astype(np.float64)
    for oracle in sorted(convex_set.capabilities):
        answers = ask(oracle, rows)
        p = answers.astype(np.float64)
        assert answers.dtype == dtype and np.all(np.isfinite(p)), oracle
        violation = ask("violation", answers)[:, 0]
        assert np.all(violation <= tolerance * size), (oracle, "is not in the set", rows[np.argmax(violation)])
        largest = np.abs(v).max(axis=1, keepdims=True)
        if oracle == "project":
            scale = np.maximum(largest, size)
            away = v / scale - p / scale
        else:
            away = -v / np.where(largest > 0, largest, 1)
        gap = np.max(away @ members.T - np.sum(away * p, axis=1, keepdims=True), axis=1)
        if isinstance(convex_set, sets.Intersection):  # from mixed scales it may need more rounds than it has
            form = flat_set(convex_set, np.zeros(shape, dtype))
            gap -= 2 * np.array([form.project_error(*pair) for pair in zip(rows, answers, strict=True)])
        assert np.all(gap <= 30 * tolerance * size), (oracle, "is not optimal", rows[np.argmax(gap)], gap.max() / size)
        spoilt = ask(oracle, others)
        assert np.all(np.any(np.isnan(spoilt), axis=1)) and not np.any(np.isinf(spoilt)), (oracle, "hides what is bad")


def _sized(name, factor):
    case, rng = CASES[name], rng_of(name)
    convex_set = case.make(rng, case.quick_size)
    larger = {field: getattr(convex_set, field) * factor for field in case.scales}
    return dataclasses.replace(convex_set, **larger) if factor != 1 else convex_set, case.shape(case.quick_size), rng


def _factors(name):
    return FACTORS if CASES[name].scales else FACTORS[:1]


# these stand for the others in `make test`: every search that scales have broken
QUICK = {
    "WeightedL1Ball",
    "LpBall-1.5",
    "Ellipsoid",
    "GroupBall",
    "KSparsePolytope",
    "MeanConstrainedSimplex",
    "Scaled",
}
QUICK |= {"OrderedWeightedL1Ball", "ConvexHull", "ChiSquareBall", "TransportPolytope"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in CASES]
)
def test_a_set_answers_at_every_scale(name):
    for factor in _factors(name):
        convex_set, shape, rng = _sized(name, factor)
        check(convex_set, shape, np.float64, _compiled(convex_set, shape), rng, convex_set.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_set_answers_at_every_scale_in_single_precision(name):
    for factor in _factors(name):
        convex_set, shape, rng = _sized(name, factor)
        tolerance = max(1e-5, convex_set.tolerance)
        check(convex_set, shape, np.float32, _compiled(convex_set, shape), rng, tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_compiled_form_answers_at_every_scale(name):
    """Without vmap, which makes other programs of loops and branches."""
    convex_set, shape, rng = _sized(name, 1.0)
    check(convex_set, shape, np.float64, _flat(convex_set, shape, np.float64), rng, convex_set.tolerance)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [name for name in CASES if type(CASES[name].make(rng_of(name), 2)) in FORMS])
def test_a_form_in_numpy_answers_at_every_scale(name, dtype):
    for factor in _factors(name):
        convex_set, shape, rng = _sized(name, factor)
        tolerance = convex_set.tolerance if dtype == np.float64 else 1e-5
        check(convex_set, shape, dtype, _flat(convex_set, shape, dtype), rng, tolerance)


@pytest.mark.parametrize(
    ("entry", "dtype"), [(1e155, np.float64), (1e15, np.float64), (1e300, np.float64), (1e7, np.float32)]
)
def test_a_weighted_l1_ball_is_reached_from_afar(entry, dtype):
    weights, v = np.array([3.0, 1.0, 2.0]), jnp.asarray([entry, 0, 0], dtype)
    np.testing.assert_allclose(sets.WeightedL1Ball(weights, 1.5).project(v), [0.5, 0, 0], rtol=1e-6)
