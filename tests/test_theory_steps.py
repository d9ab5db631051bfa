"""steps_for over the whole range of kappa and K, what it refuses, iterations_for, and the schedules without K."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import theory
from tests import theory_family as family

KAPPAS = 10.0 ** np.arange(0, 9)
KS = (1, 2, 7, *(10**n for n in range(1, 10)))
CASES = [
    ("opf", "concave", {"L_yy": 2.0}),
    ("opf", "linear", {"L_yy": 0.0}),
    ("opf", "experiment", {"L_yy": 2.0}),
    ("fp", "concave", {"L_yy": 2.0}),
    ("fp", "concave", {"L_yy": 0.0}),
    ("fp", "strongly-concave", {"L_yy": 2.0, "mu_y": 0.5}),
    ("fp", "experiment", {"L_yy": 0.0}),
    ("morbit", "experiment", {"L_yy": 0.0}),
]


def numbers(plan):
    return {name: float(schedule.value) for name, schedule in vars(plan.steps).items() if schedule is not None}


@pytest.mark.parametrize(("method", "regime", "upper"), CASES)
def test_steps_are_finite_and_valid_for_every_kappa_and_K(method, regime, upper):
    for i, kappa in enumerate(KAPPAS):
        L_g = (1e-4, 1.0, 1e6)[i % 3]
        known = bs.Constants(mu_g=L_g / kappa, L_g=L_g, **upper)
        for K in KS:
            steps = numbers(theory.steps_for(known, method, K=K, regime=regime))  # StepSizes has checked their ranges
            assert all(np.isfinite(np.float32(value)) for value in steps.values())
            assert all(np.float32(value) > 0 for name, value in steps.items() if name != "mu")
            if method == "morbit":
                assert set(steps) == {"alpha", "tau", "sigma"}
                continue
            limit = 2 / (L_g / kappa + L_g) * (1 + 1e-12)
            assert steps["alpha"] <= limit and steps["eta"] <= limit and 0 < steps["gamma"] <= 1
            if regime != "experiment":
                strength = upper["mu_y"] if regime == "strongly-concave" else steps["mu"]
                assert steps["sigma"] <= 2 / (upper["L_yy"] + 2 * strength) * (1 + 1e-12)
                assert steps["sigma"] * strength > 0


def test_steps_are_those_of_the_corollaries():
    known = bs.Constants(mu_g=0.5, L_g=8.0, L_yy=3.0, mu_y=0.25)  # kappa = 16
    K = 10**4
    at = lambda method, regime, **more: numbers(theory.steps_for(known, method, K=K, regime=regime, **more))
    np.testing.assert_allclose(at("opf", "concave")["mu"], 16**0.75 / 10)
    np.testing.assert_allclose(at("opf", "concave")["gamma"], 160000**-0.75)
    np.testing.assert_allclose(at("opf", "concave")["sigma"], 2 / (3 + 2 * 0.8))
    np.testing.assert_allclose(at("opf", "concave")["alpha"], 2 / 8.5)
    found = at("fp", "concave")
    np.testing.assert_allclose(found["mu"], 16**0.6 * K**-0.2)
    np.testing.assert_allclose(found["tau"], 16.0**-3)
    np.testing.assert_allclose(found["gamma"], min(1, found["mu"] ** 3 / (found["tau"] * 16**3)))
    np.testing.assert_allclose(at("fp", "concave", tau=0.1)["gamma"], found["mu"] ** 3 / (0.1 * 16**3))
    found = at("fp", "strongly-concave")
    assert found["mu"] == 0
    np.testing.assert_allclose(found["gamma"], 64 / 100)
    np.testing.assert_allclose(found["sigma"], 2 / (3 + 2 * 0.25))
    linear = numbers(theory.steps_for(bs.Constants(0.5, 8.0, 0.0), "opf", K=K))
    np.testing.assert_allclose(linear["mu"], 256 * K ** (-1 / 3))
    np.testing.assert_allclose(linear["gamma"], (16 * K) ** (-2 / 3))
    np.testing.assert_allclose(linear["sigma"], 1 / linear["mu"])
    found = at("fp", "experiment", nu=2.0)
    np.testing.assert_allclose([found["gamma"], found["mu"], found["tau"]], [0.02, 0.2, 0.7])
    np.testing.assert_allclose(found["sigma"], 1 / found["mu"])
    found = at("opf", "experiment", nu=2.0)
    np.testing.assert_allclose([found["gamma"], found["mu"]], [2 * K ** (-2 / 3), 2 * K ** (-1 / 3)])
    found = at("morbit", "auto", nu=3.0)
    np.testing.assert_allclose([found[name] for name in ("alpha", "tau", "sigma")], [K**-0.4, *[3 * K**-0.6] * 2])


def test_the_regime_is_found_from_the_constants():
    of = lambda method, **upper: theory.steps_for(bs.Constants(1.0, 2.0, **upper), method, K=10).regime
    assert of("opf", L_yy=0.0) == "linear" and of("opf", L_yy=1.0) == "concave"
    assert of("opf", L_yy=1.0, mu_y=0.5) == "concave"
    assert of("fp", L_yy=0.0) == "concave" and of("fp", L_yy=1.0, mu_y=0.5) == "strongly-concave"
    plan = theory.steps_for(bs.Constants(1.0, 2.0, 1.0), "fp", eps=0.1)
    assert plan.K == 8 * 10**5 and "Corollary 5.5" in str(plan) and "mu = " in str(plan)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "sgd", "K": 1}, "method must be one of opf, fp, morbit, given 'sgd'"),
        ({"regime": "convex", "K": 1}, "regime must be one of auto, linear"),
        ({}, "needs K or eps, and not both"),
        ({"K": 1, "eps": 1.0}, "needs K or eps, and not both"),
        ({"K": 0}, "K must be a finite number of steps >= 1, given 0"),
        ({"eps": -1.0}, "eps must be finite and > 0, given -1.0"),
        ({"method": "opf", "regime": "strongly-concave", "K": 1}, "no 'strongly-concave' schedule"),
        ({"method": "fp", "regime": "linear", "K": 1}, "no 'linear' schedule"),
        ({"method": "opf", "regime": "linear", "K": 1}, "is for f linear in y, given L_yy = 1: its sigma = 1 / mu"),
        ({"method": "fp", "regime": "strongly-concave", "K": 1}, "needs mu_y > 0, given 0"),
        ({"method": "fp", "K": 1, "nu": 2.0}, 'nu scales the schedules of regime="experiment" only'),
        ({"method": "opf", "K": 1, "tau": 2.0}, 'tau is a step size of method="fp" only'),
        ({"method": "fp", "K": 1, "tau": 0.0}, "tau must be finite and > 0, given 0.0"),
        ({"method": "morbit", "K": 1, "regime": "linear"}, 'experiment" only'),
    ],
)
def test_bad_requests_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        theory.steps_for(bs.Constants(1.0, 2.0, 1.0), **arguments)


def test_missing_constants_are_named():
    with pytest.raises(ValueError, match="the constants mu_g, L_g are needed, given None; use bs.Constants"):
        theory.steps_for(bs.Constants(L_yy=1.0), "opf", K=10)
    with pytest.raises(ValueError, match="the constants L_yy are needed"):
        theory.steps_for(bs.Constants(1.0, 2.0), "opf", K=10)


def test_iterations_with_and_without_constants():
    known = bs.Constants(1.0, 4.0, 1.0)
    np.testing.assert_allclose(theory.iterations_for(known, 0.1, "opf").order, 64e4 + 1024e2)
    np.testing.assert_allclose(theory.iterations_for(known, 0.1, "fp").order, 64e5)
    np.testing.assert_allclose(theory.iterations_for(bs.Constants(1.0, 4.0, 0.0), 0.1, "opf").order, 256e3)
    strong = bs.Constants(1.0, 4.0, 1.0, mu_y=1.0)
    np.testing.assert_allclose(theory.iterations_for(strong, 0.1, "fp").order, 64e4 + 4**7 * 1e2)
    data, start, half = family.draw(0, "linear", kappa=1.5)
    problem = family.problem_of(data, half, family.constants(data, start, half))
    point = family.point_of(start)
    found = theory.iterations_for(problem, 0.5, "opf", start=point)
    K = int(found.bound)
    at = lambda K: theory.bound(problem, theory.steps_for(problem, "opf", K=K), K, point).total
    assert at(K) <= 0.5 < at(int(K * (1 - 1e-5))) and "with every constant" in str(found)
    with pytest.raises(ValueError, match="with a start needs a Problem"):
        theory.iterations_for(known, 0.1, "opf", start=point)


def test_bound_refuses_steps_that_the_theorems_exclude():
    data, start, half = family.draw(0, "concave")
    known = family.constants(data, start, half)
    problem, point = family.problem_of(data, half, known), family.point_of(start)
    good = numbers(theory.steps_for(problem, "opf", K=100))
    for change, message in (
        ({"alpha": 3 / float(known.L_g)}, "alpha <= 2 / "),
        ({"sigma": 3 / float(known.L_yy)}, "the ascent must contract"),
        ({"mu": 0.0}, "the ascent must contract"),
        ({"gamma": 0.0}, "bound needs gamma > 0"),
        ({"gamma": bs.schedules.Power(1.0, -0.5)}, "for constant step sizes, given gamma as Power"),
    ):
        with pytest.raises(ValueError, match=message):
            theory.bound(problem, bs.StepSizes(**good | change), 100, point, method="opf")
    with pytest.raises(ValueError, match='bound needs method="opf"'):
        theory.bound(problem, bs.StepSizes(**good), 100, point)
    lacking = dataclasses.replace(problem, constants=bs.Constants(1.0, 2.0, 1.0))
    with pytest.raises(ValueError, match="the constants L_xx, .* are needed"):
        theory.bound(lacking, bs.StepSizes(**good), 100, point, method="opf")


# -- schedules without K ---------------------------------------------------------------------------------------------


def test_doubling_keeps_each_value_for_its_epoch():
    schedule = theory.Doubling(3.0, -0.5, first=4)
    k = jnp.arange(4 * 31)
    lengths = np.repeat([4, 8, 16, 32, 64], [4, 8, 16, 32, 64])
    np.testing.assert_allclose(jax.vmap(schedule)(k), 3 / np.sqrt(lengths), rtol=1e-12)
    np.testing.assert_allclose(theory.Doubling(1.0, 1.0, first=3)(jnp.asarray(2**31 - 10)), 3.0 * 2**29)


@pytest.mark.parametrize("kind", ["decreasing", "doubling"])
@pytest.mark.parametrize(
    ("method", "upper"),
    [("opf", {"L_yy": 2.0}), ("opf", {"L_yy": 0.0}), ("fp", {"L_yy": 2.0}), ("fp", {"L_yy": 2.0, "mu_y": 0.5})],
)
def test_anytime_steps_are_the_corollaries_with_k_for_K(method, upper, kind):
    known = bs.Constants(0.5, 4.0, **upper)
    plan = theory.anytime_steps(known, method, kind=kind, first=8)
    assert plan.K is None and plan.promise.source.startswith("ours, after Corollary")
    for k in (0, 5, 1000, 10**6):
        K = k + 1 if kind == "decreasing" else 8 * 2 ** int(np.floor(np.log2(k / 8 + 1)))
        fixed = numbers(theory.steps_for(known, method, K=K))
        for name, value in plan.steps.at(jnp.asarray(k)).items():
            np.testing.assert_allclose(value, fixed[name], rtol=1e-9, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["decreasing", "doubling"])
def test_anytime_steps_drive_the_gap_down(kind):
    data, start, half = family.draw(0, "concave", kappa=2.0)
    problem = family.problem_of(data, half, family.constants(data, start, half))
    plan = theory.anytime_steps(problem, "opf", kind=kind)
    method = bs.methods.OneSidedProjectionFree(plan.steps)
    result = bs.solve(problem, family.point_of(start), method, tol=None, max_steps=20_000, measure="lmo")
    gap = np.minimum.accumulate(result.trace.gap)
    assert gap[-1] < 0.6 * gap[len(gap) // 20]


def test_anytime_refusals():
    known = bs.Constants(1.0, 2.0, 1.0)
    with pytest.raises(ValueError, match="for others use steps_for with a K"):
        theory.anytime_steps(known, "morbit")
    with pytest.raises(ValueError, match="kind must be one of decreasing, doubling"):
        theory.anytime_steps(known, "opf", kind="random")
    with pytest.raises(ValueError, match="first must be a whole number"):
        theory.anytime_steps(known, "opf", kind="doubling", first=0)
    with pytest.raises(ValueError, match="tau is a step size > 0"):
        theory.anytime_steps(known, "opf", tau=1.0)
