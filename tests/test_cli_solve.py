"""bisaddle solve and certify: from a CSV or a function to a certified result file, and back."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("click")

import click
import jax
import jax.numpy as jnp

from bisaddle.apps import multitask
from bisaddle.cli import documents
from bisaddle.cli.stepping import method_named
from bisaddle.methods import Adaptive, FullyProjected, OneSidedProjectionFree
from tests.cli_helpers import bisaddle, refused

ROOT = Path(__file__).parents[1]
COLUMNS = ("--task-column", "region", "--target", "price")
# compiles in a second, where Adaptive takes many
FAST = ("--method", "FullyProjected", "--nu", "10", "--max-steps", "2000", "--tol", "0.05")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three regions, two features; prices linear in them."""
    rng = np.random.default_rng(0)
    lines = ["region,price,rooms,age"]
    for region, rows in (("north", 24), ("south", 32), ("east", 16)):
        slope = rng.normal(size=2)
        for features in rng.normal(size=(rows, 2)):
            lines.append(f"{region},{features @ slope + 0.1 * rng.normal():.4f},{features[0]:.4f},{features[1]:.4f}")
    path = tmp_path_factory.mktemp("data") / "houses.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def solved(table, tmp_path_factory):
    out = tmp_path_factory.mktemp("solved") / "deep" / "result.json"
    return bisaddle("solve", "multitask", table, *COLUMNS, *FAST, "--out", out), out


def test_solve_a_csv_certifies_and_writes_a_result(solved, table):
    done, out = solved
    assert done.exit_code == 0, done.output
    assert "CERTIFIED" in done.stdout and "FullyProjected, float64" in done.stdout
    for name in ("north", "south", "east"):
        assert name in done.stdout
    assert "Stationary to" in done.stdout and str(out) in done.stderr
    document = documents.load(out)
    assert document["status"] == "CERTIFIED" and not document["partial"]
    assert document["point"]["x"]["lam"]["dtype"] == "float64" and len(document["point"]["y"]["values"]) == 3
    assert document["problem"]["file"] == str(table) and document["settings"]["precision"] == 64
    assert document["trace"]["k"][-1] == document["steps"] and {"jax", "bisaddle"} <= set(document["versions"])
    assert list(out.parent.iterdir()) == [out]  # no temporary file left


