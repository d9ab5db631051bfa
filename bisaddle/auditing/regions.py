"""The sets of a problem, on flat float64 vectors: textbook forms where there are, else their own oracles, checked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.flatten_util import ravel_pytree

from bisaddle import sets
from bisaddle.auditing import textbook
from bisaddle.auditing.textbook import Vector
from bisaddle.sets.base import ConvexSet
from bisaddle.sets.prox import Penalty

EPS = float(np.finfo(np.float64).eps)
# rounds of the projection onto an intersection
ROUNDS = 20_000
# points that the answers of a set without a textbook form are held against
WITNESSES = 16

Oracle = Callable[[Vector], Vector]


@dataclass
class Region:
    """A set of flat vectors. textbook: whether nothing of bisaddle.sets is behind its oracles.

    slack: how far an answer so far may be off by, beyond rounding; it grows as answers are checked.
    """

    name: str
    project: Oracle | None
    lmo: Oracle | None
    textbook: bool = True
    prox: Callable[[Vector, float], Vector] | None = None
    penalty: Callable[[Vector], float] = field(default=lambda v: 0.0)
    distance: Callable[[Vector], float] | None = None
    blocks: list[tuple["Region", slice]] = field(default_factory=list)
    own_slack: float = 0.0

    @property
    def slack(self) -> float:
        return self.own_slack + sum(block.slack for block, _ in self.blocks)

    def violation(self, v: Vector) -> float:
        if self.distance is not None:
            return self.distance(v)
        return float(np.linalg.norm(v - self.nearest(v)))

    def nearest(self, v: Vector) -> Vector:
        assert self.project is not None, f"{self.name} has no projection"
        return self.project(v) if np.all(np.isfinite(v)) else np.full(v.size, np.nan)

    def cheapest(self, d: Vector) -> Vector:
        assert self.lmo is not None, f"{self.name} has no linear minimisation oracle"
        return self.lmo(d) if np.all(np.isfinite(d)) else np.full(d.size, np.nan)

    def moved(self, v: Vector, step: float) -> Vector:
        """The proximal point of step h, the projection where there is no penalty h."""
        if self.prox is None or not np.all(np.isfinite(v)):
            return self.nearest(v)
        return self.prox(v, step)

    def points(self, rng: np.random.Generator, around: Vector, count: int) -> Vector:
        """Points of the set, one a row: a third far out, a third mixtures of those, a third beside `around`."""
        noise = rng.normal(size=(count, around.size))
        if self.lmo is not None:
            far = np.array([self.lmo(direction) for direction in noise])
        else:
            size = 1 + np.linalg.norm(around)
            far = np.array([self.nearest(around + size * direction) for direction in noise])
        third = count // 3
        weights = rng.dirichlet(np.full(count, 0.2), size=third)
        far[:third] = weights @ far
        far[third : 2 * third] = around + rng.uniform(0, 0.3, (third, 1)) * (far[third : 2 * third] - around)
        return far


def region_of(a_set: ConvexSet, value: Any) -> Region:
    """The set of flat vectors for trees shaped like `value`."""
    make = _TEXTBOOK.get(type(a_set))
    region = None if make is None else make(a_set, value)
    return _own_oracles(a_set, value) if region is None else region


# -- one vector, or one for every slice along an axis ----------------------------------------------------------------


def _vectors(project: Callable, lmo: Callable) -> Callable[[Any, Any], Region]:
    """project and lmo: functions of (set, vector)."""

    def make(a_set: Any, value: Any) -> Region:
        # a pytree that the set takes as one vector is flat here already
        shape = np.shape(value) if hasattr(value, "shape") else (sum(map(np.size, jax.tree.leaves(value))),)
        axes = range(len(shape)) if a_set.axis is None else np.atleast_1d(a_set.axis) % len(shape)
        places = np.arange(int(np.prod(shape))).reshape(shape)
        others = [a for a in range(len(shape)) if a not in set(axes)]
        rows = places.transpose([*others, *axes]).reshape(-1, int(np.prod([shape[a] for a in axes])))

        def each(oracle: Callable) -> Oracle:
            def flat(v: Vector) -> Vector:
                answer = np.empty(v.size)
                for row in rows:
                    answer[row] = oracle(a_set, v[row])
                return answer

            return flat

        return Region(type(a_set).__name__, each(project), each(lmo))

    return make


def _with_radius(project: Callable, lmo: Callable) -> Callable[[Any, Any], Region]:
    return _vectors(lambda s, v: project(v, float(s.radius)), lambda s, d: lmo(d, float(s.radius)))


def _around_reference(project: Callable, lmo: Callable) -> Callable[[Any, Any], Region]:
    def reference(a_set: Any) -> Vector:
        q = np.asarray(a_set.reference, np.float64).ravel()
        return q / np.sum(q)

    return _vectors(
        lambda s, v: project(v, reference(s), float(s.radius)), lambda s, d: lmo(d, reference(s), float(s.radius))
    )


def _capped(a_set: Any, value: Any) -> Region:
    def limits(s: Any, v: Vector) -> tuple[Vector, float]:
        if isinstance(s, sets.HyperSimplex):
            return np.ones(v.size), float(s.k)
        return np.broadcast_to(np.asarray(s.cap, np.float64).ravel(), v.shape), float(s.radius)

    make = _vectors(
        lambda s, v: textbook.project_capped(v, *limits(s, v)), lambda s, d: textbook.lmo_capped(d, *limits(s, d))
    )
    return make(a_set, value)


def _box(a_set: Any, value: Any) -> Region:
    low, high = (np.broadcast_to(np.asarray(b, np.float64), np.shape(value)).ravel() for b in vars(a_set).values())
    return Region("Box", lambda v: np.clip(v, low, high), lambda d: np.where(d > 0, low, high))


def _linf(s: Any, v: Vector) -> Vector:
    return np.clip(v, -float(s.radius), float(s.radius))


# -- matrices ---------------------------------------------------------------------------------------------------------


def _matrices(project: Callable, lmo: Callable) -> Callable[[Any, Any], Region | None]:
    """project and lmo: functions of (matrix, radius); a stack of matrices is left to the set's own oracles."""

    def make(a_set: Any, value: Any) -> Region | None:
        shape, radius = np.shape(value), float(a_set.radius)
        if len(shape) != 2:
            return None
        flat = lambda oracle: lambda v: oracle(v.reshape(shape), radius).ravel()
        return Region(type(a_set).__name__, flat(project), flat(lmo))

    return make


