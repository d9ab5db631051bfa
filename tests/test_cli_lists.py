"""What the command line tells without JAX: lists, help, what is wrong with an argument; and the names it guesses."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click")

import bisaddle as bs
from bisaddle import sets
from bisaddle.cli import sources
from bisaddle.cli.app import app
from bisaddle.methods.base import public_methods
from bisaddle.spelling import did_you_mean
from tests.cli_helpers import bisaddle, refused
from tests.test_cli import commands

ROOT = Path(__file__).parents[1]
# runs a command, then says on the last line what it took
WATCHED = """
import resource, sys
from bisaddle.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
used = resource.getrusage(resource.RUSAGE_SELF)
print("\\n", "jax" in sys.modules, used.ru_utime + used.ru_stime)
"""
TABLE = "city,rooms,rent\n" + "a,1,2\na,2,3\nb,1,4\nb,3,3\n" * 3


def watched(*arguments, folder):
    """(all that is printed, whether JAX was loaded, CPU seconds)"""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-c", WATCHED, *arguments]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, cwd=folder, timeout=120)
    *output, last = done.stdout.splitlines()
    loaded, seconds = last.split()
    return "\n".join(output) + done.stderr, loaded == "True", float(seconds)


def test_the_methods_as_read_from_the_source_are_those_of_the_library():
    told, known = sources.methods(), public_methods()
    assert list(told) == list(known)
    for name, method in known.items():
        assert told[name].about == method.about
        assert told[name].text == inspect.cleandoc(method.__doc__)


def test_the_sets_as_read_from_the_source_are_those_of_the_library():
    known = {name: kind for name, kind in vars(sets).items() if inspect.isclass(kind) and name != "ConvexSet"}
    told = sources.sets()
    assert list(told) == list(known)
    assert all(told[name].text == inspect.cleandoc(kind.__doc__) for name, kind in known.items())


@pytest.mark.parametrize("call", ["--version", "--help", "methods", "sets KLBall", "data list", "data check synthetic"])
def test_lists_come_at_once_without_jax(call, tmp_path, record):
    _, loaded, seconds = min((watched(*call.split(), folder=tmp_path) for _ in range(3)), key=lambda told: told[2])
    record(f"CPU seconds of {call}", seconds)
    assert not loaded and seconds < 0.5


@pytest.mark.parametrize(
    "call, words",
    [
        ("solve multitask none.csv --task-column city --target rent", "none.csv cannot be read"),
        ("solve multitask flats.csv --task-column citi --target rent", "did you mean city? It has city, rooms, rent"),
        ("solve multitask flats.csv --task-column city --target rent --feature roms", "did you mean rooms?"),
        ("solve flats.py:problem", "flats.py is not there"),
        ("solve flats.csv:problem --method Adaptiv", "did you mean Adaptive? `bisaddle methods` lists all"),
        ("certify none.json", "none.json cannot be read"),
        ("resume none.ckpt", "none.ckpt cannot be read"),
        ("report none", "none cannot be read"),
        ("run none.toml:mtl", "none.toml is not there"),
    ],
)
def test_files_columns_and_names_are_checked_before_jax_is_loaded(call, words, tmp_path):
    (tmp_path / "flats.csv").write_text(TABLE)
    said, loaded, _ = watched(*call.split(), folder=tmp_path)
    assert words in said and "Traceback" not in said and not loaded


@pytest.mark.parametrize("words", [(), *(words for words, _ in commands())], ids=" ".join)
def test_help_fits_a_terminal_of_80_columns(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = bisaddle(*words, "--help")
    assert done.exit_code == 0 and max(map(len, done.output.splitlines())) <= 80
    assert "..." not in done.output.partition("Commands:")[2]


def test_commands_stand_in_the_order_of_use_under_headings():
    text = bisaddle("--help").output
    assert [name for names in app.sections.values() for name in names] == list(app.commands)
    places = [text.index(f"\n  {name} ") for name in app.commands]
    assert places == sorted(places) and all(f"{title}:" in text for title in app.sections)
    assert text.index("solve ") < text.index("certify ") < text.index("methods ")


def test_the_options_of_solve_stand_under_headings():
    text = bisaddle("solve", "--help").output
    order = ("Of multitask:", "  --target", "When it ends:", "  --tol", "Others:", "  --json")
    places = [text.index(f"\n{word}") for word in order]
    assert places == sorted(places)


def test_a_name_nearly_right_is_guessed():
    assert did_you_mean("simplx", ["Simplex", "Box"]) == "did you mean Simplex? "
    assert did_you_mean("nothing", ["Simplex", "Box"]) == ""
    refused(bisaddle("methods", "Adpative"), 2, "did you mean Adaptive?")
    refused(bisaddle("sets", "KLbal"), 2, "did you mean KLBall?")
    refused(bisaddle("solv"), 2, "solve")
    refused(bisaddle("solve", "model.py:f", "--targett", "a"), 2, "--target")
    refused(bisaddle("reproduce", "--quick", "--dataset", "synthetic", "--method", "morbt"), 2, "did you mean morbit?")
    with pytest.raises(ValueError, match="did you mean diabetes?"):
        bs.datasets.load("diabetis")
    with pytest.raises(AttributeError) as caught:
        bs.methods.Adpative  # noqa: B018
    assert caught.value.name == "Adpative" and caught.value.obj is bs.methods  # of which Python makes its guess


def test_a_missing_file_is_called_missing(tmp_path, monkeypatch):
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    monkeypatch.setattr("bisaddle.datasets.files.cache", lambda: None)
    (tmp_path / "mg_scale").write_text("1 1:1\n")
    done = bisaddle("data", "check", "mtl", "nlsy79", "--data-dir", tmp_path, "--json")
    verdicts = {row["part"]: row["verdict"] for row in json.loads(done.stdout)}
    assert done.exit_code == 3
    assert verdicts["mg"] == "WRONG" and verdicts["mpg"] == verdicts["public"] == "missing"
    assert verdicts["raw"] == "optional"
    assert "bisaddle data fetch mtl" in bisaddle("data", "check", "mtl", "--data-dir", tmp_path).stderr


def test_info_names_options_that_exist():
    words = json.loads(bisaddle("info", "--json").stdout)["precision"]
    assert "`solve --precision 32`" in words
    assert any("--precision" in parameter.opts for parameter in app.commands["solve"].params)
