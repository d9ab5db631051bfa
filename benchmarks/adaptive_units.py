"""Adaptive in other units: how many steps do the families take when x, y or f is measured in thousandths or thousands?

    BISADDLE_DATA=folder python benchmarks/adaptive_units.py [--seeds training | held-out] [--only FAMILY] [--each N]

x, y and f times c are the same problem: f'(x', theta, y') = c_f f(x' / c_x, theta, y' / c_y) over c_x X and c_y Y, from
the start in those units. Every run goes on until its point, taken back to the units of the family, has a gap of GOAL
there, by the gradients that the method itself has found. So all runs have the same goal, which no single tol would be:
a gap adds a residual in units of f / x to one in units of f / y. tol is what the stricter of the two asks for,
GOAL c_f min(1, 1 / c_x, 1 / c_y).
"""

import argparse
import os
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
import adaptive_data
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from adaptive_cases import cases, one_by_one
from adaptive_families import Case

import bisaddle as bs
from bisaddle import sets
from bisaddle.methods.adaptive.method import Search
from bisaddle.methods.base import NotStronglyConvex
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Kernels

jax.config.update("jax_enable_x64", True)
GOAL = 1e-6
STEPS = 3000
REAL = ("NLSY", "even", "natural")


class Units(NamedTuple):
    """What x, y and f are multiplied by."""

    x: float = 1.0
    y: float = 1.0
    f: float = 1.0


SCALINGS = {f"{name} x {c:g}": Units(**{name: c}) for name in ("x", "y", "f") for c in (1e-3, 1e3)}


class InUnits(eqx.Module):
    """A function of (x, ..., data) as one of (x, ..., (data, units)) in these units."""

    function: Callable
    upper: bool = eqx.field(static=True)

    def __call__(self, x, theta, *rest):
        data, units = rest[-1]
        x = jax.tree.map(lambda leaf: leaf / units.x, x)
        y = [jax.tree.map(lambda leaf: leaf / units.y, part) for part in rest[:-1]]
        return (units.f if self.upper else 1.0) * self.function(x, theta, *y, data)


class Scaled(sets.ConvexSet):
    """c S for a set S that has no size of its own to scale."""

    capabilities = frozenset({"project", "lmo"})
    of: sets.ConvexSet
    c: Any

    def project(self, v):
        return self.c * self.of.project(v / self.c)

    def lmo(self, direction):
        return self.c * self.of.lmo(direction)

    def diameter(self, v):
        return self.c * self.of.diameter(v)


def scaled_set(of: Any, c: float) -> Any:
    if isinstance(of, sets.Product):
        return sets.Product(jax.tree.map(lambda s: scaled_set(s, c), of.sets, is_leaf=lambda s: hasattr(s, "project")))
    if isinstance(of, sets.Box):
        return sets.Box(c * np.asarray(of.lower), c * np.asarray(of.upper))
    if isinstance(of, sets.Simplex | sets.L1Ball | sets.L2Ball | sets.NuclearBall | sets.Spectrahedron):
        return type(of)(c * np.asarray(of.radius))
    return of if c == 1 else Scaled(of, jnp.asarray(c))


def in_units(problem: bs.Problem, start: bs.Point, units: Units) -> tuple[bs.Problem, bs.Point]:
    times = lambda tree, c: jax.tree.map(lambda leaf: c * np.asarray(leaf), tree)
    changed = replace(
        problem,
        upper=InUnits(problem.upper, True),
        lower=None if problem.lower is None else InUnits(problem.lower, False),
        x_set=scaled_set(problem.x_set, units.x),
        y_set=None if problem.y_set is None else scaled_set(problem.y_set, units.y),
        data=(problem.data, jax.tree.map(jnp.asarray, units)),
        constants=bs.Constants(mu_g=problem.constants.mu_g),
        derivatives=bs.Derivatives(),
    )
    return changed, bs.Point(x=times(start.x, units.x), theta=start.theta, y=times(start.y, units.y))


class Run(NamedTuple):
    steps: float
    calls: float


