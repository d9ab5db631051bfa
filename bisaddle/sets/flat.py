"""flat_set: a set over flat NumPy vectors, in NumPy where a form is written for it, compiled where none is."""

import math
from collections.abc import Callable
from functools import partial

import jax
import numpy as np
from jaxtyping import PyTree

from bisaddle.sets.balls import L1Ball, L2Ball, LinfBall
from bisaddle.sets.base import ConvexSet
from bisaddle.sets.box import Box
from bisaddle.sets.capped import UnitSimplex
from bisaddle.sets.combine import Custom
from bisaddle.sets.flat_base import Face, FlatSet as FlatSet, Linear, length
from bisaddle.sets.flat_compiled import (
    CompiledForm,
    CustomForm,
    CustomPenaltyForm,
    IndicatorForm,
    PenaltyForm,
    SquaredForm,
    is_domain,
)
from bisaddle.sets.flat_divergences import ChiSquareForm, KLForm
from bisaddle.sets.flat_forms import BoxForm, L1Form, L2Form, SimplexForm, UnitSimplexForm
from bisaddle.sets.flat_spectral import NuclearForm, SpectrahedronForm
from bisaddle.sets.probability import ChiSquareBall, KLBall
from bisaddle.sets.product import Product
from bisaddle.sets.prox import Indicator, Penalty, Prox, SquaredL2
from bisaddle.sets.sections import FreeBall
from bisaddle.sets.simplex import Simplex
from bisaddle.sets.spectral import NuclearBall
from bisaddle.sets.symmetric import Spectrahedron
from bisaddle.trees import Number, Shape

# the sets of one array with a form in NumPy; a subclass may be another set, and has to be named
FORMS: dict[type[ConvexSet], Callable[..., FlatSet]] = {
    Simplex: SimplexForm,
    UnitSimplex: UnitSimplexForm,
    L1Ball: L1Form,
    L2Ball: L2Form,
    FreeBall: L2Form,
    LinfBall: BoxForm,
    Box: BoxForm,
    KLBall: KLForm,
    ChiSquareBall: ChiSquareForm,
}
# those of one matrix whose projections are NumPy's up to this many rows or columns, whichever are fewer; the rest of
# their oracles is compiled. Beyond, the leading part of a decomposition costs less than all of it
SPECTRAL: dict[type[ConvexSet], Callable[..., FlatSet]] = {NuclearBall: NuclearForm, Spectrahedron: SpectrahedronForm}
FULL = 256


def flat_set(convex_set: ConvexSet, like: PyTree) -> FlatSet:
    """The set over flat vectors with the entries of `like`: a pytree of arrays, or of jax.ShapeDtypeStruct.

    ValueError if values of that structure and shape do not fit the set.
    """
    shape = Shape.of(like)
    kind = type(convex_set)
    reason = kind.misfit(convex_set, shape.structs)  # equinox makes a module of a method that is taken from one
    if reason is not None:
        raise ValueError(reason)
    if kind in FORMS:
        # a pytree that such a set takes is one vector to it
        of = shape.shapes[0] if len(shape.shapes) == 1 else (shape.size,)
        form = FORMS[kind](convex_set, of, shape.dtype)
        return form if shape.dtype == np.float64 else Widened(convex_set, form)
    if kind in SPECTRAL and len(shape.shapes[0]) == 2 and min(shape.shapes[0]) <= FULL:
        return SPECTRAL[kind](convex_set, shape)
    if isinstance(convex_set, Product) and kind is Product:
        return ProductForm(convex_set, shape)
    if isinstance(convex_set, Penalty) and is_domain(convex_set):
        domain = flat_set(convex_set.region, shape.structs)
        if kind is Indicator:
            return IndicatorForm(convex_set, domain)
        if isinstance(convex_set, SquaredL2) and kind is SquaredL2:
            return SquaredForm(convex_set, domain, shape)
        form = CustomPenaltyForm if _of_users(convex_set) else PenaltyForm
        return form(convex_set, domain, CompiledForm(convex_set, shape))
    return CustomForm(convex_set, shape) if _of_users(convex_set) else CompiledForm(convex_set, shape)


def _of_users(convex_set: ConvexSet) -> bool:
    """Whether its oracles, or those of a set that it is made of, are the user's own code."""
    own = type(convex_set) in (Custom, Prox) or not type(convex_set).__module__.startswith("bisaddle.")
    parts = jax.tree.leaves(list(vars(convex_set).values()), is_leaf=lambda part: isinstance(part, ConvexSet))
    return own or any(isinstance(part, ConvexSet) and _of_users(part) for part in parts)


