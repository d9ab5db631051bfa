"""Values as JSON and arrays, and back: what a Result and a run are made of, without pickle and without their code.

Dataclasses, modules and NamedTuples are kept as the name of their class and their fields. They are built again without
a call: only classes that are already imported are looked for. Of a function the name and a digest of its code are kept.
"""

import dataclasses
import functools
import hashlib
import inspect
import json
import re
import sys
import types
import typing
from collections import deque
from enum import Enum
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import PyTree

from bisaddle.devices import content_sums, is_elsewhere, whole

# a mark in the JSON: what follows is not a plain dict
TAGS = ("class", "array", "device", "scalar", "key", "float", "tuple", "dict", "deque", "enum", "function", "partial")
# classes of these packages that a field is annotated with are what it has to be
TYPES_FROM = ("builtins", "numpy", "collections", "jax", "jaxlib", "bisaddle")
# what comes before the digest of an array that lies on several hosts
SUMS = "sums"
# what a field of a plain type may hold
PLAIN = {bool: (bool, np.bool_), int: (int, np.integer), float: (float, int, np.floating)}


class Absent:
    """Stands where a function or an object was that no file can hold; to call it is an error."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        raise ValueError(f"{self.name} is not in the file, only its name; use the object that it was saved from")

    def __repr__(self) -> str:
        return f"<{self.name}, not in the file>"


class Writer:
    """writer(value) is JSON; writer.arrays are those that it refers to by number."""

    def __init__(self) -> None:
        self.arrays: list[Any] = []

    def __call__(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, np.generic | np.ndarray | jax.Array):
            return self._array(value)
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if np.isfinite(value) else {"float": str(value)}
        if isinstance(value, Enum):
            return {"enum": _name(type(value)), "member": value.name}
        if isinstance(value, list):
            return [self(item) for item in value]
        if isinstance(value, deque):
            return {"deque": [self(item) for item in value], "maxlen": value.maxlen}
        if isinstance(value, tuple):
            items = {"tuple": [self(item) for item in value]}
            return {"class": _name(type(value)), **items} if hasattr(value, "_fields") else items
        if isinstance(value, dict):
            return {"dict": [[self(key), self(item)] for key, item in value.items()]}
        return self._object(value)

    def _array(self, value: Any) -> dict[str, Any]:
        if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            implementation = str(jax.random.key_impl(value))
            self.arrays.append(np.asarray(jax.random.key_data(value)))
            return {"key": len(self.arrays) - 1, "implementation": implementation}
        tag = "device" if isinstance(value, jax.Array) else "array" if isinstance(value, np.ndarray) else "scalar"
        # one that lies on several hosts can only be described
        self.arrays.append(value if is_elsewhere(value) else np.asarray(value))
        return {tag: len(self.arrays) - 1}

    def _object(self, value: Any) -> dict[str, Any]:
        if isinstance(value, functools.partial):  # Partial of JAX is one
            return {"partial": self(value.func), "arguments": self(value.args), "keywords": self(value.keywords)}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {"class": _name(type(value)), "fields": {f.name: self(getattr(value, f.name)) for f in fields}}
        if callable(value):
            return {"function": getattr(value, "__qualname__", type(value).__qualname__), "code": _code(value)}
        leaves = jax.tree.leaves(value)
        if len(leaves) != 1 or leaves[0] is not value:  # a node of a kind that only its owner can build
            return {"function": type(value).__qualname__, "code": "", "leaves": [self(leaf) for leaf in leaves]}
        words = re.sub(" at 0x[0-9a-f]+", "", repr(value))  # where it lies is no part of what it is
        return {"function": type(value).__qualname__, "code": words}


class Reader:
    """reader(json) is the value again; ValueError if the JSON is not a Writer's. absent: what was left out, by name."""

    def __init__(self, arrays: list[np.ndarray]):
        self.arrays = arrays
        self.absent: list[str] = []

    def __call__(self, plain: Any) -> Any:
        try:
            return self._value(plain)
        except (KeyError, IndexError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise ValueError(f"what it holds cannot be read ({type(error).__name__}: {error})") from error

    def _value(self, plain: Any) -> Any:
        if plain is None or isinstance(plain, bool | int | float | str):
            return plain
        if isinstance(plain, list):
            return [self._value(item) for item in plain]
        tag = next((tag for tag in TAGS if tag in plain), None)
        if tag is None:
            raise ValueError(f"{sorted(plain)[:3]} is no kind of value")
        return getattr(self, f"_{tag}")(plain)

    def _stored(self, number: Any) -> np.ndarray:
        if type(number) is not int or not 0 <= number < len(self.arrays):
            raise ValueError(f"there is no array number {number!r:.40}")
        return self.arrays[number]

    def _array(self, plain: dict) -> np.ndarray:
        return self._stored(plain["array"])

    def _scalar(self, plain: dict) -> Any:
        array = self._stored(plain["scalar"])
        if array.shape != ():
            raise ValueError(f"a number is needed, found an array of shape {array.shape}")
        return array[()]

    def _device(self, plain: dict) -> jax.Array:
        array = self._stored(plain["device"])
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            raise ValueError(
                f"it holds {array.dtype} arrays, which JAX would cut short; use jax.config.update('jax_enable_x64', "
                "True) first"
            )
        return jax.device_put(array)

    def _key(self, plain: dict) -> jax.Array:
        return jax.random.wrap_key_data(jax.device_put(self._stored(plain["key"])), impl=plain["implementation"])

    def _float(self, plain: dict) -> float:
        return {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[plain["float"]]

    def _tuple(self, plain: dict) -> tuple:
        return tuple(self._value(item) for item in plain["tuple"])

    def _dict(self, plain: dict) -> dict:
        return {self._value(key): self._value(item) for key, item in plain["dict"]}

    def _deque(self, plain: dict) -> deque:
        return deque((self._value(item) for item in plain["deque"]), plain["maxlen"])

    def _enum(self, plain: dict) -> Enum:
        kind = _class(plain["enum"])
        if not issubclass(kind, Enum):
            raise ValueError(f"{plain['enum']} is no enumeration")
        return kind[plain["member"]]

    def _class(self, plain: dict) -> Any:
        kind = _class(plain["class"])
        if issubclass(kind, tuple):
            # a NamedTuple, as _class has made sure
            values, names = self._tuple(plain), kind._fields  # pyright: ignore[reportAttributeAccessIssue]
            if len(values) != len(names):
                raise ValueError(f"a {kind.__name__} of {len(values)} fields")
            _check_types(kind, dict(zip(names, values, strict=True)))
            return tuple.__new__(kind, values)
        names = [field.name for field in dataclasses.fields(kind)]
        added = {f.name for f in dataclasses.fields(kind) if f.default_factory is not dataclasses.MISSING}
        if not set(names) - added <= set(plain["fields"]) <= set(names):
            raise ValueError(f"a {kind.__name__} has the fields {', '.join(names)}, found {sorted(plain['fields'])}")
        values = {name: self._value(plain["fields"][name]) for name in names if name in plain["fields"]}
        for field in dataclasses.fields(kind):  # which the files of an earlier version do not have
            if field.name not in values and field.default_factory is not dataclasses.MISSING:
                values[field.name] = field.default_factory()
        _check_types(kind, values)
        made = object.__new__(kind)
        for name, value in values.items():
            object.__setattr__(made, name, value)
        return made

    def _function(self, plain: dict) -> Any:
        if "leaves" in plain:
            return [self._value(leaf) for leaf in plain["leaves"]]
        self.absent.append(str(plain["function"]))
        return Absent(self.absent[-1])

    def _partial(self, plain: dict) -> Partial:
        keywords = self._value(plain["keywords"])
        return Partial(self._value(plain["partial"]), *self._value(plain["arguments"]), **keywords)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _class(name: Any) -> Any:
    """The class of that name, if it is imported and is one that is built by its fields alone."""
    module, _, qualified = str(name).partition(":")
    found: Any = sys.modules.get(module)
    for part in qualified.split("."):
        found = vars(found).get(part) if found is not None and hasattr(found, "__dict__") else None
    if not isinstance(found, type):
        raise ValueError(f"it holds a {name!r:.100}, which is not imported; import {module!r:.60} first")
    built_by_fields = issubclass(found, eqx.Module) or (issubclass(found, tuple) and hasattr(found, "_fields"))
    if not (built_by_fields or (_is_ours(module) and (dataclasses.is_dataclass(found) or issubclass(found, Enum)))):
        raise ValueError(f"it holds a {name!r:.100}, which is no module, NamedTuple or class of bisaddle")
    return found


def _is_ours(module: str) -> bool:
    return module.split(".")[0] == "bisaddle"


def _check_types(kind: type, values: dict[str, Any]) -> None:
    """ValueError where a field of our own classes is not what it is annotated with; others annotate as they like."""
    if not _is_ours(kind.__module__):
        return
    for owner in reversed(kind.__mro__):
        for name, needed in inspect.get_annotations(owner).items():
            if name in values and not _fits(values[name], needed):
                given = type(values[name]).__name__
                raise ValueError(
                    f"{name} of a {kind.__name__} must be a {getattr(needed, '__name__', needed)}, is {given}"
                )


def _fits(value: Any, needed: Any) -> bool:
    """Whether a value is of an annotated type, as far as that is plain."""
    origin, inside = typing.get_origin(needed), typing.get_args(needed)
    if origin in (types.UnionType, typing.Union):
        return any(_fits(value, one) for one in inside)
    if needed is None:
        return value is None
    if needed is PyTree:
        return all(isinstance(leaf, np.ndarray | jax.Array | Absent) for leaf in jax.tree.leaves(value))
    if origin in (list, deque):
        return isinstance(value, origin) and all(_fits(item, inside[0]) for item in value)
    if origin is tuple and inside[-1] is not Ellipsis:
        return isinstance(value, tuple) and len(value) == len(inside) and all(map(_fits, value, inside))
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, inside[0]) for item in value)
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else [(None, None)]
        return all(_fits(key, inside[0]) and _fits(item, inside[1]) for key, item in pairs)
    kind = origin or needed
    if isinstance(kind, type) and kind.__module__.split(".")[0] in TYPES_FROM:
        return isinstance(value, PLAIN.get(kind, kind))
    return True


