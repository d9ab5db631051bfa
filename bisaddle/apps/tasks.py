"""What the applications share: tasks checked and padded, weight sets by name, arrays put on the device."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import NamedTuple, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle.devices import Order, total
from bisaddle.problem import Constants, described
from bisaddle.sets import (
    CappedSimplex,
    ChiSquareBall,
    ConvexSet,
    CVaRSet,
    KLBall,
    L1Ball,
    L2Ball,
    LinfBall,
    NuclearBall,
    Simplex,
    Singleton,
    SpectralBall,
    TVBall,
)
from bisaddle.sets.flat import flat_set
from bisaddle.trees import Number

# (A_train, b_train, A_valid, b_valid)
Task = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
# what a user may give for an array
ArrayLike = Array | np.ndarray | Sequence
# a word, a word with its size, or the set itself
Weights = str | tuple[str, Number] | ConvexSet

WORDS = '"simplex", "mean", ("kl", radius), ("chi2", radius), ("tv", radius), ("cvar", level), ("capped", cap) or a set'


class Choices(TypedDict, total=False):
    """Keywords that all multi-task losses take: as multitask.regression has them, with the same defaults."""

    shared: str
    x_set: ConvexSet | None
    weights: Weights
    missing: str


class Chosen(NamedTuple):
    shared: str = "vector"
    x_set: ConvexSet | None = None
    weights: Weights = "simplex"
    missing: str = "refuse"


def chosen(who: str, **choices: Unpack[Choices]) -> Chosen:
    """The choices with their defaults; TypeError, as Python has it, for a keyword that is none of them."""
    for name in choices:
        if name not in Chosen._fields:
            near = get_close_matches(name, Chosen._fields, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; these are {', '.join(Chosen._fields)}"
            raise TypeError(f"{who}() got an unexpected keyword argument '{name}'{hint}")
    return Chosen(**choices)


def check_tasks(who: str, tasks: Sequence[tuple], missing: str = "refuse") -> list[Task]:
    """The tasks as float64 arrays of equal width; ValueError names the task that is not in order.

    missing: "refuse" NaN among the targets, or "ignore" those rows, which leaves the others of the task.
    """
    require_word("missing", missing, ("refuse", "ignore"))
    if not isinstance(tasks, Iterable):
        raise ValueError(
            f"{who} needs a list of tasks (A_train, b_train, A_valid, b_valid), given {type(tasks).__name__}"
        )
    checked = [check_task(i, task, missing) for i, task in enumerate(tasks)]
    if not checked:
        raise ValueError(f"{who} needs at least one task (A_train, b_train, A_valid, b_valid), given none")
    require_one_width([A for task in checked for A in (task[0], task[2])])
    return checked


def check_task(i: int, task: tuple, missing: str = "refuse") -> Task:
    if not isinstance(task, Sequence) or len(task) != 4:
        given = f"{len(task)} items" if isinstance(task, Sequence) else type(task).__name__
        raise ValueError(f"task {i} must be (A_train, b_train, A_valid, b_valid), given {given}")
    A, b, valid_A, valid_b = task
    train = check_rows(f"task {i}", "A_train", "b_train", A, b, missing)
    return *train, *check_rows(f"task {i}", "A_valid", "b_valid", valid_A, valid_b, missing)


def as_numbers(what: str, values: object) -> np.ndarray:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{what} must be an array of numbers, given {_shown(values)}; encode words first") from None


def _shown(values: object) -> str:
    text = " ".join(repr(values).split())
    return f"{type(values).__name__} {text if len(text) <= 40 else text[:36] + ' ...'}"


def check_rows(
    where: str, features: str, targets: str, A: object, b: object, missing: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """One table of features with its targets, without the rows whose target is missing.

    missing: "refuse" or "ignore" where the caller has that choice, "" where there is none.
    """
    A, b = as_numbers(f"{where}: {features}", A), as_numbers(f"{where}: {targets}", b)
    if A.ndim != 2 or b.shape != A.shape[:1] or A.size == 0:
        raise ValueError(
            f"{where}: {features} (n, d) and {targets} (n,) are needed, given {A.shape} and {b.shape}; "
            "at least one row and one column"
        )
    unknown = np.isnan(b)
    if missing == "ignore" and np.any(unknown):
        if np.all(unknown):
            raise ValueError(f"{where}: {targets} has no label that is not missing; leave the task out")
        A, b = A[~unknown], b[~unknown]
    if not (np.all(np.isfinite(A)) and np.all(np.isfinite(b))):
        advice = "drop such rows, or fill in the features"
        if missing:
            advice = 'missing="ignore" leaves out rows whose target is NaN, and features have to be filled in'
        raise ValueError(f"{where}: {features} and {targets} must be finite, given NaN or infinity; {advice}")
    return A, b


def require_one_width(tables: Sequence[np.ndarray]) -> None:
    widths = sorted({A.shape[1] for A in tables})
    if len(widths) > 1:
        raise ValueError(f"all tasks need the same number of columns, given {widths}; pad the narrow ones with zeros")


def require_both_classes(where: str, name: str, labels: np.ndarray, least: int = 2) -> None:
    found = np.unique(labels)
    if len(found) < least:
        advice = "leave the task out, or split its rows so that both classes are among them"
        if not where.startswith("task"):
            advice = "add rows of another class"
        raise ValueError(f"{where}: {name} has one class only, {found[0]:g}; at least {least} are needed: {advice}")


def binary(where: str, name: str, labels: np.ndarray) -> np.ndarray:
    """Labels 0, 1 or -1, 1 as 0, 1."""
    found = set(np.unique(labels).tolist())
    if not (found <= {0.0, 1.0} or found <= {-1.0, 1.0}):
        few = ", ".join(f"{value:g}" for value in sorted(found)[:4])
        raise ValueError(f"{where}: {name} must hold 0 and 1 (or -1 and 1), given {few}; use 1 for the positive class")
    return (labels > 0).astype(np.float64)


def require_word(name: str, given: object, words: Sequence[str]) -> None:
    if given not in words:
        listed = ", ".join(f'"{word}"' for word in words[:-1]) + f' or "{words[-1]}"'
        raise ValueError(f"{name} must be {listed}, given {given!r}")


def require_size(name: str, value: Number, above: bool = True, why: str = "") -> float:
    """A finite number > 0, or >= 0 where `above` is False."""
    number = isinstance(value, int | float | np.number | np.ndarray | jax.Array) and np.ndim(value) == 0
    if not (number and np.isfinite(value) and (value > 0 if above else value >= 0)):
        raise ValueError(f"{name} must be finite and {'> 0' if above else '>= 0'}{why}, given {value!r}")
    return float(value)


def penalties(ridge: Number, divergence: Number) -> tuple[float, float]:
    why = " (it makes the lower level strongly convex)"
    return require_size("ridge", ridge, why=why), require_size("divergence", divergence, above=False)


def weight_set(weights: Weights, count: int) -> ConvexSet:
    """The set U of weights over `count` tasks or rows, balls around the uniform distribution.

    simplex: any weights. mean: the uniform ones only. kl, chi2, tv: within a radius in that divergence. cvar: the mean
    over the worst share 1 - level. capped: no weight above cap. Or a set of bs.sets as it is.
    """
    if isinstance(weights, ConvexSet):
        return weights
    uniform = np.full(count, 1.0 / count)
    if weights == "simplex":
        return Simplex()
    if weights == "mean":
        return Singleton(uniform)
    if not (isinstance(weights, tuple) and len(weights) == 2 and weights[0] in ("kl", "chi2", "tv", "cvar", "capped")):
        given = repr(weights) if isinstance(weights, str | tuple) else described(weights)
        raise ValueError(f"weights must be {WORDS}, given {given}")
    kind, size = weights
    if kind == "cvar":
        return CVaRSet(size)
    if kind == "capped":
        if not size * count >= 1:
            raise ValueError(f'weights ("capped", {size}): {count} weights of at most {size} cannot sum to 1')
        return CappedSimplex(size)
    return {"kl": KLBall, "chi2": ChiSquareBall, "tv": TVBall}[kind](uniform, size)


def of_distributions(convex_set: ConvexSet) -> bool:
    """Whether all its points are known to be >= 0 with sum 1."""
    if isinstance(convex_set, Simplex | CappedSimplex):
        return float(np.asarray(convex_set.radius)) == 1.0
    if isinstance(convex_set, Singleton):
        value = np.asarray(convex_set.value)
        return bool(np.all(value >= 0) and abs(np.sum(value) - 1) <= 1e-12)
    return isinstance(convex_set, KLBall | ChiSquareBall | TVBall | CVaRSet)


def diameter(convex_set: ConvexSet, shape: tuple[int, ...]) -> float:
    return float(flat_set(convex_set, np.zeros(shape)).diameter())


def reach(convex_set: ConvexSet, shape: tuple[int, ...]) -> tuple[np.ndarray, float]:
    """(its point nearest to 0, a bound on |v| over the set)"""
    form = flat_set(convex_set, np.zeros(shape))
    if isinstance(convex_set, L1Ball | L2Ball | LinfBall | NuclearBall | SpectralBall):
        return np.zeros(shape), form.diameter() / 2
    origin = np.zeros(form.size)
    nearest = form.project(origin) if "project" in form.capabilities else form.lmo(origin)
    return nearest.reshape(shape), float(np.linalg.norm(nearest)) + form.diameter()


def exactly(values: dict[str, float]) -> Constants:
    """Constants that follow from the structure of a problem."""
    return Constants(**values, origin=tuple((name, "exact") for name in values))


def largest(A: np.ndarray) -> float:
    """The largest eigenvalue of A'A / n, from the smaller of A'A and AA': a singular value of A costs far more."""
    return float(np.linalg.eigvalsh(A.T @ A if A.shape[1] <= len(A) else A @ A.T)[-1]) / len(A)


