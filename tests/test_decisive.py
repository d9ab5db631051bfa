"""Certificates with much data: no more accurate than deciding takes, and never better than the whole one says."""

import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.certifier import Certifier
from bisaddle.oracle import kernels as kernels_module
from bisaddle.oracle.kernels import Kernels
from tests.registry import PROBLEMS

NAMES = ("Experiment 2, rows", "logistic", "linear-quadratic, nu > 0")


@pytest.fixture
def heavy(monkeypatch):
    monkeypatch.setattr(kernels_module, "LIGHT_BYTES", 0)


def place(name, tol):
    """A problem, its certifier, and where Adaptive stands when its own gap meets tol."""
    problem, start, _ = PROBLEMS[name](0)
    kernels = Kernels(problem, start)
    assert kernels.heavy
    looks = bs.methods.Adaptive(tol).looks(problem, kernels, *kernels.flat(start))
    look = next(look for look in looks if look.gap <= tol)
    return problem, Certifier(problem, kernels, bs.Gap("projection")), look


@pytest.mark.parametrize("name", NAMES)
def test_a_decisive_look_agrees_with_the_whole_certificate(heavy, name):
    tol = 1e-5
    problem, certifier, look = place(name, tol)
    point = certifier.kernels.point(look.x, look.theta, look.y)
    whole = bs.certify(problem, point)
    found = certifier.decisive(look.x, look.theta, look.y, look.w, 2 * tol)
    assert found is not None and found.within(2 * tol)
    # the exact gap lies within both bounds
    assert abs(found.gap - whole.gap) <= found.error_bound + whole.error_bound
    assert found.error_bound > 0
    np.testing.assert_allclose(found.worst_value, whole.worst_value, atol=2 * tol)
    np.testing.assert_allclose(found.lower_error, whole.lower_error, atol=1e-3 * tol)


@pytest.mark.parametrize("name", NAMES)
def test_a_gap_above_tol_is_no_certificate_and_a_wrong_guess_of_w_does_no_harm(heavy, name):
    tol = 1e-5
    problem, certifier, look = place(name, tol)
    gap = bs.certify(problem, certifier.kernels.point(look.x, look.theta, look.y)).gap
    assert certifier.decisive(look.x, look.theta, look.y, look.w, 0.5 * gap) is None
    wrong = look.w + np.random.default_rng(0).normal(size=look.w.size)
    found = certifier.decisive(look.x, look.theta, look.y, wrong, 2 * tol)
    assert found is not None and abs(found.gap - gap) <= 2 * found.error_bound + 1e-12


@pytest.mark.parametrize("name", NAMES)
def test_a_run_with_much_data_is_certified_and_the_whole_certificate_agrees(heavy, name):
    problem, start, _ = PROBLEMS[name](1)
    result = bs.solve(problem, start, tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    assert bs.certify(problem, result.point).within(1e-6 + result.certificate.error_bound)
