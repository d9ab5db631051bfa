"""Figures of a trace (needs the plot extra)."""

from typing import Any

import numpy as np

from bisaddle.result import Trace


def plot_trace(trace: Trace, title: str = "", against: str = "steps", path: str | None = None) -> Any:
    """Two panels: the gap and its parts on a log scale; value and worst value. Against "steps" or "seconds"."""
    if against not in ("steps", "seconds"):
        raise ValueError(f'against must be "steps" or "seconds", given {against!r}')
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("result.plot needs matplotlib; install bisaddle[plot]") from error
    horizontal = trace.k if against == "steps" else trace.seconds
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    gaps, values = figure.subplots(1, 2)
    for name, label, style in (("gap", "gap", "-"), ("x_gap", "x gap", "--"), ("y_gap", "y gap", ":")):
        column = getattr(trace, name)
        gaps.plot(horizontal, np.where(column > 0, column, np.nan), style, label=label)
    gaps.set(yscale="log", xlabel=against, title="Stationarity gap")
    values.plot(horizontal, trace.worst_value, "-", label="worst value")
    values.plot(horizontal, trace.value, "--", label="value")
    values.set(xlabel=against, title="Upper objective")
    for panel in (gaps, values):
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    if title:
        figure.suptitle(title)
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
