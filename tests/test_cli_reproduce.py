"""bisaddle reproduce, run and report: a folder with numbers, figures and a page; partial results; bad input."""

import json
import signal
import time

import pytest

pytest.importorskip("click")


from bisaddle import datasets, experiments, report
from bisaddle.cli import reproducing
from tests.cli_helpers import bisaddle, refused

from .report_runs import made_run, made_runs, made_sensitivity
from .small_experiment import FULLY_PROJECTED

TOML = (
    """
title = "a small comparison"
figure = "extra"
steps = 40
every = 10
seeds = [0]

[dataset]
name = "synthetic"
n = 40
d = 2
tasks = 2

[problem]
radius = 5.0

[tuning]
nu = [0.1, 1.0]

[[methods]]
key = "fp"
label = "FP"
"""
    + FULLY_PROJECTED
)


@pytest.fixture
def called(monkeypatch):
    """The experiments that would be run, with their arguments; the runs are made up."""
    calls = []

    def run(experiment, *, progress=None, **options):
        calls.append((experiment, options))
        if progress is not None:
            progress(1, 2, "half", 0.1)
        chosen = options["methods"] or ["opf"]
        names = [case.dataset["name"] for case in experiment.cases if case.dataset["name"] in options["datasets"]]
        label = {"dataset_label": "made up", "figure": experiment.figure}
        return [
            made_run(experiment.name, "mtl", key, 0.1) | label | {"dataset": name} for name in names for key in chosen
        ]

    monkeypatch.setattr(experiments, "run", run)
    return calls


@pytest.fixture
def no_figures(monkeypatch):
    """They take a second each, and other tests draw them."""
    monkeypatch.setattr(report, "figures", lambda runs, folder: ())


@pytest.mark.slow
def test_run_a_toml_file_leaves_numbers_figures_and_a_page(tmp_path):
    (tmp_path / "small.toml").write_text(TOML)
    done = bisaddle("run", tmp_path / "small.toml", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "float64" in done.stderr and "FP" in done.stdout
    assert done.stdout.splitlines()[-1] == f"The page is {tmp_path / 'out' / 'report.html'}"
    runs = experiments.load(tmp_path / "out")
    assert [run["nu"] for run in runs] == [0.1, 1.0] and sum(run["tuned"] for run in runs) == 1
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"results.json", "results.csv", "report.html"}


def test_options_of_run_reach_the_runner(tmp_path, called, no_figures):
    (tmp_path / "small.toml").write_text(TOML)
    more = ("--nu", "fp=0.5", "--nu", "fp=2", "--seed", "4", "--seed", "5", "--steps", "20", "--quick")
    done = bisaddle("run", tmp_path / "small.toml", *more, "--json", "--out", tmp_path / "out")
    assert done.exit_code == 0 and json.loads(done.stdout)["complete"]
    ((_, options),) = called
    assert options["nus"] == {"fp": [0.5, 2.0]} and options["seeds"] == (4, 5)
    assert options["steps"] == 20 and options["quick"] and options["methods"] == ["fp"]
    assert "account" not in json.loads(done.stdout)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"results.json", "results.csv", "report.html"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("radius = 5.0", "radius = -5.0", ("radius", "-5.0")),
        ("radius = 5.0", "raduis = 5.0", ("raduis", "did you mean radius")),
        ("[problem]", "[problme]", ("problme",)),
        ("steps = 40", "steps = 0", ("steps",)),
        ("steps = 40", "steps = ", ("not TOML",)),
        ('name = "synthetic"', 'name = "nothing"', ("nothing", "synthetic")),
        ("[0.1, 1.0]", "[-1.0]", ("nu", "-1.0")),
    ],
)
def test_a_bad_toml_file_is_a_usage_error(tmp_path, old, new, words):
    (tmp_path / "bad.toml").write_text(TOML.replace(old, new))
    refused(bisaddle("run", tmp_path / "bad.toml", "--out", tmp_path / "out"), 2, *words)
    assert not (tmp_path / "out").exists()


