"""Adaptive in float32 on the instance families: what is certified to 1e-4, and does a dense check in float64 agree?

    BISADDLE_DATA=folder python benchmarks/adaptive_float32.py [--seeds training | held-out] [--count 4] [--only ...]

Starts and data are cast to float32; jax_enable_x64 is on, so that certificates are in float64. The dense check is of
the problem before the cast: a point that is certified, and fails it, is counted as off. Networks are solved to 1e-3.
Matrices of 40 x 40 and 300 x 200 are left out.
"""

import argparse
import json
import os
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import adaptive_data
import jax
import numpy as np
from adaptive import REAL
from adaptive_cases import cases, one_by_one
from adaptive_families import FAMILIES, Case

import bisaddle as bs

TOL, STEPS, SECONDS = 1e-4, 20_000, 60.0
SLOW = ("300 x 200", "40 x 40")


class Single(NamedTuple):
    """One solve in float32; checked: the gap of its point in float64, by dense solves."""

    case: str
    family: str
    status: str
    steps: int
    gap: float
    error_bound: float
    checked: float
    seconds: float
    tol: float

    @property
    def off(self) -> bool:
        return self.status == "CERTIFIED" and not self.checked <= self.tol

    def __str__(self) -> str:
        gaps = f"gap {self.gap:.1e}, error bound {self.error_bound:.1e}, checked {self.checked:.1e}"
        return f"{self.case}: {self.status}, {gaps}, {self.steps} steps, {self.seconds:.1f} s"


def narrow(tree: Any) -> Any:
    """Every float64 array as a float32 one."""
    wide = lambda leaf: np.result_type(leaf) == np.float64
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32) if wide(leaf) else leaf, tree)


def run(case: Case, tol: float) -> Single:
    problem, start, check, measure = case.make()
    problem = replace(problem, data=narrow(problem.data))  # its noise is that of float64, as certificates are
    limits = {"max_steps": STEPS, "max_seconds": SECONDS}
    clock = time.process_time()
    result = bs.solve(problem, narrow(start), tol=tol, **limits, measure=measure, progress=False)
    seconds = time.process_time() - clock
    error = float(result.certificate.error_bound)
    numbers = result.steps, float(result.gap), error, check(result.point), seconds
    return Single(str(case), case.family, str(result.status), *numbers, tol)


def table(found: list[Single]) -> str:
    heads = [
        "family",
        "instances",
        "certified",
        "of them off in float64",
        "others",
        "largest error bound",
        "median steps",
    ]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
    for family in dict.fromkeys(row.family for row in found):
        rows = [row for row in found if row.family == family]
        counts = Counter(row.status for row in rows)
        off = sum(row.off for row in rows)
        others = ", ".join(f"{count} {status}" for status, count in counts.items() if status != "CERTIFIED")
        largest, steps = max(row.error_bound for row in rows), np.median([row.steps for row in rows])
        cells = [family, len(rows), counts["CERTIFIED"], off, others or "-", f"{largest:.1e}", f"{steps:.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", choices=("training", "held-out"), default="training")
    parser.add_argument("--only", nargs="+", choices=list(FAMILIES), metavar="FAMILY")
    parser.add_argument("--count", type=int, default=4, help="instances of a family")
    parser.add_argument("--tol", type=float, default=TOL)
    parser.add_argument("--match", default="", metavar="TEXT", help="only instances with this in their name")
    parser.add_argument("--out", type=Path, help="every run as a line of JSON, appended")
    options = parser.parse_args()
    chosen = []
    for family in options.only or FAMILIES:
        every = [case for case in cases(options.seeds == "held-out") if case.family == family]
        chosen += every[:: max(1, len(every) // options.count)][: options.count]
    if adaptive_data.folder() is None:
        print("BISADDLE_DATA is not set: the families of real data are left out")
        chosen = [case for case in chosen if case.family not in REAL]
    chosen = [case for case in chosen if not case.family.endswith(SLOW) and options.match in str(case)]
    found = []
    for case in one_by_one(chosen):
        tol = max(options.tol, min(case.tols))
        found.append(run(case, tol))
        if found[-1].status != "CERTIFIED" or found[-1].off:
            print(found[-1], flush=True)
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(found[-1]._asdict()) + "\n")
    print(table(found))


if __name__ == "__main__":
    main()
