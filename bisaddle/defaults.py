"""The method that solve takes when none is given."""

import jax

from bisaddle.lower import spectrum
from bisaddle.methods.adaptive import Adaptive
from bisaddle.methods.base import Method
from bisaddle.problem import Point, Problem
from bisaddle.trees import Number
from bisaddle.validate import check_problem_at


def default_method(problem: Problem, start: Point, tol: Number | None) -> Method:
    """Adaptive, which has nothing to choose; a lower level that is not convex at the start is refused."""
    if problem.lower is not None and problem.constants.mu_g is None:
        check_problem_at(problem, start)
        mu_g = float(_least(problem, start))
        if not mu_g > 0:
            raise ValueError(
                f"the lower function must be strongly convex in theta, given a Hessian with eigenvalue {mu_g:.3g} at "
                "the start; add a ridge term to it, or give a method with its step sizes"
            )
    return Adaptive(1e-6 if tol is None else tol)


@jax.jit
def _least(problem: Problem, start: Point):
    return spectrum(problem, start.x, start.theta)[0]
