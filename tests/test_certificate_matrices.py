"""Which lower levels have matrices in their certificates, and that these are right with much data too."""

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.bounds import can_have_matrices, sensitivity
from bisaddle.oracle import implicit, kernels as kernels_module
from tests.registry import linear_quadratic


def test_much_data_has_the_same_error_bound(monkeypatch):
    """The matrices behind it come column by column then, and have the same entries."""
    problem, start, _ = linear_quadratic(0, 0.5)
    point, found = bs.Point(start.x, start.theta + 0.1, start.y), []
    for light in (2**19, 0):
        monkeypatch.setattr(kernels_module, "LIGHT_BYTES", light)
        kernels = kernels_module.Kernels(problem, point)
        solved = implicit.Implicit(kernels, *kernels.flat(point))
        assert kernels.heavy is (light == 0) and can_have_matrices(solved)
        found.append(sensitivity(solved, None, matrices=True))
        assert bs.certify(problem, point).error_bound <= 1e-9
    both_ends = [2**0.5, 1, 2**0.5, 1, 1]  # J at theta and at theta*, where it is the same: with much data at one
    np.testing.assert_allclose(np.array(found[1]) * both_ends, found[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("theta", "x", "rows", "matrices"),
    [
        (128, 5000, 60_000, True),
        (256, 1024, 1, True),
        (256, 1025, 1, False),
        (256, 3, 66_000, False),
        (257, 3, 1, False),
    ],
)
def test_lower_levels_that_have_matrices(theta, x, rows, matrices):
    """Up to 128 variables always; up to 256 with an x of up to 1024 entries, and up to 512 KB of data."""
    upper = lambda x, theta, y, data: jnp.sum(theta) + jnp.sum(x)
    lower = lambda x, theta, data: 0.5 * jnp.sum(theta**2) + jnp.sum(theta) * (jnp.sum(x) + jnp.sum(data))
    problem = bs.Problem(upper, lower, bs.sets.Box(-1.0, 1.0), None, np.zeros(rows))
    assert implicit.small_lower(kernels_module.Kernels(problem, bs.Point(np.zeros(x), np.zeros(theta)))) is matrices


def test_a_lower_level_that_is_nearly_singular_is_certified_by_matrices(monkeypatch):
    """150 variables, curvatures from 1e-5 to 1 of which f sees the large ones: products of norms know of 1e-5 alone."""
    h = jnp.asarray(np.geomspace(1e-5, 1.0, 150))
    upper = lambda x, theta, y, h: 0.5 * jnp.sum(h * (theta - 1) ** 2) + 0.5 * jnp.sum(x**2)
    lower = lambda x, theta, h: 0.5 * jnp.sum(h * theta**2) - jnp.sum(h * theta) * jnp.sum(jnp.sin(x))
    problem = bs.Problem(upper, lower, bs.sets.Box(-1.0, 1.0), None, h)
    point, found = bs.Point(np.full(3, 0.2), np.full(150, 0.1)), {}
    for limit in (256, 128):
        monkeypatch.setattr(implicit, "FEW_DENSE_LIMIT", limit)
        found[limit] = bs.certify(problem, point)
    s = np.sin(0.2)  # theta* = 3 s in every entry
    G = 0.2 + float(jnp.sum(h)) * (3 * s - 1) * np.cos(0.2)
    exact = 3**0.5 * abs(0.2 - np.clip(0.2 - G, -1, 1))
    assert abs(found[256].gap - exact) <= found[256].error_bound + 1e-14
    assert found[256].error_bound < 1e-3 * found[128].error_bound
