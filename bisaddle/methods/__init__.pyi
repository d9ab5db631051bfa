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
