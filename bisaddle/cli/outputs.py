"""What a comparison leaves behind: a folder with numbers, figures, a page and an account; and a table on the screen."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bisaddle.cli import screen

PAGE, ACCOUNT, SENSITIVITY = "report.html", "REPRODUCTION.md", "sensitivity.json"


def write_all(runs: list[dict], maps: list[dict], folder: Path, account: bool) -> dict[str, Path]:
    """results.json and .csv, figures, the page, and REPRODUCTION.md where the runs are those of the paper.

    maps: of sensitivity; without any, sensitivity.json of an earlier run goes, as its results.json does.
    """
    from bisaddle import experiments, report

    written = {"results": experiments.save(runs, folder)}
    (folder / SENSITIVITY).unlink(missing_ok=True)
    if maps:
        written["sensitivity"] = experiments.save_sensitivity(maps, folder)
    try:
        figures = report.figures(runs, folder)
    except ImportError as error:
        screen.note(f"no figures as PNG and PDF: {error}")
        figures = ()
    if figures:
        written["figures"] = folder
    written["page"] = report.html(runs, folder / PAGE, sensitivity=maps)
    if account:
        from bisaddle.experiments import reproduction

        reproduction.write(folder, folder / ACCOUNT)
        written["account"] = folder / ACCOUNT
    return written


def read_sensitivity(folder: Path) -> list[dict]:
    from bisaddle import experiments

    return experiments.load_sensitivity(folder) if (folder / SENSITIVITY).is_file() else []


def show_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    """A table for each figure or experiment: the runs with the chosen nu, medians over the seeds."""
    from bisaddle.report.style import FIGURES, group_of, in_order, styles, title_of

    chosen = [run for run in runs if run.get("tuned")]
    groups = list(dict.fromkeys(group_of(run) for run in chosen))
    for group in [key for key in FIGURES if key in groups] + [key for key in groups if key not in FIGURES]:
        members = [run for run in chosen if group_of(run) == group]
        rows = []
        for dataset in in_order(run["dataset"] for run in members):
            rows.append((dataset,))
            for method in styles(run["method"] for run in members):
                here = [run for run in members if run["dataset"] == dataset and run["method"] == method]
                if here:
                    rows.append(_row(here))
        seeds = sorted({run["seed"] for run in members})
        over = f"; medians over seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"; seed {seeds[0]}"
        heads = ("method", "nu", "gap", "best gap", "worst", "products", "seconds")
        screen.table(heads, rows, title=title_of(group) + over)
        screen.console().print()
    if any(run["final"]["corner"] for run in chosen):
        screen.console().print("* ends at a degenerate corner, where the gradient in x is zero whatever x is\n")


def _row(runs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    def median(values: list) -> float | int | None:
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None

    corner = "*" if any(run["final"]["corner"] for run in runs) else ""
    ends = [run["curve"] for run in runs]
    worst = median([run["final"]["worst_value"] for run in runs])
    nus = sorted({run["nu"] for run in runs if run["nu"] is not None})
    products, seconds = (median([curve[name][-1] for curve in ends]) for name in ("hvps", "seconds"))
    return (
        f"  {runs[0]['label']}{corner}",
        ", ".join(f"{nu:.3g}" for nu in nus) or "-",
        screen.short(median([run["final"]["gap"] for run in runs])),
        screen.short(median([run["final"]["best_gap"] for run in runs])),
        "-" if worst is None else f"{worst:.4f}",
        "-" if products is None else f"{products:.0f}",
        "-" if seconds is None else f"{seconds:.2f}",
    )
