"""Lower levels that are a sum over tasks: each device takes the products of its own, and says little to the others."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree

from bisaddle import oracle
from bisaddle.oracle.theta_blocks import block_order, preconditioner
from bisaddle.problem import Derivatives, Functions


class Separable(eqx.Module):
    """g(x, theta) = sum_t g_t(x_t, theta_t), or their mean; theta_t the entry t along the first axis of its leaves.

    function: g of all tasks. local, derivatives: g of any number of tasks, filled up or not, and what there is by hand.
    data, x: of every leaf of the data and of x, whether it has an entry for each task along its first axis; the others
    are for all tasks. padded: how many tasks the data have, with those that were filled up. mean: g is their mean.
    each: every task has conjugate gradients of its own; else there is one system for all of them.
    """

    function: Callable
    local: Callable
    derivatives: Derivatives
    data: tuple[bool, ...] = eqx.field(static=True)
    x: tuple[bool, ...] = eqx.field(static=True)
    padded: int = eqx.field(static=True)
    mean: bool = eqx.field(static=True, default=False)
    each: bool = eqx.field(static=True, default=False)

    def __call__(self, *arguments: PyTree) -> Array:
        return self.function(*arguments)


class _Here:
    """Inside a program of every device: its own tasks. `rows` are theirs, a vector for each."""

    def __init__(self, part: Any, data: list, x: Array, theta: Array):
        self.lower, self.mesh, self.shape = part.lower, part.theta.mesh, replace(part.theta, mesh=None)
        self.x_shape, self.tasks = replace(part.x, mesh=None), part.theta.shapes[0][0]
        self.devices = 1 if self.mesh is None else self.mesh.size
        self.count = self.lower.padded // self.devices
        self.name = None if self.mesh is None else self.mesh.axis_names[0]
        self.first = 0 if self.mesh is None else lax.axis_index(self.name) * self.count
        order = block_order(self.shape, self.tasks)
        self.order = None if np.all(order == np.arange(order.size)) else order
        form = jax.tree.structure(part.data)
        self.functions = Functions(part.upper, self.lower.local, form.unflatten(data), self.lower.derivatives)
        leaves, x_form = jax.tree.flatten(self.x_shape.traced(x))
        own = [self.own(leaf) if flag else leaf for leaf, flag in zip(leaves, self.lower.x, strict=True)]
        self.at = x_form.unflatten(own), self.tree(self.cut(theta))
        self.share = self.count / self.lower.padded if self.lower.mean else 1.0
        shared = sum(prod(shape) for shape, flag in zip(part.x.shapes, self.lower.x, strict=True) if not flag)
        # what belongs to x as a whole is sent by every device, and added up by all
        self.packs_x = self.devices * shared <= part.theta.size

    def own(self, array: Array) -> Array:
        """The entries of these tasks, zeros for those that were filled up."""
        full = jnp.pad(array, [(0, self.lower.padded - self.tasks)] + [(0, 0)] * (array.ndim - 1))
        return full if self.mesh is None else lax.dynamic_slice_in_dim(full, self.first, self.count)

    def cut(self, flat: Array) -> Array:
        """The rows of these tasks of a vector of all."""
        return self.own((flat if self.order is None else flat[self.order]).reshape(self.tasks, -1))

    def flat(self, rows: Array) -> Array:
        """A vector of all tasks from the rows of all of them."""
        if self.order is None:
            return rows.ravel()
        return jnp.zeros(self.shape.size, rows.dtype).at[self.order].set(rows.ravel())

    def alone(self, rows: Array) -> Array:
        """A vector of all tasks with zeros for those of other devices."""
        if self.mesh is None:
            return self.flat(rows[: self.tasks])
        nothing = jnp.zeros((self.lower.padded, rows.shape[1]), rows.dtype)
        return self.flat(lax.dynamic_update_slice_in_dim(nothing, rows, self.first, 0)[: self.tasks])

    def tree(self, rows: Array) -> PyTree:
        return self.shape.per_task(rows)

    def gradient(self) -> Array:
        return self._rows(oracle.lower_gradient_in_domain(self.functions, *self.at))

    def product(self, rows: Array) -> Array:
        return self._rows(oracle.hessian_product(self.functions, *self.at, self.tree(rows)))

    def cross(self, rows: Array) -> list[Array]:
        """The leaves of g_theta_x w, as far as these tasks have a part in them."""
        return self._scaled(oracle.cross_product(self.functions, *self.at, self.tree(rows)))

    def both(self, rows: Array) -> tuple[Array, list[Array]]:
        cross, hessian = oracle.second_order_products(self.functions, *self.at, self.tree(rows))
        return self._rows(hessian), self._scaled(cross)

    def _scaled(self, tree: PyTree) -> list[Array]:
        return [(self.share * leaf).astype(self.shape.dtype) for leaf in jax.tree.leaves(tree)]

    def _rows(self, tree: PyTree) -> Array:
        return jnp.concatenate([leaf.reshape(self.count, -1) for leaf in self._scaled(tree)], axis=1)

    def no_cross(self) -> list[Array]:
        return [jnp.zeros(jnp.shape(leaf), self.shape.dtype) for leaf in jax.tree.leaves(self.at[0])]

    def gathered(self, rows: list[Array], *crosses: list[Array]) -> tuple[list[Array], list[Array]]:
        """The rows of all tasks, and vectors of the shape of x: in one collective, if x is not too large for that."""
        pieces = [*rows, *(leaf for cross in crosses for leaf in cross)]
        found = self.every(pieces, [True] * len(rows) + list(self.lower.x) * len(crosses))
        places = range(len(rows), len(found), len(self.lower.x))
        of_x = [jnp.concatenate([leaf.ravel() for leaf in found[i : i + len(self.lower.x)]]) for i in places]
        return found[: len(rows)], of_x

    def every(self, pieces: list[Array], own: list[bool]) -> list[Array]:
        """Of every array the entries of all tasks, if it has such of its own along its first axis; else their sum."""
        sent = [flag or self.packs_x or self.mesh is None for flag in own]
        flat = jnp.concatenate([jnp.ravel(piece) for piece, goes in zip(pieces, sent, strict=True) if goes])
        parts = flat[None] if self.mesh is None else lax.all_gather(flat, self.name)
        found, end = [], 0
        for piece, flag, goes in zip(pieces, own, sent, strict=True):
            if not goes:
                found.append(lax.psum(piece, self.name))
                continue
            part = parts[:, end : (end := end + piece.size)].reshape(self.devices, *piece.shape)
            found.append(part.reshape(-1, *piece.shape[1:])[: self.tasks] if flag else jnp.sum(part, axis=0))
        return found

    def sum(self, number: Array) -> Array:
        return number if self.mesh is None else lax.psum(number, self.name)


def _on_each_device(part: Any, solve: Callable, x: Array, theta: Array, *vectors: Array) -> Any:
    """solve(here, *vectors) on every device, for its own tasks; all of them give the same."""
    mesh = part.theta.mesh
    of_tasks = [PartitionSpec("tasks") if flag else PartitionSpec() for flag in part.lower.data]
    data = jax.tree.leaves(part.data)
    run = lambda data, x, theta, *vectors: solve(_Here(part, data, x, theta), *vectors)
    if mesh is not None:
        nothing = PartitionSpec()
        specs = (of_tasks, nothing, nothing, *(nothing for _ in vectors))
        run = jax.shard_map(run, mesh=mesh, in_specs=specs, out_specs=nothing, check_vma=False)
    return run(data, x, theta, *vectors)


def solves(
    part: Any, x: Array, theta: Array, start: Array, given: Array, numbers: Array, inverse: Array
) -> tuple[Array, ...]:
    """As kernels._lower_of."""
    solve = _solved_each if part.lower.each else _solved_together
    return _on_each_device(part, solve, x, theta, start, given, numbers, inverse)


def both_ways(part: Any, x: Array, theta: Array, v: Array, flips: Array) -> tuple[Array, ...]:
    """g_theta, g_theta_theta v and g_theta_x v from the tasks of each device, and from all of them together.

    At last g_theta_theta (flips * v), where flips holds one sign for each task: tasks that stand apart only flip.
    """

    def found(here: _Here, v: Array) -> tuple[Array, ...]:
        product, cross = here.both(here.cut(v))
        (gradient, product), (cross,) = here.gathered([here.gradient(), product], cross)
        return here.flat(gradient), here.flat(product), cross

    apart = _on_each_device(part, found, x, theta, v)
    at = part.x.traced(x), part.theta.traced(theta)
    cross, hessian = oracle.second_order_products(part, *at, part.theta.traced(v))
    flipped = oracle.hessian_product(part, *at, part.theta.traced(flips * v))
    gradient = oracle.lower_gradient_in_domain(part, *at)
    return *apart, *(part.theta.join(gradient), part.theta.join(hessian), part.x.join(cross), part.theta.join(flipped))


def columns(part: Any, x: Array, theta: Array, units: Array) -> Array:
    """Rows (g_theta_theta e, g_theta_x e), a unit e each, in one collective."""

    def found(here: _Here, units: Array) -> Array:
        count, own = len(units), here.lower.x
        hessian, cross = lax.map(lambda e: here.both(here.cut(e)), units)
        front = lambda leaf: jnp.moveaxis(leaf, 0, 1)
        pieces = [front(hessian), *(front(leaf) if flag else leaf for leaf, flag in zip(cross, own, strict=True))]
        hessian, *cross = here.every(pieces, [True, *own])
        cross = [front(leaf) if flag else leaf for leaf, flag in zip(cross, own, strict=True)]
        rows = jax.vmap(here.flat)(front(hessian))
        return jnp.concatenate([rows, *(leaf.reshape(count, -1) for leaf in cross)], axis=1)

    return _on_each_device(part, found, x, theta, units)


def _solved_together(here: _Here, start: Array, given: Array, numbers: Array, inverse: Array) -> tuple[Array, ...]:
    """One system for all tasks, step by step as on one device, in no more collectives than products.

    What a device can do alone is done before the first one: the gradient, the product of the start, and that of the
    first direction, which is not always needed. Every other product is sent with its part of g_theta_x w.
    """
    dtype, shape = given.dtype, here.shape
    target, relative, enough, limit, is_warm, of_gradient, with_cross = numbers
    preconditioned = preconditioner(shape, inverse)
    start = jnp.where(is_warm > 0, start, 0)
    warm, crossed = is_warm > 0, with_cross > 0
    nothing = lambda: (jnp.zeros((here.count, shape.size // here.tasks), dtype), here.no_cross())

    def products(rows: Array, wanted: Array) -> tuple[Array, list[Array]]:
        only = lambda rows: (here.product(rows), here.no_cross())
        taken = lambda rows: lax.cond(crossed, here.both, only, rows) if here.packs_x else only(rows)
        return lax.cond(wanted, taken, lambda rows: nothing(), rows)

    right = lax.cond(of_gradient > 0, lambda: -here.gradient(), lambda: here.cut(given))
    of_start, start_cross = products(here.cut(start), warm & ((limit >= 0) | crossed))
    r = jnp.where(warm & (limit >= 0), right - of_start, right)
    p = here.cut(preconditioned(here.alone(r)))
    of_first, first_cross = products(p, limit > 0)
    mine = right
    (r, of_first), (cross, first_cross) = here.gathered([r, of_first], start_cross, first_cross)
    r, of_first = here.flat(r), here.flat(of_first)
    at_start = lambda: lax.cond(warm, lambda: here.flat(here.gathered([mine])[0][0]), lambda: r)
    right = lax.cond(of_gradient > 0, at_start, lambda: given)
    length = jnp.sqrt(right @ right)
    target = jnp.maximum(target, relative * length)

    def unfinished(carry):
        r, count, sound = carry[1], carry[-2], carry[-1]
        far = (jnp.sqrt(r @ r) > target) & ((length > enough) | warm)
        return far & (count < limit) & sound

    def one(carry):
        w, r, p, Hp, Cp, cross, square, least, count, _ = carry
        curvature = p @ Hp
        sound = curvature > 0  # or g is not convex here, or nothing is left but rounding
        step = jnp.where(sound, square / jnp.where(sound, curvature, 1), 0)
        w, r, cross = w + step * p, r - step * Hp, cross + step * Cp
        z = preconditioned(r)
        new = r @ z
        least = jnp.minimum(least, jnp.where(sound, curvature / (p @ p), jnp.inf))
        p = z + new / square * p

        def ahead():
            Hp, Cp = products(here.cut(p), jnp.asarray(True))
            (Hp,), (Cp,) = here.gathered([Hp], Cp)
            return here.flat(Hp), Cp

        rest = (new, least, count + 1, sound)
        Hp, Cp = lax.cond(unfinished((w, r, *rest)), ahead, lambda: (jnp.zeros_like(Hp), jnp.zeros_like(Cp)))
        return w, r, p, Hp, Cp, cross, *rest

    z = preconditioned(r)
    carry = (start, r, z, of_first, first_cross, cross, r @ z, jnp.full((), jnp.inf, dtype), 0, jnp.asarray(True))
    w, r, _, _, _, cross, _, least, count, _ = lax.while_loop(unfinished, one, carry)
    w = jnp.where(jnp.isfinite(r @ r), w, jnp.nan)  # a residual that is no number ends the loop, and is no solution
    cross = jnp.where(jnp.isfinite(r @ r), cross, jnp.nan)
    if not here.packs_x:
        along = lambda: here.gathered([], here.cross(here.cut(w)))[1][0]
        cross = lax.cond(crossed, along, lambda: jnp.zeros(here.x_shape.size, dtype))
    return w, r, right, jnp.where(crossed, cross, 0), jnp.stack([jnp.asarray(count, dtype), least])


def _solved_each(here: _Here, start: Array, given: Array, numbers: Array, inverse: Array) -> tuple[Array, ...]:
    """Every task has its own conjugate gradients, until |r_t| <= target / sqrt(tasks), with nothing to send."""
    target, relative, enough, limit, is_warm, of_gradient, with_cross = numbers
    right = lax.cond(of_gradient > 0, lambda: -here.gradient(), lambda: here.cut(given))
    square = lax.cond(of_gradient > 0, lambda: here.sum(jnp.sum(right * right)), lambda: given @ given)
    length = jnp.sqrt(square)
    goal = jnp.maximum(target, relative * length) / here.tasks**0.5
    limit = jnp.where((length > enough) | (is_warm > 0), limit, jnp.minimum(limit, 0))
    start = jnp.where(is_warm > 0, here.cut(start), 0)
    w, r, count, least = _rows_solved(
        here, start, right, here.own(inverse) if len(inverse) else None, goal, limit, is_warm
    )
    cross = lax.cond(with_cross > 0, lambda: here.cross(w), here.no_cross)
    (w, r, right, numbers), (cross,) = here.gathered([w, r, right, jnp.stack([count, least], axis=1)], cross)
    w, r = here.flat(w), here.flat(r)
    sound = jnp.isfinite(r @ r)
    w, cross = jnp.where(sound, w, jnp.nan), jnp.where(sound | (with_cross <= 0), cross, jnp.nan)
    return w, r, here.flat(right), cross, jnp.stack([jnp.max(numbers[:, 0]), jnp.min(numbers[:, 1])])


def _rows_solved(
    here: _Here, start: Array, right: Array, M: Array | None, goal: Array, limit: Array, is_warm: Array
) -> tuple[Array, Array, Array, Array]:
    """w, r, the products taken and the least curvature of every task: of those that are here."""
    preconditioned = lambda r: r if M is None else jnp.einsum("bj,bji->bi", r, M)
    dots = lambda a, b: jnp.sum(a * b, axis=1)
    r = lax.cond((is_warm > 0) & (limit >= 0), lambda: right - here.product(start), lambda: right)
    tasks = len(right)

    def live(r, sound, count):
        return (jnp.sqrt(dots(r, r)) > goal) & sound & (count < limit)

    def one(carry):
        w, r, p, square, least, count, sound = carry
        on = live(r, sound, count)
        Hp = here.product(p)
        curvature = dots(p, Hp)
        sound = sound & (~on | (curvature > 0))
        on = on & sound
        step = jnp.where(on, square / jnp.where(on, curvature, 1), 0)[:, None]
        w, r = w + step * p, r - step * Hp
        z = preconditioned(r)
        new = dots(r, z)
        least = jnp.minimum(least, jnp.where(on, curvature / jnp.where(on, dots(p, p), 1), jnp.inf))
        ahead = z + (new / jnp.where(on, square, 1))[:, None] * p
        return w, r, jnp.where(on[:, None], ahead, p), jnp.where(on, new, square), least, count + on, sound

    z = preconditioned(r)
    first = jnp.zeros(tasks, right.dtype)
    carry = (start, r, z, dots(r, z), jnp.full(tasks, jnp.inf, right.dtype), first, jnp.ones(tasks, bool))
    unfinished = lambda carry: jnp.any(live(carry[1], carry[6], carry[5]))
    w, r, _, _, least, count, _ = lax.while_loop(unfinished, one, carry)
    return w, r, count, least
