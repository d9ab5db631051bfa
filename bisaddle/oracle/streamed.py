"""The derivatives of a problem whose rows are streamed: every evaluation is a pass over all chunks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from bisaddle import oracle
from bisaddle.oracle import bends, columns, kernels as compiled, large
from bisaddle.oracle.kernels import Kernels, Products, Vector
from bisaddle.oracle.theta_blocks import unit_rows
from bisaddle.problem import Point, Problem
from bisaddle.programs import Program
from bisaddle.streams.chunks import Chunks

# columns of the Hessian that are made at once: each takes the memory of a chunk
COLUMNS = 16


class StreamedKernels(Kernels):
    """The kernels of the whole problem, f = sum_c share_c f(.; chunk c) and g likewise.

    These are f and g of all rows if both are means over the rows (and of what has no rows). Nothing but sums over the
    chunks is asked of them, which derivatives and products are; what is not, such as conjugate gradients and norms, is
    made of these on the host. passes: how often the rows were read.
    """

    def __init__(self, problem: Problem, point: Point, chunks: Chunks):
        super().__init__(problem, point)
        self.chunks, self.passes = chunks, 0
        self.heavy, self.streamed = True, True

    def packed_upper(self, packed: Vector) -> Vector:
        return self._mean(compiled._upper, "f and its gradients", packed)

    def upper_parts(self, x: Vector, theta: Vector, y: Vector) -> tuple[Vector, ...]:
        return self._mean(large.upper, "f and its gradients", x, theta, y)

    def lower_gradient(self, x: Vector, theta: Vector) -> Vector:
        return self._mean(_lower_gradient, "the gradient of g", np.concatenate([x, theta]))

    def hessian_product(self, x: Vector, theta: Vector, v: Vector) -> Vector:
        return self._second_order(x, theta, v)[0]

    def cross_product(self, x: Vector, theta: Vector, w: Vector) -> Vector:
        return self._second_order(x, theta, w)[1]

    def products(self, x: Vector, theta: Vector, *vectors: Vector) -> Products:
        packed, rows = np.concatenate([x, theta]), np.stack(vectors)
        value, *found = self._mean(columns.products, "products with the Hessian of g", packed, rows)
        return Products(float(value), *found)

    def columns(self, x: Vector, theta: Vector, blocks: int = 1) -> tuple[Vector, Vector]:
        units = unit_rows(self.theta, blocks, theta.size // blocks)
        found = self._mean(_columns, "the Hessian of g", np.concatenate([x, theta]), units)
        return found[:, : theta.size], found[:, theta.size :]

    def bends(self, x: Vector, theta: Vector, y: Vector, w: Vector, ends: Vector) -> Vector:
        packed = np.concatenate([x, theta, y, w])
        return self._mean(bends.bends, "how the gradients depend on theta", packed, ends)

    def norms(
        self, x: Vector, theta: Vector, y: Vector, w: Vector, ends: Vector, passes: int | None = None
    ) -> tuple[float, float]:
        """As of Kernels; both power iterations in the same passes, two for each of theirs."""
        packed = np.concatenate([x, theta, y, w])
        v = np.random.default_rng(1).normal(size=theta.size).astype(self.dtype)
        pair, lengths = np.stack([v, v]) / np.linalg.norm(v), np.zeros(2)
        for _ in range(bends.power_passes(theta.size) if passes is None else passes):
            images = self._mean(_images, "norms of second derivatives", packed, ends, pair)
            pair = self._mean(_transposed, "norms of second derivatives, transposed", packed, ends, *images)
            squares = np.linalg.norm(pair, axis=1)
            lengths, pair = np.sqrt(squares), pair / np.where(squares > 0, squares, 1)[:, None]
        return float(lengths[0]), float(lengths[1])

    def _second_order(self, x: Vector, theta: Vector, v: Vector) -> tuple[Vector, Vector]:
        found = self._mean(_second_order, "products with the Hessian of g", np.concatenate([x, theta]), v)
        return found[: theta.size], found[theta.size :]

    def _mean(self, function: Callable, name: str, *arrays: Vector) -> Any:
        """sum_c share_c function(part with chunk c, *arrays), added up in float64."""
        total: Any = None
        for share, data in self.chunks.passed():
            found = Program(function, name, replace(self.part, data=data))(*arrays)
            scaled = jax.tree.map(lambda a, share=share: share * np.asarray(a, np.float64), found)
            total = scaled if total is None else jax.tree.map(np.add, total, scaled)
        self.passes += 1
        return jax.tree.map(lambda a: np.asarray(a, self.dtype), total)  # a number stays an array


# --- the programs, of one chunk ---------------------------------------------------------------------------------------


def _lower_gradient(part: Any, packed: Array) -> Array:
    return part.theta.join(oracle.lower_gradient_in_domain(part, *part.split(packed, "x", "theta")))


def _second_order(part: Any, packed: Array, v: Array) -> Array:
    return columns.column(part, packed)(v)


def _columns(part: Any, packed: Array, units: Array) -> Array:
    return lax.map(columns.column(part, packed), units, batch_size=COLUMNS)


def _linear_maps(part: Any, packed: Array, ends: Array) -> tuple[Callable, Callable]:
    """e -> g_theta_x e, and e -> J e at every end."""
    x, theta, y, w = part.split(packed, "x", "theta", "y", "theta")
    at = bends.equations(part, x, y, w)
    cross = lambda e: part.x.join(oracle.cross_product(part, x, theta, part.theta.traced(e)))
    return cross, lambda e: jnp.concatenate([jax.jvp(at, (end,), (e,))[1] for end in ends])


def _images(part: Any, packed: Array, ends: Array, pair: Array) -> tuple[Array, Array]:
    cross, J = _linear_maps(part, packed, ends)
    return cross(pair[0]), J(pair[1])


def _transposed(part: Any, packed: Array, ends: Array, image: Array, bend: Array) -> Array:
    zero = jnp.zeros(part.theta.size, packed.dtype)
    maps = _linear_maps(part, packed, ends)
    return jnp.stack([jax.vjp(one, zero)[1](of)[0] for one, of in zip(maps, (image, bend), strict=True)])
