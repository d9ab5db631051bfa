"""Bounds of the slopes, curvatures and third derivatives of losses over folds and groups, and constants from them."""

from typing import NamedTuple

import numpy as np

from bisaddle.apps.folds import Moments, Rows
from bisaddle.apps.multitask_heads import Logistic, Softmax

# of one row's loss in its scores: the largest slope, curvature and third derivative
BOUNDS = {"logistic": Logistic.bounds, "softmax": Softmax.bounds}

# of an f that is linear in y and does not look at x
ZEROS = dict.fromkeys(("L_yy", "mu_y", "L_xx", "L_xtheta", "L_xy", "L_thetax", "L_yx"), 0.0)


class Bounds(NamedTuple):
    """Of L[k, g], block k on the rows of group g that it was trained on, and of h[k, g], on those of fold k.

    slope, curvature, bend: of L, the largest first, second and third derivatives; held_slope, held_curvature: of h.
    """

    slope: np.ndarray
    curvature: np.ndarray
    bend: np.ndarray
    held_slope: np.ndarray
    held_curvature: np.ndarray


def of_moments(data: Moments, reach: float) -> Bounds:
    """For coefficients of length at most reach."""
    gram, cross, left = (np.asarray(part) for part in (data.gram, data.cross, data.left_out))
    kept = (1 - left)[..., None]
    held, held_cross = gram[-1] - kept[..., None] * gram[:-1], cross[-1] - kept * cross[:-1]
    h, held_h = _top(gram), _top(held)
    slopes = (h * reach + np.linalg.norm(cross, axis=-1), held_h * reach + np.linalg.norm(held_cross, axis=-1))
    return Bounds(slopes[0], h, np.zeros_like(h), slopes[1], held_h)


def of_rows(data: Rows, columns: int) -> Bounds:
    """For any coefficients; columns: the number of scores of a row."""
    steep, curved, bent = BOUNDS["logistic" if columns == 1 else "softmax"]
    rows, _, groups, fold = (np.asarray(part).reshape(-1, *part.shape[2:]) for part in data.chunks)
    K, G, d = *data.left_out.shape, rows.shape[1]
    lengths, cubes, grams = np.zeros((K, G)), np.zeros((K, G)), np.zeros((K, G, d, d))
    for k in range(K):
        for g in range(G):
            z = rows[(fold == k) & (groups == g)]
            norms = np.linalg.norm(z, axis=1)
            lengths[k, g], cubes[k, g], grams[k, g] = norms.sum(), np.sum(norms**3), z.T @ z
    by_size = np.asarray(data.outside)
    outside = lambda sums: np.concatenate([sums.sum(axis=0) - sums, sums.sum(axis=0)[None]])
    return Bounds(
        steep * outside(lengths) * by_size,
        curved * _top(outside(grams)) * by_size,
        bent * outside(cubes) * by_size,
        steep * lengths * by_size[-1],
        curved * _top(grams) * by_size[-1],
    )


def _top(matrices: np.ndarray) -> np.ndarray:
    return np.linalg.eigvalsh(matrices)[..., -1]


def upper_constants(
    found: Bounds, data: Moments | Rows, against: str, groups_in_a_block: float = 1.0
) -> dict[str, float]:
    """Of f = sum_kg W_kg h_kg, W from y in the simplex over groups or folds, or the shares of the groups.

    groups_in_a_block: (the largest |coefficients of all groups| / |theta_k|)^2, 2 where c + v_t are those of group t.
    """
    slope, curvature, norm = found.held_slope, found.held_curvature, np.linalg.norm
    shares, left = np.asarray(data.shares), np.asarray(data.left_out)
    if against == "groups":
        bent, across, most = np.max(curvature), norm(slope), norm(slope.max(axis=1))
    else:
        by_fold = shares / (left @ shares)[:, None] if against == "folds" else np.broadcast_to(shares, left.shape)
        steep, bent = np.sum(by_fold * slope, axis=1), np.max(np.sum(by_fold * curvature, axis=1))
        across, most = np.max(steep), np.max(steep) if against == "folds" else norm(steep)
    root = groups_in_a_block**0.5
    known = {"L_thetatheta": groups_in_a_block * float(bent), "C_theta": root * float(most)}
    return ZEROS | known | {"L_thetay": root * float(across), "L_ytheta": root * float(across)}
