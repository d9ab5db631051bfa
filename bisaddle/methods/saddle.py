"""What the methods for plain saddle problems (lower=None) share: gradients, and constants for their step sizes."""

import math
from typing import Any, ClassVar, TypeVar

from jaxtyping import PyTree

from bisaddle import oracle
from bisaddle.methods.base import S, check_default
from bisaddle.methods.stepped import SteppedMethod
from bisaddle.problem import Constants, Problem
from bisaddle.schedules import StepSizes
from bisaddle.trees import Number

M = TypeVar("M", bound="SaddleMethod")


class SaddleMethod(SteppedMethod[S]):
    """A method for min_{x in X} max_{y in Y} f(x, y): its State has theta = w = None.

    lengths: the number of default steps that 1 / L is long. takes_K: whether from_constants does.
    """

    needs = ("tau", "sigma")
    scaled = False
    lengths: ClassVar[float] = 2.0
    takes_K: ClassVar[bool] = False

    @classmethod
    def default(cls: type[M], problem: Problem, K: Number = 10_000, nu: Number = 1.0, **options: Any) -> M:
        check_default(problem, K, nu)
        if nu != 1:
            raise ValueError(f"{cls.name} takes its steps from constants, without a scale; leave nu out, given {nu}")
        untold = [name for name in cls.asks if name not in options]
        if untold:
            raise ValueError(f"{cls.name} needs {', '.join(untold)}, which the problem does not say; name it here too")
        return cls.from_constants(problem.constants, **({"K": K} if cls.takes_K else {}), **options)

    @classmethod
    def from_constants(cls: type[M], constants: Constants, *_: Any, **options: Any) -> M:
        """tau = sigma = 1 / (lengths L), L the Lipschitz constant of (f_x, f_y)."""
        step = 1 / (cls.lengths * lipschitz(cls.name, constants))
        return cls(StepSizes(tau=step, sigma=step), **options)


def gradients(problem: Problem, x: PyTree, y: PyTree) -> tuple[PyTree, PyTree]:
    """(f_x, f_y) at (x, y); what is not used of them is not computed under jit."""
    f_x, _, f_y = oracle.upper_gradients(problem, x, None, y)
    return f_x, f_y


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