def _project_nuclear(V: Vector, radius: float) -> Vector:
    return textbook.project_singular(V, lambda s: textbook.project_l1(s, radius))


def _lmo_nuclear(D: Vector, radius: float) -> Vector:
    U, _, Wt = np.linalg.svd(D, full_matrices=False)
    return -radius * np.outer(U[:, 0], Wt[0])


def _project_spectral(V: Vector, radius: float) -> Vector:
    return textbook.project_singular(V, lambda s: np.minimum(s, radius))


def _lmo_spectral(D: Vector, radius: float) -> Vector:
    U, _, Wt = np.linalg.svd(D, full_matrices=False)
    return -radius * U @ Wt


# -- sets of sets -----------------------------------------------------------------------------------------------------


def _product(a_set: sets.Product, value: Any) -> Region:
    blocks, begin = [], 0
    for block, part in a_set.split(value):
        size = sum(int(np.size(leaf)) for leaf in jax.tree.leaves(part))
        blocks.append((region_of(block, part), slice(begin, begin + size)))
        begin += size

    def joined(oracle: Callable[[Region], Callable], *rest: Any) -> Oracle:
        return lambda v: np.concatenate([oracle(block)(v[place], *rest) for block, place in blocks])

    able = lambda oracle: all(getattr(block, oracle) is not None for block, _ in blocks)
    return Region(
        "Product of " + ", ".join(block.name for block, _ in blocks),
        joined(lambda block: block.nearest) if able("project") else None,
        joined(lambda block: block.cheapest) if able("lmo") else None,
        all(block.textbook for block, _ in blocks),
        prox=lambda v, step: joined(lambda block: block.moved, step)(v),
        penalty=lambda v: sum(block.penalty(v[place]) for block, place in blocks),
        distance=lambda v: float(np.linalg.norm([block.violation(v[place]) for block, place in blocks])),
        blocks=blocks,
    )


