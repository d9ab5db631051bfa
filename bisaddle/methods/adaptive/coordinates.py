"""The coordinates z in which Adaptive moves x, and the direction of a step in them.

Where a block of x projects, its coordinates are x itself; else they are the weights of atoms that its LMO delivers.
"""

from collections.abc import Collection, Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import equinox as eqx
import numpy as np
from jaxtyping import Array

from bisaddle.methods.adaptive import constants as const
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Vector
from bisaddle.sets import NuclearBall, Simplex, Spectrahedron
from bisaddle.sets.base import ConvexSet
from bisaddle.sets.flat import FULL, FlatSet, flat_set, joined_faces
from bisaddle.sets.flat_base import Face
from bisaddle.sets.flat_compiled import CompiledForm

# differences of z and of the gradient in z along a step; for a large x as wide.py keeps them
Pair = tuple[Any, Any]


# --- the direction of a step ------------------------------------------------------------------------------------------


def face_direction(
    space: "Space | FlatSet", z: Vector, Gz: Vector, tau: float, pairs: Collection[Pair], units: Any = None
) -> tuple[Vector, Vector]:
    """(d0, d): the projected gradient step, and the same with a quasi-Newton step inside the face that it ends in.

        v  = z - tau Gz,     d0 = P(v) - z,     E, K = along and bend of the face of P at v
        N  = B (E d0 + K E d0) / tau,     t = max(1, |N| / |E d0|), or 0 where the face is bent
        d  = P(z + (d0 - E d0) + N + t (v - P(v))) - z

    B: the inverse Hessian of L-BFGS from (E s, E q + K E s / tau), (s, q) the pairs of the last steps, newest first: a
    curved border turns the gradient too. Pairs without curvature are left out; d is d0 if none remains. The last term
    is normal to the face, and holds d in it: see outward.
    units: of z, in which the step in the face is rounded.
    """
    v = z - tau * Gz
    face = space.face(v)
    d0 = face.point - z
    if not pairs:
        return d0, d0
    rows = face.along(np.array([d0, *(s for s, _ in pairs), *(q for _, q in pairs)]))
    in_face, (s, q) = rows[0], rows[1:].reshape(2, len(pairs), -1)
    right = in_face
    if face.bend is not None:
        bent = face.bend(rows[: 1 + len(pairs)])
        right, q = in_face + bent[0], q + bent[1:] / tau
    curvature = np.einsum("ij,ij->i", s, q)
    size = np.sqrt(np.einsum("ij,ij->i", s, s)) * np.sqrt(np.einsum("ij,ij->i", q, q))
    usable = curvature > const.FACE_CURVATURE * size
    if not usable.all():
        if not usable.any():
            return d0, d0
        s, q, curvature = s[usable], q[usable], curvature[usable]
    newton = two_loops(right / tau, s, q, curvature)
    newton = newton if units is None else rounded(newton, units)
    target = z + (d0 - in_face) + newton
    if face.bend is None:
        target += outward(newton, in_face, d0) * (v - face.point)
    return d0, space.project(target) - z


def outward(newton: Vector, in_face: Vector, d0: Vector) -> float:
    """How much of the way from the face back to z - tau Gz, which is normal to it, a Newton step in it takes along.

    A long Newton step leaves the set, and is projected back to where it is nearest, also over entries that the gradient
    holds at 0: that may be no way down. The part normal to the face stands for the gradient there, in proportion to the
    step: a gradient step as long would have as much more of it. Where the derivative of the projection is no projection
    itself, the border is bent, and that part would shorten the step: 0.
    """
    square = float(in_face @ in_face)
    if not 0 < float(in_face @ d0) <= (1 + const.FLAT) * square:
        return 0.0
    return max(1.0, norm(newton) / square**0.5)


def two_loops(v: Vector, s: Vector, q: Vector, curvature: Vector) -> Vector:
    """B v by the two loops of L-BFGS over the pairs, newest first, from the scale <s, q> / <q, q> of the newest.

    Each loop is a triangular system in the pairs' products with each other, c_i = <s_i, q_i>:

        sum_{j<=i} <s_i, q_j> a_j = <s_i, v>,      sum_{j>=i} <s_j, q_i> (a_j - b_j) = c_i a_i - <q_i, v>
    """
    products = np.where(lower_triangle(len(s)), s @ q.T, 0.0)
    a = np.linalg.solve(products, s @ v)
    v = v - a @ q
    square = q[0] @ q[0]
    v = v * (curvature[0] / square if square > 0 else curvature[0])
    return v + np.linalg.solve(products.T, curvature * a - q @ v) @ s


