"""Ctrl-C, and SIGTERM where it is asked for, while there is something to give back: noted between two steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupt:
    """asked: whether Ctrl-C has been pressed, or SIGTERM has come."""

    def __init__(self):
        self.asked = False

    def note(self, number: int, frame: FrameType | None) -> None:
        # An exception raised here is lost when Python happens to be in a callback of the garbage collector, where JAX
        # has one: it is printed, and the run goes on. So the first Ctrl-C is a note, read between steps.
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True


@contextmanager
def noted(terminate: bool = False) -> Iterator[Interrupt]:
    """with noted() as interrupt: the first Ctrl-C sets interrupt.asked; the second raises KeyboardInterrupt at once.

    terminate: the same for SIGTERM. A handler that somebody else has put in place stays, and in other threads than the
    main one no signal arrives.
    """
    interrupt = Interrupt()
    usual = {signal.SIGINT: signal.default_int_handler, **({signal.SIGTERM: signal.SIG_DFL} if terminate else {})}
    changed = []
    try:
        for number, handler in usual.items():
            if signal.getsignal(number) == handler:
                try:
                    signal.signal(number, interrupt.note)
                except ValueError:  # not the main thread
                    break
                changed.append(number)
        yield interrupt
    finally:
        for number in changed:
            signal.signal(number, usual[number])


@contextmanager
def not_lost() -> Iterator[None]:
    """with not_lost(): Ctrl-C raises KeyboardInterrupt at the end of the block, where there is nothing to give back."""
    with noted() as interrupt:
        yield
    if interrupt.asked:
        raise KeyboardInterrupt
