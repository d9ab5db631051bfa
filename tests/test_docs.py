"""Pages made from the code are up to date."""

import importlib.util
import re
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

import bisaddle as bs
from tests.cli_helpers import bisaddle
from tests.test_solve import quadratic

ROOT = Path(__file__).parents[1]


def maker(name):
    """The script docs/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGES = [("make_sets", "sets.md"), ("make_methods", "methods.md"), ("make_architecture", "architecture.md")]


@pytest.mark.parametrize(("script", "page"), PAGES)
def test_a_page_is_what_the_docstrings_say(script, page):
    assert (ROOT / "docs" / page).read_text() == maker(script).page(), "run: make docs"


def test_the_picture_of_the_layers_is_up_to_date():
    assert (ROOT / "docs" / "architecture.svg").read_text() == maker("make_architecture").drawing(), "run: make docs"


def test_the_pages_of_the_api_have_every_public_name():
    make_api = maker("make_api")
    written = {path.name: path.read_text().rstrip() for path in (ROOT / "docs" / "api").glob("*.md")}
    assert written == {name: page.rstrip() for name, page in make_api.pages().items()}, "run: make docs"
    shown = {line.removeprefix("::: ") for page in written.values() for line in page.splitlines() if line[:3] == ":::"}
    for name in set(bs.__all__) - set(make_api.modules()):
        assert f"bisaddle.{name}" in shown
    for module in make_api.modules():
        assert any(name.startswith(f"bisaddle.{module}.") for name in shown), module
    for module in ("sets", "methods", "theory"):
        for name in make_api.public(getattr(bs, module)):
            assert f"bisaddle.{module}.{name}" in shown


def cells(row):
    """The cells of a row of a table; bars in code count as well, as Markdown counts them."""
    return len(re.split(r"(?<!\\)\|", row.strip().strip("|")))


@pytest.mark.parametrize(
    "page", sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]), ids=lambda page: page.name
)
def test_no_row_of_a_table_has_more_cells_than_its_head(page):
    """What stands in a cell too many is not shown: | inside a cell has to be escaped."""
    lines = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL).split("\n")
    head = None
    for line in lines:
        if not line.startswith("|"):
            head = None
        elif head is None:
            head = cells(line)
        else:
            assert cells(line) <= head, line


def test_every_set_is_on_its_page():
    make_sets = maker("make_sets")
    for name in make_sets.public_sets():
        assert f"`{name}(" in make_sets.page()


def test_every_method_is_on_its_page_with_a_reference_that_exists():
    make_methods = maker("make_methods")
    references = (ROOT / "docs" / "references.bib").read_text()
    for name, method in make_methods.public_methods().items():
        assert f"### {name}\n" in make_methods.page()
        assert f"{{{method.about.reference}," in references


@contextmanager
def recorded():
    """The files of bisaddle in which a function is called, in any thread."""
    files, seen, root = set(), set(), f"{ROOT / 'bisaddle'}/"

    def note(frame, event, argument):
        code = frame.f_code
        if code in seen:
            return
        seen.add(code)
        if code.co_filename.startswith(root) and code.co_name != "<module>":
            files.add(code.co_filename.removeprefix(root))

    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def hold_against(walk, files):
    """Every stop is passed, and nothing runs that the page does not name."""
    assert not set(walk.stops) - files
    named = {*walk.stops, *walk.used}
    others = {file for file in files if file not in named and f"{file.split('/')[0]}/" not in named}
    assert not others - {"lazy.py"}, "enter these in WALKS of docs/make_architecture.py"


def test_a_solve_and_a_certificate_pass_through_the_files_of_their_walks():
    walks = maker("make_architecture").WALKS
    solve, certify = walks["`bs.solve(problem, start)`"], walks["`bs.certify(problem, point)`"]
    assert len(solve.stops) <= 12 and len(certify.stops) <= 12
    problem, start = quadratic()
    bs.solve(problem, start)  # what runs while it is compiled is not the walk
    with recorded() as files:
        result = bs.solve(problem, start)
    hold_against(solve, files)
    with recorded() as files:
        bs.certify(problem, result.point)
    hold_against(certify, files)


@pytest.mark.slow
def test_a_reproduction_passes_through_the_files_of_its_walk(tmp_path):
    arguments = ("--quick", "--dataset", "synthetic", "--seed", "0", "--steps", "100", "--out", tmp_path)
    with recorded() as files:
        done = bisaddle("reproduce", "fig1", *arguments)
    assert done.exit_code == 0, done.output
    hold_against(maker("make_architecture").WALKS["`bisaddle reproduce --quick`"], files)
