"""Cases: polytopes, sets made from other sets, and penalties as the sets of their domains."""

import cvxpy as cp
import jax.numpy as jnp
import numpy as np

from bisaddle import sets
from tests.set_cases.case import Case


def _rotation(rng, n):
    return np.linalg.qr(rng.normal(size=(n, n)))[0]


def _polyhedron(rng, n):
    """Random halfspaces around a point, an equation through it, and bounds on some sides."""
    inside = 0.3 * rng.normal(size=n)
    A = rng.normal(size=(2 * n, n))
    E = rng.normal(size=(1, n)) if n > 1 else None
    e = None if E is None else E @ inside
    upper = np.where(rng.random(n) < 0.5, np.inf, inside + 1)
    return sets.Polyhedron(A, A @ inside + rng.uniform(0.2, 1, 2 * n), E, e, lower=inside - 2, upper=upper + 1)


def _in_polyhedron(s, u):
    finite = np.isfinite(s.upper)
    equations = [] if s.E is None else [s.E @ u == s.e]
    return [s.A @ u <= s.b, u >= s.lower, u[finite] <= s.upper[finite], *equations]


def _hull_of(vertices, u):
    w = cp.Variable(len(vertices))
    return [w >= 0, cp.sum(w) == 1, u == vertices.T @ w]


def _image(s, u):
    w = cp.Variable(s.matrix.shape[1])
    return [u == s.matrix @ w, cp.norm1(w) <= s.inner.radius]


CASES = {
    "ConvexHull": Case(
        scales=("vertices",),
        make=lambda rng, n: sets.ConvexHull(rng.normal(size=(n + 3, n))),
        constraints=lambda s, u: _hull_of(s.vertices, u),
        polyhedral=True,
        sizes=(1, 2, 5, 50),
    ),
    "ConvexHull with fewer vertices than coordinates, and repeated ones": Case(
        quick=False,
        make=lambda rng, n: sets.ConvexHull(np.repeat(rng.normal(size=(max(n // 2, 1), n)), 2, axis=0)),
        constraints=lambda s, u: _hull_of(s.vertices, u),
        polyhedral=True,
        sizes=(1, 2, 4, 50),
    ),
    "Polyhedron": Case(
        make=_polyhedron,
        constraints=_in_polyhedron,
        polyhedral=True,
        sizes=(
            1,
            2,
            4,
            20,
        ),  # a linear program per point: 4, not 5, keeps it out of the quick laws
    ),
    "Custom": Case(
        make=lambda rng, n: sets.Custom(
            project=lambda v: jnp.clip(v, -1, 2), lmo=sets.Box(-1.0, 2.0).lmo, diameter=3.0 * n**0.5
        ),
        constraints=lambda s, u: [u >= -1, u <= 2],
        polyhedral=True,
        permutes=True,
        sizes=(1, 2, 5, 50),
    ),
    "Intersection": Case(
        make=lambda rng, n: sets.Intersection([sets.Box(0.0, max(1.0, 2.5 / n)), sets.Simplex(rng.uniform(0.6, 1))]),
        constraints=lambda s, u: [u >= 0, u <= s.sets[0].upper, cp.sum(u) == s.sets[1].radius],
        permutes=True,
        sizes=(1, 2, 5, 20),
    ),
    "Intersection of three": Case(
        quick=False,
        make=lambda rng, n: sets.Intersection([sets.L1Ball(1.5), sets.LinfBall(0.8), sets.Box(-0.3, 2.0)]),
        constraints=lambda s, u: [cp.norm1(u) <= 1.5, cp.norm_inf(u) <= 0.8, u >= -0.3],
        sizes=(1, 2, 4, 20),
    ),
    "Scaled": Case(
        scales=("factor",),
        make=lambda rng, n: sets.Scaled(sets.Simplex(), -rng.uniform(0.5, 3)),
        constraints=lambda s, u: [u <= 0, cp.sum(u) == s.factor],
        polyhedral=True,
        permutes=True,
    ),
    "Translated": Case(
        make=lambda rng, n: sets.Translated(sets.L1Ball(rng.uniform(0.5, 3)), rng.normal(size=n)),
        constraints=lambda s, u: [cp.norm1(u - s.offset) <= s.inner.radius],
        polyhedral=True,
    ),
    "Rotated": Case(
        make=lambda rng, n: sets.Rotated(sets.L1Ball(rng.uniform(0.5, 3)), _rotation(rng, n)),
        constraints=lambda s, u: [cp.norm1(s.rotation.T @ u) <= s.inner.radius],
        polyhedral=True,
    ),
    "Image": Case(
        make=lambda rng, n: sets.Image(rng.normal(size=(n, n + 2)), sets.L1Ball(rng.uniform(0.5, 3))),
        constraints=_image,
        polyhedral=True,
        sizes=(1, 2, 5, 50),
    ),
    "Image of a ball, by a tall matrix": Case(
        quick=False,
        make=lambda rng, n: sets.Image(rng.normal(size=(n, max(n // 2, 1))), sets.L2Ball(1.5)),
        sizes=(1, 2, 5),
    ),
    "Entropy": Case(
        quick=False,
        scales=("radius",),
        make=lambda rng, n: sets.Entropy(0.3, rng.uniform(0.5, 3)),
        constraints=lambda s, u: [u >= 0, cp.sum(u) == s.radius],
        polyhedral=True,
        permutes=True,
        sizes=(2, 5),
    ),
    "ElasticNet": Case(
        quick=False,
        make=lambda rng, n: sets.ElasticNet(0.3, 0.2, sets.Box(-1.0, rng.uniform(0, 2, n))),
        constraints=lambda s, u: [u >= -1, u <= s.domain.upper],
        polyhedral=True,
        sizes=(2, 5),
    ),
}
