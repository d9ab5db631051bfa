"""Constants: exact against closed forms, estimated against exact, the table of origins, and the bounds of multitask."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import theory
from tests import registry
from tests import theory_family as family

# -- mu_g and L_g of quadratics with a known spectrum, the Hessian only ever a product -----------------------------------

SPECTRA = ("uniform", "logarithmic", "low outlier", "high outlier", "two clusters")


def _spectrum(rng, name, size, kappa):
    """Eigenvalues from 1 / kappa to 1, times a random scale."""
    low = 1 / kappa
    inner = {
        "uniform": rng.uniform(low, 1, size),
        "logarithmic": low ** rng.uniform(0, 1, size),
        "low outlier": rng.uniform(min(1, 3 * low**0.5), 1, size),
        "high outlier": low * rng.uniform(1, min(kappa, 3), size),
        "two clusters": np.where(rng.uniform(size=size) < 0.5, low * 1.01, 0.99 * (1 - low) + low),
    }[name]
    inner[:2] = low, 1.0
    return inner * 10.0 ** rng.uniform(-3, 3)


def _reflected(theta, mirrors):
    for v in mirrors:
        theta = theta - 2 * v * (v @ theta)
    return theta


def _spectral_lower(x, theta, data):
    turned = _reflected(theta, data["mirrors"])
    return 0.5 * jnp.sum(data["spectrum"] * turned**2) - jnp.sum(theta[:2] * x)


def _spectral_upper(x, theta, y, data):
    return 0.5 * jnp.mean(theta**2) + jnp.sum(x**2) + theta[0] * y[0] - 0.5 * jnp.sum(y**2)


def _spectral(seed, size, spectrum, kappa):
    rng = np.random.default_rng(seed)
    mirrors = rng.normal(size=(3, size))
    mirrors /= np.linalg.norm(mirrors, axis=1, keepdims=True)
    data = {"spectrum": _spectrum(rng, spectrum, size, kappa), "mirrors": mirrors}
    traced = {name: jnp.asarray(value) for name, value in data.items()}
    problem = bs.Problem(_spectral_upper, _spectral_lower, bs.sets.Box(-1.0, 1.0), bs.sets.Box(-1.0, 1.0), traced)
    return problem, bs.Point(x=jnp.zeros(2), theta=jnp.zeros(size), y=jnp.zeros(2)), data["spectrum"]


def _check_spectrum(seed, size, spectrum, kappa, record):
    problem, point, eigenvalues = _spectral(seed, size, spectrum, kappa)
    found = theory.estimate_constants(problem, jax.random.key(seed), point, samples=2)
    mu_g, L_g = float(found.constants.mu_g), float(found.constants.L_g)
    exact_mu, exact_L = eigenvalues.min(), eigenvalues.max()
    record(f"relative error of mu_g, dimension {size}", abs(mu_g - exact_mu) / exact_mu)
    record(f"relative error of L_g, dimension {size}", abs(L_g - exact_L) / exact_L)
    record(f"Hessian-vector products, dimension {size}", found.hvps)
    assert abs(mu_g - exact_mu) <= 0.01 * exact_mu, (spectrum, kappa)
    assert 0.99 * exact_L <= L_g <= 1.01 * exact_L, (spectrum, kappa)
    assert found.hvps <= 2 * min(size, 24) + 3 * size
    assert found.converged
    assert found.constants.origin_of("mu_g") == "estimated" and found.constants.origin_of("D_X") == "exact"
    return found


@pytest.mark.parametrize("spectrum", SPECTRA)
def test_estimated_spectrum_of_small_quadratics(spectrum, record):
    for seed, kappa in enumerate((1.5, 30.0, 1e4)):
        found = _check_spectrum(seed, 60, spectrum, kappa, record)
        assert "Lanczos" in found.how["mu_g"] and str(found.hvps) in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 10, 150, 700, 2000])
def test_estimated_spectrum_of_fifty_quadratics(size, record):
    for i, spectrum in enumerate(SPECTRA):
        for j in range(2):
            _check_spectrum(100 * i + j, size, spectrum, (10.0, 300.0, 1e4)[(i + j) % 3], record)
