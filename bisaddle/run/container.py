"""Results and checkpoints as files: one JSON header and raw arrays, with a checksum; no pickle, no archive.

    8 bytes    "BISADDLE"
    8 bytes    length of the header, little-endian
    header     JSON: schema, kind, arrays [[dtype, shape], ...], content (run/plain.py)
    arrays     raw numbers, little-endian, one after the other
    32 bytes   SHA-256 of all that comes before

Reading runs no code, and takes memory in proportion to the size of the file, whatever the file says.
"""

import hashlib
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

MAGIC = b"BISADDLE"
SCHEMA = 1
DIGEST = 32
DTYPES = frozenset(
    ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    + ("float16", "float32", "float64", "complex64", "complex128")
)


def pack(kind: str, content: Any, arrays: list[np.ndarray]) -> bytes:
    """The bytes of a file. content: JSON that refers to the arrays by their numbers."""
    listed = [[str(array.dtype), list(array.shape)] for array in arrays]
    for name, _ in listed:
        if name not in DTYPES:
            raise ValueError(f"an array of dtype {name} cannot be saved; use one of {', '.join(sorted(DTYPES))}")
    header = {"schema": SCHEMA, "kind": kind, "arrays": listed, "content": content}
    text = json.dumps(header, allow_nan=False, separators=(",", ":")).encode()
    raw = (np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays)
    body = b"".join((MAGIC, len(text).to_bytes(8, "little"), text, *raw))
    return body + hashlib.sha256(body).digest()


def unpack(path: str | os.PathLike, kind: str) -> tuple[Any, list[np.ndarray]]:
    """(content, arrays) of a file; ValueError with the reason if it is not whole, or of another kind."""
    path = Path(path)
    body = _body(path)
    start = len(MAGIC) + 8
    end = start + int.from_bytes(body[len(MAGIC) : start], "little")
    if end > len(body):
        raise ValueError(f"{path} is damaged: its header is longer than the file")
    try:
        header = json.loads(body[start:end].decode())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: its header is no JSON ({error})") from error
    if not isinstance(header, dict) or type(header.get("schema")) is not int:
        raise ValueError(f"{path} is damaged: its header names no schema")
    if header["schema"] > SCHEMA:
        raise ValueError(
            f"{path} has schema {header['schema']}, and this version of bisaddle reads up to {SCHEMA}; use a newer one"
        )
    if header.get("kind") != kind:
        raise ValueError(f"{path} is a {header.get('kind')!r} of bisaddle, a {kind!r} is needed")
    if "content" not in header:
        raise ValueError(f"{path} is damaged: there is nothing in it")
    return header["content"], _arrays(path, header.get("arrays"), memoryview(body)[end:])


def _body(path: Path) -> bytes:
    """All but the checksum, which is right."""
    with open(path, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError(f"{path} is no file of bisaddle: a regular file is needed")
        data = file.read(found.st_size)
    if not data.startswith(MAGIC):
        raise ValueError(f"{path} is no file of bisaddle: it does not begin with {MAGIC.decode()}")
    if len(data) < len(MAGIC) + 8 + DIGEST:
        raise ValueError(f"{path} is truncated: it ends after {len(data)} bytes")
    body, digest = data[:-DIGEST], data[-DIGEST:]
    if hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{path} is truncated or damaged: its SHA-256 is not the one that it ends with")
    return body


def _arrays(path: Path, listed: Any, raw: memoryview) -> list[np.ndarray]:
    """What the header lists must be what is there, to the byte, before anything is made of it."""
    if not isinstance(listed, list) or not all(_describes_array(entry) for entry in listed):
        raise ValueError(f"{path} is damaged: its list of arrays needs pairs of a dtype and a shape")
    sizes = [math.prod(shape) * np.dtype(name).itemsize for name, shape in listed]
    if sum(sizes) != len(raw):
        raise ValueError(f"{path} is damaged: its arrays should take {sum(sizes)} bytes, and {len(raw)} are there")
    arrays, end = [], 0
    for (name, shape), size in zip(listed, sizes, strict=True):
        dtype = np.dtype(name)
        flat = np.frombuffer(raw[end : end + size], dtype.newbyteorder("<"))
        arrays.append(flat.reshape(shape).astype(dtype))  # a copy of its own
        end += size
    return arrays


def _describes_array(entry: Any) -> bool:
    if not isinstance(entry, list) or len(entry) != 2 or entry[0] not in DTYPES or not isinstance(entry[1], list):
        return False
    return len(entry[1]) <= 32 and all(type(n) is int and 0 <= n < 2**48 for n in entry[1])
