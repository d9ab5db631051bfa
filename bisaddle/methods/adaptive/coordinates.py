"""The coordinates in which Adaptive moves x: x itself where its set projects, else weights of atoms from an LMO."""

from collections.abc import Callable

import equinox as eqx
import numpy as np
from jaxtyping import Array

from bisaddle.methods.adaptive.inner import norm
from bisaddle.oracle.kernels import Vector
from bisaddle.sets import NuclearBall, Simplex, Spectrahedron
from bisaddle.sets.base import ConvexSet
from bisaddle.sets.flat import FlatSet, flat_set
from bisaddle.sets.flat_compiled import CompiledForm

# above this many columns a full decomposition of a matrix costs more than its leading part
FULL_SVD = 128
# triples that a low-rank form looks at, at most
MOST_RANKS = 40
# slots for the atoms of a block: a vertex more than the dimension is enough for any point (Caratheodory)
MOST_ATOMS = 128
ATOM_BYTES = 2**27
# a vertex is worth a slot if it promises this much more than the atoms at hand
WORTH = 2.0


class LowRank(ConvexSet):
    """A spectral set projected on by the leading part of a decomposition alone."""

    of: NuclearBall | Spectrahedron
    count: int = eqx.field(static=True)

    def project(self, v: Array) -> Array:
        return self.of.project_leading(v, self.count)

    def diameter(self, v: Array) -> Array:
        return self.of.diameter(v)


