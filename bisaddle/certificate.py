"""certify(problem, point): how stationary a point is, trusting nothing but the problem."""

from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.degenerate import free_parts
from bisaddle.lower import DENSE_LIMIT, Implicit, dense_norm, implicit, least_curvature, linear_solver, operator_norm
from bisaddle.problem import Point, Problem
from bisaddle.sets.base import ConvexSet
from bisaddle.sets.product import Product
from bisaddle.trees import Number
from bisaddle.validate import check_problem_at, require_oracle

MEASURES = ("projection", "lmo", "mixed")


class Certificate(eqx.Module):
    """What certify found at (x, y); all gradients at theta*(x), not at the point's own theta.

    x_gap          |x - P_X(x - tau grad_x L)| / tau  ("projection"),   max_{s in X} <grad_x L, x - s>  ("lmo"),
                   the first over the blocks of a Product that project plus the second over the others  ("mixed")
    y_gap          |y - P_Y(y + sigma grad_y L)| / sigma   (P_Y is prox_{sigma h} where y_set has a penalty h)
    gap            x_gap + y_gap: the point is eps-stationary if it is at most eps
    value          f(x, theta*(x), y)                      (f - h where y_set has a penalty h)
    worst_value    max_{y in Y} f(x, theta*(x), y), or f - h, at most worst_value_error above the number given
    lower_error    |theta - theta*(x)|
    theta, w       theta*(x) and v(x, y) = Hess^-1 f_theta, as solved here
    error_bound    how far gap can be from its exact value, given the residuals left in the two solves
    error_is_bound True if mu_g was given; False: error_bound rests on an estimated mu_g and is an estimate
    x_gradient     grad_x L = f_x - g_theta_x v
    y_in_corner    whether y maximises its own linearisation: max_{s in Y} <grad_y L, s> is attained at y alone
    degenerate     whether y in its corner leaves a part of x without a gradient wherever x is (free_parts names it):
                   the gap is then 0 in that part for any x, and says nothing about it
    """

    x_gap: Array
    y_gap: Array
    value: Array
    worst_value: Array
    worst_value_error: Array
    lower_error: Array
    error_bound: Array
    x_violation: Array
    y_violation: Array
    lower_residual: Array
    linear_residual: Array
    theta: PyTree
    w: PyTree
    x_gradient: PyTree
    y_in_corner: Array
    measure: str = eqx.field(static=True)
    error_is_bound: bool = eqx.field(static=True)
    free_parts: tuple[str, ...] = eqx.field(static=True, default=())

    @property
    def degenerate(self) -> bool:
        return bool(self.free_parts)

    @property
    def gap(self) -> Array:
        return self.x_gap + self.y_gap

    @property
    def violation(self) -> Array:
        return jnp.maximum(self.x_violation, self.y_violation)

    def within(self, tol: Number) -> bool:
        """Whether the exact gap is at most tol, error bound included, at a feasible point."""
        return bool((self.gap + self.error_bound <= tol) & (self.violation <= tol))

    def __str__(self) -> str:
        kind = "bound" if self.error_is_bound else "estimate"
        return (
            f"gap {float(self.gap):.3e} ({self.measure}; x {float(self.x_gap):.3e}, y {float(self.y_gap):.3e}), "
            f"error {kind} {float(self.error_bound):.1e}, value {float(self.value):.6g}, "
            f"worst value {float(self.worst_value):.6g}, lower error {float(self.lower_error):.1e}, "
            f"violation {float(self.violation):.1e}" + self._warning
        )

    @property
    def _warning(self) -> str:
        if not self.degenerate:
            return ""
        parts = ", ".join(self.free_parts)
        return (
            f"\ndegenerate: y is in a corner where the gradient in {parts} is 0 for every x; the gap says nothing "
            f"about {parts}; compare worst values from several starts: solve(..., starts=4, key=...)"
        )