def _code(function: Any, seen: frozenset[int] = frozenset()) -> str:
    """The version of Python and a digest of the function's code, defaults and closure; empty where there is none."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code = getattr(function, "__code__", None)
    if code is None or id(function) in seen:
        return ""
    seen = seen | {id(function)}
    cells = [_captured(cell, seen) for cell in function.__closure__ or ()]
    given = described((function.__defaults__, function.__kwdefaults__))
    parts = [_digestible(code), sorted(given.items()), *cells]
    return f"{sys.version_info[0]}.{sys.version_info[1]} {hashlib.sha256(json.dumps(parts).encode()).hexdigest()}"


def _captured(cell: Any, seen: frozenset[int]) -> Any:
    try:
        value = cell.cell_contents
    except ValueError:  # not filled yet
        return None
    return _code(value, seen) if isinstance(value, types.FunctionType) else sorted(described(value).items())


def _digestible(code: types.CodeType) -> list:
    """The code without its place in a file."""

    def constant(value: Any) -> Any:
        if isinstance(value, types.CodeType):
            return _digestible(value)
        return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)

    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), [constant(c) for c in code.co_consts]]


def described(value: Any, summed: bool = False) -> dict[str, str]:
    """What a value is, part by part: numbers, and of arrays, functions and data a digest. path: words.

    summed: the digest of arrays is one that can be had of arrays on several hosts, too.
    """
    writer = Writer()
    plain = writer(value)
    return dict(_parts(plain, [_array_words(array, summed) for array in writer.arrays], ""))


def _parts(plain: Any, arrays: list[str], path: str):
    if isinstance(plain, list):
        for i, item in enumerate(plain):
            yield from _parts(item, arrays, f"{path}[{i}]")
        return
    if not isinstance(plain, dict):
        yield path, repr(plain)
        return
    number = next((plain[tag] for tag in ("array", "device", "scalar", "key") if tag in plain), None)
    if number is not None:
        yield path, arrays[number]
    elif "partial" in plain and not plain["arguments"]["tuple"] and not plain["keywords"]["dict"]:
        yield from _parts(plain["partial"], arrays, path)
    elif "dict" in plain:
        for key, item in plain["dict"]:
            yield from _parts(item, arrays, f"{path}[{key!r}]")
    elif "class" in plain:
        yield path, plain["class"].partition(":")[2]
        inside = plain.get("fields") or dict(enumerate(plain.get("tuple", ())))
        for name, item in inside.items():
            yield from _parts(item, arrays, f"{path}.{name}".lstrip("."))
    elif "function" in plain and "leaves" not in plain:
        yield path, f"{plain['function']} {plain['code']}"
    else:
        for tag, item in plain.items():
            yield from _parts(item, arrays, path if tag == "tuple" else f"{path}.{tag}")


def _array_words(array: Any, summed: bool) -> str:
    kind = f"{array.dtype}{list(array.shape)}"
    if array.size <= 4:
        return f"{kind} {whole(array).tolist()}"
    if summed or is_elsewhere(array):
        return f"{kind} {SUMS} {content_sums(array)}"
    return f"{kind} sha256 {hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()}"


def difference(old: dict[str, str], new: dict[str, str]) -> str:
    """The first part in which two descriptions differ, in words; nothing if they do not."""
    for path in sorted({*old, *new}, key=lambda path: (path.count("."), path)):
        there, here = old.get(path, "nothing"), new.get(path, "nothing")
        if there != here and not _same_function(there, here) and not _same_kind(there, here):
            return f"{path or 'it'} is {_short(there)} in the file, {_short(here)} here"
    return ""


def _same_function(there: str, here: str) -> bool:
    """Another version of Python compiles the same function to other code: there the name has to do."""
    old, new = there.split(" "), here.split(" ")
    return len(old) == len(new) == 3 and len(old[2]) == len(new[2]) == 64 and old[0] == new[0] and old[1] != new[1]


def _same_kind(there: str, here: str) -> bool:
    """Of arrays that were, or are now, on several hosts, where the other digest cannot be had: dtype and shape do."""
    (old, _, one), (new, _, other) = (words.rpartition(" ")[0].rpartition(" ") for words in (there, here))
    return old == new and {one, other} == {SUMS, "sha256"}


def _short(words: str) -> str:
    head, _, digest = words.rpartition(" ")
    return f"{head} {digest[:8]}..." if len(digest) in (32, 64) else words
