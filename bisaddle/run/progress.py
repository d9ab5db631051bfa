"""One line on a terminal that says how far a run is, if rich is there; now and then a line where there is none."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, NamedTuple

# seconds before the line appears: a run that is over by then does not wait for rich to load
DELAY = 0.2
# seconds between two drawings
PERIOD = 0.1
# characters of the bar: at most, and so many at least or none
LONGEST, SHORTEST = 40, 8
# seconds between two lines where none can be drawn again, and characters of the bar there
LOG_PERIOD, LOG_LENGTH = 10.0, 22


class Words(NamedTuple):
    """What a line shows: what runs, how much of it is done (None shows no bar), and facts in their rich styles."""

    name: str
    share: float | None
    facts: list[tuple[str, str]]


class Line:
    """How far a run is, on stderr, told by a thread of its own, also while XLA compiles: with SomeLine(wanted) as line.

    wanted: True, or None for what is usual: a line that is drawn again and again where there is a terminal and rich,
    nothing elsewhere; False tells nothing. Where nothing can be drawn again, as in a file or a dumb terminal, a line of
    plain text follows another every 10 s; True leaves one at the end. logs: None does so too, but for the last line.
    """

    def __init__(self, wanted: bool | None, logs: bool = False):
        there = sys.stderr is not None and sys.stderr.isatty()
        drawn = there and os.environ.get("TERM", "").lower() not in ("dumb", "unknown")
        self.begin, self.over, self.thread = time.perf_counter(), threading.Event(), None
        self.lasting = wanted is True and not drawn
        if wanted is False or not (wanted or there or logs):
            return
        if drawn and find_spec("rich") is None:
            if wanted:
                raise ValueError("progress=True needs rich; install bisaddle[cli], or use progress=False")
            return
        tell = self._draw if drawn else self._log
        self.thread = threading.Thread(target=tell, name="bisaddle-progress", daemon=True)

    def words(self) -> Words:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self.begin = time.perf_counter()
        self.streams = sys.stdout, sys.stderr
        if self.thread is not None:
            self.thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over.set()
        if self.thread is not None:
            self.thread.join()

    def seconds(self) -> float:
        return time.perf_counter() - self.begin

    def _log(self) -> None:
        while not self.over.wait(LOG_PERIOD):
            self._print()
        if self.lasting:
            self._print()

    def _print(self) -> None:
        name, share, facts = self.words()
        parts = [name, *([] if share is None else [text_bar(share, LOG_LENGTH)]), *(text for text, _ in facts)]
        with suppress(OSError, ValueError):  # a pipe whose reader has gone, a file that is closed, ends no run
            print("  ".join(parts), file=self.streams[1], flush=True)

    def _draw(self) -> None:
        if self.over.wait(DELAY):
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False)
        # What is printed meanwhile goes above the line, by way of the console: never what is on its way into a file,
        # nor into the stream that a callback has just put in the place of stdout.
        same = self.streams == (sys.stdout, sys.stderr)
        above = same and sys.stdout is not None and sys.stdout.isatty()
        redirect: dict[str, Any] = {"redirect_stdout": above, "redirect_stderr": same}
        with Live(self, console=console, auto_refresh=False, transient=True, **redirect) as live:
            while not self.over.wait(PERIOD):
                live.refresh()

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        name, share, facts = self.words()
        frames = r"-\|/" if options.ascii_only else "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
        left, right = Text(name, "bold"), Text("  ").join(Text(*fact) for fact in facts)
        if not self.over.is_set():
            spin = Text(frames[int(self.seconds() / PERIOD) % len(frames)], "progress.spinner")
            left = Text(" ").join((spin, left))
        room = min(LONGEST, options.max_width - left.cell_len - right.cell_len - 4)
        if share is None or room < SHORTEST:
            line = Text("  ").join((left, right))
            line.no_wrap, line.overflow = True, "ellipsis"
            yield line
            return
        grid = Table.grid(padding=(0, 2, 0, 0))
        # rich tells what is done from what is left by colour alone, or leaves out the rest
        colour = console.color_system is not None and not console.no_color and not options.ascii_only
        bar = ProgressBar(total=1.0, completed=min(max(share, 0.0), 1.0), width=room)
        grid.add_row(left, bar if colour else Text(text_bar(share, room)), right)
        yield grid


def text_bar(share: float, width: int) -> str:
    """[#####.....], so many characters wide, for where there are no colours."""
    inside = width - 2
    done = round(min(max(share, 0.0), 1.0) * inside) if share == share else 0
    return f"[{'#' * done}{'.' * (inside - done)}]"


class Progress(Line):
    """with Progress(wanted, name, steps) as bar: bar.compiling("f"), bar.compiling(None), bar.show(k, gap)

    All three only leave a note for the thread that draws: they may be called a million times a second.
    """

    def __init__(self, wanted: bool | None, name: str, steps: int):
        super().__init__(wanted)
        self.name, self.steps = name, steps
        self.k, self.gap, self.what = None, None, None

    def compiling(self, what: str | None) -> None:
        """A program is being compiled, what it computes in words; None when it is done."""
        self.what = what

    def show(self, k: int, gap: float) -> None:
        self.k, self.gap = k, gap

    def words(self) -> Words:
        what, k, gap = self.what, self.k, self.gap
        clock = (str(timedelta(seconds=int(self.seconds()))), "progress.elapsed")
        if what is not None and not k:
            return Words(self.name, None, [(f"compiling {what}", ""), clock])
        done = (f"{k or 0:{len(str(self.steps))}}/{self.steps}", "progress.download")  # the bar keeps its length
        last = [] if gap is None else [(f"gap {gap:.2e}", "cyan")]
        if what is not None:
            last = [(f"compiling {what}", "")]
        return Words(self.name, (k or 0) / self.steps, [done, clock, *last])
