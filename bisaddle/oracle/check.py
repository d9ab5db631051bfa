"""check_derivatives: hand-written derivatives, and the whole hypergradient, against finite differences."""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.oracle.implicit import Implicit, norm
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.validate import as_number, check_problem_at, require_concrete, require_whole
from bisaddle.problem import Derivatives, Point, Problem
from bisaddle.trees import Number

NAMES = ("f_x", "f_theta", "f_y", "g_theta", "g_theta_theta", "g_theta_x", "hypergradient")


class DerivativeReport(eqx.Module):
    """errors: name -> relative error against central differences; wrong: the names above the tolerance."""

    errors: dict[str, float]
    by_hand: tuple[str, ...]
    tolerance: float

    @property
    def wrong(self) -> tuple[str, ...]:
        return tuple(name for name, error in self.errors.items() if not error <= self.tolerance)

    @property
    def ok(self) -> bool:
        return not self.wrong

    def __str__(self) -> str:
        lines = [f"derivatives against central differences, relative error, tolerance {self.tolerance:.0e}:"]
        for name, error in self.errors.items():
            origin = "by hand" if name in self.by_hand else "automatic"
            verdict = "ok" if error <= self.tolerance else "WRONG"
            lines.append(f"  {name:14} {error:8.1e}  {verdict:5}  {origin}")
        if "hypergradient" in self.wrong and self.wrong != ("hypergradient",):
            lines.append("  the hypergradient is built from the others: fix those first")
        return "\n".join(lines)


def check_derivatives(
    problem: Problem, point: Point, *, directions: int = 5, seed: int = 0, tolerance: Number | None = None
) -> DerivativeReport:
    """Compare every derivative that the methods use with central differences of f and g, at this point.

    Each is checked along `directions` random directions. Second-order products are compared with differences of the
    automatic gradient of g, so that an error in g_theta does not hide one in g_theta_theta; the hypergradient with
    differences of x -> f(x, theta*(x), y). tolerance: relative; None is 1e-5 in float64 and 3e-2 in float32.
    """
    require_concrete("check_derivatives", problem, point)
    directions, seed = require_whole("directions", directions, 1), require_whole("seed", seed, 0)
    if tolerance is not None and not 0 <= as_number("tolerance", tolerance):
        raise ValueError(f"tolerance must be >= 0, given {tolerance}; use None for one that fits the dtype")
    check_problem_at(problem, point, feasible=False)
    if tolerance is None:
        tolerance = 1e-5 if trees.dtype_of(point.x) == jnp.float64 else 3e-2
    keys = jax.random.split(jax.random.key(seed), directions)
    errors = jax.device_get(_errors(problem, point, keys))
    if problem.lower is not None:
        errors["hypergradient"] = _hypergradient_error(problem, point, directions, seed)
    present = {name: float(errors[name]) for name in NAMES if name in errors}
    by_hand = tuple(name for name, function in vars(problem.derivatives).items() if function is not None)
    return DerivativeReport(present, by_hand, float(tolerance))


def _automatic(problem: Problem) -> Problem:
    """The problem without what was written by hand, which is on trial."""
    return dataclasses.replace(problem, derivatives=Derivatives())


@jax.jit
def _errors(problem: Problem, point: Point, keys: Array) -> dict[str, Array]:
    """The largest error of each derivative but the hypergradient."""
    each = jax.lax.map(lambda key: _errors_along(problem, point, key), keys)
    return {name: jnp.max(error) for name, error in each.items()}


def _errors_along(problem: Problem, point: Point, key: Array) -> dict[str, Array]:
    x, theta, y, data = point.x, point.theta, point.y, problem.data
    automatic = _automatic(problem)
    keys = jax.random.split(key, 4)
    u_x, u_theta, u_y, w = (trees.random_like(k, t) for k, t in zip(keys, (x, theta, y, theta), strict=True))
    f_x, f_theta, f_y = oracle.upper_gradients(problem, x, theta, y)
    errors = {"f_x": _mismatch(trees.dot(f_x, u_x), _central(lambda x: problem.upper(x, theta, y, data), x, u_x))}
    if y is not None:
        difference = _central(lambda y: problem.upper(x, theta, y, data), y, u_y)
        errors["f_y"] = _mismatch(trees.dot(f_y, u_y), difference)
    if problem.lower is None:
        return errors
    lower = problem.lower
    errors["f_theta"] = _mismatch(
        trees.dot(f_theta, u_theta), _central(lambda theta: problem.upper(x, theta, y, data), theta, u_theta)
    )
    errors["g_theta"] = _mismatch(
        trees.dot(oracle.lower_gradient(problem, x, theta), u_theta),
        _central(lambda theta: lower(x, theta, data), theta, u_theta),
    )
    errors["g_theta_theta"] = _mismatch(
        oracle.hessian_product(problem, x, theta, w),
        _central(lambda theta: oracle.lower_gradient(automatic, x, theta), theta, w),
    )
    errors["g_theta_x"] = _mismatch(
        trees.dot(oracle.cross_product(problem, x, theta, w), u_x),
        _central(lambda x: trees.dot(oracle.lower_gradient(automatic, x, theta), w), x, u_x),
    )
    return errors


def _hypergradient_error(problem: Problem, point: Point, directions: int, seed: int) -> np.floating:
    """The largest along random directions; the lower level is solved anew on both sides of x."""
    kernels, automatic = Kernels(problem, point), Kernels(_automatic(problem), point)
    x, theta, y = kernels.flat(point)
    Gx = Implicit(kernels, x, theta, y).Gx
    errors = []
    for u in np.random.default_rng(seed).normal(size=(directions, x.size)).astype(x.dtype):
        h = x.dtype.type(_width(kernels.eps, norm(x), norm(u)))
        ahead, behind = (Implicit(automatic, x + side * h * u, theta, y).upper.value for side in (1, -1))
        given, difference = float(Gx @ u), (ahead - behind) / (2 * h)
        errors.append(abs(given - difference) / max(abs(given), abs(difference), 1e-3))
    return np.max(errors)  # unlike max, it does not pass over NaN


def _width(eps: float, at: Number, direction: Number) -> Any:
    """h of a central difference: truncation grows as h^2, rounding as eps / h, and here they meet."""
    return eps ** (1 / 3) * (1 + at) / jnp.maximum(direction, 1e-3)


def _central(function: Callable[[PyTree], PyTree], at: PyTree, u: PyTree) -> PyTree:
    """(function(at + h u) - function(at - h u)) / 2h"""
    h = _width(float(jnp.finfo(trees.dtype_of(at)).eps), trees.norm(at), trees.norm(u))
    ahead, behind = function(trees.add_scaled(at, h, u)), function(trees.add_scaled(at, -h, u))
    return trees.scale(0.5 / h, trees.subtract(ahead, behind))


def _mismatch(given: PyTree, difference: PyTree) -> Array:
    size = jnp.maximum(trees.norm(given), trees.norm(difference))
    return trees.norm(trees.subtract(given, difference)) / jnp.maximum(size, 1e-3)
