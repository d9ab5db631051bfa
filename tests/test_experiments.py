"""bisaddle.experiments: runs, what is measured, another application, interruption, results on disk."""

import json
import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import experiments
from bisaddle.experiments import ExperimentError, build, jobs, metrics, multitask, spec
from bisaddle.report.records import Run
from bisaddle.run.blocks import advance
from tests.small_experiment import SMALL


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture(scope="module")
def small(file):
    return experiments.read(file)


@pytest.fixture(scope="module")
def built(small):
    return build.instance(small.cases[0], 0)


@pytest.fixture(scope="module")
def runs(small):
    return experiments.run(small, methods=["opf", "fp", "morbit", "morbit_60"])


def test_an_unknown_experiment_or_option_is_named(tmp_path, small):
    with pytest.raises(ExperimentError, match="did you mean exp1_mtl"):
        experiments.read("exp1_mlt")
    with pytest.raises(ExperimentError, match="cannot be read"):
        experiments.read(tmp_path / "absent.toml")
    with pytest.raises(ExperimentError, match="tunes nu of opf"):
        experiments.run(small, nus={"adaptive": [1.0]})
    with pytest.raises(ExperimentError, match="gamma exceeds 1"):
        experiments.run(small, nus={"opf": [1e5]}, methods=["opf"])
    with pytest.raises(ExperimentError, match="has no method 'sgd'"):
        experiments.run(small, methods=["sgd"])
    with pytest.raises(ExperimentError, match="multiple of 10"):
        experiments.run(small, steps=15)
    case = replace(small.cases[0], dataset={"name": "synthetic", "columns": 3})
    with pytest.raises(ExperimentError, match="has no option columns"):
        experiments.run(replace(small, cases=(case,)))


@pytest.mark.slow
@pytest.mark.parametrize("definition", ["lmo", pytest.param("projection", marks=pytest.mark.slow)])
def test_measures_agree_with_certify(built, definition, record):
    rng, measure = np.random.default_rng(0), jax.jit(metrics.measure)
    names = {"lmo": ("gap", "gap_paper"), "projection": ("gap_projection", "gap_projection_paper")}[definition]
    for _ in range(5):
        x = {
            "x": jnp.asarray(rng.dirichlet(np.ones(24)) * rng.normal(size=24)),
            "lam": jnp.asarray(rng.uniform(size=5)),
        }
        y = jnp.asarray(rng.dirichlet(np.ones(5)))
        scale = metrics.Scale(*(jnp.asarray(value) for value in (1.0, 1.0, 3.0, 0.7)))
        found = measure(built.problem, built.spectrum, scale, x, y)
        point = bs.Point(x, built.start.theta, y)
        plain = bs.certify(built.problem, point, measure=definition)
        own = bs.certify(built.problem, point, measure=definition, sigma=3.0, tau=0.7)
        pairs = [(found[names[0]], plain.gap), (found[names[1]], own.gap), (found["worst_value"], plain.worst_value)]
        for mine, certified in [*pairs, (found["y_gap"], plain.y_gap)]:
            error = abs(float(mine - certified)) / max(1.0, abs(float(certified)))
            record("experiments: exact measures against certify", error)
            assert error < 1e-9
        assert not found["corner"]


@pytest.mark.parametrize("lam", [0.0, 1.0])
def test_a_degenerate_corner_is_recognised(built, lam):
    x = {"x": jnp.zeros(built.start.x["x"].shape).at[0].set(1.7), "lam": jnp.full(5, 0.3).at[2].set(lam)}
    scale = metrics.Scale(*(jnp.asarray(1.0) for _ in range(4)))
    vertex, measure = jnp.zeros(5).at[2].set(1.0), jax.jit(metrics.measure)
    assert measure(built.problem, built.spectrum, scale, x, vertex)["corner"]
    assert not measure(built.problem, built.spectrum, scale, x, jnp.full(5, 0.2))["corner"]


@pytest.mark.parametrize("neumann", [1, 10, 60])
def test_the_closed_form_of_the_series_is_the_series(small, built, neumann, record):
    method = replace(small.methods[2], neumann=neumann)
    plain = build.method(method, built, 10.0, 400, as_published=True)
    closed = multitask.ClosedFormMORBiT(
        plain.steps, neumann + 1, spectrum=built.spectrum, exact=np.asarray(False), width=np.asarray(6)
    )
    x, theta, key = built.start.x, built.start.theta, jax.random.key(0)
    r = jnp.asarray(np.random.default_rng(0).normal(size=theta.shape))
    first, count = plain.inverse_product(built.problem, x, theta, r, key)
    second, same = closed.inverse_product(built.problem, x, theta, r, key)
    error = float(jnp.max(jnp.abs(first - second)))
    record("experiments: closed form of the Neumann series", error)
    assert error < 1e-12 and int(count) == int(same) == neumann