def _intersection(a_set: sets.Intersection, value: Any) -> Region:
    parts = [region_of(part, value) for part in a_set.sets]
    region = Region(
        "Intersection of " + ", ".join(part.name for part in parts),
        None,
        None,
        all(part.textbook for part in parts),
        distance=lambda v: float(np.linalg.norm([part.violation(v) for part in parts])),
        blocks=[(part, slice(None)) for part in parts],
    )

    def project(v: Vector) -> Vector:
        answer, apart = _alternate(parts, v)
        region.own_slack = max(region.own_slack, apart)
        return answer

    region.project = project
    return region


def _alternate(parts: list[Region], v: Vector) -> tuple[Vector, float]:
    """The projection onto the intersection by alternating directions, and how far it may be off.

        u = (v + rho sum_i (x_i - z_i)) / (1 + rho parts),     x_i = P_i(u + z_i),     z_i = z_i + u - x_i

    rho z_i is normal to part i at x_i, and at rest v - u is their sum and all x_i are u: that is the whole condition.
    Else, for every s of the intersection, <v - u, s - u> <= rho sum_i <z_i, x_i - u>, up to what u still moves, and
    |u - P(v)|^2 is not more than that.
    """
    first = parts[0].nearest(v)
    size = float(np.linalg.norm(first)) or 1.0
    rho = max(1.0, float(np.linalg.norm(v - first)) / size)
    ends, duals = [first] * len(parts), [(v - first) / (rho * len(parts))] * len(parts)
    u, apart, moves = first, np.inf, np.inf
    for _ in range(ROUNDS):
        before = u
        u = (v + rho * sum(x - z for x, z in zip(ends, duals, strict=True))) / (1 + rho * len(parts))
        ends = [part.nearest(u + z) for part, z in zip(parts, duals, strict=True)]
        duals = [z + u - x for x, z in zip(ends, duals, strict=True)]
        apart, moves = max(float(np.linalg.norm(x - u)) for x in ends), float(np.linalg.norm(u - before))
        if not max(apart, moves) > 8 * EPS * size:
            return u, 512 * EPS * size  # a slow rate has further to go than its last step
    slack = rho * sum(float(z @ (x - u)) for x, z in zip(ends, duals, strict=True)) + rho * moves * size
    return u, apart + max(slack, 0.0) ** 0.5


def _similar(a_set: Any, value: Any) -> Region | None:
    """Scaled and Translated, of sets of one array."""
    if not hasattr(value, "shape"):
        return None
    inner = region_of(a_set.inner, value)
    factor = float(getattr(a_set, "factor", 1.0))
    offset = np.broadcast_to(np.asarray(getattr(a_set, "offset", 0.0), np.float64), np.shape(value)).ravel()
    able = a_set.capabilities
    return Region(
        f"{type(a_set).__name__} {inner.name}",
        (lambda v: factor * inner.nearest((v - offset) / factor) + offset) if "project" in able else None,
        (lambda d: factor * inner.cheapest(factor * d) + offset) if "lmo" in able else None,
        inner.textbook,
        prox=lambda v, step: factor * inner.moved((v - offset) / factor, step / factor**2) + offset,
        penalty=lambda v: inner.penalty((v - offset) / factor),
        distance=lambda v: abs(factor) * inner.violation((v - offset) / factor),
        blocks=[(inner, slice(None))],
    )


# -- penalties --------------------------------------------------------------------------------------------------------


def _entropy(a_set: sets.Entropy, value: Any) -> Region:
    weight, radius = float(a_set.weight), float(a_set.radius)
    region = region_of(a_set.region, value)
    step_of = lambda step: _vectors(lambda s, v: textbook.prox_entropy(v, step * weight, radius), lambda s, d: d)
    region.prox = lambda v, step: step_of(step)(a_set.region, value).nearest(v)
    region.penalty = lambda v: weight * float(np.sum(np.where(v > 0, v, 1.0) * np.log(np.where(v > 0, v, 1.0))))
    return region


def _squared_l2(a_set: sets.SquaredL2, value: Any) -> Region | None:
    if not hasattr(value, "shape"):
        return None
    weight, region = float(a_set.weight), region_of(a_set.domain, value)
    center = np.broadcast_to(np.asarray(a_set.center, np.float64), np.shape(value)).ravel()
    region.prox = lambda v, step: region.nearest((v + step * weight * center) / (1 + step * weight))
    region.penalty = lambda v: 0.5 * weight * float(np.sum((v - center) ** 2))
    return region


