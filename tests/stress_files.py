"""Mutated files: damaged, and dressed up with a checksum that fits. Every one is refused with a reason.

python -m tests.stress_files 1000
"""

import hashlib
import json
import pickle
import struct
import sys
import tempfile
import tracemalloc
import zipfile
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np

from bisaddle.run.container import DIGEST, MAGIC

START = len(MAGIC) + 8
# bytes of memory for each byte of the file, and some to begin with
PROPORTION, ALLOWANCE = 200, 2**22


def sealed(header, raw):
    """A file with this header and a checksum that fits, as an attacker would write it."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    body = MAGIC + struct.pack("<Q", len(text)) + text + raw
    return body + hashlib.sha256(body).digest()


def opened(data):
    """(header, raw) of a good file."""
    end = START + struct.unpack("<Q", data[len(MAGIC) : START])[0]
    return json.loads(data[START:end]), data[end:-DIGEST]


# --- damage ----------------------------------------------------------------------------------------------------------


def truncated(rng, data):
    return data[: rng.integers(len(data))]


def longer(rng, data):
    return data + rng.bytes(int(rng.integers(1, 100)))


def bits_flipped(rng, data):
    changed = np.frombuffer(data, np.uint8).copy()
    places = rng.integers(len(changed), size=int(rng.integers(1, 8)))
    changed[np.unique(places)] ^= np.uint8(1) << np.uint8(rng.integers(8))
    return changed.tobytes()


def zeroed(rng, data):
    begin = int(rng.integers(len(data) - 1))
    end = min(begin + int(rng.integers(1, 4096)), len(data))
    filled = bytes(end - begin)
    return data[:begin] + (filled if filled != data[begin:end] else b"\x01" * (end - begin)) + data[end:]


def header_length(rng, data):
    lengths = (0, 2**63, 2**64 - 1, len(data), int(rng.integers(2**40)))
    return data[: len(MAGIC)] + struct.pack("<Q", lengths[rng.integers(len(lengths))]) + data[START:]


# --- files of other kinds --------------------------------------------------------------------------------------------


class Bomb:
    def __reduce__(self):
        return (sys.exit, ("a pickle was run",))


def pickled(rng, data):
    return pickle.dumps(Bomb())


def array_file(rng, data):
    buffer = BytesIO()
    np.save(buffer, np.array([{"a": Bomb}], dtype=object), allow_pickle=True)
    return buffer.getvalue()


def zip_bomb(rng, data):
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../escape.npy", bytes(10**7))
    return buffer.getvalue()


# --- dressed up ------------------------------------------------------------------------------------------------------


def wrong_dtype(rng, data):
    header, raw = opened(data)
    names = ("float16", "object", "O", "V8", "<U4", "M8[s]", "float128", 5, None, "O8", "|S1000000000")
    numbers = [i for i, (name, shape) in enumerate(header["arrays"]) if name == "float64" and np.prod(shape) > 0]
    header["arrays"][rng.choice(numbers)][0] = names[rng.integers(len(names))]
    return sealed(header, raw)


def huge_shape(rng, data):
    header, raw = opened(data)
    shapes = ([2**40], [2**62, 2**62], [-1], [10**30], [1.5], ["3"], [True], 7, None, [2] * 40, [2**31, 2**31])
    header["arrays"][rng.integers(len(header["arrays"]))][1] = shapes[rng.integers(len(shapes))]
    return sealed(header, raw)


def array_list(rng, data):
    header, raw = opened(data)
    lists = (None, {}, "arrays", [[]], [["float64"]], header["arrays"][:-1], header["arrays"] * 2, 5)
    header["arrays"] = lists[rng.integers(len(lists))]
    return sealed(header, raw)


def schema(rng, data):
    header, raw = opened(data)
    header["schema"] = (2, 10**9, None, "1", True, [], 1.0)[rng.integers(7)]
    return sealed(header, raw)


def deep(rng, data):
    header, raw = opened(data)
    depth = int(rng.integers(5_000, 200_000))
    text = json.dumps({**header, "content": "HERE"}).replace('"HERE"', "[" * depth + "]" * depth)
    return sealed(text.encode(), raw)


def not_json(rng, data):
    texts = (b"", b"{", b"[1, 2", b"\xff\xfe", b"nul", b'{"schema": 1' + b"0" * 5000 + b"}", rng.bytes(100))
    return sealed(texts[rng.integers(len(texts))], opened(data)[1])


def content(rng, data):
    """One value somewhere inside replaced by one of another kind."""
    header, raw = opened(data)
    places = list(_places(header["content"]))
    holder, key = places[rng.integers(len(places))]
    hostile = (
        {"class": "subprocess:Popen", "fields": {"args": "true"}},
        {"class": "os:system", "tuple": ["true"]},
        {"class": "bisaddle.run.container:Path", "fields": {}},
        {"class": "../../evil:Evil", "fields": {}},
        {"enum": "signal:Signals", "member": "SIGKILL"},
        {"array": 10**9},
        {"array": -1},
        {"array": "__class__"},
        {"scalar": 0.5},
        {"key": 0, "implementation": "none"},
        {"float": "1e999"},
        {"partial": "os.system", "arguments": "rm", "keywords": 5},
        {"deque": [], "maxlen": -5},
        {"": 1},
        {"dict": [[[1], 2]]},
    )
    holder[key] = hostile[rng.integers(len(hostile))]
    return sealed(header, raw)


def _places(value):
    """(holder, key) of every value that decides how others are read: numbers of arrays and names of classes."""
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(item, dict) and key not in ("function", "code"):
                yield value, key
            yield from _places(item)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if isinstance(item, dict):
                yield value, i
            yield from _places(item)


# --- files of text, which have no checksum: damage may leave another experiment -------------------------------------


def another_value(rng, data):
    """One value of a TOML file replaced by one that is right nowhere in it."""
    lines = data.decode().split("\n")
    i = rng.choice([i for i, line in enumerate(lines) if " = " in line])
    depth = int(rng.integers(500, 50_000))
    values = (
        "[" * depth + "]" * depth,
        "{a = " * 200 + "1" + "}" * 200,
        "9" * 5000,
        "-" + "9" * 400,
        "1e400",
        "-inf",
        "nan",
        "2020-01-01",
        "07:32:00",
        "{a = 1}",
        "[[1], [2]]",
        "[{}]",
        "[nan]",
        "[inf, 1.0]",
        "0x" + "f" * 300,
    )
    lines[i] = lines[i].split(" = ")[0] + " = " + values[rng.integers(len(values))]
    return "\n".join(lines).encode()


def a_line_more(rng, data):
    lines = data.decode().split("\n")
    i = int(rng.integers(len(lines)))
    extra = (lines[i] or "= 1", "[" + "a." * int(rng.integers(1, 5000)) + "a]", "\0", "unknown = 3", "[[dataset]]", "]")
    return "\n".join([*lines[:i], extra[rng.integers(len(extra))], lines[i], *lines[i:]]).encode()


def a_line_less(rng, data):
    lines = data.decode().split("\n")
    del lines[rng.integers(len(lines))]
    return "\n".join(lines).encode()


DAMAGE = (truncated, longer, bits_flipped, zeroed)
# what may leave a file of text that is as good as before
HARMLESS = {mutation.__name__ for mutation in (*DAMAGE, a_line_less, a_line_more)}
OF_TEXT = {
    "experiment": (*DAMAGE, another_value, a_line_more, another_value, a_line_less, pickled, zip_bomb),
    "solve --out": (*DAMAGE, pickled, zip_bomb),
}
MUTATIONS = (
    (truncated, longer, bits_flipped, zeroed, header_length)
    + (pickled, array_file, zip_bomb)
    + (wrong_dtype, huge_shape, array_list, schema, deep, not_json, content)
)


def attack(good, read, count, seed=0):
    """Counts of what became of so many mutations of the good files: "refused", or what else.

    good: file contents by kind; read: functions that read a file of each kind.
    """
    rng, found = np.random.default_rng(seed), Counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mutated.toml"
        for i in range(count):
            kind = list(good)[i % len(good)]
            mutations = OF_TEXT.get(kind, MUTATIONS)
            mutate = mutations[(i // len(good)) % len(mutations)]
            data = mutate(rng, good[kind])
            path.write_bytes(data)
            outcome = _outcome(read[kind], path, data == good[kind], mutate.__name__, len(data))
            if kind in OF_TEXT and outcome in ("unchanged", *(f"read: {name}" for name in HARMLESS)):
                outcome = f"still good: {kind}"
            found[outcome] += 1
    return found


def _outcome(read, path, same, name, size):
    tracemalloc.start()
    try:
        read(path)
        return "unchanged" if same else f"read: {name}"
    except ValueError as error:
        most = tracemalloc.get_traced_memory()[1]
        if most > ALLOWANCE + PROPORTION * size:
            return f"{most} bytes for {size}: {name}"
        return "refused" if str(path) in str(error) and len(str(error)) > len(str(path)) + 10 else f"no reason: {name}"
    except BaseException as error:
        return f"{type(error).__name__}: {name}"
    finally:
        tracemalloc.stop()


def samples(folder):
    """(good, read): a checkpoint and a result of either kind of method, files of text, and what reads them."""
    import bisaddle as bs
    from bisaddle import experiments
    from bisaddle.cli import documents
    from tests.hostile_files import result_file
    from tests.small_experiment import SMALL
    from tests.test_solve import fully_projected, quadratic

    problem, start = quadratic()
    good = {"experiment": SMALL.encode(), "solve --out": json.dumps(result_file(Path(folder))).encode()}
    read = {"experiment": experiments.read, "solve --out": lambda path: _plain_refusal(documents.load, path)}
    for name, method in (("Adaptive", None), ("FullyProjected", fully_projected())):
        path = Path(folder) / f"{name}.ckpt"
        result = bs.solve(problem, start, method, tol=1e-5, checkpoint=path, checkpoint_every=0)
        result.save(Path(folder) / f"{name}.result")
        good |= {f"{name} checkpoint": path.read_bytes()}
        good |= {f"{name} result": (Path(folder) / f"{name}.result").read_bytes()}
        read |= {f"{name} checkpoint": lambda path: bs.resume(path, problem), f"{name} result": bs.load_result}
    return good, read


def _plain_refusal(load, path):
    """The command line ends with a message of its own, which is what a ValueError is to the library."""
    import click

    try:
        return load(path)
    except click.ClickException as error:
        raise ValueError(error.message) from error


def main(count=1000):
    """Counts of `count` mutated files, printed; 0 if all were refused, or are as good as before."""
    import jax

    jax.config.update("jax_enable_x64", True)
    with tempfile.TemporaryDirectory() as folder:
        found = attack(*samples(folder), count)
    for what, number in found.most_common():
        print(f"{number:6} {what}")
    return int(any(what != "refused" and not what.startswith("still good") for what in found))


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
