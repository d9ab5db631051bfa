"""A quasi-Newton step inside the face of X that a projected gradient step ends in; the rest is the projected step."""

from collections.abc import Callable

import numpy as np

from bisaddle.oracle.kernels import Vector

PAIRS = 20

# v -> (P(v), rows -> the derivative of P at v, applied to each row)
Linearised = Callable[[Vector], tuple[Vector, Callable[[Vector], Vector]]]


class Pairs:
    """Differences of x and of the gradient along the last steps, the newest first."""

    def __init__(self) -> None:
        self.s: list[Vector] = []
        self.q: list[Vector] = []

    def __len__(self) -> int:
        return len(self.s)

    def add(self, s: Vector, q: Vector) -> None:
        self.s, self.q = [s, *self.s[: PAIRS - 1]], [q, *self.q[: PAIRS - 1]]

    def clear(self) -> None:
        self.s, self.q = [], []


def face_direction(
    linearised: Linearised, project: Callable[[Vector], Vector], x: Vector, Gx: Vector, tau: float, pairs: Pairs
) -> tuple[Vector, Vector]:
    """(d0, d): the projected gradient step P_X(x - tau Gx) - x, and with its part inside the face replaced.

        Pi = derivative of P_X at x - tau Gx,     d = P_X(x + (d0 - Pi d0) + B Pi d0 / tau) - x

    B: the L-BFGS inverse Hessian of the pairs (Pi s, Pi q). Pairs without curvature in the face are left out; d is d0
    where none is left.
    """
    ahead, inside = linearised(x - tau * Gx)
    d0 = ahead - x
    if not len(pairs):
        return d0, d0
    rows = inside(np.array([d0, *pairs.s, *pairs.q]))
    inner, s, q = rows[0], rows[1 : 1 + len(pairs)], rows[1 + len(pairs) :]
    curvature = np.einsum("ij,ij->i", s, q)
    size = np.sqrt(np.einsum("ij,ij->i", s, s)) * np.sqrt(np.einsum("ij,ij->i", q, q))
    usable = curvature > 1e-10 * size
    if not np.any(usable):
        return d0, d0
    newton = two_loops(inner / tau, s[usable], q[usable], curvature[usable])
    return d0, project(x + (d0 - inner) + newton) - x


def two_loops(v: Vector, s: Vector, q: Vector, curvature: Vector) -> Vector:
    """B v by the two loops of L-BFGS over the pairs, newest first, from the scale <s, q> / <q, q> of the newest.

    Each loop is a triangular system in the pairs' products with each other, c_i = <s_i, q_i>:

        sum_{j<=i} <s_i, q_j> a_j = <s_i, v>,      sum_{j>=i} <s_j, q_i> (a_j - b_j) = c_i a_i - <q_i, v>
    """
    products = np.tril(s @ q.T)
    a = np.linalg.solve(products, s @ v)
    v = v - a @ q
    square = q[0] @ q[0]
    v = v * (curvature[0] / square if square > 0 else curvature[0])
    return v + np.linalg.solve(products.T, curvature * a - q @ v) @ s
