"""bisaddle solve and certify."""

import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from bisaddle.cli import documents, outputs, processes, screen, sources
from bisaddle.cli.answer import WORDS, Clock, exact, show
from bisaddle.cli.errors import NOT_CONVERGED
from bisaddle.cli.helping import Sectioned
from bisaddle.cli.options import (
    FiniteRange,
    above_zero,
    checkpoint_every_option,
    compile_cache_option,
    json_option,
    max_seconds_option,
    named,
    option,
    out_options,
    precision_of,
    precision_option,
    problem_option,
    seed_range,
)
from bisaddle.cli.problems import Built, build, function_specification, rows_of, trusted
from bisaddle.cli.stepping import method_named
from bisaddle.report.files import checkpoint_file, finite
from bisaddle.report.sentences import certificate_document, certificate_sentence

PARTIAL = Path("bisaddle-partial.json")
TOL = 1e-4
STANDARDIZE = {"both": ("features", "targets"), "features": ("features",), "targets": ("targets",), "none": ()}
# headings in the help, by the first option under each
SECTIONS = {
    "Of multitask": "task_column",
    "Method": "method",
    "When it ends": "tol",
    "How it runs": "starts",
    "What is kept": "out",
    "Others": "as_json",
}
# options that only `multitask` knows
APPLICATION = ("task_column", "target", "feature", "radius", "ridge", "divergence", "train", "standardize")


@click.command(cls=Sectioned, sections=SECTIONS)
@click.argument("problem")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--task-column", metavar="NAME", help="The column whose values are the tasks.")
@click.option("--target", metavar="NAME", help="The column to predict.")
@click.option("--feature", multiple=True, metavar="NAME", help="A column to use; repeat. [default: all others]")
@option("--radius", above_zero, 5.0, "|x|_1 <= radius (Q).")
@option("--ridge", above_zero, 0.1, "Ridge of the lower level (rho).")
@option("--divergence", FiniteRange(min=0), 0.0, "Pull to equal weights.")
@option("--train", FiniteRange(0, 1), 0.75, "Fraction of training rows.")
@option("--standardize", click.Choice(list(STANDARDIZE)), "both", "What to scale.")
@click.option("--method", metavar="NAME", help="See `bisaddle methods`. [default: Adaptive, nothing to tune]")
@click.option(
    "--step", multiple=True, metavar="NAME=NUMBER", help="A step size of the method, such as gamma=0.1; repeat."
)
@click.option("--nu", type=above_zero, help="Scale of the method's default steps, where it has one.")
@option("--tol", above_zero, TOL, "The gap to certify.")
@click.option(
    "--rtol",
    type=FiniteRange(0, 1, min_open=True, max_open=True),
    help="The gap relative to the gradient at the start; with --tol the larger one is enough.",
)
@option("--max-steps", click.IntRange(1, 2**31 - 1), 10_000, "Steps at most.")
@max_seconds_option
@option(
    "--starts",
    click.IntRange(1, 100),
    1,
    "Starts to run from; the lowest worst value of the certified ends is the answer.",
)
@click.option(
    "--seed",
    type=seed_range,
    help="Of the split of the rows, and of the starts; of the function, if it has a seed.",
)
@option("--processes", click.IntRange(1, 256), 1, "Processes of this machine to share the work.")
@option("--shard", click.Choice(["tasks", "rows"]), "tasks", "What they share: the tasks, or the rows of each task.")
@precision_option
@out_options
@click.option(
    "--checkpoint",
    type=click.Path(),  # as it was typed: a slash at its end means a folder
    help="Keep the run there, for `bisaddle resume`; Ctrl-C and SIGTERM too. FOLDER/: states are not gathered.",
)
@checkpoint_every_option
@compile_cache_option
@json_option
@click.pass_context
def solve(ctx: click.Context, problem: str, file: Path | None, **options: Any) -> None:
    """Solve a problem and certify the answer.

    \b
    PROBLEM is one of
      multitask FILE.csv         robust multi-task regression, a task for each
                                 value of a column
      model.py:function          a Python function that returns (problem, start)
      package.module:function    likewise, from an importable module

    \b
    Example: bisaddle solve multitask flats.csv --task-column city --target rent
             bisaddle solve model.py:problem --tol 1e-6 --out result.json
    """
    clock = Clock()
    outputs.check(options["out"], options["checkpoint"] and checkpoint_file(options["checkpoint"]))
    if options["method"] is not None:
        named("method", options["method"], sources.methods(), "--method")
    specification = _specification(ctx, problem, file, options)
    rows = rows_of(specification)
    limits = {key: options[key] for key in ("tol", "rtol", "max_steps", "max_seconds")}
    if options["rtol"] and ctx.get_parameter_source("tol") is click.core.ParameterSource.DEFAULT:
        limits["tol"] = None  # rtol alone
    # not before: what is wrong with the arguments is told without the wait for it
    with screen.Progress("loading JAX", quiet=options["as_json"]):
        from bisaddle.run.solve import solve as solved
    processes.check_extra(options["checkpoint"])
    with processes.joined(specification, options, limits), precision_of(options["precision"]):
        built, specification = build(specification, rows=rows)
        chosen = (options[key] for key in ("tol", "max_steps", "step", "nu"))
        method = method_named(options["method"], built.problem, built.start, *chosen)
        settings = {key: options[key] for key in ("tol", "max_steps", "max_seconds", "nu", "starts")}
        settings |= {"method": method.name, "steps": list(options["step"]), "precision": int(options["precision"])}
        if options["checkpoint"] is not None:
            shared = {key: options[key] for key in ("processes", "shard")}
            limits["checkpoint"] = new_checkpoints(specification, settings | shared, options)
        begin = processes.begin(built, options)
        clock.start()
        result = watched(partial(solved, *begin, method, **limits), built, method, options)
        leave(result, built, specification, settings | {"tol": result.tol, "scale": result.scale}, options, clock)