def test_certify_computes_the_certificate_again(solved):
    _, out = solved
    done = bisaddle("certify", out, "--tol", "0.05", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["within"] and found["certificate"]["gap"] == pytest.approx(found["recorded"]["gap"], rel=1e-10)
    done = bisaddle("certify", out, "--tol", "0.05")
    assert "CERTIFIED" in done.stdout and "Stationary to" in done.stdout and done.exit_code == 0
    assert "The file claims: measure projection, sigma = 1, tau = 1, tol = 0.05" in done.stdout
    done = bisaddle("certify", out, "--tol", "1e-9")
    assert done.exit_code == 1 and "NOT CERTIFIED" in done.stdout


def test_certify_audits_on_request(solved):
    _, out = solved
    done = bisaddle("certify", out, "--audit", "--tol", "0.05")
    assert done.exit_code == 0 and "audit: gap" in done.stdout and "The audit agrees" in done.stdout
    found = json.loads(bisaddle("certify", out, "--audit", "--tol", "0.05", "--json").stdout)
    assert found["audit"]["agrees"] and found["audit"]["concave"] and found["audit"]["notes"] == []
    assert found["audit"]["gap"] == pytest.approx(found["certificate"]["gap"], rel=1e-9)
    done = bisaddle("certify", out, "--audit", "--tol", "1e-9")
    assert done.exit_code == 1 and "does NOT agree" in done.stdout


def test_certify_trusts_neither_the_recorded_gap_nor_a_changed_point(solved, tmp_path):
    document = documents.load(solved[1])
    document["certificate"]["gap"] = 0.0
    document["point"]["x"]["x"]["values"] = [0.5, -0.5]
    documents.save(document, tmp_path / "moved.json")
    done = bisaddle("certify", tmp_path / "moved.json", "--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["certificate"]["gap"] > 0.05


@pytest.mark.parametrize(
    "claims", [{"tau": 1e12}, {"sigma": 1e12}, {"tau": 1e12, "sigma": 1e12, "measure": "lmo"}, {"tol": 1e12}, {}]
)
def test_certify_lets_no_claim_of_the_file_decide(model, claims):
    """Step sizes inside the gap that make any gap small, a tolerance that anything meets, another measure."""
    steps = ("--method", "GDA", "--step", "tau=1e-9", "--step", "sigma=1e-9", "--max-steps", "1")
    bisaddle("solve", "model.py:plain", *steps, "--out", "r.json")
    document = documents.load(Path("r.json"))
    document["settings"]["tol"] = claims.pop("tol", 1e-4)
    document["certificate"] |= claims
    documents.save(document, Path("r.json"))
    done = bisaddle("certify", "r.json", "--json")
    found = json.loads(done.stdout)
    assert done.exit_code == 1 and not found["within"] and found["tol"] == 1e-4
    assert found["certificate"]["sigma"] == found["certificate"]["tau"] == 1 and found["certificate"]["gap"] > 0.5
    assert found["claimed_tol"] == document["settings"]["tol"] and found["recorded"] == document["certificate"]
    wide = bisaddle("certify", "r.json", "--tau", "1e12", "--sigma", "1e12")
    assert "sigma = 1e+12, tau = 1e+12" in wide.stdout  # what the user asks for is done, and said


def test_certify_finds_the_data_beside_the_result_and_refuses_other_data(solved, table, tmp_path):
    document = documents.load(solved[1])
    document["problem"]["file"] = "/nowhere/houses.csv"
    documents.save(document, tmp_path / "result.json")
    refused(bisaddle("certify", tmp_path / "result.json"), 3, "houses.csv", "cannot be read")
    tol = ("--tol", "0.05")
    assert bisaddle("certify", tmp_path / "result.json", *tol, "--data-dir", table.parent).exit_code == 0
    (tmp_path / "houses.csv").write_bytes(table.read_bytes())
    assert bisaddle("certify", tmp_path / "result.json", *tol).exit_code == 0
    (tmp_path / "houses.csv").write_text(table.read_text() + "east,1,1,1\n")
    refused(bisaddle("certify", tmp_path / "result.json"), 3, "sha256", "solve again")


def test_certify_refuses_what_is_no_result(solved, tmp_path):
    refused(bisaddle("certify", tmp_path / "none.json"), 3, "none.json", "cannot be read")
    (tmp_path / "cut.json").write_text(solved[1].read_text()[:500])
    refused(bisaddle("certify", tmp_path / "cut.json"), 3, "cut.json", "truncated")
    (tmp_path / "other.json").write_text('{"a": 1}')
    refused(bisaddle("certify", tmp_path / "other.json"), 3, "is not a result file")
    document = documents.load(solved[1])
    document["point"]["y"]["shape"], document["point"]["y"]["values"] = [2], [0.5, 0.5]
    documents.save(document, tmp_path / "shape.json")
    refused(bisaddle("certify", tmp_path / "shape.json"), 3, "shapes")


def test_a_run_that_does_not_converge_exits_with_1_and_still_writes(table, tmp_path):
    few = ("--method", "FullyProjected", "--max-steps", "20", "--tol", "1e-9")
    done = bisaddle("solve", "multitask", table, *COLUMNS, *few, "--out", tmp_path / "r.json", "--json")
    assert done.exit_code == 1 and json.loads(done.stdout)["status"] == "MAX_STEPS"
    assert json.loads(done.stdout) == documents.load(tmp_path / "r.json")


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (lambda text: text, ("--task-column", "county", "--target", "price"), ("no column county", "region")),
        (lambda text: text, ("--task-column", "region", "--target", "rent"), ("no column rent",)),
        (lambda text: text.replace("south", "north").replace("east", "north"), COLUMNS, ("one task only", "north")),
        (lambda text: text + "west,1,1,1\n", COLUMNS, ("west", "1 rows found", "at least 2")),
        (lambda text: text + "east,1,nan,1\n", COLUMNS, ("column rooms", "row 73", "nan", "finite")),
        (lambda text: text + "east,1,,1\n", COLUMNS, ("column rooms", "finite")),
        (lambda text: text + "east,1\n", COLUMNS, ("line 74", "2 values found")),
        (lambda text: "", COLUMNS, ("truncated",)),
    ],
)
def test_a_bad_table_is_a_data_error(table, tmp_path, change, arguments, words):
    path = tmp_path / "bad.csv"
    path.write_text(change(table.read_text()))
    refused(bisaddle("solve", "multitask", path, *arguments), 3, *words)


def test_a_missing_table_and_missing_or_misplaced_options_are_named(table, tmp_path):
    refused(bisaddle("solve", "multitask", tmp_path / "none.csv", *COLUMNS), 3, "none.csv", "cannot be read")
    refused(bisaddle("solve", "multitask"), 2, "CSV file")
    refused(bisaddle("solve", "multitask", table, "--target", "price"), 2, "--task-column")
    refused(bisaddle("solve", "multitask", table, *COLUMNS, "--radius", "-1"), 2, "--radius", "x>0")
    refused(bisaddle("solve", "multitask", table, *COLUMNS, "--ridge", "0"), 2, "--ridge")
    refused(bisaddle("solve", "multitask", table, *COLUMNS, "--tol", "0"), 2, "--tol")
    refused(bisaddle("solve", "multitask", table, *COLUMNS, "--feature", "price"), 2, "different columns")
    refused(bisaddle("solve", "model.py:f", "--radius", "3"), 2, "--radius is for `multitask")
    refused(bisaddle("solve", "model.py:f", table), 2, "houses.csv is for `multitask")