def certify(
    problem: Problem,
    point: Point,
    *,
    measure: str = "projection",
    sigma: Number = 1.0,
    tau: Number = 1.0,
    accuracy: Number = 0.0,
) -> Certificate:
    """The stationarity gap of (x, y): Definition 2.1 for measure="lmo", 2.2 for "projection"  [AYH25]; "mixed" is for a
    Product of blocks of which some have only a projection and some only an LMO.

    Solves the lower level and the linear system itself, from the point's theta, to residual norms `accuracy` (0: until
    rounding stops it). error_bound is what those residuals can do to the gradients, to first order: the norms of the
    maps from the ones to the others, doubled; rounding is added. Up to 128 lower variables the maps are taken as they
    stand, from their matrices; beyond as products of |J|, |g_theta_x| (by power iteration) and 1 / mu_g.
    """
    check_measure(measure, sigma, tau)
    check_problem_at(problem, point, feasible=False)
    check_oracles(problem, measure)
    certificate = compiled_certificate(problem, point, sigma, tau, accuracy, measure=measure)
    return with_free_parts(problem, point, certificate)


def with_free_parts(problem: Problem, point: Point, certificate: Certificate) -> Certificate:
    """The certificate, with the parts of x that a degenerate corner leaves free."""
    solved = Point(point.x, certificate.theta, point.y)
    parts = free_parts(problem, solved, certificate.x_gradient, certificate.y_in_corner)
    return replace(certificate, free_parts=parts)


def check_measure(measure: str, sigma: Number, tau: Number) -> None:
    if measure not in MEASURES:
        raise ValueError(f'measure must be "projection", "lmo" or "mixed", given {measure!r}')
    for name, value in (("sigma", sigma), ("tau", tau)):
        if not 0 < value < float("inf"):
            raise ValueError(f"{name} of the gap must be finite and > 0, given {value}")


def natural_measure(x_set: ConvexSet) -> str:
    """ "projection" where the set projects, else "lmo", else "mixed"."""
    return {"project": "projection", "lmo": "lmo"}.get(
        next(iter(sorted(x_set.capabilities, reverse=True)), ""), "mixed"
    )


def check_oracles(problem: Problem, measure: str) -> None:
    if measure != "mixed":
        oracle_name = {"projection": "project", "lmo": "lmo"}[measure]
        instead = f'use measure="{natural_measure(problem.x_set)}"'
        require_oracle(problem.x_set, oracle_name, f'measure="{measure}"', "x", instead)
    if problem.y_set is not None:
        require_oracle(problem.y_set, "project", "the y gap", "y", "use a y_set with a projection")


@partial(jax.jit, static_argnames="measure")
def compiled_certificate(problem: Problem, point: Point, sigma, tau, accuracy, *, measure: str) -> Certificate:
    x, y = point.x, point.y
    solved = implicit(problem, x, point.theta, y, accuracy)
    x_gap = _x_gap(problem.x_set, x, solved.Gx, tau, measure)
    y_gap = y_violation = jnp.zeros_like(x_gap)
    in_corner = jnp.asarray(False)
    if problem.y_set is not None:
        _, corner = problem.y_set.best_response(y, solved.f_y)
        in_corner = trees.norm(trees.subtract(y, corner)) <= 1e-6 * problem.y_set.diameter(y)
        y_gap = _step_length(y, problem.y_set.prox(trees.add_scaled(y, sigma, solved.f_y), sigma), sigma)
        y_violation = problem.y_set.violation(y)
    value = _value(problem, x, solved.theta, y)
    worst_value, worst_error = _worst_value(problem, x, solved.theta, y)
    x_error, y_error = _gradient_errors(problem, x, y, solved)
    rounding = 8 * jnp.finfo(trees.dtype_of(x)).eps
    x_error += rounding * trees.norm(x) / tau
    if measure != "projection":
        reach = problem.x_set.diameter(x) + (measure == "mixed")
        x_error = reach * (x_error + rounding * trees.norm(solved.Gx))
    y_error += rounding * trees.norm(y) / sigma
    return Certificate(
        x_gap=x_gap,
        y_gap=y_gap,
        value=value,
        worst_value=worst_value,
        worst_value_error=worst_error,
        lower_error=trees.norm(trees.subtract(point.theta, solved.theta)),
        error_bound=x_error + y_error,
        x_violation=problem.x_set.violation(x),
        y_violation=y_violation,
        lower_residual=solved.lower_residual,
        linear_residual=solved.linear_residual,
        theta=solved.theta,
        w=solved.w,
        x_gradient=solved.Gx,
        y_in_corner=in_corner,
        measure=measure,
        error_is_bound=problem.lower is None or problem.constants.origin_of("mu_g") in ("given", "exact"),
    )


