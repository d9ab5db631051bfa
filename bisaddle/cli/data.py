"""bisaddle data list | where | check | fetch."""

from dataclasses import asdict
from pathlib import Path

import click

from bisaddle.cli import screen
from bisaddle.cli.errors import DATA
from bisaddle.cli.helping import Ordered
from bisaddle.cli.options import data_dir_option, json_option
from bisaddle.report.style import DATASETS

MADE = {"synthetic": "generated, no file", "diabetes": "comes with scikit-learn, no file"}
names_argument = click.argument("names", nargs=-1, type=click.Choice(DATASETS), metavar="[NAME]...")


@click.group(cls=Ordered, short_help="The data sets: list, where, check, fetch.")
def data() -> None:
    """The data sets: what they are, where their files are, whether they are right.

    \b
    Files are looked for in --data-dir, then in BISADDLE_DATA, then in the cache;
    `fetch` downloads the rest.
    Example: bisaddle data list
    """


@data.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List every file with its size, licence and page.

    \b
    Example: bisaddle data list --json
    """
    from bisaddle import datasets

    if as_json:
        screen.show_json({name: [asdict(source) for source in datasets.sources(name)] for name in DATASETS})
        return
    rows = []
    for name in DATASETS:
        for source in datasets.sources(name):
            note = " (optional)" if source.optional else ""
            rows.append((name, source.file + note, source.rows, source.columns or "any", source.licence))
        if name in MADE:
            rows.append((name, MADE[name], "", "", ""))
    screen.table(("data set", "file", "rows", "columns", "licence"), rows, right=5)


@data.command(short_help="Show the folders searched and the files found.")
@names_argument
@data_dir_option
@json_option
def where(names: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Show the folders searched and the file that would be read for each part.

    \b
    Example: bisaddle data where nlsy79
    """
    from bisaddle import datasets

    folders = [str(folder) for folder in datasets.folders(data_dir)]
    found = {
        name: {part: None if path is None else str(path) for part, path in datasets.where(name, data_dir).items()}
        for name in names or DATASETS
    }
    if as_json:
        screen.show_json({"folders": folders, "files": found})
        return
    click.echo("searched, in this order: " + (", ".join(folders) or "no folder"))
    rows = [(name, part, path or "not found") for name, parts in found.items() for part, path in parts.items()]
    rows += [(name, "", MADE[name]) for name in found if name in MADE]
    screen.table(("data set", "part", "file"), rows, right=3)


@data.command()
@names_argument
@data_dir_option
@json_option
def check(names: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Check the files found: checksum, rows, columns. Exit code 3 if one is wrong or missing.

    \b
    Example: bisaddle data check mtl --data-dir ~/data
    """
    from bisaddle import datasets

    rows, wrong = [], False
    for name in names or DATASETS:
        if name in MADE:
            rows.append((name, "", "right", MADE[name]))
        for report in datasets.check(name, data_dir):
            wrong |= not report.ok
            verdict = "right" if report.ok else "WRONG"
            if report.path is None:
                verdict = "optional" if report.ok else "missing"
            place = str(report.path) if report.path else f"{report.source.file} not found"
            rows.append((name, report.source.part, verdict, report.problem if report.path and not report.ok else place))
    if as_json:
        screen.show_json([dict(zip(("dataset", "part", "verdict", "detail"), row, strict=True)) for row in rows])
    else:
        screen.table(("data set", "part", "", "file"), rows, right=4)
    missing = dict.fromkeys(row[0] for row in rows if row[2] == "missing")
    if missing and not as_json:
        screen.note(f"`bisaddle data fetch {' '.join(missing)}` downloads what is missing; --data-dir names a folder")
    if wrong:
        raise click.exceptions.Exit(DATA)


@data.command(short_help="Download what is missing.")
@names_argument
@data_dir_option
@json_option
def fetch(names: tuple[str, ...], data_dir: Path | None, as_json: bool) -> None:
    """Have every file of the data sets NAME (all, if none is named), checked; what is missing is downloaded.

    \b
    Example: bisaddle data fetch mtl
    """
    from bisaddle import datasets

    found = {name: [str(path) for path in datasets.fetch(name, data_dir)] for name in names or DATASETS}
    if as_json:
        screen.show_json(found)
        return
    for name, paths in found.items():
        for line in paths or [MADE[name]]:
            click.echo(f"{name}: {line}")
