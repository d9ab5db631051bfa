"""What is read off a jaxpr: what a function does not depend on for sure, and whether it is a network."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from bisaddle.oracle import derivatives
from bisaddle.programs import Program

# answers that are kept
MOST_KNOWN = 256
_KNOWN: dict[tuple, bool] = {}


def is_free_of(name: str, derivative: Callable, program: Program) -> bool:
    """Whether derivative(variable, part, x, theta, y) surely does not depend on the variable of that name.

    program: one of the part, a pytree of functions and shapes; the question is asked once for its form and kinds.
    """
    return _asked_once(derivative, program, lambda of, part, *rest: not depends(of, getattr(part, name).structs, *rest))


# derivatives to ask that of


def hessian_times(theta: PyTree, part: Any, x: PyTree, w: PyTree, y: PyTree) -> PyTree:
    return derivatives.hessian_product(part, x, theta, w)


def bends_times(theta: PyTree, part: Any, x: PyTree, v: PyTree, y: PyTree) -> PyTree:
    def at(theta: PyTree) -> PyTree:
        return derivatives.upper_gradients(part, x, theta, y), derivatives.second_order_products(part, x, theta, v)

    return jax.jvp(at, (theta,), (v,))[1]


def f_y(y: PyTree, part: Any, x: PyTree, theta: PyTree, _: PyTree) -> PyTree:
    return derivatives.upper_gradients(part, x, theta, y)[2]


def f_yy_times(y: PyTree, part: Any, x: PyTree, theta: PyTree, v: PyTree) -> PyTree:
    return jax.jvp(lambda y: derivatives.upper_gradients(part, x, theta, y)[2], (y,), (v,))[1]


def is_network(program: Program) -> bool:
    """Whether f or g has a hidden layer in x; program: as above."""

    def ask(of: Callable, part: Any, leaves: list, x: PyTree, theta: PyTree, y: PyTree) -> bool:
        return has_hidden_layer(lambda x, theta, leaves, y: of(x, leaves, x, theta, y), x, theta, leaves, y)

    return _asked_once(_values, program, ask)


def _values(_: PyTree, part: Any, x: PyTree, theta: PyTree, y: PyTree) -> list[Any]:
    f = derivatives.call(part.upper, x, theta, y, part.data)
    return [f] if part.lower is None else [f, derivatives.call(part.lower, x, theta, part.data)]


def _asked_once(function: Callable, program: Program, ask: Callable[..., bool]) -> bool:
    """ask(function of leaves, part, its leaves, x, theta, y), or what the answer was before."""
    form, kinds = program.form, program.kinds
    key = (function, form, kinds)
    if key not in _KNOWN:
        part = jax.tree.unflatten(form, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, *_ in kinds])
        x, theta, y = part.x.structs, part.theta.structs, part.y.structs

        def of_leaves(variable, leaves, x, theta, y):
            return function(variable, jax.tree.unflatten(form, leaves), x, theta, y)

        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = ask(of_leaves, part, jax.tree.leaves(part), x, theta, y)
    return _KNOWN[key]


def depends(function: Callable, *args: PyTree) -> bool:
    """Whether any output of function(*args) may depend on the first argument."""
    leaves = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), args)
    jaxpr = jax.make_jaxpr(function)(*leaves).jaxpr
    count = len(jax.tree.leaves(args[0]))
    return any(_reached(jaxpr, [i < count for i in range(len(jaxpr.invars))]))


def _reached(jaxpr: Any, inputs: Sequence[bool]) -> list[bool]:
    """Which outputs the marked inputs reach; loops and branches are taken to mix everything."""
    marked = {variable for variable, mark in zip(jaxpr.invars, inputs, strict=True) if mark}
    hit = lambda variable: not hasattr(variable, "val") and variable in marked  # literals have a value
    for equation in jaxpr.eqns:
        into = [hit(variable) for variable in equation.invars]
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        inner = getattr(inner, "jaxpr", inner)
        straight = equation.primitive.name in ("jit", "pjit", "closed_call", "custom_jvp_call", "checkpoint", "remat2")
        if straight and inner is not None and len(inner.invars) == len(into):
            out = _reached(inner, into)
        else:
            out = [any(into)] * len(equation.outvars)
        marked.update(variable for variable, mark in zip(equation.outvars, out, strict=True) if mark)
    return [hit(variable) for variable in jaxpr.outvars]


# --- hidden layers ----------------------------------------------------------------------------------------------------

# what is known of a variable of a jaxpr: nothing of interest, some of theta, entries of x, sums of them, a bent sum
_NOTHING, _THETA, _ENTRIES, _SUM, _BENT = range(5)
_SUMS = {"reduce_sum", "cumsum", "dot_general", "conv_general_dilated"}
_PRODUCTS = {"mul", "dot_general", "conv_general_dilated", "triangular_solve"}
# polynomials and quotients are none: a squared residual and a softmax are no layers
_BENDS = {"tanh", "logistic", "exp", "exp2", "log", "log1p", "expm1", "sin", "cos", "atan", "erf", "erfc", "sqrt"}
_BENDS |= {"rsqrt", "cbrt", "max", "min", "abs", "sign", "pow", "select_n", "sinh", "cosh", "asinh"}
# through a loop until nothing changes; a mark can rise this often
_PASSES = 5


def has_hidden_layer(function: Callable, x: PyTree, theta: PyTree, *others: PyTree) -> bool:
    """Whether function(x, theta, *others) has a layer of a network in x, and another one after it.

    That is a bent function of sums over entries of x, as tanh(A x), which is multiplied with anything that depends on x
    or theta. A loss of A x is none, and neither are powers and exponentials of single entries.
    """
    leaves = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), (x, theta, others))
    jaxpr = jax.make_jaxpr(lambda x, theta, others: function(x, theta, *others))(*leaves).jaxpr
    counts = [len(jax.tree.leaves(part)) for part in leaves]
    marks = np.repeat([_ENTRIES, _THETA, _NOTHING], counts).tolist()
    return _layered(jaxpr, marks)[1]


def _layered(jaxpr: Any, inputs: Sequence[int]) -> tuple[list[int], bool]:
    """The marks of the outputs, and whether a product of a bent sum was met."""
    known = dict(zip(jaxpr.invars, inputs, strict=True))
    mark = lambda variable: _NOTHING if hasattr(variable, "val") else known.get(variable, _NOTHING)
    found = False
    for equation in jaxpr.eqns:
        into, name = [mark(variable) for variable in equation.invars], equation.primitive.name
        out, inside = _through(equation, into)
        if out is None:
            top = max(into, default=_NOTHING)
            inside = name in _PRODUCTS and top == _BENT and sum(m > _NOTHING for m in into) > 1
            if name in _SUMS and top == _ENTRIES:
                top = _SUM
            if name in _BENDS and top == _SUM:
                top = _BENT
            out = [top] * len(equation.outvars)
        found = found or inside
        known.update(zip(equation.outvars, out, strict=True))
    return [mark(variable) for variable in jaxpr.outvars], found


def _through(equation: Any, into: list[int]) -> tuple[list[int] | None, bool]:
    """The same for an equation that holds jaxprs of its own; None if it holds none that is understood."""
    name, params = equation.primitive.name, equation.params
    open_ = lambda jaxpr: getattr(jaxpr, "jaxpr", jaxpr)
    if name == "cond":
        branches = [_layered(open_(branch), into[1:]) for branch in params["branches"]]
        return [max(marks) for marks in zip(*(out for out, _ in branches), strict=True)], any(f for _, f in branches)
    if name in ("scan", "while"):
        scans = name == "scan"
        body = open_(params["jaxpr" if scans else "body_jaxpr"])
        skipped = 0 if scans else params["cond_nconsts"]
        constants = params["num_consts" if scans else "body_nconsts"]
        inputs, carried = into[skipped:], params["num_carry"] if scans else len(into) - skipped - constants
        out, found = [], False
        for _ in range(_PASSES):
            out, found = _layered(body, inputs)
            for i in range(carried):
                inputs[constants + i] = max(inputs[constants + i], out[i])
        return out, found
    inner = open_(params.get("jaxpr", params.get("call_jaxpr")))
    if inner is not None and hasattr(inner, "eqns") and len(inner.invars) == len(into):
        return _layered(inner, into)
    return None, False
