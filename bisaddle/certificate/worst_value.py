"""max over Y of f(x, theta, .), with a bound on what is still lacking."""

import numpy as np

from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Kernels, Upper, Vector
from bisaddle.sets.flat import FlatSet

ASCENT_STEPS = 1000


def worst_value(
    kernels: Kernels, y_set: FlatSet, x: Vector, theta: Vector, y: Vector, here: Upper, accuracy: float = 0.0
) -> tuple[float, float]:
    """max over Y of f(x, theta, .) - h, and an upper bound on what the number given still lacks; here: f at y.

    Accelerated projected (proximal) ascent with a curvature search and restarts, all decided by gradients of f, and
    stopped by y_set.best_response: the Frank-Wolfe gap, or max_s <f_y, s - y> + h(y) - h(s), which bounds the rest
    for concave f, at the accuracy or at rounding. For f linear in y the first best response is the answer.
    """

    def upper(y: Vector) -> Upper:
        return kernels.upper(x, theta, y)

    def value(y: Vector, at: Upper) -> float:
        return at.value - y_set.penalty(y)

    nearest = y_set.project(y)
    start = here if norm(nearest - y) == 0 else upper(nearest)
    rest, vertex = y_set.best_response(nearest, start.f_y)
    own = value(nearest, start)
    threshold = max(accuracy, 50 * kernels.eps * (1 + abs(own)))
    best, at = nearest, start
    if rest > threshold:
        there = upper(vertex)
        rest_there, _ = y_set.best_response(vertex, there.f_y)
        if rest_there < rest:
            best, at, rest = vertex, there, rest_there
    previous, momentum, curvature = best, 1.0, 1.0
    for _ in range(ASCENT_STEPS):
        if not rest > threshold:
            break
        next_momentum = 0.5 * (1 + (1 + 4 * momentum**2) ** 0.5)
        ahead = y_set.project(best + (momentum - 1) / next_momentum * (best - previous))
        g = upper(ahead).f_y
        curvature *= 0.35
        while True:
            curvature *= 2
            moved = y_set.prox(ahead + g / curvature, 1 / curvature)
            step, at = moved - ahead, upper(moved)
            if float((g - at.f_y) @ step) <= curvature * float(step @ step) or not curvature < 1e30:
                break
        overshot = float((ahead - moved) @ (moved - best)) > 0
        best, previous, momentum = moved, best, 1.0 if overshot else next_momentum
        rest, _ = y_set.best_response(best, at.f_y)
    # the point's own y may be higher still if f is not concave
    return float(np.maximum(value(best, at), own)), rest
