"""The report: the page holds the numbers of the runs, needs no network, and says what certificates mean."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bisaddle import report
from bisaddle.report.files import write
from bisaddle.report.page import document, policy
from bisaddle.report.records import Curve, Run, Trial
from bisaddle.report.style import METHODS, SPARE, in_order, looks_of, styles
from bisaddle.report.thinning import ACROSS, DRAWN, EVEN, places, thinned

from .report_runs import made_run, made_runs, made_sensitivity


@pytest.fixture(scope="module")
def runs():
    return made_runs()


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    return report.html(runs, tmp_path_factory.mktemp("page") / "report.html", sensitivity=made_sensitivity())


def embedded(page):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.S)
    assert found is not None
    return json.loads(found.group(1))


def test_the_page_holds_every_final_number_and_certificate_as_it_is(runs, page):
    shown = embedded(page)
    assert len(shown["runs"]) == len(runs)
    for number, (run, copy) in enumerate(zip(runs, shown["runs"], strict=True)):
        assert copy["number"] == number
        for key in ("experiment", "dataset", "method", "nu", "seed", "steps", "certificate"):
            assert copy[key] == run[key]
        assert copy["final"].items() <= run["final"].items() and "mean_log10_gap" in copy["final"]
        if run["tuned"]:
            assert shown["configs"][copy["config"]] == run["config"] and len(copy["final"]) == len(run["final"])
            curve, column = copy["curve"], run["curve"]
            assert {name: values[-1] for name, values in curve["values"].items()} == {n: column[n][-1] for n in DRAWN}
            ends = [curve[name] if isinstance(curve[name], dict) else {"last": curve[name][-1]} for name in ACROSS]
            assert [end["last"] for end in ends] == [column[name][-1] for name in ACROSS]
        else:
            assert copy["curve"] is None


def test_the_page_needs_no_network(page):
    text = page.read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:)""", text)
    assert not re.search(r"@import|\bfetch\(|XMLHttpRequest|url\((?!data:|#)", text)
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "{{" not in text.split('id="data"')[0]
    assert page.stat().st_size < 1_000_000


def test_text_of_the_user_cannot_end_the_script_or_become_markup(tmp_path):
    run = made_run("exp1", "mtl", "opf", 0.1) | {"dataset_label": "</script><script>alert(1)</script> {{script}}"}
    page = report.html([run], tmp_path / "page.html", title="a < b & {{data}}")
    assert embedded(page)["runs"][0]["dataset_label"] == run["dataset_label"]
    assert page.read_text().count("<script") == 2
    assert "<title>a &lt; b &amp; {{data}}</title>" in page.read_text()


def test_a_thinned_curve_keeps_the_least_and_the_largest_of_every_stretch():
    rng = np.random.default_rng(0)
    column = np.exp(rng.normal(size=1001)).tolist()
    kept = places([column], 50)
    assert kept == sorted(set(kept)) and kept[0] == 0 and kept[-1] == 1000 and len(kept) < 200
    edges = [round(i * 1001 / 50) for i in range(51)]
    for start, stop in zip(edges, edges[1:], strict=False):
        inside = [column[i] for i in kept if start <= i < stop]
        assert min(inside) == min(column[start:stop]) and max(inside) == max(column[start:stop])
    # on a log axis the first records, one by one
    assert kept[:10] == list(range(10))
    # the best so far of what is kept is that of the whole at the end of every stretch
    for stop in edges[1:]:
        assert min(column[i] for i in kept if i < stop) == min(column[:stop])
    assert places([[None, 2.0, None, 1.0]], 2) == [0, 1, 2, 3]


def test_the_curves_of_all_seeds_are_kept_at_the_same_places_with_the_digits_that_the_tables_have():
    runs = [made_run("exp1", "mtl", "morbit", 0.1, seed, steps=10_000) for seed in (0, 1, 2)]
    records = [Run.from_dict(run).curve for run in runs]
    thin = thinned(records)
    assert thin[0]["at"] == thin[1]["at"] == thin[2]["at"]
    for run, curve in zip(runs, thin, strict=True):
        for name, at in curve["at"].items():
            whole = [run["curve"][name][i] for i in at]
            assert curve["values"][name] == pytest.approx(whole, rel=1e-3) and len(at) < 400
        assert min(curve["values"]["gap"]) == run["final"]["best_gap"]
        assert curve["values"]["gap"][-1] == run["final"]["gap"]
        for name in ACROSS:
            column = run["curve"][name]
            assert curve[name] == {"first": column[0], "last": column[-1], "count": len(column)}
            even = np.linspace(column[0], column[-1], len(column))
            assert np.max(np.abs(even - column)) <= EVEN * column[-1]
    shorter = Curve(**{name: column[:40] for name, column in records[0].columns().items()})
    assert thinned([shorter, records[1]])[0]["at"]["gap"][-1] == 39
    uneven = replace(records[0], hvps=[i * i for i in range(1001)])
    assert thinned([uneven])[0]["hvps"] == uneven.hvps


def test_a_curve_of_one_record_and_the_stretches_at_a_corner():
    run = made_run("exp1", "mtl", "morbit_60", 0.1)
    one = {name: [None if name == "gap" else column[0]] for name, column in run["curve"].items()}
    thin = thinned([Run.from_dict({**run, "curve": one, "final": {}}).curve])[0]
    assert thin["values"]["gap"] == [None] and thin["k"] == [0] and thin["corner"] == []
    assert thinned([Run.from_dict(run).curve])[0]["corner"] == [(96, 101)]


