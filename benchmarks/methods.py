"""All methods on a fixed set of problems: gap against oracle calls and against seconds.

    python benchmarks/methods.py [--only PROBLEM ...] [--out docs]

Every method gets the same 8 values of nu, the factor of its step sizes (the rules are in method_cases.py). The value
with the lowest mean log10 gap along the run, over the training seeds, is run on the held-out seeds, whose medians the
tables report. A run has at most 10000 steps and 4 seconds, without the gaps; calls are gradients of f or g, Hessian and
cross products. The gap of every method is the projection form at the exact lower solution, the best so far.
Writes benchmark_methods.md and one picture for each class of problems.
"""

import argparse
import time
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from method_cases import BATCHES, CASES, RULES, SAMPLED, Case, K
from pictures import save_svg

import bisaddle as bs
from bisaddle.methods.base import HostMethod, able, public_methods
from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels
from bisaddle.report.figures import line_of
from bisaddle.report.style import looks_of
from bisaddle.run.blocks import advance

jax.config.update("jax_enable_x64", True)
GRID = np.logspace(-2, 2.5, 8)
TRAINING, HELD_OUT = (0, 1), (100, 101, 102)
SECONDS = 4.0
GOALS = (1e-2, 1e-4)
FLOOR = 1e-8  # no run goes on below it
LOOKS = np.unique(np.geomspace(1, K, 100).round().astype(int))  # the steps after which the gap is computed


class Curve(NamedTuple):
    """One run: the best gap so far, and what it took."""

    gap: np.ndarray
    calls: np.ndarray
    seconds: np.ndarray
    status: str

    def to_reach(self, goal: float) -> tuple[float, float]:
        """(calls, seconds) at the first record within the goal, infinite if there is none."""
        within = np.flatnonzero(self.gap <= goal)
        return (self.calls[within[0]], self.seconds[within[0]]) if within.size else (np.inf, np.inf)

    def score(self) -> float:
        """The mean of log10(gap) over the logarithm of the calls: low for a run that is early and ends low."""
        grid = np.geomspace(10, 10 * K, 60)
        at = np.clip(np.searchsorted(self.calls, grid, side="right") - 1, 0, None)
        return float(np.mean(np.log10(np.maximum(self.gap[at], FLOOR))))


class Row(NamedTuple):
    """What a method did on the held-out seeds of a problem, with the nu it was given."""

    method: str
    nu: float
    curves: tuple[Curve, ...]
    refusal: str = ""

    def median(self, goal: float) -> tuple[float, float]:
        calls, seconds = np.median([curve.to_reach(goal) for curve in self.curves], axis=0)
        return calls, seconds

    @property
    def last(self) -> float:
        return float(np.median([curve.gap[-1] for curve in self.curves])) if self.curves else np.inf


def gap_at(kernels: Kernels, x: np.ndarray, theta: np.ndarray, y: np.ndarray) -> float:
    """The projection form of the gap at the exact lower solution, without the error bounds of a certificate."""
    exact = Implicit(kernels, x, theta, y)
    gap = norm(x - kernels.x_set.project(x - exact.Gx))
    return gap if kernels.y_set is None else gap + norm(y - kernels.y_set.project(y + exact.upper.f_y))


def timed(problem: bs.Problem, method: bs.methods.Method, state: bs.methods.State, steps: int):
    clock = time.perf_counter()
    state = jax.block_until_ready(advance(problem, method, state, steps))
    return state, time.perf_counter() - clock


