"""Saddle-point problems with bilevel structure, on JAX.

    min_{x in X} max_{y in Y} f(x, theta*(x), y)   with   theta*(x) = argmin_theta g(x, theta)

In the order of use: sets, a Problem over them, a method with its StepSizes, solve, and the certificate of its Result.
"""

from typing import TYPE_CHECKING

from bisaddle.lazy import lazy

if TYPE_CHECKING:
    from bisaddle import (
        apps as apps,
        datasets as datasets,
        estimators as estimators,
        experiments as experiments,
        methods as methods,
        parallel as parallel,
        report as report,
        schedules as schedules,
        sets as sets,
        streams as streams,
        theory as theory,
    )
    from bisaddle.auditing import Audit as Audit, audit as audit
    from bisaddle.certificate import Certificate as Certificate, Gap as Gap, certify as certify
    from bisaddle.oracle.check import DerivativeReport as DerivativeReport, check_derivatives as check_derivatives
    from bisaddle.oracle.implicit import hypergradient as hypergradient
    from bisaddle.problem import Constants as Constants, Derivatives as Derivatives, Point as Point, Problem as Problem
    from bisaddle.run.result import (
        Record as Record,
        Result as Result,
        Status as Status,
        Trace as Trace,
        load_result as load_result,
    )
    from bisaddle.run.solve import resume as resume, solve as solve, solve_path as solve_path
    from bisaddle.run.starts import start_points as start_points
    from bisaddle.schedules import StepSizes as StepSizes

__version__ = "0.1.0"

_MODULES = (
    "apps",
    "datasets",
    "estimators",
    "experiments",
    "methods",
    "parallel",
    "report",
    "schedules",
    "sets",
    "streams",
    "theory",
)
# the names above, by the module that defines them
_NAMES = {
    "auditing": ("Audit", "audit"),
    "certificate": ("Certificate", "Gap", "certify"),
    "oracle.check": ("DerivativeReport", "check_derivatives"),
    "oracle.implicit": ("hypergradient",),
    "problem": ("Constants", "Derivatives", "Point", "Problem"),
    "run.result": ("Record", "Result", "Status", "Trace", "load_result"),
    "run.solve": ("resume", "solve", "solve_path"),
    "run.starts": ("start_points",),
    "schedules": ("StepSizes",),
}
__all__ = [*_MODULES, *(name for names in _NAMES.values() for name in names)]  # pyright: ignore[reportUnsupportedDunderAll]

__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)
