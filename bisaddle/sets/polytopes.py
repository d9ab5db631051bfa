"""Polytopes given by their vertices, or by inequalities and equations."""

from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle.sets.base import ConvexSet, Leaf, as_leaf, finite_array, like, poison, traced, within_reach
from bisaddle.sets.host import on_host
from bisaddle.sets.matrix import scaled
from bisaddle.sets.nearest import (
    affine_projection,
    affine_weights,
    error_by_lmo,
    nearest_of_hull,
    nearest_of_polyhedron,
)
from bisaddle.sets.simplex import uniform_weights


class ConvexHull(ConvexSet):
    """{sum_i w_i vertices_i : w >= 0, sum w = 1}, vertices an array (count, *shape) with one vertex per entry

    project: Wolfe's nearest-point algorithm, O(count n + k^3) a step, k <= min(count, n + 1) vertices in play, and some
    tens of steps to a few times k of them; lmo: O(count n), the best vertex. Derivatives are those on the face found.
    """

    # the method is finite; this is the rounding of least squares on nearly dependent vertices
    tolerance = 1e-10

    estimates = frozenset({"project"})

    vertices: Leaf = eqx.field(converter=lambda a: finite_array(a, "ConvexHull vertices"))

    def __check_init__(self):
        shape = self.vertices.shape
        if len(shape) < 2 or 0 in shape:
            raise ValueError(
                f"ConvexHull vertices must be an array (count, *shape) with at least one vertex, given shape {shape}"
            )

    def project(self, v: Array) -> Array:
        v = self.fitting(v)
        rows = self._rows(v)
        size = _size(rows)
        near = within_reach(v.ravel(), size * v.size**0.5) / size
        return poison(size * _project_hull(rows / size, near), v).reshape(v.shape)

    def lmo(self, direction: Array) -> Array:
        d = self.fitting(direction)
        rows = self._rows(d)
        return poison(rows[jnp.argmin(rows / _size(rows) @ scaled(d.ravel())[0])], d).reshape(d.shape)

    def project_error(self, v: Array, p: Array) -> Array:
        return ConvexSet.project_error(self, v, p) + error_by_lmo(self, v, p)

    def diameter(self, v: Array) -> Array:
        rows = self._rows(self.fitting(v))
        # one vertex against all others at a time: count^2 distances need not be held at once
        return jnp.sqrt(jnp.max(lax.map(lambda r: jnp.max(jnp.sum((rows - r) ** 2, axis=1)), rows)))

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        vertices = jnp.asarray(self.vertices)
        return jnp.tensordot(uniform_weights(key, len(vertices)), vertices, axes=1).reshape(shape)

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v)
        if reason is None and tuple(v.shape) != tuple(self.vertices.shape[1:]):
            return f"ConvexHull has vertices of shape {self.vertices.shape[1:]}, given an array of shape {v.shape}"
        return reason

    def _rows(self, v: Array) -> Array:
        return like(self.vertices, v).reshape(self.vertices.shape[0], -1)


def _size(rows: Array) -> Array:
    """The largest finite entry, by which squares and products are kept from overflow."""
    largest = lax.stop_gradient(jnp.max(jnp.where(jnp.isfinite(rows), jnp.abs(rows), 0)))
    return jnp.where(largest > 0, largest, 1)


# Searches go one point after the other under vmap: a batch waits for its slowest, and two batches of factorisations in
# one program can block each other for good on two cores (jaxlib 0.10.2: each waits, on a thread of the pool, for work
# queued in that pool). What they found gives the derivatives, which alone factorise once more. Searches are jitted so
# that a call outside jit compiles once, not at every call.


@jax.custom_jvp
def _project_hull(rows: Array, v: Array) -> Array:
    return _search_hull(rows, v)[0]


@_project_hull.defjvp
def _project_hull_jvp(primals, tangents):
    rows, v = primals
    nearest, tags, weights = _search_hull(rows, v)

    def on_face(rows, v):  # the derivative is that of the face's hull
        face = rows[tags]
        return affine_weights(face, weights > 0, v) @ face

    return nearest, jax.jvp(on_face, primals, tangents)[1]


@jax.jit
@jax.custom_batching.sequential_vmap
def _search_hull(rows: Array, v: Array) -> tuple[Array, Array, Array]:
    """The nearest point, in the hull whatever the scale of v, and its vertices with their weights."""
    count, n = rows.shape

    def best(d: Array) -> tuple[Array, Array]:
        i = jnp.argmin(rows @ d)
        return rows[i], i

    corral = nearest_of_hull(best, v, min(count, n + 1))
    return corral.weights @ rows[corral.tags], corral.tags, corral.weights


