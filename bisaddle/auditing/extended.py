"""A traced function once more in NumPy's extended precision, operation by operation: what rounding has changed."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.extend import core

WIDE = np.longdouble
# whether this machine's extended precision is one
IS_WIDER = bool(np.finfo(WIDE).eps < np.finfo(np.float64).eps)

_PLAIN: dict[str, Callable] = {
    **{name: getattr(np, name) for name in ("exp", "exp2", "log", "log1p", "expm1", "sin", "cos", "tan", "sqrt")},
    **{name: getattr(np, name) for name in ("cbrt", "sinh", "cosh", "tanh", "sign", "floor", "ceil", "square", "abs")},
    "neg": np.negative,
    "rsqrt": lambda a: 1 / np.sqrt(a),
    "logistic": lambda a: 1 / (1 + np.exp(-a)),
    "is_finite": np.isfinite,
    "not": np.invert,
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "atan2": np.arctan2,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "copy": np.array,
    "copy_p": np.array,
    "stop_gradient": np.array,
}


def _dot(left: Any, right: Any, dimension_numbers: Any, **_: Any) -> Any:
    (left_sum, right_sum), (left_batch, right_batch) = dimension_numbers
    names = [chr(ord("a") + i) for i in range(np.ndim(left))]
    others = [chr(ord("A") + i) for i in range(np.ndim(right))]
    for ours, theirs in ((left_sum, right_sum), (left_batch, right_batch)):
        for i, j in zip(ours, theirs, strict=True):
            others[j] = names[i]
    free = [name for i, name in enumerate(names) if i not in (*left_sum, *left_batch)]
    free += [name for j, name in enumerate(others) if j not in (*right_sum, *right_batch)]
    answer = [names[i] for i in left_batch] + free
    return np.einsum(f"{''.join(names)},{''.join(others)}->{''.join(answer)}", left, right)


def _broadcast(a: Any, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    kept = [1] * len(shape)
    for place, size in zip(broadcast_dimensions, np.shape(a), strict=True):
        kept[place] = size
    return np.broadcast_to(np.reshape(a, kept), shape)


def _slice(a: Any, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> Any:
    strides = strides or [1] * len(start_indices)
    return a[tuple(map(slice, start_indices, limit_indices, strides))]


def _pad(a: Any, value: Any, padding_config: Any, **_: Any) -> Any:
    for axis, (low, high, inner) in enumerate(padding_config):
        size = np.shape(a)[axis]
        spread = size + inner * max(size - 1, 0)
        places = low + np.arange(size) * (inner + 1)
        kept = (places >= 0) & (places < low + spread + high)
        shape = [*np.shape(a)]
        shape[axis] = low + spread + high
        padded = np.full(shape, value)
        np.moveaxis(padded, axis, 0)[places[kept]] = np.moveaxis(np.asarray(a), axis, 0)[kept]
        a = padded
    return a


def _dynamic_slice(a: Any, *starts: Any, slice_sizes: Any, **_: Any) -> Any:
    low = [int(np.clip(start, 0, n - size)) for start, n, size in zip(starts, np.shape(a), slice_sizes, strict=True)]
    return a[tuple(slice(start, start + size) for start, size in zip(low, slice_sizes, strict=True))]


_STRUCTURED: dict[str, Callable] = {
    "dot_general": _dot,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    "pad": _pad,
    "stack": lambda *parts, axis, **_: np.stack(parts, axis),
    "div": lambda a, b, **_: a / b if np.issubdtype(np.result_type(a), np.floating) else a // b,
    "integer_pow": lambda a, y, **_: a**y if y >= 0 else 1 / a**-y,
    "reshape": lambda a, new_sizes, **_: np.reshape(a, new_sizes),
    "squeeze": lambda a, dimensions, **_: np.squeeze(a, tuple(dimensions)),
    "expand_dims": lambda a, dimensions, **_: np.expand_dims(a, tuple(dimensions)),
    "rev": lambda a, dimensions, **_: np.flip(a, tuple(dimensions)),
    "transpose": lambda a, permutation, **_: np.transpose(a, permutation),
    "concatenate": lambda *parts, dimension, **_: np.concatenate(parts, dimension),
    "select_n": lambda which, *cases, **_: np.choose(np.asarray(which, int), cases),
    "clamp": lambda low, a, high, **_: np.clip(a, low, high),
    "reduce_sum": lambda a, axes, **_: np.sum(a, tuple(axes)),
    "reduce_max": lambda a, axes, **_: np.max(a, tuple(axes)),
    "reduce_min": lambda a, axes, **_: np.min(a, tuple(axes)),
    "reduce_prod": lambda a, axes, **_: np.prod(a, tuple(axes)),
    "convert_element_type": lambda a, new_dtype, **_: _wide(np.asarray(a).astype(_kept(new_dtype))),
}
# programs inside a program, by the parameter that holds them
_INNER = {"pjit": "jaxpr", "jit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr"}
_INNER |= {"custom_vjp_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr"}


def extended(function: Callable, *arguments: Any) -> tuple[list[np.ndarray], bool]:
    """The arrays that function(*arguments) returns, in extended precision, and whether every operation knew how.

    Where NumPy has no such operation (loops, gathers) JAX's own is taken, in float64.
    """
    arrays, fixed = eqx.partition(arguments, lambda leaf: isinstance(leaf, jax.Array | np.ndarray | np.generic))
    closed = jax.make_jaxpr(lambda arrays: function(*eqx.combine(arrays, fixed)))(arrays)
    run = _Run()
    answers = run.evaluate(closed.jaxpr, closed.consts, [_wide(leaf) for leaf in jax.tree.leaves(arrays)])
    return [np.asarray(answer) for answer in answers], run.everywhere


class _Run:
    def __init__(self):
        self.everywhere = True

    def evaluate(self, jaxpr: Any, constants: Any, arguments: list[Any]) -> list[Any]:
        known: dict[Any, Any] = {}
        read = lambda atom: _wide(atom.val) if isinstance(atom, core.Literal) else known[atom]
        known.update(zip(jaxpr.constvars, map(_wide, constants), strict=True))
        known.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            answers = self._apply(jaxpr, equation, [read(atom) for atom in equation.invars])
            known.update(zip(equation.outvars, answers, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, jaxpr: Any, equation: Any, given: list[Any]) -> list[Any]:
        name, params = equation.primitive.name, equation.params
        if name in _PLAIN:
            return [_PLAIN[name](*given)]
        if name in _STRUCTURED:
            return [_STRUCTURED[name](*given, **params)]
        if name == "unstack":
            return [*np.moveaxis(given[0], params["axis"], 0)]
        if name == "split":
            return np.split(given[0], np.cumsum(params["sizes"])[:-1], params["axis"])
        if name == "cond":
            branches = params["branches"]
            chosen = branches[int(np.clip(given[0], 0, len(branches) - 1))]
            return self.evaluate(chosen.jaxpr, chosen.consts, given[1:])
        if name in _INNER:
            inner = params[_INNER[name]]
            return self.evaluate(getattr(inner, "jaxpr", inner), getattr(inner, "consts", ()), given)
        self.everywhere &= all(np.result_type(a) != WIDE for a in given)
        places = {atom: a for atom, a in zip(equation.invars, given, strict=True) if not isinstance(atom, core.Literal)}
        alone = jaxpr.replace(constvars=[], invars=[*places], outvars=equation.outvars, eqns=[equation])
        narrow = [np.asarray(a, np.float64) if np.result_type(a) == WIDE else a for a in places.values()]
        return [_wide(a) for a in core.jaxpr_as_fun(core.ClosedJaxpr(alone, []))(*narrow)]


def _kept(dtype: Any) -> Any:
    return WIDE if np.issubdtype(dtype, np.floating) else dtype


def _wide(leaf: Any) -> Any:
    """Floating-point numbers in extended precision; everything else, keys of random numbers too, as it is."""
    dtype = getattr(leaf, "dtype", None)
    if isinstance(leaf, float) or (isinstance(dtype, np.dtype) and np.issubdtype(dtype, np.floating)):
        return np.asarray(leaf).astype(WIDE)
    return np.asarray(leaf) if isinstance(dtype, np.dtype) else leaf