def leave(
    result: Any, built: Built, specification: dict[str, Any], settings: dict[str, Any], options: Any, clock: Clock
) -> None:
    """What a solve leaves behind: on the screen, in --out, and as an exit code."""
    document = documents.result_document(result, specification, settings)
    if options["as_json"]:
        screen.show_json(document)
    else:
        show(built, result, document, options, clock)
    interrupted = document["partial"]
    path = options["out"] or (PARTIAL if interrupted else None)
    if path is not None:
        path = outputs.save_result(document, path, options["force"])
        what = "interrupted: the best point so far is" if interrupted else "the result is"
        tol = "" if options["tol"] == TOL else f" --tol {options['tol']:g}"
        screen.note(f"{what} in {path}; `bisaddle certify {path}{tol}` checks it again")
    if interrupted and options["checkpoint"] is not None:
        screen.note(f"`bisaddle resume {options['checkpoint']}` goes on")
    if document["status"] != "CERTIFIED":
        raise click.exceptions.Exit(NOT_CONVERGED)


@click.command(short_help="Check a result of `solve --out` again.")
@click.argument("result", type=click.Path(path_type=Path))
@option("--tol", above_zero, TOL, "The gap to be met, whatever the result says of its own.")
@option("--sigma", above_zero, 1.0, "Step size in y inside the gap.")
@option("--tau", above_zero, 1.0, "Step size in x inside the gap.")
@problem_option
@click.option("--data-dir", type=click.Path(path_type=Path), help="One more folder to look for the data file in.")
@click.option("--audit", is_flag=True, help="Check the point a second time, by a slow and independent computation.")
@compile_cache_option
@json_option
def certify(
    result: Path,
    tol: float,
    sigma: float,
    tau: float,
    problem: str | None,
    data_dir: Path | None,
    audit: bool,
    as_json: bool,
) -> None:
    """Rebuild the problem of a RESULT of `solve --out` and compute its certificate again, in float64.

    The data file is looked for at its old place, beside the result and in --data-dir; its checksum must be the same.
    A Python file that the result names is run only if its checksum is the same too, or --problem names it.
    Nothing that the result says of itself decides: its tolerance, step sizes and gap are shown as its claims. Exit code
    1 if the gap, error bound included, is above --tol, or if the audit does not agree.

    \b
    Example: bisaddle certify result.json
    """
    document = documents.load(result)
    from bisaddle.certificate.certifier import certify as certified  # not before there is something to certify
    from bisaddle.problem import Point

    old = document["certificate"]
    with precision_of(64):
        folders = [result.absolute().parent, *([data_dir] if data_dir else [])]
        built, found = build(trusted(document["problem"], problem, folders), folders)
        if "file" in found and found.get("sha256") != document["problem"].get("sha256"):
            screen.note(f"{found['file']} has changed since: the certificate is for the problem as it is now")
        parts = {
            name: documents.tree_from(document["point"][name], getattr(built.start, name), f"{result}: point.{name}")
            for name in ("x", "theta", "y")
        }
        point = Point(**parts)
        settings = {"measure": None, "sigma": sigma, "tau": tau}
        fresh = certified(built.problem, point, **settings)
        second = _audited(built, point, settings) if audit else None
        within = fresh.within(tol)
        new = certificate_document(fresh, sigma, tau)
    sentence, claimed = certificate_sentence(new), document["settings"]["tol"]
    agrees = second is None or second.agrees_within(tol)
    if as_json:
        shown = {"certificate": new, "recorded": old, "tol": tol, "claimed_tol": claimed, "within": within}
        shown["sentence"] = sentence
        if second is not None:
            shown["audit"] = _audit_document(second) | {"agrees": agrees}
        screen.show_json(shown)
    else:
        click.echo(f"{built.words}; float64")
        rows = [(words, exact(old.get(name)), exact(new[name])) for name, words in WORDS.items()]
        screen.table(("", "recorded", "computed again"), rows)
        screen.say(sentence)
        ours = f"measure {fresh.measure}, sigma = {sigma:g}, tau = {tau:g}"
        theirs = f"measure {old['measure']}, sigma = {old['sigma']:g}, tau = {old['tau']:g}"
        click.echo(f"Gap here: {ours}. The file claims: {theirs}, tol = {claimed:g}.")
        verdict = "at most" if within else "not within"
        what = "CERTIFIED" if within else "NOT CERTIFIED"
        why = "see above" if fresh.refutation else f"the gap, error bound included, is {verdict} {tol:g}"
        click.echo(f"{what}: {why}.")
        if second is not None:
            click.echo(f"{second}\nThe audit {'agrees' if agrees else 'does NOT agree'} that it is at most {tol:g}.")
    if not (within and agrees):
        raise click.exceptions.Exit(NOT_CONVERGED)


