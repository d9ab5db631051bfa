"""bisaddle reproduce, run, report."""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from bisaddle.cli import outputs, screen
from bisaddle.cli.errors import DATA, NOT_CONVERGED, USAGE, Failure
from bisaddle.cli.options import (
    compile_cache_option,
    data_dir_option,
    json_option,
    max_seconds_option,
    option,
    pairs_of,
    seed_range,
)
from bisaddle.report.style import DATASETS, FIGURES
from bisaddle.run.interrupts import Interrupt, noted
from bisaddle.spelling import did_you_mean

RESULTS = Path("results")
# an experiment, and the arguments of its run
Job = tuple[Any, dict[str, Any]]

comparison_options = [
    click.option("--quick", is_flag=True, help="Fewer steps, seeds and values of nu: seconds instead of minutes."),
    click.option("--seed", "seeds", multiple=True, type=seed_range, help="Only this seed; repeat for several."),
    click.option(
        "--nu", "nus", multiple=True, metavar="METHOD=NUMBER", help="Run METHOD with this nu, untuned; repeat."
    ),
    click.option(
        "--method", "methods", multiple=True, metavar="METHOD", help="Only this method (opf, fp, morbit, ...); repeat."
    ),
    click.option("--steps", type=click.IntRange(min=1), help="Steps K instead of those of the experiment."),
    max_seconds_option,
    data_dir_option,
    compile_cache_option,
    json_option,
]


def with_options(command: Any) -> Any:
    for one in reversed(comparison_options):
        command = one(command)
    return command


@click.command(short_help="Run the experiments of the paper.")
@click.argument("figure", type=click.Choice([*FIGURES, "all"]), default="all")
@click.option("--dataset", "datasets", multiple=True, type=click.Choice(DATASETS), help="Only this data set; repeat.")
@option("--out", click.Path(path_type=Path, file_okay=False), RESULTS, "Folder to write to.")
@with_options
def reproduce(figure: str, datasets: tuple[str, ...], out: Path, **options: Any) -> None:
    """Run the experiments of section 6: figure 1, figure 2 or all, the last with frozen lambda unless --quick.

    Leaves results.json and .csv, figures, report.html and REPRODUCTION.md in --out. With --nu or --method only the
    methods named are run. Data sets whose files are not there are left out and named, unless asked for.

    \b
    Example: bisaddle reproduce --quick
             bisaddle reproduce fig1 --dataset mtl --nu opf=0.1 --out fig1
    """
    with screen.Progress("loading JAX", quiet=options["as_json"]):
        from bisaddle import experiments

        chosen = [experiments.read(name) for name in experiments.names()]
    if figure != "all":
        chosen = [experiment for experiment in chosen if experiment.figure == figure]
    elif options["quick"] and not (options["nus"] or options["methods"]):
        extra = [experiment.name for experiment in chosen if experiment.figure not in FIGURES]
        chosen = [experiment for experiment in chosen if experiment.figure in FIGURES]
        screen.note(
            f"left out: {', '.join(extra)} (additions to the paper's experiments, for which --quick is too short)"
        )
    missing = {} if datasets else _missing(options)
    for name, why in missing.items():
        screen.note(f"left out: {name} ({why})")
    _fetch(datasets, options)
    there = [name for name in datasets or DATASETS if name not in missing]
    whole = figure == "all" and not (datasets or options["nus"] or options["methods"] or options["seeds"])
    complete = _compare(chosen, there, out, options, sensitive=whole and not options["quick"])
    if not complete:
        raise click.exceptions.Exit(NOT_CONVERGED)
    if missing and not options["quick"]:
        raise Failure(f"completed, but without {', '.join(missing)}", DATA)


