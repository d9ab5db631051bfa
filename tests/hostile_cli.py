"""Malformed commands, made by hypothesis: each must end with one message that names what is wrong, and code 2 or 3.

`python -m tests.hostile_cli 200` runs so many and prints those that ended otherwise.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.cli_helpers import bisaddle
from tests.hostile_draws import JSON, NO_OPTION, TEXT, Draws, many
from tests.hostile_files import (
    COLUMNS,
    MODEL,
    NEEDED_OF_A_RUN,
    RESULT_FIELDS,
    RUN_FIELDS,
    TABLE,
    TOML_CHANGES,
    TRIAL_FIELDS,
    changed,
    nested,
    result_file,
)
from tests.report_runs import made_run, made_sensitivity
from tests.small_experiment import SMALL


class Case(NamedTuple):
    """A command, what its message must name, and what it is called where it fails."""

    arguments: tuple
    words: tuple[str, ...]
    name: str


Maker = Callable[[Draws, Path], Case]


def pick(rng: Draws, items: Any) -> Any:
    return items[rng.integers(len(items))]


def a_result_for_certify(rng, folder):
    field = pick(rng, list(RESULT_FIELDS))
    value = pick(rng, (..., *RESULT_FIELDS[field])) if field != "problem.seed" else pick(rng, RESULT_FIELDS[field])
    path = folder / "result.json"
    path.write_text(json.dumps(changed(result_file(folder), field, value)))
    last = field.rpartition(".")[2]
    return Case(("certify", path), ("result.json", last), f"certify with {field} {_words(value)}")


def runs_for_a_report(rng, folder):
    run = made_run("exp1", "mtl", "opf", 0.1)
    field = pick(rng, list(RUN_FIELDS))
    value = pick(rng, RUN_FIELDS[field])
    if field in NEEDED_OF_A_RUN and rng.random() < 0.2:
        value = ...
    path = folder / "results.json"
    path.write_text(json.dumps([run, changed(run, field, value)]))
    more = ("--figures", folder / "figures") if rng.random() < 0.5 else ()
    last = field.rpartition(".")[2]
    return Case(
        ("report", path, "--html", folder / "p.html", *more),
        ("results.json", last),
        f"report with {field} {_words(value)}",
    )


def maps_for_a_report(rng, folder):
    field = pick(rng, list(TRIAL_FIELDS))
    value = pick(rng, TRIAL_FIELDS[field])
    (folder / "results.json").write_text(json.dumps([made_run("exp1", "mtl", "opf", 0.1)]))
    (folder / "sensitivity.json").write_text(json.dumps([changed(made_sensitivity()[0], field, value)]))
    return Case(("report", folder, "--html", folder / "p.html"), (field,), f"sensitivity with {field} {_words(value)}")


def an_empty_curve(rng, folder):
    run = made_run("exp1", "mtl", "opf", 0.1)
    run["curve"] = {name: [] for name in run["curve"]}
    if rng.random() < 0.5:
        del run["final"]
    (folder / "results.json").write_text(json.dumps([run]))
    return Case(("report", folder, "--html", folder / "p.html"), ("results.json", "curve"), "report of an empty curve")


def strange_json(rng, folder):
    """Text that is no document, whatever reads it."""
    good = json.dumps(result_file(folder))
    texts = {
        "empty": b"",
        "a deep list": b"[" * 100_000 + b"]" * 100_000,
        "a deep list, cut": b"[" * 100_000,
        "a rather deep list": json.dumps([{"experiment": nested(400)}]).encode(),
        "a deep field": json.dumps(json.loads(good) | {"trace": nested(900)}).encode(),
        "NaN": good.replace("0.5", "NaN").encode(),
        "Infinity": good.replace("0.1", "-Infinity").encode(),
        "1e400": good.replace("0.1", "1e400").encode(),
        "5000 digits": good.replace("0.1", "9" * 5000).encode(),
        "a key twice": good.replace('"settings"', '"status": "MAX_STEPS", "status"').encode(),
        "another encoding": good.encode("utf-16"),
        "bytes": bytes(range(256)) * 10,
        "a number": b"3",
        "null": b"null",
        "a text": b'"a"',
        "two documents": (good + good).encode(),
        "half a document": good[: len(good) // 2].encode(),
        "a zip file": b"PK\x03\x04" + b"\0" * 100,
    }
    name = pick(rng, list(texts))
    path = folder / "results.json"
    path.write_bytes(texts[name])
    command = pick(rng, (("certify", path), ("report", path, "--html", folder / "p.html")))
    return Case(command, ("results.json",), f"{command[0]} of {name}")


def an_experiment(rng, folder):
    old, news, word = pick(rng, TOML_CHANGES)
    new = pick(rng, news)
    assert old in SMALL
    path = folder / "bad.toml"
    path.write_text(SMALL.replace(old, new, 1))
    return Case(("run", path, "--out", folder / "out", "--method", "opf"), (word,), f"run with {new[:60]}")


def a_strange_experiment(rng, folder):
    path = folder / "bad.toml"
    texts = {
        "empty": b"",
        "bytes": bytes(range(256)),
        "another encoding": SMALL.encode("utf-16"),
        "a key twice": (SMALL + "\ntol = 1e-5\n").encode(),
        "JSON": b'{"steps": 3}',
        "NUL": b"steps = 3\0",
        "half": SMALL[:200].encode(),
        "each that is no table": b"each = 3\n" + SMALL.encode(),
        "each of no table": b"each = {a = 3}\n" + SMALL.encode(),
        "methods that are no list": SMALL.replace("[[methods]]", "[methods]").encode(),
        "methods that are numbers": ("methods = [1, 2]\n" + SMALL.split("[[methods]]")[0]).encode(),
    }
    name = pick(rng, list(texts))
    path.write_bytes(texts[name])
    return Case(("run", path, "--out", folder / "out"), ("bad.toml",), f"run of {name}")


def a_path(rng, folder):
    """A folder for a file, nothing at all, a file that may not be read, a name that no file can have."""
    (folder / "dir.toml").mkdir()
    (folder / "dir.py").mkdir()
    long = folder / ("a" * 300)
    place, words = pick(
        rng,
        ((folder / "none", "none"), (folder / "dir.toml", "dir.toml"), (long, "aaa"), ("", ""), ("/dev/null", "null")),
    )
    command = pick(
        rng,
        (
            ("certify", place),
            ("report", place, "--html", folder / "p.html"),
            ("solve", "multitask", place, *COLUMNS),
            ("run", place, "--out", folder / "out"),
            ("solve", f"{folder / 'dir.py'}:plain"),
            ("solve", f"{place}.py:plain"),
        ),
    )
    return Case(command, (words if "dir.py" not in str(command) else "dir.py",), " ".join(map(str, command))[-100:])


def a_model(rng, folder):
    function = pick(rng, ("leaves", "leaves_when_called", "deep", "raises", "no_pair", "absent", "", "a b", "plain.x"))
    return Case(("solve", f"{folder / 'model.py'}:{function}"), (function or "PROBLEM",), f"solve model.py:{function}")


def a_bad_model_file(rng, folder):
    texts = {
        "sys.exit": b"import sys; sys.exit(0)",
        "quit": b"raise SystemExit",
        "bytes": bytes(range(256)),
        "NUL": b"x = 1\0",
        "a syntax error": b"def f(:",
        "another encoding": "x = 'ü'".encode("latin-1"),
        "deep brackets": b"x = " + b"(" * 1000 + b")" * 1000,
        "an error": b"1 / 0",
        "no such import": b"import nothing_of_this_name",
    }
    name = pick(rng, list(texts))
    (folder / "broken.py").write_bytes(texts[name])
    return Case(("solve", f"{folder / 'broken.py'}:f"), ("broken.py",), f"solve a model of {name}")


def an_option(rng, folder):
    model = f"{folder / 'model.py'}:plain"
    table = ("solve", "multitask", folder / "table.csv", *COLUMNS)
    options = (
        (("solve", model), "--tol", ("nan", "inf", "-1", "0", "x", "", "1e400", "9" * 400)),
        (("solve", model), "--max-steps", ("0", "-1", "1.5", "nan", "1e3", "9" * 400, "9" * 5000)),
        (("solve", model), "--max-seconds", ("nan", "inf", "0", "-1", "x")),
        (("solve", model), "--seed", ("-1", "x", "1.5", "9" * 400)),
        (("solve", model), "--starts", ("0", "101", "x", "9" * 400)),
        (("solve", model), "--precision", ("16", "x", "")),
        (("solve", model), "--method", ("nothing", "", "Simplex", "a" * 1000)),
        (
            ("solve", model, "--method", "GDA"),
            "--step",
            ("tau", "tau=", "tau=x", "=1", "tau=nan", "tau=inf", "tau=-1", "beta=1", "tau=1=2"),
        ),
        (("solve", model, "--method", "FullyProjected"), "--nu", ("nan", "inf", "0", "x")),
        (table, "--radius", ("nan", "inf", "0", "-1", "x", "1e400")),
        (table, "--ridge", ("nan", "inf", "0", "-1")),
        (table, "--divergence", ("nan", "inf", "-1")),
        (table, "--train", ("nan", "inf", "-1", "2", "0", "1")),
        (table, "--standardize", ("all", "")),
        (table, "--feature", ("nothing", "price", "", "region")),
        (
            ("solve", "multitask", folder / "table.csv", "--task-column", "region"),
            "--target",
            ("nothing", "", "region"),
        ),
        (("solve", "multitask", folder / "table.csv", "--target", "price"), "--task-column", ("nothing", "", "price")),
        (("certify", folder / "good.json"), "--tol", ("nan", "inf", "0", "x")),
        (("certify", folder / "good.json"), "--sigma", ("nan", "inf", "0", "x", "-1")),
        (("certify", folder / "good.json"), "--tau", ("nan", "inf", "0", "x", "-1")),
        (
            ("run", folder / "small.toml", "--out", folder / "out"),
            "--nu",
            ("opf", "opf=", "opf=nan", "opf=-1", "opf=inf"),
        ),
        (("run", folder / "small.toml", "--out", folder / "out"), "--steps", ("0", "x", "405", "9" * 30, "9" * 400)),
        (("run", folder / "small.toml", "--out", folder / "out"), "--seed", ("-1", "x", "9" * 400)),
        (("run", folder / "small.toml", "--out", folder / "out"), "--method", ("nothing", "")),
        (("run", folder / "small.toml", "--out", folder / "out"), "--max-seconds", ("nan", "inf", "0", "x")),
        (("reproduce",), "--dataset", ("iris", "")),
        (("data", "check"), "--data-dir", (str(folder / "none"), str(folder / "table.csv"))),
    )
    command, option, values = pick(rng, options)
    value = pick(rng, values)
    # columns are named as those of the file, a folder as a folder
    named = {"--feature": "", "--target": "", "--task-column": "", "--data-dir": "folder"}
    word = named[option] if option in named else option.lstrip("-")
    return Case((*command, f"{option}={value}"), (word,), f"{command[0]} {option}={value[:40]}")


def a_table(rng, folder):
    texts = {
        "empty": b"",
        "bytes": bytes(range(256)) * 3,
        "NUL": TABLE.replace("a,2", "a,\0").encode(),
        "another encoding": TABLE.encode("utf-16"),
        "names only": TABLE.split("\n")[0].encode(),
        "1e400": TABLE.replace(",4\n", ",1e400\n").encode(),
        "NaN": TABLE.replace(",4\n", ",nan\n").encode(),
        "words": TABLE.replace(",4\n", ",many\n").encode(),
        "a long field": TABLE.replace("a,2", "a," + "9" * 200_000).encode(),
        "a quote without an end": TABLE.replace("a,2", 'a,"2').encode(),
        "two names alike": TABLE.replace("rooms", "price", 1).encode(),
        "one task": TABLE.replace("b,", "a,").encode(),
        "a row too short": (TABLE + "a,1\n").encode(),
        "JSON": b'{"region": 1}',
    }
    name = pick(rng, list(texts))
    (folder / "bad.csv").write_bytes(texts[name])
    return Case(("solve", "multitask", folder / "bad.csv", *COLUMNS), ("bad.csv",), f"solve a table of {name}")


def a_usage(rng, folder):
    case = pick(
        rng,
        (
            (("nothing",), "nothing"),
            (("solve",), "PROBLEM"),
            (("solve", "multitask"), "CSV"),
            (("solve", "x"), "PROBLEM"),
            (("certify",), "RESULT"),
            (("report",), "RESULTS"),
            (("methods", "nothing"), "nothing"),
            (("sets", "nothing"), "nothing"),
            (("completion", "csh"), "csh"),
            (("data", "fetch", "iris"), "iris"),
            (("solve", "model.py:f", "--radius", "1"), "--radius"),
            (("--nothing",), "--nothing"),
            (("solve", "a\ud800.py:f"), "Python file"),
        ),
    )
    return Case(case[0], (case[1],), f"bisaddle {' '.join(case[0])}".encode(errors="replace").decode())


def an_option_of_text(rng, folder):
    """A number > 0 is asked for, and hypothesis thought of another text."""
    name = pick(rng, ("tol", "max-seconds", "max-steps", "sigma", "tau"))
    value = rng.value(NO_OPTION)
    certifies = name in ("sigma", "tau") or (name == "tol" and rng.random() < 0.5)
    command = ("certify", folder / "good.json") if certifies else ("solve", f"{folder / 'model.py'}:plain")
    return Case((*command, f"--{name}={value}"), (name,), f"{command[0]} --{name}={value!r}")


def a_document_of_any_kind(rng, folder):
    path = folder / "results.json"
    content = json.dumps(rng.value(JSON)).encode() if rng.random() < 0.5 else rng.value(st.binary(max_size=200))
    path.write_bytes(content)
    command = pick(rng, (("certify", path), ("report", path, "--html", folder / "p.html")))
    return Case(command, ("results.json",), f"{command[0]} of {content[:60]!r}")


def an_experiment_of_any_kind(rng, folder):
    path = folder / "bad.toml"
    text = "".join(f"{json.dumps(key)} = {json.dumps(key)}\n" for key in rng.value(st.sets(TEXT, max_size=4)))
    content = pick(rng, (text.encode(), rng.value(st.binary(max_size=200)), rng.value(TEXT).encode()))
    path.write_bytes(content)
    return Case(("run", path, "--out", folder / "out"), ("bad.toml",), f"run of {content[:60]!r}")


MAKERS: tuple[Maker, ...] = (
    an_option_of_text,
    a_document_of_any_kind,
    an_experiment_of_any_kind,
    a_result_for_certify,
    runs_for_a_report,
    an_experiment,
    an_option,
    a_result_for_certify,
    runs_for_a_report,
    an_experiment,
    strange_json,
    maps_for_a_report,
    a_model,
    a_table,
    a_path,
    a_bad_model_file,
    a_strange_experiment,
    an_empty_curve,
    a_usage,
)


def _words(value: Any) -> str:
    return "left out" if value is ... else f"= {str(value)[:40]!r} ({type(value).__name__})"


def verdict(case: Case) -> str:
    """What is wrong with how the command ended; "" where nothing is."""
    done = bisaddle(*case.arguments)
    if not isinstance(done.exception, SystemExit):
        return f"ended with {done.exception!r}"[:300] if done.exception else "was a success"
    if done.exit_code not in (2, 3):
        return f"exit code {done.exit_code}: {done.output[-200:]}"
    if "Traceback" in done.output or len(done.output) > 10_000:
        return f"no short message: {done.output[:200]} ..."
    lacking = [word for word in case.words if word not in done.output]
    return f"does not name {', '.join(lacking)}: {done.output}" if lacking else ""


def main(count: int = 200, show: Callable[[str], None] = print) -> int:
    """Run so many malformed commands; the number of those that did not end as they should, which are shown."""
    failed, before = 0, os.getcwd()
    os.environ.setdefault("BISADDLE_COMPILE_CACHE", "off")

    def one(draws: Draws) -> None:
        nonlocal failed
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            (folder / "model.py").write_text(MODEL)
            (folder / "table.csv").write_text(TABLE)
            (folder / "small.toml").write_text(SMALL)
            (folder / "good.json").write_text(json.dumps(result_file(folder)))
            os.chdir(folder)
            try:
                case = pick(draws, MAKERS)(draws, folder)
                found = verdict(case)
            finally:
                os.chdir(before)
        if found:
            failed += 1
            show(f"{case.name}: {found}")

    done = many(count, one)
    show(f"{done - failed} of {done} malformed commands ended with a message that names what is wrong")
    return failed + (done < count)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200) > 0)
