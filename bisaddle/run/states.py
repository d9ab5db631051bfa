"""States that are too large to gather, beside the checkpoint in its folder: every process writes its own part.

    folder/checkpoint               the file, which names the one state that is whole
    folder/checkpoint.state-7       that one, written by orbax
    folder/checkpoint.state-8...    one that is being written

The file is replaced when the new state is whole, and the old state goes after that.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jaxtyping import PyTree

from bisaddle.devices import Together, is_lost

NAMED = re.compile(r"checkpoint\.state-([0-9]+)")


class States:
    """The states in a folder. beside: what the checkpoint names: the one that is whole, if there is one."""

    def __init__(self, folder: Path):
        from bisaddle.parallel import keeping

        keeping.orbax("a checkpoint in a folder")
        self.folder, self.beside, self.count = folder, list[str](), 0

    def go_on(self, beside: list[str]) -> None:
        """From what a checkpoint names."""
        found = NAMED.fullmatch(" ".join(beside))
        if found is None:
            raise ValueError(f"the checkpoint in {self.folder} is damaged: it names the state {beside!r:.60}")
        self.beside, self.count = beside, int(found[1])

    def read(self, places: Sequence[PyTree]) -> list[PyTree]:
        """The states, each where one of `places` is."""
        from bisaddle.parallel import keeping

        return keeping.restore(self.folder / self.beside[0], list(places))

    def write(self, kept: Any, together: Together | None) -> Any:
        """What is kept of the runs without their states, which are in a new folder that it names.

        OSError in every process if one of them could not write its part.
        """
        from bisaddle.parallel import keeping
        from bisaddle.report.files import sync_folder

        self.count += 1
        name, failure = f"checkpoint.state-{self.count}", None
        try:
            keeping.save(self.folder / name, [run["state"] for run in kept.runs])
        except Exception as error:  # tensorstore knows no other kind
            if is_lost(error):  # another process, which cannot be asked
                raise
            failure = error
        if failure is not None if together is None else together.any(failure is not None)[0]:
            raise OSError(str(failure or "another process could not write its part")) from failure
        if together is None or together.first:  # orbax forces the numbers to the disk, and not all of its own files
            for path in (self.folder / name, *(self.folder / name).rglob("*")):
                sync_folder(path)
        return replace(kept, runs=[run | {"state": None} for run in kept.runs], beside=[name])

    def tidy(self) -> None:
        """Remove all but the one that the checkpoint names: older ones, and what a process that was killed has left."""
        for left in self.folder.glob("checkpoint.state-*"):
            if left.name not in self.beside:
                shutil.rmtree(left, ignore_errors=True)
