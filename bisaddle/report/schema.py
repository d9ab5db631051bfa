"""What a file may hold, by the types written for it; a refusal names the field, what was given, what is needed."""

import math
import reprlib
from collections.abc import Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

# no file of ours is nested half as deep
MOST_DEPTH = 32
WHOLE = 2**63

_WORDS = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


def shortened(value: Any) -> str:
    """A value in a message, however long it is."""
    words = reprlib.Repr()
    words.maxstring = words.maxother = 60
    return words.repr(value)


def plain(document: Any) -> Any:
    """A document as it was parsed; ValueError if it is nested too deep, or has a number beyond float64 or 64 bits."""
    waiting = [("", document, 1)]
    while waiting:
        where, value, depth = waiting.pop()
        if depth > MOST_DEPTH:
            raise ValueError(f"{where[:60]} is nested deeper than {MOST_DEPTH} levels")
        for key, item in value.items() if isinstance(value, dict) else enumerate(value) if type(value) is list else ():
            kind = type(item)
            if kind is float and not math.isfinite(item):
                raise ValueError(f"{_inside(where, key)} is {item}; a finite number is needed")
            if kind is int and not -WHOLE <= item < WHOLE:
                raise ValueError(f"{_inside(where, key)} is a whole number beyond 64 bits; a smaller one is needed")
            if kind is list or kind is dict:
                waiting.append((_inside(where, key), item, depth + 1))
    return document


def check(where: str, value: Any, kind: Any) -> Any:
    """The value; ValueError unless it is of this kind: a type as annotations have it, with TypedDict for a table."""
    wrong = _misfit(where, value, kind)
    if wrong is not None:
        raise ValueError(wrong)
    return value


def _misfit(where: str, value: Any, kind: Any) -> str | None:
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        ways = [part for part in parts if _is(value, part)]
        return _misfit(where, value, ways[0]) if ways else _refusal(where, value, kind)
    if not _is(value, kind):
        return _refusal(where, value, kind)
    if is_typeddict(kind):
        inner = [(name, value.get(name, ...), hint) for name, hint in get_type_hints(kind).items()]
        lacking = [name for name, item, _ in inner if item is ... and name in kind.__required_keys__]
        if lacking:
            return f"{where} has no {', '.join(lacking)}" if where else f"{', '.join(lacking)} is missing"
        inner = [(name, item, hint) for name, item, hint in inner if item is not ...]
    elif origin is list:
        if set(map(type, value)) <= _scalars(parts[0]):  # a long column, at once
            return None
        inner = [(i, item, parts[0]) for i, item in enumerate(value)]
    elif origin is dict:
        inner = [(key, item, parts[1]) for key, item in value.items()]
    else:
        return None
    found = (_misfit(_inside(where, key), item, hint) for key, item, hint in inner)
    return next((wrong for wrong in found if wrong is not None), None)


def _scalars(kind: Any) -> set[type]:
    """The types of entries that need no look inside."""
    parts = {kind, *get_args(kind)} & {str, bool, int, float, type(None)}
    return parts | {int} if float in parts else parts


def _is(value: Any, kind: Any) -> bool:
    """Without looking inside."""
    origin = get_origin(kind) or kind
    if is_typeddict(kind) or is_dataclass(kind):
        return isinstance(value, Mapping)
    if origin in (Any, Literal):
        return kind is Any or value in get_args(kind)
    if origin is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if origin is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, Mapping if origin is dict else origin)


def _refusal(where: str, value: Any, kind: Any) -> str:
    return f"{where or 'it'} must be {_words(kind)}, given {shortened(value)}"


def _words(kind: Any) -> str:
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if origin in (Union, UnionType):
        named = dict.fromkeys(_words(part) for part in parts)
        if float in parts:
            named.pop(_WORDS[int], None)
        return " or ".join(named)
    if kind is type(None):
        return "nothing (null)"
    inside = _words(parts[0]).removeprefix("a ") if origin is list and parts and parts[0] is not Any else ""
    return _WORDS.get(origin or kind, "a table") + (f" with {inside} for each entry" if inside else "")


def _inside(where: str, key: Any) -> str:
    return f"{where}[{key}]" if isinstance(key, int) else f"{where}.{key}".lstrip(".")
