"""Static mistakes, found by abstract evaluation before anything compiles: what was given, needed, to use instead."""

import math
import warnings
from collections import Counter
from inspect import unwrap
from pathlib import Path
from traceback import extract_tb
from types import CellType, FunctionType
from typing import Any, TypeGuard
from weakref import ref

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_context
from jaxtyping import PyTree

from bisaddle.devices import whole
from bisaddle.oracle import call
from bisaddle.problem import Point, Problem, described
from bisaddle.sets.base import ConvexSet, traced
from bisaddle.sets.flat import flat_set
from bisaddle.sets.flat_base import length
from bisaddle.sets.product import Product
from bisaddle.trees import Shape

# what a function does that cannot be traced, and what to write instead
TRACED = {
    jax.errors.TracerArrayConversionError: "it calls NumPy (np.) on its arguments; use jax.numpy (jnp.)",
    jax.errors.TracerBoolConversionError: "it asks `if` (while, and, or) of their values; use jnp.where",
    jax.errors.ConcretizationTypeError: "it makes Python numbers of their values (float, int, .item()); leave that out",
}
# numbers that a function may take from outside before we say so
MOST_CAPTURED = 1_000_000
# functions and shapes that have passed: tracing them again would take longer than a small problem does
MOST_CHECKED = 256
_CHECKED: set = set()
# how often a function may be defined anew with the same shapes, each time to be compiled again, before we say so
MOST_ALIKE = 5
_ALIKE: Counter = Counter()
_LATEST: dict[tuple, ref] = {}


def check_problem_at(problem: Problem, point: Point, *, feasible: bool = True) -> None:
    """Raise ValueError unless the point's structure, shapes and dtypes fit the problem (and, where asked, its sets).

    Traced points are checked as far as they can be: everything but feasibility.
    """
    _check_kinds(problem, point)
    # from the cheapest to the dearest, so that a plain mistake is named before a function fails on it
    _check_presence(problem, point)
    _check_arrays(point)
    _check_data(problem.data)
    _check_set("x", problem.x_set, point.x)
    if problem.y_set is not None:
        _check_set("y", problem.y_set, point.y)
    _check_functions(problem, point)
    if feasible:
        _check_finite(point)
        _check_feasible("x", problem.x_set, point.x)
        if problem.y_set is not None:
            _check_feasible("y", problem.y_set, point.y)


def require_concrete(who: str, problem: Problem, *points: Point) -> None:
    """Raise ValueError for traced arrays, which what is driven from the host cannot read."""
    for point in points:
        _check_kinds(problem, point)
    if any(traced(leaf) for leaf in jax.tree.leaves((problem, points))):
        raise ValueError(
            f"{who} needs concrete arrays, given traced ones: it does not work inside jit, vmap or grad; call it "
            "outside, or use the init and step of a method with a pure step, such as bs.methods.FullyProjected"
        )


def as_number(name: str, value: Any) -> float:
    """A concrete number as a float; ValueError for what is none: a text, a truth value, an array."""
    if traced(value):
        raise ValueError(f"{name} must be a number, given a traced array; this does not work inside jit, vmap or grad")
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        array = np.asarray(value)
        if array.shape == () and array.dtype.kind in "iuf":
            return float(array)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} must be a number, given {_given(value)}; use a float")


def require_positive(name: str, value: Any) -> float:
    if not 0 < as_number(name, value) < np.inf:
        raise ValueError(f"{name} must be finite and > 0, given {value}")
    return float(value)


def require_accuracy(value: Any) -> float:
    """The residual norm at which solves may stop."""
    if not 0 <= as_number("accuracy", value) < np.inf:
        raise ValueError(f"accuracy must be finite and >= 0, given {value}; use 0 for as far as rounding allows")
    return float(value)


def require_whole(name: str, value: Any, least: int) -> int:
    if not is_whole(value) or not least <= value < 2**31:
        whole = isinstance(value, float) and value.is_integer() and least <= value < 2**31
        use = f"; use {int(value)}" if whole else ""
        raise ValueError(f"{name} must be a whole number from {least} to 2^31 - 1, given {_given(value)}{use}")
    return int(value)


def is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_key(key: Any) -> None:
    """Raise ValueError unless it is one key of jax.random."""
    dtype, shape = getattr(key, "dtype", None), getattr(key, "shape", None)
    typed = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key) and shape == ()
    raw = dtype == np.uint32 and shape is not None and len(shape) == 1
    if traced(key) or not (typed or raw):
        raise ValueError(f"key must be one key of jax.random, given {_given(key)}; use key=jax.random.key(0)")


