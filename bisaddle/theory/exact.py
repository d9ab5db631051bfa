"""Constants of problems whose second derivatives do not change: dense linear algebra, no sampling."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from bisaddle import trees
from bisaddle.oracle.validate import check_problem_at
from bisaddle.problem import Constants, Point, Problem
from bisaddle.theory.sampling import bare, diameters, sampled

# second derivatives are formed as matrices
LARGEST = 5000
_OUTWARD = 1e-12  # constants are bounds: an eigenvalue is moved by its own rounding


class _Blocks(NamedTuple):
    """At one point: the Hessian of f in (x, theta, y), the rows of theta in that of g, f_theta and g_theta."""

    f: Any
    g: Any
    f_theta: Any
    g_theta: Any


def exact_constants(problem: Problem, point: Point) -> Constants:
    """The constants that a quadratic structure gives, marked exact; the others as problem.constants has them.

        g quadratic in (x, theta)       mu_g, L_g, C_thetax; L_g_thetax = L_g_thetatheta = 0
        f quadratic in (x, theta, y)    L_xx .. L_yy, mu_y
        both                            C_theta <= |f_theta| at the start + |d/dx| D_X + |d/dy| D_Y, theta = theta*(x)

    and D_X, D_Y. Quadratic is tested at four points. Raises ValueError if neither is: use estimate_constants.
    """
    check_problem_at(problem, point)
    sizes = [trees.size(part) for part in (point.x, point.theta, point.y)]
    if sum(sizes) > LARGEST:
        raise ValueError(
            f"exact_constants forms matrices of order {sum(sizes)}, more than {LARGEST}; use estimate_constants"
        )
    known, problem = problem.constants, bare(problem)
    taken = sampled(problem, jax.random.key(0), point, 4)
    blocks = [jax.device_get(_second_derivatives(problem, taken.point(i))) for i in range(4)]
    same = lambda name: all(_close(getattr(blocks[0], name), getattr(block, name)) for block in blocks[1:])
    f_quadratic, g_quadratic = same("f"), problem.lower is None or same("g")
    if not f_quadratic and not (g_quadratic and problem.lower is not None):
        raise ValueError(
            "exact_constants needs f or g quadratic, given second derivatives that change from point to point; "
            "use theory.estimate_constants"
        )
    found = diameters(problem, point)
    cuts = np.cumsum(sizes)
    part = {name: slice(end - size, end) for name, end, size in zip(("x", "theta", "y"), cuts, sizes, strict=True)}
    if problem.lower is not None and g_quadratic:
        found |= _lower(blocks[0].g, part)
    if f_quadratic:
        found |= _upper(blocks[0].f, part, problem)
    if f_quadratic and g_quadratic and problem.lower is not None:
        found["C_theta"] = _gradient_bound(blocks[0], part, found, problem.y_set is not None)
    values = {name: value for name, value in known.items() if value is not None} | found
    kept = tuple((n, o) for n, o in known.origin if n not in found)
    return Constants(**values, origin=(*kept, *((name, "exact") for name in found)))


@jax.jit
def _second_derivatives(problem: Problem, point: Point) -> _Blocks:
    flat, unravel = ravel_pytree((point.x, point.theta, point.y))
    f = lambda v: problem.upper(*unravel(v), problem.data)
    hessian = jax.hessian(f)(flat)
    lower = problem.lower
    if lower is None:
        nothing = jnp.zeros((0, flat.size))
        return _Blocks(hessian, nothing, nothing[:, 0], nothing[:, 0])

    def g_theta(v):
        x, theta, _ = unravel(v)
        return ravel_pytree(jax.grad(lower, 1)(x, theta, problem.data))[0]

    f_theta = ravel_pytree(unravel(jax.grad(f)(flat))[1])[0]
    return _Blocks(hessian, jax.jacfwd(g_theta)(flat), f_theta, g_theta(flat))


def _close(first: np.ndarray, second: np.ndarray) -> bool:
    return bool(np.max(np.abs(first - second), initial=0.0) <= 1e-9 * (1e-30 + np.max(np.abs(first), initial=0.0)))


def _norm(block: np.ndarray) -> float:
    return float(np.linalg.norm(block, 2)) * (1 + _OUTWARD) if block.size else 0.0


def _lower(g: np.ndarray, part: dict[str, slice]) -> dict[str, float]:
    ends = np.linalg.eigvalsh(g[:, part["theta"]])
    if not ends[0] > 0:
        raise ValueError(
            f"the lower function must be strongly convex in theta, given a Hessian with eigenvalue {ends[0]:.3g}; "
            "add a ridge term"
        )
    return {
        "mu_g": ends[0] * (1 - _OUTWARD),
        "L_g": ends[-1] * (1 + _OUTWARD),
        "C_thetax": _norm(g[:, part["x"]]),
        "L_g_thetax": 0.0,
        "L_g_thetatheta": 0.0,
    }


def _upper(f: np.ndarray, part: dict[str, slice], problem: Problem) -> dict[str, float]:
    present = ["x", *(["theta"] if problem.lower is not None else []), *(["y"] if problem.y_set is not None else [])]
    found = {f"L_{a}{b}": _norm(f[part[a], part[b]]) for a in present for b in present}
    if problem.y_set is not None:
        least = float(np.linalg.eigvalsh(-f[part["y"], part["y"]])[0])
        if least < -1e-9 * (1 + found["L_yy"]):
            raise ValueError(f"f must be concave in y, given -f_yy with eigenvalue {least:.3g}")
        found["mu_y"] = max(0.0, least * (1 - _OUTWARD))
    return found


def _gradient_bound(blocks: _Blocks, part: dict[str, slice], found: dict[str, float], has_y: bool) -> float:
    """f_theta(x, theta*(x), y) is affine in (x, y): its size at the start plus its slopes times the diameters."""
    f, g, x, theta = blocks.f, blocks.g, part["x"], part["theta"]
    slope = -np.linalg.solve(g[:, theta], g[:, x])  # of theta*
    shift = -np.linalg.solve(g[:, theta], blocks.g_theta)  # from the start's theta to theta*(x_0)
    at_start = blocks.f_theta + f[theta, theta] @ shift
    bound = float(np.linalg.norm(at_start)) + _norm(f[theta, x] + f[theta, theta] @ slope) * found["D_X"]
    return bound + (_norm(f[theta, part["y"]]) * found["D_Y"] if has_y else 0.0)
