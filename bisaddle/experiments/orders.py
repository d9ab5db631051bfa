"""How the order of the methods depends on what section 6 does not state."""

import itertools
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from bisaddle.experiments import build
from bisaddle.experiments.errors import ExperimentError
from bisaddle.experiments.jobs import Crew, Outcome, Progress
from bisaddle.experiments.runner import THIN, WIDTH, chosen, jobs_of, mean_log
from bisaddle.experiments.spec import Case, Experiment
from bisaddle.report.files import finite
from bisaddle.report.records import Trial

# the gaps in which a setting is judged: Definition 2.1 with sigma = 1, with the method's own, and Definition 2.2
MEASURES = {"gap": "sigma = 1", "gap_paper": "own sigma", "gap_projection": "Definition 2.2"}
RIVALS = ("opf", "fp")


def sensitivity(
    experiment: Experiment, *, steps: int | None = None, data_dir: Any = None, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """The order of OPF, FP and MORBiT for every combination of the file's table [sensitivity], on its first seed.

    Each is a dict with the keys of report.records.Trial; its setting is radius, ridge, ..., neumann of MORBiT, measure.
    Interrupted, the settings that are complete come back.
    """
    if not experiment.sensitivity:
        raise ExperimentError(f"{experiment.name} has no table [sensitivity], which names the values to vary")
    experiment = chosen(experiment, steps=steps, seeds=experiment.seeds[:1], methods=_compared(experiment))
    if not experiment.steps % THIN:  # the order does not need more records
        experiment = chosen(experiment, every=THIN)
    varied = {key: values for key, values in experiment.sensitivity.items() if key != "nu_caps"}
    settings = [dict(zip(varied, values, strict=True)) for values in itertools.product(*varied.values())]
    found: list[Trial] = []
    with jax.enable_x64(True):
        cases = [(setting, _case(experiment.cases[0], setting)) for setting in settings]
        built = [build.instance(case, experiment.seeds[0], data_dir) for _, case in cases]
        jobs = []
        for one in built:
            grids = {spec.key: build.allowed(spec, one, spec.nu, experiment.steps) for spec in experiment.methods}
            jobs += jobs_of(experiment, one, grids, WIDTH)
        done = [outcome for outcomes in Crew(progress).work(jobs) for outcome in outcomes]
        for (setting, case), one in zip(cases, built, strict=True):
            mine = [outcome for outcome in done if outcome.built is one and outcome.status != "INTERRUPTED"]
            if {o.lane.spec.key for o in mine} == {spec.key for spec in experiment.methods}:
                found += _trials(experiment, case, setting, mine)
    return [trial.to_dict() for trial in found]


def _compared(experiment: Experiment) -> list[str]:
    """OPF, FP and every MORBiT of the file."""
    keys = [spec.key for spec in experiment.methods if spec.key in RIVALS or spec.method == "MORBiT"]
    lacking = [key for key in RIVALS if key not in keys]
    if lacking or len(keys) == len(RIVALS):
        raise ExperimentError(f"{experiment.name}: sensitivity compares opf, fp and MORBiT; given {', '.join(keys)}")
    return keys


def _case(case: Case, setting: dict[str, Any]) -> Case:
    problem = {key: setting.get(key, value) for key, value in case.problem.items()}
    options = {key: value for key, value in setting.items() if key not in case.problem}
    return replace(case, dataset={**case.dataset, **options}, problem=problem)


def _trials(experiment: Experiment, case: Case, setting: dict[str, Any], mine: list[Outcome]) -> list[Trial]:
    made = []
    series = [spec for spec in experiment.methods if spec.method == "MORBiT"]
    caps = [*experiment.sensitivity.get("nu_caps", []), None]
    for spec, measure, cap in itertools.product(series, MEASURES, caps):
        keys = {"opf": "opf", "fp": "fp", "morbit": spec.key}
        tried = {name: _best(mine, key, measure, cap) for name, key in keys.items()}
        best = {name: outcome for name, outcome in tried.items() if outcome is not None}
        if len(best) < len(keys):
            continue
        means = {name: mean_log(outcome, measure) for name, outcome in best.items()}
        finals = {name: float(outcome.columns[measure][-1]) for name, outcome in best.items()}
        budget = int(best["opf"].hvps[-1])
        spent = {name: _at(outcome, measure, budget) for name, outcome in best.items()}
        made.append(
            Trial(
                experiment=case.name,
                dataset=case.dataset["name"],
                setting={**setting, "neumann": spec.neumann, "measure": MEASURES[measure]},
                cap=cap,
                steps=experiment.steps,
                seed=experiment.seeds[0],
                order=_ordered(means),
                order_final=_ordered(finals),
                order_hvps=_ordered(spent),
                gaps=finite(finals),
                gaps_hvps=finite(spent),
                mean_log10_gaps=finite(means),
                nus={name: outcome.lane.nu if np.isfinite(means[name]) else None for name, outcome in best.items()},
                corners=[name for name, outcome in best.items() if bool(outcome.columns["corner"][-1])],
                worst_values=finite({name: float(o.columns["worst_value"][-1]) for name, o in best.items()}),
            )
        )
    return made


def _best(mine: list[Outcome], key: str, measure: str, cap: float | None) -> Outcome | None:
    tried = [o for o in mine if o.lane.spec.key == key and (cap is None or (o.lane.nu or 0.0) <= cap)]
    return min(tried, key=lambda outcome: mean_log(outcome, measure), default=None)


def _at(outcome: Outcome, measure: str, budget: int) -> float:
    """The gap when no more than `budget` products have been taken."""
    return float(outcome.columns[measure][np.flatnonzero(outcome.hvps <= budget)[-1]])


def _ordered(scores: dict[str, float]) -> list[str]:
    return sorted(scores, key=lambda name: (not np.isfinite(scores[name]), scores[name]))
