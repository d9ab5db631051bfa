"""Result, Trace, Status: what solve gives back."""

import os
from enum import Enum
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import PyTree

from bisaddle.certificate import Certificate
from bisaddle.methods.base import Counts, Method
from bisaddle.problem import Point
from bisaddle.run import container
from bisaddle.run.plain import Reader, Writer
from bisaddle.showing import Shown, call, card, shown, sparkline


class Status(Enum):
    """How a run ended; `.advice` says what it means and what to do."""

    CERTIFIED = "the gap, error bound included, is at most tol."
    ACCEPTABLE = (
        "a limit was reached with the gap, error bound included, at most ten times tol; accept it, or go on from "
        "result.last with more steps."
    )
    MAX_STEPS = "max_steps was reached before the gap met tol; raise it, change the step sizes, or accept the gap."
    MAX_SECONDS = "max_seconds was reached before the gap met tol; raise it, or go on from result.last."
    STALLED = (
        "rounding keeps the gap or its error bound above tol, and more steps would not help; use float64, scale the "
        "problem, add a ridge term to g, or raise tol."
    )
    NOT_STRONGLY_CONVEX = (
        "g is not strongly convex in theta, or less so than the mu_g given; add a ridge term to g, or correct mu_g; "
        "certificate.lower_witness has the direction."
    )
    NOT_CONCAVE = (
        "f is not concave in y, so that no gap tells the worst y; change f, or add a concave term such as "
        "-c |y - y0|^2; certificate.upper_witness has the direction."
    )
    WRONG_DERIVATIVES = (
        "f or g change otherwise than their derivatives say; correct those in Derivatives, a custom_vjp or a "
        "stop_gradient, or smooth the kink; certificate.mismatch has the numbers, bs.check_derivatives more."
    )
    NONFINITE = (
        "NaN or infinity appeared; check the data, f and g, and where there are step sizes lower them (alpha, eta "
        "first); result.last is finite."
    )
    DIVERGED = (
        "theta or w grew without bound; use alpha and eta of at most 2 / (mu_g + L_g); result.last is from before it."
    )
    INTERRUPTED = "stopped by Ctrl-C or by the callback; go on from result.last."

    @property
    def advice(self) -> str:
        return self.value

    def __str__(self) -> str:
        return self.name


class Record(NamedTuple):
    """One record of a run, as passed to the callback."""

    k: int
    seconds: float
    point: Point
    certificate: Certificate
    counts: Counts

    def __repr__(self) -> str:
        return call("Record", {"k": self.k, "seconds": self.seconds} | self.certificate.shown_fields())

    def _repr_html_(self) -> str:
        return card(f"Step {self.k}, after {self.seconds:.2g} s", self.certificate.shown_rows())


# certified rows of a trace, and estimated ones; it is even
MOST_ROWS = 4096