def rounded(v: Vector, units: Any) -> Vector:
    """v with few bits, counted in these units; in float32, which has few, as it is.

    Two runs that differ by rounding, on other devices or in other units, then take the same step, where they would take
    two that grow apart. What leads to a face or along its border is not rounded: the projection has to meet it.
    """
    if v.dtype != np.float64:
        return v
    v = v / units
    far = v * (2.0 ** (53 - const.STEP_BITS) + 1)
    return (far - (far - v)) * units


@cache
def lower_triangle(size: int) -> np.ndarray:
    return np.tri(size, dtype=bool)


# --- the coordinates of one block -------------------------------------------------------------------------------------


class Part:
    """The coordinates of a block that projects: the entries of x themselves."""

    def __init__(self, block: FlatSet):
        self.set = movable(block)
        self.size = block.size

    def unit(self) -> float:
        """A length that follows from the set alone, in the units of the coordinates."""
        diameter = self.set.diameter()
        return diameter if 0 < diameter < np.inf else 1.0

    def first(self, part: Vector) -> Vector:
        """The coordinates of the start."""
        return part

    def x_of(self, z: Vector) -> Vector:
        return z

    def pull(self, g: Vector) -> Vector:
        return g

    def project(self, z: Vector) -> Vector:
        return self.set.project(z)

    def face(self, z: Vector) -> Face:
        return self.set.face(z)


