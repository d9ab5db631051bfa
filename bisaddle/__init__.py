"""Saddle-point problems with bilevel structure, on JAX.

    min_{x in X} max_{y in Y} f(x, theta*(x), y)   with   theta*(x) = argmin_theta g(x, theta)

In the order of use: sets, a Problem over them, a method with its StepSizes, solve, and the certificate of its Result.
"""

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
