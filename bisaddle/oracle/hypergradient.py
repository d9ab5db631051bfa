"""hypergradient: the gradient of x -> f(x, theta*(x), y)."""

from jaxtyping import PyTree

from bisaddle.oracle.implicit import Implicit
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.validate import check_problem_at, require_concrete
from bisaddle.problem import Point, Problem
from bisaddle.programs import on_device
from bisaddle.trees import Number


def hypergradient(problem: Problem, x: PyTree, y: PyTree, theta: PyTree = None, *, accuracy: Number = 0.0) -> PyTree:
    """grad_x of f(x, theta*(x), y), by an accurate lower solve from `theta` and a linear solve.

        f_x - g_theta_x v,     g_theta_theta v = f_theta,     at theta*(x)

    theta: where the lower solve starts; any values of the right shape will do. accuracy: the residual norm to reach in
    both solves; 0: as far as rounding allows. The solves are driven from the host, so this does not work inside jit.
    """
    if problem.lower is not None and theta is None:
        raise ValueError(
            "hypergradient needs a theta to start the lower solve from, given None; use zeros of its shape"
        )
    point = Point(x, theta, y)
    require_concrete("hypergradient", problem, point)
    check_problem_at(problem, point, feasible=False)
    kernels = Kernels(problem, point)
    return on_device(kernels.x.tree(Implicit(kernels, *kernels.flat(point), accuracy=float(accuracy)).Gx))
