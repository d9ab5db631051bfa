"""Convex, compact sets: one object per set, with its projection and its linear minimisation oracle."""

from bisaddle.sets.assignment import BirkhoffPolytope as BirkhoffPolytope
from bisaddle.sets.assignment import TransportPolytope as TransportPolytope
from bisaddle.sets.balls import L1Ball as L1Ball
from bisaddle.sets.balls import L2Ball as L2Ball
from bisaddle.sets.balls import LinfBall as LinfBall
from bisaddle.sets.base import ConvexSet as ConvexSet
from bisaddle.sets.box import Box as Box
from bisaddle.sets.capped import CappedSimplex as CappedSimplex
from bisaddle.sets.capped import HyperSimplex as HyperSimplex
from bisaddle.sets.capped import KSparsePolytope as KSparsePolytope
from bisaddle.sets.capped import UnitSimplex as UnitSimplex
from bisaddle.sets.ordered import OrderedWeightedL1Ball as OrderedWeightedL1Ball
from bisaddle.sets.ordered import Permutahedron as Permutahedron
from bisaddle.sets.probability import ChiSquareBall as ChiSquareBall
from bisaddle.sets.probability import CVaRSet as CVaRSet
from bisaddle.sets.probability import KLBall as KLBall
from bisaddle.sets.probability import MeanConstrainedSimplex as MeanConstrainedSimplex
from bisaddle.sets.probability import TVBall as TVBall
from bisaddle.sets.product import Product as Product
from bisaddle.sets.schatten import SchattenBall as SchattenBall
from bisaddle.sets.sections import FreeBall as FreeBall
from bisaddle.sets.sections import HalfspaceBox as HalfspaceBox
from bisaddle.sets.sections import HyperplaneBox as HyperplaneBox
from bisaddle.sets.sections import Singleton as Singleton
from bisaddle.sets.simplex import Simplex as Simplex
from bisaddle.sets.spectral import NuclearBall as NuclearBall
from bisaddle.sets.spectral import SpectralBall as SpectralBall
from bisaddle.sets.symmetric import Fantope as Fantope
from bisaddle.sets.symmetric import Spectrahedron as Spectrahedron
from bisaddle.sets.weighted import Ellipsoid as Ellipsoid
from bisaddle.sets.weighted import GroupBall as GroupBall
from bisaddle.sets.weighted import LpBall as LpBall
from bisaddle.sets.weighted import WeightedL1Ball as WeightedL1Ball

