"""Aimed attacks: points that must not be certified, in many variations, and how many are.

Each attack is a function from a NumPy generator to an Attack. A certificate is wrong if it is within a tolerance that
the point does not meet; a run is wrong if it ends CERTIFIED at a point that the audit refutes.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from benchmarks.stress.problems import why_false
from bisaddle import sets

# one in so many is solved too
SOLVED = 5


class Attack(NamedTuple):
    """gap: the true one where it is known; None: no gap makes the point stationary, or the audit has to say."""

    problem: bs.Problem
    point: bs.Point
    tol: float
    measure: str = "projection"
    gap: float | None = None
    hopeless: bool = True
    method: Any = None


# -- a: a point outside X, whose negative gap hides that of y ---------------------------------------------------------


def steep(x, theta, y, data):
    return jnp.sum(data["slope"] * x) + data["tilt"] * y[0]


def negative_gap(rng: np.random.Generator) -> Attack:
    """x outside a ball by `out` makes max_s <Gx, x - s> = -|Gx| out, which is as large as the gap of y, or nearly."""
    slope, tilt = rng.normal(size=3) * 10 ** rng.uniform(3, 8), rng.uniform(0.01, 0.5)
    out = tilt * rng.uniform(0.9, 1.5) / np.linalg.norm(slope)
    tol = max(1e-6, 2 * out)
    radius = rng.uniform(0.5, 2.0)
    x = -(radius + out) * slope / np.linalg.norm(slope)
    problem = bs.Problem(steep, None, sets.L2Ball(radius), sets.Box(-1.0, 1.0), {"slope": slope, "tilt": tilt})
    return Attack(problem, bs.Point(x, None, np.zeros(1)), tol, "lmo", tilt)


# -- b: lower levels that are not convex, too large for dense matrices ------------------------------------------------


def near_one(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + 0.5 * jnp.mean(data["seen"] * (data["basis"] @ theta - 1) ** 2)


def bent(x, theta, data):
    turned = data["basis"] @ theta
    return 0.5 * jnp.sum(data["h"] * turned**2) - 0.1 * x[0] * jnp.sum(data["seen"] * turned)


def indefinite(rng: np.random.Generator) -> Attack:
    """A saddle of g; f and the coupling see the directions of negative curvature fully, hardly, or not at all."""
    n, count = int(rng.choice([150, 200])), rng.integers(1, 5)
    h, seen = rng.uniform(0.5, 2.0, n), np.ones(n)
    h[:count] = -(10 ** rng.uniform(-3, 1))
    seen[:count] = rng.choice([0.0, 10 ** rng.uniform(-15, -6), 1.0], p=[0.6, 0.3, 0.1])
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0] if rng.random() < 0.7 else np.eye(n)
    slope = 0.1 * seen / h  # of the stationary point of g in x, in turned coordinates
    # where the total derivative of 0.5 x^2 + 0.5 mean seen (slope x - 1)^2 vanishes
    best = np.clip(np.mean(seen * slope) / (1 + np.mean(seen * slope**2)), -1, 1)
    claims = bs.Constants(mu_g=0.1, L_g=3.0) if rng.random() < 0.3 else None
    data = {"h": h, "basis": basis, "seen": seen}
    problem = bs.Problem(near_one, bent, sets.Box(-1.0, 1.0), None, data, claims)
    # the default method looks at the Hessian first; one with step sizes goes on
    method = bs.methods.FullyProjected(bs.StepSizes(alpha=0.1, eta=0.1, gamma=0.5, tau=0.1))
    return Attack(problem, bs.Point(np.array([best]), basis.T @ (slope * best)), 1e-6, method=method)


# -- c: f that is not concave in y ------------------------------------------------------------------------------------


def curved(x, theta, y, data):
    return 0.5 * jnp.sum(x**2) + 0.5 * y @ data["D"] @ y + data["wave"] * jnp.sum(jnp.cos(data["pace"] * y) - 1)


def nonconcave(rng: np.random.Generator) -> Attack:
    """y = 0 is stationary, and curvature points up in one direction at least, there or elsewhere in the box."""
    n = 4
    basis = np.linalg.qr(rng.normal(size=(n, n)))[0]
    bends = -rng.uniform(0.0, 2.0, n)
    wave = 0.0
    if rng.random() < 0.7:
        bends[: rng.integers(1, n + 1)] = 10 ** rng.uniform(-2, 1)
    else:  # concave at 0 and not further out
        wave = rng.uniform(1.0, 3.0)
    D = basis @ np.diag(bends) @ basis.T
    data = {"D": 0.5 * (D + D.T), "wave": np.float64(wave), "pace": np.float64(4.0)}
    problem = bs.Problem(curved, None, sets.Box(-1.0, 1.0), sets.Box(-1.0, 1.0), data)
    return Attack(problem, bs.Point(np.zeros(2), None, np.zeros(n)), 1e-6)


# -- d: the tolerance of a set ----------------------------------------------------------------------------------------


def pulled(x, theta, y, data):
    return 0.5 * jnp.sum((x - data) ** 2)


def coarse_set(rng: np.random.Generator) -> Attack:
    """A point at the boundary of an intersection, near the solution of a projection problem."""
    radius = rng.uniform(0.5, 2.0)
    parts = [sets.L1Ball(radius), sets.L2Ball(radius * rng.uniform(0.6, 0.95))]
    tolerance = float(rng.choice([1e-9, 1e-6, 1e-2]))
    x_set = sets.Intersection(parts, tolerance=tolerance)
    target = 10 ** rng.uniform(-0.5, 2) * rng.normal(size=4)
    x = np.asarray(x_set.project(target + 0.1 * rng.normal(size=4))) * (1 - 1e-3 * rng.random())
    return Attack(bs.Problem(pulled, None, x_set, None, target), bs.Point(x), 1e-6, hopeless=False)


# -- f: rounding inside f ---------------------------------------------------------------------------------------------


def cancelling(x, theta, y, data):
    lost = lambda v: (v + data["offset"]) - data["offset"]
    return 0.5 * jnp.sum((lost(x) - data["target"]) ** 2) - 0.5 * jnp.sum(lost(y) ** 2)


def cancellation(rng: np.random.Generator) -> Attack:
    """(x + o) - o with o from 1e6 to 1e14: the true gap is that of o = 0."""
    target = rng.uniform(-0.9, 0.9, 3)
    data = {"target": target, "offset": np.float64(10 ** rng.uniform(6, 14))}
    x = target + rng.normal(size=3) * 10 ** rng.uniform(-12, -2)
    y = rng.normal(size=2) * 10 ** rng.uniform(-12, -2)
    problem = bs.Problem(cancelling, None, sets.Box(-1.0, 1.0), sets.Box(-1.0, 1.0), data)
    gap = float(np.linalg.norm(x - target) + np.linalg.norm(y))
    return Attack(problem, bs.Point(x, None, y), 1e-6, gap=gap, hopeless=False)


ATTACKS: dict[str, Callable[[np.random.Generator], Attack]] = {
    "a: outside X": negative_gap,
    "b: indefinite g": indefinite,
    "c: f not concave": nonconcave,
    "d: coarse sets": coarse_set,
    "f: cancellation": cancellation,
}


class Verdict(NamedTuple):
    """certified: within a tolerance that the point does not meet; broken: the gap is further off than is admitted."""

    certified: bool
    broken: bool
    called_bound: bool


def judge(attack: Attack) -> Verdict:
    """Where the point meets some tolerances, the one between what the certificate admits and the true gap is tried."""
    given = bs.certify(attack.problem, attack.point, measure=attack.measure)
    if attack.hopeless:
        return Verdict(given.within(attack.tol), False, given.error_is_bound)
    true, unsure = attack.gap, 0.0
    if true is None:
        audit = bs.audit(attack.problem, attack.point, measure=attack.measure)
        true, unsure = audit.gap, audit.uncertainty
    broken = not abs(given.gap - true) <= given.error_bound + unsure
    between = 0.5 * (given.gap + given.error_bound + true - unsure)
    certified = true - unsure > between * (1 + 1e-12) and given.within(between)
    return Verdict(bool(certified), bool(broken), given.error_is_bound)


def solved_wrongly(attack: Attack) -> bool | None:
    """Whether a run from there ends CERTIFIED at a point that the audit refutes; None where the start is refused."""
    limits: dict[str, Any] = {"tol": attack.tol, "max_steps": 50, "measure": attack.measure, "progress": False}
    try:
        result = bs.solve(attack.problem, attack.point, attack.method, **limits)
    except ValueError:
        return None
    if str(result.status) != "CERTIFIED":
        return False
    return bool(why_false(bs.audit(attack.problem, result.point, measure=attack.measure), attack.tol))


def run_attack(name: str, count: int, seed: int = 0) -> dict[str, Any]:
    counts = dict.fromkeys(("tried", "certified", "broken", "called bound", "solved", "refused", "solved wrongly"), 0)
    for i in range(count):
        attack = ATTACKS[name](np.random.default_rng([seed, *name.encode(), i]))
        verdict = judge(attack)
        counts["tried"] += 1
        counts["certified"] += verdict.certified
        counts["broken"] += verdict.broken
        counts["called bound"] += (verdict.certified or verdict.broken) and verdict.called_bound
        if i % SOLVED == 0:
            ended = solved_wrongly(attack)
            counts["refused" if ended is None else "solved"] += 1
            counts["solved wrongly"] += bool(ended)
    return counts


def main(count: int) -> int:
    """count variations of every attack; the number of wrong certificates and runs."""
    failures = 0
    for name in ATTACKS:
        began = time.perf_counter()
        counts = run_attack(name, count)
        print(
            f"  {name:17} certify: {counts['certified']} of {counts['tried']} wrongly certified, {counts['broken']} "
            f"gaps off by more than admitted, {counts['called bound']} of these called bounds; solve: "
            f"{counts['solved wrongly']} of {counts['solved']} wrongly CERTIFIED, {counts['refused']} starts refused "
            f"({time.perf_counter() - began:.0f} s)",
            flush=True,
        )
        failures += counts["certified"] + counts["solved wrongly"]
    return failures