def test_the_policy_lets_the_browser_run_this_script_alone(page):
    text = page.read_text()
    style, script = (re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.S) for tag in ("style", "script"))
    assert len(style) == len(script) == 1
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert found is not None and found.group(1) == policy(script[0], style[0])
    assert "default-src 'none'" in found.group(1) and "unsafe" not in found.group(1)
    assert not re.search(r"\son\w+=|\sstyle=", text.split('id="data"')[0])


def test_a_file_is_whole_or_not_there(tmp_path):
    path = write(tmp_path / "new" / "a.txt", "first\n")
    with pytest.raises(UnicodeEncodeError):
        write(path, "half\ud800")
    assert path.read_bytes() == b"first\n" and list(path.parent.iterdir()) == [path]


def test_a_record_is_written_as_it_was_read(runs):
    for run in runs:
        assert Run.from_dict(run).to_dict() == {**run, "partial": False}
    for entry in made_sensitivity():
        assert entry.items() <= Trial.from_dict(entry).to_dict().items()


def test_runs_are_grouped_by_figure_and_others_by_experiment(runs):
    names = ("frozen", "my_own")
    made = document([*(made_run(name, "mtl", "opf", 0.1, figure="extra") for name in names), *runs], None, "t")
    assert [group["key"] for group in made["groups"]] == ["fig1", "fig2", "frozen", "my_own"]
    assert "lambda = 1/2" in made["groups"][2]["title"] and made["groups"][3]["title"] == "my own"
    assert [run["group"] for run in made["runs"][:3]] == ["frozen", "my_own", "fig1"]


def test_the_order_of_methods_and_data_sets():
    assert list(styles(["zeta", "morbit", "opf"])) == ["opf", "morbit", "zeta"]
    assert in_order(["zoo", "nlsy79", "synthetic"]) == ["synthetic", "nlsy79", "zoo"]


def test_every_method_has_a_dash_and_a_marker_of_its_own_and_a_colour_of_the_palette():
    looks = [*METHODS.values(), *SPARE]
    for part in (lambda look: (look.marker, look.filled), lambda look: look.dash):
        assert max(Counter(map(part, METHODS.values())).values()) == 1
    assert len({(look.colour, look.dash, look.marker, look.filled) for look in looks}) == len(looks)
    # Okabe and Ito 2008, in 0 to 255
    palette = {(0, 0, 0), (230, 159, 0), (86, 180, 233), (0, 158, 115), (0, 114, 178), (213, 94, 0), (204, 121, 167)}
    found = {tuple(int(look.colour[i : i + 2], 16) for i in (1, 3, 5)) for look in looks}
    assert found == palette
    # methods of the library that are no paper's: none alike, and the colours used evenly
    names = ["Adaptive", "FullyProjected", *(f"method {i}" for i in range(14))]
    found = looks_of(names)
    assert list(found) == names and len(set(found.values())) == len(names) and found["Adaptive"] is METHODS["adaptive"]
    assert max(Counter(look.colour for look in found.values()).values()) == 3
    at_first = [look.colour for key, look in METHODS.items() if look.shown and "printed" not in key]
    assert len(set(at_first)) == len(at_first)


def test_a_run_with_only_the_needed_keys_is_completed_from_its_curve(tmp_path):
    whole = made_run("exp1", "mtl", "opf", 0.1)
    needed = {key: whole[key] for key in ("experiment", "dataset", "method", "nu", "seed", "config", "curve")}
    columns = ("k", "seconds", "hvps", "x_gap", "y_gap", "gap", "worst_value", "corner")
    needed["curve"] = {name: whole["curve"][name] for name in columns}
    shown = embedded(report.html([needed], tmp_path / "page.html"))["runs"][0]
    for key in ("k", "gap", "best_gap", "mean_log10_gap", "worst_value", "corner"):
        assert shown["final"][key] == pytest.approx(whole["final"][key], rel=1e-12)
    assert shown["label"] == "opf" and shown["tuned"] and "No certificate" in shown["sentence"]


def test_no_runs_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run"):
        report.html([], tmp_path / "page.html")


@pytest.mark.parametrize(
    ("certificate", "words"),
    [
        (
            {"gap": 3e-3, "x_gap": 2e-3, "y_gap": 1e-3, "error_bound": 1e-9, "measure": "lmo", "error_is_bound": True},
            ["Stationary to 3.00e-03", "no point of X lowers the objective by more than 2.00e-03", "at most 1.00e-09"],
        ),
        (
            {
                "gap": 3e-3,
                "x_gap": 3e-3,
                "y_gap": 0.0,
                "error_bound": 1e-9,
                "measure": "projection",
                "error_is_bound": False,
            },
            ["a projected gradient step in x", "about 1.00e-09"],
        ),
        ({"gap": None, "error_bound": None, "measure": "lmo"}, ["Nothing can be said"]),
    ],
)
def test_a_certificate_in_a_sentence(certificate, words):
    sentence = report.certificate_sentence(certificate)
    assert all(word in sentence for word in words), sentence


def test_figures_are_drawn_as_png_and_pdf(tmp_path):
    pytest.importorskip("matplotlib")
    runs = made_runs(datasets=("mtl",), methods=("opf", "fp", "morbit_60"))
    written = report.figures(runs, tmp_path / "new")
    figures = (f"fig{i}{against}" for i in (1, 2) for against in ("", "_products", "_seconds"))
    names = {f"{name}.{kind}" for name in figures for kind in ("png", "pdf")}
    assert {path.name for path in written} == names
    for path in written:
        content = path.read_bytes()
        assert content.startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF")
        assert path.suffix == ".png" or (b"/FontFile2" in content and b"/Type3" not in content)
    assert report.figures([run for run in runs if run["figure"] == "fig3"], tmp_path) == ()
