"""Constants by sampling, matrix-free: Lanczos for mu_g and L_g, norms of derivatives and difference quotients else."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.oracle.validate import as_number, check_key, check_problem_at, require_whole
from bisaddle.problem import Constants, Point, Problem
from bisaddle.theory.norms import POWER_STEPS, VARIABLES, derivative_norms, operator_norm, unit
from bisaddle.theory.sampling import bare, diameters, sampled
from bisaddle.theory.spectrum import lower_spectrum, upper_ends
from bisaddle.trees import Number


@dataclasses.dataclass(frozen=True)
class Estimates:
    """constants, each marked exact, given or estimated; how, a sentence for each estimated one; hvps, Hessian-vector
    products of g spent; converged, whether both ends of the spectrum met the tolerance."""

    constants: Constants
    how: dict[str, str]
    hvps: int
    converged: bool

    def __str__(self) -> str:
        lines = [f"constants, {self.hvps} Hessian-vector products:"]
        for name, value in self.constants.items():
            if value is not None:
                origin = self.constants.origin_of(name)
                lines.append(f"  {name:15} {float(value):12.6g}  {origin:9}  {self.how.get(name, '')}".rstrip())
        return "\n".join(lines)


def estimate_constants(
    problem: Problem, key: Array, point: Point, *, samples: int | np.integer = 8, tolerance: Number = 2e-3
) -> Estimates:
    """Every constant of the assumptions that problem.constants lacks, from samples: estimates, mostly from below.

        mu_g, L_g          Lanczos with full reorthogonalisation, to a relative residual `tolerance`
        L_xx .. L_yy       norms of the second derivatives of f, by power iteration, and difference quotients of f_x, ..
        mu_y               least eigenvalue of -f_yy, by Lanczos
        C_thetax           norm of g_theta_x by power iteration
        L_g_thetax, _thetatheta   power method on the third derivatives of g, and quotients over |dx| + |dtheta|
        C_theta            largest |f_theta(x, theta*(x), y)|
        D_X, D_Y           exact, from the sets

    at `samples` points of X x Y, half of them extreme points, theta between theta*(x) and the point's. What is given or
    exact is kept. dataclasses.replace(problem, constants=estimate.constants) puts them in force.
    """
    check_problem_at(problem, point)
    check_key(key)
    samples = require_whole("samples", samples, 2)
    if not 0 < as_number("tolerance", tolerance) < 1:
        raise ValueError(f"tolerance must lie in (0, 1), given {tolerance}")
    known, problem = problem.constants, bare(problem)
    taken = sampled(problem, key, point, samples)
    found, how, hvps, converged = {}, {}, 0, True
    if problem.lower is not None and (known.mu_g is None or known.L_g is None):
        ends = lower_spectrum(taken, tolerance=float(tolerance))
        hvps = ends.hvps
        if not ends.mu_g > 0:
            raise ValueError(
                f"the lower function must be strongly convex in theta, given a Hessian with eigenvalue "
                f"{ends.mu_g:.3g}; theory.check_assumptions shows where; add a ridge term"
            )
        found |= {"mu_g": ends.mu_g, "L_g": ends.L_g}
        residuals = {"mu_g": ends.mu_residual / ends.mu_g, "L_g": ends.L_residual / ends.L_g}
        converged = max(residuals.values()) <= float(tolerance)
        for name, residual in residuals.items():
            how[name] = f"Lanczos over {ends.tried} points, {hvps} products in all, relative residual {residual:.1e}"
    pairs = f"{samples} points and {samples - 1} pairs"
    for name, value in jax.device_get(_measure(problem, taken.points)).items():
        found[name] = float(value)
        how[name] = f"norms of the derivative and difference quotients over {pairs}"
    if problem.lower is not None:
        found["C_theta"] = float(np.max(taken.slopes))
        how["C_theta"] = f"largest of {samples} points, at theta*(x)"
    if problem.y_set is not None:
        lows, highs = np.array([upper_ends(taken.kernels, *place) for place in taken.places]).T
        L_yy = found["L_yy"] = float(np.max([found["L_yy"], *highs]))
        found["mu_y"] = 0.0 if np.min(lows) <= 1e-8 * L_yy else min(float(np.min(lows)), L_yy)
        how["mu_y"] = f"Lanczos on -f_yy at {samples} points"
    return Estimates(*_merged(known, found, how, diameters(problem, point)), hvps, converged)


def _merged(known: Constants, found: dict, how: dict, exact: dict) -> tuple[Constants, dict[str, str]]:
    given = {name: value for name, value in known.items() if value is not None}
    values = found | exact | given
    origins: dict = dict.fromkeys(found, "estimated") | dict.fromkeys(exact, "exact")
    origins |= {name: known.origin_of(name) for name in given}
    # a sampled end may cross one that was given
    for low, high in (("mu_g", "L_g"), ("mu_y", "L_yy")):
        if low in values and high in values and values[low] > values[high]:
            changed, kept = (low, high) if origins[low] == "estimated" else (high, low)
            values[changed] = values[kept]
    in_order = tuple((name, origins[name]) for name, _ in known.items() if name in values)
    return Constants(**values, origin=in_order), {n: text for n, text in how.items() if origins[n] == "estimated"}


def _bend(problem: Problem, product, point: Point, key: Array) -> Array:
    """How fast A = g_theta_x or g_theta_theta turns: max of |dA w| over unit w and a unit change of x, or of theta.

    The power method on the trilinear form <z, dA(u) w>: each of u, w, z in turn becomes the gradient of the form in it,
    which never lowers its value. A quotient between random points would see little of the steepest direction.
    """
    place = (point.x, point.theta)

    def form(along, u, w, z):
        shift = tuple(trees.scale(along == i, part) for i, part in enumerate(u))
        return trees.dot(z, jax.jvp(lambda x, theta: product(problem, x, theta, w), place, shift)[1])

    def largest(along):
        like = (place, point.theta, jax.eval_shape(partial(product, problem), *place, point.theta))
        start = tuple(unit(trees.random_like(k, part)) for k, part in zip(jax.random.split(key, 3), like, strict=True))

        def turn(_, parts):
            for i in range(3):
                parts = (*parts[:i], unit(jax.grad(form, i + 1)(along, *parts)), *parts[i + 1 :])
            return parts

        return jnp.abs(form(along, *jax.lax.fori_loop(0, POWER_STEPS, turn, start)))

    return jnp.max(jax.lax.map(largest, jnp.arange(2)))


@jax.jit
def _measure(problem: Problem, points: Point) -> dict[str, Array]:
    first = jax.tree.map(lambda leaf: leaf[:-1], points)
    second = jax.tree.map(lambda leaf: leaf[1:], points)

    def at_one(point):
        found = derivative_norms(problem, point)
        if problem.lower is not None:
            found["L_g_thetax"] = _bend(problem, oracle.cross_product, point, jax.random.key(3))
            found["L_g_thetatheta"] = _bend(problem, oracle.hessian_product, point, jax.random.key(4))
        return found

    local = jax.lax.map(at_one, points)
    across = jax.lax.map(lambda pair: _quotients(problem, *pair), (first, second))
    found = {name: jnp.max(value) for name, value in local.items()}
    for name, value in across.items():
        found[name] = jnp.maximum(found.get(name, 0.0), jnp.max(value))
    return found


def _quotients(problem: Problem, first: Point, second: Point) -> dict[str, Array]:
    """|change of a gradient| / |change of one variable|, from the first point towards the second."""
    found = {}
    start, end = (first.x, first.theta, first.y), (second.x, second.theta, second.y)
    before = oracle.upper_gradients(problem, *start)
    for column in range(3):
        if start[column] is None:
            continue
        moved = [end[part] if part == column else start[part] for part in range(3)]
        length = trees.norm(trees.subtract(end[column], start[column]))
        safe = jnp.where(length > 0, length, jnp.inf)
        for row, gradient in enumerate(oracle.upper_gradients(problem, *moved)):
            if start[row] is not None:
                change = trees.norm(trees.subtract(gradient, before[row]))
                found[f"L_{VARIABLES[row]}{VARIABLES[column]}"] = change / safe
    if problem.lower is not None:
        for name, product in (("L_g_thetax", oracle.cross_product), ("L_g_thetatheta", oracle.hessian_product)):
            moves = ((second.x, first.theta), (first.x, second.theta))
            found[name] = jnp.maximum(*(_operator_change(problem, product, first, *move) for move in moves))
    return found


def _operator_change(problem: Problem, product, first: Point, x: PyTree, theta: PyTree) -> Array:
    """|A(first) - A(x, theta)| / (|dx| + |dtheta|) for A = g_theta_x or g_theta_theta"""

    def change(w):
        return trees.subtract(product(problem, first.x, first.theta, w), product(problem, x, theta, w))

    length = trees.norm(trees.subtract(x, first.x)) + trees.norm(trees.subtract(theta, first.theta))
    return operator_norm(change, first.theta) / jnp.where(length > 0, length, jnp.inf)
