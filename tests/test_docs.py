"""Pages made from the code are up to date."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_page_of_sets_is_what_the_docstrings_say():
    spec = importlib.util.spec_from_file_location("make_sets", ROOT / "docs" / "make_sets.py")
    assert spec is not None and spec.loader is not None
    make_sets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_sets)
    assert (ROOT / "docs" / "sets.md").read_text() == make_sets.page(), "run: make docs"
    page = make_sets.page()
    for name in make_sets.public_sets():
        assert f"`{name}(" in page
