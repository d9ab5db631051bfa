"""What the terminal shows: tables, numbers, progress with the gap and the time left. Notes go to stderr."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from typing import Any

import click


def console(stderr: bool = False) -> Any:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False)


def note(text: str) -> None:
    """A remark beside the output; never on stdout, which --json keeps for itself."""
    click.echo(text, err=True)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], title: str | None = None, right: int = 1) -> None:
    """A table; the columns from number `right` on are numbers, a row of one cell is a heading. Cells are no markup."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    screen = console()
    if title is not None:
        screen.print(Text(title, style="bold"))
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), show_header=any(heads))
    for i, head in enumerate(heads):
        number = i >= right
        # a number is never broken; a name only to make room for numbers
        whole = number or (i == 0 and right >= len(heads))
        shown.add_column(head, justify="right" if number else "left", overflow="fold", no_wrap=whole)
    for row in rows:
        cells = [Text("" if cell is None else str(cell)) for cell in row]
        shown.add_row(*cells, style="bold" if len(cells) == 1 < len(heads) else None)
    screen.print(shown)


def show_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, allow_nan=False))


def short(number: float | None) -> str:
    """Three digits; a dash for what is not a number."""
    return "-" if number is None or math.isnan(number) else f"{number:.2e}"


class Progress:
    """with Progress(text, quiet) as bar: bar.show(fraction, text, gap). A bar where stderr is a terminal.

    quiet: none at all. The time left is what the time so far and the fraction done say.
    """

    def __init__(self, text: str, quiet: bool = False):
        self.text, self.bar, self.begin = text, None, None
        screen = console(stderr=True)
        if quiet or not screen.is_terminal:
            return
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None if screen.width > 100 else 16),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[gap]}"),
            TextColumn("{task.fields[left]}"),
        )
        self.bar: Any = RichProgress(*columns, console=screen, transient=True)
        self.task = self.bar.add_task(text, total=1.0, gap="", left="")

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, fraction: float, text: str | None = None, gap: float | None = None) -> None:
        if self.bar is None:
            return
        fraction = min(max(fraction, 0.0), 1.0)
        # the clock starts here: what was compiled before says nothing about the time left
        self.begin = self.begin or time.perf_counter()
        elapsed = time.perf_counter() - self.begin
        left = f"{_clock(elapsed * (1 - fraction) / fraction)} left" if fraction > 0.01 else f"{_clock(elapsed)}"
        words = {"description": self.text if text is None else text, "left": left}
        self.bar.update(self.task, completed=fraction, gap="" if gap is None else f"gap {gap:.1e}", **words)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
