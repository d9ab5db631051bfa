"""The derivatives of a problem at flat NumPy vectors, each a small compiled program: for what runs on the host."""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from bisaddle import oracle
from bisaddle.devices import mesh_of
from bisaddle.oracle import bends, columns, depends, derivatives, large, separable
from bisaddle.oracle.conjugate import Solve, by_products
from bisaddle.oracle.halves import Halves, Slopes
from bisaddle.oracle.theta_blocks import matrix_blocks, preconditioner, unit_rows
from bisaddle.problem import Functions, Point, Problem
from bisaddle.programs import LIGHT_BYTES, Program, near
from bisaddle.sets.flat import FlatSet, flat_set
from bisaddle.trees import Shape, drawn

Vector = np.ndarray
# products that a solve may take, in sizes of theta
MOST_PRODUCTS = 10
LARGE = 2**17  # variables beyond which every copy of a vector counts
RECENT, SHORT = 32, 2**10  # places at which f is still known, for certificates come back to some; variables, at most


class Upper(NamedTuple):
    """f and its gradients at a point; f_theta, f_y have no entries where there is no theta, no y."""

    value: float
    f_x: Vector
    f_theta: Vector
    f_y: Vector


class Products(NamedTuple):
    """g and g_theta at one place, and rows g_theta_theta v and g_theta_x v, straight from the derivatives of g."""

    value: float
    g_theta: Vector
    hessian: Vector
    cross: Vector


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _Part(Functions):
    """The functions of a problem, the shapes of a point, and what the functions take from outside (as a number): all
    that a program is compiled for."""

    x: Shape = field(metadata={"static": True})
    theta: Shape = field(metadata={"static": True})
    y: Shape = field(metadata={"static": True})
    outside: int = field(metadata={"static": True})

    @property
    def shared_mesh(self) -> Mesh | None:
        """The mesh on which work may be shared as suits it; None where it has a fixed order, as on one device."""
        return self.x.mesh if getattr(self.data, "order", None) is None else None

    def split(self, packed: Array, *names: str) -> list[PyTree]:
        """The packed vector as trees of the shapes of x, theta or y, by name."""
        parts, end = [], 0
        for name in names:
            shape = getattr(self, name)
            parts.append(shape.traced(packed[end : end + shape.size]))
            end += shape.size
        return parts


