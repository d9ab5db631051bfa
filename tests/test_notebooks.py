"""The notebooks run, and their pages show the code that runs."""

import re
import time

import pytest

from tests.test_docs import maker
from tests.test_docs_code import blocks, differs

notebooks = maker("make_notebooks")


@pytest.mark.parametrize("name", notebooks.names())
def test_the_page_of_a_notebook_has_its_text_its_code_and_a_picture(name):
    path = notebooks.FOLDER / f"{name}.md"
    page, cells = path.read_text(encoding="utf-8"), notebooks.cells(path.with_suffix(".py"))
    shown = [block.text.rstrip("\n") for block in blocks(path) if block.kind == "python"]
    assert shown == [cell.text for cell in cells if cell.kind == "code"], "run: make notebooks"
    assert all(cell.text in page for cell in cells if cell.kind == "markdown"), "run: make notebooks"
    pictures = re.findall(r"!\[[^\]]*\]\(([\w.]+)\)", page)
    assert pictures and all((notebooks.FOLDER / file).stat().st_size < 100_000 for file in pictures)


@pytest.mark.slow
@pytest.mark.parametrize("name", notebooks.names())
def test_a_notebook_runs_within_a_minute_and_prints_what_its_page_shows(name):
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    path = notebooks.FOLDER / f"{name}.md"
    began = time.process_time()
    page, pictures = notebooks.page(name)
    assert time.process_time() - began < 60
    old, new = (re.findall(r"```text\n(.*?)```", text, re.DOTALL) for text in (path.read_text("utf-8"), page))
    assert len(old) == len(new) and pictures
    for shown, printed in zip(old, new, strict=True):
        assert not differs(shown, printed)
