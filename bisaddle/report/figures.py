"""figures: runs -> PNG and PDF in the style of the paper's Figures 1 and 2 (needs the plot extra)."""

import math
import warnings
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bisaddle.report.files import write_figure
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
                write_figure(path, figure, dpi=144, metadata={"CreationDate": None} if kind == "pdf" else None)
                written.append(path)
    return tuple(written)


def _figure(runs: Sequence[Run], title: str, column: str, label: str) -> Any:
    from matplotlib.figure import Figure

    datasets = in_order(run.dataset for run in runs)
    looks = {key: look for key, look in styles(run.method for run in runs).items() if look.shown}
    shown = [run for run in runs if run.method in looks]
    cornered = any(run.final.corner for run in shown)
    labels = len({run.label for run in shown}) + cornered
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
            here = [run for run in shown if run.dataset == dataset and run.method == method]
            if here:
                _draw(panel, here, column, look, 3 - place / 100)  # the first lies on top
        panel.set(yscale="log", xlabel=label, title=dataset)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("stationarity gap")
    if cornered:
        panels[0].plot([], [], label="then at a degenerate corner", **CORNER, color="grey")
    found = {text: line for panel in panels for line, text in zip(*panel.get_legend_handles_labels(), strict=True)}
    figure.legend(found.values(), found.keys(), loc="lower center", ncols=len(datasets), frameon=False)
    figure.suptitle(title)
    return figure


def _draw(panel: Any, runs: Sequence[Run], column: str, look: Look, zorder: float) -> None:
    """The median of the seeds, over the steps that all of them have."""
    length = min(len(run.curve.k) for run in runs)
    gaps = np.array([run.curve.gap[:length] for run in runs], dtype=float)
    gaps = np.where(gaps > 0, gaps, np.nan)  # a log scale has no place for 0, which a degenerate corner gives
    across = np.array(getattr(runs[0].curve, column)[:length], dtype=float)
    dash = (0, [float(part) for part in look.dash.split()]) if look.dash else "-"
    line = {"color": look.colour, "linestyle": dash, "linewidth": 1.6, "label": runs[0].label, "zorder": zorder}
    middle = np.exp(np.median(np.log(gaps), axis=0))  # NaN where a seed has none: the line ends there
    panel.plot(across, middle, **line)
    shown = np.flatnonzero(np.isfinite(middle))
    if shown.size and any(run.final.corner for run in runs):
        panel.plot(across[shown[-1]], middle[shown[-1]], color=look.colour, **CORNER)
    if len(runs) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column without a number has no least one
            low, high = np.nanmin(gaps, 0), np.nanmax(gaps, 0)
        panel.fill_between(across, low, high, color=look.colour, alpha=0.15, linewidth=0)
