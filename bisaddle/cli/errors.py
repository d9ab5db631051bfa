"""Exit codes, and errors as one message instead of a traceback."""

import sys
import traceback
from pathlib import Path
from typing import IO, Any

import click

from bisaddle.cli.helping import Ordered, broken

COMPLETED, NOT_CONVERGED, USAGE, DATA = range(4)


class Failure(click.ClickException):
    """What went wrong, in words, with the code to exit with."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        # click declares it as a constant of the class
        self.exit_code = exit_code  # pyright: ignore[reportAttributeAccessIssue]

    def show(self, file: IO[Any] | None = None) -> None:
        begin = "error: "
        lines = broken(self.message, sys.stderr, begin).removeprefix(begin)
        click.echo(click.style(begin, fg="red", bold=True) + lines, err=True)


def code_of(error: BaseException) -> int | None:
    """The exit code for an error that the library raises on purpose; None for one that it does not."""
    datasets = sys.modules.get("bisaddle.datasets")
    if datasets is not None and isinstance(error, datasets.DataError):
        return DATA
    if isinstance(error, OSError):
        return DATA
    return USAGE if isinstance(error, ValueError | ImportError) else None


def one_line(error: BaseException) -> str:
    """The error, and the line of the user's file that it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename and "importlib" not in frame.filename]
    where = f" ({Path(own[-1].filename).name}, line {own[-1].lineno})" if len(own) > 1 else ""
    return f"{type(error).__name__}: {error}{where}"


class Commands(Ordered):
    """A group whose commands end with a message and an exit code, not with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            raise Failure("interrupted before there was anything to keep", NOT_CONVERGED) from None
        except (Exception, SystemExit) as error:
            failure = _failure(error)
            if failure is None:
                raise
            if ctx.params.get("traceback"):
                _raise_source(failure)
            raise failure from failure.__cause__


def _failure(error: BaseException) -> click.ClickException | None:
    """The message and the code for an error; None for one that is our own mistake."""
    if isinstance(error, click.ClickException):
        return error
    if isinstance(error, SystemExit):  # of the user's model: nothing was completed, whatever it says
        made = Failure(f"the model ended the program, where it must return: {one_line(error)}", USAGE)
    elif (code := code_of(error)) is not None:
        made = Failure(str(error) or type(error).__name__, code)
    else:
        return None
    made.__cause__ = error
    return made


def _raise_source(failure: click.ClickException) -> None:
    """Raise what a message stands for, with the lines that it came from; nothing where it stands for itself."""
    source = failure.__cause__
    if isinstance(source, SystemExit):
        raise RuntimeError(failure.message) from source  # by itself it would end in silence
    if source is not None:
        raise source from source.__cause__