class Kernels:
    """The programs of one problem at points of one shape; they are compiled when first called.

    x, theta, y: the shapes; x_set, y_set: the sets over flat vectors, y_set None without a max player; heavy: so much
    data that a pass over them costs more than a call; streamed: they come in chunks. blocks: of theta, each with its
    own matrix in a preconditioner; 0 if theta is too large. All that goes in and out is a flat vector of one dtype.
    """

    def __init__(self, problem: Problem, point: Point):
        self.x = Shape.of(point.x)
        self.dtype = self.x.dtype
        self.theta, self.y = (Shape.of(part, empty=self.dtype) for part in (point.theta, point.y))
        self.eps = float(np.finfo(self.dtype).eps)
        mesh, shapes = mesh_of(problem.data), (self.x, self.theta, self.y)
        shapes = (shape if mesh is None else replace(shape, mesh=mesh) for shape in shapes)
        functions = problem.upper, problem.lower, problem.data, problem.derivatives
        self.part = near(_Part(*functions, *shapes, outside=derivatives.taken(problem)))
        self.has_lower, self.streamed = problem.lower is not None, False
        self.x_set: FlatSet = flat_set(problem.x_set, point.x)
        self.y_set: FlatSet | None = None if problem.y_set is None else flat_set(problem.y_set, point.y)
        data = sum(leaf.nbytes for leaf in jax.tree.leaves(self.part.data))
        self.heavy = data + (self.x.size + self.theta.size) * self.dtype.itemsize > LIGHT_BYTES
        # vectors of a large x or theta are given one by one: packed, each would be there twice
        self.wide = self.x.size > LARGE
        self.large = self.wide or self.theta.size > LARGE
        self._upper = Program(large.upper if self.large else _upper, "f and its gradients", self.part)
        beside, upper = self._upper.beside, self._upper
        self._recent = lru_cache(RECENT)(lambda packed, dtype: upper(np.frombuffer(packed, dtype)))
        self._lower = beside(_lower_of if self.large else _lower, "solves with the Hessian of g")
        self._gradient = beside(large.gradient, "the gradient of g")
        self._product = beside(large.product, "a product with the Hessian of g")
        self._cross = beside(large.cross, "a cross product of g")
        self._products = beside(large.products if self.large else columns.products, "products with the Hessian of g")
        self._columns = beside(columns.columns_one_by_one if self.heavy else columns.columns, "the Hessian of g")
        self._hessian_columns = beside(columns.hessian_one_by_one, "the Hessian of g alone")
        self._own_columns = beside(separable.columns, "the Hessians of tasks")
        self._bends = beside(bends.bends, "how the gradients depend on theta")
        self._curvature = beside(bends.curvature, "f and its second derivatives")
        self._norms = beside(bends.norms, "norms of second derivatives")
        self.blocks = matrix_blocks(self.theta, getattr(problem.lower, "each", False))
        # a large theta in one piece: conjugate gradients are driven from the host, which holds fewer copies of it
        shared = self.part.theta.mesh is not None or getattr(problem.lower, "each", False)
        self.one_large = self.theta.size > LARGE and not (self.blocks or shared)
        # a preconditioner that does nothing, on the device: one program for all solves
        size = self.theta.size // self.blocks if self.blocks else 0
        identity = np.zeros((self.blocks, size, size), self.dtype) + np.eye(size, dtype=self.dtype)
        self.identity = self.put(identity) if self.has_lower else identity

    def put(self, array: Vector) -> Array:
        """A preconditioner, where the solves want it."""
        return self._lower.put(array)

    def point(self, x: Vector, theta: Vector, y: Vector) -> Point:
        """Of NumPy arrays, views of these where they can be: to be `given_out` before a user sees them."""
        return Point.made(x=self.x.tree(x), theta=self.theta.tree(theta), y=self.y.tree(y))

    def flat(self, point: Point, own: bool = True) -> tuple[Vector, Vector, Vector]:
        """x, theta and y; if not own, x and theta may be those of the point, to be read only."""
        return self.x.ravel(point.x, own), self.theta.ravel(point.theta, own), self.y.ravel(point.y)

    def packed_upper(self, packed: Vector) -> Vector:
        """f and its gradients in one vector, at x, theta and y in one vector."""
        if self.halves is not None:
            return self.halves.all_of(packed)
        return self._recent(packed.tobytes(), packed.dtype) if packed.size <= SHORT else self._upper(packed)

    def upper_parts(self, x: Vector, theta: Vector, y: Vector) -> tuple[Vector, ...]:
        """The same, of a large x or theta: each by itself."""
        return self._upper(x, theta, y)

    def upper(self, x: Vector, theta: Vector, y: Vector) -> Upper:
        if self.large:
            value, *gradients = self.upper_parts(x, theta, y)
            return Upper(float(value), *gradients)
        return self._parted(self.packed_upper(np.concatenate([x, theta, y])))

    def slopes(self, x: Vector, theta: Vector) -> Slopes | None:
        """f_y at every y, of an f in halves; None of another."""
        return None if self.halves is None else self.halves.slopes(np.concatenate([x, theta]))

    def upper_by(self, slopes: Slopes, y: Vector) -> Upper:
        """The same as `upper`, by the first half."""
        return self._parted(slopes.all_at(y))

    def _parted(self, found: Vector) -> Upper:
        first, second = 1 + self.x.size, 1 + self.x.size + self.theta.size
        return Upper(float(found[0]), found[1:first], *map(self._apart, (found[first:second], found[second:])))

    def _apart(self, piece: Vector) -> Vector:
        """A short piece of a long answer, as an array of its own: it would keep all of the answer alive."""
        return piece.copy() if piece.size < self.x.size else piece

    def lower_gradient(self, x: Vector, theta: Vector) -> Vector:
        if self.large:
            return self._gradient(x, theta)
        return -self.solve(x, theta, limit=0).right

    def hessian_product(self, x: Vector, theta: Vector, v: Vector) -> Vector:
        """g_theta_theta(x, theta) v: the residual of a solve without a step, for which a large theta has no room."""
        if self.large:
            return self._product(x, theta, v)
        return -self.solve(x, theta, np.zeros_like(v), start=v, limit=0).r

    def cross_product(self, x: Vector, theta: Vector, w: Vector) -> Vector:
        """g_theta_x(x, theta) w"""
        if self.one_large:
            return self._cross(x, theta, w)
        return self.solve(x, theta, w, start=w, limit=-1, cross=True).cross

    def solve(
        self,
        x: Vector,
        theta: Vector,
        right: Vector | None = None,
        target: float = 0.0,
        relative: float = 0.0,
        *,
        start: Vector | None = None,
        enough: float = 0.0,
        inverse: Any = None,
        limit: int | None = None,
        cross: bool = False,
        spend: bool = False,
    ) -> Solve:
        """Conjugate gradients for g_theta_theta(x, theta) w = right, until |r| <= max(target, relative |right|).

        right: None is -g_theta(x, theta). start: where to begin, at the price of a product (not counted); None is 0.
        enough: a right side this short is left alone. inverse: a preconditioner, a matrix for each of the blocks of
        theta. limit: products at most; -1 leaves out that of the start too. cross: g_theta_x w as well. spend: the
        right side is not needed any more, and one of a large theta may be used up.
        """
        limit = MOST_PRODUCTS * theta.size if limit is None else limit
        goals = target, relative, enough, limit
        if self.one_large or self.streamed:
            found = by_products(self, x, theta, right, start, goals, spend)
            return found._replace(cross=self.cross_product(x, theta, found.w)) if cross else found
        size, numbers = theta.size, np.array((*goals, start is not None, right is None, cross), self.dtype)
        nothing = theta if self.large else np.zeros_like(theta)  # where it is told not to look at it
        begin, given = nothing if start is None else start, nothing if right is None else right
        vectors = x, theta, begin, given, numbers
        inverse = self.identity if inverse is None else inverse
        found = self._lower(*vectors, inverse) if self.large else self._lower(np.concatenate(vectors), inverse)
        if not isinstance(found, tuple):  # all in one
            found = *(self._apart(found[i * size : (i + 1) * size]) for i in range(3)), found[3 * size : -2], found[-2:]
        w, r, used, along, (count, least) = found
        return Solve(w, r, used, along, int(count), float(least))

    def products(self, x: Vector, theta: Vector, *vectors: Vector) -> Products:
        """What a certificate reports rests on these: no loop, no preconditioner, nothing but derivatives."""
        rows = vectors[0][None] if len(vectors) == 1 else np.stack(vectors)
        at = (x, theta) if self.large else (np.concatenate([x, theta]),)
        value, *found = self._products(*at, rows)
        return Products(float(value), *found)

    def columns(self, x: Vector, theta: Vector, blocks: int = 1) -> tuple[Vector, Vector]:
        """(H, C): row i is g_theta_theta e_i, and g_theta_x e_i; with blocks, e_i in every block of theta at once.

        C has no columns where x or theta is large: nobody asks for it there.
        """
        found = self._rows(self._columns, x, theta, blocks)
        return found[:, : theta.size], found[:, theta.size :]

    def hessian_columns(self, x: Vector, theta: Vector, blocks: int) -> Vector:
        """H of these alone, as a preconditioner wants it: C would take most of the time where there are many data."""
        if self.streamed or not self.heavy:
            return self.columns(x, theta, blocks)[0]
        return self._rows(self._hessian_columns, x, theta, blocks)[:, : theta.size]

    def _rows(self, program: Program, x: Vector, theta: Vector, blocks: int) -> Vector:
        rows = unit_rows(self.theta, blocks, size := theta.size // blocks)
        extra = theta.size - size if self.blocks == 1 and not self.heavy else 0  # zeros: cheaper than another program
        if blocks > 1 and self.part.theta.mesh is not None and isinstance(self.part.lower, separable.Separable):
            return self._own_columns(x, theta, rows)
        if self.large:
            return np.stack([self._product(x, theta, row) for row in rows])
        return program(np.concatenate([x, theta]), np.pad(rows, ((0, extra), (0, 0))))[:size]

    def bends(self, x: Vector, theta: Vector, y: Vector, w: Vector, ends: Vector) -> Vector:
        """J[end, i] = d/dtheta_i of (f_x - g_theta_x w, f_theta - g_theta_theta w, f_y) at each end, w fixed."""
        return self._bends(np.concatenate([x, theta, y, w]), ends)

    def curvature(self, x: Vector, theta: Vector, y: Vector) -> tuple[Upper, Vector, Vector]:
        """f and its gradients, f_x_x, f_x_y with a row for each entry of x; for problems without theta."""
        found, d, end = self._curvature(np.concatenate([x, theta, y])), x.size, 1 + x.size + y.size
        rows = found[end:].reshape(d, -1)
        return Upper(float(found[0]), found[1 : d + 1], theta, found[d + 1 : end]), rows[:, :d], rows[:, d:]

    def norms(
        self, x: Vector, theta: Vector, y: Vector, w: Vector, ends: Any, passes: int | None = None
    ) -> tuple[float, float]:
        """(|g_theta_x|, |J|) of the same J, from below, by power iterations of so many passes: see `shortfall`."""
        first = drawn(theta.size, self.dtype, 1)
        count = np.array(bends.power_passes(theta.size) if passes is None else passes)
        # of a large J the squares of its parts are added
        each = [end[None] for end in ends] if self.large else [ends]
        found = [self._norms(x, theta, y, w, first, part, count) for part in each]
        return float(found[0][0]), float(np.linalg.norm([float(bend) for _, bend in found]))

    @cached_property
    def quadratic(self) -> bool:
        """Whether g is surely quadratic in theta: its Hessian product does not mention theta."""
        return self.has_lower and depends.is_free_of("theta", depends.hessian_times, self._lower)

    @cached_property
    def linear_in_y(self) -> bool:
        """Whether f is surely linear in y: its gradient there does not mention y."""
        return depends.is_free_of("y", depends.f_y, self._upper)

    @cached_property
    def halves(self) -> Halves | None:
        """f in halves, where f is linear in y and a pass through the layers of a network costs more than a call."""
        plain = not (self.large or self.streamed or self.y_set is None or self.part.x.mesh is not None)
        by_hand = (getattr(self.part.derivatives, name) is not None for name in ("f_x", "f_theta", "f_y"))
        if not plain or any(by_hand) or not (self.has_hidden_layer and self.linear_in_y):
            return None
        return Halves(self.part)

    @cached_property
    def quadratic_in_y(self) -> bool:
        """Whether f is surely quadratic in y: its second derivative there does not mention y."""
        return depends.is_free_of("y", depends.f_yy_times, self._upper)

    @cached_property
    def bends_alike(self) -> bool:
        """Whether the matrices J of `bends` are surely the same at every theta."""
        return depends.is_free_of("theta", depends.bends_times, self._upper)

    @cached_property
    def has_hidden_layer(self) -> bool:
        """Whether x holds the weights of a network: f or g has a hidden layer in x."""
        return depends.is_network(self._upper)


# --- the programs -----------------------------------------------------------------------------------------------------


def _upper(part: _Part, packed: Array) -> Array:
    x, theta = part.x.size, part.theta.size
    value, *gradients = large.upper(part, packed[:x], packed[x : x + theta], packed[x + theta :])
    return jnp.concatenate([jnp.reshape(value, 1), *gradients])


def _lower(part: _Part, packed: Array, inverse: Array) -> Array:
    size, rest = part.theta.size, packed[part.x.size + part.theta.size :]
    vectors = packed[: part.x.size], packed[part.x.size :][:size], rest[:size], rest[size : 2 * size]
    return jnp.concatenate(_lower_of(part, *vectors, rest[2 * size :], inverse))


def _lower_of(
    part: _Part, x: Array, theta: Array, start: Array, given: Array, numbers: Array, inverse: Array
) -> tuple[Array, ...]:
    """All that is asked of g at one place: its gradient, a solve by conjugate gradients, its cross product.

    The product stands in the program once, in the loop, whose first pass may be that of the residual at the start.
    """
    lower = part.lower
    if isinstance(lower, separable.Separable) and (lower.each or part.theta.mesh is not None):
        return separable.solves(part, x, theta, start, given, numbers, inverse)
    dtype = theta.dtype
    x, theta = part.x.traced(x), part.theta.traced(theta)
    target, relative, enough, limit, is_warm, of_gradient, with_cross = numbers
    start = jnp.where(is_warm > 0, start, 0)
    preconditioned = preconditioner(part.theta, inverse)
    gradient = lambda: part.theta.join(oracle.lower_gradient_in_domain(part, x, theta))
    right = lax.cond(of_gradient > 0, lambda: -gradient(), lambda: given)
    z = preconditioned(right)
    size, square = _products_with(right, right, z)
    length = jnp.sqrt(size)
    target = jnp.maximum(target, relative * length)

    # by rows, g_theta_x w is added up product by product, in their collective; by itself it would take one more
    mesh = part.shared_mesh
    adds_up = mesh is not None and mesh.axis_names[0] == "rows" and part.x.size <= part.theta.size
    none = jnp.zeros(part.x.size if adds_up else 0, dtype)

    def product(p):
        return part.theta.join(oracle.hessian_product(part, x, theta, part.theta.traced(p)))

    def products(p):
        cross, hessian = oracle.second_order_products(part, x, theta, part.theta.traced(p))
        return part.theta.join(hessian), part.x.join(cross)

    def unfinished(carry):
        *_, size, _, count, sound = carry
        far = (jnp.sqrt(size) > target) & ((length > enough) | (is_warm > 0))
        return ((count < 0) | far) & (count < limit) & sound

    def one(carry):
        w, r, p, cross, square, _, least, count, _ = carry
        Hp, Cp = lax.cond(with_cross > 0, products, lambda p: (product(p), none), p) if adds_up else (product(p), none)
        first = count < 0  # p is the start: only the residual is wanted
        own, curvature = _products_with(p, p, Hp)
        sound = first | (curvature > 0)  # or g is not convex here, or nothing is left but rounding
        step = jnp.where(first, 1, jnp.where(sound, square / jnp.where(sound & ~first, curvature, 1), 0))
        w, r, cross = jnp.where(first, w, w + step * p), r - step * Hp, cross + step * Cp
        z = preconditioned(r)
        size, new = _products_with(r, r, z)
        least = jnp.minimum(least, jnp.where(sound & ~first, curvature / own, jnp.inf))
        return w, r, z + jnp.where(first, 0, new / square) * p, cross, new, size, least, count + 1, sound

    begin = jnp.where(is_warm > 0, start, z)
    count = jnp.where(is_warm > 0, -1, 0)
    carry = (start, right, begin, none, square, size, jnp.full((), jnp.inf, dtype), count, jnp.asarray(True))
    w, r, _, cross, _, size, least, count, _ = lax.while_loop(unfinished, one, carry)
    sound = jnp.isfinite(size)  # a residual that is no number ends the loop, and is no solution
    w, cross = jnp.where(sound, w, jnp.nan), jnp.where(sound, cross, jnp.nan)
    along = lambda: part.x.join(oracle.cross_product(part, x, theta, part.theta.traced(w)))
    summed = lambda: lax.cond(limit < 0, along, lambda: cross) if adds_up else along()
    cross = lax.cond(with_cross > 0, summed, lambda: jnp.zeros(part.x.size, dtype))
    return w, r, right, cross, jnp.stack([count.astype(dtype), least])


def _products_with(v: Array, a: Array, b: Array) -> Array:
    """<v, a> and <v, b>: one sum over both takes less time to compile than two, and has their digits."""
    return jnp.sum(jnp.stack([v * a, v * b]), axis=1)
