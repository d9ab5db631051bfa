"""run(experiment): every method, nu and seed, measured; nu chosen; a list of plain dicts, as in results.json."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from bisaddle.certificate import certify
from bisaddle.experiments import build, checks
from bisaddle.experiments.build import Instance
from bisaddle.experiments.errors import ExperimentError
from bisaddle.experiments.jobs import Crew, Job, Lane, Outcome, Progress, WarmUp, made_again
from bisaddle.experiments.spec import MOST_RECORDS, MOST_STEPS, Case, Experiment, MethodSpec
from bisaddle.report.files import finite, machine, versions
from bisaddle.report.records import LEAST_GAP, Curve, Final, Rerun, Run
from bisaddle.report.sentences import certificate_document

# lanes of one compiled sweep: the grid of 19 and one more
WIDTH, QUICK_WIDTH = 20, 8
# steps between the records that are kept of a run that was not chosen
THIN = 100
# what seconds are: of the chosen runs, and of the others
ALONE = "of the run by itself, without compilation and measures"
SHARED = "of a step in the sweep over nu, shared among its lanes, while other sweeps ran"
TUNING = f"least mean over the seeds of the mean log10 gap (gaps below {LEAST_GAP:g} count as that) over the records"


def run(
    experiment: Experiment,
    *,
    quick: bool = False,
    seeds: Iterable[int] | None = None,
    nus: Mapping[str, Sequence[float]] | None = None,
    steps: int | None = None,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
    data_dir: Any = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """All runs of an experiment, in float64; the keys of a run are those of results.json.

    quick: fewer steps, seeds and values of nu, as the file says. seeds, steps, nus: instead of the file's, nus by the
    key of a method. methods, datasets: only these. data_dir: the folder of the data files.
    progress(done, total, text, gap): called often; if it raises KeyboardInterrupt, as Ctrl-C does, what there is comes
    back, runs that were cut with "partial": True.
    """
    experiment = chosen(experiment, quick=quick, seeds=seeds, steps=steps, methods=methods, datasets=datasets)
    grids = _grids(experiment, nus, quick)
    found: list[Run] = []
    with jax.enable_x64(True):
        for case in experiment.cases:
            crew = Crew(progress)
            found += _run_case(experiment, case, grids, quick, data_dir, crew)
            if crew.stop.asked:
                break
    return [one.to_dict() for one in found]


def chosen(
    experiment: Experiment,
    *,
    quick: bool = False,
    seeds: Iterable[int] | None = None,
    steps: int | None = None,
    every: int | None = None,
    methods: Sequence[str] | None = None,
    datasets: Sequence[str] | None = None,
) -> Experiment:
    """The experiment with these instead of what its file says."""
    small = experiment.quick if quick else {}
    steps = small.get("steps", experiment.steps) if steps is None else steps
    every = experiment.every if every is None else every
    if not checks.is_whole(steps, 1) or steps % every or steps > min(MOST_STEPS, MOST_RECORDS * every):
        raise ExperimentError(
            f"{experiment.name}: steps must be a multiple of {every} (the steps between two records) up to "
            f"{min(MOST_STEPS, MOST_RECORDS * every)}, given {steps!r}"
        )
    seeds = small.get("seeds", experiment.seeds) if seeds is None else checks.seeds("seeds", seeds)
    known = [spec.key for spec in experiment.methods]
    for key in methods or ():
        if key not in known:
            raise ExperimentError(f"{experiment.name} has no method {key!r}; it has {', '.join(known)}")
    kept = [spec for spec in experiment.methods if (spec.key in methods if methods else spec.quick or not quick)]
    cases = [case for case in experiment.cases if not datasets or case.dataset["name"] in datasets]
    if not cases:
        there = dict.fromkeys(case.dataset["name"] for case in experiment.cases)
        lacking = ", ".join(datasets or ())
        raise ExperimentError(f"{experiment.name} has the data sets {', '.join(there)}, not {lacking}")
    changes = {"steps": int(steps), "every": every, "seeds": seeds, "methods": tuple(kept), "cases": tuple(cases)}
    return replace(experiment, **changes)


def _grids(experiment: Experiment, nus: Mapping[str, Sequence[float]] | None, quick: bool) -> dict[str, tuple]:
    stride = experiment.quick.get("stride", 1) if quick else 1
    grids = {spec.key: spec.nu[stride // 2 :: stride] for spec in experiment.methods}
    for key, values in (nus or {}).items():
        if not grids.get(key):
            tuned = [name for name, grid in grids.items() if grid]
            raise ExperimentError(f"nu of {key}: {experiment.name} tunes nu of {', '.join(tuned)} only")
        grids[key] = checks.numbers(f"nu of {key}", list(values))
    return grids


def _run_case(experiment: Experiment, case: Case, grids, quick: bool, data_dir, crew: Crew) -> list[Run]:
    built = [build.instance(case, seed, data_dir) for seed in experiment.seeds]
    grids = {spec.key: _allowed(spec, built, grids[spec.key], experiment.steps) for spec in experiment.methods}
    size = (QUICK_WIDTH, 1) if quick else (WIDTH, 2)
    jobs = [job for one in built for job in jobs_of(experiment, one, grids, *size)]
    sweeps, alone = ([job for job in jobs if job.sweeps == yes] for yes in (True, False))
    warm_up = [WarmUp(built[0], experiment.gap)] if sweeps else []  # Adaptive compiles certify itself
    outcomes = [outcome for done in crew.work([*warm_up, *sweeps], alone) for outcome in done]
    found: list[Run] = []
    for spec in experiment.methods:
        mine = [outcome for outcome in outcomes if outcome.lane.spec is spec]
        if mine:
            found += _runs(experiment, case, spec, grids[spec.key], mine, quick, crew.stop.asked)
    return found


def _allowed(spec: MethodSpec, built: list[Instance], grid: tuple, steps: int) -> tuple:
    """The values of nu with gamma <= 1; one without step sizes of nu has the single value None."""
    if not grid:
        return (None,)
    kept = build.allowed(spec, built[0], grid, steps)
    if not kept:
        raise ExperimentError(f"method {spec.key}: gamma exceeds 1 for every nu in {list(grid)}; use smaller ones")
    return kept


def jobs_of(experiment: Experiment, built: Instance, grids: dict[str, tuple], width: int, effort: int = 2) -> list[Job]:
    """Lanes of one compiled program together: the class of the method, and for a series its length."""
    groups: dict[tuple, list[Lane]] = {}
    for spec in experiment.methods:
        group = (spec.method, "closed form" if build.in_closed_form(spec) else spec.neumann)
        groups.setdefault(group, []).extend(Lane(spec, nu) for nu in grids[spec.key])
    jobs = []
    for (method, _), lanes in groups.items():
        # full programs first, as few as there can be
        size = 1 if method == "Adaptive" else width
        for i in range(0, len(lanes), size):
            part = tuple(lanes[i : i + size])
            jobs.append(Job(built, part, experiment.steps, experiment.every, experiment.gap, size, effort))
    return jobs


def _runs(
    experiment: Experiment, case: Case, spec: MethodSpec, grid: tuple, mine: list[Outcome], quick: bool, cut: bool
) -> list[Run]:
    """The runs of one method, the chosen nu marked."""
    scores = {nu: [mean_log(o) for o in mine if o.lane.nu == nu] for nu in grid}
    means = {nu: float(np.mean(values)) for nu, values in scores.items() if values}
    best = min(means, key=lambda nu: means[nu])
    again: dict[int, tuple[float, Rerun]] = {}
    if spec.method != "Adaptive" and not cut:
        size = (experiment.steps, experiment.every, experiment.gap, 1 if quick else 2)
        again = {o.built.seed: made_again(o, *size) for o in mine if o.lane.nu == best}
    made = []
    for outcome in mine:
        built, tuned = outcome.built, outcome.lane.nu == best
        seconds, rerun = again.get(built.seed, (None, None))
        pace = outcome.pace if seconds is None else seconds / experiment.steps
        keep = slice(None) if tuned else _thinned(outcome.k, experiment.steps)
        made.append(
            Run(
                experiment=case.name,
                dataset=built.data.name,
                dataset_label=built.data.label,
                method=spec.key,
                label=spec.label,
                figure=experiment.figure,
                nu=outcome.lane.nu,
                seed=built.seed,
                steps=experiment.steps,
                tuned=tuned,
                partial=outcome.status == "INTERRUPTED",
                config=_config(experiment, case, outcome, pace, grid, quick, seconds is not None),
                curve=_curve(outcome, pace, keep, tuned),
                final=_final(outcome, rerun if tuned else None),
                certificate=_certificate(experiment, outcome) if tuned else None,
            )
        )
    return made


def mean_log(outcome: Outcome, measure: str = "gap") -> float:
    """Mean over the records of the log10 of a gap; infinite if one of them is not finite."""
    gaps = outcome.columns[measure]
    return float(np.mean(np.log10(np.maximum(gaps, LEAST_GAP)))) if np.all(np.isfinite(gaps)) else math.inf


def _curve(outcome: Outcome, pace: float | None, keep: slice | np.ndarray, tuned: bool) -> Curve:
    """Columns of a run that was not chosen, and seconds, have six digits; with 17 a number is itself."""
    seconds = outcome.k * pace if outcome.seconds is None else outcome.seconds
    columns = {"k": outcome.k, "seconds": seconds, "hvps": outcome.hvps} | outcome.columns
    made = {}
    for name, values in columns.items():
        digits = 6 if name == "seconds" or not tuned else 17
        plain = finite(values[keep].tolist())
        made[name] = [float(f"{value:.{digits}g}") if isinstance(value, float) else value for value in plain]
    return Curve(**made)


def _final(outcome: Outcome, rerun: Rerun | None) -> Final:
    built, gaps = outcome.built, outcome.columns["gap"]
    return Final(
        k=int(outcome.k[-1]),
        gap=finite(float(gaps[-1])),
        worst_value=finite(float(outcome.columns["worst_value"][-1])),
        corner=bool(outcome.columns["corner"][-1]),
        corner_sentence=_corner_sentence(outcome),
        point=built.application.shown(outcome.point, built.data),
        best_gap=finite(float(np.min(gaps, initial=np.inf, where=np.isfinite(gaps)))),
        mean_log10_gap=finite(mean_log(outcome)),
        status=outcome.status,
        alone=rerun,
    )


def _thinned(k: np.ndarray, steps: int) -> np.ndarray:
    """Every THIN steps, and the last; every record of a run with fewer than 10 THIN steps."""
    every = THIN if steps >= 10 * THIN else 1
    return np.unique(np.append(np.flatnonzero(k % every == 0), len(k) - 1))


def _certificate(experiment: Experiment, outcome: Outcome) -> dict[str, Any] | None:
    """What bs.certify says of the last point, by the gap of the file."""
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(outcome.point)):
        return None
    found = certify(outcome.built.problem, outcome.point, measure="lmo", **experiment.gap)
    return certificate_document(found, **experiment.gap)


def _corner_sentence(outcome: Outcome) -> str:
    corner, k = outcome.columns["corner"], outcome.k
    if not np.any(corner):
        return "No recorded point is a degenerate corner."
    first = int(k[np.argmax(corner)])
    if not corner[-1]:
        count = f"{int(np.sum(corner))} of {len(k)} records"
        return f"{count}, the first at step {first}, are at a degenerate corner; the last is not."
    words = outcome.built.application.corner_words(outcome.point, float(outcome.columns["gap"][-1]))
    return f"Ends at a degenerate corner, first met at step {first}: {words}"


def _config(
    experiment: Experiment, case: Case, outcome: Outcome, pace, grid: tuple, quick: bool, again: bool
) -> dict[str, Any]:
    spec, built = outcome.lane.spec, outcome.built
    made = {
        **case.problem,
        "start": built.application.start_words(built.start),
        "data": built.data.config,
        "class": spec.method,
        "step_sizes": build.step_sizes(spec, built, outcome.lane.nu, experiment.steps),
        "formulas": {name: str(value) for name, value in spec.steps.items()},
        "nu_grid": [nu for nu in grid if nu is not None],
        "tuning": TUNING,
        "gap": {**experiment.gap, "definition": "2.1 (LMO)"},
        "every": experiment.every,
        "constants": built.constants(),
        "products_per_step": int(outcome.hvps[-1]) / max(int(outcome.k[-1]), 1),
        "seconds_per_step": pace,
        "seconds_how": _seconds_how(spec, again),
        "quick": quick,
        "lmo_tie": built.application.lmo_tie,
        "precision": "float64",
        "versions": versions("bisaddle", "jax", "numpy", "python") | {"machine": machine()},
    }
    own = {"neumann": spec.neumann, "tol": spec.tol}
    return made | {name: value for name, value in own.items() if value is not None}


def _seconds_how(spec: MethodSpec, again: bool) -> str:
    if spec.method == "Adaptive":
        return ALONE
    return f"{ALONE}, shared among its steps" if again else SHARED
