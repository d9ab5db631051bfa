"""The command line: bisaddle reproduce | run | solve | resume | certify | report | data | methods | sets | ..."""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command and exit: 0 certified or completed, 1 not converged, 2 usage, 3 data."""
    try:
        from bisaddle.cli.app import app
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        print(f"bisaddle needs {error.name} for its command line; install bisaddle[cli]", file=sys.stderr)
        sys.exit(2)
    app.main(args=None if arguments is None else list(arguments), prog_name="bisaddle")