class ProductForm(FlatSet):
    """Product: one call per innermost block, each on its slice."""

    def __init__(self, of: Product, shape: Shape):
        super().__init__(of, shape.size)
        self._blocks: list[tuple[FlatSet, slice]] = []
        start = 0
        for part, like in of.split(shape.structs):
            form = flat_set(part, like)
            self._blocks += [(block, slice(start + s.start, start + s.stop)) for block, s in form.blocks]
            start += form.size
        self.estimates = frozenset().union(*(block.estimates for block, _ in self._blocks))
        self._diameter: float | None = None

    @property
    def blocks(self) -> list[tuple[FlatSet, slice]]:
        return self._blocks

    def project(self, v: np.ndarray) -> np.ndarray:
        self._require("project")
        return self._join(v, [block.project(v[place]) for block, place in self._blocks])

    def lmo(self, d: np.ndarray) -> np.ndarray:
        self._require("lmo")
        return self._join(d, [block.lmo(d[place]) for block, place in self._blocks])

    def face(self, v: np.ndarray) -> Face:
        self._require("project")
        return joined_faces([block.face(v[place]) for block, place in self._blocks], [at for _, at in self._blocks])

    def violation(self, v: np.ndarray) -> float:
        return math.hypot(*(block.violation(v[place]) for block, place in self._blocks))

    def diameter(self) -> float:
        if self._diameter is None:
            self._diameter = math.hypot(*(block.diameter() for block, _ in self._blocks))
        return self._diameter

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        return math.hypot(*(block.project_error(v[place], p[place]) for block, place in self._blocks))

    def prox_error(self, v: np.ndarray, p: np.ndarray, step: Number) -> float:
        return math.hypot(*(block.prox_error(v[place], p[place], step) for block, place in self._blocks))

    def lmo_error(self, d: np.ndarray, s: np.ndarray) -> float:
        return math.fsum(block.lmo_error(d[place], s[place]) for block, place in self._blocks)

    def prox(self, v: np.ndarray, step: Number) -> np.ndarray:
        return self._join(v, [block.prox(v[place], step) for block, place in self._blocks])

    def penalty(self, v: np.ndarray) -> float:
        return math.fsum(block.penalty(v[place]) for block, place in self._blocks)

    def best_response(self, y: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        answers = [block.best_response(y[place], gradient[place]) for block, place in self._blocks]
        return sum(bound for bound, _ in answers), self._join(y, [point for _, point in answers])

    def _join(self, v: np.ndarray, parts: list[np.ndarray] | tuple[np.ndarray, ...]) -> np.ndarray:
        return np.concatenate(parts, dtype=v.dtype)


def joined_faces(faces: list[Face], places: list[slice]) -> Face:
    """That of a product, from those of its blocks, which lie at these places."""
    if len(faces) == 1:
        return faces[0]

    def each(parts: list[Linear], rows: np.ndarray) -> np.ndarray:
        return np.concatenate([part(rows[..., at]) for part, at in zip(parts, places, strict=True)], axis=-1)

    bends = [face.bend or np.zeros_like for face in faces]
    bend = None if all(face.bend is None for face in faces) else partial(each, bends)
    along = partial(each, [face.along for face in faces])
    return Face(np.concatenate([face.point for face in faces]), along, bend, all(face.free for face in faces))


class Widened(FlatSet):
    """A form in float64 for vectors of another dtype."""

    def __init__(self, of: ConvexSet, inner: FlatSet):
        super().__init__(of, inner.size)
        self.inner = inner

    def project(self, v: np.ndarray) -> np.ndarray:
        return self.inner.project(_wide(v)).astype(v.dtype)

    def lmo(self, d: np.ndarray) -> np.ndarray:
        return self.inner.lmo(_wide(d)).astype(d.dtype)

    def face(self, v: np.ndarray) -> Face:
        point, along, bend, free = self.inner.face(_wide(v))
        narrow = lambda linear: lambda rows: linear(_wide(rows)).astype(rows.dtype)
        return Face(point.astype(v.dtype), narrow(along), None if bend is None else narrow(bend), free)

    def violation(self, v: np.ndarray) -> float:
        return self.inner.violation(_wide(v))

    def diameter(self) -> float:
        return self.inner.diameter()

    def project_error(self, v: np.ndarray, p: np.ndarray) -> float:
        return self.inner.project_error(_wide(v), _wide(p)) + _rounding(p)

    def lmo_error(self, d: np.ndarray, s: np.ndarray) -> float:
        return self.inner.lmo_error(_wide(d), _wide(s)) + length(d) * _rounding(s)

    def best_response(self, y: np.ndarray, gradient: np.ndarray) -> tuple[float, np.ndarray]:
        bound, point = self.inner.best_response(_wide(y), _wide(gradient))
        return bound, point.astype(y.dtype)


def _rounding(v: np.ndarray) -> float:
    """What a vector may have lost when it was cast to its dtype."""
    return float(np.finfo(v.dtype).eps) * length(v)


def _wide(v: np.ndarray) -> np.ndarray:
    return v.astype(np.float64)
