"""What a comparison leaves behind: a folder with numbers, figures, a page and an account; and a table on the screen."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bisaddle.cli import documents, screen
from bisaddle.report.files import check_writable
from bisaddle.report.records import Run, runs_of
from bisaddle.report.style import group_of, groups_of, in_order, styles, title_of

PAGE, ACCOUNT = "report.html", "REPRODUCTION.md"


def check(*paths: Path | None) -> None:
    """Raise OSError for a file that cannot be written, before there is anything to lose."""
    for path in paths:
        if path is not None:
            check_writable(path)


def save_result(document: dict[str, Any], path: Path, force: bool) -> Path:
    """Where the result is now: in the file, or beside it, if that has one that is certified and better."""
    kept = documents.certified_tol(path)
    worse = kept is not None and (document["status"] != "CERTIFIED" or document["settings"]["tol"] > kept)
    if worse and force:
        screen.note(f"--force: {path} held a result certified to {kept:g}, which is replaced")
    elif worse:
        beside = path.with_name(f"{path.stem}.{document['status'].lower()}{path.suffix}")
        screen.note(f"{path} holds a result certified to {kept:g} and is kept; --force replaces it")
        path = beside
    documents.save(document, path)
    return path


def write_all(runs: list[dict], maps: list[dict], folder: Path, account: bool) -> dict[str, Path]:
    """results.json and .csv, figures, the page, and REPRODUCTION.md where the runs are those of the paper.

    maps: of sensitivity; without any, sensitivity.json of an earlier run goes, as its results.json does.
    """
    from bisaddle import experiments, report
    from bisaddle.experiments.store import SENSITIVITY

    written = {"results": experiments.save(runs, folder)}
    (folder / SENSITIVITY).unlink(missing_ok=True)
    if maps:
        written["sensitivity"] = experiments.save_sensitivity(maps, folder)
    try:
        if report.figures(runs, folder):
            written["figures"] = folder
    except ImportError as error:
        screen.note(f"no figures as PNG and PDF: {error}")
    written["page"] = report.html(runs, folder / PAGE, sensitivity=maps)
    if account:
        written["account"] = experiments.reproduction.write(folder, folder / ACCOUNT)
    return written


def show_runs(runs: Sequence[Mapping[str, Any]]) -> None:
    """A table for each figure or experiment: the runs with the chosen nu, medians over the seeds."""
    chosen = [run for run in runs_of(runs) if run.tuned]
    for group in groups_of(chosen):
        members = [run for run in chosen if group_of(run) == group]
        rows = []
        for dataset in in_order(run.dataset for run in members):
            rows.append((dataset,))
            for method in styles(run.method for run in members):
                here = [run for run in members if run.dataset == dataset and run.method == method]
                if here:
                    rows.append(_row(here))
        seeds = sorted({run.seed for run in members})
        over = f"; medians over seeds {', '.join(map(str, seeds))}" if len(seeds) > 1 else f"; seed {seeds[0]}"
        heads = ("method", "nu", "gap", "best gap", "worst", "products", "seconds")
        screen.table(heads, rows, title=title_of(group) + over)
        screen.console().print()
    if any(run.final.corner for run in chosen):
        screen.console().print("* ends at a degenerate corner, where the gradient in x is zero whatever x is\n")


def _row(runs: Sequence[Run]) -> tuple[str, ...]:
    def median(values: Iterable[Any], form: str) -> str:
        known = [value for value in values if value is not None]
        return f"{statistics.median(known):{form}}" if known else "-"

    corner = "*" if any(run.final.corner for run in runs) else ""
    nus = sorted({run.nu for run in runs if run.nu is not None})
    return (
        f"  {runs[0].label}{corner}",
        ", ".join(f"{nu:.3g}" for nu in nus) or "-",
        median((run.final.gap for run in runs), ".2e"),
        median((run.final.best_gap for run in runs), ".2e"),
        median((run.final.worst_value for run in runs), ".4f"),
        median((run.curve.hvps[-1] for run in runs), ".0f"),
        median((run.curve.seconds[-1] for run in runs), ".2f"),
    )
