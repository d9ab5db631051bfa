"""Where the printed statement fails, the corrected one holds, and docs/theory.md shows the numbers of this very run."""

from pathlib import Path

import pytest

from tests.theory_slips import SLIPS, row, sides

DOCS = Path(__file__).parents[1] / "docs" / "theory.md"


@pytest.mark.parametrize("name", SLIPS)
def test_a_printed_inequality_fails_where_the_corrected_one_holds(name):
    left, printed, corrected = sides(name)
    assert left > 1.01 * printed
    assert left <= corrected * (1 + 1e-9)


@pytest.mark.parametrize("name", SLIPS)
def test_the_documentation_has_these_numbers(name):
    assert row(name) in DOCS.read_text(encoding="utf-8").splitlines()
