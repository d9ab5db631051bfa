"""Methods: each owns one step; bisaddle.solve owns the loop."""

from bisaddle.methods.base import About as About
from bisaddle.methods.base import Counts as Counts
from bisaddle.methods.base import Method as Method
from bisaddle.methods.base import State as State
from bisaddle.methods.descent_ascent import AGP as AGP
from bisaddle.methods.descent_ascent import GDA as GDA
from bisaddle.methods.descent_ascent import AlternatingGDA as AlternatingGDA
from bisaddle.methods.descent_ascent import SmoothedGDA as SmoothedGDA
from bisaddle.methods.extragradient import PDHG as PDHG
from bisaddle.methods.extragradient import Extragradient as Extragradient
from bisaddle.methods.extragradient import MirrorProx as MirrorProx
from bisaddle.methods.extragradient import OptimisticGDA as OptimisticGDA
from bisaddle.methods.frank_wolfe import CGRPGA as CGRPGA
from bisaddle.methods.frank_wolfe import SPFW as SPFW
from bisaddle.methods.regularized import FullyProjected as FullyProjected
from bisaddle.methods.regularized import OneSidedProjectionFree as OneSidedProjectionFree