@click.command(short_help="Run one experiment, of yours or by its name.")
@click.argument("file", metavar="FILE.toml")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), help="Folder to write to. [default: results/NAME]"
)
@with_options
def run(file: str, out: Path | None, **options: Any) -> None:
    """Run one experiment: a TOML file of yours, or a bundled one by its name.

    \b
    Example: bisaddle run comparison.toml --out comparison
             bisaddle run exp1_synthetic --quick
    """
    own, ending, _ = file.rpartition(".toml")
    if ending and not Path(own + ending).expanduser().is_file():
        raise Failure(f"{own}{ending} is not there; a TOML file is needed, or the name of a bundled experiment", USAGE)
    from bisaddle import experiments  # with JAX

    experiment = experiments.read(file)
    there = list(dict.fromkeys(case.dataset["name"] for case in experiment.cases))
    _fetch(there, options)
    if not _compare([experiment], there, out or RESULTS / experiment.name, options, account=False):
        raise click.exceptions.Exit(NOT_CONVERGED)


@click.command(short_help="Make one page of results.")
@click.argument("results", nargs=-1, required=True, type=click.Path(path_type=Path))
@option("--html", click.Path(path_type=Path, dir_okay=False), "report.html", "The page.")
@click.option("--figures", type=click.Path(path_type=Path, file_okay=False), help="Folder for PNG and PDF figures.")
@click.option("--title", help="Of the page.")
@json_option
def report(results: tuple[Path, ...], html: Path, figures: Path | None, title: str | None, as_json: bool) -> None:
    """Make one page of RESULTS: files results.json, or folders that hold one.

    \b
    Example: bisaddle report results --html page.html
             bisaddle report mine/results.json theirs --html both.html
    """
    from bisaddle import experiments, report as reports
    from bisaddle.experiments.store import sensitivity_in

    runs = [run for place in results for run in experiments.load(place)]
    if not runs:
        raise Failure(f"a report needs at least one run, and there is none in {', '.join(map(str, results))}", USAGE)
    folders = [place if place.is_dir() else place.parent for place in results]
    maps = [setting for folder in dict.fromkeys(folders) for setting in sensitivity_in(folder)]
    page = reports.html(runs, html, sensitivity=maps, **({"title": title} if title else {}))
    drawn = [] if figures is None else [str(path) for path in reports.figures(runs, figures)]
    if as_json:
        screen.show_json({"runs": len(runs), "page": str(page.absolute()), "figures": drawn})
    else:
        click.echo(f"{len(runs)} runs; the page is {page.absolute()}")


def _fetch(names: Iterable[str], options: dict[str, Any]) -> None:
    """The files of the data sets, checked before anything runs; a DataError says which one is missing or wrong."""
    from bisaddle import datasets

    for name in names:
        datasets.fetch(name, options["data_dir"])


def _missing(options: dict[str, Any]) -> dict[str, str]:
    """The data sets that cannot be had, and why. A quick run downloads nothing; a wrong file is an error."""
    from bisaddle import datasets

    datasets.folders(options["data_dir"])  # a folder that the user named must be there
    found = {}
    if find_spec("sklearn") is None:
        found["diabetes"] = "it comes with scikit-learn; install bisaddle[sklearn]"
    for name in DATASETS:
        lacking = [report for report in datasets.check(name, options["data_dir"]) if not report.ok]
        for report in lacking:
            if report.path is not None:
                raise Failure(report.problem, DATA)
        if lacking and options["quick"]:
            found[name] = f"its files are not there; `bisaddle data fetch {name}` downloads them"
        elif lacking:
            try:
                datasets.fetch(name, options["data_dir"])
            except datasets.DataError as error:
                found[name] = str(error).splitlines()[0]
    return found