def _elastic_net(a_set: sets.ElasticNet, value: Any) -> Region:
    l1, l2, region = float(a_set.l1), float(a_set.l2), region_of(a_set.domain, value)
    shrunk = lambda v, by: np.sign(v) * np.maximum(np.abs(v) - by, 0.0)
    region.prox = lambda v, step: region.nearest(shrunk(v, step * l1) / (1 + step * l2))
    region.penalty = lambda v: l1 * float(np.sum(np.abs(v))) + 0.5 * l2 * float(np.sum(v**2))
    return region


# -- everything else: the set's own oracles, with every answer checked ------------------------------------------------


@eqx.filter_jit
def _ask(a_set: ConvexSet, oracle: str, *arguments: Any) -> Any:
    return getattr(a_set, oracle)(*arguments)


def _own_oracles(a_set: ConvexSet, value: Any) -> Region:
    """Every projection p of v is held to <v - p, u - p> <= 0 for points u of the set, and to be its own projection."""
    tree: Callable[[Any], Any] = ravel_pytree(jax.tree.map(lambda leaf: np.zeros(np.shape(leaf)), value))[1]
    asked = lambda oracle, v, *rest: np.asarray(ravel_pytree(_ask(a_set, oracle, tree(v), *rest))[0], np.float64)
    region = Region(type(a_set).__name__, None, None, textbook=False)
    witnesses: list[Vector] = []

    def project(v: Vector) -> Vector:
        p = asked("project", v)
        away = v - p
        if region.lmo is not None:
            others = [region.lmo(-away)]
        else:
            if not witnesses:
                rng, size = np.random.default_rng(0), 1 + np.linalg.norm(p)
                witnesses.extend(asked("project", p + size * rng.normal(size=p.size)) for _ in range(WITNESSES))
            others = witnesses
        excess = max(float(away @ (u - p)) for u in others)
        reach = max(float(np.linalg.norm(u - p)) for u in others)
        rounding = float(a_set.tolerance) * (np.linalg.norm(v) + reach)
        missed = excess**0.5 if excess > rounding * np.linalg.norm(away) else 0.0
        again = float(np.linalg.norm(asked("project", p) - p))
        region.own_slack = float(np.maximum(region.own_slack, missed + again + rounding))
        return p

    region.distance = lambda v: float(_ask(a_set, "violation", tree(v)))
    if "lmo" in a_set.capabilities:
        region.lmo = lambda d: asked("lmo", d)
    if "project" in a_set.capabilities:
        region.project = project
    if isinstance(a_set, Penalty):
        region.prox = lambda v, step: asked("prox", v, step)
        region.penalty = lambda v: float(_ask(a_set, "penalty", tree(v)))
    return region


_BALL = _with_radius(textbook.project_l2, textbook.lmo_l2)
_TEXTBOOK: dict[type, Callable[[Any, Any], Region | None]] = {
    sets.Box: _box,
    sets.LinfBall: _vectors(_linf, lambda s, d: np.where(d > 0, -float(s.radius), float(s.radius))),
    sets.L1Ball: _with_radius(textbook.project_l1, textbook.lmo_l1),
    sets.L2Ball: _BALL,
    sets.FreeBall: _BALL,
    sets.Simplex: _with_radius(textbook.project_simplex, textbook.lmo_simplex),
    sets.UnitSimplex: _with_radius(textbook.project_unit_simplex, textbook.lmo_unit_simplex),
    sets.CappedSimplex: _capped,
    sets.HyperSimplex: _capped,
    sets.KLBall: _around_reference(textbook.project_kl, textbook.lmo_kl),
    sets.ChiSquareBall: _around_reference(textbook.project_chi_square, textbook.lmo_chi_square),
    sets.NuclearBall: _matrices(_project_nuclear, _lmo_nuclear),
    sets.SpectralBall: _matrices(_project_spectral, _lmo_spectral),
    sets.Spectrahedron: _matrices(textbook.project_spectrahedron, textbook.lmo_spectrahedron),
    sets.Product: _product,
    sets.Intersection: _intersection,
    sets.Scaled: _similar,
    sets.Translated: _similar,
    sets.Entropy: _entropy,
    sets.SquaredL2: _squared_l2,
    sets.ElasticNet: _elastic_net,
    sets.L1Penalty: _elastic_net,
    sets.Indicator: lambda a_set, value: region_of(a_set.domain, value),
}
