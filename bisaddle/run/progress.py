"""One line on a terminal that says how far a run is, if rich is there."""

import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any, NamedTuple

# seconds before the line appears: a run that is over by then does not wait for rich to load
DELAY = 0.2
# seconds between two drawings
PERIOD = 0.1
# characters of the bar: at most, and so many at least or none
LONGEST, SHORTEST = 40, 8


class Words(NamedTuple):
    """What a line shows: what runs, how much of it is done (None shows no bar), and facts in their rich styles."""

    name: str
    share: float | None
    facts: list[tuple[str, str]]


class Line:
    """A line on stderr, drawn by a thread of its own, also while XLA compiles: with SomeLine(wanted) as line.

    wanted: True needs rich, None draws where there is a terminal and rich, False draws nothing. On a terminal the line
    is gone at the end; elsewhere True leaves the last one.
    """

    def __init__(self, wanted: bool | None):
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self.begin, self.over = time.perf_counter(), threading.Event()
        self.lasting, self.thread = wanted is True and not terminal, None
        if wanted is False or not (wanted or terminal):
            return
        if find_spec("rich") is not None:
            self.thread = threading.Thread(target=self._draw, name="bisaddle-progress", daemon=True)
        elif wanted:
            raise ValueError("progress=True needs rich; install bisaddle[cli], or use progress=False")

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

    def _draw(self) -> None:
        if self.over.wait(DELAY) and not self.lasting:
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(stderr=True, highlight=False)
        # What is printed meanwhile goes above the line, by way of the console: never what is on its way into a file,
        # nor into the stream that a callback has just put in the place of stdout.
        same = self.streams == (sys.stdout, sys.stderr)
        above = same and sys.stdout is not None and sys.stdout.isatty()
        redirect: dict[str, Any] = {"redirect_stdout": above, "redirect_stderr": same}
        with Live(self, console=console, auto_refresh=False, transient=not self.lasting, **redirect) as live:
            while not self.over.wait(PERIOD):
                live.refresh()
        if self.lasting:
            console.print()  # rich leaves out the end of the last line

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
        grid.add_row(left, ProgressBar(total=1.0, completed=min(max(share, 0.0), 1.0), width=room), right)
        yield grid


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
