"""Runs as a report needs them: what a results.json may leave out is taken from the curve."""

import math
from collections.abc import Mapping
from typing import Any


def completed(run: Mapping[str, Any]) -> dict[str, Any]:
    """The run with every key that the page and the figures read; only experiment, ..., config and curve are needed."""
    curve = run["curve"]
    gaps = [gap for gap in curve["gap"] if gap is not None]
    corner = bool(curve["corner"][-1]) if curve.get("corner") else False
    final = {
        "k": curve["k"][-1],
        "gap": curve["gap"][-1],
        "best_gap": min(gaps, default=None),
        "mean_log10_gap": sum(math.log10(max(gap, 1e-16)) for gap in gaps) / len(gaps) if gaps else None,
        "worst_value": curve["worst_value"][-1],
        "corner": corner,
        "corner_sentence": "The last record is at a degenerate corner." if corner else "",
    }
    return {
        "dataset_label": run["dataset"],
        "label": run["method"],
        "figure": "extra",
        "steps": curve["k"][-1],
        "tuned": True,
        "certificate": None,
        **run,
        "final": {**final, **run.get("final", {})},
    }
