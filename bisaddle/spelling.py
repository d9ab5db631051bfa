"""The name that was meant, in a message."""

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(word: Any, known: Iterable[str], rest: str = "") -> str:
    """What follows a semicolon: which known name is near to the word, or to one of a list of words; then the rest."""
    names = {name.lower(): name for name in known}
    words = [part for part in (word if isinstance(word, list) else [word]) if isinstance(part, str)]
    near = [found[0] for part in words if (found := difflib.get_close_matches(part.lower(), names, 1))]
    asked = "".join(f"did you mean {names[name]}? " for name in near)
    return asked + (rest[:1].upper() if asked else rest[:1]) + rest[1:]
