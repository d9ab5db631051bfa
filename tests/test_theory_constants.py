"""Constants: exact against closed forms, estimated against exact, the table of origins, and the bounds of multitask."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import theory
from bisaddle.oracle.spectra import lanczos, tridiagonal_ends
from tests import registry, theory_family as family

# -- mu_g and L_g of quadratics with a known spectrum, the Hessian only ever a product ---------------------------------

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


@pytest.mark.parametrize("size", [1, 2, 3, 10, 60])
def test_ends_of_tridiagonal_matrices(size):
    rng = np.random.default_rng(size)
    for low in (1.0, 1e-6, -2.0):
        full = (lambda basis: (basis * np.r_[low, rng.uniform(1.5, 3, size - 1)]) @ basis.T)(
            np.linalg.qr(rng.normal(size=(size, size)))[0]
        )
        for diagonal, off in (
            (rng.normal(size=size), rng.normal(size=size - 1)),
            (np.ones(size), np.zeros(size - 1)),
            _tridiagonal(full, rng),
        ):
            T = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
            exact = np.linalg.eigvalsh(T)
            for (value, vector), expected in zip(tridiagonal_ends(diagonal, off), exact[[0, -1]], strict=True):
                np.testing.assert_allclose(value, expected, atol=1e-13 * np.max(np.abs(exact)) * size**0.5)
                assert np.linalg.norm(T @ vector - expected * vector) <= 1e-10 * np.max(np.abs(exact))


def _tridiagonal(A, rng):
    """Lanczos in a dense way: A in a basis where it is tridiagonal."""
    krylov = [rng.normal(size=len(A))]
    for _ in range(len(A) - 1):
        v = A @ krylov[-1]
        for _ in range(3):
            v = v - sum((u * (u @ v) / (u @ u) for u in krylov), start=np.zeros(len(A)))
        krylov.append(v / np.linalg.norm(v))
    basis = np.stack([v / np.linalg.norm(v) for v in krylov], axis=1)
    T = basis.T @ A @ basis
    return np.diag(T).copy(), np.diag(T, 1).copy()


@pytest.mark.parametrize("size", [1, 5, 60, 400])
def test_lanczos_resolves_both_ends(size, record):
    for seed, spectrum in enumerate(SPECTRA):
        for kappa in (1.5, 300.0, 1e4):
            problem, _, eigenvalues = _spectral(seed, max(size, 2), spectrum, kappa)
            mirrors, eigenvalues = np.asarray(problem.data["mirrors"])[:, :size], eigenvalues[:size]
            mirrors = mirrors / np.linalg.norm(mirrors, axis=1, keepdims=True)
            product = lambda w, m=mirrors, e=eigenvalues: _reflected(e * _reflected(w, m), m[::-1])
            found = lanczos(product, size, np.dtype(float), 2e-3)
            least, most = eigenvalues.min(), eigenvalues.max()
            record(f"relative error of Lanczos, dimension {size}", max(found.least / least, most / found.most) - 1)
            assert least * (1 - 1e-9) <= found.least <= least * 1.01
            assert most * (1 + 1e-9) >= found.most >= most * 0.99
            assert found.products <= size
            gone = product(found.least_vector) - found.least * found.least_vector
            assert np.linalg.norm(gone) <= found.least_residual + 1e-9 * most


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 10, 150, 700, 2000])
def test_estimated_spectrum_of_fifty_quadratics(size, record):
    for i, spectrum in enumerate(SPECTRA):
        for j in range(2):
            _check_spectrum(100 * i + j, size, spectrum, (10.0, 300.0, 1e4)[(i + j) % 3], record)


# -- exact constants, and estimates beside them ----------------------------------------------------------------------


def _flat_family(seed, kind):
    """A problem of the family whose lower Hessian does not depend on x: quadratic as a whole."""
    data, start, half = family.draw(seed, kind)
    data["A1"] = np.zeros_like(data["A1"])
    return data, start, half


@pytest.mark.parametrize("kind", family.KINDS)
def test_exact_constants_of_quadratics(kind):
    data, start, half = _flat_family(4, kind)
    known = family.constants(data, start, half)
    found = theory.exact_constants(family.problem_of(data, half), family.point_of(start))
    for name, value in known.items():
        assert found.origin_of(name) == "exact"
        if name != "C_theta":
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-9, atol=1e-12)
    # C_theta is a bound: above the largest of many points
    rng = np.random.default_rng(0)
    x, y = half * rng.choice([-1, 1], (500, family.N)), rng.choice([-1, 1], (500, family.Q))
    theta = np.linalg.solve(data["A0"], data["B"] @ x.T + data["c"][:, None]).T
    sizes = np.linalg.norm(x @ data["R"] + y @ data["P"].T + theta @ data["S"], axis=1)
    assert sizes.max() <= found.C_theta <= 10 * sizes.max()


def test_exact_constants_need_a_quadratic_and_keep_what_was_given():
    problem, start, _ = registry.PROBLEMS["wavy saddle"](0)
    with pytest.raises(ValueError, match="exact_constants needs f or g quadratic.*use theory.estimate_constants"):
        theory.exact_constants(problem, start)
    data, begin, half = family.draw(4, "linear")  # a lower Hessian that depends on x: only f is quadratic
    if np.any(data["A1"]):
        found = theory.exact_constants(family.problem_of(data, half, bs.Constants(L_g=50.0)), family.point_of(begin))
        assert found.mu_g is None and found.origin_of("L_g") == "given" and found.origin_of("L_xy") == "exact"
    saddle, start, _ = registry.PROBLEMS["rock-paper-scissors"](0)
    found = theory.exact_constants(saddle, start)
    assert found.L_xx == 0 and found.L_yy == 0 and found.mu_g is None
    np.testing.assert_allclose(found.L_xy, 3**0.5, rtol=1e-9)


def test_estimates_lie_below_the_exact_constants_and_near_them():
    data, start, half = family.draw(3, "concave")
    assert np.any(data["A1"])
    known = family.constants(data, start, half)
    problem, point = family.problem_of(data, half), family.point_of(start)
    found = theory.estimate_constants(problem, jax.random.key(0), point).constants
    for name, value in known.items():
        estimate, exact = float(getattr(found, name)), float(value)
        assert estimate <= exact * (1 + 1e-6) if name != "mu_g" else estimate >= exact * (1 - 1e-6), name
        if name not in ("C_thetax", "C_theta"):  # family.constants bounds these two from afar
            assert abs(estimate - exact) <= 0.25 * exact, name
    # the corner of X where the lower Hessian is largest is found, though the start is not there
    np.testing.assert_allclose(found.L_g, known.L_g, rtol=1e-2)
    np.testing.assert_allclose(found.mu_g, known.mu_g, rtol=1e-2)
    with_both = dataclasses.replace(problem, constants=bs.Constants(mu_g=0.5, L_g=9.0))
    kept = theory.estimate_constants(with_both, jax.random.key(0), point)
    assert kept.hvps == 0 and kept.constants.L_g == 9.0 and kept.constants.origin_of("L_g") == "given"
    assert "given" in theory.describe(kept.constants) and "L_L1" in theory.describe(kept.constants)


def test_an_estimated_mu_g_never_makes_a_bound_of_an_estimate():
    data, start, half = _flat_family(1, "concave")
    problem = family.problem_of(data, half, bs.Constants(mu_g=0.5, origin=(("mu_g", "estimated"),)))
    assert not bs.certify(problem, family.point_of(start)).error_is_bound


def test_estimate_refuses_a_lower_level_that_is_not_strongly_convex():
    data, start, half = _flat_family(1, "concave")
    data["A0"] = data["A0"] - 1.5 * np.eye(family.M)
    with pytest.raises(ValueError, match="must be strongly convex in theta, given a Hessian with eigenvalue -"):
        theory.estimate_constants(family.problem_of(data, half), jax.random.key(0), family.point_of(start))


@pytest.mark.slow
@pytest.mark.parametrize("divergence", [0.0, 0.3])
def test_the_constants_of_multitask_hold_along_runs(divergence):
    """Every constant bounds what sampling meets with theta in the ball that runs stay in."""
    problem, start, _ = registry.PROBLEMS["Experiment 2" if divergence else "Experiment 1"](0)
    known = problem.constants
    assert all(known.origin_of(name) == "exact" for name, _ in known.items())
    unknown = dataclasses.replace(problem, constants=bs.Constants())
    found = theory.estimate_constants(unknown, jax.random.key(1), start, samples=12).constants
    for name, value in known.items():
        estimate = float(getattr(found, name))
        if name in ("mu_g", "mu_y"):
            assert estimate >= float(value) * (1 - 1e-6), name
        else:
            assert estimate <= float(value) * (1 + 1e-6), name
    np.testing.assert_allclose(found.L_g, known.L_g, rtol=1e-2)
    np.testing.assert_allclose(found.mu_g, known.mu_g, rtol=1e-2)
    bound = theory.bound(problem, theory.steps_for(problem, "fp", K=1000), 1000, start)
    assert np.isfinite(bound.total)


def test_origin_is_checked():
    with pytest.raises(ValueError, match="origin takes pairs"):
        bs.Constants(mu_g=1.0, origin=(("mu_g", "guessed"),))
    assert bs.Constants(mu_g=1.0).origin_of("mu_g") == "given" and bs.Constants().origin_of("mu_g") is None
    with pytest.raises(ValueError, match="mu_y <= L_yy is needed"):
        bs.Constants(mu_y=2.0, L_yy=1.0)


def test_derived_constants_by_hand():
    """Lemmas 2.1, 2.2, 4.1-4.5 and 4.8 with numbers that a person can follow."""
    lipschitz = {"L_xx": 1, "L_xtheta": 2, "L_xy": 3, "L_thetax": 4, "L_thetatheta": 5, "L_thetay": 6}
    known = bs.Constants(mu_g=2, L_g=6, L_yy=3, mu_y=1, **lipschitz, L_yx=7, L_ytheta=8, C_thetax=4, C_theta=6)
    known = dataclasses.replace(known, L_g_thetax=9, L_g_thetatheta=10)
    found = dataclasses.asdict(theory.smoothness(known))
    expected = {"kappa_g": 3, "L_theta": 2, "v_bound": 3, "C_v1": 7 + 45, "C_v2": 3}
    expected |= {"L_L1": 1 + 4 + 208 + 81, "L_L2": 15, "L_ymu": 23}
    assert found == expected
    steps = bs.StepSizes(alpha=0.25, eta=0.25, gamma=0.1, sigma=0.4, mu=0.5)
    found = dataclasses.asdict(theory.tracking(known, steps))
    expected = {"beta": 0.5, "rho": 0.5, "rho_D": 0.4, "y_drift": 23 / 1.5, "L_fmu": 294 + 230}
    expected |= {"C_tilde": 8.75, "C_tilde_2": 29}
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-12, err_msg=name)
