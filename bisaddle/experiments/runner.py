"""run(experiment): every method, nu and seed, measured; nu chosen; a list of plain dicts."""

import math
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from bisaddle.certificate import certify
from bisaddle.experiments import build
from bisaddle.experiments.build import Instance
from bisaddle.experiments.errors import ExperimentError
from bisaddle.experiments.jobs import Alone, Crew, Job, Lane, Outcome, Progress, WarmUp
from bisaddle.experiments.spec import EXACT, Case, Experiment, MethodSpec, positive_numbers
from bisaddle.experiments.spec import seeds as checked_seeds

# lanes of one compiled sweep: the grid of 19 and one more
WIDTH, QUICK_WIDTH = 20, 8
# records of the runs that were not chosen
THIN = 100
# a gap up to this is one of a stationary point, in the words on corners
STATIONARY = 1e-6
# a gap of exactly 0 has no logarithm
LEAST_GAP = 1e-16
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
    found: list[dict[str, Any]] = []
    with jax.enable_x64(True):
        for case in experiment.cases:
            crew = Crew(progress)
            found += _run_case(experiment, case, grids, quick, data_dir, crew)
            if crew.interrupted:
                break
    return found


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
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1 or steps % every:
        raise ExperimentError(
            f"{experiment.name}: steps must be a multiple of {every} (the steps between two records), given {steps!r}"
        )
    seeds = small.get("seeds", experiment.seeds) if seeds is None else checked_seeds("seeds", seeds)
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
        grids[key] = positive_numbers(f"nu of {key}", list(values))
    return grids


def _run_case(experiment: Experiment, case: Case, grids, quick: bool, data_dir, crew: Crew) -> list[dict[str, Any]]:
    built = [build.instance(case, seed, data_dir) for seed in experiment.seeds]
    grids = {spec.key: _allowed(spec, built, grids[spec.key], experiment.steps) for spec in experiment.methods}
    width = QUICK_WIDTH if quick else WIDTH
    effort = 1 if quick else 2
    jobs = [job for one in built for job in jobs_of(experiment, one, grids, width, effort)]
    if any(spec.method != "Adaptive" for spec in experiment.methods):  # which compiles certify itself
        jobs = [WarmUp(built[0], experiment.gap), *jobs]
    outcomes = [outcome for done in crew.work(jobs) for outcome in done]
    found: list[dict[str, Any]] = []
    for spec in experiment.methods:
        mine = [outcome for outcome in outcomes if outcome.lane.spec is spec]
        if mine:
            found += _runs(experiment, case, spec, grids[spec.key], mine, quick, crew.interrupted)
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
        long = spec.neumann == EXACT or (isinstance(spec.neumann, int) and spec.neumann > build.CLOSED_FORM)
        group = (spec.method, "closed form" if long else spec.neumann)
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
) -> list[dict[str, Any]]:
    """The runs of one method, the chosen nu marked."""
    scores = {nu: [_mean_log(o) for o in mine if o.lane.nu == nu] for nu in grid}
    means = {nu: float(np.mean(values)) for nu, values in scores.items() if values}
    best = min(means, key=lambda nu: means[nu])
    alone: dict[int, Alone] = {}
    if spec.method != "Adaptive" and not (quick or cut):
        size = (experiment.steps, experiment.every, experiment.gap)
        alone = {o.built.seed: Alone.of(o, *size) for o in mine if o.lane.nu == best}
    return [
        _run(experiment, case, outcome, outcome.lane.nu == best, alone.get(outcome.built.seed), grid, quick)
        for outcome in mine
    ]


def _mean_log(outcome: Outcome) -> float:
    gaps = outcome.columns["gap"]
    return float(np.mean(np.log10(np.maximum(gaps, LEAST_GAP)))) if np.all(np.isfinite(gaps)) else math.inf


def _run(
    experiment: Experiment, case: Case, outcome: Outcome, tuned: bool, alone: Alone | None, grid: tuple, quick: bool
) -> dict[str, Any]:
    spec, built, columns = outcome.lane.spec, outcome.built, outcome.columns
    keep = slice(None) if tuned else _thinned(outcome.k, experiment.steps)
    pace = outcome.pace if alone is None else alone.seconds / experiment.steps
    seconds = outcome.k * pace if outcome.seconds is None else outcome.seconds
    curve: dict[str, list] = {"k": outcome.k[keep].tolist(), "seconds": _plain(seconds[keep], 6)}
    curve["hvps"] = outcome.hvps[keep].tolist()
    for name, values in columns.items():
        curve[name] = values[keep].tolist() if values.dtype == bool else _plain(values[keep], 17 if tuned else 6)
    gaps = columns["gap"]
    mean_log = _mean_log(outcome)
    found = {
        "experiment": case.name,
        "dataset": built.data.name,
        "dataset_label": built.data.label,
        "method": spec.key,
        "label": spec.label,
        "figure": experiment.figure,
        "nu": outcome.lane.nu,
        "seed": built.seed,
        "steps": experiment.steps,
        "tuned": tuned,
        "partial": outcome.status == "INTERRUPTED",
        "config": _config(experiment, case, outcome, pace, grid, quick),
        "curve": curve,
        "final": {
            "k": int(outcome.k[-1]),
            "gap": _one(gaps[-1]),
            "worst_value": _one(columns["worst_value"][-1]),
            "corner": bool(columns["corner"][-1]),
            "corner_sentence": _corner_sentence(outcome),
            "lam": _plain(np.asarray(outcome.point.x["lam"])),
            "y": _plain(np.asarray(outcome.point.y)),
            "x": _plain(np.asarray(outcome.point.x["x"])[: len(built.data.features)]),
            "best_gap": _one(np.min(gaps, initial=np.inf, where=np.isfinite(gaps))),
            "mean_log10_gap": _one(mean_log),
            "status": outcome.status,
            # the same run by itself: where rounding has parted the two, and its gap at K
            "alone": None if alone is None or not tuned else {"gap": _one(alone.gap), "parted": alone.parted},
        },
        "certificate": _certificate(experiment, outcome) if tuned else None,
    }
    return found


