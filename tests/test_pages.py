"""The code on the pages of applications and estimators runs as it stands, and certifies."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("apps/hyperparameter.md", "apps/fairness.md", "estimators.md")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_on_a_page_runs(page, capsys):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), {})
        printed = capsys.readouterr().out
        assert "CERTIFIED" in printed and "MAX_STEPS" not in printed


@pytest.mark.parametrize("page", PAGES)
def test_the_pictures_and_pages_that_are_linked_are_there(page):
    path = DOCS / page
    for link in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
        assert (path.parent / link).exists(), link
