"""What the methods for plain saddle problems (lower=None) share: their checks, and constants for their step sizes."""

import math
from typing import ClassVar

from jaxtyping import PyTree

from bisaddle import oracle, trees
from bisaddle.methods.base import Counts, Method, State, counter, require_steps, unaliased
from bisaddle.oracle.validate import check_problem_at
from bisaddle.problem import Constants, Point, Problem
from bisaddle.schedules import StepSizes
from bisaddle.trees import Number


class CentredState(State):
    """State with y0, the centre of the regularisation."""

    y0: PyTree


class SaddleMethod(Method):
    """A method for min_{x in X} max_{y in Y} f(x, y): its State has theta = w = None.

    needs: the step sizes it takes. each: the oracle calls of one step.
    """

    steps: StepSizes
    needs: ClassVar[tuple[str, ...]] = ("tau", "sigma")
    each: ClassVar[Counts]

    def __check_init__(self):
        require_steps(self.name, self.steps, self.needs, ())

    def begin(self, problem: Problem, start: Point) -> State:
        """The checks, and the state without what a method adds."""
        check_problem_at(problem, start)
        self.check(problem)
        return State(counter(), unaliased(start.x), None, unaliased(start.y), None)

    def init(self, problem: Problem, start: Point) -> State:
        return self.begin(problem, start)

    def counts(self, problem: Problem, state: State) -> Counts:
        return self.each.times(int(state.k))


def gradients(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, PyTree]:
    """(f_x, f_y) at (x, y); what is not used of them is not computed under jit."""
    f_x, _, f_y = oracle.upper_gradients(problem, x, None, y)
    return f_x, f_y


def descend(problem: Problem, x: PyTree, tau: Number, Gx: PyTree) -> PyTree:
    """P_X(x - tau Gx)"""
    return problem.x_set.project(trees.add_scaled(x, -tau, Gx))


def ascend(problem: Problem, y: PyTree, sigma: Number, Gy: PyTree) -> PyTree:
    """P_Y(y + sigma Gy); prox_{sigma h} where y_set has a penalty h"""
    assert problem.y_set is not None
    return problem.y_set.prox(trees.add_scaled(y, sigma, Gy), sigma)


def numbers_of(who: str, constants: Constants, *names: str) -> list[float]:
    """The constants of these names; ValueError if one is unknown. An unknown mu_y is 0."""
    lacking = [name for name in names if name != "mu_y" and getattr(constants, name) is None]
    if lacking:
        given = ", ".join(name for name, value in constants.items() if value is not None) or "none"
        raise ValueError(
            f"{who}.from_constants needs {', '.join(lacking)}, given {given}; theory.estimate_constants finds them"
        )
    return [float(value) if (value := getattr(constants, name)) is not None else 0.0 for name in names]


def lipschitz(who: str, constants: Constants) -> float:
    """L of (f_x, -f_y): the spectral norm of [[L_xx, L_xy], [L_yx, L_yy]]."""
    a, b, c, d = numbers_of(who, constants, "L_xx", "L_xy", "L_yx", "L_yy")
    total, product = a * a + b * b + c * c + d * d, a * d - b * c
    L = math.sqrt((total + math.sqrt(max(total * total - 4 * product * product, 0.0))) / 2)
    if not L > 0:
        raise ValueError(f"{who}.from_constants needs a positive Lipschitz constant, given L_xx = ... = L_yy = 0")
    return L
