"""The group of all commands. JAX and the library are imported inside the commands, so that help comes at once."""

import sys

import click

from bisaddle.cli.completion import completion
from bisaddle.cli.data import data
from bisaddle.cli.errors import Commands
from bisaddle.cli.lists import info, methods, sets
from bisaddle.cli.reproducing import report, reproduce, run
from bisaddle.cli.resuming import resume
from bisaddle.cli.solving import certify, solve

EPILOG = """\b
Exit codes: 0 certified or completed, 1 not converged, 2 usage, 3 data.
Example: bisaddle reproduce --quick
         bisaddle solve multitask houses.csv --task-column region --target price
"""


@click.group(
    cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--traceback", is_flag=True, help="Show where an error came from, not only what it is.")
@click.version_option(sys.modules["bisaddle"].__version__, prog_name="bisaddle")
def app(traceback: bool) -> None:
    """Saddle-point problems with bilevel structure: solve, certify, and the paper's experiments.

    \b
        min_{x in X} max_{y in Y} f(x, theta*(x), y),     theta*(x) = argmin_theta g(x, theta)
    """


for command in (reproduce, run, solve, resume, certify, report, data, methods, sets, info, completion):
    app.add_command(command)
