"""Convex, compact sets: one object per set, with its projection and its linear minimisation oracle."""

from bisaddle.sets.balls import L1Ball as L1Ball
from bisaddle.sets.balls import L2Ball as L2Ball
from bisaddle.sets.balls import LinfBall as LinfBall
from bisaddle.sets.base import ConvexSet as ConvexSet
from bisaddle.sets.box import Box as Box
from bisaddle.sets.product import Product as Product
from bisaddle.sets.simplex import Simplex as Simplex

