"""The name that was meant, in a message."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question to put before the list of what there is; nothing where no name is near."""
    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, 1)
    return f"did you mean {names[near[0]]}? " if near else ""
