"""Method and State: one step, and nothing else. The loop, the clock and the certificate live elsewhere."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.problem import Point, Problem
from bisaddle.schedules import StepSizes


class Counts(NamedTuple):
    """Oracle calls so far: gradients of f or g, g_theta_theta and g_theta_x products, projections on X or Y, LMOs."""

    gradients: int = 0
    hvps: int = 0
    cross_products: int = 0
    projections: int = 0
    lmos: int = 0

    def times(self, steps: int) -> "Counts":
        return Counts(*(steps * count for count in self))


class About(NamedTuple):
    """What a method is for and what it costs; bs.methods.table() and the docs page are made from it."""

    problems: tuple[str, ...]  # of "bilevel saddle", "saddle", "bilevel"
    x_oracle: str  # "project" or "lmo"
    loops: str  # "single" or "double"
    second_order: str  # second-order products a step, such as "1 HVP + 1 cross" or "none"
    complexity: str  # with its measure, such as "eps^-4 to a gap of eps"
    steps: str  # where its default step sizes come from
    reference: str  # key of docs/references.bib


class State(eqx.Module):
    """What every method carries: the step counter k, the iterates x, theta, y and w, which tracks Hess^-1 f_theta."""

    k: Array
    x: PyTree
    theta: PyTree
    y: PyTree
    w: PyTree

    @property
    def point(self) -> Point:
        return Point(self.x, self.theta, self.y)


class Method(eqx.Module):
    """init(problem, start) -> State, step(problem, state) -> State; both pure, for use in any jit, scan or vmap.

    A method is a pytree: pass it as an argument, and its numbers are traced; jax.jit(method.step) compiles them in.
    A method checks in `check` that it can work on a problem, before anything compiles.
    """

    name: ClassVar[str] = ""
    about: ClassVar[About]

    def __hash__(self) -> int:
        return trees.content_hash(self)

    def check(self, problem: Problem) -> None:
        """Raise ValueError if the problem lacks an oracle, or the method a step size, that the steps will need."""

    def init(self, problem: Problem, start: Point) -> State:
        raise NotImplementedError

    def step(self, problem: Problem, state: State) -> State:
        raise NotImplementedError

    def counts(self, problem: Problem, state: State) -> Counts:
        """Oracle calls made up to this state."""
        raise NotImplementedError


def require_steps(
    method: str, steps: StepSizes, always: tuple[str, ...], together: tuple[tuple[str, ...], ...]
) -> None:
    """At construction: every step size in `always`; of each group in `together` all or none."""
    if not isinstance(steps, StepSizes):
        raise ValueError(f"{method} takes bs.StepSizes(...), given {type(steps).__name__}")
    given = [name for name, schedule in vars(steps).items() if schedule is not None]
    for group in (always, *together):
        lacking = [name for name in group if name not in given]
        if lacking and (group is always or len(lacking) < len(group)):
            raise ValueError(f"{method} needs the step sizes {', '.join(lacking)}, given {', '.join(given) or 'none'}")


def require_group(method: str, steps: StepSizes, group: tuple[str, ...], part: str) -> None:
    """Against a problem: the step sizes of a part (lower level, max player) that the problem has."""
    lacking = [name for name in group if getattr(steps, name) is None]
    if lacking:
        raise ValueError(
            f"{method} needs the step sizes {', '.join(lacking)} for a problem with a {part}; add them to StepSizes"
        )


def counter() -> Array:
    return jnp.zeros((), jnp.int32)


def unaliased(tree: PyTree) -> PyTree:
    """Arrays of their own, so that no two fields of a state share a buffer or a weak type."""
    return jax.tree.map(lambda a: jnp.array(a, dtype=a.dtype, copy=True), tree)
