"""Case: one set as the common tests see it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bisaddle.sets import ConvexSet


@dataclass(frozen=True)
class Case:
    """make(rng, n) -> a set for arrays of shape(n).

    constraints(set, u): the same set in CVXPY's words for a variable u shaped like the array, written from the set's
    definition and from its fields only; None where CVXPY has no words for it. polyhedral: its linear programs are for
    HiGHS. permutes: the set does not change when coordinates are exchanged (the rows and the columns of a matrix, both
    alike if symmetric). scales: the fields that, multiplied by c > 0, multiply the set by c. sizes: those of the laws
    (n is the length of a vector, the side of a matrix). differentiable: project has derivatives almost everywhere.
    """

    make: Callable[[np.random.Generator, int], ConvexSet]
    constraints: Callable[[Any, Any], list] | None = None
    polyhedral: bool = False
    permutes: bool = False
    symmetric: bool = False
    scales: tuple[str, ...] = ()
    shape: Callable[[int], tuple[int, ...]] = field(default=lambda n: (n,))
    sizes: tuple[int, ...] = (1, 2, 5, 50, 1000)
    differentiable: bool = True
    # whether the laws run in `make test` too, at the size nearest to 5
    quick: bool = True
    # attributes of CVXPY's variable, such as symmetric=True
    variable: dict = field(default_factory=dict)

    @property
    def quick_size(self) -> int:
        return max(size for size in self.sizes if size <= 5)
