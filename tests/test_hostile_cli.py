"""Hostile files and commands end with a message that names what is wrong; a traceback is there for who asks for it."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("click")

from bisaddle import experiments
from bisaddle.cli import documents
from bisaddle.cli.errors import Failure
from bisaddle.experiments import ExperimentError, formula
from bisaddle.report import schema
from bisaddle.report.files import parsed_json, parsed_toml, read
from tests import hostile_cli
from tests.cli_helpers import bisaddle, refused
from tests.hostile_files import MODEL, NEEDED_OF_A_RUN, RESULT_FIELDS, RUN_FIELDS, TRIAL_FIELDS, changed, result_file
from tests.report_runs import made_run, made_sensitivity


def test_malformed_commands_end_with_a_message_that_names_what_is_wrong():
    said = []
    assert hostile_cli.main(40, show=said.append) == 0, "\n".join(said)


@pytest.mark.parametrize("field", RESULT_FIELDS)
def test_a_result_that_lacks_a_field_or_has_another_type_there_is_refused(tmp_path, field):
    good, path = result_file(tmp_path), tmp_path / "result.json"
    documents.save(good, path)
    start = documents.load(path)["point"]
    like = {name: documents.tree_from(tree, _like(tree), name) for name, tree in start.items()}
    for value in (*RESULT_FIELDS[field], ...):
        if value is ... and field == "problem.file":
            continue  # a problem may have a module instead
        path.write_text(json.dumps(changed(good, field, value)))
        with pytest.raises(Failure, match=field.rpartition(".")[2]):
            for name, tree in documents.load(path)["point"].items():
                documents.tree_from(tree, like[name], f"point.{name}")


def _like(tree):
    return None if tree is None else np.zeros(tree["shape"])


@pytest.mark.parametrize(
    ("name", "fields", "good"),
    [
        ("results.json", RUN_FIELDS, made_run("exp1", "mtl", "opf", 0.1)),
        ("sensitivity.json", TRIAL_FIELDS, made_sensitivity()[0]),
    ],
    ids=["results", "sensitivity"],
)
def test_runs_and_settings_with_a_field_of_another_type_are_refused(tmp_path, name, fields, good):
    load = experiments.load if name == "results.json" else experiments.load_sensitivity
    for field, values in fields.items():
        needed = (...,) if fields is RUN_FIELDS and field in NEEDED_OF_A_RUN else ()
        for value in (*values, *needed):
            (tmp_path / name).write_text(json.dumps([good, changed(good, field, value)]))
            with pytest.raises(ExperimentError, match=f"{name}.*{field.rpartition('.')[2]}"):
                load(tmp_path)
    (tmp_path / name).write_text(json.dumps([good]))
    assert load(tmp_path) == [good]


@pytest.mark.parametrize(
    "text", ["9^9^9", "1+" * 20_000 + "1", "-" * 20_000 + "1", "9" * 400, "9" * 5000, "(" * 90 + "9^9^9" + ")" * 90]
)
def test_a_formula_without_bounds_is_refused_at_once(text):
    with pytest.raises(ExperimentError, match="method opf.mu") as caught:
        formula.evaluate("method opf", {"mu": text}, {})
    assert len(str(caught.value)) < 500


def test_a_formula_within_the_bounds_is_the_number_that_python_has_for_it():
    found = formula.evaluate("here", {"mu": "-" * 99 + "2 * K^(-2/3)", "gamma": "mu / -4 + 1e3"}, {"K": 1000.0})
    assert found == {"mu": -2 * 1000.0 ** (-2 / 3), "gamma": -2 * 1000.0 ** (-2 / 3) / -4 + 1e3}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"[" * 100_000, "nested too deep"),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", r"a\[0\]\[0\].* is nested deeper than 32 levels"),
        (b'{"a": [1.0, NaN]}', r"a\[1\] is nan"),
        (b'[{"b": -Infinity}]', r"\[0\].b is -inf"),
        (b'{"a": 1e400}', "a is inf"),
        (b'{"a": 9223372036854775808}', "a is a whole number beyond 64 bits"),
        (b'{"a": {"b": 1, "b": 2}}', "'b' stands twice"),
        ("{}".encode("utf-16"), "no text in UTF-8"),
        (b"", "Expecting value"),
    ],
)
def test_a_document_that_is_not_plain_is_refused_with_the_place(content, words):
    with pytest.raises(ValueError, match=words):
        parsed_json(content)


def test_plain_documents_pass_as_they_are():
    document = {"a": [1, 2.5, None, True, "\u00fc", [], {}], "b": {"c": -(2**63)}}
    assert parsed_json(json.dumps(document).encode()) == document
    assert parsed_json(b"\xef\xbb\xbf" + json.dumps(document).encode()) == document
    assert parsed_toml(b"a = [1, {b = 2.5}]") == {"a": [1, {"b": 2.5}]}
    for content, words in (
        (b"a = nan", "a is nan"),
        (b"a = " + b"[" * 2000, "deep"),
        (b"a." * 50 + b"b = 1", "deeper"),
    ):
        with pytest.raises(ValueError, match=words):
            parsed_toml(content)


def test_a_file_without_an_end_is_not_read_to_it(monkeypatch):
    monkeypatch.setattr("bisaddle.report.files.MOST_BYTES", 1000)
    with pytest.raises(OSError, match="more than 1000 bytes"):
        read("/dev/zero")
    with pytest.raises(OSError, match="null"):
        read("a\0b")


def test_a_kind_is_said_in_words():
    with pytest.raises(ValueError, match=r"^a must be a number or nothing \(null\), given 'x'$"):
        schema.check("a", "x", float | int | None)
    with pytest.raises(ValueError, match=r"^a\[1\] must be a whole number, given True$"):
        schema.check("a", [1, True], list[int])
    with pytest.raises(ValueError, match=r"^a.b must be a list .*, given 3$"):
        schema.check("a", {"b": 3}, dict[str, list[float]])
    assert schema.check("a", [None, 1, 2.5], list[float | int | None]) == [None, 1, 2.5]


@pytest.fixture
def model(tmp_path, monkeypatch):
    (tmp_path / "model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("function", ["leaves", "leaves_when_called"])
def test_a_model_that_ends_the_program_is_no_success(model, function):
    line = next(
        i
        for i, text in enumerate(MODEL.splitlines(), 1)
        if "sys.exit(0)" in text and ("return" in text) == ("when" in function)
    )
    refused(bisaddle("solve", f"model.py:{function}"), 2, "SystemExit: 0", f"model.py, line {line}")
    done = bisaddle("--traceback", "solve", f"model.py:{function}")
    assert isinstance(done.exception, RuntimeError) and isinstance(done.exception.__cause__, SystemExit)


def test_traceback_shows_the_line_of_the_model(model):
    refused(bisaddle("solve", "model.py:raises"), 2, "KeyError", "the user's own key", "line")
    done = bisaddle("--traceback", "solve", "model.py:raises")
    assert isinstance(done.exception, KeyError) and done.exc_info is not None
    frames = [done.exc_info[2]]
    while frames[-1].tb_next is not None:
        frames.append(frames[-1].tb_next)
    assert Path(frames[-1].tb_frame.f_code.co_filename).name == "model.py"


def test_a_message_that_stands_for_itself_stays_one_with_traceback(model):
    refused(bisaddle("--traceback", "solve", "model.py:absent"), 2, "no function absent")


def test_our_own_mistakes_are_not_taken_for_the_users(model, monkeypatch):
    monkeypatch.setattr("bisaddle.cli.solving.build", lambda *_, **__: {}["ours"])
    assert isinstance(bisaddle("solve", "model.py:plain").exception, KeyError)


def test_numbers_of_options_are_finite(model):
    for value in ("nan", "inf", "-inf"):
        done = bisaddle("solve", "model.py:plain", f"--tol={value}")
        refused(done, 2, "--tol")
        assert re.search("finite|range", done.output)
