"""What results.json and sensitivity.json hold, as records: names where the files have keys."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Literal, TypedDict, get_type_hints

from bisaddle.report.schema import check

# a gap of exactly 0 has no logarithm
LEAST_GAP = 1e-16
Number = float | int | None  # None: not finite
Numbers = list[Number]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A column of numbers each, a place a record. None: a column that the file does not have."""

    k: list[int]
    seconds: Numbers
    hvps: list[int]
    x_gap: Numbers
    y_gap: Numbers
    gap: Numbers
    x_gap_projection: Numbers | None = None
    gap_projection: Numbers | None = None
    gap_paper: Numbers | None = None
    gap_projection_paper: Numbers | None = None
    worst_value: Numbers
    corner: list[bool]

    @classmethod
    def from_dict(cls, given: Any) -> "Curve":
        columns = _known(cls, given, "curve")
        lacking = [name for name in NEEDED if name not in columns]
        if lacking:
            raise ValueError(f"no complete curve: it has no {', '.join(lacking)}")
        lengths = {name: len(column) for name, column in columns.items() if column is not None}
        other = next((name for name, length in lengths.items() if length != lengths["k"]), None)
        if other is not None:
            raise ValueError(
                f"curve.{other} must be as long as curve.k, given {lengths[other]} and {lengths['k']} entries"
            )
        if not columns["k"]:
            raise ValueError("curve.k must have at least one entry, given none: the curve is empty")
        return cls(**columns)

    def columns(self) -> dict[str, list]:
        return {name: column for name, column in vars(self).items() if column is not None}


# the columns of a point (k, seconds and hvps are of the run), and those that no file may lack
MEASURES = tuple(part.name for part in fields(Curve))[3:]
NEEDED = tuple(part.name for part in fields(Curve) if part.default is MISSING)


class CertificateNumbers(TypedDict, total=False):
    """A certificate as it is written to files, report.sentences; what it has beyond is not looked at."""

    gap: Number
    x_gap: Number
    y_gap: Number
    error_bound: Number
    value: Number
    worst_value: Number
    lower_error: Number
    violation: Number
    measure: Literal["projection", "lmo", "mixed"]
    error_is_bound: bool
    sigma: float
    tau: float


@dataclass(frozen=True)
class Rerun:
    """The run made again by itself: its gap at K, and the step from which rounding has parted the two, or None."""

    gap: Number
    parted: int | None


@dataclass(frozen=True, kw_only=True)
class Final:
    """The last record. point: what the application shows of the last point, a list of numbers each."""

    k: int
    gap: Number
    worst_value: Number
    corner: bool
    corner_sentence: str = ""
    point: dict[str, Any] = field(default_factory=dict)
    best_gap: Number
    mean_log10_gap: Number
    status: str = ""
    alone: Rerun | None = None

    @classmethod
    def from_dict(cls, given: Any, curve: Curve) -> "Final":
        """What is not given is taken from the curve."""
        gaps = [gap for gap in curve.gap if gap is not None]
        corner = bool(curve.corner[-1]) if curve.corner else False
        made = {
            "k": curve.k[-1],
            "gap": curve.gap[-1],
            "best_gap": min(gaps, default=None),
            "mean_log10_gap": sum(math.log10(max(gap, LEAST_GAP)) for gap in gaps) / len(gaps) if gaps else None,
            "worst_value": curve.worst_value[-1],
            "corner": corner,
            "corner_sentence": "The last record is at a degenerate corner." if corner else "",
        }
        known = _known(cls, given, "final")
        known.pop("point", None)  # in the file its parts stand beside the numbers
        if known.get("alone") is not None:
            known["alone"] = Rerun(**_known(Rerun, known["alone"], "final.alone"))
        return cls(**made | known, point={key: value for key, value in given.items() if key not in known})

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in vars(self).items():
            made |= value if name == "point" else {name: value}
        return made | {"alone": None if self.alone is None else vars(self.alone)}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One method with one nu and one seed. tuned: with the chosen nu. config: all that was chosen, as it is written."""

    experiment: str
    dataset: str
    dataset_label: str
    method: str
    label: str
    figure: str = "extra"
    nu: Number
    seed: int
    steps: int
    tuned: bool = True
    partial: bool = False
    config: dict[str, Any]
    curve: Curve
    final: Final
    certificate: dict[str, Any] | None = None

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Run":
        """Only experiment, dataset, method, nu, seed, config and curve are needed; ValueError names what is wrong."""
        curve = Curve.from_dict(given["curve"])
        known = _known(cls, given)
        check("certificate", known.get("certificate"), CertificateNumbers | None)
        made = {"dataset_label": given["dataset"], "label": given["method"], "steps": curve.k[-1]}
        parts = {"curve": curve, "final": Final.from_dict(given.get("final", {}), curve)}
        return cls(**made | known | parts)

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"curve": self.curve.columns(), "final": self.final.to_dict()}


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One setting of what section 6 leaves open, and the order of the methods under it; numbers by method.

    cap: of nu, or None. order: by the mean log10 gap; order_final: by the gap at K; order_hvps: by the gap after as
    many products as OPF takes in K steps. nus: None of a method that is finite for no nu. corners: who ends in one.
    """

    experiment: str = ""
    dataset: str = ""
    setting: dict[str, Any]
    cap: Number
    steps: int | None = None
    seed: int | None = None
    order: list[str]
    order_final: list[str] = field(default_factory=list)
    order_hvps: list[str] = field(default_factory=list)
    gaps: dict[str, Number]
    gaps_hvps: dict[str, Number] = field(default_factory=dict)
    mean_log10_gaps: dict[str, Number] = field(default_factory=dict)
    nus: dict[str, Number] = field(default_factory=dict)
    corners: list[str] = field(default_factory=list)
    worst_values: dict[str, Number] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Trial":
        return cls(**_known(cls, given))

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def runs_of(given: Iterable[Mapping[str, Any]]) -> list[Run]:
    return [Run.from_dict(run) for run in given]


def _known(cls: Any, given: Any, where: str = "") -> dict[str, Any]:
    """What a record has a place for, each of its type; parts that are records themselves are tables here."""
    check(where, given, dict)
    hints = get_type_hints(cls)
    known = {part.name: given[part.name] for part in fields(cls) if part.name in given}
    for name, value in known.items():
        check(f"{where}.{name}".lstrip("."), value, hints[name])
    return known
