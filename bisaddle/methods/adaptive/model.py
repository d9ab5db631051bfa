"""A model of f_mu around a place, from the second derivatives of f, and where it is least: for a small x alone."""

from typing import NamedTuple

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.coordinates import Space
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Upper, Vector
from bisaddle.sets.flat import FlatSet
from bisaddle.sets.flat_base import Face


class Spot(NamedTuple):
    """The model at some d: its value and gradient, the maximiser y, and how that moves with what is projected.

    value: beside f - mu/2 |y - y0|^2 at x and base, so that small steps lose no digits.
    """

    value: float
    gradient: Vector
    y: Vector
    face: Face


class Model(NamedTuple):
    """f_mu(x + d), for an f that is linear in y, with f and f_y expanded in d and the maximum over y left as it is:

        m(d) = max_{y in Y} f + <f_x, d> + <d, f_x_x d> / 2 + <f_y + f_y_x d, y - base> - mu/2 |y - y0|^2

    f and its derivatives are those at x and base. So it is as exact as a quadratic on each of the pieces of f_mu, on
    which y is in one face of Y, and knows where they end.
    """

    y_set: FlatSet
    upper: Upper
    f_x_x: Vector
    f_x_y: Vector
    base: Vector
    y0: Vector
    mu: float

    def at(self, d: Vector) -> Spot:
        """The maximiser is the projection of y0 + (f_y + f_y_x d) / mu."""
        bent, f_y = self.f_x_x @ d, self.upper.f_y + d @ self.f_x_y
        face = self.y_set.face(self.y0 + f_y / self.mu)
        y = face.point
        step = y - self.base
        away = 0.5 * (y + self.base) - self.y0
        value = float(d @ (self.upper.f_x + 0.5 * bent) + (f_y - self.mu * away) @ step)
        return Spot(value, self.upper.f_x + bent + self.f_x_y @ step, y, face)

    def rounding(self) -> float:
        """A decrease that is none: steps by rounding in the gradient promise as much, a square of it."""
        size = abs(self.upper.value) + norm(self.upper.f_y) * norm(self.base)
        return (const.MODEL_NOTHING * np.finfo(self.base.dtype).eps) ** 2 * size

    def hessian(self, spot: Spot) -> Vector:
        """f_x_x + f_x_y D f_y_x / mu, D the derivative of the projection."""
        return self.f_x_x + derivative_times(spot.face, self.f_x_y) @ self.f_x_y.T / self.mu


class Step(NamedTuple):
    """A step d for which the model promises a decrease, with y there; rounds: Newton steps that it took to find it.

    left: how far from stationary the model is there, relative to how far at d = 0.
    """

    d: Vector
    decrease: float
    y: Vector
    rounds: int
    left: float = 0.0


def derivative_times(face: Face, rows: Vector) -> Vector:
    """D row for every row: `along` is D where nothing bends, else D = (I + bend)^-1 in its range."""
    along = face.along(rows)
    if face.bend is None:
        return along
    units = np.eye(rows.shape[1])
    return np.linalg.solve(units + face.bend(face.along(units)), along.T).T


def minimised(model: Model, space: Space, x: Vector, radius: float) -> Step:
    """The d with x + d in X and |d| <= radius at which the model is least, by Newton's method from 0.

    On a piece of a convex model one step is exact; at the end of a piece the next one begins. Where it is not convex,
    the d is one from which no step leads further down.
    """
    d, spot = np.zeros_like(x), model.at(np.zeros_like(x))
    first, rounds, least, slope_0, tau = spot.value, 0, model.rounding(), spot.gradient, 1.0
    while rounds < const.MODEL_STEPS:
        rounds += 1
        H = model.hessian(spot)
        tau = 1 / max(float(np.abs(H).sum(axis=0).max()), const.TINIEST)
        face = space.face(x + d - tau * spot.gradient)
        E = None if face.free else projector(face, x.size)
        p = _within(d, newton_step(space, x + d, spot.gradient, H, tau, face, E, radius), radius)
        slope = float(spot.gradient @ p)
        if not slope < 0:
            p = _within(d, face.point - x - d, radius)
            slope = float(spot.gradient @ p)
        enough = max(least, const.MODEL_ENOUGH * (first - spot.value) if rounds > 1 else 0.0)
        if not -slope > enough:
            break
        length, new = _searched(model, d, spot, p, slope)
        if new is None:
            break
        d, before, spot = d + length * p, spot, new
        if length == 1 and norm(_part(E, spot.gradient)) <= const.MODEL_FLAT * norm(_part(E, before.gradient)):
            break
    from_0 = norm(space.project(x - tau * slope_0) - x)
    left = norm(space.project(x + d - tau * spot.gradient) - x - d) / max(from_0, const.TINIEST)
    return Step(d, first - spot.value, spot.y, rounds, left)