def padded(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of different lengths in one, with zeros after the short ones."""
    made = np.zeros((len(arrays), max(map(len, arrays)), *arrays[0].shape[1:]))
    for row, array in zip(made, arrays, strict=True):
        row[: len(array)] = array
    return made


def shares(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """1 / n_i for the n_i rows of a task, 0 for its padding."""
    return padded([np.full(len(array), 1.0 / len(array)) for array in arrays])


def device(tree: PyTree) -> PyTree:
    """NumPy arrays and numbers as JAX arrays; jnp.asarray would compile a program for every shape."""
    return jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf, dtype=np.float64)), tree)


def blend(x: dict[str, Array], theta: Array) -> Array:
    """lam_i theta_i + (1 - lam_i) x, for every task; x one for all, or a row for each"""
    lam = per_task(x["lam"], theta)
    return lam * theta + (1 - lam) * common(x, theta)


def common(x: dict[str, Array], theta: Array) -> Array:
    """x in the shape of theta, or with one task that stands for all"""
    return x["x"].reshape((-1, *theta.shape[1:]))


def per_task(values: Array, theta: Array) -> Array:
    return values.reshape((-1,) + (1,) * (theta.ndim - 1))


def gathered(x: dict[str, Array], values: Array, order: Order | None = None) -> Array:
    """What tasks give for x, one for each: their sum where x is one for all"""
    return (values if values.size == x["x"].size else total(values, 0, order, "tasks")).reshape(x["x"].shape)


def uniform_penalty(y: Array, divergence: Array, real: Array | None = None, order: Order | None = None) -> Array:
    """Experiment 2's (divergence / T) |T y - 1|^2 / 2, over the real tasks"""
    T = task_count(y, real)
    squares = jnp.square(T * y - 1)
    return divergence / T * 0.5 * total(squares if real is None else real * squares, 0, order, "tasks")


def task_count(y: Array, real: Array | None) -> Array | int:
    """How many tasks there are. real: 1 for each of them, 0 for those that only fill up; None: all are real."""
    return y.size if real is None else jnp.sum(real)


class Shared(NamedTuple):
    """The shared part x of a multi-task problem: its set, its start, a bound on |x|, the diameter of the set."""

    x_set: ConvexSet
    start: np.ndarray
    reach: float
    diameter: float


def shared_part(shared: str, x_set: ConvexSet | None, radius: Number, tasks: int, shape: tuple[int, ...]) -> Shared:
    """shared "vector": one x of this shape for all tasks, in an l1 ball. "matrix": a row for each task, tied by a
    nuclear-norm ball. x_set: another set in place of these.
    """
    require_word("shared", shared, ("vector", "matrix"))
    shape = shape if shared == "vector" else (tasks, int(np.prod(shape)))
    if x_set is None:
        ball = L1Ball(radius) if shared == "vector" else NuclearBall(radius)
        return Shared(ball, np.zeros(shape), float(radius), 2 * float(radius))
    if not isinstance(x_set, ConvexSet):
        raise ValueError(f"x_set must be a set of bisaddle.sets, given {described(x_set)}")
    start, bound = reach(x_set, shape)
    return Shared(x_set, start, bound, diameter(x_set, shape))
