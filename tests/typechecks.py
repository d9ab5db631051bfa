"""Annotations checked in the tests: by beartype alone wherever no shape is named, at a third of the cost of jaxtyping.

jaxtyping's import hook decorates every function and dataclass of bisaddle with `jaxtyping.jaxtyped`, which opens a
scope of names for shapes, binds the arguments, and checks them twice. Only an annotation with a shape, such as
Float[Array, " d"], has a use for that.
"""

import dataclasses
import inspect
import types
import typing
from functools import partial, wraps

import jaxtyping
from beartype import beartype

_in_a_scope = jaxtyping.jaxtyped


def install():
    """To be called before bisaddle is imported."""
    jaxtyping.jaxtyped = checked


def checked(what=None, *, typechecker):
    if what is None:
        return partial(checked, typechecker=typechecker)
    if inspect.isclass(what):
        if dataclasses.is_dataclass(what) and not hasattr(what.__init__, "unchecked"):
            what.__init__ = checked(what.__init__, typechecker=typechecker)
        return what
    if not what.__annotations__:  # as most functions inside functions, which are made anew at every call
        return what
    _resolve(what)
    if any(map(_names_a_shape, what.__annotations__.values())):
        return _in_a_scope(what, typechecker=typechecker)
    by_beartype = beartype(what)

    @wraps(what)
    def switched(*args, **kwargs):
        # the switch of jaxtyping, for tests of what the library itself says of a wrong argument
        return (what if jaxtyping.config.jaxtyping_disable else by_beartype)(*args, **kwargs)

    switched.unchecked = what
    return switched


def _resolve(function):
    """Annotations in quotes as what they name; what has no meaning at run time is not checked."""
    for name, annotation in function.__annotations__.items():
        one = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            function.__annotations__ |= typing.get_type_hints(one, function.__globals__, include_extras=True)
        except NameError:
            function.__annotations__[name] = typing.Any


def _names_a_shape(annotation):
    shaped = inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray)
    return shaped or getattr(annotation, "leaftype", None) or any(map(_names_a_shape, typing.get_args(annotation)))
