"""The page and the picture of benchmarks/adaptive_compare.py, from its records."""

from pathlib import Path

import numpy as np
from adaptive_baselines import BASELINES, EXACT, MOST_CALLS, REDUCED, K
from pictures import save_svg

from bisaddle.report.figures import line_of
from bisaddle.report.style import looks_of

GOALS = (1e-2, 1e-4, 1e-6, 1e-8)
PROFILE_GOAL = 1  # the place of 1e-4
SAME, NOTHING = 1e-4, 1e-7  # worst-task values closer than this, relatively or at all, are equal
ADAPTIVE, STARTS = "Adaptive", "Adaptive, four starts"
METHODS = (ADAPTIVE, *BASELINES)
Found = dict[str, dict[str, dict]]  # case, then method: its record

HEADER = """# Adaptive against tuned methods

Made by `python benchmarks/adaptive_compare.py`: do not edit. The {count} of {chosen} chosen instances of the
families of `benchmarks/adaptive_families.py` on which every method has run:
{families}.
No choice in Adaptive was made on their seeds. Adaptive runs once, untuned, to a gap of 1e-8. Every other method runs
for {K} steps with each of 8 values of nu, and each number on this page uses the nu that is best for it: **tuned on
the instance and on the goal, in favour of the baselines**. All of them are given mu_g, the exact L_g, and
alpha = eta = 2 / (mu_g + L_g). No run may take more than {most} calls. Two choices followed a look at results: the
range of nu was moved up once, since the best values on eight of these instances lay at its upper end, and points
with lam = 0 were added to the degenerate ones.

Gap: projection form (Definition 2.2, sigma = tau = 1) at the exact lower solution, computed after every step at first
and every 50 steps later on; for Adaptive after every step. Calls: gradients of f or g, Hessian and cross products, as
the method counts them; computing the gap is not counted. An exact solve counts as d products, which give the Hessians
of all tasks, or as what conjugate gradients take at the start, if that is less.

Degenerate: every task with a weight has lam = 0 or lam = 1, so the gradient in the shared x is 0 whatever x is, and
the gap says nothing about x (lam free only). Such a point may well be stationary, and a few large steps can reach it;
the worst-task values tell whether it is any good.
"""


def by_case(rows: list[dict]) -> Found:
    """The instances on which every method has run."""
    found: Found = {}
    for row in rows:
        found.setdefault(row["case"], {})[row["method"]] = row
    return {case: runs for case, runs in found.items() if all(name in runs for name in METHODS)}


def calls_to(record: dict, goal: int, sound: bool = False, factor: float = 1.0) -> float:
    """The fewest calls of any nu to a goal, by its place; infinite if none met it. sound: no degenerate points."""
    met = [run["sound" if sound else "calls"][goal] for run in record["runs"]]
    met = [calls for calls in met if calls is not None]
    return factor * min(met, default=np.inf)


def lowest_worst(record: dict) -> float:
    """The lowest worst-task value that a run ended with, of any nu or start."""
    return min((value for value in record["worst"] if value is not None), default=np.inf)


