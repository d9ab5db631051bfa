"""An experiment as it is written down: a TOML file, read and checked key by key."""

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from bisaddle.datasets import NAMES as DATASETS
from bisaddle.experiments import checks, formula
from bisaddle.experiments.errors import ExperimentError
from bisaddle.experiments.formula import Formula
from bisaddle.experiments.multitask import Multitask
from bisaddle.report.files import parsed_toml
from bisaddle.report.schema import shortened
from bisaddle.report.style import FIGURES
from bisaddle.spelling import did_you_mean

FILES = Path(__file__).parent / "files"
APPLICATIONS = {"multitask": Multitask()}
# method: the step sizes that it takes
METHODS = {
    "OneSidedProjectionFree": ("alpha", "eta", "gamma", "sigma", "mu"),
    "FullyProjected": ("alpha", "eta", "gamma", "tau", "sigma", "mu"),
    "MORBiT": ("alpha", "tau", "sigma"),
    "Adaptive": (),
}
EXACT = "exact"
MOST_TERMS = 2**15
# a counter of steps has 32 bits; every record and every nu takes memory
MOST_STEPS, MOST_RECORDS, MOST_VALUES = 2**31 - 1, 10**6, 1000


@dataclass(frozen=True)
class MethodSpec:
    """One curve: a method, its step sizes as formulas, and what is tuned.

    neumann: of MORBiT, the terms after the first, or "exact". tol: of Adaptive. nu: the grid, empty without one.
    """

    key: str
    label: str
    method: str
    steps: dict[str, Formula]
    nu: tuple[float, ...] = ()
    neumann: int | str | None = None
    tol: float | None = None
    quick: bool = True


@dataclass(frozen=True)
class Case:
    """One problem: data set options, problem options, whose problem it is; name: as it appears in the results."""

    name: str
    dataset: dict[str, Any]
    problem: dict[str, Any]
    application: str = "multitask"


@dataclass(frozen=True)
class Experiment:
    """What a TOML file says. dataset, problem: of the first case; most experiments have one."""

    name: str
    title: str
    figure: str
    cases: tuple[Case, ...]
    methods: tuple[MethodSpec, ...]
    steps: int
    every: int
    seeds: tuple[int, ...]
    gap: dict[str, float]
    quick: dict[str, Any] = field(default_factory=dict)
    sensitivity: dict[str, Any] = field(default_factory=dict)

    @property
    def dataset(self) -> dict[str, Any]:
        return self.cases[0].dataset

    @property
    def problem(self) -> dict[str, Any]:
        return self.cases[0].problem


def names() -> tuple[str, ...]:
    """The bundled experiments, those of the paper first, and of these the ones on the paper's data sets."""
    return tuple(sorted(_bundled(), key=lambda name: (not name.startswith("exp"), name.endswith("diabetes"))))


@cache
def _bundled() -> dict[str, str]:
    """name: where `read` finds it. A file with tables [each.NAME] holds several experiments."""
    found = {}
    for path in sorted(FILES.glob("*.toml")):
        each = parsed_toml(path.read_bytes()).get("each", {})
        found |= {f"{path.stem}_{key}": f"{path}:{key}" for key in each} or {path.stem: str(path)}
    return found


def read(name_or_path: str | Path) -> Experiment:
    """A bundled experiment by its name, or a TOML file by its path; ExperimentError says what is wrong in it.

    A file may describe several experiments: each table [each.NAME] is put over the others, and "file.toml:NAME" is
    the experiment that this makes, called file_NAME.
    """
    given = str(name_or_path)
    path, one = _place(_bundled().get(given, given))
    if path.suffix != ".toml" and not path.is_file():
        raise ExperimentError(
            f"no experiment is called {given!r}; "
            + did_you_mean(given, names(), f"there are {', '.join(names())}, or give the path of a TOML file")
        )
    found = checks.content_of(path, f"a TOML file is needed, or one of {', '.join(names())}")
    try:
        content = parsed_toml(found)
    except ValueError as error:
        raise ExperimentError(f"{path} is not TOML: {error}") from error
    each = checks.table(f"{path}: each", content.pop("each", {}), " of tables [each.NAME]")
    if one is None and not each:
        return from_dict(path.stem, content, str(path))
    if one not in each:
        ways = ", ".join(f"{path}:{key}" for key in each) or f"one experiment, {path}"
        raise ExperimentError(f"{given} is no single experiment; there is {ways}")
    more = checks.table(f"{path}: each.{one}", each[one])
    return from_dict(f"{path.stem}_{one}", _over(content, more), str(path))


