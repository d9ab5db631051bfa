"""The laws of ConvexSet, for every set in the registry, over sizes and scales.

Compiling takes longer than computing: every set is an argument of the same two compiled functions, and what a law needs
(points at all scales, points of the set, NaN, exchanged coordinates) goes through them in batches of one shape.
"""

import dataclasses
import zlib
from functools import partial

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.set_cases.all_cases import CASES

SCALES = (1e-8, 1.0, 1e8, 1e16)


@partial(jax.jit, static_argnames="shape")
def _samples(convex_set, keys, shape):
    return jax.vmap(lambda key: convex_set.sample(key, shape))(keys)


@jax.jit
def _nearest(convex_set, points):
    return jax.vmap(lambda v: (convex_set.project(v), convex_set.violation(v)))(points)


@jax.jit
def _least(convex_set, directions):
    return jax.vmap(lambda d: (convex_set.lmo(d), convex_set.support(-d)))(directions)


def _parameters():
    for name, case in CASES.items():
        n = case.quick_size
        yield pytest.param(name, n, 200, id=f"{name}-{n}-200", marks=[] if case.quick else [pytest.mark.slow])
        for n in case.sizes:
            yield pytest.param(name, n, 2000, id=f"{name}-{n}-2000", marks=pytest.mark.slow)


