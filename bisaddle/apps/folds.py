"""Rows dealt into folds, and what a cross-validated model needs of them: moments (least squares) or the rows.

Block k < K of a model is trained without fold k; block K on all rows, so that it is the refit.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps.tasks import as_numbers

# rows that are standardised at a time
CHUNK = 8192
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


class Rows(NamedTuple):
    """Rows z with labels: targets (n, 1) of 0 and 1, or (n, C) with a 1 for the class; real: 0 for rows that only pad.

    outside[k, g]: one over the number of rows of group g outside fold k; left_out, shares, offset: as in Moments.
    copies: the group that stands in each place, so that one may stand in several.
    """

    rows: Leaf
    targets: Leaf
    groups: Leaf
    fold: Leaf
    real: Leaf
    copies: Leaf
    outside: Leaf
    left_out: Leaf
    shares: Leaf
    offset: Leaf

    def train_losses(self, coef: Array) -> Array:
        """As of Moments; coef has a last axis, of the scores of a row."""
        return self.trained(self.row_losses(coef))

    def held_losses(self, coef: Array) -> Array:
        return self.held(self.row_losses(coef[:-1]))

    def trained(self, losses: Array) -> Array:
        """Means over the rows of each group outside fold k, of losses (blocks, rows)."""
        inside = self.fold != jnp.arange(len(losses))[:, None]
        return self.by_group(losses * inside * self.real) * self.outside

    def held(self, losses: Array) -> Array:
        """Sums over the rows of each group in fold k, by the number of all its rows, less the offset."""
        inside = self.fold == jnp.arange(len(losses))[:, None]
        return self.by_group(losses * inside * self.real) * self.outside[-1] - self.left_out * self.offset

    def row_losses(self, coef: Array) -> Array:
        """(blocks, rows)"""
        if coef.shape[1] == 1:
            scores = jnp.einsum("nd,kdc->knc", self.rows, coef[:, 0])
        elif coef.shape[1] <= coef.shape[2]:  # the scores of a row by all models are fewer than the coefficients of one
            scores = jnp.einsum("nd,kgdc->kngc", self.rows, coef)
            scores = jnp.take_along_axis(scores, self.groups[None, :, None, None], axis=2)[:, :, 0]
        else:
            scores = jnp.einsum("nd,kndc->knc", self.rows, coef[:, self.groups])
        return label_losses(scores, self.targets)

    def by_group(self, losses: Array) -> Array:
        """(blocks, rows) -> (blocks, groups), sums"""
        found = jax.vmap(lambda row: jax.ops.segment_sum(row, self.groups, len(self.shares)))(losses)
        return found[:, self.copies]


def half_squares(gram: Array, cross: Array, square: Array, theta: Array) -> Array:
    """The mean of (z' theta - t)^2 / 2 from the moments."""
    return 0.5 * (jnp.sum(theta * (jnp.einsum("...ij,...j->...i", gram, theta) - 2 * cross), axis=-1) + square)


def label_losses(scores: Array, targets: Array) -> Array:
    """The logistic loss of one score, targets 0 or 1; the softmax loss of several, targets a 1 for the class."""
    if scores.shape[-1] == 1:
        return (jax.nn.softplus(scores) - targets * scores)[..., 0]
    return jax.nn.logsumexp(scores, axis=-1) - jnp.sum(targets * scores, axis=-1)


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
    rows: np.ndarray,
    targets: np.ndarray,
    groups: np.ndarray,
    fold: np.ndarray,
    sizes: tuple[int, int],
    offset: np.ndarray | None = None,
) -> Rows:
    """Rows from arrays; sizes: (folds, groups)."""
    K, G = sizes
    counts = np.bincount(fold.astype(np.int64) * G + groups, minlength=K * G).reshape(K, G)
    size = counts.sum(axis=0)
    outside = 1 / np.concatenate([size - counts, size[None]])
    offset = np.zeros(G) if offset is None else np.asarray(offset, float)
    whole = (groups.astype(np.int32), fold.astype(np.int32), np.ones(len(rows)), np.arange(G, dtype=np.int32))
    return Rows(rows, targets, *whole, outside, counts / size, size / size.sum(), offset)


def one_hot(labels: np.ndarray, columns: int) -> np.ndarray:
    """Targets for so many scores of a row: (n, 1) of 0 and 1 for a single one, else (n, C) with a 1 for the class."""
    return labels[:, None].astype(float) if columns == 1 else np.eye(columns)[labels]


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
    if folds > len(features):
        raise ValueError(f"folds must be at most the number of rows, {len(features)}, given {folds}")
    if groups is None:
        return features, np.zeros(len(features), int), 1
    distinct, codes = as_codes(groups, what, len(features))
    counts = np.bincount(codes)
    if folds and counts.min() < 2:
        raise ValueError(
            f"every {what[:-1]} needs at least 2 rows, for the folds; {what[:-1]} {distinct[np.argmin(counts)]} has "
            f"one: merge small {what}, or drop them"
        )
    return features, codes, len(distinct)


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
        raise ValueError(f"loss={loss!r} needs whole numbers {needed} as targets, given {classes[:10]}")
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
