"""A progress bar on a terminal, if rich is there."""

import sys
from typing import Any

from bisaddle.certificate import Certificate


class Progress:
    """with Progress(wanted, name, steps) as bar: bar.show(k, certificate)

    wanted: True needs rich, None shows a bar where there is a terminal and rich, False shows none.
    """

    def __init__(self, wanted: bool | None, name: str, steps: int):
        self.bar: Any = None
        if wanted is False or (wanted is None and not sys.stderr.isatty()):
            return
        try:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as RichProgress
        except ImportError as error:
            if wanted:
                raise ValueError("progress=True needs rich; install bisaddle[cli], or use progress=False") from error
            return
        columns = (
            TextColumn(name),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[gap]}"),
        )
        console = Console(stderr=True)
        self.bar = RichProgress(*columns, console=console, transient=console.is_terminal)
        self.task = self.bar.add_task(name, total=steps, gap="")

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, k: int, certificate: Certificate) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=k, gap=f"gap {float(certificate.gap):.2e}")
