"""Methods with step sizes: the ones they need, what a step costs, their default values, and the moves they share."""

from typing import Any, ClassVar, TypeVar

from jaxtyping import PyTree

from bisaddle import trees
from bisaddle.methods.base import Counts, Method, S, check_default
from bisaddle.problem import Problem
from bisaddle.schedules import NAMES, StepSizes
from bisaddle.trees import Number

M = TypeVar("M", bound="SteppedMethod")


class SteppedMethod(Method[S]):
    """A method with step sizes.

    needs          the step sizes without which there is no step
    lower_needs    those for a problem with a lower level: all of them, or none where there is none
    ascent_needs   likewise for a problem with a max player
    each           the oracle calls of a step
    """

    steps: StepSizes
    needs: ClassVar[tuple[str, ...]] = ()
    lower_needs: ClassVar[tuple[str, ...]] = ()
    ascent_needs: ClassVar[tuple[str, ...]] = ()
    each: ClassVar[Counts]
    scaled = True

    def __check_init__(self):
        if not isinstance(self.steps, StepSizes):
            raise ValueError(
                f"{self.name} takes bs.StepSizes(...), given {type(self.steps).__name__}; {self.name}.default(problem) "
                "has those of its theory, and bs.methods.Adaptive() needs none"
            )
        given = self.steps.given
        for group, optional in ((self.needs, False), (self.lower_needs, True), (self.ascent_needs, True)):
            lacking = [name for name in group if name not in given]
            if lacking and not (optional and lacking == [*group]):
                listed = ", ".join(given) or "none"
                raise ValueError(f"{self.name} needs the step sizes {', '.join(lacking)}, given {listed}")

    def check(self, problem: Problem) -> None:
        super().check(problem)
        groups = (
            (problem.lower, self.lower_needs, "lower level"),
            (problem.y_set, self.ascent_needs, "max player"),
        )
        for part, group, words in groups:
            lacking = [name for name in group if name not in self.steps.given]
            if part is not None and lacking:
                raise ValueError(
                    f"{self.name} needs the step sizes {', '.join(lacking)} for a problem with a {words}; add them to "
                    "StepSizes"
                )

    def per_step(self, problem: Problem) -> Counts:
        """The oracle calls of a step, where the options of the method or the problem decide them."""
        return self.each

    def counts(self, problem: Problem, state: S) -> Counts:
        return Counts(*(int(state.k) * calls for calls in self.per_step(problem)))._replace(**state.counted)

    @classmethod
    def rule(cls, problem: Problem, K: float, nu: float) -> dict[str, Any]:
        """The default step sizes, and options that go with them, by name."""
        raise NotImplementedError

    @classmethod
    def default(cls: type[M], problem: Problem, K: Number = 10_000, nu: Number = 1.0, **options: Any) -> M:
        check_default(problem, K, nu)
        numbers = cls.rule(problem, float(K), float(nu)) | options
        steps = StepSizes(**{name: numbers.pop(name) for name in NAMES if name in numbers})
        return cls(steps, **numbers)

    @classmethod
    def with_default_steps(cls: type[M], problem: Problem, K: Number, nu: Number = 1.0, **options: Any) -> M:
        """The same as `default`."""
        return cls.default(problem, K, nu, **options)

    @classmethod
    def lower_step(cls, problem: Problem) -> float:
        """2 / (mu_g + L_g), where default step sizes begin."""
        return 2 / sum(cls.lower_constants(problem))

    @classmethod
    def lower_constants(cls, problem: Problem) -> tuple[float, float]:
        """(mu_g, L_g); ValueError where the problem does not know them."""
        mu_g, L_g = problem.constants.mu_g, problem.constants.L_g
        if mu_g is None or L_g is None:
            raise ValueError(
                f"{cls.name}.with_default_steps needs the constants mu_g and L_g of the problem, given None; set "
                "Problem(constants=bs.Constants(mu_g=..., L_g=...)), or use theory.estimate_constants"
            )
        return float(mu_g), float(L_g)


def descend(problem: Problem, x: PyTree, tau: Number, Gx: PyTree) -> PyTree:
    """P_X(x - tau Gx)"""
    return problem.x_set.project(trees.add_scaled(x, -tau, Gx))


def ascend(problem: Problem, y: PyTree, sigma: Number, Gy: PyTree) -> PyTree:
    """P_Y(y + sigma Gy); prox_{sigma h} where y_set has a penalty h"""
    assert problem.y_set is not None
    return problem.y_set.prox(trees.add_scaled(y, sigma, Gy), sigma)
