"""The command line: help, lists, data, completion; bad input ends with a message and an exit code, no traceback."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click")

import click

from bisaddle import datasets
from bisaddle.cli.app import app
from bisaddle.methods.base import public_methods
from bisaddle.report.style import DATASETS
from tests.cli_helpers import bisaddle

ROOT = Path(__file__).parents[1]


def commands(group=app, path=()):
    """Every command with the words that call it."""
    for name, command in group.commands.items():
        yield (*path, name), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("words", [pytest.param(words, id=" ".join(words)) for words, _ in commands()])
def test_every_command_has_help_with_an_example(words):
    done = bisaddle(*words, "--help")
    assert done.exit_code == 0
    assert "Example: bisaddle" in done.output or words == ("completion",)
    assert "No help" not in done.output


def test_every_command_is_there():
    names = {" ".join(words) for words, _ in commands()}
    assert names >= {"reproduce", "run", "solve", "certify", "report", "methods", "sets", "info", "completion"}
    assert names >= {"data list", "data fetch", "data check", "data where"}


def test_the_page_of_the_command_line_names_commands_that_exist_and_none_is_missing():
    text = (ROOT / "docs" / "cli.md").read_text()
    named = set(re.findall(r"\bbisaddle ([a-z]+)", text))
    assert named == set(app.commands)
    assert set(re.findall(r"--[a-z][a-z-]*", text)) <= {
        *(option for _, command in commands() for parameter in command.params for option in parameter.opts),
        *(option for parameter in app.params for option in parameter.opts),
        "--help",
    }


def test_every_option_says_what_it_does():
    for words, command in commands():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{' '.join(words)}: {parameter.name} has no help"


def test_the_module_and_the_version():
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    call = [sys.executable, "-m", "bisaddle", "--version"]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("bisaddle, version 0.")


def test_without_click_the_command_says_what_to_install():
    code = "import sys; sys.modules['click'] = None; from bisaddle.cli import main; main([])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 2 and "bisaddle[cli]" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_command(shell):
    done = bisaddle("completion", shell)
    assert done.exit_code == 0 and "_BISADDLE_COMPLETE" in done.output and "%(" not in done.output


def test_completion_completes_a_command_and_a_data_set():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "_BISADDLE_COMPLETE": "bash_complete"}
    for words, wanted in (("bisaddle repro", "reproduce"), ("bisaddle data check nl", "nlsy79")):
        more = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        call = [sys.executable, "-c", "from bisaddle.cli import main; main()"]
        done = subprocess.run(call, capture_output=True, text=True, env=environment | more, timeout=60)
        assert wanted in done.stdout


def test_methods_lists_all_and_shows_the_equations_of_one():
    shown = json.loads(bisaddle("methods", "--json").stdout)
    assert [row["method"] for row in shown] == list(public_methods())
    assert "AlternatingGDA" in bisaddle("methods").stdout
    assert "y+     = P_Y(" in bisaddle("methods", "fullyprojected").stdout
    assert json.loads(bisaddle("methods", "GDA", "--json").stdout)["method"] == "GDA"


def test_sets_lists_all_and_describes_one():
    shown = {row["set"]: row for row in json.loads(bisaddle("sets", "--json").stdout)}
    assert (
        shown["Simplex"]["projection"] == shown["Simplex"]["LMO"] == "yes" and shown["Entropy"]["projection"] == "prox"
    )
    assert "NuclearBall" in bisaddle("sets").stdout
    assert "sum p_i log(p_i / reference_i)" in bisaddle("sets", "klball").stdout


def test_a_name_that_is_not_there_is_a_usage_error_naming_those_that_are():
    for command, known in (("methods", "MORBiT"), ("sets", "L1Ball")):
        done = bisaddle(command, "nothing")
        assert done.exit_code == 2 and known in done.output


def test_info_says_versions_devices_and_precision():
    facts = json.loads(bisaddle("info", "--json").stdout)
    assert {"bisaddle", "jax", "numpy", "devices", "precision", "data folders"} <= set(facts)
    assert "float64" in facts["precision"] and facts["devices"]
    assert "float64" in bisaddle("info").stdout


def test_the_names_of_the_data_sets_are_those_of_the_library():
    assert DATASETS == datasets.NAMES


def test_data_list_and_where_name_every_file(tmp_path, monkeypatch):
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    listed = json.loads(bisaddle("data", "list", "--json").stdout)
    assert {source["file"] for source in listed["mtl"]} == {source.file for source in datasets.sources("mtl")}
    assert "StatLib" in bisaddle("data", "list").stdout
    (tmp_path / "mg_scale").write_text("1 1:1\n")
    found = json.loads(bisaddle("data", "where", "mtl", "--data-dir", tmp_path, "--json").stdout)
    assert found["files"]["mtl"]["mg"] == str(tmp_path / "mg_scale") and str(tmp_path) in found["folders"]
    assert str(tmp_path) in bisaddle("data", "where", "mtl", "--data-dir", tmp_path).stdout


def test_data_check_refuses_a_wrong_and_a_truncated_file_by_name(tmp_path, monkeypatch):
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    (tmp_path / "mg_scale").write_text("1 1:1\n")
    (tmp_path / "mpg_scale").write_text("0" * 27302)
    done = bisaddle("data", "check", "mtl", "--data-dir", tmp_path, "--json")
    verdicts = {row["part"]: row for row in json.loads(done.stdout)}
    assert done.exit_code == 3
    assert "truncated" in verdicts["mg"]["detail"] and "sha256" in verdicts["mpg"]["detail"]
    assert verdicts["mg"]["verdict"] == verdicts["mpg"]["verdict"] == "WRONG"
    assert bisaddle("data", "check", "mtl", "--data-dir", tmp_path).exit_code == 3
    done = bisaddle("data", "fetch", "mtl", "--data-dir", tmp_path)
    assert done.exit_code == 3 and "error: " in done.stderr and "Traceback" not in done.output
    assert bisaddle("data", "check", "synthetic").exit_code == 0


def test_a_data_folder_that_is_not_there_is_a_data_error(tmp_path):
    done = bisaddle("data", "where", "--data-dir", tmp_path / "none")
    assert done.exit_code == 3 and "not a folder" in done.stderr
    assert bisaddle("data", "fetch", "nothing").exit_code == 2


def test_traceback_shows_where_an_error_came_from(tmp_path):
    done = bisaddle("--traceback", "data", "where", "--data-dir", tmp_path / "none")
    assert isinstance(done.exception, datasets.MissingFileError)
