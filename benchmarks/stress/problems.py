"""Random problems, solved and audited: crashes, statuses, false certificates, error bounds that do not hold."""

import time
import traceback
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import bisaddle as bs
from benchmarks.stress.families import FAMILIES, Instance

MAX_STEPS = 150
# one problem that takes longer counts as a hang
LONGEST = 60.0


@dataclass
class Tally:
    """What was counted over one family. failures: in words, each a thing that must not be."""

    statuses: Counter = field(default_factory=Counter)
    bounds: Counter = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        statuses = ", ".join(f"{count} {status}" for status, count in self.statuses.most_common())
        held = lambda kind: f"{self.bounds[kind, True]} of {self.bounds[kind, True] + self.bounds[kind, False]}"
        return (
            f"{statuses}; error bound held {held('bound')}, estimate {held('estimate')}, worst value {held('worst')}; "
            f"{len(self.failures)} failures ({self.seconds:.0f} s)"
        )


def why_false(audit: Any, tol: float) -> str:
    """What the audit holds against a point said to be within tol; empty if nothing."""
    if not audit.refutes(tol):
        return ""
    reasons = {
        "g is not strongly convex": not audit.strongly_convex,
        "mu_g is too large": not audit.mu_g_holds,
        "f is not concave": not audit.concave,
        "outside its set": not audit.violation <= tol,
    }
    told = [reason for reason, holds in reasons.items() if holds]
    return ", ".join(told) or f"the gap is {audit.gap:.3g} + {audit.hidden:.1g} > tol {tol:.3g}"


def bound_holds(certificate: Any, audit: Any) -> bool | None:
    """Whether the two gaps differ by no more than they admit; None where the audit has no gap to compare."""
    if not (np.isfinite(audit.gap) and np.isfinite(audit.uncertainty) and np.isfinite(certificate.gap)):
        return None
    if np.isnan(certificate.error_bound):  # nothing is promised
        return True
    return bool(abs(certificate.gap - audit.gap) <= certificate.error_bound + audit.uncertainty)


def worst_holds(certificate: Any, audit: Any) -> bool | None:
    """Whether the worst value is within its error of the audit's, where it is called a bound of a concave f."""
    if not (certificate.error_is_bound and audit.sound and np.isfinite(audit.worst_value)):
        return None
    # the audit climbs from several starts, up to a gradient that is nothing beside the value
    unsure = 1e-9 * max(1.0, abs(audit.worst_value)) + audit.uncertainty
    return bool(abs(certificate.worst_value - audit.worst_value) <= certificate.worst_value_error + unsure)


def try_one(instance: Instance, tally: Tally, name: str) -> None:
    problem, start, tol, measure = instance
    began = time.perf_counter()
    try:
        result = bs.solve(problem, start, tol=tol, max_steps=MAX_STEPS, measure=measure, progress=False)
        audit = bs.audit(problem, result.point, measure=measure)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        tally.failures.append(f"{name}: {type(error).__name__}: {error} ({place.filename}:{place.lineno})")
        tally.statuses["raised"] += 1
        return
    if time.perf_counter() - began > LONGEST:
        tally.failures.append(f"{name}: took {time.perf_counter() - began:.0f} s")
    tally.statuses[str(result.status)] += 1
    if not isinstance(result.status, bs.Status):
        tally.failures.append(f"{name}: no status, {result.status!r}")
    if str(result.status) == "CERTIFIED" and (reason := why_false(audit, tol)):
        tally.failures.append(f"{name}: false CERTIFIED, {reason}")
    if (worst := worst_holds(result.certificate, audit)) is not None:
        tally.bounds["worst", worst] += 1
        if not worst:
            off, admitted = result.certificate.worst_value - audit.worst_value, result.certificate.worst_value_error
            tally.failures.append(f"{name}: the worst value is off by {off:.2g}, {admitted:.2g} is admitted")
    holds = bound_holds(result.certificate, audit)
    if holds is None:
        return
    kind = "bound" if result.certificate.error_is_bound else "estimate"
    tally.bounds[kind, holds] += 1
    if kind == "bound" and not holds:
        off, bound = abs(result.certificate.gap - audit.gap), result.certificate.error_bound
        tally.failures.append(f"{name}: the gap is off by {off:.2g}, the bound is {bound:.2g}")


def run_family(name: str, count: int, seed: int = 0) -> Tally:
    tally, began = Tally(), time.perf_counter()
    for i in range(count):
        rng = np.random.default_rng([seed, *name.encode(), i])
        try_one(FAMILIES[name](rng), tally, f"{name} {i}")
    tally.seconds = time.perf_counter() - began
    return tally


def main(count: int) -> int:
    """count problems, a tenth of each family; the number of failures."""
    failures, bounds = 0, Counter()
    for name in FAMILIES:
        tally = run_family(name, count // len(FAMILIES))
        bounds.update(tally.bounds)
        print(f"  {name:14} {tally}", flush=True)
        for failure, times in summary(tally.failures):
            print(f"      {times} x {failure}")
        failures += len(tally.failures)
    for kind, what in (("bound", "error bounds that are called bounds"), ("worst", "worst values with such a bound")):
        print(f"  {what}: {bounds[kind, True]} of {bounds[kind, True] + bounds[kind, False]} held", flush=True)
    return failures


def summary(failures: list[str]) -> list[tuple[str, int]]:
    """Failures of one kind together, each kind by its first example."""
    kinds: dict[str, list[str]] = {}
    for failure in failures:
        kinds.setdefault(failure.split(": ")[1].split("(")[0].split(" by ")[0][:60], []).append(failure)
    return [(group[0], len(group)) for group in kinds.values()]
