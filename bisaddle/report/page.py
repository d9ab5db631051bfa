"""html: runs -> one page that needs no network. The page draws and prints from the JSON inside it."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from bisaddle.report.files import write
from bisaddle.report.records import Curve, runs_of
from bisaddle.report.sentences import certificate_sentence
from bisaddle.report.style import group_of, groups_of, in_order, styles, title_of

# columns that the page does not draw
NOT_DRAWN = ("x_gap_projection", "gap_projection_paper")
# what the page needs of a run that was not chosen
SCALARS = ("k", "gap", "best_gap", "mean_log10_gap", "worst_value", "corner")
# a curve keeps about this many points on a linear and as many on a logarithmic axis
KEPT = 110
TITLE = "Saddle problems with bilevel structure: the experiments of section 6"


def html(
    runs: Sequence[Mapping[str, Any]],
    path: str | Path,
    *,
    sensitivity: Sequence[Mapping[str, Any]] | None = None,
    title: str = TITLE,
) -> Path:
    """Write the page. Final numbers on it are those of the runs to the last digit; curves are thinned and rounded."""
    if not runs:
        raise ValueError("a report needs at least one run, given none")
    parts = {"title": escape(title, quote=False), "style": _asset("page.css"), "chart": _asset("chart.js")}
    parts |= {"tables": _asset("tables.js"), "script": _asset("page.js")}
    data = json.dumps(document(runs, sensitivity, title), separators=(",", ":"), allow_nan=False)
    parts["data"] = data.replace("<", "\\u003c")  # no HTML parser takes this for the end of the script
    # in one pass: what is put in is not looked at again
    page = re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark.group(1)], _asset("page.html"))
    return write(path, page)


def document(
    runs: Sequence[Mapping[str, Any]], sensitivity: Sequence[Mapping[str, Any]] | None, title: str
) -> dict[str, Any]:
    """What the page is made of. The number of a run on the page is its place in `runs`."""
    records = runs_of(runs)
    configs: dict[str, int] = {}
    shown = []
    for number, run in enumerate(records):
        kept = run.to_dict()
        final = kept["final"]
        kept |= {"number": number, "group": group_of(run), "config": None, "curve": None, "sentence": ""}
        # a run of the grid that was not chosen is a point in the map of nu, not a curve
        if run.tuned:
            config = configs.setdefault(json.dumps(run.config, sort_keys=True), len(configs))
            sentence = certificate_sentence(run.certificate) if run.certificate else "No certificate is recorded."
            kept |= {"config": config, "curve": thinned(run.curve), "sentence": sentence}
        kept["final"] = {key: final[key] for key in final if key != "x" and (run.tuned or key in SCALARS)}
        shown.append(kept)
    return {
        "title": title,
        "groups": [{"key": key, "title": title_of(key)} for key in groups_of(records)],
        "datasets": in_order(run.dataset for run in records),
        "styles": {key: look._asdict() for key, look in styles(run.method for run in records).items()},
        "runs": shown,
        "configs": [json.loads(config) for config in configs],
        "sensitivity": list(sensitivity or []),
    }


def thinned(curve: Curve) -> dict[str, list]:
    """Fewer points, the first and the last among them, and four digits; the last point keeps all of its digits."""
    count = len(curve.k)
    keep = {0, count - 1} | {round(i * (count - 1) / KEPT) for i in range(KEPT)}
    keep |= {round(math.expm1(i * math.log(count) / KEPT)) for i in range(KEPT)}
    places = sorted(i for i in keep if 0 <= i < count)
    drawn = {name: column for name, column in curve.columns().items() if name not in NOT_DRAWN}
    return {
        name: [column[i] if i == count - 1 else _rounded(column[i]) for i in places] for name, column in drawn.items()
    }


def _rounded(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _asset(name: str) -> str:
    return (files("bisaddle.report") / name).read_text(encoding="utf-8")
