"""check_assumptions: what holds is supported, what fails is named with a witness that can be checked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import theory
from tests import registry, theory_family as family

KEY = jax.random.key(0)


def verdicts(report):
    return {finding.assumption.split(" ", 1)[1]: finding.verdict for finding in report.findings}


def test_a_problem_within_the_assumptions():
    data, start, half = family.draw(3, "concave")
    report = theory.check_assumptions(family.problem_of(data, half), KEY, family.point_of(start))
    assert report.ok and not report.failed
    # x_1 theta'A1 theta makes the mixed derivative of g grow with theta, and nothing else
    found = verdicts(report)
    assert found.pop("2.2 Lipschitz derivatives") == "bounded theta only"
    assert set(found.values()) == {"supported"}
    growing = next(f.evidence for f in report.findings if f.verdict == "bounded theta only")
    assert growing.startswith("C_thetax grow")


def test_a_lower_level_that_is_not_strongly_convex_is_shown():
    data, start, half = family.draw(3, "concave")
    data["A0"] = data["A0"] - 1.3 * np.eye(family.M)
    problem, point = family.problem_of(data, half), family.point_of(start)
    report = theory.check_assumptions(problem, KEY, point)
    (failed,) = report.failed
    assert failed.assumption == "2.2 g strongly convex in theta"
    x, direction = np.asarray(failed.witness["x"]), np.asarray(failed.witness["direction"])
    curvature = direction @ (data["A0"] + x[0] * data["A1"]) @ direction
    assert curvature < 0 and f"eigenvalue {curvature:.3g}" in failed.evidence
    assert "add a ridge term" in str(report) and "direction = " in str(report)
    with pytest.raises(ValueError, match="does not meet the assumptions(.|\n)*g strongly convex in theta"):
        bs.solve(problem, point, check=True, max_steps=10)


def test_a_flat_lower_level_is_shown():
    data, start, half = family.draw(3, "concave")
    data["A0"], data["A1"] = np.diag([0.0, 1.0, 2.0, 3.0]), np.zeros((family.M, family.M))
    report = theory.check_assumptions(family.problem_of(data, half), KEY, family.point_of(start))
    assert [finding.assumption for finding in report.failed] == ["2.2 g strongly convex in theta"]


def test_a_function_that_is_not_concave_in_y_is_shown_with_a_pair():
    data, start, half = family.draw(3, "concave")
    data["n"] = np.array([0.0, 1.0, -0.01])  # a little convex in one coordinate
    problem, point = family.problem_of(data, half), family.point_of(start)
    report = theory.check_assumptions(problem, KEY, point)
    (failed,) = report.failed
    assert failed.assumption == "2.1 f concave in y"
    y, other = np.asarray(failed.witness["y"]), np.asarray(failed.witness["y'"])
    assert (-data["n"] * (y - other)) @ (y - other) > 0
    with pytest.raises(ValueError, match="does not meet the assumptions(.|\n)*f concave in y"):
        bs.solve(problem, point, check=True, max_steps=10)


def _logarithm(x, theta, y, data):
    return jnp.sum(jnp.log(x + 0.5) * y)


def test_values_that_are_not_finite_are_shown():
    problem = bs.Problem(_logarithm, None, bs.sets.Box(-1.0, 1.0), bs.sets.Simplex())
    report = theory.check_assumptions(problem, KEY, bs.Point(x=jnp.zeros(3), y=jnp.full(3, 1 / 3)))
    (failed,) = report.failed
    assert failed.assumption == "finite values" and np.any(np.asarray(failed.witness["x"]) <= -0.5)


@pytest.mark.slow
def test_solve_with_check_runs_as_without():
    data, start, half = family.draw(3, "concave")
    problem, point = family.problem_of(data, half), family.point_of(start)
    method = registry.METHODS["FullyProjected"](family.problem_of(data, half, family.constants(data, start, half)))
    checked, plain = (bs.solve(problem, point, method, check=c, max_steps=20, tol=None) for c in (True, False))
    np.testing.assert_array_equal(checked.x, plain.x)


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.PROBLEMS)
def test_every_registered_problem_gets_a_report(name):
    problem, start, _ = registry.PROBLEMS[name](0)
    report = theory.check_assumptions(problem, KEY, start)
    not_concave = name in ("cosine", "Forsaken")
    assert [finding.assumption for finding in report.failed] == (["2.1 f concave in y"] if not_concave else [])
    assert len(str(report)) > 100
