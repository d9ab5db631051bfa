"""Cases: sets of vectors."""

import cvxpy as cp
import numpy as np

from bisaddle import sets
from tests.set_cases.case import Case


def _section(kind, rng, n):
    """A box, and a hyperplane through a point of it; one entry of the normal is 0."""
    lower, upper, normal = -rng.uniform(0, 2, n), rng.uniform(0, 2, n), rng.normal(size=n)
    if n > 2:
        normal[1] = 0
    return kind(normal, normal @ rng.uniform(lower, upper), lower, upper)


def _ordered_weighted_l1(weights, u):
    """A sum of sums of the k largest |u_i|, one per step of the weights."""
    steps = -np.diff(np.append(weights, 0))
    return sum(step * cp.sum_largest(cp.abs(u), k + 1) for k, step in enumerate(steps))


def _majorised(u, descending):
    """The k largest entries sum to at most those of the values, all of them to the same."""
    partial = [cp.sum_largest(u, k) <= descending[:k].sum() for k in range(1, len(descending))]
    return [*partial, cp.sum(u) == descending.sum()]


CASES = {
    "Simplex": Case(
        scales=("radius",),
        make=lambda rng, n: sets.Simplex(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [u >= 0, cp.sum(u) == s.radius],
        polyhedral=True,
        permutes=True,
    ),
    "L1Ball": Case(
        scales=("radius",),
        make=lambda rng, n: sets.L1Ball(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [cp.norm1(u) <= s.radius],
        polyhedral=True,
        permutes=True,
    ),
    "L2Ball": Case(
        scales=("radius",),
        make=lambda rng, n: sets.L2Ball(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [cp.norm2(u) <= s.radius],
        permutes=True,
    ),
    "LinfBall": Case(
        scales=("radius",),
        make=lambda rng, n: sets.LinfBall(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [cp.norm_inf(u) <= s.radius],
        polyhedral=True,
        permutes=True,
    ),
    "Box": Case(
        scales=("lower", "upper"),
        make=lambda rng, n: sets.Box(-rng.uniform(0, 2, n), rng.uniform(0, 2, n)),
        constraints=lambda s, u: [u >= s.lower, u <= s.upper],
        polyhedral=True,
    ),
    "CappedSimplex": Case(
        scales=("cap", "radius"),
        make=lambda rng, n: sets.CappedSimplex(rng.uniform(1, 4, n) / n, rng.uniform(0.3, 1)),
        constraints=lambda s, u: [u >= 0, u <= s.cap, cp.sum(u) == s.radius],
        polyhedral=True,
    ),
    "HyperSimplex": Case(
        make=lambda rng, n: sets.HyperSimplex(1 + n // 3),
        constraints=lambda s, u: [u >= 0, u <= 1, cp.sum(u) == s.k],
        polyhedral=True,
        permutes=True,
    ),
    "UnitSimplex": Case(
        scales=("radius",),
        make=lambda rng, n: sets.UnitSimplex(rng.uniform(0.5, 3)),
        constraints=lambda s, u: [u >= 0, cp.sum(u) <= s.radius],
        polyhedral=True,
        permutes=True,
    ),
    "KSparsePolytope": Case(
        scales=("radius",),
        make=lambda rng, n: sets.KSparsePolytope(rng.uniform(1, 1 + n / 2), rng.uniform(0.5, 2)),
        constraints=lambda s, u: [cp.norm_inf(u) <= s.radius, cp.norm1(u) <= s.k * s.radius],
        polyhedral=True,
        permutes=True,
    ),
    "HyperplaneBox": Case(
        scales=("offset", "lower", "upper"),
        make=lambda rng, n: _section(sets.HyperplaneBox, rng, n),
        constraints=lambda s, u: [u >= s.lower, u <= s.upper, s.normal @ u == s.offset],
        polyhedral=True,
    ),
    "HalfspaceBox": Case(
        scales=("offset", "lower", "upper"),
        make=lambda rng, n: _section(sets.HalfspaceBox, rng, n),
        constraints=lambda s, u: [u >= s.lower, u <= s.upper, s.normal @ u <= s.offset],
        polyhedral=True,
    ),
    "Singleton": Case(
        scales=("value",),
        make=lambda rng, n: sets.Singleton(rng.normal(size=n)),
        constraints=lambda s, u: [u == s.value],
        polyhedral=True,
    ),
    "FreeBall": Case(
        quick=False,
        scales=("radius",),
        make=lambda rng, n: sets.FreeBall(),
        constraints=lambda s, u: [cp.norm2(u) <= s.radius],
        permutes=True,
    ),
    "WeightedL1Ball": Case(
        scales=("radius",),
        make=lambda rng, n: sets.WeightedL1Ball(rng.uniform(0.3, 3, n), rng.uniform(0.5, 3)),
        constraints=lambda s, u: [s.weights @ cp.abs(u) <= s.radius],
        polyhedral=True,
    ),
    "LpBall-1.5": Case(
        scales=("radius",),
        make=lambda rng, n: sets.LpBall(1.5, rng.uniform(0.5, 3)),
        constraints=lambda s, u: [cp.pnorm(u, 1.5) <= s.radius],
        permutes=True,
    ),
    "LpBall-3": Case(
        quick=False,
        scales=("radius",),
        make=lambda rng, n: sets.LpBall(3, rng.uniform(0.5, 3)),
        # Clarabel stalls 1.5e-6 away on cp.pnorm; tests/test_sets_vectors.py checks the optimality conditions too
        constraints=lambda s, u: [cp.sum(cp.power(cp.abs(u), 3)) <= s.radius**3],
        permutes=True,
    ),
    "Ellipsoid": Case(
        scales=("axes", "center"),
        # Clarabel stalls ("optimal_inaccurate") 1e-6 to 1e-4 away on larger ellipsoids and in other words for this one;
        # tests/test_sets_vectors.py checks the optimality conditions instead, on axes from 0.2 to 3
        make=lambda rng, n: sets.Ellipsoid(rng.uniform(0.05, 0.3, n), 0.5 * rng.normal(size=n)),
        constraints=lambda s, u: [
            sum(cp.quad_over_lin(u[i] - s.center[i], axis**2) for i, axis in enumerate(s.axes)) <= 1
        ],
    ),
    "GroupBall": Case(
        scales=("radius",),
        make=lambda rng, n: sets.GroupBall(np.arange(n) % (1 + n // 3), rng.uniform(0.5, 3)),
        constraints=lambda s, u: [sum(cp.norm2(u[np.equal(s.groups, g)]) for g in set(s.groups)) <= s.radius],
    ),
    "OrderedWeightedL1Ball": Case(
        scales=("radius",),
        make=lambda rng, n: sets.OrderedWeightedL1Ball(np.sort(rng.uniform(0.1, 2, n))[::-1], rng.uniform(0.5, 3)),
        constraints=lambda s, u: [_ordered_weighted_l1(s.weights, u) <= s.radius],
        polyhedral=True,
        permutes=True,
    ),
    "Permutahedron": Case(
        scales=("values",),
        make=lambda rng, n: sets.Permutahedron(rng.normal(size=n)),
        constraints=lambda s, u: _majorised(u, np.sort(s.values)[::-1]),
        polyhedral=True,
        permutes=True,
    ),
}
