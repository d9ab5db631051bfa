"""The claims of section 6 in one table and one sentence; every word is chosen by the numbers of the runs."""

import math
from collections.abc import Callable, Sequence
from statistics import median_high
from typing import NamedTuple

from bisaddle.report.records import LEAST_GAP, Run, Trial
from bisaddle.report.style import PAPER
from bisaddle.report.summary import Curves, Sets, curves, order, verdict

Test = Callable[[Sequence[str]], bool]
ADAPTIVE = "adaptive"


def morbit_last(o: Sequence[str]) -> bool:
    return list(o[-1:]) == ["morbit"]


def opf_first(o: Sequence[str]) -> bool:
    return list(o[:1]) == ["opf"]


def as_claimed(o: Sequence[str]) -> bool:
    return tuple(o) == PAPER


def complete(sets: Sets, keys: tuple[str, ...]) -> Sets:
    """The data sets on which all these methods were run."""
    return {data: methods for data, methods in sets.items() if all(key in methods for key in keys)}


def fallen(c: Curves) -> float:
    """Orders of magnitude from the first record to the least gap, median over the seeds."""
    ends = [[max(gap or 0.0, LEAST_GAP) for gap in (run.curve.gap[0], run.final.best_gap)] for run in c.runs]
    return median_high(math.log10(start / least) for start, least in ends)


class Verdict(NamedTuple):
    """head, rows: the table, of texts. provisional: why the verdicts may change, or ""."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentence: str
    provisional: str


def verdict_of(runs: Sequence[Run], trials: Sequence[Trial]) -> Verdict | None:
    """None where the runs test no claim of the paper."""
    found = curves(runs)
    first, second = found.get("exp1", {}), found.get("exp2", {})
    full = complete(first, PAPER)
    pairs = [methods[key] for methods in second.values() for key in ("opf", "fp") if key in methods]
    if not {run.experiment.removesuffix(f"_{run.dataset}") for run in runs} & {"exp1", "exp2"}:
        return None
    fast = [fallen(c) >= 1 for c in pairs]
    counts = [_orders(full, test) for _, test in CLAIMS] + [(sum(fast), len(fast))]
    parts = [[trial for trial in trials if (trial.cap is None) == free] for free in (False, True)]
    rows = [
        (claim, "1", verdict(*_orders(full, test)), verdict(*_orders(_clear(full), test)), *_shares(parts, test))
        for claim, test in CLAIMS
    ]
    free = [not c.corners for c in pairs]
    clear = (sum(f and c for f, c in zip(fast, free, strict=True)), sum(free))
    rows.append((NONLINEAR, "2", verdict(*counts[-1]), verdict(*clear), "", ""))
    caps = ", ".join(dict.fromkeys(f"{trial.cap:g}" for trial in parts[0]))
    head = ("claim", "figure", "at the default, by data set", "corners aside")
    head += (f"settings, nu <= {caps or 'a cap'}", "settings, nu free")
    return Verdict(head, tuple(rows), f"{_claims_sentence(counts)}{_adaptive_sentence(found)}.", _provisional(runs))


CLAIMS: tuple[tuple[str, Test], ...] = (
    ("OPF and FP converge faster than MORBiT", morbit_last),
    ("OPF converges fastest of all", opf_first),
    ("both: the order OPF, FP, MORBiT", as_claimed),
)
NONLINEAR = "OPF and FP converge fast for f nonlinear in y (the gap falls tenfold)"


def _orders(sets: Sets, test: Test) -> tuple[int, int]:
    """On how many data sets a claim holds, of how many."""
    return sum(test(order(methods, PAPER, lambda c: c.score)) for methods in sets.values()), len(sets)


def _clear(sets: Sets) -> Sets:
    """The data sets on which no run that is compared ends at a degenerate corner, where a gap of 0 says nothing."""
    return {data: methods for data, methods in sets.items() if not any(methods[key].corners for key in PAPER)}


def _shares(parts: Sequence[Sequence[Trial]], test: Test) -> tuple[str, ...]:
    return tuple(f"{sum(test(e.order) for e in part)} of {len(part)}" if part else "not run" for part in parts)


def _claims_sentence(counts: Sequence[tuple[int, int]]) -> str:
    run = [(count, total) for count, total in counts if total]
    if not run:
        return "No claim of section 6 can be judged from these runs"
    every, none = sum(count == total for count, total in run), sum(count == 0 for count, _ in run)
    said = [f"{n} hold{'s' * (n == 1)} {where}" for n, where in ((every, "everywhere"), (none, "nowhere")) if n]
    some = len(run) - every - none
    said += [f"{some} hold{'s' * (some == 1)} on some data sets only"] * bool(some)
    return f"Of the {len(run)} claims of section 6 that were run, {_joined(said)} at our default settings"


def _adaptive_sentence(found: dict[str, Sets]) -> str:
    ours = [run for sets in found.values() for m in sets.values() if ADAPTIVE in m for run in m[ADAPTIVE].runs]
    if not ours:
        return ""
    certified = [run for run in ours if run.final.status == "CERTIFIED"]
    tols = ", ".join(sorted({f"{run.config['tol']:g}" for run in certified if "tol" in run.config}))
    most = f" to a gap of {tols} after at most {max(run.final.k for run in certified)} steps" if certified else ""
    stuck = sum(run.final.corner for run in certified)
    corners = f", {stuck} of them at a degenerate corner" if stuck else ""
    return f"; Adaptive, with nothing tuned, is certified{most} in {len(certified)} of {len(ours)} runs{corners}"


def _provisional(runs: Sequence[Run]) -> str:
    why = []
    if any(run.config.get("quick") for run in runs):
        why.append("a quick run, with fewer seeds, values of nu or steps")
    if any(run.partial for run in runs):
        why.append("it was interrupted")
    return f"Provisional: {_joined(why)}." if why else ""


def _joined(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else "".join(parts)
