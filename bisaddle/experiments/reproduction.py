"""REPRODUCTION.md from the JSON files alone: claims of section 6, what we see, where they hold or fail, and why."""

import math
import os
from collections import Counter
from pathlib import Path
from statistics import median_high
from typing import Any

from bisaddle.experiments import claims
from bisaddle.experiments.store import load, sensitivity_in
from bisaddle.report.files import write as write_file
from bisaddle.report.records import Run, Trial, runs_of
from bisaddle.report.style import called
from bisaddle.report.summary import Curves, Sets, curves, short, table
from bisaddle.report.verdict import ADAPTIVE, as_claimed, complete, verdict_of


def write(folder: str | os.PathLike, path: str | os.PathLike) -> Path:
    """Read results.json, and sensitivity.json if it is there, in a folder; write the page."""
    return write_file(path, text(load(folder), sensitivity_in(folder)))


def text(runs: list[dict[str, Any]], entries: list[dict[str, Any]]) -> str:
    """The page."""
    records, trials = runs_of(runs), [Trial.from_dict(entry) for entry in entries]
    found = curves(records)
    first, second = found.get("exp1", {}), found.get("exp2", {})
    parts = [
        _head(records),
        _verdicts(records, trials),
        "## Figure 1: Experiment 1, linear in the weights\n",
        _figure(first),
        claims.faster(first, trials),
        claims.fastest(first, trials),
        claims.inverse(first),
        claims.larger_steps(first),
        "## Figure 2: Experiment 2, a divergence penalty\n",
        _figure(second),
        claims.nonlinear(second),
        claims.printed_sigma(second),
        _corners(first),
        _extras(found),
        _unstated(trials),
        _rounding(found),
    ]
    return "\n".join(part.rstrip() + "\n" for part in parts if part)


def _head(runs: list[Run]) -> str:
    lines = [
        "# Section 6, reproduced",
        "",
        "Written by the tool from results.json and sensitivity.json: the numbers and the verdicts below are computed. "
        "`bisaddle reproduce all` makes them anew.",
    ]
    if not runs:
        return "\n".join([*lines, "", "There are no runs.", ""])
    config = runs[0].config
    labels = dict.fromkeys(run.dataset_label for run in runs)
    seeds = ", ".join(str(seed) for seed in sorted({run.seed for run in runs}))
    steps = ", ".join(str(k) for k in sorted({run.steps for run in runs}))
    versions = ", ".join(f"{name} {version}" for name, version in config["versions"].items())
    shared = [
        f"{key} {', '.join(dict.fromkeys(str(run.config[key]) for run in runs))}"
        for key in ("radius", "ridge", "start", "precision")
    ]
    scaled = dict.fromkeys(" and ".join(run.config["data"]["standardize"]) or "nothing" for run in runs)
    lines += [
        "",
        f"Data: {'; '.join(labels)}. Seeds {seeds}; K = {steps} steps. {versions}.",
        "",
        f"The configuration: {'; '.join(shared)}; standardised: {', '.join(scaled)}. The gap: Definition 2.1 with "
        f"sigma = {config['gap']['sigma']:g}, at the exact lower solution. nu: {config['tuning']}; values with gamma > "
        "1 left out. Faster means a lower mean log10 gap.",
    ]
    if any(run.config["quick"] for run in runs):
        lines += ["", "**A quick run, with fewer seeds, values of nu or steps: its verdicts are provisional.**"]
    if any(run.partial for run in runs):
        lines += ["", "**The run was interrupted: what was cut is left out below.**"]
    return "\n".join([*lines, ""])


def _verdicts(records: list[Run], trials: list[Trial]) -> str:
    found = verdict_of(records, trials)
    if found is None:
        return "## The claims in short\n\nNo run here tests a claim.\n"
    return f"## The claims in short\n\n{found.sentence}\n\n{table(found.head, found.rows)}\n"


def _figure(sets: Sets) -> str:
    if not sets:
        return "Not run.\n"
    head = ("data", "method", "nu", "gap at K", "best gap", "mean log10 gap", "worst task", "products/step", "corners")
    return (
        "Medians over the seeds; corners: seeds that end at a degenerate corner.\n\n"
        f"{table(head, (_row(data, c) for data, methods in sets.items() for c in methods.values()))}\n"
    )


def _row(data: str, c: Curves) -> tuple[str, ...]:
    nu = "" if c.first.nu is None else f"{c.first.nu:.3g}"
    end = short(c.median("gap")) + " (corner)" * (2 * c.corners > len(c.runs))  # then the median is of one
    gaps = (end, short(c.median("best_gap")), f"{c.score:.2f}", f"{c.median('worst_value'):.4f}")
    products = f"{c.first.config['products_per_step']:.3g}"
    return called(data), c.first.label, nu, *gaps, products, f"{c.corners} of {len(c.runs)}"