def run_on_host(problem: bs.Problem, start: bs.Point, method: HostMethod) -> Curve:
    """A method that is driven from the host, compiled by a first run."""
    kernels = Kernels(problem, start)
    for _ in islice(method.looks(problem, kernels, *kernels.flat(start)), 50):
        pass
    looks, seconds, rows = method.looks(problem, kernels, *kernels.flat(start)), 0.0, []
    for k in LOOKS:
        clock = time.perf_counter()
        look = next(look for look in looks if look.k >= k)
        seconds += time.perf_counter() - clock
        gap = gap_at(kernels, look.x, look.theta, look.y)
        rows.append((gap, look.counts.gradients + look.counts.hvps + look.counts.cross_products, seconds))
        if gap <= FLOOR or seconds > SECONDS:
            break
    gaps, calls, times = np.array(rows).T
    return Curve(np.minimum.accumulate(gaps), calls, times, "")


def run(case: Case, rule: str, nu: float, seed: int) -> Curve:
    problem, start = case.make(seed)
    options = {"sampler": BATCHES, "seed": seed} if case.sampled else {}
    method = RULES[rule](problem, nu, **options)
    if isinstance(method, HostMethod):
        return run_on_host(problem, start, method)
    kernels, state = Kernels(problem, start), method.init(problem, start)
    calls_alone = [timed(problem, method, state, 0)[1] for _ in range(6)]  # the first one compiles
    seconds, rows, status = 0.0, [], ""
    for k in LOOKS:
        state, elapsed = timed(problem, method, state, k - int(state.k))
        seconds += max(elapsed - min(calls_alone), 0.0)
        gap, counts = gap_at(kernels, *kernels.flat(state.point)), method.counts(problem, state)
        if not gap < 1e12:
            status = "diverged"
            break
        rows.append((gap, counts.gradients + counts.hvps + counts.cross_products, seconds))
        if gap <= FLOOR or seconds > SECONDS:
            break
    gaps, calls, times = np.array(rows or [(np.inf, 1, seconds)]).T
    return Curve(np.minimum.accumulate(gaps), calls, times, status)


def tuned(case: Case, rule: str) -> Row:
    try:
        scores = [np.mean([run(case, rule, nu, seed).score() for seed in TRAINING]) for nu in GRID]
    except ValueError as error:
        return Row(rule, np.nan, (), str(error).split(";")[0])
    nu = float(GRID[int(np.argmin(scores))])
    return Row(rule, nu, tuple(run(case, rule, nu, seed) for seed in HELD_OUT))


def rules_for(case: Case) -> list[str]:
    names = able(case.make(TRAINING[0])[0])
    return [rule for rule in RULES if rule.split(",")[0] in names and (not case.sampled or rule in SAMPLED)]


def seconds_order(row: Row) -> tuple:
    return (*(row.median(goal)[1] if row.curves else np.inf for goal in GOALS), row.last)


def table(name: str, case: Case, rows: list[Row]) -> str:
    heads = ["method", "nu", "s to 1e-2", "s to 1e-4", "calls to 1e-2", "calls to 1e-4", "gap at the end"]
    lines = [f"### {name}", "", f"{case.words}.", "", "| " + " | ".join(heads) + " |", "|---" + "|---:" * 6 + "|"]
    number = lambda value: f"{value:.2g}" if value < 100 else f"{value:.0f}"
    for row in rows:
        if not row.curves:
            lines.append(f"| {row.method} | refused: {row.refusal} | | | | | |")
            continue
        (calls_2, seconds_2), (calls_4, seconds_4) = (row.median(goal) for goal in GOALS)
        cells = [number(value) if np.isfinite(value) else "-" for value in (seconds_2, seconds_4, calls_2, calls_4)]
        edge = "*" if row.nu in (GRID[0], GRID[-1]) and row.method not in ("SPFW, 2/(2+m)", "Adaptive") else ""
        failed = sum(curve.status == "diverged" for curve in row.curves)
        note = f" ({failed} of {len(row.curves)} diverged)" if failed else ""
        lines.append(f"| {row.method} | {row.nu:.2g}{edge} | {' | '.join(cells)} | {row.last:.1e}{note} |")
    return "\n".join(lines) + "\n"


