"""The coordinates in which Adaptive moves x: x itself where its set projects, else weights of atoms from an LMO."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from bisaddle import trees
from bisaddle.sets import NuclearBall, Product, Simplex, Spectrahedron
from bisaddle.sets.base import ConvexSet

# above this many columns a full decomposition of a matrix costs more than its leading part
FULL_SVD = 128
# triples that a low-rank form looks at, at most
MOST_RANKS = 40
# slots for the atoms of a block: a vertex more than the dimension is enough for any point (Caratheodory)
MOST_ATOMS = 128
ATOM_BYTES = 2**27
# a vertex is worth a slot if it promises this much more than the atoms at hand
WORTH = 2.0


class Atoms(NamedTuple):
    """Points of a block's set, a slot each along the first axis, of which `used` are in use; x = sum_i c_i rows_i."""

    rows: PyTree
    used: Array


Chart = tuple[Atoms | None, ...]


class Weights(ConvexSet):
    """{c : c >= 0, sum c = 1, c_i = 0 in the slots not in use}"""

    used: Array

    def project(self, v: Array) -> Array:
        least = jnp.max(jnp.where(self.used, v, -jnp.inf)) - 2  # so far below the others that it gets nothing
        return Simplex().project(jnp.where(self.used, v, least))

    def diameter(self, v: Array) -> Array:
        return jnp.sqrt(2 * jnp.ones((), v.dtype))


class LowRank(ConvexSet):
    """A spectral set projected on by the leading part of a decomposition alone."""

    of: NuclearBall | Spectrahedron
    count: int = eqx.field(static=True)

    def project(self, v: Array) -> Array:
        return self.of.project_leading(v, self.count)

    def diameter(self, v: Array) -> Array:
        return self.of.diameter(v)


class Space:
    """Flat coordinates z of x: `x_of`, its transpose `pull`, `project`; built while a step is traced.

    atoms[i] is None for a block that moves by itself.
    """

    def __init__(self, x_set: ConvexSet, x: PyTree, chart: Chart):
        self.chart, self.blocks = chart, _blocks(x_set)
        self.split, self.join = _splitter(x_set)
        parts = self.split(x)
        like = [
            part if atoms is None else jnp.zeros(atoms.used.shape, trees.dtype_of(x))
            for part, atoms in zip(parts, chart, strict=True)
        ]
        self._shaped: Callable = ravel_pytree(like)[1]
        self._sets = [
            _movable(block, part) if atoms is None else Weights(atoms.used)
            for block, part, atoms in zip(self.blocks, parts, chart, strict=True)
        ]

    def x_of(self, z: Array) -> PyTree:
        return self.join([_spread(part, atoms) for part, atoms in zip(self._shaped(z), self.chart, strict=True)])

    def pull(self, Gx: PyTree) -> Array:
        return ravel_pytree([_scores(g, atoms) for g, atoms in zip(self.split(Gx), self.chart, strict=True)])[0]

    def project(self, z: Array) -> Array:
        return ravel_pytree([s.project(part) for s, part in zip(self._sets, self._shaped(z), strict=True)])[0]

    def residual(self, z: Array, Gz: Array) -> Array:
        """|z - P(z - Gz)| over the blocks that project."""
        square = jnp.zeros((), z.dtype)
        for part, new, atoms in zip(self._shaped(z), self._shaped(self.project(z - Gz)), self.chart, strict=True):
            if atoms is None:
                away = trees.subtract(part, new)
                square += trees.dot(away, away)
        return jnp.sqrt(square)

    def vertices(self, Gx: PyTree) -> list[PyTree]:
        """What the LMO gives for the blocks of atoms; None for the others."""
        blocks = zip(self.blocks, self.split(Gx), self.chart, strict=True)
        return [None if atoms is None else block.lmo(g) for block, g, atoms in blocks]

    def gap(self, z: Array, x: PyTree, Gx: PyTree, vertices: list[PyTree]) -> tuple[Array, Array]:
        """(gap, size): the residual of the blocks that project plus the Frank-Wolfe gaps of the others.

        size is on the scale of the gradient: Frank-Wolfe gaps divided by the diameters.
        """
        gap = size = self.residual(z, self.pull(Gx))
        for block, place, g, vertex in zip(self.blocks, self.split(x), self.split(Gx), vertices, strict=True):
            if vertex is not None:
                whole = trees.dot(g, trees.subtract(place, vertex))
                gap, size = gap + whole, size + whole / jnp.maximum(block.diameter(place), 1e-30)
        return gap, size

    @property
    def has_atoms(self) -> bool:
        return any(atoms is not None for atoms in self.chart)

    @property
    def lmos(self) -> int:
        """LMO calls at a look for new vertices."""
        return sum(atoms is not None for atoms in self.chart)

    def grown(self, z: Array, x: PyTree, Gx: PyTree, vertices: list[PyTree]) -> tuple[Chart, Array, Array]:
        """(chart, z, whether it grew), with the vertices that promise more than the atoms at hand."""
        charts, parts, grew = [], [], jnp.asarray(False)
        for vertex, part, place, g, atoms in zip(
            vertices, self._shaped(z), self.split(x), self.split(Gx), self.chart, strict=True
        ):
            if atoms is not None:
                whole = trees.dot(g, trees.subtract(place, vertex))
                wanted = whole > WORTH * jnp.maximum(_within(part, _scores(g, atoms), atoms), 0)
                atoms, part = lax.cond(wanted, _with_vertex, lambda v, a, c: (a, c), vertex, atoms, part)
                grew = grew | wanted
            charts.append(atoms)
            parts.append(part)
        return tuple(charts), ravel_pytree(parts)[0], grew


