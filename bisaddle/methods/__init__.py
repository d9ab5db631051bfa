"""Methods: each owns one step; bisaddle.solve owns the loop."""

from bisaddle.methods.base import About as About
from bisaddle.methods.base import Counts as Counts
from bisaddle.methods.base import Method as Method
from bisaddle.methods.base import State as State
from bisaddle.methods.catalogue import table as table
from bisaddle.methods.regularized import FullyProjected as FullyProjected
from bisaddle.methods.regularized import OneSidedProjectionFree as OneSidedProjectionFree
from bisaddle.methods.sampler import Batch as Batch
from bisaddle.methods.sampler import Sampler as Sampler
from bisaddle.methods.two_timescale import TTSA as TTSA
from bisaddle.methods.two_timescale import MORBiT as MORBiT