class Setting:
    """A set, random arrays at all scales, directions, points of the set, some extreme, and how exact it must be."""

    def __init__(self, name, n, count):
        self.case = case = CASES[name]
        self.rng = np.random.default_rng([n, zlib.crc32(name.encode())])
        self.set = case.make(self.rng, n)
        self.shape = case.shape(n)
        self.scales = np.repeat(SCALES, count // len(SCALES))
        wide = self.scales.reshape(-1, *(1 for _ in self.shape))
        self.arrays = jnp.asarray(self.rng.normal(size=(count, *self.shape)) * wide)
        self.directions = jnp.asarray(self.rng.normal(size=(count, *self.shape)))
        self.scaled_directions = self.directions * wide
        self.inside = _samples(self.set, jax.random.split(jax.random.key(n), count), self.shape)
        self.diameter = float(self.set.diameter(self.arrays[0]))
        self.size = self.diameter + 1
        self.tolerance = self.set.tolerance
        self.allowed = self.tolerance * np.maximum(1, self.scales) * self.size

    def exchanged(self):
        """An exchange of coordinates (of rows and of columns) that the set does not notice."""
        orders = [self.rng.permutation(side) for side in self.shape]
        if self.case.symmetric:
            orders = [orders[0]] * 2
        return lambda stack: np.asarray(stack)[np.ix_(range(len(stack)), *orders)]

    def enlarged(self, factor):
        """factor S, by its sizes."""
        return dataclasses.replace(self.set, **{size: getattr(self.set, size) * factor for size in self.case.scales})


def _outside(s, points):
    """How far points are from the set's definition in CVXPY's words, which knows nothing of our oracles."""
    u = cp.Variable(s.shape, **s.case.variable)
    constraints = s.case.constraints(s.set, u) if s.case.constraints else []
    if u.size > 100 or {v.id for c in constraints for v in c.variables()} - {u.id}:  # more variables: not a mere test
        return 0.0
    worst = 0.0
    for point in np.asarray(points)[:: max(1, len(points) // 40)]:
        u.value = point
        worst = max([worst, *(float(np.max(c.violation(), initial=0)) for c in constraints)])
    return worst


def _flat(a):
    return np.asarray(a).reshape(len(a), -1)


def _length(a):
    return np.linalg.norm(_flat(a), axis=1)


@pytest.mark.parametrize(("name", "n", "count"), list(_parameters()))
def test_projection_is_feasible_idempotent_variational_nonexpansive_and_equivariant(name, n, count):
    s = Setting(name, n, count)
    if "project" not in s.set.capabilities:
        pytest.raises(ValueError, s.set.project, s.arrays[0])
        return
    projected, _ = _nearest(s.set, s.arrays)
    again, violation = _nearest(s.set, projected)
    assert np.all(violation <= s.tolerance * s.size), "feasible"
    assert _outside(s, projected) <= 10 * s.tolerance * s.size, "feasible by definition"
    assert np.all(_length(again - projected) <= s.tolerance * s.size), "idempotent"

    away = _length(s.arrays - projected)
    for others in (s.inside, jnp.roll(projected, 1, axis=0)):
        gap = np.sum(_flat(s.arrays - projected) * _flat(others - projected), axis=1)
        assert np.all(gap <= s.allowed * (1 + away)), "variational inequality"
    for shift in (1, count // len(SCALES)):  # a point of the same scale, and one of another
        moved = _length(projected - jnp.roll(projected, shift, axis=0))
        apart = _length(s.arrays - jnp.roll(s.arrays, shift, axis=0))
        assert np.all(moved <= apart + np.maximum(s.allowed, np.roll(s.allowed, shift))), "nonexpansive"

    kept, violation = _nearest(s.set, s.inside)
    assert np.all(violation <= s.tolerance * s.size), "samples are in the set"
    assert np.all(_length(kept - s.inside) <= s.tolerance * s.size), "points of the set stay"

    if s.case.permutes:
        exchange = s.exchanged()
        swapped, _ = _nearest(s.set, jnp.asarray(exchange(s.arrays)))
        assert np.all(_length(swapped - exchange(projected)) <= s.allowed), "permutation"
    if s.case.scales:
        for factor in (8.0, 1e-6):
            larger, _ = _nearest(s.enlarged(factor), factor * s.arrays)
            assert np.all(_length(larger - factor * projected) <= factor * s.allowed), "scaling"

    spoilt = s.arrays.at[:, *(0 for _ in s.shape)].set(jnp.nan)
    nearest, violation = _nearest(s.set, spoilt)
    assert np.all(np.any(np.isnan(_flat(nearest)), axis=1)) and np.all(np.isnan(violation)), "NaN in, NaN out"


@pytest.mark.parametrize(("name", "n", "count"), list(_parameters()))
def test_linear_minimisation_is_feasible_optimal_and_equivariant(name, n, count):
    s = Setting(name, n, count)
    if "lmo" not in s.set.capabilities:
        pytest.raises(ValueError, s.set.lmo, s.directions[0])
        return
    zero, one = jnp.zeros(s.shape), jnp.ones(s.shape)
    special = jnp.stack([zero, one, -one, zero.at[(-1,) * len(s.shape)].set(1)])
    vertices, _ = _least(s.set, s.scaled_directions.at[:4].set(special))
    if "project" in s.set.capabilities:
        _, violation = _nearest(s.set, vertices)
    else:
        violation = jax.jit(jax.vmap(s.set.violation))(vertices)
    assert np.all(violation <= s.tolerance * s.size), "feasible, for ties and for the zero direction too"

    assert _outside(s, vertices) <= 10 * s.tolerance * s.size, "feasible by definition"

    d = _flat(s.directions.at[:4].set(special))
    lengths = np.linalg.norm(d, axis=1)
    for points in (s.inside, jnp.roll(s.inside, 7, axis=0), jnp.roll(vertices, 1, axis=0)):
        better = np.sum(d * (_flat(vertices) - _flat(points)), axis=1)
        assert np.all(better <= s.tolerance * lengths * s.size), "optimal"
    straight, support = _least(s.set, s.directions)
    best = np.sum(_flat(s.directions) * _flat(straight), axis=1)
    np.testing.assert_allclose(support, -best, atol=s.tolerance * s.size * _length(s.directions).max())
    apart = _length(vertices - jnp.roll(vertices, 1, axis=0))
    assert np.all(apart <= s.diameter * (1 + 1e-9) + s.tolerance * s.size), "no farther apart than the diameter"

    # minimisers may jump where nearly tied, their value does not
    if s.case.permutes:
        exchange = s.exchanged()
        swapped, _ = _least(s.set, jnp.asarray(exchange(s.directions)))
        value = np.sum(_flat(exchange(s.directions)) * _flat(swapped), axis=1)
        assert np.all(np.abs(value - best) <= s.tolerance * s.size * _length(s.directions)), "permutation"
    if s.case.scales:
        larger, _ = _least(s.enlarged(8.0), s.directions)
        value = np.sum(_flat(s.directions) * _flat(larger), axis=1)
        assert np.all(np.abs(value - 8 * best) <= 8 * s.tolerance * s.size * _length(s.directions)), "scaling"

    spoilt = s.directions.at[:, *(0 for _ in s.shape)].set(jnp.nan)
    assert np.all(np.any(np.isnan(_flat(_least(s.set, spoilt)[0])), axis=1)), "NaN in, NaN out"


@jax.jit
def _everything(convex_set, v):
    answers = {
        oracle: getattr(convex_set, oracle)(v) for oracle in sorted(convex_set.capabilities & {"project", "lmo"})
    }
    return {oracle: (answer, convex_set.violation(answer)) for oracle, answer in answers.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_single_precision_answers_lie_in_the_set(name):
    case = CASES[name]
    n = case.quick_size
    convex_set = case.make(np.random.default_rng(0), n)
    for seed in range(5):
        v = np.random.default_rng(seed).normal(size=case.shape(n)).astype(np.float32)
        for answer, violation in _everything(convex_set, jnp.asarray(v)).values():
            assert answer.dtype == np.float32 and violation.dtype == np.float32
            assert violation <= max(1e-5, 10 * convex_set.tolerance) * (1 + float(jnp.max(jnp.abs(answer))))


@pytest.mark.parametrize("name", CASES)
def test_shape_and_dtype_are_kept_and_whole_numbers_become_floats(name):
    case = CASES[name]
    n = case.quick_size
    convex_set = case.make(np.random.default_rng(0), n)
    for given, expected in ((np.float32, np.float32), (np.float64, np.float64), (np.int32, np.float64)):
        v = jnp.ones(case.shape(n), given)
        assert convex_set.misfit(v) is None
        for oracle in sorted(convex_set.capabilities & {"project", "lmo"}):
            answer = jax.eval_shape(jax.jit(getattr(convex_set, oracle)), v)  # a bound method is a function to jit too
            assert answer.dtype == expected and answer.shape == v.shape, oracle
        for number in (convex_set.violation, convex_set.diameter):
            assert jax.eval_shape(number, v).dtype == expected


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if case.quick else [pytest.mark.slow])
        for name, case in CASES.items()
        if case.differentiable
    ],
)
def test_the_derivative_of_the_projection_is_that_of_finite_differences(name):
    case = CASES[name]
    n = case.quick_size
    convex_set = case.make(np.random.default_rng(3), n)
    if "project" not in convex_set.capabilities:
        return

    @jax.jit
    def value_and_derivatives(v, weights, u):
        value = lambda v: jnp.sum(weights * convex_set.project(v))
        result, gradient = jax.value_and_grad(value)(v)
        return result, jnp.sum(gradient * u), jax.jvp(value, (v,), (u,))[1]

    rng = np.random.default_rng(4)
    hits = 0
    for _ in range(10):
        v, u, weights = (jnp.asarray(rng.normal(size=case.shape(n)) * 2) for _ in range(3))
        _, backward, forward = value_and_derivatives(v, weights, u)
        np.testing.assert_allclose(forward, backward, rtol=1e-6, atol=1e-8)
        ends = [[value_and_derivatives(v + h * u, weights, u)[0] for h in (-h, h)] for h in (1e-4, 3e-5)]
        differences = [float(b - a) / (2 * h) for (a, b), h in zip(ends, (1e-4, 3e-5), strict=True)]
        # near a kink the two differences disagree: such a point says nothing about the derivative
        if abs(differences[0] - differences[1]) <= 1e-5 * (1 + abs(differences[0])):
            np.testing.assert_allclose(backward, differences[1], rtol=1e-4, atol=1e-5 + 1e4 * convex_set.tolerance)
            hits += 1
    assert hits >= 4