def _corners(first: Sets) -> str:
    if not first:
        return ""
    ended = [(data, c) for data, methods in first.items() for c in methods.values() if c.corners]
    lines = [
        "## Degenerate corners\n",
        "If all weight is on one task j and lambda_j is 1 (or 0), the gradient in x is 0 whatever x is: a gap of 0 "
        "there says that the corner was reached, not that x was fitted.\n",
    ]
    for data, c in ended:
        mine, others = c.median("worst_value"), _others(first[data])
        worse = "worse than" if mine > others else "not worse than"
        lines.append(
            f"* {called(data)}, {c.first.label}: {c.corners} of {len(c.runs)} seeds; worst task {mine:.4f}, {worse} "
            f"the best of the methods that end at none ({others:.4f})."
        )
    return "\n".join(lines if ended else [*lines, "No tuned run of Experiment 1 ends at one."]) + "\n"


def _others(methods: dict[str, Curves]) -> float:
    """The lowest median worst-task value of the methods that end at no corner; of all if all do."""
    free = [c for c in methods.values() if not c.corners] or list(methods.values())
    return min(c.median("worst_value") for c in free)


def _extras(found: dict[str, Sets]) -> str:
    lines = []
    for name in ("exp1", "exp2"):
        for data, methods in complete(found.get(name, {}), (ADAPTIVE,)).items():
            c = methods[ADAPTIVE]
            statuses = Counter(run.final.status for run in c.runs)
            said = ", ".join(f"{count} {status}" for status, count in statuses.items())
            steps = median_high(run.final.k for run in c.runs)
            products = median_high(run.curve.hvps[-1] for run in c.runs)
            lines.append(
                f"* {called(name)}, {called(data)}: Adaptive, {said}; gap {short(c.median('gap'))} after {steps} "
                f"steps and {products} products (medians)"
                + (f"; {c.corners} of {len(c.runs)} at a degenerate corner." if c.corners else ".")
            )
    for data, methods in found.get("frozen", {}).items():
        said = ", ".join(f"{c.first.label} {c.score:.2f}" for c in methods.values())
        lines.append(f"* lambda frozen at 1/2, {called(data)}: mean log10 gap {said}.")
    return "\n".join(["## Beyond the paper\n", *lines]) + "\n" if lines else ""


def _unstated(entries: list[Trial]) -> str:
    """How often the paper's order is found, value by value."""
    rows, fixed = [], []
    for data in dict.fromkeys(entry.dataset for entry in entries):
        mine = [entry for entry in entries if entry.dataset == data]
        for name in dict.fromkeys(key for entry in mine for key in entry.setting):
            values = dict.fromkeys(str(entry.setting[name]) for entry in mine)
            fixed += [f"{name} = {value} on {called(data)} data" for value in values if len(values) == 1]
            for value in values if len(values) > 1 else ():
                some = [entry for entry in mine if str(entry.setting[name]) == value]
                parts = [[entry for entry in some if (entry.cap is None) == free] for free in (False, True)]
                counts = [f"{sum(as_claimed(e.order) for e in part)} of {len(part)}" for part in parts]
                rows.append((called(data), name, value, *counts))
    head = ("data", "what section 6 leaves open", "value", "order OPF, FP, MORBiT with nu capped", "with nu free")
    note = f"\nHere {', '.join(fixed)} throughout.\n" if fixed else ""
    return f"## What section 6 leaves open\n\n{table(head, rows)}\n{note}" if rows else ""


def _rounding(found: dict[str, Sets]) -> str:
    """Curves whose digits depend on rounding: a second run of the same equations says which."""
    parted = [
        (called(name), data, c, [again.parted for again in c.reruns if again.parted is not None])
        for name, sets in found.items()
        for data, methods in sets.items()
        for c in methods.values()
        if len(c.reruns) == len(c.runs)
    ]
    if not parted:
        return ""
    total, count = sum(len(c.runs) for *_, c, _ in parted), sum(len(ks) for *_, ks in parted)
    lines = [
        "## Where rounding decides\n",
        "Each chosen run was made twice, in the sweep and by itself: the same equations, rounded differently. The gaps "
        f"of {total - count} of {total} pairs agree to six digits all the way; the others part:\n",
        *(
            f"* {name}, {called(data)}, {c.first.label}: {len(ks)} of {len(c.runs)} seeds, from step {min(ks)} on"
            f"; medians of the gap at K {short(c.median('gap'))} and {short(_median_alone(c))}."
            for name, data, c, ks in parted
            if ks
        ),
        "",
        "Compare medians there, not digits. What makes runs part is a jump: a best response in y between vertices of "
        "the simplex, or the LMO between vertices of X. A tie of the LMO: a component 0 of its direction takes lambda "
        "to its upper end, and of equal largest entries in x the first is taken.",
    ]
    return "\n".join(lines) + "\n"


def _median_alone(c: Curves) -> float:
    return median_high(math.inf if again.gap is None else again.gap for again in c.reruns)
