"""Experiments as they are written down: the bundled files, a file of one's own, what is refused."""

import numpy as np
import pytest

from bisaddle import experiments
from bisaddle.experiments import ExperimentError, formula, spec
from tests.small_experiment import SMALL


def test_the_bundled_experiments_are_read_and_are_the_default_configuration():
    assert set(experiments.names()) == {
        *(f"exp{i}_{name}" for i in (1, 2) for name in ("nlsy79", "mtl", "synthetic", "diabetes")),
        "frozen",
    }
    for name in experiments.names():
        found = experiments.read(name)
        assert found.name == name and found.steps == 10_000 and found.seeds == (0, 1, 2)
        assert found.gap == {"sigma": 1.0, "tau": 1.0}
        assert found.figure == {"exp1": "fig1", "exp2": "fig2"}.get(name[:4], "extra")
        for case in found.cases:
            assert (case.problem["radius"], case.problem["ridge"]) == (5.0, 0.1)
            assert case.problem["divergence"] == (0.1 if "exp2" in case.name else 0.0)
            assert case.problem["lam"] == ([0.5, 0.5] if name == "frozen" else [0.0, 1.0])
        for method in found.methods:
            if method.nu:
                np.testing.assert_allclose(method.nu, np.logspace(-3, 3, 19), rtol=1e-12)
    first, second = experiments.read("exp1_mtl"), experiments.read("exp2_mtl")
    keys = ["opf", "fp", "fp_apart", "morbit", "morbit_1", "morbit_60", "morbit_exact", "adaptive"]
    assert [method.key for method in first.methods] == keys
    assert [method.neumann for method in first.methods[3:]] == [10, 1, 60, "exact", None]
    assert [method.key for method in second.methods] == ["opf", "fp", "opf_printed", "fp_printed", "adaptive"]
    # ours is in every panel, in the quick form too, with nothing to tune
    for found in map(experiments.read, experiments.names()[:8]):
        assert [(spec.tol, spec.nu, spec.steps, spec.quick) for spec in found.methods if spec.method == "Adaptive"] == [
            (1e-6, (), {}, True)
        ]


def test_the_data_sets_of_an_experiment_differ_in_what_its_file_says_of_each():
    paper = ["nlsy79", "mtl", "synthetic"]
    order = [*(f"exp{i}_{name}" for i in (1, 2) for name in paper), "exp1_diabetes", "exp2_diabetes"]
    assert list(experiments.names()) == [*order, "frozen"]
    for name in order:
        found, data = experiments.read(name), name.partition("_")[2]
        (case,) = found.cases
        assert case.name == name and case.dataset["name"] == data and data[:3].lower() in found.title.lower()
        assert case.dataset["train"] == 0.75 and case.dataset["standardize"] == ["features", "targets"]
        assert found.quick == {"steps": 2000 if data == "synthetic" else 10_000, "seeds": (0,), "stride": 3}
        own = {"standardize"} if data != "synthetic" else {"noise", "d"}
        assert set(found.sensitivity) == ({"radius", "ridge", "nu_caps", *own} if "exp1" in name else set())
    synthetic = experiments.read("exp1_synthetic").dataset
    assert (synthetic["n"], synthetic["d"], synthetic["tasks"], synthetic["noise"]) == (5000, 100, 5, 0.1)


