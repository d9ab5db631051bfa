"""Exit codes, and errors as one message instead of a traceback."""

import sys
from typing import IO, Any

import click

COMPLETED, NOT_CONVERGED, USAGE, DATA = range(4)


class Failure(click.ClickException):
    """What went wrong, in words, with the code to exit with."""

    def __init__(self, message: str, exit_code: int):
        super().__init__(message)
        # click declares it as a constant of the class
        self.exit_code = exit_code  # pyright: ignore[reportAttributeAccessIssue]

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"{click.style('error:', fg='red', bold=True)} {self.message}", err=True)


def code_of(error: BaseException) -> int | None:
    """The exit code for an error that the library raises on purpose; None for one that it does not."""
    datasets = sys.modules.get("bisaddle.datasets")
    if datasets is not None and isinstance(error, datasets.DataError):
        return DATA
    if isinstance(error, OSError):
        return DATA
    return USAGE if isinstance(error, ValueError | ImportError) else None


class Commands(click.Group):
    """A group whose commands end with a message and an exit code, not with a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except KeyboardInterrupt:
            raise Failure("interrupted before there was anything to keep", NOT_CONVERGED) from None
        except Exception as error:
            code = code_of(error)
            if code is None or ctx.params.get("traceback"):
                raise
            raise Failure(str(error) or type(error).__name__, code) from error
