"""Rows dealt into folds, and what a cross-validated model needs of them: moments (least squares) or the rows.

Block k < K of a model is trained without fold k; block K on all rows, so that it is the refit.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps.tasks import as_numbers

# rows that are looked at together
CHUNK = 512
# NumPy's while the data are made, JAX's in a problem
Leaf = Any


class Moments(NamedTuple):
    """Means of z z', z t, t^2 over the rows of group g outside fold k (k = K: over all), and the share of g in fold k.

    shares: of the groups among all rows. offset: what is taken off the loss of each group.
    """

    gram: Leaf
    cross: Leaf
    square: Leaf
    left_out: Leaf
    shares: Leaf
    offset: Leaf

    def train_losses(self, coef: Array) -> Array:
        """L[k, g] of block k on the rows of group g that it was trained on: |z' coef_kg - t|^2 / 2, the mean.

        coef: (blocks, groups, columns), or (blocks, 1, columns) for one model of all groups.
        """
        return half_squares(self.gram, self.cross, self.square, coef)

    def held_losses(self, coef: Array) -> Array:
        """h[k, g]: the sum over fold k of group g, by the number of all rows of g, so that sum_k h[k, g] is its mean.

        All rows without those outside the fold: h = L_all(coef_k) - (1 - left_out) L_outside(coef_k).
        """
        coef = coef[:-1]
        every = half_squares(self.gram[-1], self.cross[-1], self.square[-1], coef)
        outside = half_squares(self.gram[:-1], self.cross[:-1], self.square[:-1], coef)
        return every - (1 - self.left_out) * outside - self.left_out * self.offset

    def held_slopes(self, coef: Array, weights: Array) -> Array:
        """The gradient in coef of sum_kg weights_kg held_losses_kg; weights: (folds, groups)."""
        part = coef[:-1]
        inside = (weights * (1 - self.left_out))[..., None]
        every = weights[..., None] * (jnp.einsum("gij,kgj->kgi", self.gram[-1], part) - self.cross[-1])
        outside = inside * (jnp.einsum("kgij,kgj->kgi", self.gram[:-1], part) - self.cross[:-1])
        return jnp.concatenate([every - outside, jnp.zeros_like(coef[:1])])

    def train_slopes(self, coef: Array, weights: Array) -> Array:
        """The gradient in coef of sum_kg weights_g train_losses_kg."""
        return weights[:, None] * (jnp.einsum("kgij,kgj->kgi", self.gram, coef) - self.cross)

    def train_products(self, coef: Array, w: Array, weights: Array) -> Array:
        """How train_slopes changes along w."""
        return weights[:, None] * jnp.einsum("kgij,kgj->kgi", self.gram, w)

    def train_along(self, coef: Array, w: Array) -> Array:
        """(blocks, groups): how train_losses change along w."""
        return jnp.sum(w * (jnp.einsum("kgij,kgj->kgi", self.gram, coef) - self.cross), axis=-1)


class Chunk(NamedTuple):
    """Some of the rows of Rows, with their labels, groups and folds."""

    rows: Leaf
    labels: Leaf
    groups: Leaf
    fold: Leaf

    def outside(self, blocks: int) -> Array:
        """(blocks, rows): whether block k was trained on it."""
        return (self.fold != jnp.arange(blocks)[:, None]) & (self.fold >= 0)

    def inside(self, blocks: int) -> Array:
        """(blocks, rows): whether it is in fold k."""
        return self.fold == jnp.arange(blocks)[:, None]


class Rows(eqx.Module):
    """Rows z with labels 0, 1, ..., in chunks (chunks, rows of each, ...); a row of fold -1 only fills up its chunk.

    outside[k, g]: one over the number of rows of group g outside fold k; left_out, shares, offset: as in Moments.
    copies: the group that stands in each place, so that one may stand in several.
    Sums over rows are taken a chunk at a time, and so are their derivatives: nothing as large as the data is made.
    """

    chunks: Chunk
    copies: Leaf
    outside: Leaf
    left_out: Leaf
    shares: Leaf
    offset: Leaf

    def row_losses(self, coef: Array, part: Chunk) -> Array:
        """(blocks, rows) of coefficients (blocks, groups or 1, columns, scores of a row)."""
        return label_losses(row_scores(coef, part), part.labels)

    def train_losses(self, coef: Array) -> Array:
        """As of Moments; coef has a last axis, of the scores of a row."""
        losses = lambda part: self.row_losses(coef, part) * part.outside(len(coef))
        return self._by_group(losses) * self.outside

    def held_losses(self, coef: Array) -> Array:
        losses = lambda part: self.row_losses(coef[:-1], part) * part.inside(len(coef) - 1)
        return self._by_group(losses) * self.outside[-1] - self.left_out * self.offset

    def held_slopes(self, coef: Array, weights: Array) -> Array:
        spread = self._weights(weights * self.outside[-1])
        total = lambda c, part: jnp.sum(spread(part) * part.inside(len(c)) * self.row_losses(c, part))
        found = over_chunks(lambda part: jax.grad(total)(coef[:-1], part), self.chunks)
        return jnp.concatenate([found, jnp.zeros_like(coef[:1])])

    def train_slopes(self, coef: Array, weights: Array) -> Array:
        slopes = self._slopes(weights)
        return over_chunks(lambda part: slopes(coef, part), self.chunks)

    def train_products(self, coef: Array, w: Array, weights: Array) -> Array:
        slopes = self._slopes(weights)
        return over_chunks(lambda part: jax.jvp(lambda c: slopes(c, part), (coef,), (w,))[1], self.chunks)

    def train_along(self, coef: Array, w: Array) -> Array:
        along = lambda part: jax.jvp(lambda c: self.row_losses(c, part), (coef,), (w,))[1] * part.outside(len(coef))
        return self._by_group(along) * self.outside

    def _slopes(self, weights: Array) -> Callable[[Array, Chunk], Array]:
        spread = self._weights(weights * self.outside)
        return jax.grad(lambda c, part: jnp.sum(spread(part) * part.outside(len(c)) * self.row_losses(c, part)))

    def _weights(self, weights: Array) -> Callable[[Chunk], Array]:
        """(blocks, rows of a chunk), of weights for each place."""
        found = jnp.zeros_like(weights).at[:, self.copies].add(weights)
        return lambda part: found[:, part.groups]

    def _by_group(self, values: Callable[[Chunk], Array]) -> Array:
        """(blocks, groups), sums of values (blocks, rows) of a chunk."""
        summed = jax.vmap(lambda row, groups: jax.ops.segment_sum(row, groups, len(self.shares)), (0, None))
        return over_chunks(lambda part: summed(values(part), part.groups), self.chunks)[:, self.copies]


def over_chunks(function: Callable[[Chunk], Any], chunks: Chunk) -> Any:
    """The sum of the function over all chunks; whatever it makes of one is made again where it is differentiated."""
    one = lambda i: jax.tree.map(lambda leaf: leaf[i], chunks)
    if len(chunks.rows) == 1:
        return function(one(0))
    again = jax.checkpoint(function)
    add = lambda total, part: (total + again(part), None)
    like = jax.eval_shape(function, one(0))
    return jax.lax.scan(add, jnp.zeros(like.shape, like.dtype), chunks)[0]


def row_scores(coef: Array, part: Chunk) -> Array:
    """(blocks, rows, scores of a row)"""
    groups = coef.shape[1]
    if groups == 1:
        return jnp.einsum("nd,kdc->knc", part.rows, coef[:, 0])
    if groups <= coef.shape[2]:  # the scores of a row by all models are fewer than the coefficients of one
        every = jnp.einsum("nd,kgdc->kngc", part.rows, coef)
        return jnp.einsum("kngc,ng->knc", every, jax.nn.one_hot(part.groups, groups, dtype=coef.dtype))
    return jnp.einsum("nd,kndc->knc", part.rows, coef[:, part.groups])


def width(data: Moments | Rows) -> int:
    """The number of columns."""
    return (data.gram if isinstance(data, Moments) else data.chunks.rows).shape[-1]


def half_squares(gram: Array, cross: Array, square: Array, theta: Array) -> Array:
    """The mean of (z' theta - t)^2 / 2 from the moments."""
    return 0.5 * (jnp.sum(theta * (jnp.einsum("...ij,...j->...i", gram, theta) - 2 * cross), axis=-1) + square)


def label_losses(scores: Array, labels: Array) -> Array:
    """The logistic loss of one score, labels 0 or 1; the softmax loss of several, labels 0, 1, ..."""
    if scores.shape[-1] == 1:
        return jax.nn.softplus(scores[..., 0]) - labels * scores[..., 0]
    hot = jax.nn.one_hot(labels, scores.shape[-1], dtype=scores.dtype)
    return jax.nn.logsumexp(scores, axis=-1) - jnp.sum(hot * scores, axis=-1)


def deal(groups: np.ndarray, folds: int, seed, labels: np.ndarray | None = None) -> np.ndarray:
    """The fold of every row: those of a group (and of a label in it) are shuffled and dealt out in turn."""
    rng = np.random.default_rng(seed)
    keys = (rng.random(len(groups)), *(() if labels is None else (labels,)), groups)
    fold = np.empty(len(groups), np.int32)
    fold[np.lexsort(keys)] = np.arange(len(groups)) % folds
    return fold


def sums(
    features: np.ndarray,
    targets: np.ndarray,
    groups: np.ndarray,
    fold: np.ndarray,
    sizes: tuple[int, int],
    intercept: bool = True,
    shift: np.ndarray | None = None,
    scale: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(sums of u u' over the rows of each fold and group, their counts), u = (1, (features - shift) / scale, target).

    sizes: (folds, groups). A chunk of rows is copied at a time, so that nothing as large as the data is made.
    """
    K, G = sizes
    d = features.shape[1]
    shift = np.zeros(d) if shift is None else shift
    scale = np.ones(d) if scale is None else scale
    cell = fold.astype(np.int64) * G + groups
    order = np.argsort(cell, kind="stable")
    counts = np.bincount(cell, minlength=K * G)
    ends = np.cumsum(counts)
    first = int(intercept)
    found = np.zeros((K * G, first + d + 1, first + d + 1))
    u = np.empty((min(CHUNK, len(cell)), first + d + 1))
    for place, (end, count) in enumerate(zip(ends, counts, strict=True)):
        for start in range(end - count, end, CHUNK):
            rows = order[start : min(start + CHUNK, end)]
            part = u[: len(rows)]
            part[:, :first] = 1
            np.subtract(features[rows], shift, out=part[:, first:-1])
            part[:, first:-1] /= scale
            part[:, -1] = targets[rows]
            found[place] += part.T @ part
    return found.reshape(K, G, *found.shape[1:]), counts.reshape(K, G)


def moments(found: np.ndarray, counts: np.ndarray, offset: np.ndarray | None = None) -> Moments:
    """Moments from the sums and counts of every fold and group; every group needs a row outside each fold."""
    total, size = found.sum(axis=0), counts.sum(axis=0)
    outside = np.concatenate([total - found, total[None]])
    mean = outside / np.concatenate([size - counts, size[None]])[..., None, None]
    return Moments(
        np.ascontiguousarray(mean[..., :-1, :-1]),
        np.ascontiguousarray(mean[..., :-1, -1]),
        np.ascontiguousarray(mean[..., -1, -1]),
        counts / size,
        size / size.sum(),
        np.zeros(len(size)) if offset is None else np.asarray(offset, float),
    )


def labelled(
    features: np.ndarray,
    labels: np.ndarray,
    groups: np.ndarray,
    fold: np.ndarray,
    sizes: tuple[int, int],
    offset: np.ndarray | None = None,
    *,
    intercept: bool = True,
    shift: np.ndarray | float = 0.0,
    scale: np.ndarray | float = 1.0,
    shape: tuple[int, int, int] | None = None,
) -> Rows:
    """Rows (1, (features - shift) / scale), or without the 1; sizes: (folds, groups).

    shape: (chunks, rows of each, columns), to be filled up with zeros; None: as few as hold them.
    """
    K, G = sizes
    n, first = len(features), int(intercept)
    if shape is None:
        shape = (-(-n // CHUNK), min(n, CHUNK), first + features.shape[1])
    rows = on_a_border(shape)
    flat = rows.reshape(-1, shape[2])
    flat[:n, :first] = 1
    for start in range(0, n, CHUNK):
        part = flat[start : min(start + CHUNK, n), first : first + features.shape[1]]
        np.subtract(features[start : start + CHUNK], shift, out=part)
        part /= scale
    columns = []
    for given, empty in ((labels, 0), (groups, 0), (fold, -1)):
        column = np.full(shape[:2], empty, np.int32)
        column.reshape(-1)[:n] = given
        columns.append(column)
    counts = np.bincount(fold.astype(np.int64) * G + groups, minlength=K * G).reshape(K, G)
    size = counts.sum(axis=0)
    outside = 1 / np.concatenate([size - counts, size[None]])
    offset = np.zeros(G) if offset is None else np.asarray(offset, float)
    whole = np.arange(G, dtype=np.int32)
    return Rows(Chunk(rows, *columns), whole, outside, counts / size, size / size.sum(), offset)


def dealt(
    features, targets, groups, loss: str, folds: int, seed: int, offset, what: str = "groups", intercept: bool = True
) -> tuple[Moments | Rows, int]:
    """A table, checked and dealt into folds, and the number of scores of a row; 0 for least squares."""
    features, codes, count = checked_table(features, groups, targets, what=what, folds=folds)
    labels, offset = checked_labels(targets, loss), checked_offset(offset, count)
    if loss == "squared":
        fold = deal(codes, folds, seed)
        return moments(*sums(features, labels, codes, fold, (folds, count), intercept), offset), 0
    fold = deal(codes, folds, seed, labels)
    data = labelled(features, labels, codes, fold, (folds, count), offset, intercept=intercept)
    return data, 1 if loss == "logistic" else int(labels.max()) + 1


def on_a_border(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros that begin where JAX takes them as they lie; others it copies."""
    size, border = 8 * int(np.prod(shape)), 64
    room = np.zeros(size + border, np.uint8)
    start = -room.ctypes.data % border
    return room[start : start + size].view(np.float64).reshape(shape)


def as_codes(values, what: str, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(the distinct values, the place of each row's value among them); ValueError for what cannot be a label."""
    array = np.asarray(values)
    if array.ndim != 1 or len(array) != count:
        raise ValueError(f"{what} must have one entry for each of the {count} rows, given shape {array.shape}")
    if any(map(_missing, array)) if array.dtype.kind == "O" else array.dtype.kind == "f" and np.any(np.isnan(array)):
        raise ValueError(f"{what} must not be missing, given None or NaN; give such rows a label of their own")
    try:
        distinct, codes = np.unique(array, return_inverse=True)
    except TypeError:
        raise ValueError(f"{what} must be of one kind, all numbers or all text, given a mixture") from None
    return distinct, codes.reshape(-1)


def _missing(value) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA has no truth value
        return True


def checked_table(
    features, groups, targets, prefix: str = "", what: str = "groups", folds: int = 0
) -> tuple[np.ndarray, np.ndarray, int]:
    """(features, the place of each row's group, their number); folds: into which groups are to be dealt, 0: none."""
    features = as_numbers(f"{prefix}features", features)
    if features.ndim != 2 or features.size == 0:
        raise ValueError(f"{prefix}features must be a table (rows, columns) with entries, given shape {features.shape}")
    if not np.all(np.isfinite(features)):
        raise ValueError(f"{prefix}features must be finite, given NaN or infinity; fill or drop such rows first")
    if np.shape(targets) != (len(features),):
        raise ValueError(
            f"{prefix}targets must have one entry for each of the {len(features)} rows, given shape {np.shape(targets)}"
        )
    if folds != 0 and (isinstance(folds, bool) or not isinstance(folds, int | np.integer) or folds < 2):
        raise ValueError(f"folds must be a whole number >= 2, given {folds!r}")
    if groups is None:
        enough_rows(len(features), folds)
        return features, np.zeros(len(features), int), 1
    distinct, codes = as_codes(groups, what, len(features))
    counts = np.bincount(codes)
    enough_rows(int(counts.min()), folds, f"{what[:-1]} '{distinct[np.argmin(counts)]}'", what)
    return features, codes, len(distinct)


def enough_rows(rows: int, folds: int, whose: str = "the table", what: str = "") -> None:
    """ValueError unless there is one for each fold."""
    if rows < folds:
        advice = f"merge small {what}, drop them, or use fewer folds" if what else "use fewer folds"
        raise ValueError(f"{whose} has {rows} row{'s' * (rows != 1)} for folds={folds}, and needs as many; {advice}")


def checked_labels(targets, loss: str) -> np.ndarray:
    if loss == "squared":
        array = as_numbers("targets", targets)
        if not np.all(np.isfinite(array)):
            raise ValueError("targets must be finite, given NaN or infinity; drop such rows")
        return array
    array = np.asarray(targets)
    classes = np.unique(array)
    if array.dtype.kind not in "biuf" or len(classes) < 2 or not np.array_equal(classes, np.arange(len(classes))):
        needed = "0 and 1" if loss == "logistic" else "0, 1, ..., C - 1, each at least once,"
        given = ", ".join(map(str, classes[:4].tolist())) + (", ..." if len(classes) > 4 else "")
        advice = '; use loss="squared" for numbers' if array.dtype.kind == "f" and len(classes) > 10 else ""
        raise ValueError(f"loss={loss!r} needs whole numbers {needed} as targets, given {given}{advice}")
    if loss == "logistic" and len(classes) > 2:
        raise ValueError(f'loss="logistic" needs two classes, given {len(classes)}; use loss="softmax"')
    return array.astype(int)


def checked_offset(offset, groups: int) -> np.ndarray | None:
    if offset is None:
        return None
    array = as_numbers("offset", offset)
    if array.shape != (groups,) or not np.all(np.isfinite(array)):
        raise ValueError(f"offset must have a finite number for each of the {groups} groups, given {offset!r}")
    return array
