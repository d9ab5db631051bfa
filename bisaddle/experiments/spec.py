"""An experiment as it is written down: a TOML file, read and checked key by key."""

import difflib
import math
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bisaddle.datasets import NAMES as DATASETS
from bisaddle.experiments import formula
from bisaddle.experiments.errors import ExperimentError
from bisaddle.experiments.formula import Formula

FILES = Path(__file__).parent / "files"
FIGURES = ("fig1", "fig2", "extra")
# method: the step sizes that it takes
METHODS = {
    "OneSidedProjectionFree": ("alpha", "eta", "gamma", "sigma", "mu"),
    "FullyProjected": ("alpha", "eta", "gamma", "tau", "sigma", "mu"),
    "MORBiT": ("alpha", "tau", "sigma"),
    "Adaptive": (),
}
EXACT = "exact"
MOST_TERMS = 2**15


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
    """One problem: data set options, problem options; name: as it appears in the results."""

    name: str
    dataset: dict[str, Any]
    problem: dict[str, Any]


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
    """The bundled experiments, those of the paper first."""
    found = sorted(path.stem for path in FILES.glob("*.toml"))
    order = {"synthetic": 2, "mtl": 1, "nlsy79": 0, "diabetes": 3}
    return tuple(sorted(found, key=lambda name: (not name.startswith("exp"), _place(name, order), name)))


def _place(name: str, order: dict[str, int]) -> tuple[int, str, int]:
    experiment, _, data = name.partition("_")
    return (data == "diabetes", experiment, order.get(data, 9))