class Moved:
    """A block that moves by itself: its coordinates are the part of x."""

    has_atoms = False

    def __init__(self, block: FlatSet):
        self.set = movable(block)
        self.size = block.size

    def first(self, part: Vector) -> Vector:
        return part

    def x_of(self, z: Vector) -> Vector:
        return z

    def pull(self, g: Vector) -> Vector:
        return g

    def project(self, z: Vector) -> Vector:
        return self.set.project(z)

    def linearised(self, z: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        return self.set.linearised(z)


class Atoms:
    """A block x = sum_i c_i rows_i over points of its set that the LMO has delivered, a slot each, c in the simplex.

    used: which slots hold an atom; the others stay without weight.
    """

    has_atoms = True

    def __init__(self, block: FlatSet, part: Vector):
        most = ATOM_BYTES // (part.size * part.itemsize)
        self.size = max(2, min(part.size + 2, MOST_ATOMS, most))
        self.rows = np.zeros((self.size, part.size), part.dtype)
        self.used = np.arange(self.size) == 0
        self.rows[0] = part
        self.weights = flat_set(Simplex(), self.rows[:, 0])

    def first(self, part: Vector) -> Vector:
        return self.used.astype(part.dtype)

    def x_of(self, c: Vector) -> Vector:
        return c @ self.rows

    def pull(self, g: Vector) -> Vector:
        return self.rows @ g

    def project(self, c: Vector) -> Vector:
        return self.weights.project(self._held(c))

    def linearised(self, c: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        return self.weights.linearised(self._held(c))

    def _held(self, c: Vector) -> Vector:
        """Slots not in use so far below the others that they get nothing."""
        return np.where(self.used, c, np.max(c[self.used]) - 2)

    def wants(self, c: Vector, scores: Vector, whole: float) -> bool:
        """Whether a vertex with this Frank-Wolfe gap promises more than the atoms at hand do."""
        within = float(c @ scores) - float(np.min(scores[self.used]))
        return whole > WORTH * max(within, 0.0)

    def add(self, vertex: Vector, c: Vector) -> Vector:
        """The vertex in a free slot; if there is none, the slots without weight are freed, or the two lightest joined.

        The new weights, of the same x.
        """
        rows, used, c = self.rows.copy(), self.used.copy(), c.copy()
        if np.all(used):
            used = c > 0
        if np.all(used):
            slot, keep = np.argsort(c, kind="stable")[:2]
            both = c[keep] + c[slot]
            rows[keep] = (c[keep] * rows[keep] + c[slot] * rows[slot]) / both
            c[keep], c[slot] = both, 0
        else:
            slot = np.argmin(used)
        rows[slot], used[slot] = vertex, True
        self.rows, self.used = rows, used
        return c


class Space:
    """Flat coordinates z of x, block after block: `x_of`, its transpose `pull`, `project`."""

    def __init__(self, x_set: FlatSet, x: Vector):
        self.sets, self.places = zip(*x_set.blocks, strict=True)
        parts = [
            Moved(block) if "project" in block.capabilities else Atoms(block, x[place]) for block, place in x_set.blocks
        ]
        self.parts: list[Moved | Atoms] = parts
        ends = np.cumsum([0, *(part.size for part in parts)])
        self.slices = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]
        self.has_atoms = any(part.has_atoms for part in parts)
        self.lmos = sum(part.has_atoms for part in parts)  # LMO calls at a look for new vertices

    def first(self, x: Vector) -> Vector:
        """The coordinates of the x that it was made with."""
        return self._joined([part.first(x[place]) for part, place in zip(self.parts, self.places, strict=True)])

    def x_of(self, z: Vector) -> Vector:
        return self._joined([part.x_of(z[at]) for part, at in zip(self.parts, self.slices, strict=True)])

    def pull(self, Gx: Vector) -> Vector:
        return self._joined([part.pull(Gx[place]) for part, place in zip(self.parts, self.places, strict=True)])

    def project(self, z: Vector) -> Vector:
        return self._joined([part.project(z[at]) for part, at in zip(self.parts, self.slices, strict=True)])

    def linearised(self, z: Vector) -> tuple[Vector, Callable[[Vector], Vector]]:
        """P(z), and the derivative of P there, for rows."""
        found = [part.linearised(z[at]) for part, at in zip(self.parts, self.slices, strict=True)]

        def inside(rows: Vector) -> Vector:
            pieces = [apply(rows[..., at]) for (_, apply), at in zip(found, self.slices, strict=True)]
            return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)

        return self._joined([ahead for ahead, _ in found]), inside

    def vertices(self, Gx: Vector) -> list[Vector | None]:
        """What the LMO gives for the blocks of atoms; None for the others."""
        blocks = zip(self.sets, self.places, self.parts, strict=True)
        return [block.lmo(Gx[place]) if part.has_atoms else None for block, place, part in blocks]

    def gap(self, z: Vector, x: Vector, Gx: Vector, vertices: list[Vector | None]) -> tuple[float, float]:
        """(gap, size): the residual of the blocks that project plus the Frank-Wolfe gaps of the others.

        size is on the scale of the gradient: Frank-Wolfe gaps divided by the diameters.
        """
        square = gaps = sizes = 0.0
        blocks = zip(self.sets, self.parts, self.places, vertices, strict=True)
        for block, part, place, vertex in blocks:
            if vertex is None:
                away = x[place] - part.project(x[place] - Gx[place])
                square += float(away @ away)
            else:
                whole = float(Gx[place] @ (x[place] - vertex))
                gaps += whole
                sizes += whole / max(block.diameter(), 1e-30)
        return square**0.5 + gaps, square**0.5 + sizes

    def grow(self, z: Vector, x: Vector, Gx: Vector, vertices: list[Vector | None]) -> Vector | None:
        """The coordinates of the same x, with the vertices that promise more than the atoms at hand; None without."""
        pieces, grew = [], False
        blocks = zip(self.parts, self.slices, self.places, vertices, strict=True)
        for part, at, place, vertex in blocks:
            c = z[at]
            if vertex is not None and isinstance(part, Atoms):
                whole = float(Gx[place] @ (x[place] - vertex))
                if part.wants(c, part.pull(Gx[place]), whole):
                    c, grew = part.add(vertex, c), True
            pieces.append(c)
        return self._joined(pieces) if grew else None

    def _joined(self, pieces: list[Vector]) -> Vector:
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def farthest(x_set: FlatSet, x: Vector, Gx: Vector) -> Vector:
    """The point of the set farthest down the gradient, block by block: a vertex, or a projection from far away."""
    found = []
    for block, place in x_set.blocks:
        g = Gx[place]
        far = 1e6 / max(norm(g), 1e-30)
        found.append(block.lmo(g) if "lmo" in block.capabilities else block.project(x[place] - far * g))
    return np.concatenate(found)


def movable(block: FlatSet) -> FlatSet:
    """The set itself, or its low-rank form where a full decomposition is to be avoided."""
    of = block.of
    if isinstance(of, NuclearBall | Spectrahedron) and isinstance(block, CompiledForm):
        least = min(block.shape.shapes[0][-2:])
        if least > FULL_SVD:
            count = min(max(16, least // 8), MOST_RANKS)
            return flat_set(LowRank(of, count), block.shape.structs)
    return block