def _within(d: Vector, p: Vector, radius: float) -> Vector:
    """p, shortened so that |d + p| <= radius: towards d = 0, which keeps a point of X in it."""
    end = d + p
    length = norm(end)
    return p if length <= radius else (radius / length) * end - d


def _searched(model: Model, d: Vector, spot: Spot, p: Vector, slope: float) -> tuple[float, Spot | None]:
    """How far along p the model is low enough, and the model there; None if nowhere."""
    length, (least, most) = 1.0, const.SHORTEN
    for _ in range(const.MODEL_TRIALS):
        new = model.at(d + length * p)
        if new.value <= spot.value + const.DECREASE * length * slope:
            return length, new
        rise = new.value - spot.value - length * slope
        length *= min(max(-0.5 * length * slope / rise, least), most) if rise > 0 else most
    return 0.0, None


def newton_step(
    space: Space, z: Vector, gradient: Vector, H: Vector, tau: float, face: Face, E: Vector | None, radius: float
) -> Vector:
    """Newton's step from z to a stationary point, in the face of X that a projected gradient step ends in.

        E (H + K / tau) E t = E (d0 + K d0) / tau - E H n,      d0 = P(z - tau gradient) - z,    n = d0 - E d0

    K: the bend of the face; the step is n + t. E: None where all directions are free. A step that ends beyond a border
    which is flat is made anew in the face that it ends in, up to a few times.
    """
    if E is None:
        p = _in_face(H, None, None, -gradient, radius)
    else:
        d0 = face.point - z
        t = E @ d0
        normal, right, bent = d0 - t, t / tau, None
        if face.bend is not None:
            bent = face.bend(E) / tau
            right = right + bent @ t
        p = normal + _in_face(H, E, bent, right - E @ (H @ normal), radius)
    end = space.project(z + p)
    for _ in range(const.MODEL_FACES if face.bend is None else 0):
        if norm(end - z - p) <= const.MODEL_FLAT * norm(p):
            break
        beyond = space.face(z + p)
        if beyond.bend is not None:
            break
        other = projector(beyond, z.size)
        E = other if E is None else as_projector(other @ E @ other)
        normal = (end - z) - E @ (end - z)
        p = normal + _in_face(H, E, None, -E @ (gradient + H @ normal), radius)
        end = space.project(z + p)
    return end - z


def _part(E: Vector | None, v: Vector) -> Vector:
    """Of v in the range of E; None is the identity."""
    return v if E is None else E @ v


def projector(face: Face, size: int) -> Vector:
    """Onto the range of the derivative of a projection."""
    return as_projector(face.along(np.eye(size)))


def as_projector(E: Vector) -> Vector:
    """E, if it is one already; else onto the directions which it does not shrink much."""
    if np.abs(E @ E - E).max() <= const.MODEL_FLAT:
        return E
    sizes, directions = np.linalg.eigh(0.5 * (E + E.T))
    kept = directions[:, sizes > const.MODEL_KEPT]
    return kept @ kept.T


def _in_face(H: Vector, E: Vector | None, bent: Vector | None, right: Vector, radius: float) -> Vector:
    """t in the range of E with E (H + bent) E t = right; where that is not convex, or too long, along its curvatures.

    There each curvature counts by its size, with so much added to all of them that |t| is about the radius.
    """
    M = H if E is None else E @ H @ E
    if bent is not None:
        M = M + bent
    M = 0.5 * (M + M.T)
    if E is not None:
        scale = max(float(np.abs(M).max()), const.TINIEST)
        M += scale * (np.eye(len(M)) - E)  # outside of the face right is 0
    try:
        np.linalg.cholesky(M)
        t = np.linalg.solve(M, right)
        most = const.MODEL_LONGER * radius
        if np.abs(t).max() <= most and norm(t) <= most:  # squares of what is far too long may overflow
            return _part(E, t)
    except np.linalg.LinAlgError:
        pass
    if not np.isfinite(M).all():
        return np.zeros_like(right)
    sizes, directions = np.linalg.eigh(M)
    # where nothing curves, as in a linear program, what the radius stands for sets the scale
    scale = max(float(np.abs(sizes).max()), norm(right) / max(radius, const.TINIEST))
    sizes = np.maximum(np.abs(sizes), const.MODEL_ROUNDING * scale + const.TINIEST)
    parts, shift = directions.T @ right, 0.0
    t = parts / sizes
    for _ in range(const.MODEL_SHIFTS):
        length = norm(t)
        if length <= const.MODEL_LONGER * radius:
            break
        # Newton's method for 1 / |t| = 1 / radius, nearly linear in the shift
        unit = t / length
        shift += (length - radius) / radius / float(unit @ (unit / (sizes + shift)))
        t = parts / (sizes + shift)
    return _part(E, directions @ t)