@dataclass
class Watch:
    """How far all jobs are, for the line on the terminal, and whether it is time to end."""

    bar: screen.Progress
    interrupt: Interrupt
    limit: float | None
    why: str = ""

    def each(self, call: Callable[..., list[dict]], jobs: list[Job]) -> list[dict]:
        """What call(experiment, **arguments) gives for the jobs, one after the other, until it is time to end."""
        found = []
        for i, (experiment, arguments) in enumerate(jobs):
            if self.ended():
                break
            with suppress(KeyboardInterrupt):  # while it was compiling: there is nothing of it yet
                found += call(experiment, **arguments, progress=self.part(i, len(jobs)))
        return found

    def part(self, i: int, count: int) -> Callable[[int, int, str, float | None], None]:
        """The progress of job i of so many; it raises KeyboardInterrupt, as Ctrl-C does, to end the job."""

        def look(done: int, total: int, text: str, gap: float | None) -> None:
            self.bar.show((i + done / max(total, 1)) / count, text, gap)
            if not self.ended() and self.limit is not None and time.perf_counter() > self.limit:
                self.why = "stopped by --max-seconds"
            if self.ended():
                raise KeyboardInterrupt

        return look

    def ended(self) -> str:
        """Why no more is run; "" as long as more may be."""
        self.why = self.why or ("interrupted" if self.interrupt.asked else "")
        return self.why


def _compare(
    chosen: list,
    datasets: list[str],
    folder: Path,
    options: dict[str, Any],
    account: bool = True,
    sensitive: bool = False,
) -> bool:
    """Run, save, show; whether everything was run."""
    from bisaddle import experiments

    outputs.check(folder / outputs.PAGE)
    jobs = _jobs(chosen, datasets, options)
    varied = [(experiment, {"data_dir": given["data_dir"]}) for experiment, given in jobs if experiment.sensitivity]
    begin = time.perf_counter()
    with noted() as interrupt:
        screen.note(f"{len(jobs)} experiment{'s' * (len(jobs) > 1)}, float64{', quick' * options['quick']}")
        limit = None if options["max_seconds"] is None else begin + options["max_seconds"]
        with screen.Progress("compiling", quiet=options["as_json"]) as bar:
            watch = Watch(bar, interrupt, limit)
            runs = watch.each(experiments.run, jobs)
            maps = watch.each(experiments.sensitivity, varied) if sensitive else []
        stop = watch.ended()
        if not runs:
            raise Failure(f"{stop or 'ended'} before the first run; nothing is saved", NOT_CONVERGED)
        written = outputs.write_all(runs, maps, folder, account)
    seconds = time.perf_counter() - begin
    if options["as_json"]:
        names = {key: str(path.absolute()) for key, path in written.items()}
        screen.show_json({"runs": len(runs), "complete": not stop, "seconds": seconds, **names})
        return not stop
    outputs.show_runs(runs)
    if stop:
        click.echo(f"{stop}: what was finished is saved, runs that were cut are marked as partial")
    click.echo(f"{len(runs)} runs in {seconds:.0f} s; numbers, figures and the page are in {folder}")
    click.echo(f"The page is {written['page'].absolute()}")
    return not stop


def _jobs(chosen: list, datasets: list[str], options: dict[str, Any]) -> list[Job]:
    """One for every experiment that has one of the data sets and methods."""
    nus: dict[str, list[float]] = {}
    for key, value in pairs_of(options["nus"], "--nu", "opf=0.1"):
        nus.setdefault(key, []).append(value)
    keys = list(dict.fromkeys([*nus, *options["methods"]]))
    known = list(dict.fromkeys(spec.key for experiment in chosen for spec in experiment.methods))
    unknown = [key for key in keys if key not in known]
    if unknown:
        there = did_you_mean(unknown, known, f"there are {', '.join(known)}")
        raise Failure(f"no method here is called {', '.join(unknown)}; {there}", USAGE)
    common = {key: options[key] for key in ("quick", "steps", "data_dir")} | {"seeds": options["seeds"] or None}
    jobs = []
    for experiment in chosen:
        has = {spec.key for spec in experiment.methods}
        here = {case.dataset["name"] for case in experiment.cases} & set(datasets)
        if not here or (keys and not has & set(keys)):
            continue
        methods = [key for key in keys if key in has] or None
        mine = {key: nus[key] for key in nus if key in has} or None
        jobs.append((experiment, common | {"datasets": sorted(here), "methods": methods, "nus": mine}))
    if not jobs:
        raise Failure(f"no experiment has {', '.join(keys) or 'a method'} on {', '.join(datasets)}", USAGE)
    return jobs
