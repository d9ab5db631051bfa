"""Which instances of the families of adaptive_families.py are run: training and held-out seeds, and the hard ones."""

from collections.abc import Iterable, Iterator
from itertools import groupby, product

import adaptive_matrices
import adaptive_networks
import adaptive_nuclear
import adaptive_published
import adaptive_steep
import jax
from adaptive_families import CONCAVE, MINIMAX, MULTITASK, Case, Settings

from bisaddle import programs

GRID = [
    Settings(rho, beta, Q, fixed)
    for fixed, rho, beta, Q in product((False, True), (0.01, 0.1, 1.0), (0.0, 0.01, 0.05, 1.0), (1.0, 5.0))
]
Y_SETS = ("box", "ball", "simplices", "KL ball")

# names of ADAPTIVE.md, section 5; a number after a family's name there is read as a seed
HARD = {
    "nat b0 rho1.0 Q5 fr1": Case("natural", Settings(1.0, 0.0, 5.0, True), 0),
    "nat b0 rho0.1 Q5 fr0": Case("natural", Settings(0.1, 0.0, 5.0, False), 0),
    "nat b0 rho0.1 Q5 fr1": Case("natural", Settings(0.1, 0.0, 5.0, True), 0),
    "even b0 rho0.1 Q5 fr0": Case("even", Settings(0.1, 0.0, 5.0, False), 0),
    "nat b0.05 rho0.01 Q5 fr0": Case("natural", Settings(0.01, 0.05, 5.0, False), 0),
    "even20 b0.01 rho0.01 fr0": Case("even", Settings(0.01, 0.01, 5.0, False), 20),
    "nat30 b1.0 rho0.01 fr0": Case("natural", Settings(0.01, 1.0, 5.0, False), 30),
    "syn10 b0 rho0.01 fr0": Case("synthetic", Settings(0.01, 0.0, 5.0, False), 10),
    "Rosen-Suzuki": Case("lifted", Settings(kind="RosenSuzuki"), 0),
    "Mifflin1 from (.8, .6)": Case("mifflin1 from (.8, .6)", Settings(kind="Mifflin1"), 0),
}


def one_by_one(chosen: Iterable[Case]) -> Iterator[Case]:
    """The cases, and after the last of a structure its compiled programs are dropped."""
    for _, alike in groupby(chosen, key=lambda case: case.structure):
        yield from alike
        jax.clear_caches()
        programs.clear()


def cases(held_out: bool, few: bool = False) -> list[Case]:
    """All cases, instances of a structure together. Training seeds are below 1000, held-out seeds from 1000."""
    first = 1000 if held_out else 0
    found = []
    for i, name in enumerate(MULTITASK):
        # every setting once, each with a seed of its own; in a short run every twelfth
        chosen = [(j, s) for j, s in enumerate(GRID) if not few or j % 12 == (3 * i) % 12]
        found += [Case(name, s, first + j) for j, s in chosen]
    found += [Case("logistic", s, first + j) for j, s in enumerate(GRID) if j % (12 if few else 2) == 1]
    for family, kind in product(("lifted", "minimax"), MINIMAX):
        found += [Case(family, Settings(kind=kind), first + j) for j in range(1 if few else 5)]
    for kind, y_set in product(CONCAVE, Y_SETS):
        found += [Case("concave", Settings(kind=kind, y_set=y_set), first + j) for j in range(1 if few else 15)]
    for kind in adaptive_steep.LOWER:
        found += [Case("steep", Settings(kind=kind), first + j) for j in range(1 if few else 10)]
    for radius, kind in product((1e3, 1e6), adaptive_published.PUBLISHED):
        found.append(Case(f"radius {'1e3' if radius == 1e3 else '1e6'}", Settings(Q=radius, kind=kind), first))
    for size, rho in product(adaptive_nuclear.SIZES, (0.01, 0.1, 1.0)):
        seeds = 1 if few or size == "300 x 200" else 5
        found += [Case(f"nuclear {size}", Settings(rho, kind="LMO"), first + j) for j in range(seeds)]
    for (kind, size), rho in product(adaptive_matrices.FAMILIES, (0.01, 0.1, 1.0)):
        seeds = range(1 if few or size == "40 x 40" else 5)
        found += [Case(f"{kind} {size}", Settings(rho, kind="matrix"), first + j) for j in seeds]
    for kind in adaptive_networks.NETWORKS:
        found += [Case(f"network {kind}", Settings(kind=kind), first + j) for j in range(1 if few else 10)]
    return sorted(found, key=lambda case: [str(part) for part in case.structure])