def _x_gap(x_set: ConvexSet, x: PyTree, Gx: PyTree, tau, measure: str) -> Array:
    if measure == "lmo":
        return trees.dot(Gx, trees.subtract(x, x_set.lmo(Gx)))
    if measure == "mixed":
        residuals, gaps = _block_gaps(x_set, x, Gx, tau)
        return jnp.linalg.norm(jnp.stack(residuals)) + sum(gaps)
    return _step_length(x, x_set.project(trees.add_scaled(x, -tau, Gx)), tau)


def _block_gaps(x_set: ConvexSet, x: PyTree, Gx: PyTree, tau) -> tuple[list[Array], list[Array]]:
    """Projection residuals of the blocks that project, and Frank-Wolfe gaps of the others."""
    if "project" in x_set.capabilities:
        return [_x_gap(x_set, x, Gx, tau, "projection")], []
    if "lmo" in x_set.capabilities or not isinstance(x_set, Product):
        return [jnp.zeros((), trees.dtype_of(x))], [_x_gap(x_set, x, Gx, tau, "lmo")]
    pairs = [_block_gaps(block, parts[0], parts[1], tau) for block, parts in x_set.parts(x, Gx)]
    return [r for residuals, _ in pairs for r in residuals], [g for _, gaps in pairs for g in gaps]


def _step_length(v: PyTree, moved: PyTree, step) -> Array:
    return trees.norm(trees.subtract(v, moved)) / step


def _gradient_errors(problem: Problem, x: PyTree, y: PyTree, solved: Implicit) -> tuple[Array, Array]:
    """How far Gx and Gy are from grad_x L and grad_y L, because theta and w solve their equations up to residuals.

    delta = Hess^-1 g_theta to first order, theta - theta*;     J = d/dtheta (Gx, linear residual, Gy) at fixed w
    Gy - grad_y L = J_y delta,      Gx - grad_x L = J_x delta + g_theta_x Hess^-1 (J_r delta + linear residual)

    Small Hessians are factorised, and the norms of these two maps taken as they stand, from g_theta and from the linear
    residual; for large ones they are bounded by |J|, |g_theta_x| and 1 / mu_g, which may be far more.
    """
    epsilon = jnp.finfo(trees.dtype_of(x)).eps
    if problem.lower is None:
        return 8 * epsilon * trees.norm(solved.f_x), 8 * epsilon * trees.norm(solved.f_y)
    theta, w = solved.theta, solved.w
    mu_g = problem.constants.mu_g
    mu_g = least_curvature(problem, x, theta) if mu_g is None else jnp.asarray(mu_g).astype(trees.dtype_of(x))
    # theta* lies within |g_theta| / mu_g of theta: J is taken at both ends of that step down the gradient
    ends = (theta, trees.add_scaled(theta, -1 / mu_g, oracle.lower_gradient(problem, x, theta)))

    def equations(shift):
        def at(theta):
            f_x, f_theta, f_y = oracle.upper_gradients(problem, x, theta, y)
            Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
            return Gx, trees.subtract(f_theta, oracle.hessian_product(problem, x, theta, w)), f_y

        return [at(trees.add_scaled(end, 1.0, shift)) for end in ends]

    def J(e):
        return jax.jvp(equations, (trees.zeros_like(theta),), (e,))[1]

    def cross(e):
        return oracle.cross_product(problem, x, theta, e)

    lower = solved.lower_residual + 4 * epsilon * trees.norm(oracle.hessian_product(problem, x, theta, theta))
    linear = solved.linear_residual + 4 * epsilon * trees.norm(solved.f_theta)
    small = trees.size(theta) <= DENSE_LIMIT
    C = 2 * (dense_norm if small else operator_norm)(cross, theta)
    if small:
        solver = linear_solver(problem, x, theta)

        def inverse(e):
            return solver(e, jnp.zeros(()))

        def through(e):
            """From g_theta to the errors of Gx and Gy, at both ends."""
            return [(trees.add_scaled(G, 1.0, cross(inverse(r))), f_y) for G, r, f_y in J(inverse(e))]

        y_error = 2 * dense_norm(through, theta) * lower
        x_error = y_error + 2 * dense_norm(lambda e: cross(inverse(e)), theta) * linear
        # a Hessian whose least eigenvalue is lost in rounding cannot be certified, whatever the norms say
        y_error = jnp.where(jnp.isnan(mu_g), jnp.nan, y_error)
    else:
        norm, delta = 2 * operator_norm(J, theta), lower / mu_g
        y_error = norm * delta
        x_error = norm * delta + C / mu_g * (norm * delta + linear)
    rounding = 8 * epsilon
    x_error += rounding * (trees.norm(solved.f_x) + C * trees.norm(w))
    return x_error, y_error + rounding * trees.norm(solved.f_y)