def test_a_missing_experiment_and_bad_options_are_usage_errors(tmp_path, called):
    refused(bisaddle("run", tmp_path / "none.toml"), 2, "none.toml")
    refused(bisaddle("run", "exp1_mlt"), 2, "exp1_mlt", "exp1_mtl")
    refused(bisaddle("reproduce", "fig3"), 2, "fig3", "fig1")
    refused(bisaddle("reproduce", "--dataset", "iris"), 2, "iris", "diabetes")
    refused(bisaddle("reproduce", "--quick", "--nu", "opf", "--out", tmp_path), 2, "opf=0.1")
    refused(bisaddle("reproduce", "--quick", "--nu", "sgd=1", "--out", tmp_path), 2, "sgd", "morbit")
    refused(bisaddle("reproduce", "--quick", "--method", "sgd", "--out", tmp_path), 2, "sgd", "morbit")
    refused(bisaddle("reproduce", "--seed", "-1"), 2, "--seed")
    assert not called


def test_reproduce_runs_exactly_what_is_named(tmp_path, called, monkeypatch):
    monkeypatch.setattr(datasets, "fetch", lambda name, directory=None: ())
    named = ("--nu", "opf=0.1", "--nu", "fp=1", "--nu", "morbit=215.44")
    done = bisaddle("reproduce", "fig1", "--dataset", "mtl", "--seed", "0", *named, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    ((experiment, options),) = called
    assert experiment.name == "exp1_mtl" and options["methods"] == ["opf", "fp", "morbit"]
    assert options["nus"] == {"opf": [0.1], "fp": [1.0], "morbit": [215.44]}
    assert options["seeds"] == (0,) and options["datasets"] == ["mtl"] and options["steps"] is None
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written >= {"results.json", "results.csv", "report.html", "REPRODUCTION.md", "fig1.png", "fig1.pdf"}
    assert done.stdout.splitlines()[-1] == f"The page is {tmp_path / 'out' / 'report.html'}"


def test_a_quick_reproduction_leaves_out_what_is_not_there_and_says_so(tmp_path, called, monkeypatch, no_figures):
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    monkeypatch.setattr("bisaddle.datasets.files.cache", lambda: tmp_path / "cache")
    monkeypatch.setattr(datasets, "fetch", lambda *_: pytest.fail("a quick run downloads nothing"))
    done = bisaddle("reproduce", "--quick", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "left out: mtl" in done.stderr and "left out: nlsy79" in done.stderr and "data fetch mtl" in done.stderr
    assert {name for _, options in called for name in options["datasets"]} == {"synthetic", "diabetes"}
    assert all(options["quick"] and experiment.figure in ("fig1", "fig2") for experiment, options in called)
    assert "left out: frozen" in done.stderr


def test_a_full_reproduction_without_its_data_ends_with_3(tmp_path, called, monkeypatch, no_figures):
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    monkeypatch.setattr("bisaddle.datasets.files.cache", lambda: tmp_path / "cache")

    def fetch(name, directory=None):
        raise datasets.DownloadError(f"{name} could not be downloaded")

    monkeypatch.setattr(datasets, "fetch", fetch)
    refused(bisaddle("reproduce", "fig2", "--out", tmp_path / "out"), 3, "without mtl, nlsy79")
    assert (tmp_path / "out" / "results.json").is_file()
    refused(bisaddle("reproduce", "--dataset", "mtl", "--out", tmp_path / "o"), 3, "mtl could not be downloaded")
    assert not (tmp_path / "o").exists()


def test_a_full_reproduction_varies_the_settings_and_a_quick_one_takes_the_maps_away(
    tmp_path, called, monkeypatch, no_figures
):
    monkeypatch.setattr(reproducing, "_missing", lambda options: {})
    varied = []

    def sensitivity(experiment, *, data_dir=None, progress=None):
        progress(1, 2, "half", 0.1)
        varied.append(experiment.name)
        return made_sensitivity(("mtl",))

    monkeypatch.setattr(experiments, "sensitivity", sensitivity)
    done = bisaddle("reproduce", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert {experiment.name for experiment, _ in called} == set(experiments.names())
    assert varied == [name for name in experiments.names() if experiments.read(name).sensitivity] != []
    assert len(experiments.load_sensitivity(tmp_path)) == 12 * len(varied)
    assert '"order":["opf","fp","morbit"]' in (tmp_path / "report.html").read_text()
    assert bisaddle("reproduce", "--quick", "--out", tmp_path).exit_code == 0
    assert not (tmp_path / "sensitivity.json").exists()


def test_a_wrong_file_stops_the_reproduction_before_it_begins(tmp_path, called):
    (tmp_path / "mg_scale").write_text("1 1:1\n")
    refused(
        bisaddle("reproduce", "--quick", "--data-dir", tmp_path, "--out", tmp_path / "out"), 3, "mg_scale", "truncated"
    )
    refused(bisaddle("reproduce", "--quick", "--data-dir", tmp_path / "none"), 3, "not a folder")
    assert not called


@pytest.fixture
def listening():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # pytest's workers ignore it
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_keeps_what_is_finished(tmp_path, monkeypatch, called, no_figures, listening):
    finished = experiments.run

    def run(experiment, **options):
        if called:
            signal.raise_signal(signal.SIGINT)
        return finished(experiment, **options)

    monkeypatch.setattr(experiments, "run", run)
    done = bisaddle(
        "reproduce", "fig1", "--quick", "--dataset", "synthetic", "--dataset", "diabetes", "--out", tmp_path
    )
    assert done.exit_code == 1 and "interrupted" in done.stdout and len(experiments.load(tmp_path)) == 1
    assert done.stdout.splitlines()[-1] == f"The page is {tmp_path / 'report.html'}"


def test_ctrl_c_before_anything_is_finished_says_so(tmp_path, monkeypatch, listening):
    def run(experiment, **options):
        signal.raise_signal(signal.SIGINT)
        return []

    monkeypatch.setattr(experiments, "run", run)
    refused(
        bisaddle("reproduce", "fig1", "--quick", "--dataset", "synthetic", "--out", tmp_path / "o"),
        1,
        "nothing is saved",
    )


def test_max_seconds_stops_and_keeps_what_is_finished(tmp_path, monkeypatch, no_figures):
    def run(experiment, *, progress, **options):
        try:
            for i in range(1000):
                time.sleep(0.01)
                progress(i, 1000, "slow", None)
        except KeyboardInterrupt:
            return [made_run(experiment.name, "synthetic", "opf", 0.1) | {"partial": True}]
        raise AssertionError("not stopped")

    monkeypatch.setattr(experiments, "run", run)
    done = bisaddle(
        "reproduce", "fig1", "--quick", "--max-seconds", "0.1", "--dataset", "synthetic", "--json", "--out", tmp_path
    )
    assert done.exit_code == 1 and json.loads(done.stdout)["complete"] is False
    assert experiments.load(tmp_path)[0]["partial"]


def test_report_makes_one_page_of_several_results(tmp_path):
    experiments.save(made_runs(datasets=("mtl",)), tmp_path / "a")
    experiments.save(made_runs(datasets=("synthetic",)), tmp_path / "b")
    (tmp_path / "a" / "sensitivity.json").write_text(json.dumps(made_sensitivity(("mtl",))))
    page = tmp_path / "new" / "both.html"
    done = bisaddle(
        "report", tmp_path / "a", tmp_path / "b" / "results.json", "--html", page, "--title", "both of them"
    )
    assert done.exit_code == 0 and str(page) in done.stdout
    text = page.read_text()
    assert "<title>both of them</title>" in text and '"order":["opf","fp","morbit"]' in text
    done = bisaddle("report", tmp_path / "a", "--html", page, "--figures", tmp_path / "f", "--json")
    assert len(json.loads(done.stdout)["figures"]) == 12 and (tmp_path / "f" / "fig1.pdf").is_file()


def test_report_refuses_what_are_no_results(tmp_path):
    refused(bisaddle("report", tmp_path / "none"), 2, "none", "results.json")
    (tmp_path / "results.json").write_text("[1]")
    refused(bisaddle("report", tmp_path), 2, "is not a run")
    refused(bisaddle("report"), 2, "RESULTS")


@pytest.mark.slow
def test_the_quick_reproduction_runs_as_it_stands(tmp_path, monkeypatch):
    done = bisaddle("reproduce", "--quick", "--dataset", "diabetes", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"results.json", "results.csv", "report.html", "REPRODUCTION.md", "fig1.png", "fig2.pdf"}
    assert {run["experiment"] for run in experiments.load(tmp_path)} == {"exp1_diabetes", "exp2_diabetes"}
    assert done.stdout.splitlines()[-1] == f"The page is {tmp_path / 'report.html'}"


def test_without_scikit_learn_its_data_set_is_left_out_and_named(monkeypatch):
    monkeypatch.setattr(reproducing, "find_spec", lambda name: None)
    found = reproducing._missing({"quick": True, "data_dir": None})
    assert "bisaddle[sklearn]" in found["diabetes"] and "synthetic" not in found
