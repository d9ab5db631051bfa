"""html: runs -> one page that needs no network. The page draws and prints from the JSON inside it."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from bisaddle.report.files import write
from bisaddle.report.records import Run, Trial, runs_of
from bisaddle.report.sentences import certificate_sentence
from bisaddle.report.style import group_of, groups_of, in_order, styles, title_of
from bisaddle.report.thinning import thinned
from bisaddle.report.verdict import verdict_of

SCRIPTS = ("chart.js", "reading.js", "tables.js", "maps.js", "page.js")
# what the page needs of a run that was not chosen
SCALARS = ("k", "gap", "best_gap", "mean_log10_gap", "worst_value", "corner")
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
    parts = {"title": escape(title, quote=False), "style": _asset("page.css")}
    parts["script"] = '"use strict";\n' + "".join(_asset(name) for name in SCRIPTS)
    parts["policy"] = policy(parts["script"], parts["style"])
    data = json.dumps(document(runs, sensitivity, title), separators=(",", ":"), allow_nan=False)
    parts["data"] = data.replace("<", "\\u003c")  # no HTML parser takes this for the end of the script
    # in one pass: what is put in is not looked at again
    page = re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark.group(1)], _asset("page.html"))
    return write(path, page)


def policy(script: str, style: str) -> str:
    """What a browser may run and load: this script, this style, pictures that the page makes itself, nothing else."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)]
    own = "script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:".format(*hashes)
    return f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def document(
    runs: Sequence[Mapping[str, Any]], sensitivity: Sequence[Mapping[str, Any]] | None, title: str
) -> dict[str, Any]:
    """What the page is made of. The number of a run on the page is its place in `runs`."""
    records = runs_of(runs)
    curves = _curves(records)
    configs: dict[str, int] = {}
    shown = []
    for number, run in enumerate(records):
        kept = run.to_dict()
        final = kept["final"]
        kept |= {"number": number, "group": group_of(run), "config": None, "curve": curves.get(number), "sentence": ""}
        # a run of the grid that was not chosen is a point in the map of nu, not a curve
        if run.tuned:
            config = configs.setdefault(json.dumps(run.config, sort_keys=True), len(configs))
            sentence = certificate_sentence(run.certificate) if run.certificate else "No certificate is recorded."
            kept |= {"config": config, "sentence": sentence, "best_corner": _best_is_corner(run)}
        kept["final"] = {key: final[key] for key in final if key != "x" and (run.tuned or key in SCALARS)}
        shown.append(kept)
    verdict = verdict_of(records, [Trial.from_dict(entry) for entry in sensitivity or ()])
    return {
        "title": title,
        "verdict": None if verdict is None else verdict._asdict(),
        "groups": [{"key": key, "title": title_of(key)} for key in groups_of(records)],
        "datasets": in_order(run.dataset for run in records),
        "styles": {key: look._asdict() for key, look in styles(run.method for run in records).items()},
        "runs": shown,
        "configs": [json.loads(config) for config in configs],
        "sensitivity": list(sensitivity or []),
    }


def _curves(records: Sequence[Run]) -> dict[int, dict[str, Any]]:
    """Of the chosen runs by number; the seeds of a method are thinned together."""
    members: dict[tuple[str, ...], list[int]] = {}
    for number, run in enumerate(records):
        if run.tuned:
            members.setdefault((run.experiment, run.dataset, run.method), []).append(number)
    made = {}
    for numbers in members.values():
        made |= zip(numbers, thinned([records[number].curve for number in numbers]), strict=True)
    return made


def _best_is_corner(run: Run) -> bool:
    """Whether the least gap is that of a degenerate corner."""
    gaps = [(gap, corner) for gap, corner in zip(run.curve.gap, run.curve.corner, strict=True) if gap is not None]
    return bool(min(gaps, default=(0.0, False))[1])


def _asset(name: str) -> str:
    return (files("bisaddle.report") / name).read_text(encoding="utf-8")
