"""The scale of a gap at the start: what the rtol of solve is relative to."""

import numpy as np

from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels
from bisaddle.problem import Point


def gradient_scale(kernels: Kernels, point: Point, measure: str | None) -> float:
    """How large a gap can be where the gradients are those of this point: what rtol of solve is relative to.

    |grad_x L|  ("projection"),   max_{s, t in X} <grad_x L, s - t>  ("lmo"),   their sum over the blocks  ("mixed"),
    plus  max_{s, t in Y} <grad_y L, s - t> / |s - t|  for the maximising s and t
    """
    x, theta, y = kernels.flat(point)
    with np.errstate(all="ignore"):
        solved = Implicit(kernels, x, theta, y)
        scale = 0.0
        for block, place in kernels.x_set.blocks:
            Gx = solved.Gx[place]
            projects = measure == "projection" or (measure == "mixed" and "project" in block.capabilities)
            size = norm(Gx) if projects else float(Gx @ (block.lmo(-Gx) - block.lmo(Gx)))
            scale = (scale**2 + size**2) ** 0.5 if measure == "projection" else scale + size
        if kernels.y_set is not None:
            f_y = solved.upper.f_y
            _, best = kernels.y_set.best_response(y, f_y)
            _, worst = kernels.y_set.best_response(y, -f_y)
            width = norm(best - worst)
            scale += float(f_y @ (best - worst)) / width if width > 0 else 0.0
    if not np.isfinite(scale):
        raise ValueError(
            "the gradient at the start is not finite, so that rtol has no meaning; use tol, or another start"
        )
    return scale