def _place(given: str) -> tuple[Path, str | None]:
    """The file, and the name after a colon if there is one."""
    file, _, one = given.rpartition(":")
    return (Path(file).expanduser(), one) if file.endswith(".toml") else (Path(given).expanduser(), None)


def _over(content: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Tables joined key by key, other values replaced."""
    both = {key: _over(content[key], more[key]) for key in more if isinstance(content.get(key), dict)}
    return content | more | both


def from_dict(name: str, content: dict[str, Any], where: str = "the experiment") -> Experiment:
    """An Experiment from the content of a TOML file."""
    allowed = ("title", "figure", "steps", "every", "seeds", "dataset", "problem", "gap", "tuning", "methods")
    checks.only(where, content, (*allowed, "quick", "cases", "sensitivity"))
    steps = checks.whole(f"{where}: steps", content.get("steps", 10_000), 1, MOST_STEPS)
    every = checks.whole(f"{where}: every", content.get("every", 10), 1)
    _divides(where, steps, every)
    grid = _grid(f"{where}: tuning", checks.table(f"{where}: tuning", content.get("tuning", {})))
    specs = _list(where, content, "methods", [])
    methods = tuple(_method(f"{where}: methods[{i}]", spec, grid) for i, spec in enumerate(specs))
    keys = [method.key for method in methods]
    if len(set(keys)) < len(keys):
        raise ExperimentError(f"{where}: each method needs a key of its own, given {', '.join(keys)}")
    gap = _table(where, content, "gap")
    checks.only(f"{where}: gap", gap, ("sigma", "tau"))
    cases = _cases(name, where, content)
    return Experiment(
        name=name,
        title=checks.text(f"{where}: title", content.get("title", name)),
        figure=checks.one_of(f"{where}: figure", content.get("figure", "extra"), (*FIGURES, "extra")),
        cases=cases,
        methods=methods,
        steps=steps,
        every=every,
        seeds=checks.seeds(f"{where}: seeds", content.get("seeds", [0])),
        gap={key: checks.number(f"{where}: gap.{key}", gap.get(key, 1.0)) for key in ("sigma", "tau")},
        quick=_quick(f"{where}: quick", _table(where, content, "quick"), every),
        sensitivity=_sensitivity(f"{where}: sensitivity", _table(where, content, "sensitivity"), cases[0]),
    )


def _divides(where: str, steps: int, every: int) -> None:
    if steps % every:
        raise ExperimentError(f"{where}: steps must be a multiple of every, given {steps} and {every}")
    if steps // every > MOST_RECORDS:
        raise ExperimentError(
            f"{where}: steps / every, the records of a run, must be at most {MOST_RECORDS}, given {steps} and {every}"
        )


def _cases(name: str, where: str, content: dict[str, Any]) -> tuple[Case, ...]:
    dataset, problem = _table(where, content, "dataset"), _table(where, content, "problem")
    made = []
    for i, given in enumerate(_list(where, content, "cases", [{}])):
        place = where if "cases" not in content else f"{where}: cases[{i}]"
        case = checks.table(place, given)
        checks.only(place, case, ("name", "dataset", "problem"))
        options = {**problem, **_table(place, case, "problem")}
        application = checks.one_of(
            f"{place}: problem.application", options.pop("application", "multitask"), APPLICATIONS
        )
        made.append(
            Case(
                checks.text(f"{place}: name", case.get("name", name)),
                _dataset(f"{place}: dataset", {**dataset, **_table(place, case, "dataset")}),
                APPLICATIONS[application].options(f"{place}: problem", options),
                application,
            )
        )
    return tuple(made)


def _dataset(where: str, table: dict[str, Any]) -> dict[str, Any]:
    checks.one_of(f"{where}: name", table.get("name"), DATASETS)
    for key, instead in (("seed", "seeds at the top"), ("directory", "the option data_dir of run")):
        if key in table:
            raise ExperimentError(f"{where}: {key} does not belong here; use {instead}")
    return table


def _method(where: str, given: Any, grid: tuple[float, ...]) -> MethodSpec:
    table = checks.table(where, given)
    method = checks.one_of(f"{where}.method", table.get("method"), METHODS)
    extras = {"MORBiT": ("neumann",), "Adaptive": ("tol",)}.get(method, ())
    checks.only(where, table, ("key", "label", "method", "nu", "quick", *METHODS[method], *extras))
    steps = {name: table[name] for name in METHODS[method] if name in table}
    lacking = [name for name in METHODS[method] if name not in steps]
    if lacking:
        raise ExperimentError(f"{where}: {method} needs {', '.join(lacking)} too, given {', '.join(steps) or 'none'}")
    key = checks.text(f"{where}.key", table.get("key"))
    tuned = any([formula.uses(f"{where}.{name}", value, "nu") for name, value in steps.items()])
    if "nu" in table and not tuned:
        raise ExperimentError(f"{where}: no step size of {key} uses nu, which is given; leave nu out, or use it in one")
    nu = checks.numbers(f"{where}.nu", table["nu"]) if "nu" in table else grid
    if tuned and not nu:
        raise ExperimentError(f"{where}: {key} uses nu, but no values are given; add nu = [...] or a table [tuning]")
    quick = table.get("quick", True)
    if not isinstance(quick, bool):
        raise ExperimentError(f"{where}.quick must be true or false, given {shortened(quick)}")
    return MethodSpec(
        key=key,
        label=checks.text(f"{where}.label", table.get("label", key)),
        method=method,
        steps=steps,
        nu=nu if tuned else (),
        neumann=_neumann(where, table) if method == "MORBiT" else None,
        tol=checks.number(f"{where}.tol", table.get("tol", 1e-6)) if method == "Adaptive" else None,
        quick=quick,
    )


def _neumann(where: str, table: dict[str, Any]) -> int | str:
    given = table.get("neumann", 10)
    if given != EXACT and not (checks.is_whole(given, 0) and given < MOST_TERMS):
        raise ExperimentError(
            f"{where}.neumann must be a whole number from 0 to {MOST_TERMS - 1} (terms after the first) or "
            f'"exact", given {shortened(given)}'
        )
    return given


def _grid(where: str, table: dict[str, Any]) -> tuple[float, ...]:
    checks.only(where, table, ("nu", "low", "high", "count"))
    if "nu" in table:
        return checks.numbers(f"{where}.nu", table["nu"])
    if not table:
        return ()
    low, high = (checks.number(f"{where}.{key}", table.get(key, end)) for key, end in (("low", 1e-3), ("high", 1e3)))
    count = checks.whole(f"{where}.count", table.get("count", 19), 1, MOST_VALUES)
    if low > high:
        raise ExperimentError(f"{where}: low must not exceed high, given {low} and {high}")
    return tuple(float(nu) for nu in np.logspace(np.log10(low), np.log10(high), count))


def _quick(where: str, table: dict[str, Any], every: int) -> dict[str, Any]:
    checks.only(where, table, ("steps", "seeds", "stride"))
    made: dict[str, Any] = {
        key: checks.whole(f"{where}.{key}", table[key], 1) for key in ("steps", "stride") if key in table
    }
    if "steps" in made:
        _divides(where, made["steps"], every)
    if "seeds" in table:
        made["seeds"] = checks.seeds(f"{where}.seeds", table["seeds"])
    return made


def _sensitivity(where: str, table: dict[str, Any], case: Case) -> dict[str, Any]:
    """Lists of values of problem and data set options, whose product is run; nu_caps: upper limits of nu."""
    varied = APPLICATIONS[case.application].varied
    for key, values in table.items():
        if not isinstance(values, list) or not values:
            raise ExperimentError(f"{where}.{key} must be a list of values, given {shortened(values)}")
        if key in ("seed", "directory", "name", *case.problem) and key not in varied:
            can = ", ".join(varied)
            raise ExperimentError(f"{where}: {key} cannot be varied; {can} and options of the data set can")
    return {
        key: list(checks.numbers(f"{where}.{key}", values)) if key in (*varied, "nu_caps") else values
        for key, values in table.items()
    }


def _table(where: str, content: dict[str, Any], key: str) -> dict[str, Any]:
    return checks.table(f"{where}: {key}", content.get(key, {}), f" [{key}]")


def _list(where: str, content: dict[str, Any], key: str, default: list) -> list[Any]:
    given = content.get(key, default)
    if not isinstance(given, list) or not given:
        least = ", at least one" if key == "methods" else ""
        raise ExperimentError(f"{where}: {key} must be a list of tables [[{key}]]{least}, given {shortened(given)}")
    return given
