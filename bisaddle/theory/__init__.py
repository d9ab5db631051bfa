"""The analysis in code: constants, step sizes from them, what is promised, and whether a problem meets the assumptions.

Each function names the lemma, theorem or corollary it comes from; docs/theory.md says where the printed one is mended.
"""

from bisaddle.theory.anytime import (
    AscentStep as AscentStep,
    Capped as Capped,
    Doubling as Doubling,
    anytime_steps as anytime_steps,
)
from bisaddle.theory.assumptions import (
    AssumptionReport as AssumptionReport,
    Finding as Finding,
    check_assumptions as check_assumptions,
)
from bisaddle.theory.bounds import (
    Bound as Bound,
    Iterations as Iterations,
    bound as bound,
    iterations_for as iterations_for,
    start_errors as start_errors,
)
from bisaddle.theory.constants import (
    Smoothness as Smoothness,
    Start as Start,
    Sums as Sums,
    Tracking as Tracking,
    describe as describe,
    smoothness as smoothness,
    sums as sums,
    tracking as tracking,
)
from bisaddle.theory.estimate import Estimates as Estimates, estimate_constants as estimate_constants
from bisaddle.theory.exact import exact_constants as exact_constants
from bisaddle.theory.steps import Plan as Plan, Promise as Promise, steps_for as steps_for
