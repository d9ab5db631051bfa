"""Adaptive on the instance families: is every answer certified, does a dense check agree, how many calls does it take?

    BISADDLE_DATA=folder python benchmarks/adaptive.py [--few] [--seeds training | held-out | both] [--out FILE.jsonl]
    python benchmarks/adaptive.py --hard
    python benchmarks/adaptive.py --inspect "lifted CB2 s3" --tol 1e-8

Every instance is solved to a gap of 1e-6 and to one of 1e-8, networks to 1e-3. The run to 1e-8 is recorded after every
step (less often for matrices of 300 x 200), and its calls are the gradients of f and g, Hessian and cross products up
to the first record within a goal. The gap of the answer is computed again by dense solves in NumPy (adaptive_dense.py).
Settings were chosen on training seeds; held-out seeds are run once. Without BISADDLE_DATA the real data are left out.
"""

import argparse
import json
import os
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads wait for each other when the cores are shared
import adaptive_data
import jax
import numpy as np
from adaptive_cases import HARD, cases, one_by_one
from adaptive_families import FAMILIES, Case

import bisaddle as bs
from bisaddle.methods.adaptive.method import Search
from bisaddle.oracle.kernels import Kernels

jax.config.update("jax_enable_x64", True)
GOALS = (1e-2, 1e-4, 1e-6, 1e-8)
TOLS = (1e-3, 1e-6, 1e-8)
STEPS = 20_000
SECONDS = 300.0  # certificates included; a run that takes longer has failed
EVERY = 1  # steps between two records of the run to 1e-8
LARGE = 10_000  # entries of x
PATIENCE = 100  # records within tol but for their error bound, then the run is given up
REAL = ("NLSY", "even", "natural")
# medians of calls in a NumPy prototype, on instances of its own drawn from the same families
PROTOTYPE = {
    "synthetic": (105, 316, 472, 618),
    "NLSY": (184, 490, 635, 753),
    "even": (316, 1536, 1898, 2058),
    "natural": (298, 1428, 2832, 3431),
    "logistic": (165, 371, 510, 637),
    "lifted": (219, 267, 297, 365),
}


class Run(NamedTuple):
    """One solve. gap: as bisaddle reports it, with its error bound; checked: the dense one; calls: to each goal.

    status ERROR BOUND: the gap met tol, gap and error bound together never did.
    """

    case: str
    family: str
    tol: float
    status: str
    steps: int
    gap: float
    checked: float
    calls: tuple[float, ...]
    spent: int
    seconds: float

    @property
    def certified(self) -> bool:
        return self.status == "CERTIFIED"

    @property
    def rejected(self) -> bool:
        """Certified, and the dense check disagrees."""
        return self.certified and not self.checked <= self.tol

    def __str__(self) -> str:
        verdict = "REJECTED by the dense check" if self.rejected else self.status
        gaps = f"gap {self.gap:.2e}, checked {self.checked:.2e}"
        return f"{self.case}, tol {self.tol:g}: {verdict}, {gaps}, {self.steps} steps, {self.spent} calls"


def run(case: Case, tol: float) -> Run:
    problem, start, check, measure = case.make()
    within = 0

    def uncertifiable(record: bs.Record) -> bool:
        """Only the error bound is in the way, and has been for long."""
        nonlocal within
        within = within + 1 if float(record.certificate.gap) <= tol else 0
        return within >= PATIENCE

    method = bs.methods.Adaptive(np.asarray(tol))
    clock = time.perf_counter()
    # only the run to the last goal is recorded closely, and not where a record takes longer than a step
    close = tol == TOLS[-1] and sum(leaf.size for leaf in jax.tree.leaves(start.x)) <= LARGE
    every = EVERY if close else None
    limits = {"max_steps": STEPS, "max_seconds": SECONDS, "every": every, "measure": measure}
    result = bs.solve(problem, start, method, tol=tol, **limits, callback=uncertifiable, progress=False)
    seconds = time.perf_counter() - clock
    trace = result.trace.certified
    calls = trace.gradients + trace.hvps + trace.cross_products
    best = np.fmin.accumulate(trace.gap)
    reached = [np.flatnonzero(best <= goal) for goal in GOALS]
    to_goals = tuple(float(calls[places[0]]) if places.size else float("inf") for places in reached)
    gap = float(result.gap + result.certificate.error_bound)
    checked = check(result.point)
    status = "ERROR BOUND" if within >= PATIENCE else str(result.status)
    return Run(str(case), case.family, tol, status, result.steps, gap, checked, to_goals, int(calls[-1]), seconds)