class Trace(Shown):
    """The history of a run; every column is a NumPy array.

    seconds: the method's own time, without certificates and compilation.
    estimated: True in rows between records, where a method driven from the host reports its own gaps and value. These
    are not certified, and the other certificate columns are NaN there. `certified` has the remaining rows.
    gradients, hvps, cross_products, projections and lmos count the method's oracle calls up to step k.
    A trace of certified or of estimated rows has up to 4096 of them. A longer one is thinned to 2048 and more: of every
    two, four, eight, ... consecutive rows it keeps the one with the smallest gap; besides, the first and the last.
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

    def shown_fields(self) -> dict[str, Any]:
        ends = {"steps": int(self.k[-1]), "first_gap": float(self.gap[0]), "last_gap": float(self.gap[-1])}
        return {"rows": len(self)} | (ends if len(self) else {})

    @property
    def certified(self) -> "Trace":
        """The rows that come from certificates."""
        return Trace(**{name: column[~self.estimated] for name, column in self.to_dict().items()})

    def to_dict(self) -> dict[str, np.ndarray]:
        """The columns by name."""
        return dict(vars(self))

    def to_pandas(self) -> Any:
        """The trace as a pandas DataFrame."""
        try:
            import pandas
        except ImportError as error:
            raise ImportError("Trace.to_pandas needs pandas; install it, or use Trace.to_dict()") from error
        return pandas.DataFrame(self.to_dict())


# what a certificate tells; of these a method driven from the host knows its own gaps and value
CERTIFICATE_COLUMNS = ("x_gap", "y_gap", "gap", "error_bound", "value", "worst_value", "lower_error", "violation")


class Result(Shown):
    """What solve found. point: the recorded iterate with the lowest gap plus error bound; last: where the run ended.

    certificate: of the point. seconds: the method's own time; compile_seconds: all time spent compiling.
    reason: what is known, beyond the status, of why a run did not succeed.
    tol: the gap that was to be certified. scale: of the gradient at the start, where rtol was given: tol is at least
    rtol times that, and relative_gap is gap / scale; else both are None.
    starts: the results of all starts, in order, this one included; empty for a single start.
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
    reason: str = eqx.field(static=True, default="")
    tol: float | None = eqx.field(static=True, default=None)
    scale: float | None = eqx.field(static=True, default=None)

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
    def relative_gap(self) -> float | None:
        return self.gap / self.scale if self.scale else None

    @property
    def steps(self) -> int:
        return int(self.trace.k[-1])

    def shown_fields(self) -> dict[str, Any]:
        """What a reader asks first; all else is in the fields."""
        found = {"gap": self.gap, "error_bound": self.certificate.error_bound}
        found |= {"worst_value": self.certificate.worst_value, "steps": self.steps, "seconds": self.seconds}
        return {"status": self.status} | found | {"x": self.x, "y": self.y}

    def _repr_html_(self) -> str:
        compiling = f", after {self.compile_seconds:.2g} s of compiling" if self.compile_seconds >= 0.01 else ""
        rows = [*self.certificate.shown_rows(), ("steps", f"{self.steps} in {self.seconds:.2g} s{compiling}")]
        rows += [(name, shown(value)) for name, value in (("x", self.x), ("y", self.y)) if value is not None]
        rows += [("why", self.reason)] if self.reason else []
        return card(f"{self.method.name}: {self.status}", rows, sparkline(self.trace.gap))

    def plot(self, against: str = "steps", path: str | None = None) -> Any:
        """A matplotlib figure of gap and value at every recorded step, against "steps" or "seconds".

        A notebook shows it; it is saved to `path` if given.
        """
        from bisaddle.report.trace import plot_trace

        title = f"{self.method.name}: {self.status}"
        return plot_trace(self.trace.to_dict(), title=title, against=against, path=path, tol=self.tol)

    def save(self, path: str | os.PathLike) -> None:
        """Everything in one file, for bs.load_result: whole or not there, without pickle, with a checksum."""
        from bisaddle.report.files import write

        writer = Writer()
        content = writer(self)
        write(path, container.pack("result", content, writer.arrays))

    def __str__(self) -> str:
        compiling = f", after {self.compile_seconds:.2g} s of compiling" if self.compile_seconds >= 0.01 else ""
        lines = [f"{self.status}: {self.steps} steps in {self.seconds:.2g} s{compiling}", self.status.advice]
        # what the witnesses say is printed with the certificate
        lines += [self.reason] if self.reason and self.reason != self.certificate.refutation else []
        lines.append(str(self.certificate))
        if self.scale is not None and self.relative_gap is not None:
            lines.append(f"gap {self.relative_gap:.1e} relative to the gradient at the start, {self.scale:.3g}")
        for i, other in enumerate(self.starts):
            degenerate = ", degenerate" if other.certificate.degenerate else ""
            lines.append(
                f"start {i}: {other.status}, gap {other.gap:.1e}, "
                f"worst value {other.certificate.worst_value:.6g}{degenerate}"
            )
        return "\n".join(lines)


def load_result(path: str | os.PathLike) -> Result:
    """A Result from the file of result.save. Reading runs no code; what is not such a file is refused by ValueError.

    Parts of x, theta and y that are modules or NamedTuples of your own need their classes imported; other nodes of your
    own come back as lists of their leaves. Functions in the method are not in the file: to call them is an error.
    """
    from bisaddle.methods.base import public_methods

    public_methods()  # whose classes the file may name
    content, arrays = container.unpack(path, "result")
    try:
        found = Reader(arrays)(content)
        if not _is_result(found):
            raise ValueError(f"it holds no Result but a {type(found).__name__}, or one of wrong parts")
        return found
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error


def _is_result(found: Any) -> bool:
    kinds = {"point": Point, "certificate": Certificate, "last": Point, "trace": Trace, "method": Method}
    kinds |= {"status": Status, "starts": tuple}
    if not isinstance(found, Result) or not all(isinstance(getattr(found, name), kind) for name, kind in kinds.items()):
        return False
    lengths = {np.shape(column) for column in found.trace.to_dict().values()}
    return len(lengths) == 1 and all(map(_is_result, found.starts))
