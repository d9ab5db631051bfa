"""Polytopes of nonnegative matrices with given row and column sums."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array

from bisaddle import trees
from bisaddle.sets.base import Leaf, finite_array, like, poison, traced, within_reach
from bisaddle.sets.host import on_cpu, on_host
from bisaddle.sets.matrix import MatrixSet, scaled
from bisaddle.sets.nearest import error_by_lmo
from bisaddle.sets.roots import decreasing_root
from bisaddle.sets.simplex import uniform_weights
from bisaddle.trees import Number

# of the dual search: by what the margins come down at a time, the steps that are made at most, and those that may pass
# without halving the error before it is taken for rounding
MASS_FACTOR = 4.0
STEPS = 1000
PATIENCE = 20


class BirkhoffPolytope(MatrixSet):
    """{P : P >= 0, every row and every column of P sums to 1}, square matrices; the hull of the permutation matrices

    project: Newton's method on the dual, O(n^3) a step, 5 to 100 steps (few when v is within reach of the set, more
    when it is far off); sums right to rounding. lmo: the assignment problem, O(n^3), on a CPU by SciPy outside the
    compiled program, elsewhere by optax on the device.
    """

    square = True
    estimates = frozenset({"project"})

    def project_error(self, v: Array, p: Array) -> Array:
        return MatrixSet.project_error(self, v, p) + error_by_lmo(self, v, p)

    def matrix_project(self, v: Array) -> Array:
        ones = jnp.ones(v.shape[0], v.dtype)
        return poison(project_margins(within_reach(v, jnp.sum(ones)), ones, ones), v)

    def matrix_lmo(self, d: Array) -> Array:
        if on_cpu():
            return poison(on_host(_cheapest_permutation, jax.ShapeDtypeStruct(d.shape, d.dtype), d), d)
        from optax.assignment import hungarian_algorithm  # here, not above: optax takes its time to import

        rows, columns = hungarian_algorithm(scaled(d)[0])  # it compares sums of entries, and would not end on a NaN
        return poison(jnp.zeros_like(d).at[rows, columns].set(1), d)

    def matrix_diameter(self, v: Array) -> Array:
        size = v.shape[0]
        return like((2.0 * size) ** 0.5 if size > 1 else 0.0, v)

    def matrix_sample(self, key: Array, rows: int, columns: int) -> Array:
        return _random_plan(key, jnp.ones(rows), jnp.ones(rows))


class TransportPolytope(MatrixSet):
    """{P : P >= 0, P 1 = rows, P' 1 = columns}, rows and columns positive vectors with equal sums

    project: as for the BirkhoffPolytope, O(m n min(m, n)) a step. lmo: the transport linear program, O(m n min(m, n)) a
    step, 50 to 200 steps, on the device: the projection of a point so far away that it is an optimal vertex (in single
    precision near one, lmo_error says how near). The diameter is an upper bound. Derivatives in rows and columns are
    those along changes that keep their sums equal.
    """

    estimates = frozenset({"project", "lmo"})

    rows: Leaf = eqx.field(converter=lambda r: finite_array(r, "TransportPolytope rows"))
    columns: Leaf = eqx.field(converter=lambda c: finite_array(c, "TransportPolytope columns"))

    def __check_init__(self):
        for name, margin in (("rows", self.rows), ("columns", self.columns)):
            if margin.ndim != 1 or margin.size == 0:
                raise ValueError(f"TransportPolytope {name} must be a nonempty vector, given shape {margin.shape}")
            if not traced(margin) and not np.all(np.asarray(margin) > 0):
                raise ValueError(f"TransportPolytope {name} must be > 0, given {margin}; leave out lines that are 0")
        if traced(self.rows) or traced(self.columns):
            return
        # not np.sum of a JAX array, which is JAX's and would be traced inside jit
        row_sum, column_sum = (float(np.sum(np.asarray(margin))) for margin in (self.rows, self.columns))
        # what rounding may do to sums of numbers that were given in that precision
        digits = 1e-5 if np.float32 in (self.rows.dtype, self.columns.dtype) else 1e-9
        if abs(row_sum - column_sum) > digits * row_sum:
            raise ValueError(
                f"TransportPolytope is empty: rows sum to {row_sum}, columns to {column_sum}; rescale one of them"
            )

    def matrix_project(self, v: Array) -> Array:
        rows, columns = self._margins(v)
        total = lax.stop_gradient(jnp.sum(rows))
        near = within_reach(v, total) / total
        return poison(total * project_margins(near, rows / total, columns / total), v)

    def matrix_lmo(self, d: Array) -> Array:
        vertex = self._far_vertex(d)
        # in single precision the sums of a far projection are off by more than rounding
        return poison(vertex if d.dtype == jnp.float64 else self.matrix_project(vertex), d)

    def lmo_error(self, direction: Array, s: Array) -> Array:
        vertices = self._each(self._far_vertex, direction)
        return MatrixSet.lmo_error(self, direction, s) + 2 * trees.norm(direction) * trees.norm(vertices - s)

    def _far_vertex(self, d: Array) -> Array:
        rows, columns = self._margins(d)
        total = lax.stop_gradient(jnp.sum(rows))
        return total * _far_projection(d, rows / total, columns / total)

    def project_error(self, v: Array, p: Array) -> Array:
        return MatrixSet.project_error(self, v, p) + error_by_lmo(self, v, p)

    def matrix_diameter(self, v: Array) -> Array:
        # |P - Q|^2 <= |P|^2 + |Q|^2 as P, Q >= 0, and |P|^2 <= sum of P_ij times its row (column) sum
        rows, columns = self._margins(v)
        return jnp.sqrt(2 * jnp.minimum(jnp.sum(jnp.square(rows)), jnp.sum(jnp.square(columns))))

    def matrix_sample(self, key: Array, rows: int, columns: int) -> Array:
        return _random_plan(key, *self._margins(jnp.zeros(())))

    def matrix_misfit(self, rows: int, columns: int) -> str | None:
        if (rows, columns) != (self.rows.size, self.columns.size):
            needed = f"{self.rows.size} x {self.columns.size}"
            return f"TransportPolytope has {needed} margins, given matrices {rows} x {columns}"
        return None

    def _margins(self, v: Array) -> tuple[Array, Array]:
        rows, columns = like(self.rows, v), like(self.columns, v)
        return rows, columns * (jnp.sum(rows) / jnp.sum(columns))  # the sums equal to the last digit of this dtype


def _cheapest_permutation(d: np.ndarray) -> np.ndarray:
    from scipy.optimize import linear_sum_assignment  # here, not above: it takes its time to import

    permutation = np.zeros(d.shape, d.dtype)
    if np.all(np.isfinite(d)):
        permutation[linear_sum_assignment(d)] = 1
    return permutation


@jax.custom_jvp
def project_margins(v: Array, rows: Array, columns: Array) -> Array:
    """max(v + a 1' + 1 b', 0) with a, b such that its rows and columns sum as asked: the projection on that polytope.

    Newton's method on the dual function of (a, b), concave and piecewise quadratic, with an exact line search. Two
    things make it work at every scale of v. The margins start so large that nothing is cut off at 0 and come down by
    a factor at a time, each solution the start of the next. And the state is the matrix v + a 1' + 1 b' itself, not
    (a, b): entries that end up positive have become small on the way, and the last steps see all their digits.
    """
    if v.shape[0] < v.shape[1]:  # the smaller side gives the smaller linear systems
        return _dual_newton(v.T, columns, rows).T
    return _dual_newton(v, rows, columns)


@jax.custom_batching.sequential_vmap  # one after the other: a batch would make every search wait for its slowest
def _dual_newton(v: Array, rows: Array, columns: Array) -> Array:
    total = jnp.sum(rows)
    eps = float(jnp.finfo(v.dtype).eps)
    smallest_goal = 4 * eps * jnp.maximum(jnp.max(rows), jnp.max(columns))

    def errors(shifted, mass):
        plan = jnp.maximum(shifted, 0)
        return mass * rows - jnp.sum(plan, axis=1), mass * columns - jnp.sum(plan, axis=0)

    def worst(error):
        return jnp.maximum(jnp.max(jnp.abs(error[0])), jnp.max(jnp.abs(error[1])))

    def step(carry):
        shifted, mass, best, least, stalls, count = carry
        error = errors(shifted, mass)
        more = jnp.where(stalls % 2 == 1, jnp.minimum(stalls, 5), 0)
        a, b = _solve_margins(shifted > 0, error, eps ** (2 / 3) * 30.0**more)
        move = a[:, None] + b[None, :]
        linear = mass * (jnp.dot(rows, a) + jnp.dot(columns, b))
        slope = lambda t: linear - jnp.sum(jnp.maximum(shifted + t * move, 0) * move)
        good = worst(errors(shifted + move, mass)) <= 0.5 * worst(error)
        length = lax.cond(good, lambda: jnp.ones_like(mass), lambda: _line_search(slope, mass))
        shifted = shifted + length * move
        remaining = worst(errors(shifted, mass))
        better = remaining < least
        halved = remaining <= 0.5 * least
        best, least = jnp.where(better, shifted, best), jnp.minimum(remaining, least)
        # Near the solution Newton's method squares the error, unless a part of the active entries is out of balance.
        # The shift that only damping limits then runs until another entry joins; or it follows a rounding error, and
        # there is too little damping. Which of the two is not known: take turns.
        stalls = jnp.where(halved | (least > eps**0.6 * mass * total), 0, stalls + 1)
        # every line, small ones too, is served while the margins are large: when they are small, what remains to be
        # found is within their reach
        row_error, column_error = errors(shifted, mass)
        served = jnp.all(jnp.abs(row_error) <= 0.1 * mass * rows) & jnp.all(
            jnp.abs(column_error) <= 0.1 * mass * columns
        )
        lower = jnp.where(served | (stalls >= PATIENCE), jnp.maximum(mass / MASS_FACTOR, 1), mass)
        least, stalls = jnp.where(lower == mass, least, jnp.inf), jnp.where(lower == mass, stalls, 0)
        return shifted, lower, best, jnp.where(jnp.isnan(remaining), jnp.nan, least), stalls, count + 1

    def unfinished(carry):
        _, mass, _, least, stalls, count = carry
        return ((mass > 1) | ((least > smallest_goal) & (stalls < PATIENCE))) & (count < STEPS)

    centred = v - jnp.mean(v, axis=1, keepdims=True)
    centred = centred - jnp.mean(centred, axis=0, keepdims=True)
    mass = jnp.maximum(jnp.max(jnp.abs(centred)) * (v.size / total), 1)
    # with these a, b the sums are right while no entry is negative
    shifted = centred + mass * (rows[:, None] / v.shape[1] + columns[None, :] / v.shape[0] - total / v.size)
    least = jnp.where(mass == 1, worst(errors(shifted, mass)), jnp.inf)
    carry = lax.while_loop(unfinished, step, (shifted, mass, shifted, least, 0, 0))
    return jnp.maximum(carry[2], 0)


@project_margins.defjvp
def _project_margins_jvp(primals, tangents):
    v_dot, rows_dot, columns_dot = tangents
    plan = project_margins(*primals)
    active = plan > 0
    moved = jnp.where(active, v_dot, 0)
    lacking = rows_dot - jnp.sum(moved, axis=1), columns_dot - jnp.sum(moved, axis=0)
    a, b = lax.custom_linear_solve(
        lambda x: _margins_of_shift(active, x), _balanced(lacking), lambda _, e: _refined(active, e), symmetric=True
    )
    return plan, jnp.where(active, v_dot + a[:, None] + b[None, :], 0)


def _margins_of_shift(active: Array, shift: tuple[Array, Array]) -> tuple[Array, Array]:
    moved = jnp.where(active, shift[0][:, None] + shift[1][None, :], 0)
    return jnp.sum(moved, axis=1), jnp.sum(moved, axis=0)


def _balanced(error: tuple[Array, Array]) -> tuple[Array, Array]:
    """Without the part no shift can make up for: row sums must change by as much in all as column sums."""
    rows, columns = error
    excess = (jnp.sum(rows) - jnp.sum(columns)) / (rows.size + columns.size)
    return rows - excess, columns + excess


def _solve_margins(active: Array, error: tuple[Array, Array], damping: Number) -> tuple[Array, Array]:
    """Shifts (a, b) of rows and columns that change the sums over the active entries by `error`.

    The matrix is singular (a + t, b - t do nothing; so in every connected part of the active entries), hence the
    damping. The rows are eliminated, which leaves a positive definite system for the columns.
    """
    row_error, column_error = error
    weights = active.astype(row_error.dtype)
    ridge = damping * max(active.shape)
    row_count = jnp.sum(weights, axis=1) + ridge
    column_count = jnp.sum(weights, axis=0) + ridge
    scaled = weights / row_count[:, None]
    schur = jnp.diag(column_count) - weights.T @ scaled
    factor = jax.scipy.linalg.cho_factor(schur)
    b = jax.scipy.linalg.cho_solve(factor, column_error - scaled.T @ row_error)
    return (row_error - weights @ b) / row_count, b


def _refined(active: Array, error: tuple[Array, Array]) -> tuple[Array, Array]:
    """The solution without the effect of the damping."""
    damping = float(jnp.finfo(error[0].dtype).eps) ** (2 / 3)
    a, b = jnp.zeros_like(error[0]), jnp.zeros_like(error[1])
    for _ in range(3):
        reached = _margins_of_shift(active, (a, b))
        more = _solve_margins(active, _balanced((error[0] - reached[0], error[1] - reached[1])), damping)
        a, b = a + more[0], b + more[1]
    return a, b


def _line_search(slope, like_this: Array) -> Array:
    """t > 0 with slope(t) = 0 for a nonincreasing slope, positive at 0: a bracket by doubling, then a root."""
    grow = lambda carry: (carry[0] * 4, carry[1] + 1)
    upper, _ = lax.while_loop(lambda c: (slope(c[0]) > 0) & (c[1] < 60), grow, (jnp.ones_like(like_this), 0))
    return decreasing_root(slope, jnp.zeros_like(upper), upper)


def _far_projection(d: Array, rows: Array, columns: Array) -> Array:
    """The projection of -t d, t so large that it solves the linear program min <d, P>.

    That holds from some finite t on: the smaller the gap between the best vertex and the next, the larger it is. Among
    several solutions the projection is the shortest, not a vertex: noise on d, at most 256 units in the last place of
    its largest entry, decides for one of them, and t is large enough to see gaps of that size.
    """
    eps = float(jnp.finfo(d.dtype).eps)
    cost = scaled(d)[0] + 256 * eps * jax.random.uniform(jax.random.key(0), d.shape, d.dtype)
    reach = jnp.maximum(jnp.max(rows), jnp.max(columns)) * (1e4 / eps)
    return project_margins(-reach * lax.stop_gradient(cost), rows, columns)


def _random_plan(key: Array, rows: Array, columns: Array) -> Array:
    """A random mixture of vertices: north-west corner plans for random orders of the rows and the columns."""
    weight_key, key = jax.random.split(key)
    weights = uniform_weights(weight_key, 3)

    def vertex(key):
        row_order = jax.random.permutation(key, rows.size)
        column_order = jax.random.permutation(jax.random.fold_in(key, 1), columns.size)
        row_end, column_end = jnp.cumsum(rows[row_order]), jnp.cumsum(columns[column_order])
        upper = jnp.minimum(row_end[:, None], column_end[None, :])
        lower = jnp.maximum((row_end - rows[row_order])[:, None], (column_end - columns[column_order])[None, :])
        return (
            jnp.zeros((rows.size, columns.size)).at[row_order[:, None], column_order].set(jnp.maximum(upper - lower, 0))
        )

    plans = jax.vmap(vertex)(jax.random.split(key, 3))
    return jnp.tensordot(weights, plans, 1)
