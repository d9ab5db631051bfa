"""Every ```python block of README and docs runs, and prints what the page says.

The blocks of a page share a namespace, in order. In the source of a page, the line before a block may say

    <!-- fragment -->   not run: it shows a shape, and could not stand alone
    <!-- output -->     of a ```text block: what the blocks since the last such line have printed
    <!-- slow -->       anywhere: the page takes more than a few seconds
"""

import contextlib
import io
import re
from pathlib import Path
from typing import NamedTuple

import jax
import pytest

ROOT = Path(__file__).parents[1]
FENCE = re.compile(
    r"(?:^<!-- (?P<mark>fragment|output) -->\n)?^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf", re.IGNORECASE)
# a page may have fragments, but they are the exception
MOST_FRAGMENTS = 2


class Block(NamedTuple):
    kind: str
    mark: str
    text: str
    line: int


def blocks(path):
    text = path.read_text(encoding="utf-8")
    return [
        Block(found["kind"], found["mark"] or "", found["text"], text[: found.start("text")].count("\n"))
        for found in FENCE.finditer(text)
    ]


def pages():
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        if any(block.kind == "python" for block in blocks(path)) and path.parent.name != "notebooks":
            slow = "<!-- slow -->" in path.read_text(encoding="utf-8")
            yield pytest.param(path, id=path.relative_to(ROOT).as_posix(), marks=[pytest.mark.slow] * slow)


def differs(shown, printed):
    """Where a printed text is not the shown one; numbers within a tenth, tiny ones and seconds by being there."""
    words = [NUMBER.sub("#", text).split() for text in (shown, printed)]
    if words[0] != words[1]:
        return f"shown:\n{shown}\nprinted:\n{printed}"
    pairs = zip(NUMBER.finditer(shown), NUMBER.finditer(printed), strict=True)
    for one, other in pairs:
        a, b = float(one[0]), float(other[0])
        timed = re.match(r" s\b", shown[one.end() :])
        if not timed and max(abs(a), abs(b)) > 1e-5 and abs(a - b) > 0.1 * max(abs(a), abs(b)):
            return f"{one[0]} is shown and {other[0]} printed in\n{printed}"
    return ""


@pytest.fixture
def as_a_reader():
    """JAX as a reader has it, in float32 until the page says otherwise."""
    jax.config.update("jax_enable_x64", False)
    yield
    jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("path", list(pages()))
def test_the_code_of_a_page_runs_and_prints_what_it_shows(path, tmp_path, monkeypatch, as_a_reader):
    monkeypatch.chdir(tmp_path)
    found = blocks(path)
    assert sum(block.mark == "fragment" for block in found) <= MOST_FRAGMENTS
    space, printed = {"__name__": "page"}, io.StringIO()
    for block in found:
        if block.mark == "output":
            difference = differs(block.text, printed.getvalue())
            assert not difference, f"{path}:{block.line}: {difference}"
            printed = io.StringIO()
        elif block.kind == "python" and block.mark != "fragment":
            # lines as in the page, so that a traceback points there
            code = compile("\n" * block.line + block.text, str(path), "exec")
            with contextlib.redirect_stdout(printed):
                exec(code, space)


def test_a_wrong_number_or_word_is_found():
    assert not differs("gap 1.00 in 3 s", "gap 1.05  in 99 s") and not differs("7.5e-14", "3e-15")
    assert differs("gap 1.0", "gap 1.5") and differs("gap 1.0", "cap 1.0") and differs("1", "1 2")
