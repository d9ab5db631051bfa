"""What `bisaddle solve` tells a person: the answer with units, where the time went, what to do next."""

import io
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("click")

from bisaddle.cli import answer
from bisaddle.cli.helping import broken
from tests.cli_helpers import bisaddle

MODEL = """
import jax.numpy as jnp, numpy as np, bisaddle as bs

def saddle():
    upper = lambda x, y: y @ (x["a"] - 0.3) + jnp.sum(x["b"] ** 2) - jnp.sum(y ** 2)
    x_set = bs.sets.Product({"a": bs.sets.Box(0.0, 1.0), "b": bs.sets.L2Ball(1.0)})
    problem = bs.Problem(upper, x_set=x_set, y_set=bs.sets.Simplex())
    return problem, bs.Point({"a": np.full(3, 0.5), "b": np.zeros(40)}, None, np.full(3, 1 / 3))

def broken():
    f = lambda x, theta: jnp.sum(theta) + x @ jnp.ones(7)
    problem = bs.Problem(f, lambda x, theta: jnp.sum((theta - x) ** 2), bs.sets.Box(0.0, 1.0))
    return problem, bs.Point(np.zeros(3), np.zeros(3))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    rows = ["city,area,floor,rent"]
    for city, price in (("Aachen", 8.0), ("Berlin", 11.0), ("Cologne", 9.0)):
        for area, floor, noise in zip(
            rng.uniform(20, 90, 30), rng.integers(0, 9, 30), rng.normal(size=30), strict=True
        ):
            rows.append(f"{city},{area:.1f},{floor},{price * area + 5 * floor + 30 * noise:.2f}")
    (tmp_path / "flats.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_a_table_gives_weights_errors_in_the_unit_of_the_target_and_coefficients(folder):
    call = ("solve", "multitask", "flats.csv", "--task-column", "city", "--target", "rent")
    text = bisaddle(*call, "--out", "result.json").output
    document = json.loads((folder / "result.json").read_text())
    x, y = (document["point"][name] for name in ("x", "y"))
    for name, weight in zip(("Aachen", "Berlin", "Cologne"), y["values"], strict=True):
        assert re.search(rf"{name} +{weight:.4f} ", text)
    for name, value in zip(("area", "floor"), x["x"]["values"], strict=True):
        assert re.search(rf"{name} +{value:.4f} ", text)
    # the worst task's error, from the worst value: half a mean square, in deviations of the training targets
    targets = np.array([float(line.split(",")[3]) for line in (folder / "flats.csv").read_text().splitlines()[1:]])
    worst = np.sqrt(2 * document["certificate"]["worst_value"])
    shown = max(float(row.split()[-1]) for row in re.findall(r"^(?:Aachen|Berlin|Cologne).*$", text, re.M))
    assert "rms error, rent" in text and shown == pytest.approx(worst * targets.std(), rel=0.25)
    assert re.search(r"^time  \d+ steps in .* loading JAX and the problem .* compiling .* steps ", text, re.M)
    assert re.search("^next  --starts 4", text, re.M) and "bisaddle certify result.json" in text


def test_a_function_gives_every_array_by_name_long_ones_in_short(folder):
    done = bisaddle("solve", "model.py:saddle")
    assert done.exit_code == 0 and "CERTIFIED" in done.output
    assert re.search(r"^x\['a'\] = \[0", done.output, re.M) and re.search(r"^y = \[0?\.?3", done.output, re.M)
    assert re.search(r"^x\['b'\] = \[.*\.\.\..*\]  of shape \(40,\)$", done.output, re.M)
    assert re.search("^next  --out result.json keeps the answer", done.output, re.M)


def test_an_end_without_a_certificate_says_which_option_helps(folder):
    done = bisaddle("solve", "model.py:saddle", "--max-steps", 1, "--tol", 1e-9)
    assert done.exit_code == 1 and re.search("^next  --max-steps 10 goes on longer", done.output, re.M)
    of = lambda status, name="GDA", **more: answer._next(
        status,
        SimpleNamespace(method=SimpleNamespace(name=name)),
        {"max_steps": 5, "tol": 1e-4, "precision": 64} | more,
    )
    assert "--nu 0.1" in " ".join(of("DIVERGED")) and "--nu" not in " ".join(of("MAX_STEPS", "Adaptive"))
    assert "--precision 64" in of("STALLED", precision=32)[0] and "resume" in of("MAX_SECONDS")[0]
    assert "check_derivatives" in of("WRONG_DERIVATIVES")[0]


def test_the_users_own_line_is_in_the_message_and_ends_the_traceback(folder):
    line = "(model.py, line 11: f = lambda x, theta: jnp.sum(theta) + x @ jnp.ones(7))"
    assert line in bisaddle("solve", "model.py:broken").output
    assert line in str(bisaddle("--traceback", "solve", "model.py:broken").exception)


def test_sentences_are_broken_between_words_on_a_terminal_only(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = "one two-three " * 20 + "/a/path/" + "long" * 20
    screen = SimpleNamespace(isatty=lambda: True)
    lines = broken(text, screen, "next  ").splitlines()
    assert lines[0].startswith("next  one") and all(line.startswith("      ") for line in lines[1:])
    assert max(len(line) for line in lines[:-1]) <= 60 and " ".join(" ".join(lines).split()) == f"next {text}"
    assert broken(text, io.StringIO(), "next  ") == f"next  {text}"
