"""The intersection of sets."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.sets.base import ConvexSet, like, within_reach

_ROUNDS = 5  # between two attempts at a Newton step; more do not lessen the attempts needed
_SHORTEST = 2.0**-12  # part of a Newton step that is tried
_NEWTON_EFFORT = 40  # conjugate gradient steps in one; a Newton step need not be exact, and far off it is of no use


class Intersection(ConvexSet):
    """{v : v in every one of sets}, a sequence of sets of the same arrays, with a point in common

    project: Douglas-Rachford splitting, one projection onto each set a round, with a Newton step every five rounds
    (taken when it lowers the residual), until the sets' own projections agree to a hundredth of `tolerance` times the
    size of the set, or max_rounds; tens of rounds as a rule, hundreds from far away; lmo: none. violation is the root
    of the sum of the squares of the parts', which is not the distance to the intersection: it is up to sqrt(parts)
    times as large, and where boundaries meet at a small angle many times smaller; |v - project(v)| is. The diameter is
    that of the smallest part, an upper bound. Derivatives by the implicit function theorem, for parts whose projections
    have derivatives.

    Not Dykstra's method: from a distance t it can stand still for t / size rounds, as good as forever at t = 1e8.
    An empty intersection cannot be told from a slow one: the answer then has a violation that is not 0.
    """

    capabilities = frozenset({"project"})
    estimates = frozenset({"project"})

    sets: tuple[ConvexSet, ...] = eqx.field(converter=lambda s: tuple(s) if isinstance(s, list | tuple) else s)
    # of other sets it is a constant of the class, here it is the user's choice
    tolerance: float = eqx.field(static=True, default=1e-9, kw_only=True)  # pyright: ignore[reportIncompatibleVariableOverride]
    max_rounds: int = eqx.field(static=True, default=10_000, kw_only=True)

    def __check_init__(self):
        if not isinstance(self.sets, tuple) or not self.sets or not all(isinstance(s, ConvexSet) for s in self.sets):
            kinds = [type(s).__name__ for s in self.sets] if isinstance(self.sets, tuple) else type(self.sets).__name__
            raise ValueError(f"Intersection takes a nonempty list of sets, given {kinds}")
        for part in self.sets:
            if "project" not in part.capabilities:
                raise ValueError(f"Intersection needs a projection onto every set: {part.missing('project')}")
        if not 0 < self.tolerance < 1:
            raise ValueError(f"Intersection tolerance must lie between 0 and 1, given {self.tolerance}")
        if self.max_rounds < 1:
            raise ValueError(f"Intersection max_rounds must be at least 1, given {self.max_rounds}")

    def project(self, v: Array) -> Array:
        return self._split(self.fitting(v))[0]

    def project_error(self, v: Array, p: Array) -> Array:
        return self._split(self.fitting(v))[1]

    def violation(self, v: Array) -> Array:
        return jnp.sqrt(sum(jnp.square(part.violation(v)) for part in self.sets))

    def diameter(self, v: Array) -> Array:
        return jnp.min(jnp.stack([part.diameter(v) for part in self.sets]))

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        keys = jax.random.split(key, len(self.sets))
        points = [part.sample(k, shape) for part, k in zip(self.sets, keys, strict=True)]
        return self.project(jnp.asarray(sum(points)) / len(points))

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v)
        for part in self.sets:
            reason = reason or part.misfit(v)
        return reason

    def missing(self, oracle: str) -> str:
        return f"{ConvexSet.missing(self, oracle)}; use a method that needs only a projection onto it: FullyProjected"

    @jax.jit  # so that a call outside jit compiles once, not at every call
    def _split(self, v: Array) -> tuple[Array, Array]:
        """The projection and an estimate of its error.

        min weight/2 |u - v|^2 over the intersection: s_i and u with x_i = P_i(s_i), u = prox of the consensus.

            u = (weight v + sum_i (2 x_i - s_i)) / (weight + parts),       s_i+ = s_i + u - x_i

        At rest all x_i equal u, and s_i - x_i is normal to set i; they add up to weight (v - u). The weight does not
        change the answer; it brings v to within a few times the set's size, where the method neither stalls nor rounds.
        """
        parts = len(self.sets)
        first = lax.stop_gradient(self.sets[0].project(v))
        offset = within_reach(v - first, self.sets[0].diameter(v))
        size = lax.stop_gradient(self.diameter(v))
        away = _norm(lax.stop_gradient(offset))
        # 4: measured; nearer, near ties in a far v take thousands of rounds, and further, every far v takes more
        reach = jnp.maximum(4 * size, jnp.finfo(v.dtype).tiny)
        weight = jnp.where(away > reach, reach / jnp.where(away > reach, away, 1), 1)
        near = first + weight * offset

        def projections(s: Array) -> Array:
            return jnp.stack([part.project(s[i]) for i, part in enumerate(self.sets)])

        def residual(s: Array) -> Array:
            x = projections(s)
            # weight v = weight first + (near - first), which keeps the accuracy that v has next to the set
            u = (weight * first + (near - first) + jnp.sum(2 * x - s, axis=0)) / (weight + parts)
            return u - x

        def newton(s: Array, r: Array) -> Array:
            _, J = jax.linearize(projections, s)
            mean = lambda a: jnp.broadcast_to(jnp.sum(a, axis=0) / (weight + parts), a.shape)

            def derivative(a):
                Ja = J(a)
                return mean(2 * Ja - a) - Ja

            def transposed(a):  # J, the derivative of projections, is symmetric
                w = mean(a)
                return J(2 * w - a) - w

            return _conjugate_gradients(lambda a: transposed(derivative(a)), transposed(-r), most=_NEWTON_EFFORT)

        newtons = _differentiable(projections, v, parts)
        floor = jnp.maximum(0.01 * self.tolerance, 20 * jnp.finfo(v.dtype).eps)
        start = jnp.broadcast_to(lax.stop_gradient(first + (near - first) / parts), (parts, *v.shape))
        target = like(floor, v) * (size + _norm(projections(start)))

        def solve(residual, s):
            def plain(_, carry):
                s, r = carry
                return s + r, residual(s + r)

            def several(carry):
                s, r, count = carry
                s, r = lax.fori_loop(0, _ROUNDS, plain, (s, r))
                if newtons:
                    s, r = _downhill(residual, s, r, newton(s, r))
                return s, r, count + _ROUNDS

            def unfinished(carry):
                return (_norm(carry[1]) > target) & (carry[2] < self.max_rounds)

            return lax.while_loop(unfinished, several, (s, residual(s), 0))[0]

        def tangent_solve(linear, right):
            adjoint = jax.linear_transpose(linear, right)
            apply = lambda a: adjoint(linear(a))[0]
            many = lambda apply, b: _conjugate_gradients(apply, b, most=10 * right.size)
            return lax.custom_linear_solve(apply, adjoint(right)[0], many, symmetric=True)

        s = lax.custom_root(residual, start, solve, tangent_solve) if newtons else solve(residual, start)
        p, x, left = self.sets[0].project(s[0]), projections(s), residual(s)
        stuck = _norm(left) > 100 * target  # by max_rounds
        return p, lax.stop_gradient(jnp.where(stuck, size + _norm(x - p), self._error(v, p, s, x, left, weight)))

    def _error(self, v: Array, p: Array, s: Array, x: Array, residual: Array, weight: Array) -> Array:
        """How far p is from the projection P of v, by what the splitting has left.

        z_i = (s_i - x_i) / weight is normal to set i at x_i, and they add up to v - p but for `short`. With normals w_i
        at P, which add up to v - P, and e_i = x_i - p, monotonicity gives
            |p - P|^2 <= <short, p - P> + sum_i <z_i - w_i, e_i>.
        The last term is at most of the order sum |z_i| |e_i|; where the normals move no more than a hundred times as
        far as p does, it is linear in e_i.
        """
        length = lambda a: jnp.sqrt(jnp.sum(jnp.square(a), axis=tuple(range(1, a.ndim))))
        short = _norm(jnp.sum(residual, axis=0)) / weight
        apart, normals = length(x - p), length(s - x) / weight
        bent = jnp.minimum(100 * jnp.sum(apart), jnp.sqrt(4 * jnp.sum(normals * apart)))
        exactness = max(part.precision(v) for part in self.sets)
        estimate = short + bent + exactness * (_norm(v) + _norm(p))
        return jnp.minimum(estimate, self.diameter(v) + jnp.max(apart))


def _downhill(residual: Callable[[Array], Array], s: Array, r: Array, step: Array) -> tuple[Array, Array]:
    """s + t step and its residual, with the largest t = 1, 1/2, ... that lowers the residual by t / 10 of it, or t = 0.

    Where a set's boundary lies within the step, the whole of it would leap over and be refused, every time anew.
    """

    def at(t: Array) -> tuple[Array, Array]:
        return t, residual(s + t * step)

    def lowers(t: Array, new: Array) -> Array:
        return _norm(new) <= (1 - 0.1 * t) * _norm(r)

    going_on = lambda carry: ~lowers(*carry) & (carry[0] > _SHORTEST)
    t, new = lax.while_loop(going_on, lambda carry: at(0.5 * carry[0]), at(jnp.ones((), s.dtype)))
    accepted = lowers(t, new)
    return jnp.where(accepted, s + t * step, s), jnp.where(accepted, new, r)


def _norm(a: Array) -> Array:
    return jnp.sqrt(jnp.sum(jnp.square(a)))


def _conjugate_gradients(apply, right: Array, most: int) -> Array:
    """x with apply(x) = right, apply positive semidefinite, to the accuracy that `most` steps give."""

    eps = jnp.finfo(right.dtype).eps

    def step(carry):
        x, r, p, squared, count, steepest, _ = carry
        q = apply(p)
        bend, length = jnp.vdot(p, q), jnp.vdot(p, p)
        steepest = jnp.maximum(steepest, bend / jnp.where(length > 0, length, 1))
        # a direction without curvature but for rounding: all that is left of the right side is rounding too, and a step
        # along it would have any length
        sound = bend > eps * steepest * length
        alpha = jnp.where(sound, squared / jnp.where(sound, bend, 1), 0)
        x, r = x + alpha * p, r - alpha * q
        new = jnp.vdot(r, r)
        return x, r, r + new / jnp.where(squared > 0, squared, 1) * p, new, count + 1, steepest, sound

    start = jnp.vdot(right, right)
    carry = (jnp.zeros_like(right), right, right, start, 0, jnp.zeros_like(start), start > 0)
    return lax.while_loop(lambda c: c[6] & (c[3] > eps**2 * start) & (c[4] < most), step, carry)[0]


def _differentiable(function, v: Array, parts: int) -> bool:
    """Whether JAX can differentiate the parts' projections; a user's own function may call the host."""
    s = jax.ShapeDtypeStruct((parts, *v.shape), v.dtype)
    try:
        jax.eval_shape(lambda a: jax.jvp(function, (a,), (a,)), s)
    except Exception:
        return False
    return True
