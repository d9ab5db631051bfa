"""The Schatten balls."""

import equinox as eqx

from bisaddle.sets.base import Leaf, VectorSet, positive
from bisaddle.sets.spectral import SingularSet
from bisaddle.sets.weighted import LpBall


class SchattenBall(SingularSet):
    """{V : (sum of the p-th powers of the singular values of V)^(1/p) <= radius}, 1 <= p <= infinity, any shape

    project: a full SVD, O(m n min(m, n)), then the lp ball; lmo: a full SVD, then a closed form. For p = 1 NuclearBall
    has the cheaper lmo; for p = 2 the L2Ball is the same set without a factorisation.
    """

    p: float = eqx.field(static=True, converter=lambda p: LpBall(p, 1.0).p)
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "SchattenBall radius"))

    @property
    def values(self) -> VectorSet:
        return LpBall(self.p, self.radius)
