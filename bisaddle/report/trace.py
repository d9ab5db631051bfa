"""The figure of one run (needs the plot extra)."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from bisaddle.report.files import write_figure


def plot_trace(
    trace: Mapping[str, np.ndarray], title: str = "", against: str = "steps", path: str | None = None
) -> Any:
    """Two panels: the gap and its parts on a log scale; value and worst value. Against "steps" or "seconds".

    trace: columns by name, as Trace.to_dict gives them. Where the rows between the certificates are the method's own
    estimates, the certified ones are marked.
    """
    if against not in ("steps", "seconds"):
        raise ValueError(f'against must be "steps" or "seconds", given {against!r}')
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("result.plot needs matplotlib; install bisaddle[plot]") from error
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    gaps, values = figure.subplots(1, 2)
    certified = {name: column[~trace["estimated"]] for name, column in trace.items()}
    estimates = bool(np.any(trace["estimated"]))
    own = ", the method's estimate" if estimates else ""

    def draw(panel: Any, rows: Mapping[str, np.ndarray], name: str, style: str, label: str, **how: Any) -> None:
        column = rows[name]
        column = np.where(column > 0, column, np.nan) if panel is gaps else column
        panel.plot(rows["k" if against == "steps" else "seconds"], column, style, label=label, **how)

    draw(gaps, trace, "gap", "-", "gap" + own, color="C0")
    draw(gaps, trace, "x_gap", "--", "x gap", color="C1", linewidth=1)
    draw(gaps, trace, "y_gap", ":", "y gap", color="C2", linewidth=1)
    gaps.set(yscale="log", xlabel=against, title="Stationarity gap")
    draw(values, trace, "value", "--", "value" + own, color="C1")
    if estimates:
        draw(gaps, certified, "gap", "o", "certified", color="C0", markersize=5)
        draw(values, certified, "worst_value", "o", "worst value, certified", color="C0", markersize=5)
    else:
        draw(values, trace, "worst_value", "-", "worst value", color="C0")
    values.set(xlabel=against, title="Upper objective")
    for panel in (gaps, values):
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    if title:
        figure.suptitle(title)
    if path is not None:
        write_figure(path, figure, dpi=150)
    return figure
