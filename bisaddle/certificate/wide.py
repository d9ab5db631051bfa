"""Certificates in float64 of points in float32: the point is the same, its gap has more digits."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from bisaddle.oracle.kernels import Kernels
from bisaddle.problem import Point, Problem

# bytes of data in float32 up to which a copy in float64 is held for certificates
WIDE_BYTES = 2**26
# what rounding the data to float32 may take from mu_g, which was given for those before it
SLACK = 1e-3


def widened(problem: Problem, point: Point, kernels: Kernels) -> tuple[Problem, Kernels]:
    """The problem in float64, with its kernels; as given if it is, jax_enable_x64 is off, or data are too large."""
    has_float64 = jax.dtypes.canonicalize_dtype(np.float64) == np.float64
    elsewhere = kernels.streamed or kernels.part.x.mesh is not None
    if kernels.dtype == np.float64 or not has_float64 or elsewhere:
        return problem, kernels
    if sum(leaf.nbytes for leaf in jax.tree.leaves(kernels.part.data)) > WIDE_BYTES:
        return problem, kernels
    names, known = ("upper", "lower", "data", "derivatives"), problem.constants
    if known.mu_g is not None:
        known = replace(known, mu_g=(1 - SLACK) * float(known.mu_g))
    wide = replace(problem, constants=known, **{name: _wide(getattr(problem, name)) for name in names})
    return wide, Kernels(wide, _wide(point))


def _wide(tree: Any) -> Any:
    """Its float32 arrays in float64, with the same numbers."""
    is_single = lambda leaf: getattr(leaf, "dtype", None) == np.float32
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64) if is_single(leaf) else leaf, tree)
