"""What is released: one version, names that the docs have, extras that bring what the code asks for."""

import importlib
import inspect
import re
import sys
import tomllib
from pathlib import Path

import pytest

import bisaddle as bs

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_stands_in_one_place():
    assert re.fullmatch(r"\d+\.\d+\.\d+", bs.__version__)
    assert "version" in PROJECT["dynamic"] and "version" not in PROJECT
    assert "\nversion:" not in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_the_pythons_named_are_those_that_may_install_it():
    named = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if "Python :: 3." in line]
    assert named == ["3.11", "3.12", "3.13"] and PROJECT["requires-python"] == f">={named[0]}"
    assert sys.version_info >= (3, 11)


def test_the_public_names_are_there_and_in_the_docs():
    pages = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md"))
    assert len(set(bs.__all__)) == len(bs.__all__)
    for name in bs.__all__:
        if name == "estimators":
            pytest.importorskip("sklearn")
        assert getattr(bs, name) is not None
        told = f"# bs.{name}\n" if inspect.ismodule(getattr(bs, name)) else f"::: bisaddle.{name}\n"
        assert told in pages + "\n", f"{name} is not in docs/api; run: make docs"
    documented = set(re.findall(r"^::: bisaddle\.(\w+)$", pages, re.M))
    assert documented == {name for name in bs.__all__ if not inspect.ismodule(getattr(bs, name))}


def test_every_extra_that_a_message_names_is_there():
    named = set()
    for path in (ROOT / "bisaddle").rglob("*.py"):
        named |= set(re.findall(r"bisaddle\[(\w+)\]", path.read_text(encoding="utf-8")))
    assert named == {"cli", "plot", "sklearn", "data", "parquet", "orbax"}
    assert named <= set(PROJECT["optional-dependencies"])


def test_the_core_needs_no_extra_and_each_extra_is_pinned():
    normal = lambda line: re.sub("[-_.]", "-", re.split(r"[>=\[]", line)[0]).lower()
    pinned = {normal(line) for line in (ROOT / "constraints.txt").read_text().split()}
    core = {normal(line) for line in PROJECT["dependencies"]}
    for name, lines in {**PROJECT["optional-dependencies"], "core": PROJECT["dependencies"]}.items():
        lacking = {normal(line) for line in lines} - pinned
        assert not lacking, f"{name}: constraints.txt has no {lacking}"
        assert name == "core" or not core & {normal(line) for line in lines}


@pytest.mark.parametrize("missing", ["click", "rich", "matplotlib", "sklearn", "pooch", "pandas", "orbax"])
def test_the_library_loads_without_an_extra(missing, monkeypatch):
    monkeypatch.setitem(sys.modules, missing, None)
    for name in bs.__all__:
        if name != "estimators":
            assert getattr(importlib.import_module("bisaddle"), name) is not None
