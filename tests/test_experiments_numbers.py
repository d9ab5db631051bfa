"""OPF, FP and MORBiT on the default configuration against a plain NumPy run of the same equations."""

import os
from pathlib import Path

import numpy as np
import pytest

from bisaddle import datasets, experiments
from tests import reference_experiments as reference

FOLDER = os.environ.get("BISADDLE_DATA")
needs_files = pytest.mark.skipif(
    not (FOLDER and (Path(FOLDER) / "mg_scale").is_file()), reason="BISADDLE_DATA names no folder with the data files"
)
RUNNERS = {
    "opf": reference.opf,
    "fp": reference.fp,
    "morbit": lambda problem, records, nu, K: reference.morbit(problem, records, nu, K, 10),
}
# as chosen on the default configuration
NUS = {
    "mtl": {"opf": 10 ** (-1.0), "fp": 1.0, "morbit": 10 ** (7 / 3)},
    "nlsy79": {"opf": 10 ** (-2 / 3), "fp": 1.0, "morbit": 10 ** (7 / 3)},
    "synthetic": {"opf": 10 ** (-1 / 3), "fp": 100.0, "morbit": 100.0},
}


def tasks_of(name):
    if name == "synthetic":
        return datasets.load("synthetic", seed=0).tasks
    rows = {"mtl": reference.mtl_rows, "nlsy79": reference.nlsy_rows}[name]
    return reference.tasks_of(*rows(FOLDER), seed=0)


def compared(name, method, K, records, experiment=1):
    """(gap here, gap by NumPy) at the records"""
    nu = min(NUS[name][method], 0.99 * K**0.5)
    found = experiments.run(
        experiments.read(f"exp{experiment}_{name}"), seeds=[0], steps=K, nus={method: [nu]}, methods=[method]
    )
    curve = dict(zip(found[0]["curve"]["k"], found[0]["curve"]["gap"], strict=True))
    problem = reference.Regression(tasks_of(name), beta=0.1 if experiment == 2 else 0.0)
    plain = RUNNERS[method](problem, records, nu, K)
    return [(curve[k], plain[k]) for k in records]


@needs_files
@pytest.mark.parametrize("name", ["mtl", "nlsy79"])
def test_the_rows_and_the_split_are_those_of_the_default_configuration(name):
    for mine, plain in zip(datasets.load(name, seed=0).tasks, tasks_of(name), strict=True):
        for left, right in zip(mine, plain, strict=True):
            np.testing.assert_allclose(left, right, atol=1e-12)


@needs_files
@pytest.mark.parametrize("experiment", [1, 2])
@pytest.mark.parametrize("method", ["opf", "fp", "morbit"])
def test_a_thousand_steps_on_mtl(method, experiment, record):
    if method == "morbit" and experiment == 2:
        pytest.skip("Experiment 2 has no MORBiT")
    for mine, plain in compared("mtl", method, 1000, [0, 100, 1000], experiment):
        record("experiments: gap against NumPy, K = 1000, MTL", abs(mine - plain) / plain)
        assert mine == pytest.approx(plain, rel=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["opf", "fp", "morbit"])
@pytest.mark.parametrize("name", ["mtl", "synthetic"])
def test_ten_thousand_steps(name, method, record):
    if name == "mtl" and not (FOLDER and (Path(FOLDER) / "mg_scale").is_file()):
        pytest.skip("BISADDLE_DATA names no folder with the data files")
    for mine, plain in compared(name, method, 10_000, [0, 100, 1000, 10_000]):
        record("experiments: gap against NumPy, K = 10000", abs(mine - plain) / plain)
        assert mine == pytest.approx(plain, rel=1e-8)


@needs_files
@pytest.mark.slow
def test_ten_thousand_steps_on_nlsy79_where_rounding_does_not_decide(record):
    for method, records in (
        ("opf", [0, 100, 1000]),
        ("fp", [0, 100, 1000, 10_000]),
        ("morbit", [0, 100, 1000, 10_000]),
    ):
        for mine, plain in compared("nlsy79", method, 10_000, records):
            if plain == 0:  # MORBiT in its corner
                assert mine == 0
                continue
            record("experiments: gap against NumPy, NLSY79", abs(mine - plain) / plain)
            assert mine == pytest.approx(plain, rel=1e-8)


@needs_files
@pytest.mark.slow
def test_late_opf_on_nlsy79_agrees_in_the_median():
    # two runs that differ in rounding part ways after some 1000 steps; what they have in common is the level
    records = list(range(5000, 10_001, 100))
    mine, plain = np.array(compared("nlsy79", "opf", 10_000, records)).T
    assert 0.5 < np.median(mine) / np.median(plain) < 2