def first_chart(x_set: ConvexSet, x: PyTree) -> tuple[Chart, Array]:
    """Atoms for the blocks that cannot project, x their first; and the coordinates of x."""
    split, _ = _splitter(x_set)
    charts, parts = [], []
    for block, part in zip(_blocks(x_set), split(x), strict=True):
        atoms = None
        if "project" not in block.capabilities:
            atoms = _first_atoms(part)
            part = atoms.used.astype(trees.dtype_of(part))
        charts.append(atoms)
        parts.append(part)
    return tuple(charts), ravel_pytree(parts)[0]


def _first_atoms(part: PyTree) -> Atoms:
    """As many slots as the part can need and memory allows, the part itself in the first."""
    size, itemsize = trees.size(part), trees.dtype_of(part).itemsize
    slots = max(2, min(size + 2, MOST_ATOMS, ATOM_BYTES // (size * itemsize)))
    rows = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype).at[0].set(leaf), part)
    return Atoms(rows, jnp.arange(slots) == 0)


def farthest(x_set: ConvexSet, x: PyTree, Gx: PyTree) -> PyTree:
    """The point of the set farthest down the gradient, block by block: a vertex, or a projection from far away."""
    split, join = _splitter(x_set)
    found = []
    for block, part, g in zip(_blocks(x_set), split(x), split(Gx), strict=True):
        far = 1e6 / jnp.maximum(trees.norm(g), 1e-30)
        by_lmo = "lmo" in block.capabilities
        found.append(block.lmo(g) if by_lmo else block.project(trees.add_scaled(part, -far, g)))
    return join(found)


def _blocks(x_set: ConvexSet) -> list[ConvexSet]:
    if not isinstance(x_set, Product):
        return [x_set]
    return [inner for block in x_set.blocks for inner in _blocks(block)]


def _splitter(x_set: ConvexSet) -> tuple[Callable[[PyTree], list], Callable[[list], PyTree]]:
    """x into the parts of the blocks, and back."""
    if not isinstance(x_set, Product):
        return lambda x: [x], lambda parts: parts[0]
    structure = jax.tree.structure(x_set.sets, is_leaf=lambda node: isinstance(node, ConvexSet))
    inner = [_splitter(block) for block in x_set.blocks]
    counts = [len(_blocks(block)) for block in x_set.blocks]

    def split(x: PyTree) -> list:
        parts = zip(inner, structure.flatten_up_to(x), strict=True)
        return [piece for (cut, _), part in parts for piece in cut(part)]

    def join(pieces: list) -> PyTree:
        pieces = list(pieces)
        parts = []
        for (_, glue), count in zip(inner, counts, strict=True):
            parts.append(glue(pieces[:count]))
            pieces = pieces[count:]
        return structure.unflatten(parts)

    return split, join


def _movable(block: ConvexSet, part: PyTree) -> ConvexSet:
    """The set itself, or its low-rank form where a full decomposition is to be avoided."""
    if isinstance(block, NuclearBall | Spectrahedron) and min(part.shape[-2:]) > FULL_SVD:
        return LowRank(block, min(max(16, min(part.shape[-2:]) // 8), MOST_RANKS))
    return block


def _spread(c: Array, atoms: Atoms | None) -> PyTree:
    return c if atoms is None else jax.tree.map(lambda rows: jnp.tensordot(c, rows, 1), atoms.rows)


def _scores(g: PyTree, atoms: Atoms | None) -> PyTree:
    if atoms is None:
        return g
    products = jax.tree.map(lambda rows, leaf: jnp.tensordot(rows, leaf, leaf.ndim), atoms.rows, g)
    return sum(jax.tree.leaves(products))


def _within(c: Array, scores: Array, atoms: Atoms) -> Array:
    """max over the atoms of <scores, c - e_i>"""
    return c @ scores - jnp.min(jnp.where(atoms.used, scores, jnp.inf))


def _with_vertex(vertex: PyTree, atoms: Atoms, c: Array) -> tuple[Atoms, Array]:
    """The vertex in a free slot; if there is none, the slots without weight are freed, or the two lightest joined."""
    full = jnp.all(atoms.used)
    used = jnp.where(full, c > 0, atoms.used)
    lightest = jnp.argsort(c)
    keep, free = lightest[1], lightest[0]
    both = c[keep] + c[free]
    join = jnp.all(used)
    joined = jax.tree.map(
        lambda rows: rows.at[keep].set((c[keep] * rows[keep] + c[free] * rows[free]) / jnp.where(join, both, 1)),
        atoms.rows,
    )
    rows = jax.tree.map(lambda new, old: jnp.where(join, new, old), joined, atoms.rows)
    c = jnp.where(join, c.at[keep].set(both).at[free].set(0), c)
    slot = jnp.where(join, free, jnp.argmin(used))
    rows = jax.tree.map(lambda rows, leaf: rows.at[slot].set(leaf), rows, vertex)
    return Atoms(rows, used.at[slot].set(True)), c
