"""Pages made from the code are up to date."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def maker(name):
    """The script docs/NAME.py as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("script", "page"), [("make_sets", "sets.md"), ("make_methods", "methods.md")])
def test_a_page_is_what_the_docstrings_say(script, page):
    assert (ROOT / "docs" / page).read_text() == maker(script).page(), "run: make docs"


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
