"""The code on the pages of the applications runs as it stands, and its result is certified."""

import re
from pathlib import Path

import pytest

import bisaddle as bs

PAGES = sorted((Path(__file__).parents[1] / "docs" / "apps").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_code_of_the_page_runs_and_certifies(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    assert blocks
    names: dict = {}
    exec(compile("\n".join(blocks), str(page), "exec"), names)
    assert names["result"].status == bs.Status.CERTIFIED
    assert capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_shows_pictures_and_pages_that_exist(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert any(link.endswith(".svg") for link in links)
    assert not [link for link in links if not (page.parent / link).exists()]
