"""Methods: each owns one step; bisaddle.solve owns the loop. `table()` lists them."""

from typing import TYPE_CHECKING

from bisaddle.lazy import lazy

if TYPE_CHECKING:
    from bisaddle.methods.adaptive import Adaptive as Adaptive
    from bisaddle.methods.base import About as About, Counts as Counts, Method as Method, State as State
    from bisaddle.methods.bilevel_frank_wolfe import IBCG as IBCG, SBFW as SBFW
    from bisaddle.methods.catalogue import table as table
    from bisaddle.methods.descent_ascent import (
        AGP as AGP,
        GDA as GDA,
        AlternatingGDA as AlternatingGDA,
        SmoothedGDA as SmoothedGDA,
    )
    from bisaddle.methods.double_loop import AID as AID, BA as BA, ITD as ITD, DoubleLoop as DoubleLoop
    from bisaddle.methods.extragradient import (
        PDHG as PDHG,
        Extragradient as Extragradient,
        MirrorProx as MirrorProx,
        OptimisticGDA as OptimisticGDA,
    )
    from bisaddle.methods.inner_sampled import BSA as BSA, AmIGO as AmIGO
    from bisaddle.methods.momentum import FSLA as FSLA, SUSTAIN as SUSTAIN
    from bisaddle.methods.multiblock import MultiBlockV1 as MultiBlockV1, MultiBlockV2 as MultiBlockV2
    from bisaddle.methods.penalty import F2SA as F2SA, FirstOrderPenalty as FirstOrderPenalty
    from bisaddle.methods.regularized import (
        FullyProjected as FullyProjected,
        OneSidedProjectionFree as OneSidedProjectionFree,
    )
    from bisaddle.methods.saddle_frank_wolfe import CGRPGA as CGRPGA, SPFW as SPFW
    from bisaddle.methods.sampler import Batch as Batch, Sampler as Sampler
    from bisaddle.methods.soba import SABA as SABA, SOBA as SOBA
    from bisaddle.methods.two_timescale import TTSA as TTSA, MORBiT as MORBiT

# the names above, by the module that defines them: a run loads the method that it uses, not all of them
_NAMES = {
    "adaptive": ("Adaptive",),
    "base": ("About", "Counts", "Method", "State"),
    "bilevel_frank_wolfe": ("IBCG", "SBFW"),
    "catalogue": ("table",),
    "descent_ascent": ("AGP", "GDA", "AlternatingGDA", "SmoothedGDA"),
    "double_loop": ("AID", "BA", "ITD", "DoubleLoop"),
    "extragradient": ("PDHG", "Extragradient", "MirrorProx", "OptimisticGDA"),
    "inner_sampled": ("BSA", "AmIGO"),
    "momentum": ("FSLA", "SUSTAIN"),
    "multiblock": ("MultiBlockV1", "MultiBlockV2"),
    "penalty": ("F2SA", "FirstOrderPenalty"),
    "regularized": ("FullyProjected", "OneSidedProjectionFree"),
    "saddle_frank_wolfe": ("CGRPGA", "SPFW"),
    "sampler": ("Batch", "Sampler"),
    "soba": ("SABA", "SOBA"),
    "two_timescale": ("TTSA", "MORBiT"),
}

__getattr__, __dir__ = lazy(__name__, _NAMES)
