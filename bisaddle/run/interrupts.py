"""Ctrl-C while there is something to give back: noted, and acted upon between two steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """asked: whether Ctrl-C has been pressed."""

    def __init__(self):
        self.asked = False

    def note(self, number: int, frame: FrameType | None) -> None:
        # An exception raised here is lost when Python happens to be in a callback of the garbage collector, where JAX
        # has one: it is printed, and the run goes on. So the first Ctrl-C is a note, read between steps.
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True


@contextmanager
def noted() -> Iterator[Interrupt]:
    """with noted() as interrupt: the first Ctrl-C sets interrupt.asked; the second raises KeyboardInterrupt at once.

    A handler that somebody else has put in place stays, and in other threads than the main one no signal arrives.
    """
    interrupt = Interrupt()
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupt
        return
    try:
        signal.signal(signal.SIGINT, interrupt.note)
    except ValueError:  # not the main thread
        yield interrupt
        return
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
