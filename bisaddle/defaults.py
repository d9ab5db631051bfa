"""The method that solve takes when none is given."""

import jax
import jax.numpy as jnp

from bisaddle import oracle
from bisaddle.lower import operator_norm, spectrum
from bisaddle.methods.base import Method
from bisaddle.methods.regularized import FullyProjected, OneSidedProjectionFree
from bisaddle.problem import Point, Problem
from bisaddle.schedules import StepSizes
from bisaddle.validate import check_problem_at


def default_method(problem: Problem, start: Point, max_steps: int) -> Method:
    """FullyProjected (OneSidedProjectionFree if x_set has no projection) with the schedules of section 6  [AYH25].

        alpha = eta = 2 / (mu_g + L_g),   sigma = 2 / (L_yy + 2 mu)
        FP   gamma = K^(-1/2), mu = K^(-1/4), tau = 0.7         OPF  gamma = K^(-2/3), mu = K^(-1/3)

    K = max_steps and nu = 1; mu_g, L_g and L_yy estimated at the start where the problem does not give them. sigma
    follows the theorems, which section 6's 1 / mu breaks when L_yy > 0.
    """
    check_problem_at(problem, start)
    mu_plus_L, L_yy = (float(value) for value in _estimates(problem, start))
    if problem.lower is not None and not 0 < mu_plus_L < float("inf"):
        raise ValueError(
            f"the lower Hessian at the start has eigenvalues that sum to {mu_plus_L:.3g}: a lower function strongly "
            "convex in theta is needed; add a ridge term, or give a method with its steps"
        )
    lower_step = 2 / mu_plus_L if problem.lower is not None else None
    projects = "project" in problem.x_set.capabilities
    mu = max_steps ** (-1 / 4) if projects else max_steps ** (-1 / 3)
    ascent = {} if problem.y_set is None else {"mu": mu, "sigma": 2 / (L_yy + 2 * mu)}
    common = {"alpha": lower_step, "eta": lower_step, **ascent}
    if projects:
        return FullyProjected(StepSizes(gamma=max_steps ** (-1 / 2), tau=0.7, **common))
    return OneSidedProjectionFree(StepSizes(gamma=max_steps ** (-2 / 3), **common))


@jax.jit
def _estimates(problem: Problem, point: Point):
    """(mu_g + L_g, L_yy), given or estimated at the point."""
    x, theta, y, known = point.x, point.theta, point.y, problem.constants
    mu_plus_L, L_yy = jnp.zeros(()), jnp.zeros(())
    if problem.lower is not None:
        least, most = spectrum(problem, x, theta)
        least = least if known.mu_g is None else known.mu_g
        most = most if known.L_g is None else known.L_g
        mu_plus_L = jnp.where(least > 0, least + most, jnp.nan)
    if problem.y_set is not None:

        def f_y(y):
            return oracle.upper_gradients(problem, x, theta, y)[2]

        estimate = operator_norm(lambda e: jax.jvp(f_y, (y,), (e,))[1], y)
        L_yy = estimate if known.L_yy is None else known.L_yy
    return mu_plus_L, L_yy