def _value(problem: Problem, x: PyTree, theta: PyTree, y: PyTree) -> Array:
    """f, less the penalty of y where y_set has one."""
    value = oracle.upper_value(problem, x, theta, y)
    return value if problem.y_set is None else value - problem.y_set.penalty(y)


def _worst_value(problem: Problem, x: PyTree, theta: PyTree, y: PyTree) -> tuple[Array, Array]:
    """max over Y of f(x, theta, .) - h, and an upper bound on what the number given still lacks.

    Accelerated projected (proximal) ascent with a curvature search and restarts, all decided by gradients of f, and
    stopped by y_set.best_response: the Frank-Wolfe gap, or max_s <f_y, s - y> + h(y) - h(s), which bounds the rest
    for concave f. For f linear in y the first best response is the answer.
    """
    if problem.y_set is None:
        return _value(problem, x, theta, y), jnp.zeros((), trees.dtype_of(x))
    y_set = problem.y_set
    tolerance = 50 * jnp.finfo(trees.dtype_of(x)).eps

    def gradient(y):
        return oracle.upper_gradients(problem, x, theta, y)[2]

    def ascend(carry):
        y, previous, momentum, curvature, _, count = carry
        next_momentum = 0.5 * (1 + jnp.sqrt(1 + 4 * momentum**2))
        ahead = y_set.project(trees.add_scaled(y, (momentum - 1) / next_momentum, trees.subtract(y, previous)))
        g = gradient(ahead)

        def trial(curvature):
            moved = y_set.prox(trees.add_scaled(ahead, 1 / curvature, g), 1 / curvature)
            step, moved_g = trees.subtract(moved, ahead), gradient(moved)
            bend = trees.dot(trees.subtract(g, moved_g), step)
            return curvature, moved, moved_g, bend <= curvature * trees.dot(step, step)

        untried = (0.35 * curvature, y, g, jnp.asarray(False))
        curvature, moved, moved_g, _ = lax.while_loop(
            lambda t: ~t[3] & (t[0] < 1e30), lambda t: trial(2 * t[0]), untried
        )
        overshot = trees.dot(trees.subtract(ahead, moved), trees.subtract(moved, y)) > 0
        rest, _ = y_set.best_response(moved, moved_g)
        return moved, y, jnp.where(overshot, 1.0, next_momentum), curvature, rest, count + 1

    y = y_set.project(y)
    here, vertex = y_set.best_response(y, gradient(y))
    there, _ = y_set.best_response(vertex, gradient(vertex))
    start = jax.tree.map(lambda a, b: jnp.where(there < here, a, b), vertex, y)
    threshold = tolerance * (1 + jnp.abs(_value(problem, x, theta, y)))
    one = jnp.ones((), trees.dtype_of(x))
    best, *_, rest, _ = lax.while_loop(
        lambda carry: (carry[4] > threshold) & (carry[5] < 1000),
        ascend,
        (start, start, one, one, jnp.minimum(here, there), 0),
    )
    # the point's own y may be higher still if f is not concave
    return jnp.maximum(_value(problem, x, theta, best), _value(problem, x, theta, y)), rest