def test_a_file_of_several_experiments_is_read_one_by_one(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(SMALL + "\n[each.wide]\ndataset.d = 9\nsteps = 20\n[each.few]\nquick.stride = 3\n")
    wide, few = experiments.read(f"{path}:wide"), experiments.read(f"{path}:few")
    assert (wide.name, wide.steps, wide.dataset) == ("mine_wide", 20, {"name": "synthetic", "n": 300, "d": 9})
    assert few.steps == 400 and few.dataset["d"] == 6
    assert few.quick == {"steps": 100, "seeds": (3,), "stride": 3}
    for given in (path, f"{path}:long"):
        with pytest.raises(ExperimentError, match="mine.toml:wide, .*mine.toml:few"):
            experiments.read(given)


def test_the_application_is_named_in_the_problem(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL.replace("[problem]", '[problem]\napplication = "multitask"'))
    assert experiments.read(path).cases[0].application == "multitask"
    path.write_text(SMALL.replace("[problem]", '[problem]\napplication = "dictionary"'))
    with pytest.raises(ExperimentError, match=r"problem\.application must be one of multitask, given 'dictionary'"):
        experiments.read(path)


def test_step_sizes_are_those_of_section_6():
    found = experiments.read("exp2_diabetes")
    by_key = {method.key: method for method in (*experiments.read("exp1_diabetes").methods, *found.methods[2:])}
    symbols = {"nu": 3.0, "K": 1e4, "T": 5.0, "mu_g": 0.1, "L_g": 3.9, "L_yy": 0.5}
    opf = formula.evaluate("opf", by_key["opf"].steps, symbols)
    assert opf["gamma"] == pytest.approx(3 * 1e4 ** (-2 / 3)) and opf["mu"] == pytest.approx(3 * 1e4 ** (-1 / 3))
    assert opf["alpha"] == opf["eta"] == 0.5 and opf["sigma"] == 1 / opf["mu"]
    fp = formula.evaluate("fp", by_key["fp"].steps, symbols)
    assert (fp["gamma"], fp["mu"], fp["tau"]) == (pytest.approx(0.03), pytest.approx(0.3), 0.7)
    apart = formula.evaluate("fp", by_key["fp_apart"].steps, symbols)
    assert (apart["gamma"], apart["mu"], apart["sigma"]) == (1.0, 1e-4, 1e4)
    morbit = formula.evaluate("morbit", by_key["morbit"].steps, symbols)
    assert morbit["alpha"] == pytest.approx(1e4**-0.4) and morbit["tau"] == morbit["sigma"] == pytest.approx(
        3 * 1e4**-0.6
    )
    second = {method.key: method for method in found.methods}
    safe = formula.evaluate("opf", second["opf"].steps, symbols)
    assert safe["sigma"] == 1 / (safe["mu"] + 0.5)
    printed = formula.evaluate("opf", second["opf_printed"].steps, symbols)
    assert printed["sigma"] == 1 / printed["mu"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("radius = 2.0", "radius = -2.0", ["problem.radius", "> 0", "-2.0"]),
        ("radius = 2.0", "raduis = 2.0", ["'raduis'", "did you mean radius"]),
        ('figure = "fig1"', 'figure = "fig9"', ["fig1, fig2, extra", "'fig9'"]),
        ("steps = 400", "steps = 405", ["multiple of every", "405"]),
        ("steps = 400", "steps = 0", ["steps", ">= 1"]),
        ("seeds = [0, 1]", "seeds = [0, 0]", ["different whole numbers"]),
        ("seeds = [0, 1]", "seeds = [-1]", ["whole number >= 0", "-1"]),
        ('name = "synthetic"', 'name = "mtk"', ["synthetic, mtl", "'mtk'"]),
        ('mu = "nu * K^(-1/3)"', 'mu = "nu * Q"', ["'Q'", "nu, K, T"]),
        ('mu = "nu * K^(-1/3)"', 'mu = "open(1)"', ["+ - * / ^"]),
        ('mu = "nu * K^(-1/3)"', 'mu = "nu *"', ["formula such as"]),
        ("neumann = 10", "neumann = -1", ["terms after the first", "-1"]),
        ("neumann = 10", "eta = 1.0", ["unknown key 'eta'"]),
        ('method = "MORBiT"', 'method = "Morbid"', ["OneSidedProjectionFree, FullyProjected, MORBiT", "'Morbid'"]),
        ('key = "fp"', 'key = "opf"', ["key of its own"]),
        ("nu = [0.1, 1.0, 10.0, 1000.0]", "nu = [0.1, 0.0]", ["tuning.nu", "> 0"]),
        ("tau = 0.7\n", "", ["FullyProjected needs tau"]),
        ("tol = 1e-5", "tol = 1e-5\nnu = [1.0]", ["no step size of adaptive uses nu"]),
        ("ridge = [0.1, 1.0]", "ridge = 0.1", ["sensitivity.ridge", "list"]),
        ("[quick]", "[quick", ["is not TOML"]),
    ],
)
def test_a_bad_file_is_refused_with_the_key_and_what_is_needed(tmp_path, old, new, words):
    path = tmp_path / "bad.toml"
    assert old in SMALL
    path.write_text(SMALL.replace(old, new, 1))
    with pytest.raises(ExperimentError) as error:
        experiments.read(path)
    for word in ["bad.toml", *words]:
        assert word in str(error.value)


def test_the_number_of_a_method_is_read_from_spec(tmp_path):
    (tmp_path / "small.toml").write_text(SMALL)
    small = experiments.read(tmp_path / "small.toml")
    assert isinstance(small.methods[0], spec.MethodSpec) and small.methods[0].label == "OPF"
    assert small.dataset["name"] == "synthetic" and small.problem["radius"] == 2.0
