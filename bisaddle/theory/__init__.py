"""The analysis in code: constants, step sizes from them, what is promised, and whether a problem meets the assumptions.

Each function names the lemma, theorem or corollary it comes from; docs/theory.md says where the printed one is mended.
"""

from bisaddle.theory.anytime import AscentStep as AscentStep
from bisaddle.theory.anytime import Capped as Capped
from bisaddle.theory.anytime import Doubling as Doubling
from bisaddle.theory.anytime import anytime_steps as anytime_steps
from bisaddle.theory.assumptions import AssumptionReport as AssumptionReport
from bisaddle.theory.assumptions import Finding as Finding
from bisaddle.theory.assumptions import check_assumptions as check_assumptions
from bisaddle.theory.bounds import Bound as Bound
from bisaddle.theory.bounds import Iterations as Iterations
from bisaddle.theory.bounds import bound as bound
from bisaddle.theory.bounds import iterations_for as iterations_for
from bisaddle.theory.bounds import start_errors as start_errors
from bisaddle.theory.constants import Smoothness as Smoothness
from bisaddle.theory.constants import Start as Start
from bisaddle.theory.constants import Sums as Sums
from bisaddle.theory.constants import Tracking as Tracking
from bisaddle.theory.constants import describe as describe
from bisaddle.theory.constants import smoothness as smoothness
from bisaddle.theory.constants import sums as sums
from bisaddle.theory.constants import tracking as tracking
from bisaddle.theory.estimate import Estimates as Estimates
from bisaddle.theory.estimate import estimate_constants as estimate_constants
from bisaddle.theory.exact import exact_constants as exact_constants
from bisaddle.theory.steps import Plan as Plan
from bisaddle.theory.steps import Promise as Promise
from bisaddle.theory.steps import steps_for as steps_for
