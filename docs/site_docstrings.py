"""Docstrings in house form, as Markdown: sentences stay sentences, columns and equations keep their shape."""

import html
import re
from typing import Any

from griffe import Extension

# two words with a gap between them that no sentence has
COLUMNS = re.compile(r"\S {3,}\S|\S {2,}(?:->|<=|=)")

# a line that begins with what it is about
NAMED = re.compile(r"((?:[A-Za-z](?:\w|\\_)*, )*[A-Za-z](?:\w|\\_)*): ")


class HouseDocstrings(Extension):
    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(docstring: str) -> str:
    """The docstring with its plain text escaped and what is laid out by hand fenced."""
    parts: list[tuple[bool, list[str]]] = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = paragraph.split("\n")
        shaped = lines[0].startswith("    ") or sum(bool(COLUMNS.search(line)) for line in lines) > 1
        if shaped and parts and parts[-1][0]:
            parts[-1][1].extend(["", *lines])
        else:
            parts.append((shaped, lines))
    return "\n\n".join(_fenced(lines) if shaped else _told(lines) for shaped, lines in parts)


def _told(lines: list[str]) -> str:
    """A paragraph; a list, where its lines begin with names of parameters or with Needs: and Promises:."""
    items: list[str] = []
    for line in lines:
        if NAMED.match(line) or not items:
            items.append(line)
        else:
            items[-1] += f" {line}"
    if len(items) < 3 and not all(NAMED.match(item) for item in items):
        return _escaped(" ".join(items))
    first = [] if NAMED.match(items[0]) else [_escaped(items.pop(0)), ""]
    return "\n".join([*first, *("* " + NAMED.sub(r"**\1**: ", _escaped(item), count=1) for item in items)])


def _fenced(lines: list[str]) -> str:
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(["```text", *(line[margin:] for line in lines), "```"])


def _escaped(text: str) -> str:
    """Markdown that shows the text as it is; `code` stays code."""
    pieces = re.split(r"(`[^`]*`)", text)
    plain = lambda piece: re.sub(r"([\\*_\[\]#|$])", r"\\\1", html.escape(piece, quote=False))
    return "".join(piece if piece.startswith("`") else plain(piece) for piece in pieces)
