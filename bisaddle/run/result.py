"""Result, Trace, Status: what solve gives back."""

from enum import Enum
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from bisaddle.certificate import Certificate
from bisaddle.methods.base import Counts, Method
from bisaddle.problem import Point


class Status(Enum):
    """How a run ended; `.advice` says what it means and what to do."""

    CERTIFIED = "the gap, error bound included, is at most tol."
    MAX_STEPS = "max_steps was reached before the gap met tol; raise it, change the step sizes, or accept the gap."
    MAX_SECONDS = "max_seconds was reached before the gap met tol; raise it, or go on from result.last."
    NONFINITE = "NaN or infinity appeared; lower the step sizes (alpha, eta first) or check f and g; last is finite."
    DIVERGED = "theta or w grew without bound; use alpha and eta of at most 2 / (mu_g + L_g); last is before it."
    INTERRUPTED = "stopped by Ctrl-C or by the callback; go on from result.last."

    @property
    def advice(self) -> str:
        return self.value

    def __str__(self) -> str:
        return self.name


class Record(NamedTuple):
    """One look at the run, as the callback gets it."""

    k: int
    seconds: float
    point: Point
    certificate: Certificate
    counts: Counts


class Estimate(NamedTuple):
    """What a method that is driven from the host says of itself after a step."""

    k: int
    seconds: float
    x_gap: float
    y_gap: float
    value: float
    counts: Counts

    @property
    def gap(self) -> float:
        return self.x_gap + self.y_gap


class Trace(eqx.Module):
    """What was recorded, a NumPy array a column. `seconds` is the method's own time: no certificates, no compilation.

    estimated: True in the rows between the records, where a method that is driven from the host tells its own gaps and
    value: that certifies nothing, and the other columns of a certificate are NaN there. `certified`: the other rows.
    gradients, hvps, cross_products, projections and lmos count the method's oracle calls up to step k.
    """

    k: np.ndarray
    seconds: np.ndarray
    x_gap: np.ndarray
    y_gap: np.ndarray
    gap: np.ndarray
    error_bound: np.ndarray
    value: np.ndarray
    worst_value: np.ndarray
    lower_error: np.ndarray
    violation: np.ndarray
    gradients: np.ndarray
    hvps: np.ndarray
    cross_products: np.ndarray
    projections: np.ndarray
    lmos: np.ndarray
    estimated: np.ndarray

    def __len__(self) -> int:
        return len(self.k)

    @property
    def certified(self) -> "Trace":
        """The rows that come from certificates."""
        return Trace(**{name: column[~self.estimated] for name, column in self.to_dict().items()})

    def to_dict(self) -> dict[str, np.ndarray]:
        return dict(vars(self))

    def to_pandas(self) -> Any:
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Trace.to_pandas needs pandas; install it, or use Trace.to_dict()") from error
        return pandas.DataFrame(self.to_dict())


CERTIFICATE_COLUMNS = ("x_gap", "y_gap", "gap", "error_bound", "value", "worst_value", "lower_error", "violation")


def trace_of(records: list[Record], estimates: list[Estimate]) -> Trace:
    recorded = {record.k for record in records}
    rows: list[Record | Estimate] = [*records, *(row for row in estimates if row.k not in recorded)]
    rows.sort(key=lambda row: row.k)
    columns: dict[str, np.ndarray] = {
        "k": np.array([row.k for row in rows]),
        "seconds": np.array([row.seconds for row in rows]),
        "estimated": np.array([isinstance(row, Estimate) for row in rows]),
    }
    for name in CERTIFICATE_COLUMNS:
        columns[name] = np.array([_told(row, name) for row in rows])
    for i, name in enumerate(Counts._fields):
        columns[name] = np.array([row.counts[i] for row in rows])
    return Trace(**columns)


def _told(row: Record | Estimate, name: str) -> float:
    if isinstance(row, Record):
        return float(getattr(row.certificate, name))
    return getattr(row, name, np.nan)


class Result(eqx.Module):
    """point: the best recorded iterate, by gap plus error bound, with its certificate. last: where the run ended.

    seconds: the method's own time; compile_seconds: spent compiling, all of it.
    starts: of a run from several starts, the result of every one of them, in order, this one included; else empty.
    """

    point: Point
    certificate: Certificate
    last: Point
    trace: Trace
    method: Method
    status: Status = eqx.field(static=True)
    seconds: float = eqx.field(static=True)
    compile_seconds: float = eqx.field(static=True)
    starts: tuple["Result", ...] = ()

    @property
    def x(self) -> PyTree:
        return self.point.x

    @property
    def theta(self) -> PyTree:
        return self.point.theta

    @property
    def y(self) -> PyTree:
        return self.point.y

    @property
    def gap(self) -> float:
        return self.certificate.gap

    @property
    def steps(self) -> int:
        return int(self.trace.k[-1])

    def plot(self, against: str = "steps", path: str | None = None) -> Any:
        """Gap and value against "steps" or "seconds"; a matplotlib figure, saved to `path` if given."""
        from bisaddle.report.trace import plot_trace

        return plot_trace(self.trace.to_dict(), title=f"{self.method.name}: {self.status}", against=against, path=path)

    def __str__(self) -> str:
        compiling = f", after {self.compile_seconds:.2g} s of compiling" if self.compile_seconds >= 0.01 else ""
        lines = [f"{self.status}: {self.steps} steps in {self.seconds:.2g} s{compiling}", self.status.advice]
        lines.append(str(self.certificate))
        for i, other in enumerate(self.starts):
            degenerate = ", degenerate" if other.certificate.degenerate else ""
            lines.append(
                f"start {i}: {other.status}, gap {other.gap:.1e}, "
                f"worst value {other.certificate.worst_value:.6g}{degenerate}"
            )
        return "\n".join(lines)


def best_record(records: list[Record]) -> Record:
    """The record with the smallest gap, error bound included; the last one if no gap is a number."""
    scores = np.array([record.certificate.gap + record.certificate.error_bound for record in records])
    return records[int(np.nanargmin(scores))] if np.any(np.isfinite(scores)) else records[-1]
