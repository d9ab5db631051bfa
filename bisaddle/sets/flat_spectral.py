"""Spectral sets of one matrix over flat vectors: projections, and their faces, by NumPy's decompositions.

NumPy's run on one thread while a problem is solved, and nothing is compiled for them. A face is written in the vectors
of the positive values and the others, so that its products cost what its rank asks for.
"""

from functools import partial

import numpy as np

from bisaddle.sets.flat_base import Face, Linear, all_finite
from bisaddle.sets.flat_compiled import CompiledForm
from bisaddle.sets.flat_forms import in_dtype, nearest_on_simplex, sums_to_at_most
from bisaddle.sets.spectral import NuclearBall
from bisaddle.sets.symmetric import Spectrahedron
from bisaddle.trees import Shape

# of a derivative between two values, below which the border is an edge there: no step can turn around it
EDGE = 1e-10
# entries relative to the radius: beyond, the set itself is asked, which scales first
FAR = 1e6


class SpectralForm(CompiledForm):
    """A subclass writes matrix_face, for a matrix in float64. What is no projection is compiled, as for other sets."""

    def __init__(self, of: NuclearBall | Spectrahedron, shape: Shape):
        super().__init__(of, shape)
        self.radius = in_dtype(of.radius, shape.dtype)
        self.rows, self.columns = shape.shapes[0]

    def project(self, v: np.ndarray) -> np.ndarray:
        return self.face(v).point

    def face(self, v: np.ndarray) -> Face:
        if not all_finite(v):
            return Face(np.full_like(v, np.nan), lambda rows: np.full_like(rows, np.nan))
        if np.max(np.abs(v)) > FAR * self.radius:  # values far apart from the radius lose its digits
            return super().face(v)
        try:
            with np.errstate(divide="ignore"):  # equal values, which no step can turn apart
                point, along, bend, free = self.matrix_face(v.reshape(self.rows, self.columns).astype(np.float64))
        except np.linalg.LinAlgError:  # another implementation may find what NumPy's has not
            return super().face(v)
        matrices = lambda rows: rows.reshape(-1, self.rows, self.columns).astype(np.float64)
        flat = lambda linear: lambda rows: linear(matrices(rows)).reshape(rows.shape).astype(rows.dtype)
        return Face(point.ravel().astype(v.dtype), flat(along), None if bend is None else flat(bend), free)

    def matrix_face(self, v: np.ndarray) -> Face:
        raise NotImplementedError

    def _values(self, values: np.ndarray) -> np.ndarray:
        """The projection of values in falling order; those that come out as 0 do so exactly, and do not count."""
        # at values[0] - radius, where the threshold may lie, rounding would leave a trace of them
        return nearest_on_simplex(np.maximum(values, values[0] - 2 * self.radius), self.radius)


class SpectrahedronForm(SpectralForm):
    """Spectrahedron: by the eigenvectors of the symmetric part."""

    def matrix_face(self, v: np.ndarray) -> Face:
        values, q = np.linalg.eigh(_even(v))
        values, q = values[::-1], q[:, ::-1]
        f = self._values(values)
        r = int(np.count_nonzero(f))
        first, others = q[:, :r], q[:, r:]
        point = _even(v) if np.array_equal(f, values) else _even((first * f[:r]) @ first.T)
        # between a positive value and one that is none, the derivative of the values' projection
        ratio = f[:r, None] / (values[:r, None] - values[r:])

        def weighted(own: Linear, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
            left = first.T @ _even(rows)
            half = 0.5 * own(left @ first) @ first.T + (weights * (left @ others)) @ others.T
            answer = first @ half
            return answer + answer.swapaxes(-1, -2)

        kept, bends = _bends(ratio)
        return Face(point, partial(weighted, _traceless, kept), partial(weighted, np.zeros_like, bends))


class NuclearForm(SpectralForm):
    """NuclearBall: by the singular vectors."""

    def matrix_face(self, v: np.ndarray) -> Face:
        if self.rows < self.columns:
            return _turned(self._tall_face(np.ascontiguousarray(v.T)))
        return self._tall_face(v)

    def _tall_face(self, v: np.ndarray) -> Face:
        u, s, wt = np.linalg.svd(v, full_matrices=False)
        if sums_to_at_most(s, self.radius):
            return Face(v.copy(), np.array, free=True)
        f = self._values(s)
        r = int(np.count_nonzero(f))
        (u, u_others), (w, w_others) = (np.split(part, [r], axis=1) for part in (u, wt.T))
        f, s, s_others = f[:r], s[:r], s[r:]
        point = (u * f) @ w.T
        # the derivative of the values' projection along turns of the vectors: of two positive ones against each other
        # (with them it is the identity), of one with and against one that is not, and out of the span of all
        against = (f[:, None] + f) / (s[:, None] + s)
        mixed = f[:, None] / (s[:, None] - s_others), f[:, None] / (s[:, None] + s_others)
        out = f / s

        def weighted(own: Linear, odd, both, outside, rows: np.ndarray) -> np.ndarray:
            left, right = u.T @ rows, rows @ w
            middle, upper, lower = left @ w, left @ w_others, (u_others.T @ right).swapaxes(-1, -2)
            even, uneven = _even(middle), middle - _even(middle)
            with_, apart = both[0] * 0.5 * (upper + lower), both[1] * 0.5 * (upper - lower)
            inner = (own(even) + odd * uneven) @ w.T + (with_ + apart) @ w_others.T
            beyond = right - u @ middle - u_others @ lower.swapaxes(-1, -2)
            outer = u_others @ (with_ - apart).swapaxes(-1, -2) + beyond * outside
            return u @ inner + outer @ w.T

        kept, bends = zip(*(_bends(part) for part in (against, *mixed, out)), strict=True)
        along = partial(weighted, _traceless, kept[0], kept[1:3], kept[3])
        return Face(point, along, partial(weighted, np.zeros_like, bends[0], bends[1:3], bends[3]))


def _bends(derivative: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where a derivative between 0 and 1 is one, and 1 / derivative - 1 there."""
    kept = derivative > EDGE  # infinite where values are equal to the last bit: then it is 1
    return kept.astype(float), np.maximum(1 / np.where(kept, derivative, 1) - 1, 0)


def _even(v: np.ndarray) -> np.ndarray:
    return 0.5 * (v + v.swapaxes(-1, -2))


def _traceless(v: np.ndarray) -> np.ndarray:
    size = v.shape[-1]
    return v - np.trace(v, axis1=-2, axis2=-1)[..., None, None] / max(size, 1) * np.eye(size)


def _turned(face: Face) -> Face:
    turned = lambda linear: lambda rows: linear(rows.swapaxes(-1, -2)).swapaxes(-1, -2)
    return Face(face.point.T, turned(face.along), None if face.bend is None else turned(face.bend), face.free)
