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

__version__: str