def require_oracle(convex_set: ConvexSet, oracle: str, who: str, variable: str, instead: str) -> None:
    if oracle not in convex_set.capabilities:
        raise ValueError(f"{who} needs {oracle} on {variable}_set: {convex_set.missing(oracle)}; {instead}")


def require_problem(problem: Any) -> None:
    if not isinstance(problem, Problem):
        raise ValueError(f"a bisaddle.Problem is needed, given {described(problem)}; use bs.Problem(upper, lower, ...)")


def _check_kinds(problem: Any, point: Any) -> None:
    require_problem(problem)
    if not isinstance(point, Point):
        use = "its .point" if isinstance(getattr(point, "point", None), Point) else "bs.Point(x=..., theta=..., y=...)"
        raise ValueError(f"a bisaddle.Point is needed, given {described(point)}; use {use}")


def _given(value: Any) -> str:
    """A value in a message: itself where it is short, else what it is."""
    if isinstance(value, str | bool | float | int) and len(f"{value!r:.80}") < 80:
        return repr(value)
    shape = getattr(value, "shape", None)
    return described(value) if shape is None else f"{described(value)} of shape {tuple(shape)}"


def _check_presence(problem: Problem, point: Point) -> None:
    for name, value, part, absent in (
        ("theta", point.theta, problem.lower, "lower"),
        ("y", point.y, problem.y_set, "y_set"),
    ):
        if part is None and value is not None:
            example = "bs.sets.Simplex()" if name == "y" else "a function g(x, theta)"
            raise ValueError(
                f"the problem has {absent}=None but the point has a {name}; use {name}=None, or give the problem its "
                f"{absent}, such as {example}"
            )
        if part is not None and value is None:
            raise ValueError(
                f"the problem has a {absent}, so the point needs a {name}, given None; use a starting array"
            )


def _check_arrays(point: Point) -> None:
    kinds = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(point):
        name = jax.tree_util.keystr(path).lstrip(".")
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | jax.ShapeDtypeStruct):
            raise ValueError(f"point.{name} must be an array, given {described(leaf)}; use jnp.asarray")
        if isinstance(leaf, np.ma.MaskedArray):
            raise ValueError(
                f"point.{name} must be an array, given a masked one; use .filled() to say what stands there"
            )
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            use = ".real" if jnp.issubdtype(leaf.dtype, jnp.complexfloating) else ".astype(float)"
            raise ValueError(f"point.{name} must have a floating dtype, given {leaf.dtype}; use {use}")
        if leaf.dtype not in (jnp.float32, jnp.float64):
            raise ValueError(f"point.{name} must be float32 or float64, given {leaf.dtype}; use .astype(jnp.float32)")
        kinds[name] = leaf.dtype
    if point.theta is not None and not any(leaf.size for leaf in jax.tree.leaves(point.theta)):
        raise ValueError("point.theta must have at least one entry, given none; use lower=None and theta=None")
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{name}: {dtype}" for name, dtype in kinds.items())
        raise ValueError(f"x, theta and y must share one dtype, given {listed}; cast them with .astype")


def _check_data(data: PyTree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(data):
        name = "data" + jax.tree_util.keystr(path)
        if not isinstance(leaf, jax.Array | np.ndarray | np.generic | float | int):
            use = ".to_numpy()" if hasattr(leaf, "to_numpy") else "arrays here, and keep the rest in closures"
            raise ValueError(f"{name} must be an array or a number, given {described(leaf)}; use {use}")
        if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.extended):
            raise ValueError(
                f"{name} must hold numbers, given a key of jax.random; draw the numbers first, or give "
                "jax.random.key_data(key) and use jax.random.wrap_key_data inside"
            )
        if isinstance(leaf, np.ma.MaskedArray):
            raise ValueError(f"{name} must be an array, given a masked one; use .filled() and a mask of its own")
        if isinstance(leaf, np.ndarray | np.generic) and not _is_numeric(leaf.dtype):
            raise ValueError(f"{name} must hold numbers, given dtype {leaf.dtype}; keep the rest in closures")


