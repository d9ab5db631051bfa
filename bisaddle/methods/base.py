"""Method and State: one step, and nothing else. The loop, the clock and the certificate live elsewhere."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.devices import mesh_of, placed
from bisaddle.methods.about import EITHER as EITHER, About as About, place
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.validate import check_problem_at, require_oracle, require_positive, require_problem
from bisaddle.problem import Point, Problem
from bisaddle.sets.base import ConvexSet, traced
from bisaddle.sets.product import Product
from bisaddle.showing import Shown
from bisaddle.trees import Number

# steps written out in the body of the compiled loop, measured in benchmarks/loop.py
UNROLL = 2


class Counts(NamedTuple):
    """Oracle calls so far: gradients of f or g, g_theta_theta and g_theta_x products, projections on X or Y, LMOs."""

    gradients: int = 0
    hvps: int = 0
    cross_products: int = 0
    projections: int = 0
    lmos: int = 0


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

    @property
    def counted(self) -> dict[str, int]:
        """Oracle calls so far, of the kinds whose number in a step is not known beforehand."""
        return {}

    def extended(self, kind: type["S"], **more: Any) -> "S":
        """This state as one of another kind, with the fields that it has besides."""
        return kind(**vars(self), **more)


S = TypeVar("S", bound=State)
M = TypeVar("M", bound="Method")


class Method(Shown, Generic[S]):
    """init(problem, start) -> State, step(problem, state) -> State; both pure, for use in any jit, scan or vmap.

    A method is a pytree: pass it as an argument, and its numbers are traced; jax.jit(method.step) compiles them in.
    A method says in `about` which problems it is for, in `y_oracle` what it asks of y_set, and in `first` and `step`
    what it does; that it can work on a problem is checked here, before anything compiles.
    """

    name: ClassVar[str] = ""  # that of the class, for a class with an `about`
    about: ClassVar[About]
    y_oracle: ClassVar[str] = "project"
    scaled: ClassVar[bool] = False  # whether `default` takes a nu
    streams: ClassVar[bool] = False  # whether its steps may see another part of the rows each time
    asks: ClassVar[tuple[str, ...]] = ()  # what `default` has to be told, since no problem says it

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "about" in vars(cls) and "name" not in vars(cls):
            cls.name = cls.__name__

    def __hash__(self) -> int:
        return trees.content_hash(self)

    @classmethod
    def default(cls: type[M], problem: Problem, K: Number = 10_000, nu: Number = 1.0, **options: Any) -> M:
        """The method with its default step sizes for K steps on this problem, those of x and y scaled by nu.

        options: as the class takes them; of the step sizes too, in place of the default ones.
        """
        check_default(problem, K, nu)
        return cls(**options)

    @classmethod
    def refusal(cls, problem: Problem) -> str:
        """Why the method cannot solve this problem of its kind, and what to change; nothing if it can."""
        return ""

    def check(self, problem: Problem) -> None:
        """Raise ValueError if the problem lacks an oracle, or the method a step size, that the steps will need."""
        require_solvable(self, problem)

    def check_start(self, problem: Problem, start: Point) -> None:
        """Raise ValueError if the method cannot begin there."""

    def init(self, problem: Problem, start: Point) -> S:
        """The state before the first step, after all checks."""
        check_problem_at(problem, start)
        self.check(problem)
        self.check_start(problem, start)
        x, theta, y = (unaliased(tree) for tree in (start.x, start.theta, start.y))
        state = self.first(problem, State(counter(), x, theta, y, self.first_w(theta)))
        # where a mesh has the devices of some processes, JAX brings nothing there by itself
        return state if any(map(traced, jax.tree.leaves(state))) else placed(state, mesh_of((problem.data, start)))

    def first(self, problem: Problem, state: State) -> S:
        """The state before the first step, from what every state has."""
        return cast(S, state)

    def first_w(self, theta: PyTree) -> PyTree:
        """w before the first step."""
        return trees.zeros_like(theta)

    def step(self, problem: Problem, state: S) -> S:
        raise NotImplementedError

    def counts(self, problem: Problem, state: S) -> Counts:
        """Oracle calls made up to this state."""
        raise NotImplementedError


class Look(NamedTuple):
    """Where a method that is driven from the host stands after k steps, in flat vectors.

    x_gap, y_gap, value: as the method sees them itself, with theta and w as accurate as it needed them.
    state: gives all that later looks depend on, as dataclasses, NamedTuples, dicts, lists, arrays and numbers that do
    not change any more. It may be called until the next look. None where the method cannot be taken up again.
    """

    k: int
    x: np.ndarray
    theta: np.ndarray
    y: np.ndarray
    w: np.ndarray
    x_gap: float
    y_gap: float
    value: float
    counts: Counts
    state: Callable[[], Any] | None = None

    @property
    def gap(self) -> float:
        return self.x_gap + self.y_gap

    def bare(self) -> "Look":
        """Without vectors, which take much memory where they are large."""
        nothing = np.zeros(0)
        return self._replace(x=nothing, theta=nothing, y=nothing, w=nothing, state=None)


class NotStronglyConvex(Exception):
    """What a method driven from the host raises when it has met a direction along which g is not convex."""


class HostMethod(Method[State]):
    """A method that decides much and steps seldom: plain Python over compiled kernels, instead of a pure step.

    looks(problem, kernels, x, theta, y) yields a Look after every step, for ever. Its decisions depend on numbers that
    are the same wherever it runs. What it says of its own gap certifies nothing.
    state: what an earlier Look has given; the looks after that one follow, the same as if there had been no break.
    resumable: whether there are such looks, so that a run can be checkpointed.
    """

    resumable: ClassVar[bool] = False

    def looks(
        self, problem: Problem, kernels: Kernels, x: np.ndarray, theta: np.ndarray, y: np.ndarray, state: Any = None
    ) -> Iterator[Look]:
        raise NotImplementedError

    def init(self, problem: Problem, start: Point) -> State:
        raise ValueError(
            f"{self.name} is driven from the host and has no step for a jit of your own; use bs.solve, or a method "
            "with a pure step, such as FullyProjected or OneSidedProjectionFree"
        )

    def step(self, problem: Problem, state: State) -> State:
        return self.init(problem, state.point)  # which says that there is none


def public_methods() -> dict[str, type[Method]]:
    """The methods of bs.methods by name: first those for every kind of problem, then kind by kind."""
    from bisaddle import methods  # which imports this module

    named = [getattr(methods, name) for name in dir(methods)]
    public = [kind for kind in named if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method]
    return {kind.name: kind for kind in sorted(public, key=lambda kind: place(kind.name, kind.about))}


def kind_of(problem: Problem) -> str:
    """ "bilevel saddle", "saddle", "bilevel", or "minimisation" with neither a lower level nor a max player."""
    if problem.lower is None:
        return "minimisation" if problem.y_set is None else "saddle"
    return "bilevel" if problem.y_set is None else "bilevel saddle"


def takes(method: type[Method], problem: Problem) -> bool:
    """Whether the problem is of a kind the method is for, with the oracles it needs, and not refused by it."""
    kind = kind_of(problem)
    oracles = _lacking(method.about.x_oracle, problem.x_set) is None
    if problem.y_set is not None:
        oracles = oracles and method.y_oracle in problem.y_set.capabilities
    return _is_for(method.about, kind) and oracles and not method.refusal(problem)


def _lacking(x_oracle: str, x_set: ConvexSet) -> str | None:
    """Why the set has not what a method asks of it, or None."""
    if x_oracle != EITHER:
        return None if x_oracle in x_set.capabilities else x_set.missing(x_oracle)
    if isinstance(x_set, Product):
        return next(filter(None, (_lacking(x_oracle, block) for block in x_set.blocks)), None)
    return None if x_set.capabilities & {"project", "lmo"} else x_set.missing(x_oracle)


def _is_for(about: About, kind: str) -> bool:
    """Whether a method is for problems of this kind; one for saddle and for bilevel problems needs neither part."""
    return {"saddle", "bilevel"} <= set(about.problems) if kind == "minimisation" else kind in about.problems


def able(problem: Problem) -> list[str]:
    """The methods that can solve this problem, as far as its kind, its sets and their oracles tell."""
    return [name for name, method in public_methods().items() if takes(method, problem)]


def require_solvable(method: Method, problem: Problem) -> None:
    """Raise ValueError naming the methods to use if this one is for another kind of problem or needs another oracle."""
    about = getattr(method, "about", None)
    if about is None or takes(type(method), problem):  # a method of the user's own may have no `about`
        return
    kind = kind_of(problem)
    names = ", ".join(able(problem))
    if not _is_for(about, kind):
        given = {"minimisation": "one with neither a lower level nor a max player"}.get(kind, f"a {kind} problem")
        use = f"use {names}" if names else "no method of bs.methods takes it"
        raise ValueError(f"{method.name} is for {' and '.join(about.problems)} problems, given {given}; {use}")
    instead = f"use {names}" if names else f"use an x_set that has {about.x_oracle}"
    if about.x_oracle != EITHER:
        require_oracle(problem.x_set, about.x_oracle, method.name, "x", instead)
    elif reason := _lacking(EITHER, problem.x_set):
        raise ValueError(f"{method.name} needs {EITHER} on every block of x_set: {reason}; {instead}")
    if problem.y_set is not None:
        instead = f"use a y_set that has {method.y_oracle}" + (f", or {names}" if names else "")
        require_oracle(problem.y_set, method.y_oracle, method.name, "y", instead)
    raise ValueError(f"{method.name} {method.refusal(problem)}" + (f", or use {names}" if names else ""))


def check_default(problem: Problem, K: Number, nu: Number) -> None:
    """Raise ValueError unless default step sizes can be made for this problem, so many steps and this scale."""
    require_problem(problem)
    require_positive("K", K)
    require_positive("nu", nu)


def counter() -> Array:
    return jax.device_put(np.zeros((), np.int32))


def unaliased(tree: PyTree) -> PyTree:
    """Arrays of their own, so that no two fields of a state share a buffer or a weak type."""

    def own(a: Array) -> Array:
        if traced(a) or not a.is_fully_addressable:
            return jnp.array(a, dtype=a.dtype, copy=True)
        return jax.device_put(np.array(a), a.sharding)  # nothing to compile

    return jax.tree.map(own, tree)
