"""Cases: sets of matrices."""

import cvxpy as cp
import numpy as np

from bisaddle import sets
from tests.set_cases.case import Case

SIDES = (1, 2, 5, 20, 60)


def _rectangle(n):
    return (n, max(1, 2 * n // 3))


def _square(n):
    return (n, n)


def _transport(rng, n):
    rows, columns = (rng.uniform(0.2, 2, size) for size in _rectangle(n))
    return sets.TransportPolytope(rows, columns * rows.sum() / columns.sum())


def _schatten(p, sizes):
    return Case(
        quick=p == 1.5,
        scales=("radius",),
        make=lambda rng, n: sets.SchattenBall(p, rng.uniform(0.5, 3)),
        # CVXPY has no words for other powers of singular values
        constraints=(lambda s, u: [cp.norm(u, "fro") <= s.radius]) if p == 2 else None,
        permutes=True,
        shape=_rectangle,
        sizes=sizes,
    )


CASES = {
    "NuclearBall": Case(
        scales=("radius",),
        make=lambda rng, n: sets.NuclearBall(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [cp.normNuc(u) <= s.radius],
        permutes=True,
        shape=_rectangle,
        sizes=SIDES,
    ),
    "NuclearBall-wide": Case(
        quick=False,
        scales=("radius",),
        make=lambda rng, n: sets.NuclearBall(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [cp.normNuc(u) <= s.radius],
        permutes=True,
        shape=lambda n: (n, n + 3),
        sizes=(1, 2, 5, 40),
    ),
    "SpectralBall": Case(
        scales=("radius",),
        # Clarabel misses some of these projections by 1e-5 (larger objective than ours): compared in test_sets_matrices
        make=lambda rng, n: sets.SpectralBall(rng.uniform(0.5, 3)),
        permutes=True,
        shape=_rectangle,
        sizes=SIDES,
    ),
    "Spectrahedron": Case(
        scales=("radius",),
        make=lambda rng, n: sets.Spectrahedron(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [u >> 0, cp.trace(u) == s.radius],
        shape=_square,
        sizes=(1, 2, 5, 20, 40),
        variable={"symmetric": True},
        permutes=True,
        symmetric=True,
    ),
    "Fantope": Case(
        make=lambda rng, n: sets.Fantope(int(np.ceil(n / 3))),
        constraints=lambda s, u: [u >> 0, u << np.eye(u.shape[0]), cp.trace(u) == s.k],
        shape=_square,
        sizes=(1, 2, 5, 20, 40),
        variable={"symmetric": True},
        permutes=True,
        symmetric=True,
    ),
    "Fantope-low": Case(  # 8 k < n: the iterative linear minimisation
        quick=False,
        make=lambda rng, n: sets.Fantope(2),
        shape=_square,
        sizes=(2, 5, 40),
    ),
    "SchattenBall-1.5": _schatten(1.5, (1, 2, 5, 20)),
    "SchattenBall-2": _schatten(2, (2, 5)),
    "SchattenBall-4": _schatten(4, (1, 2, 5, 20)),
    "BirkhoffPolytope": Case(
        make=lambda rng, n: sets.BirkhoffPolytope(),
        constraints=lambda s, u: [u >= 0, cp.sum(u, axis=0) == 1, cp.sum(u, axis=1) == 1],
        polyhedral=True,
        permutes=True,
        shape=_square,
        sizes=(1, 2, 5, 20, 40),
    ),
    "TransportPolytope": Case(
        scales=("rows", "columns"),
        make=_transport,
        constraints=lambda s, u: [u >= 0, cp.sum(u, axis=1) == s.rows, cp.sum(u, axis=0) == s.columns],
        polyhedral=True,
        shape=_rectangle,
        sizes=(1, 2, 5, 20, 60),
    ),
}
