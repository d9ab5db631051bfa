"""The group of all commands. JAX and the library are imported inside the commands, so that help comes at once."""

import sys
from itertools import chain

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
Example: bisaddle solve multitask flats.csv --task-column city --target rent
         bisaddle solve model.py:problem --tol 1e-6
         bisaddle reproduce --quick
"""


@click.group(
    cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option("--traceback", is_flag=True, help="Show where an error came from, not only what it is.")
@click.version_option(sys.modules["bisaddle"].__version__, prog_name="bisaddle")
def app(traceback: bool) -> None:
    """Saddle-point problems with bilevel structure: solve, certify, and the paper's experiments.

    \b
        min_{x in X} max_{y in Y} f(x, theta*(x), y)
        theta*(x) = argmin_theta g(x, theta)
    """


SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "Your own problem": (solve, certify, resume),
    "The paper's experiments, and your own": (reproduce, run, report),
    "What there is": (methods, sets, data, info, completion),
}
for command in chain.from_iterable(SECTIONS.values()):
    app.add_command(command)
app.sections = {title: tuple(str(command.name) for command in listed) for title, listed in SECTIONS.items()}
