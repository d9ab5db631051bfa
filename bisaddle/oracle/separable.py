"""Lower levels that are a sum over tasks: conjugate gradients for each task by itself, with nothing to send."""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec
from jaxtyping import Array, PyTree

from bisaddle import oracle
from bisaddle.devices import everywhere
from bisaddle.oracle.theta_blocks import block_order
from bisaddle.problem import Functions


class Separable(eqx.Module):
    """g(x, theta) = sum_t g_t(x_t, theta_t), theta_t the entry t along the first axis of every leaf of theta.

    function: g. data, x: of every leaf of the data and of x, whether it has an entry for each task along its first
    axis; the others are for all tasks. g takes any number of tasks, and gives their sum.
    """

    function: Callable
    data: tuple[bool, ...] = eqx.field(static=True)
    x: tuple[bool, ...] = eqx.field(static=True)

    def __call__(self, *arguments: PyTree) -> Array:
        return self.function(*arguments)


def task_solves(part: Any, packed: Array, inverse: Array) -> Array:
    """As kernels._lower, but every task has its own conjugate gradients, until |r_t| <= target / sqrt(tasks)."""
    size, dtype, mesh, tasks = part.theta.size, packed.dtype, part.theta.mesh, part.theta.shapes[0][0]
    x, theta = part.split(packed, "x", "theta")
    packed = packed[part.x.size + size :]
    start, given = packed[:size], packed[size : 2 * size]
    target, relative, enough, limit, is_warm, of_gradient, with_cross = packed[2 * size :]
    gradient = lambda: part.theta.join(oracle.lower_gradient_in_domain(part, x, theta))
    right = lax.cond(of_gradient > 0, lambda: -gradient(), lambda: given)
    length = jnp.sqrt(right @ right)
    goal = jnp.maximum(target, relative * length) / tasks**0.5
    active = (length > enough) | (is_warm > 0)
    order = block_order(part.theta, tasks)
    rows = lambda flat: flat[order].reshape(tasks, -1)
    numbers = jnp.stack([goal, jnp.where(active, limit, jnp.minimum(limit, 0)), is_warm])
    every = (jax.tree.leaves(part.data), jax.tree.leaves(x), rows(part.theta.join(theta)), rows(start), rows(right))
    of_tasks = lambda flags: [PartitionSpec("tasks") if flag else PartitionSpec() for flag in flags]
    own = PartitionSpec("tasks")
    specs = (of_tasks(part.lower.data), of_tasks(part.lower.x), own, own, own, own, PartitionSpec())
    solve = partial(_solved, part, jax.tree.structure(part.data), jax.tree.structure(x))
    if mesh is not None:
        solve = jax.shard_map(solve, mesh=mesh, in_specs=specs, out_specs=own, check_vma=False)
    matrices = inverse if inverse.shape[0] else jnp.zeros((tasks, 0, 0), dtype)
    found = everywhere(solve(*every, matrices, numbers), mesh)
    width = size // tasks
    back = lambda v: jnp.zeros(size, dtype).at[order].set(v.ravel())
    w, r, count, least = back(found[:, :width]), back(found[:, width : 2 * width]), found[:, -2], found[:, -1]
    w = jnp.where(jnp.isfinite(r @ r), w, jnp.nan)
    along = lambda: part.x.join(oracle.cross_product(part, x, theta, part.theta.traced(w)))
    cross = lax.cond(with_cross > 0, along, lambda: jnp.zeros(part.x.size, dtype))
    return jnp.concatenate([w, r, right, cross, jnp.stack([jnp.max(count), jnp.min(least)])])


def _solved(
    part: Any,
    data_form: Any,
    x_form: Any,
    data: list,
    x: list,
    theta: Array,
    start: Array,
    right: Array,
    M: Array,
    numbers: Array,
) -> Array:
    """w, r, the products taken and the least curvature of every task: of those that are here."""
    goal, limit, is_warm = numbers
    functions = Functions(part.upper, part.lower, data_form.unflatten(data), part.derivatives)
    here = part.theta.per_task(theta)
    product = lambda p: _as_rows(oracle.hessian_product(functions, x_form.unflatten(x), here, part.theta.per_task(p)))
    preconditioned = lambda r: jnp.einsum("bj,bji->bi", r, M) if M.shape[1] else r
    dots = lambda a, b: jnp.sum(a * b, axis=1)
    r = lax.cond((is_warm > 0) & (limit >= 0), lambda: right - product(start), lambda: right)
    tasks = len(right)

    def live(r, sound, count):
        return (jnp.sqrt(dots(r, r)) > goal) & sound & (count < limit)

    def one(carry):
        w, r, p, square, least, count, sound = carry
        on = live(r, sound, count)
        Hp = product(p)
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
    return jnp.concatenate([w, r, count[:, None], least[:, None]], axis=1)


def _as_rows(tree: PyTree) -> Array:
    leaves = jax.tree.leaves(tree)
    return jnp.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)
