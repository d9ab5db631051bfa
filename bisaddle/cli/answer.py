"""The answer of a solve on the screen: x and y, the certificate, where the time went, what to do next."""

import math
import time
from collections.abc import Iterator
from typing import Any

import click

from bisaddle.cli import screen
from bisaddle.cli.problems import Built
from bisaddle.report.sentences import certificate_sentence

# features whose coefficients are shown, and numbers of an array
MOST_FEATURES, MOST_NUMBERS = 12, 20
WORDS = {
    "gap": "gap",
    "x_gap": "  its x part",
    "y_gap": "  its y part",
    "error_bound": "  its error bound",
    "value": "value",
    "worst_value": "worst value over Y",
    "lower_error": "distance to theta*(x)",
    "violation": "distance to X and Y",
}


class Clock:
    """Wall time of a command: until the run began, and of the run."""

    def __init__(self):
        self.begin = self.loaded = time.perf_counter()

    def start(self) -> None:
        self.loaded = time.perf_counter()

    def words(self, result: Any) -> str:
        """Where the time went; the steps' own time and compilation are what the result says of them."""
        now = time.perf_counter()
        runs = result.starts or (result,)
        steps = sum(run.seconds for run in runs)
        parts = {"loading JAX and the problem": self.loaded - self.begin, "compiling": result.compile_seconds}
        parts |= {"steps": steps, "checks and certificates": now - self.loaded - result.compile_seconds - steps}
        told = ", ".join(f"{name} {max(seconds, 0.0):.1f}" for name, seconds in parts.items())
        return f"{now - self.begin:.1f} s: {told}"


def show(built: Built, result: Any, document: dict[str, Any], options: dict[str, Any], clock: Clock) -> None:
    """Everything that a person asks of a run, the answer first."""
    certificate, status = document["certificate"], result.status
    good = str(status) == "CERTIFIED"
    click.secho(f"\n{status}", fg="green" if good else "yellow", bold=True)
    screen.say(status.advice)
    if result.reason and result.reason != result.certificate.refutation:  # which the sentence below says
        screen.say(f"{result.reason}.")
    click.echo()
    if built.rows is not None:
        _tasks(built, result)
    else:
        for name, numbers in [*_arrays("x", result.point.x), *_arrays("y", result.point.y)]:
            click.echo(f"{name} = {numbers}")
        click.echo()
    screen.table(("certificate", ""), [(words, exact(certificate[name])) for name, words in WORDS.items()])
    click.echo()
    screen.say(certificate_sentence(certificate))
    click.echo()
    if document["starts"]:
        rows = []
        for i, start in enumerate(document["starts"], 1):
            note = " (degenerate)" if start["degenerate"] else ""
            rows.append((str(i), start["status"], exact(start["gap"]), exact(start["worst_value"]) + note))
        screen.table(("start", "status", "gap", "worst value over Y"), rows)
        click.echo()
    screen.say(f"{result.steps} steps in {clock.words(result)}", "time  ")
    for i, words in enumerate(_next(str(status), result, options)):
        screen.say(words, "      " if i else "next  ")


def _tasks(built: Built, result: Any) -> None:
    """Tasks with their weights and errors, the shared coefficients; in the target's own unit where it was scaled."""
    from bisaddle import oracle

    x, y, config = result.point.x, result.point.y, built.rows.config
    target, deviation = config["target"], config.get("target_deviation")
    slope = oracle.upper_gradients(built.problem, x, result.certificate.theta, y)[2]
    losses = slope + built.problem.data.divergence * (y.size * y - 1)  # f_y without the pull to equal weights
    rows = []
    for name, *values in zip(built.rows.task_names, y, x["lam"], losses, strict=True):
        weight, share, loss = map(float, values)
        # a loss is half the mean square of validation errors, in deviations of the target
        error = (1.0 if deviation is None else deviation) * math.sqrt(max(2 * loss, 0.0))
        rows.append((name, f"{weight:.4f}", f"{share:.4f}", f"{loss:.4f}", f"{error:.4g}"))
    screen.table(("task", "weight", "own share lam", "validation loss", f"rms error, {target}"), rows)
    click.echo()
    names = list(zip(built.rows.features, map(float, x["x"]), strict=True))
    names.sort(key=lambda pair: -abs(pair[1]))
    unit = "features" in config["standardize"]
    heads = ["feature", "shared x", f"{target} per {'deviation' if unit else 'unit'}"]
    rows = [(name, f"{value:.4f}", f"{value * (deviation or 1.0):.4g}") for name, value in names[:MOST_FEATURES]]
    count = 3 if deviation is not None else 2
    screen.table(heads[:count], [row[:count] for row in rows])
    if len(names) > MOST_FEATURES:
        click.echo(f"and {len(names) - MOST_FEATURES} more, no larger; --out has all")
    click.echo()


def _arrays(name: str, tree: Any) -> Iterator[tuple[str, str]]:
    """Every array of the tree under its name, its first numbers only where it is long."""
    import jax
    import numpy as np

    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        array, label = np.asarray(leaf), name + jax.tree_util.keystr(path)
        width = screen.console().width - len(label) - 3
        text = np.array2string(array, precision=4, threshold=MOST_NUMBERS, edgeitems=3, max_line_width=width)
        text = text.replace("\n", "\n" + " " * (len(label) + 3))
        yield label, text + (f"  of shape {array.shape}" if array.size > MOST_NUMBERS else "")


def _next(status: str, result: Any, options: dict[str, Any]) -> list[str]:
    """What to do now, with options that `solve` has."""
    smaller = "--nu 0.1 takes smaller steps; without --method there are none to choose"
    found = []
    if status in ("MAX_STEPS", "ACCEPTABLE"):
        found.append(f"--max-steps {10 * options['max_steps']} goes on longer; --tol {10 * options['tol']:g} asks less")
    elif status == "MAX_SECONDS":
        found.append("a larger --max-seconds; with --checkpoint run.ckpt, `bisaddle resume run.ckpt` goes on")
    elif status == "STALLED":
        precise = "--precision 64, or " if str(options["precision"]) == "32" else ""
        found.append(f"{precise}--tol {10 * options['tol']:g}, a problem in other units, a ridge term in g")
    if status in ("MAX_STEPS", "NONFINITE", "DIVERGED") and result.method.name != "Adaptive":
        found.append(smaller)
    if not found and status != "CERTIFIED":
        found.append("mend the problem as said above; bs.check_derivatives and bs.theory.check_assumptions help")
    if status == "CERTIFIED" and options.get("out") is None:
        found.append("--out result.json keeps the answer; `bisaddle certify result.json` then checks it again")
    if status == "CERTIFIED" and options.get("starts", 1) == 1:
        found.append("--starts 4 looks for a lower worst value from other starts")
    return found or ["the answer is kept: see below"]


def exact(value: float | None) -> str:
    if value is None or value == 0:
        return "-" if value is None else "0"
    return f"{value:.6g}" if abs(value) >= 1e-3 else f"{value:.3e}"
