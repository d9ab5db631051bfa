"""Options that several commands share, and the precision that the command line chooses."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from bisaddle.cli import cache
from bisaddle.spelling import did_you_mean


class FiniteRange(click.FloatRange):
    """A range without NaN and infinity, which click lets pass."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return found


above_zero = FiniteRange(min=0, min_open=True)
# what NumPy and JAX take for one, at 32 bits too
seed_range = click.IntRange(0, 2**31 - 1)


def option(name: str, kind: Any, default: Any, help: str) -> Any:
    """An option with a default, which its help shows."""
    return click.option(name, type=kind, default=default, show_default=True, help=help)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")
precision_option = option("--precision", click.Choice(["32", "64"]), "64", "Bits of a floating-point number.")
max_seconds_option = click.option("--max-seconds", type=above_zero, help="Stop after this much wall time.")
problem_option = click.option(
    "--problem",
    metavar="MODEL.PY:FUNCTION",
    help="The function that the problem comes from, as it is now; else only if its file has not changed.",
)
checkpoint_every_option = option(
    "--checkpoint-every", click.FloatRange(min=0), 60.0, "Seconds between two checkpoints."
)
data_dir_option = click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder with the data files; else BISADDLE_DATA, the cache, a download.",
)


def out_options(command: Any) -> Any:
    """--out and --force"""
    out = click.option(
        "--out", type=click.Path(path_type=Path, dir_okay=False), help="Write the result there, for `certify`."
    )
    force = click.option("--force", is_flag=True, help="Replace a certified result, or a checkpoint, that is there.")
    return out(force(command))


def _keep_programs(ctx: click.Context, parameter: click.Parameter, refused: bool) -> None:
    if not (refused or ctx.resilient_parsing):  # a shell that completes a command line runs no command
        cache.use()


# of every command that compiles; it acts before the command's own code, which loads JAX
compile_cache_option = click.option(
    "--no-compile-cache",
    is_flag=True,
    expose_value=False,
    callback=_keep_programs,
    help="Compile everything again; else programs are kept on disk.",
)


@contextmanager
def precision_of(bits: str | int) -> Iterator[None]:
    """JAX at 32 or 64 bits inside the block: the choice of a program, never of an import."""
    import jax

    # jax adds its options to jax.config where no type checker sees them
    before = jax.config.jax_enable_x64  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_x64", str(bits) == "64")
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def named(what: str, name: str, known: Iterable[str], option: str) -> str:
    """The one of the known names that is meant, small letters or not."""
    found = next((key for key in known if key.lower() == name.lower()), None)
    if found is None:
        near = did_you_mean(name, known)
        rest = f"`bisaddle {what}s` lists all" if near else f"there are {', '.join(known)}"
        raise click.BadParameter(f"no {what} is called {name!r}; {near}{rest}", param_hint=option)
    return found


def pairs_of(texts: tuple[str, ...], option: str, example: str) -> list[tuple[str, float]]:
    """("gamma=0.1", ...) as names and numbers."""
    found = []
    for text in texts:
        name, _, number = text.partition("=")
        try:
            found.append((name.strip(), float(number)))
        except ValueError:
            raise click.BadParameter(
                f"{text!r} given; NAME=NUMBER is needed, such as {example}", param_hint=option
            ) from None
    return found
