"""Leading singular triples and eigenpairs of large matrices, from products with them only.

Lanczos processes with full reorthogonalisation and thick restarts: the best vectors of a full basis open the next one.
For several pairs in blocks of as many columns, so that a value repeated that often is found that often; for one pair
vector by vector, without the factorisations of blocks, which would take twice as long as the products.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from bisaddle.sets.balls import direction_and_length
from bisaddle.sets.matrix import scaled

# up to this many columns the search space would be the whole space: the dense factorisation is then the small problem
SMALL = 32
# Residual at which a pair counts as found, relative to the largest value. A singular value (an eigenvalue) lies within
# the residual of its estimate, so this bounds the error of <d, lmo(d)>; as a rule that error is the residual's square.
ACCURACY = 1e-12
# (columns of the basis, columns kept at a restart, cycles made by the end) of the stages, for blocks and for a vector:
# measured on Gaussian matrices, whose largest values are close, and on such matrices with a part of low rank
BLOCK_STAGES = ((28, 8, 4), (96, 32, 200))
VECTOR_STAGES = ((12, 10, 1), (36, 20, 8), (96, 32, 200))


def _all(values: Array) -> Array:
    return jnp.ones(values.shape, bool)


def leading_singular(a: Array, count: int, needed: Callable = _all) -> tuple[Array, Array, Array, Array]:
    """The `count` largest singular values and their vectors: u (m, count), s (count,), v (n, count), residual (count,).

    needed(s): of the values, those that must be found accurately; all, unless given.
    residual is max(|A v - s u|, |A' u - s v|), computed afresh from what is returned. Golub-Kahan bidiagonalisation:
    it works with A, not A'A, so that small values among the leading ones keep their digits. The largest value alone
    keeps them with A'A too, and needs one basis instead of two.
    """
    if a.shape[0] < a.shape[1]:
        v, s, u, residual = leading_singular(a.T, count, needed)
        return u, s, v, residual
    a, scale, unfit = scaled(a)
    if a.shape[1] <= max(SMALL, 3 * count):
        u, s, vt = jnp.linalg.svd(a, full_matrices=False)
        u, s, v = u[:, :count], s[:count], vt[:count].T
    elif count == 1:
        u, s, v = _one_by_one(_leading_triple)(a)
    else:
        u, s, v = _one_by_one(partial(_bidiagonalise, count=count, needed=needed))(a, scale)
    right = jnp.linalg.norm(a @ v - u * s, axis=0)
    left = jnp.linalg.norm(_transposed_product(a, u) - v * s, axis=0)
    residual = jnp.maximum(left, right)
    return _or_nan(u, unfit), _or_nan(scale * s, unfit), _or_nan(v, unfit), _or_nan(scale * residual, unfit)


def leading_symmetric(a: Array, count: int, needed: Callable = _all) -> tuple[Array, Array, Array]:
    """The `count` largest eigenvalues (signed, not in absolute value) of a symmetric matrix: vectors (n, count),
    values (count,), residual |A q - value q| (count,). needed: as for leading_singular."""
    a, scale, unfit = scaled(a)
    if a.shape[0] <= max(SMALL, 3 * count):
        values, vectors = jnp.linalg.eigh(a)
        values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
    elif count == 1:
        values, vectors = _one_by_one(_leading_pair)(a)
    else:
        values, vectors = _one_by_one(partial(_tridiagonalise, count=count, needed=needed))(a, scale)
    residual = jnp.linalg.norm(a @ vectors - vectors * values, axis=0)
    return _or_nan(vectors, unfit), _or_nan(scale * values, unfit), _or_nan(scale * residual, unfit)


# under vmap, one matrix after the other: a batch waits for its slowest, and is 3 to 6 times slower on a CPU
_one_by_one = jax.custom_batching.sequential_vmap


def _leading_triple(a: Array) -> tuple[Array, Array, Array]:
    _, v = _lanczos(lambda x: (a @ x) @ a, a.shape[1], a.dtype)
    u, s = direction_and_length(a @ v)
    u = jnp.where(s == 0, jnp.arange(u.size) == 0, u)
    return u[:, None], s[None], v[:, None]


def _leading_pair(a: Array) -> tuple[Array, Array]:
    value, vector = _lanczos(lambda x: a @ x, a.shape[0], a.dtype)
    return value[None], vector[:, None]


def _lanczos(apply: Callable[[Array], Array], size: int, dtype) -> tuple[Array, Array]:
    """The largest eigenvalue of a symmetric operator, and its vector: A Q' = Q' T + q beta e_last', T small.

    The basis Q has its vectors as rows, so that products with it run along memory.
    """
    noise = _noise(1, size, 1, dtype)[:, 0]
    accuracy, eps = _accuracy(dtype), float(jnp.finfo(dtype).eps)
    unit = lambda x: x / jnp.sqrt(jnp.sum(jnp.square(x)))

    def stage(width: int, kept: int, most: int, carry):
        def expand(position, carry):
            q, t, _, cycles = carry
            basis = q[:width]
            image = apply(q[position])
            first = basis @ image
            image = image - first @ basis
            second = basis @ image  # for the rounding errors
            image = image - second @ basis
            t = lax.dynamic_update_slice(t, (first + second)[:, None], (0, position))
            beta = jnp.sqrt(jnp.sum(jnp.square(image)))

            def another(_):  # an exhausted space leaves rounding errors; any direction off the basis goes on
                x = jnp.roll(noise, 1 + position + 97 * cycles)
                x = unit(x - (basis @ x) @ basis)
                return unit(x - (basis @ x) @ basis)

            lost = 10 * size**0.5 * eps * jnp.max(jnp.abs(t))
            following = lax.cond(beta > lost, lambda image: image / beta, another, image)
            # a row more than the width: the last vector is stored there, and in no product
            return lax.dynamic_update_slice(q, following[None], (position + 1, 0)), t, beta, cycles

        def cycle(carry):
            q, t, _, first, cycles, _ = carry
            q, t, beta, _ = lax.fori_loop(first, width, expand, (q, t, jnp.zeros((), dtype), cycles))
            values, vectors = _eigenpairs(t)
            largest = jnp.max(jnp.abs(values))
            found = beta * jnp.abs(vectors[-1, 0]) <= accuracy * largest
            finished = found | (largest == 0) | ~jnp.isfinite(largest)
            q = _add_rows(jnp.concatenate([vectors[:, :kept].T @ q[:width], q[width:]]), width + 1)
            return q, _diagonal(values[:kept], width), values[0], kept, cycles + 1, finished

        q, t, *rest = carry
        q, t = _add_rows(q, width + 1), jnp.pad(t, (0, width - t.shape[0]))
        return lax.while_loop(lambda c: ~c[-1] & (c[-2] < most), cycle, (q, t, *rest))

    carry: tuple = (unit(noise)[None], jnp.zeros((0, 0), dtype), jnp.zeros((), dtype), 0, 0, jnp.asarray(False))
    for width, kept, most in VECTOR_STAGES:
        width = min(width, size - 1)
        carry = stage(width, min(kept, width - 1), most, carry)
    return carry[2], carry[0][0]


def _bidiagonalise(a: Array, scale: Array, count: int, needed: Callable) -> tuple[Array, Array, Array]:
    """A V = U B and A' U = V B' + (next block) R e_last' with B small: its singular triples are those of A up to R.

    scale: what A was divided by; `needed` is asked of values of the matrix as it was given.
    """
    rows, columns = a.shape
    block = count
    noise_left = _noise(1, rows, block, a.dtype)
    noise_right = _noise(2, columns, block, a.dtype)

    def expand(step, carry):
        u, v, b, _, _, cycles = carry
        position = step * block
        shift = 1 + step + 97 * cycles
        image, coefficients = _orthogonalise(a @ lax.dynamic_slice_in_dim(v, position, block, 1), u)
        left, triangle = _next_block(image, u, jnp.max(jnp.abs(b)), jnp.roll(noise_left, shift, axis=0))
        u = lax.dynamic_update_slice_in_dim(u, left, position, 1)
        b = lax.dynamic_update_slice_in_dim(b, coefficients, position, 1)
        b = lax.dynamic_update_slice(b, triangle, (position, position))
        image, _ = _orthogonalise(_transposed_product(a, left), v)
        right, remainder = _next_block(image, v, jnp.max(jnp.abs(b)), jnp.roll(noise_right, shift, axis=0))
        return u, _store(v, right, position + block), b, right, remainder, cycles

    def cycles_of(width: int, kept: int, most: int, carry):
        def cycle(carry):
            u, v, b, _, first, cycles, _ = carry
            empty = jnp.zeros((columns, block), a.dtype), jnp.zeros((block, block), a.dtype)
            carry = lax.fori_loop(first, width // block, expand, (u, v, b, *empty, cycles))
            u, v, b, right, remainder, _ = carry
            x, s, yt = jnp.linalg.svd(b)
            residual = jnp.linalg.norm(remainder @ x[-block:, :count], axis=0)
            found = (residual <= _accuracy(a.dtype) * s[0]) | ~needed(scale * s[:count])
            finished = jnp.all(found) | (s[0] == 0) | ~jnp.isfinite(s[0])
            u = _pad(u @ x[:, :kept], width)
            v = _pad(jnp.concatenate([v @ yt[:kept].T, right], axis=1), width)
            return u, v, _diagonal(s[:kept], width), s[:count], kept // block, cycles + 1, finished

        u, v, b, *rest = carry
        b = jnp.pad(b, (0, width - b.shape[0]))
        return lax.while_loop(lambda c: ~c[-1] & (c[-2] < most), cycle, (_pad(u, width), _pad(v, width), b, *rest))

    opening, _ = jnp.linalg.qr(noise_right)
    left, b = jnp.zeros((rows, 0), a.dtype), jnp.zeros((0, 0), a.dtype)
    carry: tuple = (left, opening, b, jnp.zeros(count, a.dtype), 0, 0, jnp.asarray(False))
    for width, kept, most in _stages(columns, block):
        carry = cycles_of(width, kept, most, carry)
    return carry[0][:, :count], carry[3], carry[1][:, :count]


def _tridiagonalise(a: Array, scale: Array, count: int, needed: Callable) -> tuple[Array, Array]:
    """A Q = Q T + (next block) R e_last' with T small: its eigenpairs are those of A up to R."""
    size = a.shape[0]
    block = count
    noise = _noise(1, size, block, a.dtype)

    def expand(step, carry):
        q, t, _, _, cycles = carry
        position = step * block
        image, coefficients = _orthogonalise(a @ lax.dynamic_slice_in_dim(q, position, block, 1), q)
        t = lax.dynamic_update_slice_in_dim(t, coefficients, position, 1)
        fresh = jnp.roll(noise, 1 + step + 97 * cycles, axis=0)
        following, remainder = _next_block(image, q, jnp.max(jnp.abs(t)), fresh)
        return _store(q, following, position + block), t, following, remainder, cycles

    def cycles_of(width: int, kept: int, most: int, carry):
        def cycle(carry):
            q, t, _, first, cycles, _ = carry
            empty = jnp.zeros((size, block), a.dtype), jnp.zeros((block, block), a.dtype)
            q, t, following, remainder, _ = lax.fori_loop(first, width // block, expand, (q, t, *empty, cycles))
            values, vectors = _eigenpairs(t)
            residual = jnp.linalg.norm(remainder @ vectors[-block:, :count], axis=0)
            largest = jnp.max(jnp.abs(values))
            found = (residual <= _accuracy(a.dtype) * largest) | ~needed(scale * values[:count])
            finished = jnp.all(found) | (largest == 0) | ~jnp.isfinite(largest)
            q = _pad(jnp.concatenate([q @ vectors[:, :kept], following], axis=1), width)
            return q, _diagonal(values[:kept], width), values[:count], kept // block, cycles + 1, finished

        q, t, *rest = carry
        t = jnp.pad(t, (0, width - t.shape[0]))
        return lax.while_loop(lambda c: ~c[-1] & (c[-2] < most), cycle, (_pad(q, width), t, *rest))

    opening, _ = jnp.linalg.qr(noise)
    carry: tuple = (opening, jnp.zeros((0, 0), a.dtype), jnp.zeros(count, a.dtype), 0, 0, jnp.asarray(False))
    for width, kept, most in _stages(size, block):
        carry = cycles_of(width, kept, most, carry)
    return carry[2], carry[0][:, :count]


def _eigenpairs(t: Array) -> tuple[Array, Array]:
    """Of the small matrix T, largest value first.

    Column p holds Q' A q_p; what a kept vector shares with later ones stands in their columns only: hence "U".
    """
    values, vectors = jnp.linalg.eigh(t, UPLO="U", symmetrize_input=False)
    return values[::-1], vectors[:, ::-1]


def _stages(size: int, block: int) -> list[tuple[int, int, int]]:
    """(columns of a full basis, columns kept at a restart, cycles made by the end of the stage), in whole blocks.

    A small basis finds a well separated value soon; one that it has not found is worth a larger basis.
    """
    stages = []
    for width, kept, most in BLOCK_STAGES:
        blocks = min(max(-(-width // block), 5), size // block - 1)
        stages.append((blocks * block, min(max(-(-kept // block), 2), blocks - 1) * block, most))
    return stages


def _accuracy(dtype) -> float:
    return max(ACCURACY, 64 * float(jnp.finfo(dtype).eps))


def _noise(seed: int, size: int, block: int, dtype) -> Array:
    return jax.random.normal(jax.random.key(seed), (size, block), dtype)


def _orthogonalise(image: Array, basis: Array) -> tuple[Array, Array]:
    """image - basis basis' image, twice for the rounding errors, and the coefficients taken away."""
    first = basis.T @ image
    image = image - basis @ first
    second = basis.T @ image
    return image - basis @ second, first + second


def _next_block(image: Array, basis: Array, largest: Array, noise: Array) -> tuple[Array, Array]:
    """Orthonormal columns for the image, orthogonal to the basis, and the triangle between.

    An exhausted space leaves rounding errors, or exact zeros, as the image. Noise of their size makes a new direction
    of them, and one more orthogonalisation parts it from the basis.
    """
    level = float(jnp.finfo(image.dtype).eps) / image.shape[0] ** 0.5 * jnp.where(largest == 0, 1, largest)
    columns, triangle = jnp.linalg.qr(image + level * noise)
    columns, turn = jnp.linalg.qr(columns - basis @ (basis.T @ columns))
    return columns, turn @ triangle


def _store(basis: Array, columns: Array, position: Array) -> Array:
    """A full basis has no room for the block after its last: the update would be clamped onto that one."""
    grown = lax.dynamic_update_slice_in_dim(basis, columns, position, 1)
    return jnp.where(position < basis.shape[1], grown, basis)


def _pad(columns: Array, width: int) -> Array:
    return jnp.pad(columns, ((0, 0), (0, width - columns.shape[1])))


def _add_rows(rows: Array, count: int) -> Array:
    return jnp.pad(rows, ((0, count - rows.shape[0]), (0, 0)))


def _diagonal(values: Array, width: int) -> Array:
    places = jnp.arange(values.size)
    return jnp.zeros((width, width), values.dtype).at[places, places].set(values)


def _transposed_product(a: Array, x: Array) -> Array:
    """A'x as (x'A)': XLA multiplies a row by a matrix twice as fast as the transpose by a column."""
    return (x.T @ a).T


def _or_nan(part: Array, unfit: Array) -> Array:
    return jnp.where(unfit, jnp.nan, part)
