"""The figure of one run (needs the plot extra)."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from bisaddle.report.files import write_figure
from bisaddle.report.style import BLACK, BLUE, GREEN, VERMILLION

# up to here every recorded step has a marker that is seen; above it they would hide the line
MANY = 400


def plot_trace(
    trace: Mapping[str, np.ndarray],
    title: str = "",
    against: str = "steps",
    path: str | None = None,
    tol: float | None = None,
) -> Any:
    """Two panels: the gap and its parts on a log scale; value and worst value. Against "steps" or "seconds".

    trace: columns by name, as Trace.to_dict gives them; every row has a marker. Where the rows between the
    certificates are the method's own estimates, the certified ones have large markers. tol: the gap that was asked for.
    """
    if against not in ("steps", "seconds"):
        raise ValueError(f'against must be "steps" or "seconds", given {against!r}')
    figure = _figure()
    gaps, values = figure.subplots(1, 2)
    certified = {name: column[~trace["estimated"]] for name, column in trace.items()}
    estimates = bool(np.any(trace["estimated"]))
    own = ", the method's estimate" if estimates else ""
    dot = {"marker": ".", "markersize": 4 if len(trace["k"]) <= MANY else 2}
    large = {"marker": "o", "markersize": 5, "linestyle": "none", "color": BLUE, "zorder": 4}

    def draw(panel: Any, rows: Mapping[str, np.ndarray], name: str, label: str, **how: Any) -> None:
        column = rows[name]
        column = np.where(column > 0, column, np.nan) if panel is gaps else column
        panel.plot(rows["k" if against == "steps" else "seconds"], column, label=label, **how)

    draw(gaps, trace, "gap", "gap" + own, color=BLUE, linewidth=1.6, zorder=3, **dot)
    draw(gaps, trace, "x_gap", "x gap", color=VERMILLION, linestyle="--", linewidth=1, **dot)
    draw(gaps, trace, "y_gap", "y gap", color=GREEN, linestyle=":", linewidth=1, **dot)
    if tol is not None and tol > 0:
        gaps.axhline(tol, color=BLACK, linewidth=1, linestyle=(0, (6, 3)), label=f"tolerance {tol:.3g}")
    gaps.set(yscale="log", xlabel=against, ylabel="stationarity gap")
    draw(values, trace, "value", "value" + own, color=VERMILLION, linestyle="--", **dot)
    if estimates:
        draw(gaps, certified, "gap", "certified", **large)
        draw(values, certified, "worst_value", "worst value, certified", **large)
    else:
        draw(values, trace, "worst_value", "worst value", color=BLUE, **dot)
    values.set(xlabel=against, ylabel="upper objective")
    for panel in (gaps, values):
        panel.grid(alpha=0.3)
        # below: inside, it would lie on the curves or on the line of the tolerance
        panel.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize="small")
        panel.spines[["top", "right"]].set_visible(False)
    if title:
        figure.suptitle(title)
    if path is not None:
        write_figure(path, figure, dpi=150)
    return figure


def _figure() -> Any:
    """A figure that a notebook shows by itself, whatever the backend of pyplot is; pyplot is not touched."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("result.plot needs matplotlib; install bisaddle[plot]") from error

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            drawn = io.BytesIO()
            self.savefig(drawn, format="png", dpi=110)
            return drawn.getvalue()

    return Shown(figsize=(9, 4), layout="constrained")
