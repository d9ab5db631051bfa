"""Saddle-point problems with bilevel structure, on JAX.

    min_{x in X} max_{y in Y} f(x, theta*(x), y)   with   theta*(x) = argmin_theta g(x, theta)

In the order of use: sets, a Problem over them, a method with its StepSizes, solve, and the certificate of its Result.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisaddle import apps as apps
    from bisaddle import datasets as datasets
    from bisaddle import experiments as experiments
    from bisaddle import methods as methods
    from bisaddle import report as report
    from bisaddle import schedules as schedules
    from bisaddle import sets as sets
    from bisaddle import theory as theory
    from bisaddle.certificate import Certificate as Certificate
    from bisaddle.certificate import certify as certify
    from bisaddle.oracle.check import DerivativeReport as DerivativeReport
    from bisaddle.oracle.check import check_derivatives as check_derivatives
    from bisaddle.oracle.hypergradient import hypergradient as hypergradient
    from bisaddle.problem import Constants as Constants
    from bisaddle.problem import Derivatives as Derivatives
    from bisaddle.problem import Point as Point
    from bisaddle.problem import Problem as Problem
    from bisaddle.run.result import Record as Record
    from bisaddle.run.result import Result as Result
    from bisaddle.run.result import Status as Status
    from bisaddle.run.result import Trace as Trace
    from bisaddle.run.solve import solve as solve
    from bisaddle.run.solve import solve_path as solve_path
    from bisaddle.schedules import StepSizes as StepSizes

__version__ = "0.1.0"

_MODULES = ("apps", "datasets", "experiments", "methods", "report", "schedules", "sets", "theory")
# the names above, by the module that defines them
_NAMES = {
    "certificate": ("Certificate", "certify"),
    "oracle.check": ("DerivativeReport", "check_derivatives"),
    "oracle.hypergradient": ("hypergradient",),
    "problem": ("Constants", "Derivatives", "Point", "Problem"),
    "run.result": ("Record", "Result", "Status", "Trace"),
    "run.solve": ("solve", "solve_path"),
    "schedules": ("StepSizes",),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Names load on first use, so that `bisaddle --help` and the shell's completion do not wait for JAX."""
    if name in _MODULES:
        return import_module(f"bisaddle.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'bisaddle' has no attribute {name!r}")
    value = getattr(import_module(f"bisaddle.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, *_HOME})