def test_the_exact_inverse_solves_the_system(small, built):
    closed = build.method(replace(small.methods[2], neumann="exact"), built, 10.0, 400)
    r = jnp.asarray(np.random.default_rng(0).normal(size=built.start.theta.shape))
    v, count = closed.inverse_product(built.problem, built.start.x, built.start.theta, r, jax.random.key(0))
    back = bs.oracle.hessian_product(built.problem, built.start.x, built.start.theta, v)
    np.testing.assert_allclose(back, r, atol=1e-12)
    assert int(count) == 6  # columns of the data


@pytest.mark.slow
def test_a_sweep_is_as_many_runs(small, built):
    methods = [build.method(small.methods[0], built, nu, 400) for nu in (0.1, 1.0)]
    lanes = jobs.side_by_side(built, methods, 3)
    (x, _), _ = lanes.advance(10, 4)
    assert x["x"].shape[:2] == (4, 3)
    for i, method in enumerate(methods):
        alone = advance(built.problem, method, method.init(built.problem, built.start), 40)
        np.testing.assert_allclose(lanes.state(i).x["x"], alone.x["x"], atol=1e-13)
        np.testing.assert_allclose(x["x"][3, i], lanes.state(i).x["x"])


def test_runs_have_the_keys_the_curves_and_the_tuning(small, runs):
    counts = {"opf": 3, "fp": 3, "morbit": 4, "morbit_60": 4}  # nu = 1000 has gamma > 1
    for key, values in counts.items():
        mine = [run for run in runs if run["method"] == key]
        assert len(mine) == 2 * values
        tuned = [run for run in mine if run["tuned"]]
        assert len(tuned) == 2 and len({run["nu"] for run in tuned}) == 1
        means = {}
        for run in mine:
            means.setdefault(run["nu"], []).append(run["final"]["mean_log10_gap"])
        assert min(means, key=lambda nu: np.mean(means[nu])) == tuned[0]["nu"]
    for run in runs:
        json.dumps(run, allow_nan=False)
        curve = run["curve"]
        assert {"k", "seconds", "hvps", *metrics.COLUMNS} == set(curve)
        assert len({len(column) for column in curve.values()}) == 1
        assert not run["partial"] and run["final"]["gap"] == pytest.approx(curve["gap"][-1], rel=1e-5)
        assert curve["k"] == list(range(0, 401, 10)) and run["final"]["status"] == "COMPLETED"
        products = {"opf": 2, "fp": 2, "morbit": 11, "morbit_60": 61}[run["method"]]
        assert curve["hvps"] == [products * k for k in curve["k"]]
        assert run["config"]["products_per_step"] == products
        if run["tuned"]:
            certificate = run["certificate"]
            assert certificate["measure"] == "lmo"
            assert abs(certificate["gap"] - run["final"]["gap"]) <= certificate["error_bound"] + 1e-10
            assert len(run["final"]["x"]) == 6 and len(run["final"]["lam"]) == 5
            alone = run["final"]["alone"]
            assert alone["parted"] is None and alone["gap"] == pytest.approx(run["final"]["gap"], rel=1e-6)


@pytest.mark.slow
def test_adaptive_ends_certified_and_its_last_record_says_so(small):
    for run in experiments.run(small, methods=["adaptive"]):
        assert run["final"]["status"] == "CERTIFIED" and run["final"]["gap"] <= 1e-5
        assert run["nu"] is None and run["tuned"] and run["curve"]["hvps"][-1] > run["curve"]["hvps"][0]
        assert run["curve"]["seconds"] == sorted(run["curve"]["seconds"])


@pytest.mark.slow
def test_quick_takes_less_and_overrides_are_obeyed(small):
    few = replace(small, methods=tuple(spec for spec in small.methods if spec.method != "Adaptive"))
    found = experiments.run(few, quick=True)
    assert {run["steps"] for run in found} == {100} and {run["seed"] for run in found} == {3}
    assert {run["method"] for run in found} == {"opf", "fp", "morbit"}
    assert {run["nu"] for run in found if run["method"] == "opf"} == {1.0}
    exact = experiments.run(small, nus={"opf": [0.25]}, seeds=[7], steps=200, methods=["opf"])  # nothing else
    assert [(run["nu"], run["seed"], run["steps"], run["tuned"]) for run in exact] == [(0.25, 7, 200, True)]


