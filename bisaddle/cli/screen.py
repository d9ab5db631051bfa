"""What the terminal shows: tables, numbers, progress with the gap and the time left. Notes go to stderr."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from bisaddle.cli.helping import broken
from bisaddle.run.progress import Line, Words


def console() -> Any:
    from rich.console import Console

    return Console(highlight=False)


def note(text: str) -> None:
    """A remark beside the output; never on stdout, which --json keeps for itself."""
    click.echo(broken(text, sys.stderr), err=True)


def say(text: str, begin: str = "") -> None:
    """Sentences on stdout; begin: a word in front of them."""
    click.echo(broken(text, sys.stdout, begin))


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


class Progress(Line):
    """with Progress(text, quiet) as bar: bar.show(fraction, text, gap). A line where stderr is a terminal, else a log.

    quiet: none at all. The time left is what the time so far and the fraction done say.
    """

    def __init__(self, text: str, quiet: bool = False):
        super().__init__(False if quiet else None, logs=True)
        self.text, self.gap, self.fraction, self.first = text, None, None, 0.0

    def show(self, fraction: float, text: str, gap: float | None = None) -> None:
        if self.fraction is None:  # what was compiled before says nothing about the time left
            self.first = self.seconds()
        self.text, self.fraction, self.gap = text, min(max(fraction, 0.0), 1.0), gap

    def words(self) -> Words:
        done, gap = self.fraction, self.gap
        if done is None:
            return Words(self.text, None, [(_clock(self.seconds()), "progress.elapsed")])
        elapsed = self.seconds() - self.first
        left = f"{_clock(elapsed * (1 - done) / done)} left" if done > 0.01 else _clock(elapsed)
        facts = [(f"{100 * done:3.0f}%", "progress.download"), (left, "progress.elapsed")]
        return Words(self.text, done, facts if gap is None else [*facts, (f"gap {gap:.1e}", "cyan")])


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
