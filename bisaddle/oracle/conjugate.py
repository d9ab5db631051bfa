"""Conjugate gradients driven from the host, of few vectors: for a large theta, and for rows that are streamed."""

from typing import Any, NamedTuple

import numpy as np

from bisaddle.trees import aligned, pieces, room

Vector = np.ndarray


class Solve(NamedTuple):
    """w with g_theta_theta w = right - r; the products it took, and the least curvature met on the way.

    right: as given, or -g_theta; no entries where it was spent; cross: g_theta_x w, where it was asked for; flat: the
    direction without curvature at which it stopped, if that is known.
    """

    w: Vector
    r: Vector
    right: Vector
    cross: Vector
    products: int
    least: float
    flat: Vector | None = None


def by_products(
    kernels: Any, x: Vector, theta: Vector, right: Vector | None, start: Vector | None, goals: tuple, spend: bool
) -> Solve:
    """As Kernels.solve, without a preconditioner: each product is a call, between which w, r and p are all there is."""
    target, relative, enough, limit = goals
    right = aligned(np.negative, kernels.lower_gradient(x, theta)) if right is None else right
    length = norm(right)
    target, given = max(target, relative * length), np.zeros(0, theta.dtype) if spend else right
    r = right if spend and right.flags.writeable else aligned(np.positive, right)
    del right
    if start is None:
        w = room(r.size, r.dtype)
        w[:] = 0
    else:
        r -= kernels.hessian_product(x, theta, start)
        w = aligned(np.positive, start)
    square, least, count, flat = float(r @ r), np.inf, 0, None
    p, p_square = aligned(np.positive, r), square
    idle = start is None and not length > enough
    while square**0.5 > target and count < limit and not idle:
        Hp = kernels.hessian_product(x, theta, p)
        curvature = float(p @ Hp)
        count += 1
        if not curvature > 0:  # or g is not convex here, or nothing is left but rounding
            flat = p
            break
        least = min(least, curvature / p_square)
        before, square = square, _moved(w, r, p, Hp, square / curvature)
        del Hp
        p_square = _turned(p, r, square / before)
    if not np.isfinite(square):
        w[:] = np.nan
    none = np.broadcast_to(theta.dtype.type(0), x.size)  # which takes no memory
    return Solve(w, r, given, none, count, least, flat)


# the vectors piece by piece: each is read once, and what is made on the way stays in the cache


def _moved(w: Vector, r: Vector, p: Vector, Hp: Vector, step: float) -> float:
    """w += step p, r -= step Hp; |r|^2 then."""
    square, factor = 0.0, w.dtype.type(step)
    for at in pieces(w.size):
        w[at] += factor * p[at]
        r[at] -= factor * Hp[at]
        square += float(r[at] @ r[at])
    return square


def _turned(p: Vector, r: Vector, share: float) -> float:
    """p <- r + share p; |p|^2 then."""
    square, factor = 0.0, p.dtype.type(share)
    for at in pieces(p.size):
        p[at] *= factor
        p[at] += r[at]
        square += float(p[at] @ p[at])
    return square


def norm(v: Vector) -> float:
    return float(v @ v) ** 0.5