def _is_numeric(dtype: np.dtype) -> bool:
    """Whether JAX has arrays of it: no objects, texts and dates, and nothing longer than 64 bits."""
    longest = 16 if dtype.kind == "c" else 8
    return (dtype.kind == "b" or jnp.issubdtype(dtype, np.number)) and dtype.itemsize <= longest


def _check_set(variable: str, convex_set: ConvexSet, value: PyTree) -> None:
    reason = type(convex_set).misfit(convex_set, value)  # equinox makes a module of a method that is taken from one
    if reason is not None:
        if isinstance(value, list | tuple) and not isinstance(convex_set, Product):
            kind = type(value).__name__
            if all(np.ndim(part) == 0 for part in jax.tree.leaves(value)):
                reason = f"a {kind} of numbers is given, and one array is needed; use {variable}=np.array({variable})"
            else:
                reason += f", or {variable}=jnp.asarray({variable}) for one array: a {kind} is a pytree"
        raise ValueError(f"{variable} does not fit {variable}_set: {reason}")


def _check_functions(problem: Problem, point: Point) -> None:
    """Once for each set of functions and shapes."""
    kind = lambda leaf: (leaf.shape, leaf.dtype) if hasattr(leaf, "dtype") else type(leaf)
    leaves, form = jax.tree.flatten((problem, point))
    key = (form, tuple(kind(leaf) for leaf in leaves))
    if key in _CHECKED:
        return
    _check_functions_now(problem, point)
    if len(_CHECKED) >= MOST_CHECKED:
        _CHECKED.clear()
    _CHECKED.add(key)
    _warn_of_recompiling(problem, key[1])


def _warn_of_recompiling(problem: Problem, shapes: tuple) -> None:
    """Once for a function that is defined again and again, with other numbers in it: each is another program."""
    for name, function in (("upper", problem.upper), ("lower", problem.lower)):
        plain = getattr(getattr(function, "function", function), "func", None)  # also of one that leaves out arguments
        if not isinstance(plain, FunctionType):
            continue
        key = (_text(plain), shapes)
        if _LATEST.get(key, lambda: None)() is plain:
            continue  # with another set or other constants, but not defined anew
        _LATEST[key] = ref(plain)
        _ALIKE[key] += 1
        if _ALIKE[key] == MOST_ALIKE + 1:
            code = unwrap(plain).__code__
            warnings.warn(
                f"{name} ({code.co_name}, line {code.co_firstlineno} of {code.co_filename}) has been defined anew "
                f"{MOST_ALIKE + 1} times with the same shapes, and was compiled each time; define it once, and give "
                "what changes as Problem(..., data=...): docs/performance.md",
                stacklevel=5,
            )


def _text(function) -> tuple:
    """The code of a function and of those that it holds: a wrapper has the same code around every function."""
    held = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    return function.__code__, *(_text(inner) for inner in held if isinstance(inner, FunctionType))


def _check_functions_now(problem: Problem, point: Point) -> None:
    x, theta, y, data = jax.tree.map(_abstract, (point.x, point.theta, point.y, problem.data))
    _check_scalar("upper(x, theta, y, data)", problem.upper, (x, theta, y, data))
    if problem.lower is not None:
        _check_scalar("lower(x, theta, data)", problem.lower, (x, theta, data))
    by_hand, upper_arguments = problem.derivatives, (x, theta, y, data)
    for name, function, arguments, target in (
        ("f_x", by_hand.f_x, upper_arguments, x),
        ("f_theta", by_hand.f_theta, upper_arguments, theta),
        ("f_y", by_hand.f_y, upper_arguments, y),
        ("g_theta", by_hand.g_theta, (x, theta, data), theta),
        ("g_theta_theta", by_hand.g_theta_theta, (x, theta, theta, data), theta),
        ("g_theta_x", by_hand.g_theta_x, (x, theta, theta, data), x),
    ):
        if function is None or target is None or (name.startswith("g") and problem.lower is None):
            continue
        given = _evaluate(f"derivatives.{name}", function, arguments)
        if jax.tree.structure(given) != jax.tree.structure(target) or any(
            (a.shape, a.dtype) != (b.shape, b.dtype)
            for a, b in zip(jax.tree.leaves(given), jax.tree.leaves(target), strict=True)
        ):
            raise ValueError(f"derivatives.{name} must return {_shapes(target)}, given {_shapes(given)}")


