"""A small share of `make stress`, and that its counters count: what must not be is made up here and must be found."""

from collections import Counter
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import bisaddle as bs
from benchmarks.stress import __main__ as stress, attacks, families, problems, surroundings

# families whose runs must already be without failures, and quick
SOUND = ("quadratic", "minimax lifts", "degenerate", "scales")


@pytest.mark.parametrize("name", SOUND)
def test_a_few_of_each_family_are_sound(name):
    tally = problems.run_family(name, 4)
    assert tally.failures == [] and sum(tally.statuses.values()) == 4


@pytest.mark.parametrize("name", [name for name in families.FAMILIES if name != "inexact sets"])
def test_a_family_differs_in_numbers_only_so_that_it_compiles_once(name):
    shapes = Counter()
    for i in range(8):
        problem, start, tol, measure = families.FAMILIES[name](np.random.default_rng(i))
        assert tol > 0 and measure in ("projection", "lmo")
        sizes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves((problem.data, start)))
        shapes[problem.upper.func, problem.lower.func, sizes] += 1
    assert len(shapes) <= 2  # two functions, or two sizes


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_attacks_are_what_they_say(name):
    """Points that must not be certified are refuted by the audit, at the tolerance that is tried."""
    if name == "d: coarse sets":  # compiles for seconds; its truth is the audit's own
        return
    for i in range(2):
        attack = attacks.ATTACKS[name](np.random.default_rng([*name.encode(), i]))
        audit = bs.audit(attack.problem, attack.point, measure=attack.measure)
        if attack.hopeless:
            assert problems.why_false(audit, attack.tol)
        if attack.gap is not None:
            assert abs(audit.gap - attack.gap) <= audit.uncertainty + 1e-9 * attack.gap


def _audit(**changes):
    """An audit with a gap of 1e-5 and nothing to say against it, but for the changes."""
    nothing = dict.fromkeys(bs.Audit.__dataclass_fields__, None) | {"measure": "projection", "notes": ()}
    numbers = ("hidden", "x_violation", "y_violation", "y_gap", "uncertainty", "value", "worst_value")
    sound = dict.fromkeys(("strongly_convex", "mu_g_holds", "concave"), True)
    rest = nothing | dict.fromkeys(numbers, 0.0) | sound | {"x_gap": 1e-5, "least_curvature": 1.0}
    return bs.Audit(**(rest | changes))


def test_false_certificates_and_broken_bounds_are_counted():
    assert problems.why_false(_audit(), 1e-4) == ""
    assert "gap" in problems.why_false(_audit(), 1e-6)
    assert "gap" in problems.why_false(_audit(hidden=1e-3), 1e-4)
    assert "concave" in problems.why_false(_audit(concave=False), 1e-4)
    assert "strongly convex" in problems.why_false(_audit(strongly_convex=False), 1e-4)
    assert "outside" in problems.why_false(_audit(x_violation=1e-3), 1e-4)
    certificate = SimpleNamespace(gap=1.1e-5, error_bound=2e-6)
    assert problems.bound_holds(certificate, _audit())
    assert not problems.bound_holds(certificate, _audit(x_gap=2e-5))
    assert problems.bound_holds(certificate, _audit(x_gap=2e-5, uncertainty=1e-5))
    assert problems.bound_holds(certificate, _audit(x_gap=np.nan)) is None


def test_what_is_raised_is_a_failure_and_not_the_end():
    tally = problems.Tally()
    instance = families.quadratic(np.random.default_rng(0))
    outside = bs.Point(instance.start.x + 1e3, instance.start.theta, instance.start.y)
    problems.try_one(instance._replace(start=outside), tally, "made up 0")
    assert tally.statuses["raised"] == 1 and "ValueError" in tally.failures[0]
    assert problems.summary(tally.failures * 3) == [(tally.failures[0], 3)]


def test_eight_threads_and_runs_inside_runs_have_serial_results_and_change_no_setting():
    surroundings._run(0)
    before = surroundings.settings()
    assert surroundings.threads(surroundings.THREADS) == [] and surroundings.inside_a_callback() == []
    drawn = "Python's random state"  # by the checks of annotations in these tests
    assert set(surroundings.changed(before)) <= {drawn}
    with np.errstate(over="ignore"):
        assert set(surroundings.changed(before)) - {drawn} == {"NumPy's errors"}


@pytest.mark.slow
def test_ctrl_c_while_compiling_and_a_long_run():
    assert surroundings.interrupted((0.2,)) == [] and surroundings.long_run(200_000) == []


def test_sections_run_by_name_and_missing_ones_are_left_out(monkeypatch, capsys):
    monkeypatch.setattr(stress, "SECTIONS", {"gone": ("benchmarks.stress.gone", 10), "here": ("here", 10)})
    assert stress.run_section("gone", 1.0) == 0 and "left out" in capsys.readouterr().out
    monkeypatch.setattr(stress.importlib.util, "find_spec", lambda module: module)
    monkeypatch.setattr(stress.importlib, "import_module", lambda module: SimpleNamespace(main=lambda count: count))
    assert stress.run_section("here", 0.5) == 5
    monkeypatch.setattr(stress.importlib, "import_module", lambda module: SimpleNamespace(main=lambda count: 1 / 0))
    assert stress.run_section("here", 1.0) == 1