def draw(kind: str, found: dict[str, list[Row]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": kind, "font.size": 10}
    import matplotlib.pyplot as plt

    names = sorted({row.method for rows in found.values() for row in rows if row.curves}, key=list(RULES).index)
    style = {name: line_of(look) | {"linewidth": 1.3} for name, look in looks_of(names).items()}
    figure, axes = plt.subplots(
        2, len(found), figsize=(4.2 * len(found), 8.6), sharey="col", squeeze=False, layout="constrained"
    )
    for column, (name, rows) in enumerate(found.items()):
        for row in rows:
            if not row.curves:
                continue
            curve = sorted(row.curves, key=lambda curve: curve.gap[-1])[len(row.curves) // 2]
            for axis, cost in ((axes[0, column], curve.calls), (axes[1, column], curve.seconds)):
                spent = cost > 0
                axis.loglog(cost[spent], np.maximum(curve.gap[spent], FLOOR), **style[row.method], markevery=0.2)
        axes[0, column].set_title(name, fontsize=11)
        axes[0, column].set_xlabel("oracle calls")
        axes[1, column].set_xlabel("seconds")
        for axis in axes[:, column]:
            axis.grid(True, which="major", color="0.92")
            axis.minorticks_off()
            for goal in GOALS:
                axis.axhline(goal, color="0.75", linewidth=0.8)
    for axis in axes[:, 0]:
        axis.set_ylabel("gap, best so far")
    handles = [plt.Line2D([], [], **style[name], label=name) for name in names]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(found) + 1, fontsize=9, frameon=False)
    title = f"{kind[0].upper()}{kind[1:]} problems: a median run on held-out seeds"
    figure.suptitle(title, fontsize=12)
    save_svg(figure, path)


HEADER = """# Benchmark of the methods

Made by `python benchmarks/methods.py`: do not edit. Every method is tried with the same 8 values of one number nu,
which scales its step sizes by a rule in `benchmarks/method_cases.py`. The value that is best on the training seeds
{training} is run on the held-out seeds {held_out}, and the tables show medians over these. Gap: projection form
(Definition 2.2, sigma = tau = 1) at the exact lower solution, the best so far. Calls: gradients of f or g, Hessian and
cross products; computing the gap is not counted. Seconds: of the compiled method on two cores, without compilation,
gaps and calls from Python. A run has at most {steps} steps and {seconds:g} s. `-`: not reached by the median run. `*`:
the best nu is an end of the grid. Sorted by the time to 1e-2, then to 1e-4, then the gap at the end. Each table is one
family of instances; on other problems the order may differ. A gap of exactly 0 in Experiment 1 is a degenerate corner
(one task has all the weight, and lam = 1 for it), not a solution.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=list(CASES), choices=list(CASES), metavar="PROBLEM")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "docs")
    options = parser.parse_args()
    forgotten = set(public_methods()) - {rule.split(",")[0] for rule in RULES}
    if forgotten:
        raise SystemExit(f"method_cases.py has no rule for {', '.join(sorted(forgotten))}")
    page = HEADER.format(training=TRAINING, held_out=HELD_OUT, steps=K, seconds=SECONDS)
    by_kind: dict[str, dict[str, list[Row]]] = {}
    for name in options.only:
        case, began = CASES[name], time.perf_counter()
        by_kind.setdefault(case.kind, {})[name] = sorted((tuned(case, r) for r in rules_for(case)), key=seconds_order)
        print(table(name, case, by_kind[case.kind][name]), f"{time.perf_counter() - began:.0f} s\n", flush=True)
    for kind, found in by_kind.items():
        picture = f"benchmark_{kind.replace(' ', '_')}.svg"
        page += f"\n## {kind[0].upper()}{kind[1:]} problems\n\n![gap against calls and seconds]({picture})\n"
        page += "".join("\n" + table(name, CASES[name], rows) for name, rows in found.items())
        draw(kind, found, options.out / picture)
    (options.out / "benchmark_methods.md").write_text(page)


if __name__ == "__main__":
    main()
