"""Saddle-point problems with bilevel structure, on JAX.

    min_{x in X} max_{y in Y} f(x, theta*(x), y)   with   theta*(x) = argmin_theta g(x, theta)

In the order of use: sets, a Problem over them, a method with its StepSizes, solve, and the certificate of its Result.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisaddle import apps as apps
    from bisaddle import datasets as datasets
    from bisaddle import methods as methods
    from bisaddle import schedules as schedules
    from bisaddle import sets as sets
    from bisaddle import theory as theory
    from bisaddle.certificate import Certificate as Certificate
    from bisaddle.certificate import certify as certify
    from bisaddle.derivatives import DerivativeReport as DerivativeReport
    from bisaddle.derivatives import check_derivatives as check_derivatives
    from bisaddle.lower import hypergradient as hypergradient
    from bisaddle.problem import Constants as Constants
    from bisaddle.problem import Derivatives as Derivatives
    from bisaddle.problem import Point as Point
    from bisaddle.problem import Problem as Problem
    from bisaddle.result import Record as Record
    from bisaddle.result import Result as Result
    from bisaddle.result import Status as Status
    from bisaddle.result import Trace as Trace
    from bisaddle.schedules import StepSizes as StepSizes
    from bisaddle.solve import solve as solve
    from bisaddle.solve import solve_path as solve_path

__version__ = "0.1.0"

_MODULES = ("apps", "datasets", "methods", "schedules", "sets", "theory")
# the names above, by the module that defines them
_NAMES = {
    "certificate": ("Certificate", "certify"),
    "derivatives": ("DerivativeReport", "check_derivatives"),
    "lower": ("hypergradient",),
    "problem": ("Constants", "Derivatives", "Point", "Problem"),
    "result": ("Record", "Result", "Status", "Trace"),
    "schedules": ("StepSizes",),
    "solve": ("solve", "solve_path"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}


class _Package(ModuleType):
    """Names load on first use, so that `bisaddle --help` and the shell's completion do not wait for JAX."""

    def __getattr__(self, name: str) -> Any:
        if name in _MODULES:
            return import_module(f"bisaddle.{name}")
        if name not in _HOME:
            raise AttributeError(f"module 'bisaddle' has no attribute {name!r}")
        value = getattr(import_module(f"bisaddle.{_HOME[name]}"), name)
        setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # the import system names every loaded module here, but bisaddle.solve is the function
        super().__setattr__(name, value.solve if name == "solve" and isinstance(value, ModuleType) else value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_MODULES, *_HOME})


sys.modules[__name__].__class__ = _Package