def _audited(built: Built, point: Any, settings: dict[str, Any]) -> Any:
    from bisaddle.auditing import audit

    return audit(built.problem, point, **settings)


def _audit_document(second: Any) -> dict[str, Any]:
    numbers = ("gap", "x_gap", "y_gap", "hidden", "uncertainty", "value", "worst_value", "least_curvature", "violation")
    words = ("measure", "strongly_convex", "mu_g_holds", "concave")
    told = {name: getattr(second, name) for name in words} | {"notes": list(second.notes)}
    return {name: finite(float(getattr(second, name))) for name in numbers} | told


def _specification(ctx: click.Context, problem: str, file: Path | None, options: dict[str, Any]) -> dict[str, Any]:
    if problem != "multitask":
        given = [
            name for name in APPLICATION if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE
        ]
        if file is not None or given:
            what = f"--{given[0].replace('_', '-')}" if given else str(file)
            raise click.UsageError(f"{what} is for `multitask FILE.csv`; PROBLEM is {problem!r}")
        return function_specification(problem, options["seed"])
    if file is None:
        raise click.UsageError(
            "multitask needs a CSV file: bisaddle solve multitask FILE.csv --task-column ... --target ..."
        )
    for name in ("task_column", "target"):
        if options[name] is None:
            raise click.UsageError(f"multitask needs --{name.replace('_', '-')} NAME, a column of {file}")
    sizes = {key: options[key] for key in ("target", "task_column", "radius", "ridge", "divergence", "train")}
    features, scaled = list(options["feature"]) or None, list(STANDARDIZE[options["standardize"]])
    given = {"kind": "multitask", "file": str(file.expanduser().absolute()), **sizes}
    return given | {"features": features, "standardize": scaled, "seed": options["seed"] or 0}


def new_checkpoints(specification: dict[str, Any], settings: dict[str, Any], options: dict[str, Any]) -> Any:
    """The file of --checkpoint, with what `bisaddle resume` needs to build the problem and the method again."""
    from bisaddle.run.checkpoint import Checkpoints

    found = Checkpoints(options["checkpoint"], options["checkpoint_every"], [specification, settings])
    if options["force"] and found.path.is_file():
        screen.note(f"--force: the run in {found.path} is given up for this one")
        for old in (found.path, found.previous):
            old.unlink(missing_ok=True)
    return found


def watched(run: Callable[..., Any], built: Built, method: Any, options: dict[str, Any]) -> Any:
    """run(callback=...), with a line on the screen that says how far it is."""
    tol, max_steps, max_seconds = options["tol"], options["max_steps"], options["max_seconds"]
    if not options["as_json"]:
        screen.say(built.words)
        click.echo(f"{method.name}, float{options['precision']}, until the gap is at most {tol:g}")
    begin, first = time.perf_counter(), []

    def fraction(record: Any) -> float:
        """How far the run is: by steps, by time, or by the logarithm of the gap, whichever is furthest."""
        gap = float(record.certificate.gap)
        first[:] = first or [gap]
        shares = [record.k / max_steps]
        if max_seconds:
            shares.append((time.perf_counter() - begin) / max_seconds)
        if first[0] > tol and gap > 0:
            shares.append(math.log(first[0] / gap) / math.log(first[0] / tol))
        return max(shares)

    with screen.Progress("compiling", quiet=options["as_json"]) as bar:

        def look(record: Any) -> None:
            bar.show(fraction(record), f"{method.name} step {record.k}", float(record.certificate.gap))

        return run(callback=look, progress=False)
