"""Figures as small text files, the same from one run to the next."""

import io
import re
from pathlib import Path


def save_svg(figure, path: Path) -> None:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    path.write_text(compact(text.getvalue()), encoding="utf-8")


def compact(svg: str) -> str:
    """Without the document type, which is only the address of a definition; a path to a line, to 0.01 points."""
    svg = re.sub(r"<!DOCTYPE[^>]*>\s*", "", svg)
    one_line = lambda path: re.sub(r"\s+", " ", re.sub(r"-?\d+\.\d+", lambda n: f"{float(n[0]):.2f}", path[0]))
    svg = re.sub(r'(?<= d=")[^"]*(?=")', one_line, svg)
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
