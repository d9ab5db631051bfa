"""Chunks: the rows of a problem in pieces of one shape, of which only a few are in memory at a time."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from copy import copy
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import PyTree

from bisaddle.programs import on_device
from bisaddle.streams.sources import ahead, reader, rows_of, taken, whole
from bisaddle.streams.spread import LASTS, spread

WEIGHTS = "weights"


class Chunks:
    """Rows in chunks of `size`, each of which is data for some steps: solve(problem, start, method, data=chunks).

        Chunks({"rows": features, "targets": targets}, size=10_000, steps=20)

    source   a pytree of arrays with n rows each along the first axis, such as memory maps; or a function i -> chunk i,
             a pytree of arrays, with `count` chunks of `size` rows, of which the last may be shorter
    size     rows of a chunk; None: as many as 16 MB hold
    steps    that a method makes with a chunk before the next one. With a sampler these draw their batches from the
             chunk; without, the chunk is the batch
    seed     of the order of chunks, another one in every epoch; shuffle=False: as they lie
    last     what becomes of a last chunk that is shorter: "drop" leaves its rows out, of the certificate too; "pad"
             adds rows of zeros, and every chunk, a dict, gets weights[i] = 1 for a true row and 0 for an added one
    mesh     bs.parallel.mesh("rows"): each chunk is split over its devices. None: one device; with several processes
             all devices of all of them. There each process gives Chunks of its own rows, and step k is made with the
             chunks of all of them side by side

    What step k is made with depends on k alone, so that a run can be taken up again amidst an epoch.
    """

    def __init__(
        self,
        source: PyTree | Callable[[int], PyTree],
        size: int | None = None,
        *,
        count: int | None = None,
        steps: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        last: str | None = None,
        mesh: Mesh | None = None,
    ):
        self.mesh, self.spread = mesh, None
        self.steps, self.seed, self.shuffle, self.last = whole("steps", steps), whole("seed", seed, 0), shuffle, last
        self.form: tuple | None = None
        self.fixed: dict | None = None
        self.thread = reader()
        if last not in LASTS:
            raise ValueError(f'last must be None, "drop" or "pad", given {last!r}')
        if callable(source):
            if count is None:
                raise ValueError("a function of chunks needs count=, how many there are")
            # a copy: the function may fill the same arrays again
            self._read = lambda i: jax.tree.map(np.array, source(i))
            self.count = whole("count", count)
            self.size = self._length(0) if size is None else whole("size", size)
            self.rows = (self.count - 1) * self.size + self._length(self.count - 1)
        else:
            if count is not None:
                raise ValueError("count is for a function of chunks; arrays have as many as their rows make")
            self._read, self.rows, row_bytes = _sliced(source, self)
            self.size = min(rows_of(row_bytes) if size is None else whole("size", size), self.rows)
            self.count = -(-self.rows // self.size)
        self._check_last()
        self.form = _form(self[0])

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> PyTree:
        """Chunk i, NumPy arrays of the common shapes."""
        chunk = self._read(i)
        found = _rows_in(chunk, i)
        if found != self.size and (found > self.size or i < -(-self.rows // self.size) - 1):
            raise ValueError(f"chunk {i} has {found} rows, {self.size} are needed; only the last may have fewer")
        if self.last == "pad":
            if not isinstance(chunk, dict) or WEIGHTS in chunk:
                raise ValueError(f'last="pad" puts weights into each chunk: a dict without {WEIGHTS!r} is needed')
            short = self.size - found
            chunk = jax.tree.map(lambda a: np.concatenate([a, np.zeros((short, *a.shape[1:]), a.dtype)]), chunk)
            chunk[WEIGHTS] = np.repeat([1.0, 0.0], [found, short])
        if self.form is not None and _form(chunk) != self.form:
            raise ValueError(f"chunk {i} has arrays {_form(chunk)[1]}, those of chunk 0 are {self.form[1]}")
        return chunk

    def beside(self, fixed: PyTree) -> "Chunks":
        """The same chunks, and beside them what is not streamed: a dict, to which each chunk, a dict too, is added.

        With several processes every one has to call it: they agree on the chunks here.
        """
        facts = {name: int(getattr(self, name)) for name in ("count", "size", "steps", "seed", "shuffle")}
        made = copy(self)
        made.spread = spread(self.mesh, self.rows, facts | {"last": LASTS.index(self.last)}, self.form)
        if fixed is None:
            return made
        chunk = self[0]
        if not isinstance(fixed, dict) or not isinstance(chunk, dict) or set(fixed) & set(chunk):
            raise ValueError(
                "with data=chunks, problem.data must be None, or a dict of what is not streamed, with other names than "
                f"in the chunks, given {_names(fixed)} beside {_names(chunk)}"
            )
        made.fixed = on_device(fixed) if made.spread is None else made.spread.everywhere(fixed)
        return made

    def data(self, i: int) -> PyTree:
        """Chunk i on the device, or on all of them, with what is beside it."""
        chunk = on_device(self[i]) if self.spread is None else self.spread.put(self[i])
        return chunk if self.fixed is None else self.fixed | chunk

    def share(self, i: int) -> float:
        """Of the rows, those that chunk i has."""
        if self.spread is not None:
            return self.spread.share(i)
        return min(self.size, self.rows - i * self.size) / self.rows

    def epochs(self, number: int) -> int:
        """The steps of so many passes over all chunks: for max_steps, or for every."""
        return whole("number", number) * self.count * self.steps

    def visited(self, visit: int) -> int:
        """The chunk of this visit; every `count` visits are an epoch."""
        epoch, place = divmod(visit, self.count)
        return int(np.random.default_rng([self.seed, epoch]).permutation(self.count)[place]) if self.shuffle else place

    def passed(self) -> Iterator[tuple[float, PyTree]]:
        """(share of the rows, data) of all chunks in order, the next one read meanwhile."""
        return ahead(((self.share(i), self.data(i)) for i in range(self.count)), self.thread)

    def words(self) -> str:
        """What a checkpoint remembers of them."""
        order = f"in an order by seed {self.seed}" if self.shuffle else "in their order"
        short = {"drop": f", {self.dropped} rows left out", "pad": ", the last one padded", None: ""}[self.last]
        rows = [self.rows] if self.spread is None else self.spread.rows
        each = f"{self.count} chunks of {len(rows) * self.size} {order}, {self.steps} steps each{short}"
        return f"{sum(rows)} rows in {each}"

    def __repr__(self) -> str:
        return f"Chunks({self.words()})"

    def _length(self, i: int) -> int:
        return _rows_in(self._read(i), i)

    def _check_last(self) -> None:
        short, self.dropped = self.rows % self.size, 0
        if self.size > self.rows:
            raise ValueError(f"the only chunk has {self.rows} rows, given size={self.size}")
        if short == 0:
            return
        if self.last is None:
            raise ValueError(
                f'{self.rows} rows in chunks of {self.size} leave {short} over; last="drop" leaves them out, "pad" '
                f'adds rows of zeros and gives the functions data["{WEIGHTS}"], or use another size'
            )
        if self.last == "drop":
            self.count, self.rows, self.dropped = self.count - 1, self.rows - short, short


class Reader:
    """The chunks of a run in the order of its steps, one of them read ahead by a thread."""

    def __init__(self, chunks: Chunks):
        self.chunks = chunks
        self._visit, self._chunk = -1, None
        self._coming: tuple[int, Future] | None = None

    def at(self, k: int) -> PyTree:
        """What step k is made with, on the device."""
        visit = k // self.chunks.steps
        if visit != self._visit:
            ready = self._coming is not None and self._coming[0] == visit
            coming = self._coming[1] if ready and self._coming is not None else self._submit(visit)
            self._chunk = None  # its memory is wanted for the one that comes after
            self._visit, self._chunk = visit, coming.result()
            self._coming = (visit + 1, self._submit(visit + 1))
        return self._chunk

    def left(self, k: int) -> int:
        """Steps from k on that are made with the same chunk."""
        return self.chunks.steps - k % self.chunks.steps

    def close(self) -> None:
        if self._coming is not None:
            self._coming[1].cancel()
            self._coming = None

    def _submit(self, visit: int) -> Future:
        return self.chunks.thread.submit(lambda: self.chunks.data(self.chunks.visited(visit)))


def _sliced(source: PyTree, chunks: Chunks) -> tuple[Callable[[int], PyTree], int, int]:
    """(chunk i of arrays, their rows, bytes of a row)"""
    leaves: list[Any] = [source] if isinstance(source, Iterator) else jax.tree.leaves(source)
    if not leaves or not all(hasattr(leaf, "shape") and np.ndim(leaf) >= 1 for leaf in leaves):
        raise ValueError(
            "the source of Chunks must be arrays with rows along the first axis, or a function i -> chunk with count=, "
            f"given {type(source).__name__}; an iterator can be read once only, and is for bs.streams.gram"
        )
    lengths = sorted({len(leaf) for leaf in leaves})
    if len(lengths) != 1 or lengths[0] == 0:
        raise ValueError(f"the arrays of Chunks need the same number of rows, at least one, given {lengths}")
    part = lambda i: jax.tree.map(lambda a: taken(a, i * chunks.size, (i + 1) * chunks.size), source)
    return part, lengths[0], sum(leaf[:1].nbytes for leaf in leaves)


def _rows_in(chunk: PyTree, i: int) -> int:
    lengths = sorted({a.shape[0] if a.ndim else -1 for a in jax.tree.leaves(chunk)})
    if len(lengths) != 1 or lengths[0] < 1:
        raise ValueError(f"the arrays of chunk {i} need the same number of rows, at least one, given lengths {lengths}")
    return lengths[0]


def _names(tree: PyTree) -> str:
    return f"a dict of {', '.join(map(str, tree))}" if isinstance(tree, dict) else f"a {type(tree).__name__}"


def _form(chunk: PyTree) -> tuple[Any, list[tuple]]:
    leaves, form = jax.tree.flatten(chunk)
    return form, [(leaf.shape, str(leaf.dtype)) for leaf in leaves]
