"""bisaddle resume."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from bisaddle.cli import outputs, processes
from bisaddle.cli.answer import Clock
from bisaddle.cli.errors import DATA, Failure
from bisaddle.cli.options import (
    checkpoint_every_option,
    compile_cache_option,
    json_option,
    max_seconds_option,
    option,
    out_options,
    precision_of,
    problem_option,
)
from bisaddle.cli.problems import Built, build, trusted
from bisaddle.cli.solving import leave, watched
from bisaddle.cli.stepping import method_named
from bisaddle.report.files import kept_file

# what `method_named` and the screen are told again
NEEDED = {"tol": float, "max_steps": int, "method": str, "steps": list, "nu": float | None, "precision": int}


@click.command(short_help="Go on with a run of `solve --checkpoint`.")
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--max-steps", type=click.IntRange(1, 2**31 - 1), help="Steps at most. [default: as it was]")
@max_seconds_option
@problem_option
@click.option("--data-dir", type=click.Path(path_type=Path), help="One more folder to look for the data file in.")
@option("--processes", click.IntRange(1, 256), 1, "Processes of this machine; as many as then, or a divisor of that.")
@out_options
@checkpoint_every_option
@compile_cache_option
@json_option
def resume(checkpoint: Path, problem: str | None, data_dir: Path | None, **options: Any) -> None:
    """Go on with a run of `solve --checkpoint`, to the result that it would have had without the stop.

    The data file is looked for at its old place, beside the checkpoint and in --data-dir; its checksum must be the
    same. A Python file that the checkpoint names is run only if its checksum is the same too, or --problem names it.

    \b
    Example: bisaddle resume run.ckpt --out result.json
    """
    clock = Clock()
    if not kept_file(checkpoint).is_file():
        raise Failure(f"{checkpoint} cannot be read; a file of `solve --checkpoint` is needed", DATA)
    outputs.check(options["out"], kept_file(checkpoint))
    from bisaddle.run.solve import resume as resumed

    processes.check_extra(f"{checkpoint}/" if checkpoint.is_dir() else checkpoint)
    options |= {"resumed": checkpoint, "problem": problem, "data_dir": data_dir}
    limits = {key: options[key] for key in ("max_steps", "max_seconds", "checkpoint_every")}
    with processes.joined({}, options, limits):
        specification, settings = noted(checkpoint)
        with precision_of(settings["precision"]):
            again = prepared(checkpoint, specification, settings, problem, data_dir)
            built, method = again.built, again.method
            options |= {"tol": settings["tol"], "checkpoint": checkpoint, "precision": settings["precision"]}
            options["max_steps"] = options["max_steps"] or settings["max_steps"]
            clock.start()
            result = watched(partial(resumed, checkpoint, again.placed, method, **limits), built, method, options)
            settings = {key: value for key, value in settings.items() if key not in ("processes", "shard")}
            settings |= {key: options[key] for key in ("max_steps", "max_seconds")}
            leave(result, built, again.specification, settings, options, clock)


class Again(NamedTuple):
    """What a checkpoint goes on with. placed: the problem, split as it was, over the processes that there are now."""

    built: Built
    specification: dict[str, Any]
    method: Any
    placed: Any


def prepared(
    checkpoint: Path, specification: dict[str, Any], settings: dict[str, Any], problem: str | None, folder: Path | None
) -> Again:
    from bisaddle import parallel

    folders = [checkpoint.absolute().parent, *([folder] if folder else [])]
    built, specification = build(trusted(specification, problem, folders), folders)
    tol, nu, steps = settings["tol"], settings["nu"], tuple(settings["steps"])
    method = method_named(settings["method"], built.problem, built.start, tol, settings["max_steps"], steps, nu)
    placed, shards = built.problem, settings.get("processes", 1)
    if shards > 1:
        placed, _ = parallel.shard(placed, built.start, parallel.mesh(settings["shard"]), shards=shards)
    return Again(built, specification, method, placed)


def noted(checkpoint: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What `solve` was given: the specification of the problem, and its settings."""
    from bisaddle.run.checkpoint import read

    try:
        with precision_of(64):
            note = read(checkpoint).note
    except OSError as error:
        why = error.strerror or error
        raise Failure(f"{checkpoint} cannot be read ({why}); a file of `solve --checkpoint` is needed", DATA) from error
    except ValueError as error:
        raise Failure(str(error), DATA) from error
    sound = isinstance(note, list) and len(note) == 2 and all(isinstance(part, dict) for part in note)
    if not sound or any(not isinstance(note[1].get(name), kind) for name, kind in NEEDED.items()):
        raise Failure(f"{checkpoint} does not say what `solve` was given; go on with bs.resume in Python", DATA)
    return note[0], note[1]