def measure(chosen: list[Case], out: Path | None) -> list[Run]:
    """All runs, instances of one structure together, its compiled programs dropped afterwards."""
    found = []
    for case in one_by_one(chosen):
        for tol in case.tols:
            found.append(run(case, tol))
            if found[-1].rejected or not found[-1].certified:
                print(found[-1], flush=True)
            if out is not None:
                with out.open("a") as file:
                    file.write(json.dumps(found[-1]._asdict()) + "\n")
    return found


def table(found: list[Run]) -> str:
    heads = ["family", "instances", *(f"certified {tol:g}" for tol in TOLS), "rejected"]
    heads += [f"calls to {goal:g}" for goal in GOALS]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    number = lambda value: f"{value:.0f}" if np.isfinite(value) else "-"
    for family in dict.fromkeys(row.family for row in found):
        rows = [row for row in found if row.family == family]
        tight = [row for row in rows if row.tol == min(row.tol for row in rows)]
        medians = np.median([row.calls for row in tight], axis=0)
        known = PROTOTYPE.get(family, ())
        cells = [number(m) + (f" ({known[i]})" if known else "") for i, m in enumerate(medians)]
        asked = [[row.certified for row in rows if row.tol == tol] for tol in TOLS]
        certified = [str(sum(counted)) if counted else "" for counted in asked]
        head = [family, str(len(tight)), *certified, str(sum(row.rejected for row in rows))]
        lines.append("| " + " | ".join(head + cells) + " |")
    return "\n".join(lines)


def summary(found: list[Run]) -> str:
    lines = [table(found), "", "In brackets: the prototype's medians, on its own draws.", ""]
    for tol in TOLS:
        rows = [row for row in found if row.tol == tol]
        if not rows:
            continue
        certified, rejected = sum(row.certified for row in rows), sum(row.rejected for row in rows)
        lines.append(f"tol {tol:g}: {certified} of {len(rows)} certified, {rejected} rejected by the dense check")
    failed = [f"  {row}" for row in found if row.rejected or not row.certified]
    return "\n".join([*lines, "", f"{len(failed)} failures", *failed])


def inspect(case: Case, tol: float, every: int, looks: int) -> None:
    """The state of the method along a run."""
    problem, start, *_ = case.make()
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    search = Search(kernels, x)
    for look in islice(search.from_start(x, theta, y, problem.constants.mu_g, tol), 0, every * looks, every):
        aim, centre, descent = search.aim, search.centre, search.descent
        gaps = search.gaps
        numbers = {"gap": gaps.both, "decrease": gaps.decrease, "lag": gaps.lag, "target": aim.target}
        numbers |= {"mu": centre.mu, "age": centre.age}
        numbers |= {"idle": centre.idle, "tau": descent.tau, "c_low": aim.c_low, "accuracy": aim.accuracy}
        numbers |= {"mu_g": search.here.inner.mu_g, "L_y": search.here.inner.L_y, "pairs": len(descent.pairs)}
        print(look.k, f"{search.here.value:.9g}", *(f"{name} {number:.3g}" for name, number in numbers.items()))


def named(name: str) -> Case:
    """A case by the name that it is printed with, or by its name among the hard ones."""
    every = [case for held_out in (False, True) for case in cases(held_out)]
    known = {str(case): case for case in every} | {str(case): case for case in HARD.values()} | HARD
    if name not in known:
        raise SystemExit(f"no instance is called {name!r}; one is {next(iter(known))!r}")
    return known[name]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--few", action="store_true", help="about 40 instances")
    parser.add_argument("--hard", action="store_true", help="the hard instances only")
    parser.add_argument("--seeds", choices=("training", "held-out", "both"), default="both")
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--match", default="", metavar="TEXT", help="only instances with this in their name")
    parser.add_argument("--out", type=Path, help="every run as a line of JSON, appended")
    parser.add_argument("--inspect", metavar="NAME", help="the states along a run of one instance")
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--looks", type=int, default=60)
    options = parser.parse_args()
    if options.inspect:
        return inspect(named(options.inspect), options.tol, options.every, options.looks)
    halves = {"training": (False,), "held-out": (True,), "both": (False, True)}[options.seeds]
    chosen = list(HARD.values()) if options.hard else [case for half in halves for case in cases(half, options.few)]
    if options.only:
        chosen = [case for case in chosen if case.family in options.only]
    chosen = [case for case in chosen if options.match in str(case)]
    if adaptive_data.folder() is None:
        print("BISADDLE_DATA is not set: the families of real data are left out")
        chosen = [case for case in chosen if case.family not in REAL]
    began = time.perf_counter()
    found = measure(sorted(chosen, key=lambda case: [str(part) for part in case.structure]), options.out)
    print(summary(found))
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
