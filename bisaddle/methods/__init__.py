"""Methods: each owns one step; bisaddle.solve owns the loop."""

from bisaddle.methods.base import About as About
from bisaddle.methods.base import Counts as Counts
from bisaddle.methods.base import Method as Method
from bisaddle.methods.base import State as State
from bisaddle.methods.catalogue import table as table
from bisaddle.methods.regularized import FullyProjected as FullyProjected
from bisaddle.methods.regularized import OneSidedProjectionFree as OneSidedProjectionFree
