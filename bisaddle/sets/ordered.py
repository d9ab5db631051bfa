"""Sets that depend on the order of the entries: their projections stand on isotonic regression."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from bisaddle.sets.base import Leaf, VectorSet, finite_array, flat, like, poison, positive, traced, within_reach
from bisaddle.sets.extremes import ascending_order
from bisaddle.sets.host import WORTH_A_CALL, on_cpu, on_host


class OrderedWeightedL1Ball(VectorSet):
    """{v : sum weights_i |v|_(i) <= radius}, |v|_(1) >= |v|_(2) >= ..., weights nonincreasing, >= 0, the first > 0

    project: a sort and about ten isotonic regressions of n sequential steps each (monotone Newton on the multiplier);
    lmo: O(n log n), a sort: equal entries on the largest |d_i|.
    """

    weights: Leaf = eqx.field(converter=lambda w: _nonincreasing(w))
    radius: Leaf = eqx.field(converter=lambda r: positive(r, "OrderedWeightedL1Ball radius"))

    def vector_project(self, v: Array) -> Array:
        weights, radius = flat(self.weights, v), like(self.radius, v)
        order = ascending_order(-jnp.abs(v))
        size = within_reach(jnp.abs(v)[order], 0.5 * self.vector_diameter(v))
        shrunk = _shrink_to_ordered(size, weights, radius)
        outside = jnp.sign(v) * jnp.zeros_like(v).at[order].set(shrunk, unique_indices=True)
        return poison(jnp.where(jnp.sum(weights * size) <= radius, v, outside), v)

    def vector_lmo(self, d: Array) -> Array:
        order = ascending_order(-jnp.abs(d))
        totals = jnp.cumsum(flat(self.weights, d))
        largest = jnp.where(d[order[0]] == 0, 1, jnp.abs(d[order[0]]))
        last = jnp.argmax(jnp.cumsum(jnp.abs(d)[order] / largest) / totals)
        size = jnp.where(jnp.arange(d.size) <= last, like(self.radius, d) / totals[last], 0)
        return poison(jnp.where(d > 0, -1, 1) * jnp.zeros_like(d).at[order].set(size, unique_indices=True), d)

    def vector_diameter(self, v: Array) -> Array:
        counts = jnp.arange(1, v.size + 1, dtype=v.dtype)
        return 2 * like(self.radius, v) * jnp.max(jnp.sqrt(counts) / jnp.cumsum(flat(self.weights, v)))


class Permutahedron(VectorSet):
    """{v : v in the convex hull of all permutations of values}

    project: a sort and an isotonic regression of n sequential steps; lmo: O(n log n), a sort: the largest value where
    d is smallest.
    """

    values: Leaf = eqx.field(converter=lambda a: finite_array(a, "Permutahedron values"))

    def __check_init__(self):
        if not np.ndim(self.values):
            raise ValueError("Permutahedron values must be an array with one value per coordinate, given a number")

    def vector_project(self, v: Array) -> Array:
        return poison(_project_permutahedron(v, flat(self.values, v)), v)

    def vector_lmo(self, d: Array) -> Array:
        values = _descending(flat(self.values, d))
        return poison(jnp.zeros_like(d).at[ascending_order(d)].set(values, unique_indices=True), d)

    def vector_diameter(self, v: Array) -> Array:
        values = _descending(flat(self.values, v))
        return jnp.sqrt(jnp.sum(jnp.square(values - values[::-1])))


def pooled_blocks(z: Array) -> Array:
    """The block of every entry, from 0, in the nonincreasing least squares fit of z, which is constant on blocks.

    Pool adjacent violators: every entry opens a block, which swallows the blocks before it while its mean exceeds
    theirs. On a CPU larger vectors go to SciPy, whose loop is quicker. In ours the stack is written once per entry and
    only scalars change in the inner loop, so that a batch costs no copies.
    """
    if z.size >= WORTH_A_CALL and on_cpu():
        return on_host(_pooled_by_scipy, jax.ShapeDtypeStruct(z.shape, jnp.int32), z)

    def add(i, stack):
        means, counts, top = stack

        def swallow(block):
            top, mean, count = block
            total = count + counts[top - 1]
            return top - 1, mean + (means[top - 1] - mean) * (counts[top - 1] / total), total

        exceeds = lambda block: (block[0] > 0) & (means[jnp.maximum(block[0] - 1, 0)] < block[1])
        top, mean, count = lax.while_loop(exceeds, swallow, (top, z[i], jnp.ones((), z.dtype)))
        return means.at[top].set(mean), counts.at[top].set(count), top + 1

    z = lax.stop_gradient(z)
    stack = (jnp.zeros_like(z), jnp.zeros_like(z), jnp.zeros((), jnp.int32))
    _, counts, top = lax.fori_loop(0, z.size, add, stack)
    ends = jnp.cumsum(jnp.where(jnp.arange(z.size) < top, counts, 0))
    return jnp.searchsorted(ends, jnp.arange(z.size, dtype=z.dtype), side="right").astype(jnp.int32)


def _pooled_by_scipy(z: np.ndarray) -> np.ndarray:
    from scipy.optimize import isotonic_regression  # here, not above: it takes its time to import

    starts = isotonic_regression(z, increasing=False).blocks
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))


def _block_sums(values: Array, blocks: Array) -> Array:
    return jax.ops.segment_sum(values, blocks, num_segments=values.size, indices_are_sorted=True)


def _descending(values: Array) -> Array:
    return values[ascending_order(-lax.stop_gradient(values))]


@jax.custom_jvp
def _project_permutahedron(v: Array, values: Array) -> Array:
    if v.size >= WORTH_A_CALL and on_cpu():
        return on_host(_project_permutahedron_by_scipy, jax.ShapeDtypeStruct(v.shape, v.dtype), v, values)
    return _sort_and_even_out(v, values)


@_project_permutahedron.defjvp
def _project_permutahedron_jvp(primals, tangents):
    return jax.jvp(_sort_and_even_out, primals, tangents)


def _sort_and_even_out(v: Array, values: Array) -> Array:
    order = ascending_order(-v)
    return jnp.zeros_like(v).at[order].set(_even_out(v[order], _descending(values)), unique_indices=True)


def _project_permutahedron_by_scipy(v: np.ndarray, values: np.ndarray) -> np.ndarray:
    """_sort_and_even_out, line by line; one call instead of three, each of which would copy its vectors."""
    from scipy.optimize import isotonic_regression  # here, not above: it takes its time to import

    values, order = np.sort(values)[::-1], np.argsort(-v)
    v = v[order]
    near = np.append(v.dtype.type(0), -np.cumsum(np.minimum(v[:-1] - v[1:], 2 * (values[0] - values[-1]))))
    blocks = isotonic_regression(near - values, increasing=False).blocks
    starts, counts = blocks[:-1], np.diff(blocks)
    within = v - np.repeat(v[starts], counts)
    projected = np.empty_like(v)
    projected[order] = within + np.repeat(np.add.reduceat(values - within, starts) / counts, counts)
    return projected


@jax.jit
def _even_out(v: Array, values: Array) -> Array:
    """The projection of v onto the permutahedron, both nonincreasing: v moved by one constant per pooled block.

    Blocks never cross a gap of v larger than the range of the values, so gaps are cut at twice that: whatever the scale
    of v, the numbers compared stay small, and rounding does not make a tie of a cut gap.
    """
    gaps = jnp.minimum(v[:-1] - v[1:], 2 * (values[0] - values[-1]))
    near = jnp.concatenate([jnp.zeros_like(v[:1]), -jnp.cumsum(gaps)])
    blocks = pooled_blocks(near - values)
    counts = jnp.maximum(_block_sums(jnp.ones_like(v), blocks), 1)
    first = jnp.searchsorted(blocks, blocks, side="left")
    within = v - v[first]
    return within + ((_block_sums(values, blocks) - _block_sums(within, blocks)) / counts)[blocks]


@jax.jit
def _shrink_to_ordered(size: Array, weights: Array, radius: Array) -> Array:
    """The projection of a nonincreasing vector >= 0 onto the ordered weighted l1 ball, from outside it.

    max(fit of size - t weights, 0) with t the root of sum weights x = radius. As t grows blocks only merge and vanish,
    so the sum is a convex, piecewise linear function of t, and Newton's method from the left is monotone and finite.
    It runs twice, the second time for the vector moved by the first root (at a scale of 1e16 that is only known to a
    few units). Then the blocks are known, t solves a linear equation, and that carries the derivatives.
    """
    fixed, fixed_weights, fixed_radius = lax.stop_gradient((size, weights, radius))
    outside = jnp.sum(fixed_weights * fixed) > fixed_radius

    def solution(size, weights, radius, blocks, t):
        """The positive block means at the t for which they reach the radius, given those that are positive at `t`."""
        counts = jnp.maximum(_block_sums(jnp.ones_like(size), blocks), 1)
        means, slopes = _block_sums(size, blocks) / counts, _block_sums(weights, blocks) / counts
        active = (means > t * slopes) | (jnp.arange(size.size) == 0)
        total = jnp.sum(jnp.where(active, counts * slopes * means, 0)) - radius
        reached = total / jnp.sum(jnp.where(active, counts * jnp.square(slopes), 0))
        return reached, jnp.where(active, means - reached * slopes, 0)

    def root(size, start):
        def newton(carry):
            t, _ = carry
            blocks = pooled_blocks(size - t * fixed_weights)
            return solution(size, fixed_weights, fixed_radius, blocks, t)[0], t

        return lax.while_loop(lambda c: outside & (c[0] > c[1]), newton, (start, jnp.full_like(start, -jnp.inf)))[1]

    first = root(fixed, jnp.zeros_like(radius))
    moved = size - first * weights
    t = root(lax.stop_gradient(moved), -64 * jnp.finfo(size.dtype).eps * size.size * first)
    blocks = pooled_blocks(lax.stop_gradient(moved) - t * fixed_weights)
    x = jnp.maximum(solution(moved, weights, radius, blocks, t)[1], 0)[blocks]
    reached = jnp.sum(weights * x)
    return x * radius / jnp.where(reached == 0, 1, reached)  # 1 up to rounding, which large scales multiply


def _nonincreasing(value) -> Leaf:
    weights = finite_array(value, "OrderedWeightedL1Ball weights")
    if not np.ndim(weights):
        raise ValueError(
            "OrderedWeightedL1Ball weights must be an array with one weight per coordinate, given a number"
        )
    if traced(weights):
        return weights
    flat_weights = np.asarray(weights).ravel()
    if np.any(np.diff(flat_weights) > 0) or flat_weights[-1] < 0 or not flat_weights[0] > 0:
        raise ValueError(
            "OrderedWeightedL1Ball weights must be nonincreasing and >= 0 with the first > 0, given "
            f"{np.array2string(flat_weights, threshold=8, precision=4)}"
        )
    return weights
