"""Hard instances of docs/adaptive.md and those found since, as regression tests: certified; a dense check agrees."""

import sys
from pathlib import Path

import numpy as np
import pytest

import bisaddle as bs

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from adaptive import REAL  # noqa: E402
from adaptive_cases import HARD  # noqa: E402
from adaptive_data import folder  # noqa: E402
from adaptive_families import Case, Settings  # noqa: E402

FOUND = {
    # centres that went round in circles
    "concave entropy box": Case("concave", Settings(kind="entropy", y_set="box"), 1012),
    "concave entropy simplices": Case("concave", Settings(kind="entropy", y_set="simplices"), 1012),
    # weights that went round in circles
    "concave quadratic KL ball": Case("concave", Settings(kind="quadratic", y_set="KL ball"), 14),
    # the error bound by products of norms was too large to certify
    "nat b0.05 rho0.01 s5": Case("natural", Settings(0.01, 0.05, 5.0, False), 5),
}


# the others take longer than a few seconds
QUICK = (
    "Mifflin1 from (.8, .6)",
    "Rosen-Suzuki",
    "nat b0 rho0.1 Q5 fr1",
    "nat b0.05 rho0.01 Q5 fr0",
    "even b0 rho0.1 Q5 fr0",
    "even20 b0.01 rho0.01 fr0",
)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in (HARD | FOUND)]
)
def test_a_hard_instance_is_certified(name, record):
    case = (HARD | FOUND)[name]
    if case.family in REAL and folder() is None:
        pytest.skip("needs the data sets; set BISADDLE_DATA to their folder")
    problem, start, check, _ = case.make()
    tol = 1e-8 if name in HARD else 1e-6
    result = bs.solve(problem, start, bs.methods.Adaptive(np.asarray(tol)), tol=tol, max_steps=20_000)
    record("checked gap", check(result.point))
    assert result.status is bs.Status.CERTIFIED
    assert check(result.point) <= tol


@pytest.mark.slow
@pytest.mark.parametrize("size", ["30 x 12", "60 x 30"])
def test_a_nuclear_ball_is_certified(size):
    from adaptive_nuclear import make

    problem, start, check = make(size, 0.1, 0)
    result = bs.solve(problem, start, tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    assert check(result.point) <= 1e-6


def test_a_curved_border_takes_few_steps():
    """The border of a spectrahedron bends by as much as f does: without that in the steps of x they were 203."""
    from adaptive_matrices import make

    problem, start, check = make("spectrahedron", "12 x 12", 0.1, 0)
    result = bs.solve(problem, start, tol=1e-6)
    assert result.status is bs.Status.CERTIFIED
    assert check(result.point) <= 1e-6
    assert result.steps <= 120
