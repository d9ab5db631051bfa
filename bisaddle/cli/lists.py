"""bisaddle methods, sets, info: what there is."""

import os
from collections.abc import Callable, Sequence

import click

from bisaddle.cli import cache, screen, sources
from bisaddle.cli.options import json_option, named
from bisaddle.methods.about import HEADS, words
from bisaddle.report.files import machine, versions

LIBRARIES = ("jax", "jaxlib", "numpy", "scipy", "equinox", "optax", "jaxtyping")
OPTIONAL = ("click", "rich", "matplotlib", "scikit-learn", "pooch")


@click.command()
@click.argument("name", required=False)
@json_option
def methods(name: str | None, as_json: bool) -> None:
    """List the methods, or show the equations of one.

    \b
    Example: bisaddle methods
             bisaddle methods MORBiT
    """
    # all eight columns need a wide terminal; the equations are one command away
    kept = range(len(HEADS)) if screen.console().width >= 150 else (0, 1, 2, 3, 7)
    note = "bisaddle methods NAME shows a method's equations, needs and promises; keys: docs/references.bib."
    row = lambda told: (told.name, *words(told.about))
    _show("method", sources.methods(), name, as_json, HEADS, row, kept, note)


@click.command()
@click.argument("name", required=False)
@json_option
def sets(name: str | None, as_json: bool) -> None:
    """List the sets for x and y, or describe one.

    \b
    Example: bisaddle sets
             bisaddle sets KLBall
    """
    note = "bisaddle sets NAME describes a set and the cost of its oracles."
    _show("set", sources.sets(), name, as_json, ("set", "projection", "LMO", "points"), _set_row, range(4), note)


@click.command(short_help="Show versions, devices, folders.")
@json_option
def info(as_json: bool) -> None:
    """Show versions, devices, precision, where data are looked for and compiled programs kept.

    \b
    Example: bisaddle info --json
    """
    import jax

    from bisaddle import datasets

    facts = {
        **versions("bisaddle", "python", *LIBRARIES, *OPTIONAL),
        "platform": f"{machine()}, {os.cpu_count()} CPUs",
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()],
        "precision": "float64, chosen by the command line; `solve --precision 32` for float32",
        "data folders": [str(folder) for folder in datasets.folders()],
        "compile cache": cache.words(),
    }
    if as_json:
        screen.show_json(facts)
        return
    shown = [(key, ", ".join(value) if isinstance(value, list) else value) for key, value in facts.items()]
    screen.table(("", ""), [(key, value or "not installed") for key, value in shown], right=2)


def _show(
    what: str,
    known: dict[str, sources.Told],
    name: str | None,
    as_json: bool,
    heads: Sequence[str],
    row: Callable[[sources.Told], Sequence[str]],
    kept: Sequence[int],
    note: str,
) -> None:
    """The docstring of the one that is named; else a table of all, with the columns kept."""
    if name is None:
        rows = [row(told) for told in known.values()]
        if as_json:
            screen.show_json([dict(zip(heads, cells, strict=True)) for cells in rows])
            return
        screen.table([heads[i] for i in kept], [[cells[i] for i in kept] for cells in rows], right=len(heads))
        screen.note(note)
        return
    found = named(what, name, known, "NAME")
    if as_json:
        screen.show_json({what: found, "text": known[found].text})
    else:
        click.echo(f"{found}\n\n{known[found].text}")


def _set_row(told: sources.Told) -> tuple[str, str, str, str]:
    """The set-builder form is the first paragraph of the docstring, the oracles are named after it."""
    formula, _, rest = told.text.partition("\n\n")
    projection = "yes" if "project:" in rest else "prox" if "prox:" in rest else "no"
    return told.name, projection, "yes" if "lmo:" in rest else "no", " ".join(formula.split())