def _check_scalar(name: str, function, arguments) -> None:
    value = _evaluate(name, function, arguments)
    if jax.tree.structure(value) != jax.tree.structure(0):
        given = "None" if value is None else f"{described(value)} of structure {jax.tree.structure(value)}"
        raise ValueError(f"{name} must return one scalar, given {given}; use jnp.sum")
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise ValueError(f"{name} must return a floating scalar, given {value.dtype}; use jnp.real or jnp.abs")
    if value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"{name} must return a floating scalar, given {value.dtype}{list(value.shape)}; use jnp.sum or .mean()"
        )


def _evaluate(name: str, function, arguments):
    try:
        program, value = jax.make_jaxpr(call, return_shape=True)(jax.tree.map(_abstract, function), *arguments)
    except Exception as error:
        shapes = ", ".join(_shapes(argument) for argument in arguments)
        told = next((use for kind, use in TRACED.items() if isinstance(error, kind)), "")
        told = told or f"write it with jax.numpy for these shapes. {type(error).__name__}: {str(error).rstrip('.')}"
        raise ValueError(f"{name} failed on {shapes}; {told}{_own_line(error)}") from error
    _warn_of_captured(name, program)
    return value


def _warn_of_captured(name: str, program) -> None:
    """Arrays that a function takes from outside are compiled in: slow, and again for every new one."""
    held = [array for part in program.eqns for array in getattr(part.params.get("jaxpr"), "consts", ())]
    largest = max(held, key=lambda array: array.size, default=None)
    if largest is not None and sum(array.size for array in held) > MOST_CAPTURED:
        warnings.warn(
            f"{name} takes an array of shape {tuple(largest.shape)} from outside its arguments, and it is compiled in, "
            "which is slow; give it as Problem(..., data=...) and read it from the argument data",
            stacklevel=7,
        )


def _own_line(error: Exception) -> str:
    """The user's last line on the way to an error, in its words; nothing where there is none."""
    ours = str(Path(__file__).parents[1])
    for frame in reversed(extract_tb(error.__traceback__)):
        if not frame.filename.startswith(ours) and not {"site-packages", "dist-packages"} & {
            *Path(frame.filename).parts
        }:
            return f" ({Path(frame.filename).name}, line {frame.lineno}: {frame.line})"
    return ""


def _check_finite(point: Point) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(point):
        if traced(leaf):
            continue
        bad = np.argwhere(~np.isfinite(whole(leaf)))
        if len(bad):
            name = jax.tree_util.keystr(path)
            raise ValueError(
                f"{name[1:].partition('[')[0]} must be finite at the start, given NaN or infinity in {len(bad)} of "
                f"{leaf.size} entries of start{name}, first at {bad[0].tolist()}; use finite numbers"
            )


def _check_feasible(variable: str, convex_set: ConvexSet, value: PyTree) -> None:
    if any(traced(leaf) for leaf in jax.tree.leaves((convex_set, value))):
        return
    # also inside the user's own jit; ensure_compile_time_eval would compile every constant of a set's program by itself
    with eval_context():
        _check_feasible_now(variable, convex_set, value)


def _check_feasible_now(variable: str, convex_set: ConvexSet, value: PyTree) -> None:
    shape, form = Shape.of(value), flat_set(convex_set, value)
    flat = shape.ravel(value)
    distance = form.violation(flat)
    # an answer of an earlier run, or one written to a file with few digits, is a good start too
    tolerance = 10 * float(np.sqrt(np.finfo(flat.dtype).eps)) * max(1.0, length(flat))
    if not (distance <= tolerance and math.isfinite(distance)):  # both overflow where numbers end
        advice = f"use a point of it such as problem.{variable}_set.lmo({variable})"
        if "project" in convex_set.capabilities:
            nearest = jax.tree.map(
                lambda a: np.array2string(a, threshold=8, precision=4), shape.tree(form.project(flat))
            )
            advice = f"use problem.{variable}_set.project({variable}), which is {nearest}"
        hint = convex_set.hint(flat.size)
        advice = f"{hint}; else {advice}" if hint else advice
        raise ValueError(f"{variable} is not in {variable}_set: distance {distance:.3g}; {advice}")


def _abstract(leaf):
    dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(leaf))
    return jax.ShapeDtypeStruct(jnp.shape(leaf), dtype)


def _shapes(tree: PyTree) -> str:
    return str(jax.tree.map(lambda leaf: f"{leaf.dtype}{list(leaf.shape)}", tree)).replace("'", "")
