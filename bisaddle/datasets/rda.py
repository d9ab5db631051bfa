"""A data frame out of R's binary save format, as far as plain columns and factors go."""

import bz2
import gzip
import lzma
import struct
import zlib
from typing import Any

import numpy as np

from bisaddle.datasets.errors import ContentError, TruncatedFileError

# how a compressed file begins: what opens it
_OPENERS = {b"\xfd7zXZ": lzma.decompress, b"\x1f\x8b": gzip.decompress, b"BZh": bz2.decompress}
# codes of R's kinds of object, from "Serialization Formats" of the R Internals manual
_SYMBOL, _PAIRS, _CHARS, _LOGICAL, _INTEGER, _REAL, _STRINGS, _LIST = 1, 2, 9, 10, 13, 14, 16, 19
_ALTERNATIVE, _NIL, _REFERENCE = 238, 254, 255
_MISSING = -(2**31)


def data_frame(name: str, content: bytes) -> dict[str, list[str] | np.ndarray]:
    """The only object of the file: name: column, factors as their words."""
    opener = next((opener for magic, opener in _OPENERS.items() if content.startswith(magic)), bytes)
    try:
        plain = opener(content)
    except (lzma.LZMAError, EOFError, OSError, ValueError, zlib.error) as error:
        raise TruncatedFileError(f"{name} cannot be unpacked ({error}); the whole compressed file is needed") from error
    if plain[:7] not in (b"RDX2\nX\n", b"RDX3\nX\n"):
        raise ContentError(f"{name} begins with {plain[:7]!r}; a file of R's save() in binary XDR is needed")
    try:
        return _Reader(plain).frame()
    except struct.error as error:
        raise TruncatedFileError(f"{name} is truncated: {len(plain)} bytes found, and more are needed") from error
    except (_OtherError, UnicodeDecodeError) as error:
        raise ContentError(f"{name}: {error} found; one data frame of numbers, words and factors is needed") from error


class _OtherError(Exception):
    pass


class _Reader:
    def __init__(self, content: bytes):
        self.content, self.at, self.symbols = content, 7, []
        version = self.integer()
        self.at += 8  # the R that wrote it, and the oldest that can read it
        if version == 3:
            self.take(self.integer())  # the encoding's name; UTF-8 or ASCII in practice

    def take(self, count: int) -> bytes:
        taken = self.content[self.at : self.at + count]
        if count < 0 or len(taken) < count:
            raise struct.error
        self.at += count
        return taken

    def integer(self) -> int:
        return struct.unpack(">i", self.take(4))[0]

    def frame(self) -> dict[str, list[str] | np.ndarray]:
        values = [value for _, value in self.item()[0]]
        if len(values) != 1:
            raise _OtherError(f"{len(values)} objects")
        columns, attributes = values[0]
        if attributes.get("class", ([],))[0] != ["data.frame"]:
            raise _OtherError("an object that is no data frame")
        names = attributes["names"][0]
        made = {name: self.column(*column) for name, column in zip(names, columns, strict=True)}
        if len({len(column) for column in made.values()}) != 1:
            raise _OtherError("columns of different lengths, or none")
        return made

    def column(self, values, attributes) -> list[str] | np.ndarray:
        if "levels" not in attributes:
            if isinstance(values, np.ndarray) and values.dtype.kind == "i":
                return np.where(values == _MISSING, np.nan, values)
            return values
        levels = attributes["levels"][0]
        if np.any((values < 1) | (values > len(levels))):
            raise _OtherError("a missing value of a factor")
        return [levels[code - 1] for code in values]

    def item(self) -> tuple[Any, dict[str, Any]]:
        """(value, attributes) of the next object: pairs and lists nest, symbols and text are strings."""
        flags = self.integer()
        kind, has_attributes, has_tag = flags & 0xFF, flags & 0x200, flags & 0x400
        if kind == _PAIRS:
            return self.pairs(has_attributes, has_tag), {}
        if kind == _NIL:
            return [], {}
        if kind == _REFERENCE:
            return self.symbols[(flags >> 8) - 1], {}
        if kind == _SYMBOL:
            self.symbols.append(self.item()[0])
            return self.symbols[-1], {}
        if kind == _ALTERNATIVE:
            return self.alternative()
        if kind == _CHARS:
            length = self.integer()
            return "NA" if length == -1 else self.take(length).decode(), {}
        count = self.integer() if kind in (_LOGICAL, _INTEGER, _REAL, _STRINGS, _LIST) else 0
        if kind in (_LOGICAL, _INTEGER):
            value = np.frombuffer(self.take(4 * count), ">i4").astype(np.int64)
        elif kind == _REAL:
            value = np.frombuffer(self.take(8 * count), ">f8").astype(np.float64)
        elif kind == _STRINGS:
            value = [self.item()[0] for _ in range(count)]
        elif kind == _LIST:
            value = [self.item() for _ in range(count)]
        else:
            raise _OtherError(f"an object of R's kind {kind}")
        attributes = dict(self.item()[0]) if has_attributes else {}
        return value, attributes

    def alternative(self) -> tuple[Any, dict[str, Any]]:
        """Another way of storing a vector; only a wrapper around the vector itself is known here."""
        kind = self.item()[0][0][1][0]
        state, attributes = self.item()[0], dict(self.item()[0])
        if not kind.startswith("wrap_"):
            raise _OtherError(f"a vector stored as {kind}")
        return state[0][1][0], attributes

    def pairs(self, has_attributes: int, has_tag: int) -> list[tuple]:
        """A linked list, as [(tag, (value, attributes)), ...]"""
        if has_attributes:
            self.item()
        tag = self.item()[0] if has_tag else None
        value, rest = self.item(), self.item()
        # the end of the list is nil, but that of a wrapper's state is a vector
        return [(tag, value), *(rest[0] if isinstance(rest[0], list) else [(None, rest)])]