def lines_of(heads: list[str], rows: list[list[str]]) -> str:
    rule = "|---" + "|---:" * (len(heads) - 1) + "|"
    return "\n".join(["| " + " | ".join(heads) + " |", rule, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def number(value: float) -> str:
    return f"{value:.0f}" if np.isfinite(value) else "-"


# --- calls ------------------------------------------------------------------------------------------------------------


def reached(found: Found, sound: bool) -> str:
    rows = []
    for name in METHODS:
        cells = []
        for goal in range(len(GOALS)):
            calls = np.array([calls_to(runs[name], goal, sound) for runs in found.values()])
            met = calls[np.isfinite(calls)]
            cells.append(f"{met.size} ({number(np.median(met))})" if met.size else "0")
        rows.append([name, *cells])
    return lines_of(["method", *(f"{goal:g}" for goal in GOALS)], rows)


def ratios(found: Found, sound: bool, cheapest: bool = False) -> str:
    """Calls of the baselines over calls of Adaptive, where both have met 1e-4.

    cheapest: an exact solve is one product; only the rows that this changes.
    """
    columns = {name: [] for name in (*BASELINES, "the best of them")}
    for runs in found.values():
        base = calls_to(runs[ADAPTIVE], PROFILE_GOAL, sound)
        price = {name: runs[name].get("cheapest", 1.0) if cheapest else 1.0 for name in BASELINES}
        every = {name: calls_to(runs[name], PROFILE_GOAL, sound, price[name]) for name in BASELINES}
        every["the best of them"] = min(every.values())
        for name, calls in every.items():
            if np.isfinite(calls) and np.isfinite(base):
                columns[name].append(calls / base)
    rows = []
    for name, values in columns.items():
        if cheapest and name in BASELINES and name not in (EXACT, REDUCED):
            continue
        cells = [f"{value:.3g}" for value in (np.median(values), min(values), max(values))] if values else ["-"] * 3
        below = str(sum(value < 1 for value in values))
        rows.append([name, str(len(values)), *cells, below])
    heads = ["method", "both reach 1e-4", "median ratio", "least", "most", "fewer calls than Adaptive"]
    return lines_of(heads, rows)


def edges(found: Found) -> str:
    """How often the nu with the fewest calls to 1e-4, degenerate points not counted, was the first or the last."""
    words = []
    for name in BASELINES:
        ends = 0
        for runs in found.values():
            met = [run["sound"][PROFILE_GOAL] or np.inf for run in runs[name]["runs"]]
            ends += int(np.isfinite(min(met)) and int(np.argmin(met)) in (0, len(met) - 1))
        words.append(f"{name} {ends}")
    return (
        "Instances on which the best nu for 1e-4 was an end of the grid, degenerate points not counted: "
        + ", ".join(words)
        + ".\n"
    )


# --- worst-task values ------------------------------------------------------------------------------------------------


def verdict(ours: float, other: float) -> int:
    """-1 if ours is lower, 0 if they are equal, 1 if the other is lower."""
    close = abs(ours - other) <= NOTHING + SAME * max(abs(ours), abs(other)) if np.isfinite(other) else False
    return 0 if close else (1 if other < ours else -1)


def tally(found: Found) -> str:
    rows = []
    for name in BASELINES:
        seen = [verdict(lowest_worst(runs[ADAPTIVE]), lowest_worst(runs[name])) for runs in found.values()]
        rows.append([name, *(str(seen.count(kind)) for kind in (-1, 0, 1))])
    return lines_of(["against", "Adaptive lower", "equal", "Adaptive higher"], rows)


def values(found: Found) -> str:
    rows = []
    for case, runs in found.items():
        ours = lowest_worst(runs[ADAPTIVE])
        cells = [_shown(ours, runs[ADAPTIVE]["end_degenerate"][0])]
        for name in BASELINES:
            other, record = lowest_worst(runs[name]), runs[name]
            place = record["worst"].index(other) if np.isfinite(other) else 0
            text = _shown(other, record["end_degenerate"][place])
            cells.append(f"**{text}**" if verdict(ours, other) == 1 else text)
        rows.append([case, *cells])
    return lines_of(["instance", *METHODS], rows)


def _shown(value: float, degenerate: bool) -> str:
    return (f"{value:.5g}" if np.isfinite(value) else "-") + ("°" if degenerate else "")


def starts(found: Found) -> str:
    rows = []
    for case, runs in found.items():
        if STARTS not in runs:
            continue
        record = runs[STARTS]
        certified = [status == "CERTIFIED" for status in record["status"]]
        pairs = list(zip(record["worst"], record["end_degenerate"], certified, strict=True))
        ours, flag, _ = min((pair for pair in pairs if pair[2]), default=(np.inf, False, False))
        spread = ", ".join(_shown(value, degenerate) for value, degenerate, _ in pairs)
        best = min(BASELINES, key=lambda name: lowest_worst(runs[name]))
        other = lowest_worst(runs[best])
        words = {-1: "below all", 0: "equal to the best", 1: "**above**"}[verdict(ours, other)]
        flag_other = runs[best]["end_degenerate"][runs[best]["worst"].index(other)]
        spent = sum(run["spent"] for run in record["runs"])
        rows.append([case, _shown(ours, flag), _shown(other, flag_other), best, words, spread, str(spent)])
    heads = ["instance", "four starts", "best baseline", "which", "Adaptive is", "the four", "calls of all four"]
    return lines_of(heads, rows)


# --- the page ---------------------------------------------------------------------------------------------------------


def picture(found: Found, path: Path) -> None:
    """The fraction of instances within 1e-4 against calls; on the right degenerate points do not count."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "adaptive", "font.size": 10}
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.8), sharey=True, layout="constrained")
    looks = looks_of(METHODS)
    for axis, sound in zip(axes, (False, True), strict=True):
        for name in METHODS:
            calls = np.sort([calls_to(runs[name], PROFILE_GOAL, sound) for runs in found.values()])
            met = calls[np.isfinite(calls)]
            places = np.concatenate([[10], met, [MOST_CALLS]])
            heights = np.concatenate([[0], np.arange(1, met.size + 1), [met.size]]) / calls.size
            style = line_of(looks[name]) | {"linewidth": 2.4 if name == ADAPTIVE else 1.3}
            axis.step(places, heights, where="post", label=name, markevery=0.15, **style)
        axis.set_xscale("log")
        axis.set_xlim(10, MOST_CALLS)
        axis.set_ylim(0, 1.02)
        axis.set_xlabel("oracle calls")
        axis.grid(True, which="major", color="0.92")
        axis.minorticks_off()
    axes[0].set_ylabel("instances with a gap within 1e-4")
    axes[0].set_title("all", fontsize=11)
    axes[1].set_title("degenerate points not counted", fontsize=11)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    figure.suptitle(f"Adaptive, untuned, and methods with their best nu: {len(found)} instances", fontsize=12)
    save_svg(figure, path)


def write_page(rows: list[dict], folder: Path, chosen: int) -> None:
    found = by_case(rows)
    if not found:
        raise SystemExit("the records hold no instance on which every method has run")
    ours = [runs[ADAPTIVE] for runs in found.values()]
    certified = sum(record["status"] == "CERTIFIED" for record in ours)
    checked = sum(record["checked"] <= GOALS[-1] for record in ours)
    each = [runs[ADAPTIVE]["family"] for runs in found.values()]
    families = ", ".join(f"{name} {each.count(name)}" for name in sorted(set(each)))
    rules = "\n".join(f"* {name}: {baseline.words}" for name, baseline in BASELINES.items())
    grids = {name: baseline.grid for name, baseline in BASELINES.items()}
    spans = {f"{grid[0]:.2g} to {grid[-1]:.3g}": [n for n in grids if grids[n] is grid] for grid in grids.values()}
    nus = "; ".join(f"{span} for {', '.join(names)}" for span, names in spans.items())
    parts = [
        HEADER.format(count=len(found), chosen=chosen, families=families, K=K, most=MOST_CALLS),
        f"Adaptive: {certified} of {len(found)} certified at 1e-8, {checked} confirmed by dense solves in NumPy.\n",
        "## The baselines\n",
        f"{rules}\n\nnu, evenly spaced in its logarithm: {nus}. {edges(found)}",
        "![instances within 1e-4 against calls](benchmark_adaptive.svg)\n",
        "## How many instances reach a gap, and the median calls of those that do\n",
        reached(found, False),
        "Degenerate points not counted:\n",
        reached(found, True),
        "## Calls to 1e-4 of each baseline, divided by those of Adaptive\n",
        ratios(found, False),
        "Degenerate points not counted:\n",
        ratios(found, True),
        "The same if an exact solve cost one product, which no linear solver offers:\n",
        ratios(found, True, True),
        "## Worst-task values\n",
        "max over y of f(x, theta*(x), y) where a run ended; for a baseline the lowest of its eight runs, whatever the "
        "gap. Equal: within a relative 1e-4, or 1e-7.\n",
        tally(found),
        "Bold: lower than Adaptive's from its one start. °: a degenerate point.\n",
        values(found),
        "## Four starts\n",
        "With beta = 0 and lam free the start decides which stationary point is found. Adaptive starts from lam = 0.5, "
        "from 0.9 and from two random (x, lam); its certified point with the lowest worst-task value stands beside the "
        "lowest value of all baselines and all nu.\n",
        starts(found),
    ]
    (folder / "benchmark_adaptive.md").write_text("\n".join(parts))
    picture(found, folder / "benchmark_adaptive.svg")
