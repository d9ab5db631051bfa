"""Result, Trace, Status: what solve gives back."""

from enum import Enum
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array, PyTree

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


class Trace(eqx.Module):
    """What was recorded, a NumPy array a column. `seconds` is the method's own time: no certificates, no compilation.

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

    def __len__(self) -> int:
        return len(self.k)

    def to_dict(self) -> dict[str, np.ndarray]:
        return dict(vars(self))

    def to_pandas(self) -> Any:
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Trace.to_pandas needs pandas; install it, or use Trace.to_dict()") from error
        return pandas.DataFrame(self.to_dict())


CERTIFICATE_COLUMNS = ("x_gap", "y_gap", "gap", "error_bound", "value", "worst_value", "lower_error", "violation")


def trace_of(records: list[Record]) -> Trace:
    columns: dict[str, np.ndarray] = {
        "k": np.array([record.k for record in records]),
        "seconds": np.array([record.seconds for record in records]),
    }
    for name in CERTIFICATE_COLUMNS:
        columns[name] = np.array([float(getattr(record.certificate, name)) for record in records])
    for i, name in enumerate(Counts._fields):
        columns[name] = np.array([record.counts[i] for record in records])
    return Trace(**columns)


class Result(eqx.Module):
    """point: the best recorded iterate, by gap plus error bound, with its certificate. last: where the run ended.

    seconds: the method's own time; compile_seconds: spent compiling before the first step.
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
    def gap(self) -> Array:
        return self.certificate.gap

    @property
    def steps(self) -> int:
        return int(self.trace.k[-1])

    def plot(self, against: str = "steps", path: str | None = None) -> Any:
        """Gap and value against "steps" or "seconds"; a matplotlib figure, saved to `path` if given."""
        from bisaddle.plot import plot_trace

        return plot_trace(self.trace, title=f"{self.method.name}: {self.status}", against=against, path=path)

    def __str__(self) -> str:
        lines = [f"{self.status} after {self.steps} steps and {self.seconds:.3g} s: {self.status.advice}"]
        lines.append(str(self.certificate))
        for i, other in enumerate(self.starts):
            degenerate = ", degenerate" if other.certificate.degenerate else ""
            lines.append(
                f"start {i}: {other.status}, gap {float(other.gap):.1e}, "
                f"worst value {float(other.certificate.worst_value):.6g}{degenerate}"
            )
        return "\n".join(lines)


def best_of(records: list[Record]) -> Record:
    """The record with the smallest gap, error bound included; the last one if no gap is a number."""
    scores = np.array([float(record.certificate.gap + record.certificate.error_bound) for record in records])
    return records[int(np.nanargmin(scores))] if np.any(np.isfinite(scores)) else records[-1]