MODEL = """
    import jax.numpy as jnp
    import bisaddle as bs

    def problem(seed=3):
        tasks = bs.apps.multitask.synthetic(rows=60, width=2, tasks=3, noise=0.1, seed=seed)
        return bs.apps.multitask.regression(tasks)

    def plain():
        ball = bs.sets.L2Ball(1.0)
        def upper(x, theta, y, data):
            return jnp.sum(x["a"] * y) - jnp.sum(y**2)
        problem = bs.Problem(upper, None, bs.sets.Product({"a": ball}), ball)
        return problem, bs.Point(x={"a": jnp.ones(2) / 2}, y=jnp.ones(2) / 2)

    def number():
        return 3

    def swapped():
        return tuple(reversed(plain()))

    def broken():
        return undefined

    def needs(rows):
        return rows

    constant = 3
"""


@pytest.fixture
def model(tmp_path, monkeypatch):
    path = tmp_path / "model.py"
    path.write_text(textwrap.dedent(MODEL))
    monkeypatch.chdir(tmp_path)
    return path


def test_solve_a_function_and_certify_it(model):
    done = bisaddle("solve", "model.py:problem", "--seed", "1", *FAST, "--out", "r.json")
    assert done.exit_code in (0, 1) and Path("r.json").is_file(), done.output
    found = json.loads(bisaddle("certify", "r.json", "--json", "--tol", "10").stdout)
    assert found["certificate"]["gap"] == pytest.approx(found["recorded"]["gap"], rel=1e-9)
    model.write_text(model.read_text() + "\n# changed\n")
    refused(bisaddle("certify", "r.json", "--tol", "10"), 3, "has changed since", "--problem model.py:problem")
    done = bisaddle("certify", "r.json", "--tol", "10", "--problem", "model.py:problem")
    assert done.exit_code == 0 and "has changed since" in done.stderr


def test_several_starts_are_shown_and_written(model):
    done = bisaddle(
        "solve", "model:plain", "--method", "gda", "--step", "tau=0.5", "--step", "sigma=0.4", "--starts", "3"
    )
    assert done.exit_code == 0 and "worst value over Y" in done.stdout, done.output
    rows = [line for line in done.stdout.splitlines() if line.strip().startswith(("1 ", "2 ", "3 "))]
    assert len(rows) == 3 and all("CERTIFIED" in row for row in rows), done.output
    refused(bisaddle("solve", "model:plain", "--starts", "0"), 2, "--starts")


def test_solve_a_saddle_problem_without_a_lower_level_given_as_a_module(model, monkeypatch):
    steps = ("--step", "tau=0.5", "--step", "sigma=0.4")
    done = bisaddle("solve", "model:plain", "--method", "gda", *steps, "--tol", "1e-6", "--json", "--out", "r.json")
    document = json.loads(done.stdout)
    assert done.exit_code == 0 and document["point"]["theta"] is None and document["settings"]["method"] == "GDA"
    assert bisaddle("certify", "r.json").exit_code == 0


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("model.py:number", ("returned int", "(problem, start) is needed")),
        ("model.py:swapped", ("returned (Point, Problem)",)),
        ("model.py:broken", ("NameError", "undefined", "line")),
        ("model.py:needs", ("rows", "only `seed`")),
        ("model.py:absent", ("no function absent", "problem, plain")),
        ("model.py:constant", ("no function constant",)),
        ("none.py:problem", ("none.py is not there",)),
        ("no_such_module:problem", ("cannot be imported", "no_such_module")),
        ("model.py", ("model.py:function",)),
        ("regression", ("multitask",)),
        ("model.py:plain --seed 1", ("no parameter `seed`",)),
        ("syntax.py:f", ("SyntaxError",)),
    ],
)
def test_a_bad_function_is_a_usage_error(model, reference, words):
    Path("syntax.py").write_text("def f(:\n")
    refused(bisaddle("solve", *reference.split()), 2, *words)


@pytest.fixture(scope="module")
def small():
    return multitask.regression(multitask.synthetic(rows=60, width=2, tasks=3))


def test_the_default_method_is_adaptive_with_the_tolerance(small):
    for name in (None, "adaptive"):
        method = method_named(name, *small, tol=1e-5, max_steps=100, steps=(), nu=None)
        assert isinstance(method, Adaptive) and float(method.tol) == 1e-5


