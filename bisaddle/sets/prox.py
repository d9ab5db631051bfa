"""Convex penalties h with a bounded domain, in place of a y-set: their prox takes the part of the projection.

The saddle problem is then min_x max_y f - h: the paper's remark on Algorithm 1 [AYH25].
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.sets.balls import L2Ball, LinfBall
from bisaddle.sets.base import ConvexSet, Derived, Leaf, as_callable, cast, finite_tree, like, number, poison, positive
from bisaddle.sets.box import Box
from bisaddle.sets.roots import decreasing_root, wright_omega
from bisaddle.sets.simplex import Simplex
from bisaddle.trees import Number


class Penalty(ConvexSet):
    """A convex function h on a bounded domain, used as a y-set: min_x max_y f - h

        prox(v, step)               argmin_u step h(u) + |u - v|^2 / 2 over the domain
        penalty(v)                  h(v)
        best_response(y, g)         max_s <g, s - y> + h(y) - h(s), and its s

    As a set it is its domain: project, lmo, violation, diameter and sample are the domain's.
    """

    capabilities = Derived(lambda self: self.region.capabilities)
    tolerance = Derived(lambda self: self.region.tolerance)
    estimates = Derived(lambda self: self.region.estimates)

    @property
    def region(self) -> ConvexSet:
        """The domain of h: the field `domain`, unless a penalty has another way to say it."""
        return vars(self)["domain"]

    def maximiser(self, gradient: PyTree) -> PyTree:
        """argmax_s <gradient, s> - h(s) over the domain."""
        raise NotImplementedError

    def project(self, v: PyTree) -> PyTree:
        return self.region.project(v)

    def lmo(self, direction: PyTree) -> PyTree:
        return self.region.lmo(direction)

    def violation(self, v: PyTree) -> Array:
        return self.region.violation(v)

    def diameter(self, v: PyTree) -> Array:
        return self.region.diameter(v)

    def sample(self, key: Array, shape: PyTree) -> PyTree:
        return self.region.sample(key, shape)

    def project_error(self, v: PyTree, p: PyTree) -> Array:
        return self.region.project_error(v, p)

    def lmo_error(self, direction: PyTree, s: PyTree) -> Array:
        return self.region.lmo_error(direction, s)

    def prox_error(self, v: PyTree, p: PyTree, step: Number) -> Array:
        return ConvexSet.project_error(self, v, p)

    def misfit(self, v: PyTree) -> str | None:
        return self.region.misfit(v)

    def prox(self, v: PyTree, step: Number) -> PyTree:
        raise NotImplementedError

    def penalty(self, v: PyTree) -> Array:
        raise NotImplementedError

    def best_response(self, y: PyTree, gradient: PyTree) -> tuple[Array, PyTree]:
        s = self.maximiser(gradient)
        return trees.dot(gradient, trees.subtract(s, y)) + (self.penalty(y) - self.penalty(s)), s


class Entropy(Penalty):
    """h(v) = weight sum v log v on {v : v >= 0, sum v = radius}; with axis, on every slice

    prox: O(n) a pass, tens of passes (a root of Wright omega functions, to rounding); maximiser: a softmax.
    """

    weight: Leaf = eqx.field(converter=lambda w: positive(w, "Entropy weight"))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "Entropy radius"), default=1.0)
    axis: int | tuple[int, ...] | None = eqx.field(static=True, default=None, kw_only=True)

    @property
    def region(self) -> Simplex:
        return Simplex(self.radius, axis=self.axis)

    def prox(self, v: Array, step: Number) -> Array:
        def one(row: Array) -> Array:
            radius = like(self.radius, row)
            a = like(step, row) * like(self.weight, row) / radius
            # the floor is the projection to rounding, and keeps the quotients finite
            return radius * _entropy_prox(row / radius, jnp.maximum(a, 1e-30))

        return self.region._each(one, v)

    def penalty(self, v: Array) -> Array:
        v = jnp.asarray(v)
        positive_part = jnp.where(v > 0, v, 1)  # 0 log 0 = 0; below 0 only rounding is met
        return like(self.weight, v) * jnp.sum(positive_part * jnp.log(positive_part))

    def maximiser(self, gradient: Array) -> Array:
        one = lambda g: like(self.radius, g) * jax.nn.softmax(g / like(self.weight, g))
        return self.region._each(one, gradient)


class SquaredL2(Penalty):
    """h(v) = weight / 2 |v - center|^2 on domain, any set with a projection

    prox: one projection onto the domain; maximiser: likewise.
    """

    weight: Leaf = eqx.field(converter=lambda w: positive(w, "SquaredL2 weight"))
    domain: ConvexSet
    center: PyTree = eqx.field(default=0.0, converter=lambda c: finite_tree(c, "SquaredL2 center"))

    def __check_init__(self):
        _require_domain("SquaredL2", self.domain)
        if "project" not in self.domain.capabilities:
            raise ValueError(f"SquaredL2 needs a projection onto its domain: {self.domain.missing('project')}")

    def prox(self, v: PyTree, step: Number) -> PyTree:
        return self.domain.project(self._shrunk(v, step))

    def prox_error(self, v: PyTree, p: PyTree, step: Number) -> Array:
        shrunk = self._shrunk(v, step)
        return self.domain.project_error(shrunk, p) + self.rounding(v, shrunk)

    def _shrunk(self, v: PyTree, step: Number) -> PyTree:
        def shrink(a, c):
            t = like(step, a) * like(self.weight, a)
            return (a + t * c) / (1 + t)

        return jax.tree.map(shrink, v, self._center(v))

    def penalty(self, v: PyTree) -> Array:
        off = trees.subtract(v, self._center(v))
        return 0.5 * jnp.asarray(self.weight).astype(trees.dtype_of(v)) * trees.dot(off, off)

    def maximiser(self, gradient: PyTree) -> PyTree:
        moved = jax.tree.map(lambda g, c: c + g / like(self.weight, g), gradient, self._center(gradient))
        return self.domain.project(moved)

    def _center(self, v: PyTree) -> PyTree:
        if isinstance(self.center, jax.Array | np.ndarray):
            return jax.tree.map(lambda a: jnp.broadcast_to(like(self.center, a), a.shape), v)
        return jax.tree.map(lambda a, c: jnp.broadcast_to(like(c, a), a.shape), v, self.center)


class ElasticNet(Penalty):
    """h(v) = l1 sum |v_i| + l2 / 2 |v|^2 on domain, a Box, LinfBall or L2Ball; l1, l2 >= 0

    prox: O(n), shrink towards 0, divide, then project onto the domain, which is exact for these domains: coordinates
    part on a box, and an l2 ball only rescales what a norm's prox left. maximiser: O(n) likewise.
    """

    l1: Leaf = eqx.field(converter=lambda w: number(w, "l1 of a penalty", ">= 0"))
    l2: Leaf = eqx.field(converter=lambda w: number(w, "l2 of a penalty", ">= 0"))
    domain: ConvexSet  # Box | LinfBall | L2Ball

    def __check_init__(self):
        name = type(self).__name__
        _require_domain(name, self.domain)
        if not isinstance(self.domain, Box | LinfBall | L2Ball) or (
            isinstance(self.domain, L2Ball) and self.domain.axis is not None
        ):
            raise ValueError(
                f"{name} takes a Box, LinfBall or L2Ball without axis as its domain, given "
                f"{type(self.domain).__name__}: for others its prox has no closed form"
            )

    def misfit(self, v: PyTree) -> str | None:
        return ConvexSet.misfit(self, v) or self.domain.misfit(v)

    def prox(self, v: Array, step: Number) -> Array:
        t = like(step, jnp.asarray(v))
        return self.domain.project(_soft(v, t * like(self.l1, v)) / (1 + t * like(self.l2, v)))

    def penalty(self, v: Array) -> Array:
        return like(self.l1, v) * jnp.sum(jnp.abs(v)) + 0.5 * like(self.l2, v) * jnp.sum(jnp.square(v))

    def maximiser(self, gradient: Array) -> Array:
        pull = _soft(gradient, like(self.l1, gradient))
        l2 = like(self.l2, gradient)
        smooth = self.domain.project(pull / jnp.where(l2 > 0, l2, 1))
        if isinstance(self.domain, L2Ball):
            corner = jnp.where(jnp.any(pull != 0), self.domain.lmo(-pull), 0)
        else:
            # g s - l1 |s| rises or falls throughout where |g| > l1, and is greatest next to 0 elsewhere
            corner = jnp.where(pull != 0, self.domain.lmo(-pull), self.domain.project(jnp.zeros_like(gradient)))
        return jnp.where(l2 > 0, smooth, corner)


class L1Penalty(ElasticNet):
    """h(v) = weight sum |v_i| on domain, a Box, LinfBall or L2Ball

    prox: O(n), shrink towards 0, then project onto the domain; maximiser: O(n), the best end of every interval.
    """

    def __init__(self, weight, domain: ConvexSet):
        self.l1, self.l2 = number(weight, "weight of a penalty", ">= 0"), number(0.0, "l2 of a penalty", ">= 0")
        self.domain = domain


class GroupL1(Penalty):
    """h(v) = weight sum_g |v_g|_2 over groups of coordinates, on domain, an L2Ball

    groups: an integer array shaped like v, the group of each coordinate (0, 1, ...). prox: O(n), every group shrunk
    towards 0, then the ball's rescaling, exact as in ElasticNet; maximiser: likewise.
    """

    weight: Leaf
    groups: Leaf
    domain: L2Ball
    count: int = eqx.field(static=True)

    def __init__(self, weight, groups, domain: ConvexSet):
        self.weight = number(weight, "weight of a penalty", ">= 0")
        labels = np.asarray(groups)
        if labels.size == 0 or not np.issubdtype(labels.dtype, np.integer) or labels.min() < 0:
            raise ValueError("GroupL1 groups must be a nonempty array of integers >= 0, the group of each coordinate")
        if not isinstance(domain, L2Ball) or domain.axis is not None:
            raise ValueError(
                f"GroupL1 takes an L2Ball without axis as its domain, given {type(domain).__name__}: "
                "for others its prox has no closed form"
            )
        self.groups, self.domain, self.count = labels, domain, int(labels.max()) + 1

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v) or self.domain.misfit(v)
        if reason is None and tuple(v.shape) != self.groups.shape:
            return f"GroupL1 has groups of shape {self.groups.shape}, given an array of shape {v.shape}"
        return reason

    def prox(self, v: Array, step: Number) -> Array:
        return self.domain.project(self._shrink(v, like(step, v) * like(self.weight, v)))

    def penalty(self, v: Array) -> Array:
        return like(self.weight, v) * jnp.sum(self._lengths(v))

    def maximiser(self, gradient: Array) -> Array:
        pull = self._shrink(gradient, like(self.weight, gradient))
        return jnp.where(jnp.any(pull != 0), self.domain.lmo(-pull), 0)

    def _lengths(self, v: Array) -> Array:
        labels = jnp.asarray(self.groups)
        largest = jnp.zeros(self.count, v.dtype).at[labels].max(jnp.abs(v))  # against overflow and underflow of squares
        divisor = jnp.where(largest > 0, largest, 1)
        squares = jnp.zeros(self.count, v.dtype).at[labels].add(jnp.square(v / divisor[labels]))
        return divisor * jnp.where(squares > 0, jnp.sqrt(jnp.where(squares > 0, squares, 1)), 0 * squares)

    def _shrink(self, v: Array, threshold: Array) -> Array:
        lengths = self._lengths(v)
        factors = jnp.where(lengths > threshold, 1 - threshold / jnp.where(lengths > threshold, lengths, 1), 0)
        return v * factors[jnp.asarray(self.groups)]


class Indicator(Penalty):
    """h(v) = 0 on domain, any set: the set itself, as a penalty

    prox: the domain's projection; maximiser: its LMO.
    """

    domain: ConvexSet

    def __check_init__(self):
        _require_domain("Indicator", self.domain)

    def prox(self, v: PyTree, step: Number) -> PyTree:
        return self.domain.project(v)

    def penalty(self, v: PyTree) -> Array:
        return self.domain.penalty(v)

    def best_response(self, y: PyTree, gradient: PyTree) -> tuple[Array, PyTree]:
        return self.domain.best_response(y, gradient)


class Prox(Penalty):
    """h given by functions, on domain, a set: penalty(v) -> h(v), prox(v, step) -> argmin_u step h(u) + |u - v|^2 / 2

    prox: the function given, trusted. maximiser(g) -> argmax_s <g, s> - h(s), where known; without it the best response
    is bounded by the domain's at the gradient of <g, .> - h, h differentiated by JAX: h(s) >= h(y) + <h'(y), s - y>.
    Prox(h) with another penalty h is h.
    """

    estimates = Derived(lambda self: self.region.estimates | {"prox"})

    value: Callable
    step: Callable
    domain: ConvexSet
    best: Callable | None

    def __init__(self, penalty, prox=None, domain=None, maximiser=None):
        if isinstance(penalty, Penalty) and prox is None and domain is None and maximiser is None:
            given = penalty
            penalty, prox, domain = given.penalty, given.prox, given.region
            if type(given).maximiser is not Penalty.maximiser and getattr(given, "best", True) is not None:
                maximiser = given.maximiser
        for what, function in (("penalty", penalty), ("prox", prox), ("maximiser", maximiser)):
            if not callable(function) and not (what == "maximiser" and function is None):
                raise ValueError(f"Prox {what} must be a function, given {type(function).__name__}")
        self.domain = _require_domain("Prox", domain)
        self.value, self.step, self.best = as_callable(penalty), as_callable(prox), as_callable(maximiser)

    def prox(self, v: PyTree, step: Number) -> PyTree:
        return cast(self.step(v, step), v)

    def penalty(self, v: PyTree) -> Array:
        return jnp.asarray(self.value(v)).astype(trees.dtype_of(v))

    def maximiser(self, gradient: PyTree) -> PyTree:
        if self.best is None:
            raise ValueError("Prox has no maximiser; give one: maximiser=, a function of the gradient")
        return cast(self.best(gradient), gradient)

    def best_response(self, y: PyTree, gradient: PyTree) -> tuple[Array, PyTree]:
        if self.best is not None:
            return Penalty.best_response(self, y, gradient)
        return self.domain.best_response(y, trees.subtract(gradient, jax.grad(self.value)(y)))


@jax.jit  # so that a call outside jit compiles once, not at every call
def _entropy_prox(v: Array, a: Array) -> Array:
    """argmin a sum p log p + |p - v|^2 / 2 over the unit simplex: p + a log p = v - t, t the root of sum p = 1."""
    # the answer does not depend on the shift, so that no derivative goes through it: that of a maximum looks for the
    # entry that equals it, and where XLA computes v twice, with another rounding, there is none
    given, v = v, v - lax.stop_gradient(jnp.max(v))
    # twice, as in project_simplex: the largest is 0, its p is 1 at t = -1 and 1/n at the upper end
    v = v - lax.stop_gradient(jnp.max(v))

    def p(t: Array) -> Array:
        return a * wright_omega((v - t) / a - jnp.log(a), _omega_guess)

    n = v.size
    upper = a * jnp.log(jnp.asarray(n, v.dtype)) - 1 / n
    t = decreasing_root(lambda t: jnp.sum(p(t)) - 1, -jnp.ones_like(upper), upper)
    answer = p(t)
    return poison(answer / jnp.sum(answer), given)


def _omega_guess(z: Array) -> Array:
    growth = jnp.exp(jnp.minimum(z, 0))
    near = z - 1
    above = jnp.log(jnp.maximum(z, 1))
    return jnp.where(
        z < -1,
        growth * (1 - growth * (1 - 1.5 * growth)),
        jnp.where(z < 3, 1 + near / 2 + near**2 / 16 - near**3 / 192, z - above + above / jnp.maximum(z, 1)),
    )


def _soft(v: Array, threshold: Array) -> Array:
    return jnp.sign(v) * jnp.maximum(jnp.abs(v) - threshold, 0)


def _require_domain(name: str, domain) -> ConvexSet:
    """The domain, which must be a set without a penalty of its own."""
    if not isinstance(domain, ConvexSet):
        raise ValueError(f"{name} takes a set of bisaddle.sets as its domain, given {type(domain).__name__}")
    if isinstance(domain, Penalty):
        raise ValueError(f"{name} takes a set without a penalty as its domain, given {type(domain).__name__}")
    return domain
