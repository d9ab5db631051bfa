"""figures: runs -> PNG and PDF in the style of the paper's Figures 1 and 2 (needs the plot extra)."""

import math
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bisaddle.report.records import Run, runs_of
from bisaddle.report.style import FIGURES, Look, in_order, styles

CORNER = {"marker": "o", "linestyle": "none", "markerfacecolor": "none", "markersize": 7, "markeredgewidth": 1.5}
HORIZONTAL = {"k": ("", "iterations"), "hvps": ("_products", "Hessian-vector and cross products")}


def figures(runs: Sequence[Mapping[str, Any]], folder: str | Path) -> tuple[Path, ...]:
    """Gap on a log scale, a panel for each data set: fig1, fig2 against iterations, fig1_products against products.

    Drawn are the runs with the chosen nu: the median over the seeds, and the range between them as a band.
    """
    if find_spec("matplotlib") is None:
        raise ImportError("figures need matplotlib; install bisaddle[plot]")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    tuned = [run for run in runs_of(runs) if run.tuned]
    for key, title in FIGURES.items():
        chosen = [run for run in tuned if run.figure == key]
        if not chosen:
            continue
        for column, (suffix, label) in HORIZONTAL.items():
            figure = _figure(chosen, title, column, label)
            for kind in ("png", "pdf"):
                path = folder / f"{key}{suffix}.{kind}"
                # no date inside: the same runs give the same file
                figure.savefig(path, dpi=144, metadata={"CreationDate": None} if kind == "pdf" else None)
                written.append(path)
    return tuple(written)


def _figure(runs: Sequence[Run], title: str, column: str, label: str) -> Any:
    from matplotlib.figure import Figure

    datasets = in_order(run.dataset for run in runs)
    looks = {key: look for key, look in styles(run.method for run in runs).items() if look.shown}
    labels = len({run.label for run in runs if run.method in looks}) + any(_cornered(run, looks) for run in runs)
    below = 0.65 + 0.25 * math.ceil(labels / len(datasets))  # inches, with as many columns of labels as panels
    wide, high = 3.6 * len(datasets) + 1.0, 2.75 + below
    # margins by hand: the automatic ones take longer than all the rest
    margins = {
        "left": 0.75 / wide,
        "right": 1 - 0.2 / wide,
        "bottom": below / high,
        "top": 1 - 0.65 / high,
        "wspace": 0.22,
    }
    figure = Figure(figsize=(wide, high))
    panels = np.ravel(figure.subplots(1, len(datasets), squeeze=False, gridspec_kw=margins))
    for panel, dataset in zip(panels, datasets, strict=True):
        for place, (method, look) in enumerate(looks.items()):
            here = [run for run in runs if run.dataset == dataset and run.method == method]
            if here:
                _draw(panel, here, column, look, 3 - place / 100)  # the first lies on top
        panel.set(yscale="log", xlabel=label, title=dataset)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("stationarity gap")
    if any(_cornered(run, looks) for run in runs):
        panels[0].plot([], [], label="then at a degenerate corner", **CORNER, color="grey")
    found = {text: line for panel in panels for line, text in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found.keys(), loc="lower center", ncols=len(datasets), frameon=False)
    figure.suptitle(title)
    return figure


def _draw(panel: Any, runs: Sequence[Run], column: str, look: Look, zorder: float) -> None:
    """The median of the seeds, over the steps that all of them have."""
    length = min(len(run.curve.k) for run in runs)
    gaps = np.array([[_positive(gap) for gap in run.curve.gap[:length]] for run in runs])
    across = np.array(getattr(runs[0].curve, column)[:length], dtype=float)
    dash = (0, [float(part) for part in look.dash.split()]) if look.dash else "-"
    line = {"color": look.colour, "linestyle": dash, "linewidth": 1.6, "label": runs[0].label, "zorder": zorder}
    middle = np.exp(np.median(np.log(gaps), axis=0))  # NaN where a seed has none: the line ends there
    panel.plot(across, middle, **line)
    shown = np.flatnonzero(np.isfinite(middle))
    if shown.size and any(run.final.corner for run in runs):
        panel.plot(across[shown[-1]], middle[shown[-1]], color=look.colour, **CORNER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a column without a number has no least one
        if len(runs) > 1:
            panel.fill_between(
                across, np.nanmin(gaps, 0), np.nanmax(gaps, 0), color=look.colour, alpha=0.15, linewidth=0
            )


def _cornered(run: Run, looks: Mapping[str, Look]) -> bool:
    return run.method in looks and run.final.corner


def _positive(gap: float | None) -> float:
    """A log scale has no place for 0, which a degenerate corner gives."""
    return float("nan") if gap is None or gap <= 0 else gap
