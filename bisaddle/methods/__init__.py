"""Methods: each owns one step; bisaddle.solve owns the loop. `table()` lists them."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bisaddle.methods.adaptive import Adaptive as Adaptive
    from bisaddle.methods.base import About as About
    from bisaddle.methods.base import Counts as Counts
    from bisaddle.methods.base import Method as Method
    from bisaddle.methods.base import State as State
    from bisaddle.methods.bilevel_frank_wolfe import IBCG as IBCG
    from bisaddle.methods.bilevel_frank_wolfe import SBFW as SBFW
    from bisaddle.methods.catalogue import table as table
    from bisaddle.methods.descent_ascent import AGP as AGP
    from bisaddle.methods.descent_ascent import GDA as GDA
    from bisaddle.methods.descent_ascent import AlternatingGDA as AlternatingGDA
    from bisaddle.methods.descent_ascent import SmoothedGDA as SmoothedGDA
    from bisaddle.methods.double_loop import AID as AID
    from bisaddle.methods.double_loop import BA as BA
    from bisaddle.methods.double_loop import ITD as ITD
    from bisaddle.methods.double_loop import DoubleLoop as DoubleLoop
    from bisaddle.methods.extragradient import PDHG as PDHG
    from bisaddle.methods.extragradient import Extragradient as Extragradient
    from bisaddle.methods.extragradient import MirrorProx as MirrorProx
    from bisaddle.methods.extragradient import OptimisticGDA as OptimisticGDA
    from bisaddle.methods.inner_sampled import BSA as BSA
    from bisaddle.methods.inner_sampled import AmIGO as AmIGO
    from bisaddle.methods.momentum import FSLA as FSLA
    from bisaddle.methods.momentum import SUSTAIN as SUSTAIN
    from bisaddle.methods.multiblock import MultiBlockV1 as MultiBlockV1
    from bisaddle.methods.multiblock import MultiBlockV2 as MultiBlockV2
    from bisaddle.methods.penalty import F2SA as F2SA
    from bisaddle.methods.penalty import FirstOrderPenalty as FirstOrderPenalty
    from bisaddle.methods.regularized import FullyProjected as FullyProjected
    from bisaddle.methods.regularized import OneSidedProjectionFree as OneSidedProjectionFree
    from bisaddle.methods.saddle_frank_wolfe import CGRPGA as CGRPGA
    from bisaddle.methods.saddle_frank_wolfe import SPFW as SPFW
    from bisaddle.methods.sampler import Batch as Batch
    from bisaddle.methods.sampler import Sampler as Sampler
    from bisaddle.methods.soba import SABA as SABA
    from bisaddle.methods.soba import SOBA as SOBA
    from bisaddle.methods.two_timescale import TTSA as TTSA
    from bisaddle.methods.two_timescale import MORBiT as MORBiT

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
_HOME = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bisaddle.methods' has no attribute {name!r}")
    value = getattr(import_module(f"bisaddle.methods.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