class Polyhedron(ConvexSet):
    """{v : A v <= b, E v = e, lower <= v <= upper}, v read as one vector; parts not given are left out

    project: on the device, Goldfarb and Idnani's dual active-set method, O(n (rows + 2 n) + k^3) a step, about one step
    per constraint that becomes active (k <= n of them); lmo: a linear program by HiGHS, which leaves the device: a call
    back to the host, milliseconds each. Derivatives of project are those on the active face.

    Built from numbers, the set is checked to be neither empty nor unbounded. Without finite lower
    and upper that takes 2 n linear programs, whose bounding box gives the diameter, an upper bound.
    """

    # HiGHS answers to 1e-10; the projection that follows it, and the projection itself, are at rounding level
    tolerance = 1e-9
    estimates = frozenset({"project", "lmo"})

    A: Leaf | None
    b: Leaf | None
    E: Leaf | None
    e: Leaf | None
    lower: Leaf | None
    upper: Leaf | None
    # bounds that hold for every point, for the diameter: those given, or what the check at construction found
    box: tuple[Leaf, Leaf] | None

    def __init__(self, A=None, b=None, E=None, e=None, lower=None, upper=None):
        self.A, self.b, self.E, self.e = (
            None if part is None else finite_array(part, f"Polyhedron {name}")
            for name, part in (("A", A), ("b", b), ("E", E), ("e", e))
        )
        n = _width(self.A, self.b, self.E, self.e, lower, upper)
        self.lower, self.upper = _bound(lower, n, "Polyhedron lower"), _bound(upper, n, "Polyhedron upper")
        parts = self._host_parts()
        self.box = None if any(traced(part) for part in parts) else _bounding_box(parts, n)

    @property
    def size(self) -> int:
        first = next(part for part in (self.A, self.E, self.lower, self.upper) if part is not None)
        return first.shape[-1]

    def project(self, v: Array) -> Array:
        v = self.fitting(v)
        C, d, equations = self._rows(v)
        size = _size(d)
        near = within_reach(v.ravel(), self._longest(v, size)) / size
        return poison(size * _project_polyhedron(C, d / size, equations, near), v).reshape(v.shape)

    def lmo(self, direction: Array) -> Array:
        d = self.fitting(direction)
        answer = jax.ShapeDtypeStruct((d.size,), d.dtype)
        # piecewise constant in d, so that its derivative is 0
        vertex = on_host(_host_lmo, answer, d.ravel(), *self._host_parts())
        return poison(self.project(vertex), d).reshape(d.shape)

    def diameter(self, v: Array) -> Array:
        if self.box is None:
            raise ValueError(
                "Polyhedron has no diameter without finite lower and upper when it is built from traced arrays; give "
                "lower and upper"
            )
        low, high = (like(bound, self.fitting(v)) for bound in self.box)
        return jnp.sqrt(jnp.sum(jnp.square(high - low)))

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        if self.box is None:
            return self.project(jax.random.normal(key, shape))
        low, high = jnp.asarray(self.box[0]), jnp.asarray(self.box[1])
        return self.project((low + (high - low) * jax.random.uniform(key, (self.size,))).reshape(shape))

    def misfit(self, v: PyTree) -> str | None:
        reason = ConvexSet.misfit(self, v)
        if reason is None and v.size != self.size:
            return f"Polyhedron holds vectors of size {self.size}, given an array of shape {v.shape}"
        return reason

    def _longest(self, v: Array, levels: Array) -> Array:
        """A bound on the length of the vectors in the set; a guess, on the safe side, where its sizes are traced."""
        if self.box is None:
            return levels / jnp.finfo(v.dtype).eps ** 0.5
        return self.size**0.5 * jnp.max(jnp.abs(jnp.stack([like(bound, v) for bound in self.box])))

    def _rows(self, v: Array) -> tuple[Array, Array, int]:
        """(C, d, number of equations) of {C v <= d, the first rows equations}, every row of length 1 (or 0)."""
        identity = jnp.eye(self.size)
        lower = None if self.lower is None else -self.lower
        blocks = ((self.E, self.e), (self.A, self.b), (identity, self.upper), (-identity, lower))
        C = jnp.concatenate([like(matrix, v) for matrix, level in blocks if level is not None])
        d = jnp.concatenate([like(level, v) for _, level in blocks if level is not None])
        lengths = jnp.sqrt(jnp.sum(C**2, axis=1))
        lengths = jnp.where(lengths > 0, lengths, 1)
        return C / lengths[:, None], d / lengths, 0 if self.E is None else self.E.shape[0]

    def _host_parts(self) -> tuple[Leaf, ...]:
        n = self.size
        given = (self.A, self.b, self.E, self.e, self.lower, self.upper)
        no_rows, endless = np.zeros((0, n)), np.full(n, np.inf)
        nothing = (no_rows, no_rows[:, 0], no_rows, no_rows[:, 0], -endless, endless)
        return tuple(default if part is None else part for part, default in zip(given, nothing, strict=True))


@partial(jax.custom_jvp, nondiff_argnums=(2,))
def _project_polyhedron(C: Array, d: Array, equations: int, v: Array) -> Array:
    return _search_polyhedron(C, d, equations, v)[0]