def test_methods_by_name_with_the_steps_of_section_6_or_given_ones(small):
    opf = method_named("onesidedprojectionfree", *small, tol=1e-4, max_steps=1000, steps=(), nu=2.0)
    assert isinstance(opf, OneSidedProjectionFree) and float(opf.steps.gamma.value) == pytest.approx(
        2 * 1000 ** (-2 / 3)
    )
    given = tuple(f"{name}=0.5" for name in ("alpha", "eta", "gamma", "tau", "sigma", "mu"))
    fp = method_named("FullyProjected", *small, tol=1e-4, max_steps=1000, steps=given, nu=None)
    assert isinstance(fp, FullyProjected) and float(fp.steps.tau.value) == 0.5
    assert method_named("MORBiT", *small, tol=1e-4, max_steps=1000, steps=(), nu=None).name == "MORBiT"


@pytest.mark.parametrize(
    ("name", "steps", "nu", "words"),
    [
        (None, ("gamma=1",), None, "Adaptive has none"),
        ("Adaptive", (), 1.0, "Adaptive has none"),
        ("nothing", (), None, "no method is called 'nothing'"),
        ("FullyProjected", ("gamma",), None, "NAME=NUMBER"),
        ("FullyProjected", ("gamma=x",), None, "NAME=NUMBER"),
        ("FullyProjected", ("beta=1",), None, "the step sizes are alpha"),
        ("FullyProjected", ("gamma=1",), 1.0, "leave it out"),
        ("MultiBlockV1", ("gamma=1",), None, "takes more than step sizes"),
        ("SPFW", (), None, "needs mu_x"),
        ("GDA", (), 1.0, "leave --nu out"),
    ],
)
def test_a_bad_method_is_a_usage_error(small, name, steps, nu, words):
    with pytest.raises(click.ClickException, match=words.replace("(", r"\(")) as caught:
        method_named(name, *small, tol=1e-4, max_steps=100, steps=steps, nu=nu)
    assert caught.value.exit_code == 2


def test_single_precision_is_said_and_certified_in_double(model):
    steps = ("--method", "GDA", "--step", "tau=0.5", "--step", "sigma=0.4", "--max-steps", "500")
    done = bisaddle("solve", "model:plain", *steps, "--precision", "32", "--out", "r.json")
    document = documents.load(Path("r.json"))
    assert done.exit_code == 0 and "float32" in done.stdout
    assert document["point"]["x"]["a"]["dtype"] == "float32" and document["settings"]["precision"] == 32
    assert bisaddle("certify", "r.json").exit_code == 0
    assert jax.config.jax_enable_x64  # as it was


def test_trees_of_any_kind_survive_the_file():
    tree = {"b": (jnp.arange(3), [jnp.float32(0.1)]), "a": jnp.array([[1.5, jnp.inf]])}
    document = json.loads(json.dumps(documents.tree_document(tree), allow_nan=False))
    again = documents.tree_from(document, tree, "x")
    assert again["b"][0].dtype == jnp.arange(3).dtype and again["b"][1][0] == jnp.float32(0.1)
    assert again["a"][0, 0] == 1.5 and jnp.isnan(again["a"][0, 1])


LISTENING = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)  # a parent in the background may have it ignored
from bisaddle.cli import main, screen

def show(self, *arguments):
    Path("running").touch()

screen.Progress.show = show
main(sys.argv[1:])
"""


def interrupted(arguments, folder):
    """(exit code, stdout, stderr) of the command, sent Ctrl-C when it has shown progress."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    call = [sys.executable, "-c", LISTENING, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(call, cwd=folder, env=environment, **pipes) as process:
        try:
            limit = time.monotonic() + 120
            while not (folder / "running").exists() and process.poll() is None and time.monotonic() < limit:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    return process.returncode, out, err


def test_ctrl_c_leaves_a_result_that_can_be_certified(model):
    limits = ("--step", "tau=1e-9", "--step", "sigma=1e-9", "--tol", "1e-12", "--max-steps", "2000000000")
    code, out, err = interrupted(("solve", "model.py:plain", "--method", "GDA", *limits), model.parent)
    assert code == 1 and "INTERRUPTED" in out and "bisaddle-partial.json" in err and "Traceback" not in err
    assert documents.load(Path("bisaddle-partial.json"))["partial"]
    assert bisaddle("certify", "bisaddle-partial.json", "--tol", "10").exit_code == 0


@pytest.mark.slow
def test_solve_with_nothing_chosen_certifies_by_adaptive(table, tmp_path):
    done = bisaddle("solve", "multitask", table, *COLUMNS, "--tol", "1e-7", "--out", tmp_path / "r.json")
    assert done.exit_code == 0 and "Adaptive" in done.stdout, done.output
    assert bisaddle("certify", tmp_path / "r.json").exit_code == 0