def read(name_or_path: str | Path) -> Experiment:
    """A bundled experiment by its name, or a TOML file by its path; ExperimentError says what is wrong in it."""
    text = str(name_or_path)
    path = FILES / f"{text}.toml" if text in names() else Path(text).expanduser()
    if path.suffix != ".toml" and not path.is_file():
        near = difflib.get_close_matches(text, names(), 1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ExperimentError(
            f"no experiment is called {text!r}; {hint}There are {', '.join(names())}, or give the path of a TOML file"
        )
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ExperimentError(
            f"{path} cannot be read ({error.strerror or error}); a TOML file is needed, or one of {', '.join(names())}"
        ) from error
    except UnicodeDecodeError as error:
        raise ExperimentError(f"{path} is not a text file in UTF-8; a TOML file is needed") from error
    except tomllib.TOMLDecodeError as error:
        raise ExperimentError(f"{path} is not TOML: {error}") from error
    return from_dict(path.stem, content, str(path))


def from_dict(name: str, content: dict[str, Any], where: str = "the experiment") -> Experiment:
    """An Experiment from the content of a TOML file."""
    allowed = ("title", "figure", "steps", "every", "seeds", "dataset", "problem", "gap", "tuning", "methods")
    _only(where, content, (*allowed, "quick", "cases", "sensitivity"))
    steps = _whole(f"{where}: steps", content.get("steps", 10_000), 1)
    every = _whole(f"{where}: every", content.get("every", 10), 1)
    _divides(where, steps, every)
    figure = content.get("figure", "extra")
    if figure not in FIGURES:
        raise ExperimentError(f"{where}: figure must be one of {', '.join(FIGURES)}, given {figure!r}")
    grid = _grid(f"{where}: tuning", content.get("tuning", {}))
    specs = content.get("methods", [])
    if not isinstance(specs, list) or not specs:
        raise ExperimentError(f"{where}: methods must be a list of tables [[methods]], at least one, given {specs!r}")
    methods = tuple(_method(f"{where}: methods[{i}]", spec, grid) for i, spec in enumerate(specs))
    keys = [method.key for method in methods]
    if len(set(keys)) < len(keys):
        raise ExperimentError(f"{where}: each method needs a key of its own, given {', '.join(keys)}")
    gap = _table(where, content, "gap")
    _only(f"{where}: gap", gap, ("sigma", "tau"))
    gap = {key: _positive(f"{where}: gap.{key}", gap.get(key, 1.0)) for key in ("sigma", "tau")}
    return Experiment(
        name=name,
        title=_text(f"{where}: title", content.get("title", name)),
        figure=figure,
        cases=_cases(name, where, content),
        methods=methods,
        steps=steps,
        every=every,
        seeds=seeds(f"{where}: seeds", content.get("seeds", [0])),
        gap=gap,
        quick=_quick(f"{where}: quick", _table(where, content, "quick"), every),
        sensitivity=_sensitivity(f"{where}: sensitivity", _table(where, content, "sensitivity")),
    )


def seeds(where: str, given: Iterable) -> tuple[int, ...]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ExperimentError(f"{where} must be a list of whole numbers >= 0, given {given!r}")
    found = tuple(_whole(where, seed, 0) for seed in given)
    if not found or len(set(found)) < len(found):
        raise ExperimentError(f"{where} must be different whole numbers, at least one, given {list(found)}")
    return found


def positive_numbers(where: str, given: Any) -> tuple[float, ...]:
    if not isinstance(given, list | tuple | np.ndarray) or len(given) == 0:
        raise ExperimentError(f"{where} must be a list of numbers > 0, given {given!r}")
    return tuple(_positive(where, value) for value in given)


def _divides(where: str, steps: int, every: int) -> None:
    if steps % every:
        raise ExperimentError(f"{where}: steps must be a multiple of every, given {steps} and {every}")


def _cases(name: str, where: str, content: dict[str, Any]) -> tuple[Case, ...]:
    dataset, problem = _table(where, content, "dataset"), _table(where, content, "problem")
    given = content.get("cases", [{}])
    if not isinstance(given, list) or not given:
        raise ExperimentError(f"{where}: cases must be a list of tables [[cases]], given {given!r}")
    made = []
    for i, case in enumerate(given):
        place = where if "cases" not in content else f"{where}: cases[{i}]"
        if not isinstance(case, dict):
            raise ExperimentError(f"{place} must be a table, given {case!r}")
        _only(place, case, ("name", "dataset", "problem"))
        made.append(
            Case(
                _text(f"{place}: name", case.get("name", name)),
                _dataset(f"{place}: dataset", {**dataset, **_table(place, case, "dataset")}),
                _problem(f"{place}: problem", {**problem, **_table(place, case, "problem")}),
            )
        )
    return tuple(made)


def _dataset(where: str, table: dict[str, Any]) -> dict[str, Any]:
    if table.get("name") not in DATASETS:
        raise ExperimentError(f"{where}: name must be one of {', '.join(DATASETS)}, given {table.get('name')!r}")
    for key in ("seed", "directory"):
        if key in table:
            instead = "seeds at the top" if key == "seed" else "the option data_dir of run"
            raise ExperimentError(f"{where}: {key} does not belong here; use {instead}")
    return dict(table)


def _problem(where: str, table: dict[str, Any]) -> dict[str, Any]:
    _only(where, table, ("radius", "ridge", "divergence", "lam"))
    lam = table.get("lam", [0.0, 1.0])
    if (
        not isinstance(lam, list)
        or len(lam) != 2
        or not all(_is_number(v) for v in lam)
        or not 0 <= lam[0] <= lam[1] <= 1
    ):
        raise ExperimentError(f"{where}.lam must be an interval [lower, upper] within [0, 1], given {lam!r}")
    return {
        "radius": _positive(f"{where}.radius", table.get("radius", 5.0)),
        "ridge": _positive(f"{where}.ridge", table.get("ridge", 0.1)),
        "divergence": _number(f"{where}.divergence", table.get("divergence", 0.0), lambda v: v >= 0, ">= 0"),
        "lam": [float(lam[0]), float(lam[1])],
    }


def _method(where: str, table: Any, grid: tuple[float, ...]) -> MethodSpec:
    if not isinstance(table, dict):
        raise ExperimentError(f"{where} must be a table, given {table!r}")
    method = table.get("method")
    if method not in METHODS:
        raise ExperimentError(f"{where}.method must be one of {', '.join(METHODS)}, given {method!r}")
    extras = {"MORBiT": ("neumann",), "Adaptive": ("tol",)}.get(method, ())
    _only(where, table, ("key", "label", "method", "nu", "quick", *METHODS[method], *extras))
    steps = {name: table[name] for name in METHODS[method] if name in table}
    lacking = [name for name in METHODS[method] if name not in steps]
    if lacking:
        raise ExperimentError(f"{where}: {method} needs {', '.join(lacking)} too, given {', '.join(steps) or 'none'}")
    key = _text(f"{where}.key", table.get("key"))
    tuned = any([formula.uses(f"{where}.{name}", value, "nu") for name, value in steps.items()])
    if "nu" in table and not tuned:
        raise ExperimentError(f"{where}: no step size of {key} uses nu, which is given; leave nu out, or use it in one")
    nu = positive_numbers(f"{where}.nu", table["nu"]) if "nu" in table else grid
    if tuned and not nu:
        raise ExperimentError(f"{where}: {key} uses nu, but no values are given; add nu = [...] or a table [tuning]")
    quick = table.get("quick", True)
    if not isinstance(quick, bool):
        raise ExperimentError(f"{where}.quick must be true or false, given {quick!r}")
    return MethodSpec(
        key=key,
        label=_text(f"{where}.label", table.get("label", key)),
        method=method,
        steps=steps,
        nu=nu if tuned else (),
        neumann=_neumann(where, table) if method == "MORBiT" else None,
        tol=_positive(f"{where}.tol", table.get("tol", 1e-6)) if method == "Adaptive" else None,
        quick=quick,
    )


def _neumann(where: str, table: dict[str, Any]) -> int | str:
    given = table.get("neumann", 10)
    if given == EXACT:
        return EXACT
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < MOST_TERMS:
        raise ExperimentError(
            f"{where}.neumann must be a whole number from 0 to {MOST_TERMS - 1} (terms after the first) or "
            f'"exact", given {given!r}'
        )
    return given


def _grid(where: str, table: Any) -> tuple[float, ...]:
    if not isinstance(table, dict):
        raise ExperimentError(f"{where} must be a table, given {table!r}")
    _only(where, table, ("nu", "low", "high", "count"))
    if "nu" in table:
        return positive_numbers(f"{where}.nu", table["nu"])
    if not table:
        return ()
    low, high = _positive(f"{where}.low", table.get("low", 1e-3)), _positive(f"{where}.high", table.get("high", 1e3))
    count = _whole(f"{where}.count", table.get("count", 19), 1)
    if low > high:
        raise ExperimentError(f"{where}: low must not exceed high, given {low} and {high}")
    return tuple(float(nu) for nu in np.logspace(np.log10(low), np.log10(high), count))


def _quick(where: str, table: dict[str, Any], every: int) -> dict[str, Any]:
    _only(where, table, ("steps", "seeds", "stride"))
    made: dict[str, Any] = {}
    if "steps" in table:
        made["steps"] = _whole(f"{where}.steps", table["steps"], 1)
        _divides(where, made["steps"], every)
    if "seeds" in table:
        made["seeds"] = seeds(f"{where}.seeds", table["seeds"])
    if "stride" in table:
        made["stride"] = _whole(f"{where}.stride", table["stride"], 1)
    return made


def _sensitivity(where: str, table: dict[str, Any]) -> dict[str, Any]:
    """Lists of values of problem and data set options, whose product is run; nu_caps: upper limits of nu."""
    for key, values in table.items():
        if not isinstance(values, list) or not values:
            raise ExperimentError(f"{where}.{key} must be a list of values, given {values!r}")
    for key in ("seed", "directory", "name", "divergence", "lam"):
        if key in table:
            raise ExperimentError(f"{where}: {key} cannot be varied; radius, ridge and options of the data set can")
    made = dict(table)
    for key in ("radius", "ridge", "nu_caps"):
        if key in made:
            made[key] = list(positive_numbers(f"{where}.{key}", made[key]))
    return made


def _table(where: str, content: dict[str, Any], key: str) -> dict[str, Any]:
    table = content.get(key, {})
    if not isinstance(table, dict):
        raise ExperimentError(f"{where}: {key} must be a table [{key}], given {table!r}")
    return table


def _only(where: str, table: dict[str, Any], allowed: tuple[str, ...]) -> None:
    for key in table:
        if key not in allowed:
            near = difflib.get_close_matches(key, allowed, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            raise ExperimentError(f"{where}: unknown key {key!r}; {hint}It may have {', '.join(allowed)}")


def _text(where: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ExperimentError(f"{where} must be a text, given {value!r}")
    return value


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, int | float | np.number) and math.isfinite(value)


def _number(where: str, value: Any, allowed: Callable[[Any], bool], range_: str) -> float:
    if not _is_number(value) or not allowed(value):
        raise ExperimentError(f"{where} must be a finite number {range_}, given {value!r}")
    return float(value)


def _positive(where: str, value: Any) -> float:
    return _number(where, value, lambda v: v > 0, "> 0")


def _whole(where: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ExperimentError(f"{where} must be a whole number >= {least}, given {value!r}")
    return int(value)
