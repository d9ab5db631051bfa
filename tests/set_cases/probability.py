"""Cases: sets of probability vectors."""

import cvxpy as cp
import numpy as np

from bisaddle import sets
from tests.set_cases.case import Case


def _distribution(rng, n):
    weights = rng.uniform(0.2, 2, n)
    return weights / weights.sum()


def _mean_constrained(rng, n):
    values = rng.normal(size=n)
    middle = _distribution(rng, n) @ values
    return sets.MeanConstrainedSimplex(values, middle - 0.05 * np.std(values), middle + 0.1 * np.std(values))


def _simplex(u):
    return [u >= 0, cp.sum(u) == 1]


CASES = {
    "KLBall": Case(
        make=lambda rng, n: sets.KLBall(_distribution(rng, n), rng.uniform(0.05, 0.5)),
        constraints=lambda s, u: [*_simplex(u), cp.sum(cp.rel_entr(u, s.reference)) <= s.radius],
    ),
    "ChiSquareBall": Case(
        make=lambda rng, n: sets.ChiSquareBall(_distribution(rng, n), rng.uniform(0.1, 1)),
        constraints=lambda s, u: [
            *_simplex(u),
            # Clarabel stalls up to 7e-6 away on cp.norm2 and cp.sum_squares; tests/test_sets_vectors.py checks the
            # optimality conditions too
            sum(cp.quad_over_lin(u[i] - q, q) for i, q in enumerate(s.reference)) <= s.radius,
        ],
    ),
    "TVBall": Case(
        make=lambda rng, n: sets.TVBall(_distribution(rng, n), rng.uniform(0.1, 0.5)),
        constraints=lambda s, u: [*_simplex(u), cp.norm1(u - s.reference) <= 2 * s.radius],
        polyhedral=True,
    ),
    "CVaRSet": Case(
        make=lambda rng, n: sets.CVaRSet(rng.uniform(0.3, 0.8), _distribution(rng, n)),
        constraints=lambda s, u: [*_simplex(u), u <= s.reference / (1 - s.level)],
        polyhedral=True,
    ),
    "MeanConstrainedSimplex": Case(
        make=_mean_constrained,
        constraints=lambda s, u: [*_simplex(u), s.values @ u >= s.lower, s.values @ u <= s.upper],
        polyhedral=True,
    ),
}