def test_an_interruption_gives_back_what_there_is(small, tmp_path):
    calls = []

    def progress(done, total, text, gap):
        calls.append((done, total, text, gap))
        raise KeyboardInterrupt

    long = replace(small, steps=200_000)
    found = experiments.run(long, seeds=[0], methods=["opf", "fp"], progress=progress)
    assert len(calls) == 1 and found and all(run["partial"] for run in found)
    assert all(run["final"]["status"] == "INTERRUPTED" and run["final"]["k"] < 200_000 for run in found)
    assert experiments.load(experiments.save(found, tmp_path)) == found


def test_progress_counts_up_to_the_total(small):
    calls = []
    experiments.run(small, seeds=[0], methods=["opf"], progress=lambda *call: calls.append(call))
    assert [call[0] for call in calls] == sorted(call[0] for call in calls) and calls[-1][0] == calls[-1][1]
    assert "opf" in calls[-1][2] and math.isfinite(calls[-1][3])


def test_a_failure_in_a_job_is_raised(small, monkeypatch):
    monkeypatch.setattr(jobs.Lanes, "advance", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        experiments.run(small, seeds=[0], methods=["opf"])


def test_results_are_saved_and_loaded(runs, tmp_path):
    path = experiments.save(runs, tmp_path / "out")
    assert path.name == "results.json" and experiments.load(path) == experiments.load(path.parent) == runs
    lines = (path.parent / "results.csv").read_text().splitlines()
    assert lines[0] == "experiment,dataset,method,nu,seed,k,seconds,hvps,x_gap,y_gap,gap,worst_value,corner"
    assert len(lines) == 1 + sum(len(run["curve"]["k"]) for run in runs)
    assert not list(path.parent.glob(".*"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "no JSON"),
        ("{}", "a list is needed, found dict"),
        ('[{"experiment": "a"}]', "item 0 is not a run: it has no dataset"),
        (
            '[{"experiment": 1, "dataset": 1, "method": 1, "nu": 1, "seed": 1, "config": 1, "curve": {}}]',
            "complete curve",
        ),
    ],
)
def test_another_file_is_refused_as_results(tmp_path, content, words):
    path = tmp_path / "results.json"
    path.write_text(content)
    with pytest.raises(ExperimentError, match=words):
        experiments.load(path)


def test_no_results_are_named(tmp_path):
    with pytest.raises(ExperimentError, match="cannot be read"):
        experiments.load(tmp_path)


def test_sensitivity_orders_the_methods_of_each_setting(small, tmp_path):
    found = experiments.sensitivity(small)
    assert len(found) == 2 * 2 * 3 * 2  # ridge, MORBiT's series, measures, caps
    for entry in found:
        gaps, means = entry["gaps"], entry["mean_log10_gaps"]
        assert sorted(gaps, key=lambda name: gaps[name]) == entry["order_final"]
        assert sorted(means, key=lambda name: means[name]) == entry["order"]
        assert entry["cap"] is None or all(nu <= entry["cap"] for nu in entry["nus"].values())
    assert {entry["setting"]["neumann"] for entry in found} == {10, 60}
    experiments.save_sensitivity(found, tmp_path)
    assert experiments.load_sensitivity(tmp_path) == found


def test_lambda_is_frozen_where_the_file_says_so(small):
    case = replace(small.cases[0], problem={**small.cases[0].problem, "lam": [0.5, 0.5]})
    frozen = experiments.run(replace(small, cases=(case,)), seeds=[0], methods=["fp"], nus={"fp": [1.0]})
    assert frozen[0]["final"]["lam"] == 5 * [0.5] and not any(frozen[0]["curve"]["corner"])


def test_another_application_says_what_its_problem_takes_and_shows(tmp_path, monkeypatch):
    class Ridge(multitask.Multitask):
        lmo_tie = "none"

        def options(self, where, table):
            return super().options(where, {"ridge": table["strength"]})

        def start_words(self, start):
            return "nowhere"

        def shown(self, point, data):
            return {"weights": np.asarray(point.y).tolist()}

    monkeypatch.setitem(spec.APPLICATIONS, "ridge", Ridge())
    path = tmp_path / "mine.toml"
    path.write_text(SMALL.replace("radius = 2.0", 'application = "ridge"\nstrength = 0.3'))
    (run,) = experiments.run(experiments.read(path), seeds=[0], steps=100, methods=["fp"], nus={"fp": [1.0]})
    assert (run["config"]["ridge"], run["config"]["start"], run["config"]["lmo_tie"]) == (0.3, "nowhere", "none")
    assert len(run["final"]["weights"]) == 5 and "lam" not in run["final"]
    assert Run.from_dict(run).final.point == {"weights": run["final"]["weights"]}
