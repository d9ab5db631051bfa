"""The command line from inside a test."""

from click.testing import CliRunner

from bisaddle.cli.app import app


def bisaddle(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="bisaddle")


def refused(done, code, *words):
    """A message with these words and this exit code, no traceback."""
    assert done.exit_code == code, done.output
    assert isinstance(done.exception, SystemExit) and "Traceback" not in done.output
    assert all(word in done.output for word in words), done.output
