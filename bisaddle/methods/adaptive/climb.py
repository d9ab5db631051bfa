"""The maximum over y where projected gradient steps are slow: quasi-Newton steps in the face of Y, as those of x."""

from collections import deque
from collections.abc import Callable

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import face_direction
from bisaddle.oracle.defined import inside, is_number
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Upper, Vector
from bisaddle.sets.flat import FlatSet
from bisaddle.sets.flat_base import all_finite


def climb(
    evaluate: Callable[[Vector], Upper],
    y_set: FlatSet,
    y: Vector,
    upper: Upper,
    y0: Vector,
    mu: float,
    L: float,
    target: float,
) -> tuple[Vector, Upper, float]:
    """y = argmax f - mu/2 |. - y0|^2 over Y from y, until L |P_Y(y - G / L) - y| <= target; f and its gradients; L.

        G = mu (y - y0) - f_y,     d = P_Y(y - G / L) - y with its part in the face of Y by L-BFGS
        y+ = y + a d,     a = 1 and then shorter, until the bracket has grown or still grows along d: it is concave

    L: first as given, then by Barzilai and Borwein.
    """
    pairs: deque[tuple[Vector, Vector]] = deque(maxlen=const.PAIRS)
    worth = lambda y, upper: upper.value - 0.5 * mu * float((y - y0) @ (y - y0))
    G = mu * (y - y0) - upper.f_y
    for _ in range(const.CLIMB_STEPS):
        d0, d = face_direction(y_set, y, G, 1 / L, pairs)
        if not L * norm(d0) > target:
            break
        slope = float(G @ d)
        if not (all_finite(d) and slope <= -const.STEEP * L * norm(d) * norm(d0)):
            pairs.clear()
            d, slope = d0, float(G @ d0)
        height, length = worth(y, upper), 1.0
        while True:
            new, there = inside(evaluate, y, y + length * d)
            new_G = mu * (new - y0) - there.f_y
            grown = worth(new, there) >= height - const.DECREASE * length * slope
            if grown or float(new_G @ d) <= 0 or length < const.LEAST_CLIMB:
                break
            length *= 0.5
        if not is_number(there) or not norm(new - y) > 0:
            break
        s, q = new - y, new_G - G
        sq = float(s @ q)
        if sq > const.PAIR_CURVATURE * norm(s) * norm(q):
            pairs.appendleft((s, q))
            L = max(sq / float(s @ s), mu)
        y, upper, G = new, there, new_G
    return y, upper, L