def _thinned(k: np.ndarray, steps: int) -> np.ndarray:
    """Every 100 steps, or a hundredth of a short run, and the last."""
    every = max(THIN if steps >= 10 * THIN else 1, 1)
    return np.unique(np.append(np.flatnonzero(k % every == 0), len(k) - 1))


def _certificate(experiment: Experiment, outcome: Outcome) -> dict[str, Any] | None:
    """What bs.certify says of the last point, by the gap of the file."""
    if not all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(outcome.point)):
        return None
    found = certify(outcome.built.problem, outcome.point, measure="lmo", **experiment.gap)
    numbers = ("x_gap", "y_gap", "gap", "value", "worst_value", "lower_error", "error_bound", "violation")
    made: dict[str, Any] = {name: _one(float(getattr(found, name))) for name in numbers}
    return {**made, "measure": found.measure, **experiment.gap, "error_is_bound": found.error_is_bound}


def _corner_sentence(outcome: Outcome) -> str:
    corner, k = outcome.columns["corner"], outcome.k
    if not np.any(corner):
        return "No recorded point is a degenerate corner."
    first = int(k[np.argmax(corner)])
    if not corner[-1]:
        count = f"{int(np.sum(corner))} of {len(k)} records"
        return f"{count}, the first at step {first}, are at a degenerate corner; the last is not."
    j, gap = int(np.argmax(np.asarray(outcome.point.y))), float(outcome.columns["gap"][-1])
    lam = round(float(np.asarray(outcome.point.x["lam"])[j]))
    what = f"The gap of {gap:.1e} says nothing of x there: a corner was reached, not a common fit."
    if gap > STATIONARY:
        what = f"It is not stationary (gap {gap:.1e}): lambda or y would still move."
    return (
        f"Ends at a degenerate corner, first met at step {first}: all weight on task {j + 1}, lambda_{j + 1} = {lam}, "
        f"where the gradient in x is 0 whatever x is. {what}"
    )


def _config(experiment: Experiment, case: Case, outcome: Outcome, pace, grid: tuple, quick: bool) -> dict[str, Any]:
    spec, built = outcome.lane.spec, outcome.built
    constants = built.problem.constants
    made = {
        **case.problem,
        "start": f"x = 0, lambda = {float(built.start.x['lam'][0]):g}, theta = w = 0, y = 1/T",
        "data": built.data.config,
        "class": spec.method,
        "step_sizes": build.step_sizes(spec, built, outcome.lane.nu, experiment.steps),
        "formulas": {name: str(value) for name, value in spec.steps.items()},
        "nu_grid": [nu for nu in grid if nu is not None],
        "tuning": TUNING,
        "gap": {**experiment.gap, "definition": "2.1 (LMO)"},
        "every": experiment.every,
        "constants": {name: float(np.asarray(getattr(constants, name))) for name in ("mu_g", "L_g", "L_yy")},
        "products_per_step": int(outcome.hvps[-1]) / max(int(outcome.k[-1]), 1),
        "seconds_per_step": pace,
        "seconds_how": _seconds_how(spec, quick),
        "quick": quick,
        "lmo_tie": "a component 0 of the direction goes to the upper bound of lambda; the first largest entry for x",
        "precision": "float64",
        "versions": versions(),
    }
    if spec.neumann is not None:
        made["neumann"] = spec.neumann
    if spec.tol is not None:
        made["tol"] = spec.tol
    return made


def _seconds_how(spec: MethodSpec, quick: bool) -> str:
    if spec.method == "Adaptive":
        return "of this run, without compilation and measures"
    if quick:
        return "of a step in the sweep over nu, shared among its lanes, while other sweeps ran"
    return "of the chosen run by itself as published, without compilation and measures, shared among its steps"


def versions() -> dict[str, str]:
    """What computed the numbers."""
    found = {name: str(getattr(sys.modules[name], "__version__", "")) for name in ("bisaddle", "jax", "numpy")}
    return {**found, "python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}


def _plain(values: np.ndarray, digits: int = 17) -> list[float | None]:
    if digits < 17:
        return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values.tolist()]
    return [v if math.isfinite(v) else None for v in values.tolist()]


def _one(value: Any) -> float | None:
    return float(value) if math.isfinite(value) else None
