"""Convex, compact sets: one object per set, with its projection and its linear minimisation oracle."""

from bisaddle.sets.assignment import BirkhoffPolytope as BirkhoffPolytope, TransportPolytope as TransportPolytope
from bisaddle.sets.balls import L1Ball as L1Ball, L2Ball as L2Ball, LinfBall as LinfBall
from bisaddle.sets.base import ConvexSet as ConvexSet
from bisaddle.sets.box import Box as Box
from bisaddle.sets.capped import (
    CappedSimplex as CappedSimplex,
    HyperSimplex as HyperSimplex,
    KSparsePolytope as KSparsePolytope,
    UnitSimplex as UnitSimplex,
)
from bisaddle.sets.combine import (
    Custom as Custom,
    Image as Image,
    Rotated as Rotated,
    Scaled as Scaled,
    Translated as Translated,
)
from bisaddle.sets.intersection import Intersection as Intersection
from bisaddle.sets.ordered import OrderedWeightedL1Ball as OrderedWeightedL1Ball, Permutahedron as Permutahedron
from bisaddle.sets.polytopes import ConvexHull as ConvexHull, Polyhedron as Polyhedron
from bisaddle.sets.probability import (
    ChiSquareBall as ChiSquareBall,
    CVaRSet as CVaRSet,
    KLBall as KLBall,
    MeanConstrainedSimplex as MeanConstrainedSimplex,
    TVBall as TVBall,
)
from bisaddle.sets.product import Product as Product
from bisaddle.sets.prox import (
    ElasticNet as ElasticNet,
    Entropy as Entropy,
    GroupL1 as GroupL1,
    Indicator as Indicator,
    L1Penalty as L1Penalty,
    Prox as Prox,
    SquaredL2 as SquaredL2,
)
from bisaddle.sets.sections import (
    FreeBall as FreeBall,
    HalfspaceBox as HalfspaceBox,
    HyperplaneBox as HyperplaneBox,
    Singleton as Singleton,
)
from bisaddle.sets.simplex import Simplex as Simplex
from bisaddle.sets.spectral import (
    NuclearBall as NuclearBall,
    SchattenBall as SchattenBall,
    SpectralBall as SpectralBall,
)
from bisaddle.sets.symmetric import Fantope as Fantope, Spectrahedron as Spectrahedron
from bisaddle.sets.weighted import (
    Ellipsoid as Ellipsoid,
    GroupBall as GroupBall,
    LpBall as LpBall,
    WeightedL1Ball as WeightedL1Ball,
)
