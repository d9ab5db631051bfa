"""The report: the page holds the numbers of the runs, needs no network, and says what certificates mean."""

import json
import re

import pytest

from bisaddle import report
from bisaddle.report.files import write
from bisaddle.report.page import NOT_DRAWN, document, thinned
from bisaddle.report.records import Run, Trial
from bisaddle.report.style import METHODS, in_order, styles

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
            assert {name: column[-1] for name, column in copy["curve"].items()} == {
                name: column[-1] for name, column in run["curve"].items() if name not in NOT_DRAWN
            }
        else:
            assert copy["curve"] is None


def test_the_page_needs_no_network(page):
    text = page.read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["'](?!data:)""", text)
    assert not re.search(r"@import|\bfetch\(|XMLHttpRequest|url\((?!data:)", text)
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "{{" not in text.split('id="data"')[0]
    assert page.stat().st_size < 1_000_000


def test_text_of_the_user_cannot_end_the_script_or_become_markup(tmp_path):
    run = made_run("exp1", "mtl", "opf", 0.1) | {"dataset_label": "</script><script>alert(1)</script> {{script}}"}
    page = report.html([run], tmp_path / "page.html", title="a < b & {{data}}")
    assert embedded(page)["runs"][0]["dataset_label"] == run["dataset_label"]
    assert page.read_text().count("<script") == 2
    assert "<title>a &lt; b &amp; {{data}}</title>" in page.read_text()


def test_a_thinned_curve_keeps_its_ends_and_its_order(runs):
    run = made_run("exp1", "mtl", "opf", 0.1, steps=10_000)
    curve, thin = run["curve"], thinned(Run.from_dict(run).curve)
    assert len(curve["k"]) == 1001 and 100 < len(thin["k"]) < 250
    assert thin["k"][:3] == [0, 10, 20] and thin["k"][-1] == 10_000 and thin["k"] == sorted(set(thin["k"]))
    places = [curve["k"].index(k) for k in thin["k"]]
    assert thin["gap"] == pytest.approx([curve["gap"][i] for i in places], rel=1e-3)
    run["curve"] = {name: [None if name == "gap" else column[0]] for name, column in curve.items()}
    assert thinned(Run.from_dict(run).curve) == {k: v for k, v in run["curve"].items() if k not in NOT_DRAWN}


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
    names = ("frozen", "my_own", "adaptive_exp1", "adaptive_exp2")
    made = document([*(made_run(name, "mtl", "opf", 0.1, figure="extra") for name in names), *runs], None, "t")
    assert [group["key"] for group in made["groups"]] == ["fig1", "fig2", "frozen", "my_own"]
    assert "lambda = 1/2" in made["groups"][2]["title"] and made["groups"][3]["title"] == "my own"
    assert [run["group"] for run in made["runs"][:4]] == ["frozen", "my_own", "fig1", "fig2"]


def test_the_order_of_methods_and_data_sets():
    assert list(styles(["zeta", "morbit", "opf"])) == ["opf", "morbit", "zeta"]
    assert in_order(["zoo", "nlsy79", "synthetic"]) == ["synthetic", "nlsy79", "zoo"]
    assert len({(colour, dash) for colour, dash, _ in METHODS.values()}) == len(METHODS)


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
    names = {f"{name}.{kind}" for name in ("fig1", "fig1_products", "fig2", "fig2_products") for kind in ("png", "pdf")}
    assert {path.name for path in written} == names
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG" if path.suffix == ".png" else b"%PDF")
    assert report.figures([run for run in runs if run["figure"] == "fig3"], tmp_path) == ()