class Atoms(Part):
    """The coordinates of a block with only an LMO: weights c in the simplex, x = sum_i c_i rows_i.

    rows: points of the block's set (atoms), one to a slot, at first the start alone; used: which slots hold one.
    """

    def __init__(self, part: Vector):
        # any point is a mean of one vertex more than the dimension (Caratheodory); the start has a slot besides
        fitting = const.ATOM_BYTES // (part.size * part.itemsize)
        self.size = max(2, min(part.size + 2, const.MOST_ATOMS, fitting))
        self.rows = np.zeros((self.size, part.size), part.dtype)
        self.used = np.arange(self.size) == 0
        self.rows[0] = part
        self.set = flat_set(Simplex(), self.rows[:, 0])

    def first(self, part: Vector) -> Vector:
        return self.used.astype(part.dtype)

    def x_of(self, z: Vector) -> Vector:
        return z @ self.rows

    def pull(self, g: Vector) -> Vector:
        return self.rows @ g

    def project(self, z: Vector) -> Vector:
        return super().project(self._held(z))

    def face(self, z: Vector) -> Face:
        return super().face(self._held(z))

    def _held(self, z: Vector) -> Vector:
        """Empty slots more than 1 below the largest entry, where the projection gives no weight."""
        return np.where(self.used, z, np.max(z[self.used]) - 2)

    def wants(self, c: Vector, g: Vector, gap: float) -> bool:
        """Whether a vertex with this Frank-Wolfe gap promises more than the atoms at hand do."""
        scores = self.pull(g)
        within = float(c @ scores) - float(np.min(scores[self.used]))
        return gap > const.WORTH_A_SLOT * max(within, 0.0)

    def add(self, vertex: Vector, c: Vector) -> Vector:
        """Put the vertex into a slot; the weights of the same x are returned.

        If no slot is empty, those without weight are emptied. If all have weight, the two lightest atoms are joined
        into their mean, which is a point of the set too.
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


class LowRank(ConvexSet):
    """A spectral set, projected on by the leading part of a decomposition alone."""

    capabilities = frozenset({"project"})
    of: NuclearBall | Spectrahedron
    count: int = eqx.field(static=True)

    def project(self, v: Array) -> Array:
        return self.of.project_leading(v, self.count)

    def diameter(self, v: Array) -> Array:
        return self.of.diameter(v)


def movable(block: FlatSet) -> FlatSet:
    """The set itself, or its low-rank form where a full decomposition would take too long."""
    of = block.of
    if isinstance(of, NuclearBall | Spectrahedron) and isinstance(block, CompiledForm):
        least = min(block.shape.shapes[0][-2:])
        if least > FULL:
            count = min(max(const.LEAST_RANK, least // const.RANK_SHARE), const.MOST_RANK)
            return flat_set(LowRank(of, count), block.shape.structs)
    return block


# --- all of x ---------------------------------------------------------------------------------------------------------


class Block(NamedTuple):
    """A block of x_set and its coordinates; in_x, in_z: where they lie in x and z."""

    set: FlatSet
    part: Part
    in_x: slice
    in_z: slice


class Space:
    """The coordinates z of x, block after block.

    x_of(z) is x, and pull the transpose of x_of, which makes gradients in z of gradients in x; project(z) are the
    coordinates of a point of x_set. lmos: LMO calls that `vertices` makes.
    """

    def __init__(self, x_set: FlatSet, x: Vector):
        self.blocks: list[Block] = []
        end = 0
        for block, in_x in x_set.blocks:
            part = Part(block) if "project" in block.capabilities else Atoms(x[in_x])
            self.blocks.append(Block(block, part, in_x, slice(end, end + part.size)))
            end += part.size
        self.lmos = len(self._grown())

    @cached_property
    def units(self) -> "Vector | float":
        """Of every coordinate the unit of its block."""
        if len(self.blocks) == 1:
            return self.blocks[0].part.unit()
        return np.concatenate([np.full(block.part.size, block.part.unit()) for block in self.blocks])

    def atoms(self) -> list[tuple[Vector, Vector]]:
        """(rows, used) of the blocks that have atoms: all in which the space changes from step to step."""
        return [(part.rows, part.used) for part in self._grown()]

    def restore(self, atoms: list[tuple[Vector, Vector]]) -> None:
        for part, (rows, used) in zip(self._grown(), atoms, strict=True):
            if rows.shape != part.rows.shape or used.shape != part.used.shape:
                raise ValueError(f"atoms of shape {part.rows.shape} are needed, found {rows.shape}")
            part.rows, part.used = rows, used

    def _grown(self) -> list[Atoms]:
        return [block.part for block in self.blocks if isinstance(block.part, Atoms)]

    def first(self, x: Vector) -> Vector:
        """The coordinates of the x that the space was made with."""
        return _joined([block.part.first(x[block.in_x]) for block in self.blocks])

    def x_of(self, z: Vector) -> Vector:
        return _joined([block.part.x_of(z[block.in_z]) for block in self.blocks])

    def pull(self, Gx: Vector) -> Vector:
        return _joined([block.part.pull(Gx[block.in_x]) for block in self.blocks])

    def project(self, z: Vector) -> Vector:
        return _joined([block.part.project(z[block.in_z]) for block in self.blocks])

    def face(self, z: Vector) -> Face:
        places = [block.in_z for block in self.blocks]
        return joined_faces([block.part.face(z[block.in_z]) for block in self.blocks], places)

    def vertices(self, Gx: Vector) -> list[Vector | None]:
        """For every block of atoms the vertex farthest down the gradient; None for the others."""
        return [block.set.lmo(Gx[block.in_x]) if isinstance(block.part, Atoms) else None for block in self.blocks]

    def gap(
        self, x: Vector, Gx: Vector, vertices: list[Vector | None], d0: Vector, tau: float
    ) -> tuple[float, float, float]:
        """(gap, size, beyond): the residual of the blocks that project, plus the Frank-Wolfe gaps of the others.

        size is in units of the gradient, and no larger for a small set: d0 / tau of the blocks that project, where d0 =
        P(z - tau Gz) - z, and Frank-Wolfe gaps divided by the diameters. beyond: these gaps
        alone.
        """
        square = moved = gaps = sizes = 0.0
        for block, vertex in zip(self.blocks, vertices, strict=True):
            part, g = x[block.in_x], Gx[block.in_x]
            if vertex is None:
                away = block.part.project(part - g)
                away = np.subtract(part, away, out=away if away.flags.writeable else None)
                square += float(away @ away)
                moved += float(d0[block.in_z] @ d0[block.in_z])
            else:
                gap = float(g @ (part - vertex))
                gaps += gap
                sizes += gap / max(block.set.diameter(), const.TINY)
        return square**0.5 + gaps, moved**0.5 / tau + sizes, gaps

    def grow(self, z: Vector, x: Vector, Gx: Vector, vertices: list[Vector | None]) -> Vector | None:
        """Make atoms of the vertices that promise enough; the new coordinates of the same x, None if nothing grew."""
        pieces, grew = [], False
        for block, vertex in zip(self.blocks, vertices, strict=True):
            c, g = z[block.in_z], Gx[block.in_x]
            if vertex is not None and isinstance(block.part, Atoms):
                if block.part.wants(c, g, float(g @ (x[block.in_x] - vertex))):
                    c, grew = block.part.add(vertex, c), True
            pieces.append(c)
        return _joined(pieces) if grew else None


def _joined(pieces: Sequence[Vector]) -> Vector:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


def farthest(x_set: FlatSet, x: Vector, Gx: Vector) -> Vector:
    """A point of the set far down the gradient: a projection from far away, or a vertex where there is none."""
    if "project" in x_set.capabilities:
        return x_set.project(x - far(x_set, Gx))
    return np.concatenate(
        [
            block.lmo(Gx[at]) if "lmo" in block.capabilities else block.project(x[at] - far(block, Gx[at]))
            for block, at in x_set.blocks
        ]
    )


def far(a_set: FlatSet, v: Vector) -> Vector:
    """A step along v from a point of the set that ends far outside of it."""
    diameter = a_set.diameter()
    return const.FAR * (diameter if np.isfinite(diameter) else 1.0) / max(norm(v), const.TINIEST) * v
