"""The method that solve takes when none is given."""

import jax
import jax.numpy as jnp

from bisaddle import oracle, trees
from bisaddle.lower import extreme_eigenvalues, spectrum
from bisaddle.methods.adaptive import Adaptive
from bisaddle.methods.base import Method
from bisaddle.methods.regularized import OneSidedProjectionFree
from bisaddle.problem import Point, Problem
from bisaddle.schedules import StepSizes
from bisaddle.trees import Number
from bisaddle.validate import check_problem_at


def default_method(problem: Problem, start: Point, max_steps: int, tol: Number | None) -> Method:
    """Adaptive, which has nothing to choose; OneSidedProjectionFree if x_set has no projection  [AYH25].

    OneSidedProjectionFree: alpha = eta = 2 / (mu_g + L_g), gamma = K^(-2/3), mu = K^(-1/3), sigma = 2 / (L_yy + 2 mu);
    f strongly concave in y: mu = 0, sigma = 2 / (mu_y + L_yy). K = max_steps and nu = 1 in section 6; mu_g, L_g and the
    curvature mu_y, L_yy of f in y estimated at the start where the problem does not give them. sigma follows the
    theorems, which section 6's 1 / mu breaks when L_yy > 0.
    """
    check_problem_at(problem, start)
    (mu_g, L_g), (mu_y, L_yy) = ((float(low), float(high)) for low, high in _curvatures(problem, start))
    if problem.lower is not None and not mu_g > 0:
        raise ValueError(
            f"the lower function must be strongly convex in theta, given a Hessian with eigenvalue {mu_g:.3g} at the "
            "start; add a ridge term to it, or give a method with its step sizes"
        )
    if "project" in problem.x_set.capabilities:
        return Adaptive(1e-6 if tol is None else tol)
    mu = max_steps ** (-1 / 3)
    ascent = {"mu": mu, "sigma": 2 / (L_yy + 2 * mu)}
    if mu_y > 1e-3 * L_yy > 0:
        ascent = {"mu": 0.0, "sigma": 2 / (mu_y + L_yy)}
    lower = {} if problem.lower is None else {"alpha": 2 / (mu_g + L_g), "eta": 2 / (mu_g + L_g)}
    common = lower if problem.y_set is None else lower | ascent
    return OneSidedProjectionFree(StepSizes(gamma=max_steps ** (-2 / 3), **common))


@jax.jit
def _curvatures(problem: Problem, point: Point):
    """((mu_g, L_g), (mu_y, L_yy)) at the point, mu_y the least curvature of -f in y; given constants come first."""
    x, theta, y, known = point.x, point.theta, point.y, problem.constants
    zero = jnp.zeros(())
    lower, upper = (zero, zero), (zero, zero)
    if problem.lower is not None:
        least, most = spectrum(problem, x, theta)
        lower = (least if known.mu_g is None else known.mu_g, most if known.L_g is None else known.L_g)
    if problem.y_set is not None:

        def minus_f_y(y):
            return trees.scale(-1.0, oracle.upper_gradients(problem, x, theta, y)[2])

        least, most = extreme_eigenvalues(lambda e: jax.jvp(minus_f_y, (y,), (e,))[1], y)
        upper = (least, most if known.L_yy is None else known.L_yy)
    return lower, upper
