"""What a function depends on, read off its jaxpr: what is said not to matter surely does not."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jaxtyping import PyTree

from bisaddle.programs import Program

# answers that are kept
MOST_KNOWN = 256
_KNOWN: dict[tuple, bool] = {}


def is_free_of(name: str, derivative: Callable, program: Program) -> bool:
    """Whether derivative(variable, part, x, theta, y) surely does not depend on the variable of that name.

    program: one of the part, a pytree of functions and shapes; the question is asked once for its form and kinds.
    """
    form, kinds = program.form, program.kinds
    key = (derivative, form, kinds)
    if key not in _KNOWN:
        part = jax.tree.unflatten(form, [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, *_ in kinds])
        x, theta, y = part.x.structs, part.theta.structs, part.y.structs

        def of_leaves(variable, leaves, x, theta, y):
            return derivative(variable, jax.tree.unflatten(form, leaves), x, theta, y)

        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = not depends(of_leaves, getattr(part, name).structs, jax.tree.leaves(part), x, theta, y)
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
