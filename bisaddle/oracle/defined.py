"""Where f is a number: a logarithm or an entropy may be none at the border of a set that holds it."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from bisaddle.sets.flat_base import all_finite

# share of a step that leaves room to the border, and the smallest one, halved from trial to trial
INSIDE, LEAST_INSIDE = 0.9, 1e-6


def is_number(upper: Any) -> bool:
    """Whether f and f_y are."""
    return isfinite(upper.value) and all_finite(upper.f_y)


def inside(evaluate: Callable[[np.ndarray], Any], y: np.ndarray, new: np.ndarray) -> tuple[np.ndarray, Any]:
    """new with f and its gradients there; nearer to y where f or f_y is no number."""
    share = INSIDE
    while True:
        upper = evaluate(new)
        if is_number(upper) or share < LEAST_INSIDE:
            return new, upper
        new = y + y.dtype.type(share) * (new - y)
        share *= 0.5
