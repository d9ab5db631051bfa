"""Ends of spectra from products alone, and what few passes of a power iteration may miss."""

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.bounds import shortfall
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.spectra import extreme_eigenvalues, least_vector


@pytest.mark.parametrize("size", [1, 2, 20, 32])
def test_the_ends_of_a_small_spectrum_are_exact(size):
    A = np.random.default_rng(size).normal(size=(size, size))
    A = A + A.T
    values = np.linalg.eigvalsh(A)
    found = extreme_eigenvalues(lambda v: A @ v, size, np.dtype(float))
    np.testing.assert_allclose(found, (values[0], values[-1]), rtol=1e-9, atol=1e-9)


def test_the_ends_of_a_large_spectrum_are_from_inside():
    Q, _ = np.linalg.qr(np.random.default_rng(5).normal(size=(200, 200)))
    A = (Q * np.concatenate([[0.01, 9.0], np.linspace(1, 3, 198)])) @ Q.T
    calls = []

    def product(v):
        calls.append(v.dtype)
        return (A @ v).astype(v.dtype)

    least, largest = extreme_eigenvalues(product, 200, np.dtype(np.float32))
    assert len(calls) == 32 and set(calls) == {np.dtype(np.float32)}
    assert 0.01 - 1e-4 <= least <= 0.1 and 8.9 <= largest <= 9 + 1e-4


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_an_exhausted_krylov_space_ends_lanczos(rank):
    Q, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(50, 50)))
    A = (Q[:, :rank] * np.arange(1, rank + 1)) @ Q[:, :rank].T + 2 * np.eye(50)
    calls = []
    found = extreme_eigenvalues(lambda v: calls.append(1) or A @ v, 50, np.dtype(float))
    np.testing.assert_allclose(found, (2.0, 2.0 + rank), rtol=1e-10)
    assert len(calls) <= rank + 2


@pytest.mark.parametrize("passes", [1, 2, 5])
def test_what_few_passes_of_a_power_iteration_miss_is_allowed_for(passes):
    """One large singular value among many small ones: found times shortfall is never below the norm."""
    size = 1000
    scale = np.ones(size)
    scale[7] = 30.0

    def lower(x, theta, data):
        return 0.5 * jnp.sum(theta**2) - jnp.sum(data * x * theta)

    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(theta), lower, bs.sets.Box(-1.0, 1.0), None, scale)
    start = bs.Point(x=np.zeros(size), theta=np.zeros(size))
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    cross, _ = kernels.norms(x, theta, y, theta, theta[None], passes)
    assert cross <= 30 * (1 + 1e-12) and cross * shortfall(size, passes) >= 30


def test_large_maps_are_looked_at_without_a_basis(monkeypatch):
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(60, 60)))
    A = Q @ np.diag(np.r_[-2.0, np.linspace(1, 5, 59)]) @ Q.T
    product = lambda v: A @ v
    with_basis = extreme_eigenvalues(product, 60, np.dtype(float), 20)
    monkeypatch.setattr("bisaddle.oracle.spectra.LARGE", 10)
    np.testing.assert_allclose(extreme_eigenvalues(product, 60, np.dtype(float), 20), with_basis, rtol=1e-8)
    start = rng.normal(size=60)
    v, largest = least_vector(product, lambda: start, 25)
    assert v is not None
    seen = np.array([float(np.linalg.norm(v)), abs(float(v @ Q[:, 0])), float(v @ A @ v), largest])
    np.testing.assert_allclose(seen, [1, 1, -2, 5], rtol=1e-3)
    assert least_vector(lambda v: np.nan * v, lambda: start, 5)[0] is None