@_project_polyhedron.defjvp
def _project_polyhedron_jvp(equations: int, primals, tangents):
    C, d, v = primals
    nearest, rows, used = _search_polyhedron(C, d, equations, v)

    def on_face(C, d, v):  # the derivative is that of the projection onto the active constraints
        return affine_projection(C[rows], d[rows], used, v)

    return nearest, jax.jvp(on_face, primals, tangents)[1]


@partial(jax.jit, static_argnums=2)
def _search_polyhedron(C: Array, d: Array, equations: int, v: Array) -> tuple[Array, Array, Array]:
    search = jax.custom_batching.sequential_vmap(lambda C, d, v: nearest_of_polyhedron(C, d, equations, v))
    return search(C, d, v)


def _width(A, b, E, e, lower, upper) -> int:
    """The number of coordinates; ValueError where the parts do not fit together."""
    for name, level, matrix, values in (("A", "b", A, b), ("E", "e", E, e)):
        if (matrix is None) != (values is None):
            raise ValueError(f"Polyhedron takes {name} and {level} together, given only one of them")
        if matrix is not None and (
            matrix.ndim != 2 or 0 in matrix.shape or values.ndim != 1 or values.shape[0] != matrix.shape[0]
        ):
            raise ValueError(
                f"Polyhedron {name} must be a matrix and {level} a vector with one entry per row, "
                f"given shapes {matrix.shape} and {values.shape}"
            )
    widths = {part.shape[1] for part in (A, E) if part is not None}
    widths |= {np.shape(bound)[0] for bound in (lower, upper) if bound is not None and np.ndim(bound) == 1}
    if any(np.ndim(bound) > 1 for bound in (lower, upper) if bound is not None):
        raise ValueError("Polyhedron lower and upper must be numbers or vectors")
    if len(widths) > 1:
        raise ValueError(f"Polyhedron parts must agree on the number of coordinates, given {sorted(widths)}")
    if not widths:
        raise ValueError("Polyhedron needs A and b, E and e, or vectors lower and upper; given none of them")
    return widths.pop()


def _bound(value, n: int, name: str) -> Leaf | None:
    """A bound with one entry per coordinate; infinite where there is none."""
    if value is None:
        return None
    bound = as_leaf(value, name)
    if not traced(bound) and np.any(np.isnan(bound)):
        raise ValueError(f"{name} must not be NaN")
    if bound.ndim:
        return bound
    return jnp.broadcast_to(bound, (n,)) if isinstance(bound, jax.Array) else np.full(n, bound)


def _linear_program(c, A, b, E, e, lower, upper):
    from scipy.optimize import linprog  # here, not above: it takes its time to import

    bounds = np.stack([lower, upper], axis=1)
    # the tightest HiGHS takes
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    return linprog(c, A, b, E, e, bounds, method="highs-ds", options=options)


def _host_lmo(direction, *parts):
    d = np.asarray(direction, np.float64)
    if not np.all(np.isfinite(d)):
        return np.full(d.shape, np.nan, direction.dtype)
    largest = np.max(np.abs(d))
    # HiGHS' tolerances are absolute: costs are brought to size 1
    found = _linear_program(d / (largest if largest > 0 else 1), *(np.asarray(part, np.float64) for part in parts))
    return np.full(d.shape, np.nan, direction.dtype) if found.x is None else found.x.astype(direction.dtype)


def _bounding_box(parts: tuple[Leaf, ...], n: int) -> tuple[Leaf, Leaf]:
    """Bounds of the coordinates over a polyhedron; ValueError if it is empty or unbounded."""
    A, b, E, e, lower, upper = (np.asarray(part, np.float64) for part in parts)
    if np.any(lower > upper):
        raise ValueError("Polyhedron is empty: a lower bound exceeds its upper bound; exchange them or correct one")
    if len(E):
        rank = np.linalg.matrix_rank(E)
        nearest = np.linalg.lstsq(E, e, rcond=None)[0]
        off = np.linalg.norm(E @ nearest - e)
        if rank < len(E) and off > 1e-9 * (1 + np.linalg.norm(e)):
            raise ValueError(
                f"Polyhedron is empty: the equations E v = e contradict each other (residual {off:.3g}); correct E or e"
            )
    if _linear_program(np.zeros(n), A, b, E, e, lower, upper).status == 2:  # infeasible
        raise ValueError("Polyhedron is empty: no point satisfies all of A v <= b, E v = e and the bounds")
    if np.all(np.isfinite(lower)) and np.all(np.isfinite(upper)):
        return lower, upper
    ends = np.zeros((2, n))
    for i in range(n):
        for k, direction in enumerate((1.0, -1.0)):
            found = _linear_program(direction * np.eye(n)[i], A, b, E, e, lower, upper)
            if found.status in (3, 4) or found.x is None:
                raise ValueError(
                    f"Polyhedron is unbounded in coordinate {i} (the sets here are compact); "
                    "give lower and upper, or rows of A that bound it"
                )
            ends[k, i] = found.x[i]
    return ends[0], ends[1]