def run(case: Case, units: Units, goal: float = GOAL) -> Run:
    """Steps and calls until the gap in the family's own units is at most the goal; infinite if it never is."""
    problem, start, *_ = case.make()
    own = Kernels(problem, start)
    kernels = Kernels(*in_units(problem, start, units))
    x, theta, y = own.flat(start)
    search = Search(kernels, units.x * x)
    tol = goal * units.f * min(1.0, 1 / units.x, 1 / units.y)
    looks = search.from_start(units.x * x, theta, units.y * y, problem.constants.mu_g, tol)
    try:
        with np.errstate(all="ignore"):
            for look in islice(looks, STEPS):
                if not np.isfinite(look.gap):
                    break
                if look.state is not None and own_gap(own, search, units) <= goal:
                    return Run(look.k, look.counts.gradients + look.counts.hvps + look.counts.cross_products)
    except NotStronglyConvex:
        pass
    return Run(np.inf, np.inf)


def own_gap(own: Kernels, search: Search, units: Units) -> float:
    here = search.here
    x, Gx = here.x / units.x, here.Gx * (units.x / units.f)
    if "project" in own.x_set.capabilities:
        gap = norm(x - own.x_set.project(x - Gx))
    else:
        gap = float(Gx @ (x - own.x_set.lmo(Gx)))
    if own.y_set is not None:
        y, f_y = here.inner.y / units.y, here.inner.upper.f_y * (units.y / units.f)
        gap += norm(y - own.y_set.prox(y + f_y, 1.0))
    return gap


def chosen(held_out: bool, each: int, only: list[str] | None) -> list[Case]:
    """So many instances of every kind of every family, 300 x 200 matrices left out."""
    groups: dict[tuple, list[Case]] = {}
    for case in cases(held_out):
        unwanted = "300" in case.family or case.family == "radius 1e3" or (only and case.family not in only)
        if not unwanted:
            groups.setdefault(case.structure, []).append(case)
    places = lambda group: np.unique(np.linspace(0, len(group) - 1, each).round().astype(int))
    return [group[i] for group in groups.values() for i in places(group)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", choices=("training", "held-out"), default="training")
    parser.add_argument("--each", type=int, default=1, help="instances of every kind of a family")
    parser.add_argument("--only", nargs="+", metavar="FAMILY")
    parser.add_argument("--plain", action="store_true", help="the family's own units alone")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    wanted = chosen(options.seeds == "held-out", options.each, options.only)
    if adaptive_data.folder() is None:
        wanted = [case for case in wanted if case.family not in REAL]
    # weights of a network are a tree, which no scaled set takes; and its layers have units of their own
    wanted = [case for case in wanted if not case.family.startswith("network")]
    scalings = {} if options.plain else SCALINGS
    found: dict[str, list[list[Run]]] = {}
    for case in one_by_one(wanted):
        runs = [run(case, units) for units in (Units(), *scalings.values())]
        found.setdefault(case.family, []).append(runs)
        if options.verbose:
            print(f"{case!s:40}", *(f"{one.steps:5.0f}" for one in runs), f"  calls {runs[0].calls:.0f}", flush=True)
    print("medians; steps in other units relative to those in the family's own, of runs that reach the goal (failures)")
    print("| family | instances | steps | calls | " + " | ".join(scalings) + " |")
    print("|---" * (4 + len(scalings)) + "|")
    for family, rows in found.items():
        steps = np.array([[one.steps for one in runs] for runs in rows])
        calls = np.median([runs[0].calls for runs in rows])
        cells = []
        for j in range(1, steps.shape[1]):
            both = np.isfinite(steps[:, 0]) & np.isfinite(steps[:, j])
            ratio = np.median(steps[both, j] / steps[both, 0]) if np.any(both) else np.nan
            failed = int(np.sum(~np.isfinite(steps[:, j])))
            cells.append(f"{ratio:.2f}" + (f" ({failed})" if failed else ""))
        print(f"| {family} | {len(rows)} | {np.median(steps[:, 0]):.0f} | {calls:.0f} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
