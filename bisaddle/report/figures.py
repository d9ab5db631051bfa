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
HORIZONTAL = {
    "k": ("", "iterations"),
    "hvps": ("_products", "Hessian-vector and cross products"),
    "seconds": ("_seconds", "seconds"),
}
MARKERS = {"circle": "o", "square": "s", "triangle": "^", "down": "v", "diamond": "D", "plus": "P", "cross": "X"}
MARKERS |= {"star": "*"}
# fonts in a PDF as TrueType, which journals and editors can read; matplotlib's own are Type 3
FONTS: Any = {"pdf.fonttype": 42}
# curves that differ in length by more are drawn on a log axis: on a linear one the short ones are not seen
LONGER = 10


def figures(runs: Sequence[Mapping[str, Any]], folder: str | Path) -> tuple[Path, ...]:
    """Gap on a log scale, a panel for each data set: fig1, fig2 against iterations, fig1_products, fig1_seconds.

    Drawn are the runs with the chosen nu: the median over the seeds, and the range between them as a band.
    """
    if find_spec("matplotlib") is None:
        raise ImportError("figures need matplotlib; install bisaddle[plot]")
    from matplotlib import rc_context

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
                with rc_context(FONTS):
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
    if column == "seconds":
        label = seconds_label(shown)
    lengths = [length for run in shown if (length := getattr(run.curve, column)[-1])]
    axis = "log" if max(lengths, default=1) > LONGER * min(lengths, default=1) else "linear"
    for panel, dataset in zip(panels, datasets, strict=True):
        panel.set(xscale=axis, yscale="log")
        for place, (method, look) in enumerate(looks.items()):
            here = [run for run in shown if run.dataset == dataset and run.method == method]
            if here:
                _draw(panel, here, column, look, 3 - place / 100)  # the first lies on top
        panel.set(xlabel=label, title=dataset)
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


def seconds_label(runs: Sequence[Run]) -> str:
    """What the seconds are, as the configurations say."""
    said = dict.fromkeys(run.config["seconds_how"].split(",")[0] for run in runs if "seconds_how" in run.config)
    return " or ".join(f"seconds {how}" for how in said) or "seconds"


def line_of(look: Look) -> dict[str, Any]:
    """A look as matplotlib has it."""
    dash = (0, [float(part) / 1.6 for part in look.dash.split()]) if look.dash else "-"  # in widths of the line
    face = look.colour if look.filled else "none"
    marker = {"marker": MARKERS[look.marker], "markersize": 8 if look.marker == "star" else 5, "markerfacecolor": face}
    return {"color": look.colour, "linestyle": dash, "linewidth": 1.6, **marker}


def _marked(panel: Any, across: np.ndarray, middle: np.ndarray, zorder: float) -> list[int]:
    """Places for markers, apart by as much for every curve, but not the same for all; and the last."""
    shown = np.flatnonzero(np.isfinite(middle))
    if not shown.size:
        return []
    place = panel.xaxis.get_transform().transform(across[shown])
    begin, end = place[0], place[-1]
    shift = 100 * zorder % 5 / 5
    wanted = begin + (end - begin) * (np.arange(5) + shift) / 5
    return sorted({int(i) for i in shown[np.searchsorted(place, wanted)]} | {int(shown[-1])})


def _draw(panel: Any, runs: Sequence[Run], column: str, look: Look, zorder: float) -> None:
    """The median of the seeds at every step; one that has ended stays where it is."""
    steps = max((run.curve.k for run in runs), key=len)
    at = [np.searchsorted(run.curve.k, steps, side="right") - 1 for run in runs]

    def of_seeds(name: str) -> np.ndarray:
        return np.array([np.array(getattr(run.curve, name), dtype=float)[i] for run, i in zip(runs, at, strict=True)])

    gaps, across = of_seeds("gap"), np.median(of_seeds(column), axis=0)
    line = line_of(look) | {"label": runs[0].label, "zorder": zorder}
    middle = np.median(gaps, axis=0)
    middle = np.where(middle > 0, middle, np.nan)  # a log scale has no place for 0, which a degenerate corner gives
    if panel.get_xscale() == "log":
        middle = np.where(across > 0, middle, np.nan)
    panel.plot(across, middle, **line, markevery=_marked(panel, across, middle, zorder))
    shown = np.flatnonzero(np.isfinite(middle))
    if shown.size and any(run.final.corner for run in runs):
        panel.plot(across[shown[-1]], middle[shown[-1]], color=look.colour, **CORNER)
    if len(runs) > 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # a column without a number has no least one
            low, high = (of(np.where(gaps > 0, gaps, np.nan), 0) for of in (np.nanmin, np.nanmax))
        seen = np.where(np.isfinite(middle) | (across > 0), across, np.nan)  # not what lies left of a log axis
        panel.fill_between(seen, low, high, color=look.colour, alpha=0.15, linewidth=0)
