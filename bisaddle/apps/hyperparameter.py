"""Hyper-parameters chosen by cross-validation against the worst group, the worst fold or the mean; data cleaning."""

from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps.fold_bounds import BOUNDS, ZEROS, of_moments, of_rows, upper_constants
from bisaddle.apps.folds import checked_labels, checked_table, dealt, label_losses, width
from bisaddle.apps.tasks import diameter, exactly, require_size, require_word
from bisaddle.problem import Constants, Derivatives, Point, Problem
from bisaddle.sets import Box, KLBall, Product, Simplex
from bisaddle.sets.base import ConvexSet
from bisaddle.trees import Number

LOSSES = ("squared", "logistic", "softmax")
AGAINST = ("groups", "folds", "mean")
# log penalties between which the best is looked for, if features have variance 1 and losses are means
LOWEST, HIGHEST = -9.0, 4.0
# of the intercepts of a logistic model, which are free but for it: it makes the lower level strongly convex
FAINT = 1e-5


def tuning(
    features,
    targets,
    groups=None,
    *,
    loss: str = "squared",
    penalties="one",
    reweight: bool = True,
    against: str = "groups",
    protection: Number | str = 0.5,
    folds: int = 3,
    intercept: bool = True,
    bounds: tuple[Number, Number] = (LOWEST, HIGHEST),
    offset=None,
    seed: int = 0,
) -> tuple[Problem, Point]:
    """Penalties and group weights of a linear model, chosen for the groups (or folds) on which it does worst.

        min_{penalty in [low, high]^P, weights in simplex} max_{y in U} sum_g y_g (CV_g(theta) - offset_g)
        theta_k = argmin sum_g weights_g L_g(theta_k; rows outside fold k) + sum_j exp(penalty_{p(j)}) theta_kj^2 / 2
        CV_g    = the mean loss of the rows of group g, each by the block that was trained without its fold

    theta has a block for each fold, and a last one that is trained on all rows: the refit, which f does not look at.
    loss: "squared" (halved; by Gram matrices, with derivatives by hand), "logistic" (two classes) or "softmax".
    penalties: "one", "each" (one for every column), or a list with the penalty's number of each column; the intercept,
    column 0, has none. reweight: False leaves the weights at the shares of the groups.
    against: "groups"; "folds" (y weighs folds); "mean" (no y). protection: U is the KL ball of this radius around the
    shares of the groups (folds); "worst": the whole simplex. Features should be standardised, for the bounds to fit.
    Returns the problem, with its Constants, and the start: shares as weights, the middle of the bounds. Those constants
    that depend on theta hold for |theta_k| <= r, a ball that runs from this start with small steps of theta stay in.
    """
    check_choices(loss, against, bounds)
    data, columns = dealt(features, targets, groups, loss, folds, seed, offset, intercept=intercept)
    kind = kinds(penalties, width(data) - int(intercept), intercept)
    fixed = np.zeros(len(kind))
    fixed[: int(intercept)] = FAINT if columns else 0.0
    made = posed(data, kind, fixed, columns, against, protection, bounds, reweight)
    return with_constants(*made, columns, against)


def posed(
    data: Any,
    kind: np.ndarray,
    fixed: np.ndarray,
    columns: int = 0,
    against: str = "groups",
    protection: Number | str = 0.5,
    bounds: tuple[Number, Number] = (LOWEST, HIGHEST),
    reweight: bool = True,
) -> tuple[Problem, Point]:
    """The problem of `tuning` from Moments, Rows or what has the same left_out, shares, train_losses and held_losses.

    kind[j, p]: 1 if penalty p is that of column j; fixed[j]: a penalty that column j has besides; columns: of theta,
    the number of scores of a row; 0 for least squares.
    """
    K, G = data.left_out.shape
    shares = np.asarray(data.shares)
    centre = shares if against == "groups" else data.left_out @ shares
    sets: dict[str, ConvexSet] = {"penalty": Box(*map(float, bounds))}
    sets["weights"] = Simplex() if reweight else Box(shares, shares)
    y_set, y = (None, None) if against == "mean" else (around(centre, protection), centre)
    by_hand = Derivatives(
        f_x=_f_x,
        f_theta=_F_THETA[columns == 0][against],
        f_y=None if y is None else _F_Y[against],
        **_BY_HAND[columns == 0],
    )
    everything = jax.device_put({"rows": data, "kind": np.asarray(kind, float), "fixed": np.asarray(fixed, float)})
    problem = Problem(_UPPER[against], _lower, Product(sets), y_set, everything, derivatives=by_hand)
    shape = (K + 1, len(kind)) if columns == 0 else (K + 1, len(kind), columns)
    middle = np.full(np.shape(kind)[1], 0.5 * float(bounds[0] + bounds[1]))
    return problem, Point(x={"penalty": middle, "weights": shares}, theta=np.zeros(shape), y=y)


def with_constants(problem: Problem, start: Point, columns: int, against: str) -> tuple[Problem, Point]:
    return Problem(**{**vars(problem), "constants": _constants(problem, columns, against)}), start


def cleaning(
    features,
    targets,
    valid_features,
    valid_targets,
    groups=None,
    *,
    loss: str = "logistic",
    penalty: Number = 0.01,
    protection: Number | str = 0.5,
    intercept: bool = True,
) -> tuple[Problem, Point]:
    """Weights in [0, 1] of training rows, some of them wrong, by which a model does well on rows that are right.

        min_{x in [0, 1]^n} max_{y in U} sum_g y_g (mean loss of theta(x) on the valid rows of group g)
        theta(x) = argmin (1/n) sum_i x_i l_i(theta) + (penalty/2) |theta|^2

    groups: of the valid rows; None: no y, the mean of all. protection: as in `tuning`. The start has all weights 1/2.
    """
    features, _, _ = checked_table(features, None, targets)
    clean, codes, G = checked_table(valid_features, groups, valid_targets, "valid_")
    if clean.shape[1] != features.shape[1]:
        raise ValueError(f"features and valid_features need the same columns, given {features.shape} and {clean.shape}")
    require_word("loss", loss, LOSSES)
    penalty = require_size("penalty", penalty, why=" (it makes the lower level strongly convex)")
    labels, right = checked_labels(targets, loss), checked_labels(valid_targets, loss)
    ones = lambda rows: np.column_stack([np.ones((len(rows), int(intercept))), rows])
    count = int(max(labels.max(), right.max())) + 1 if loss == "softmax" else 1
    kind = np.float64 if loss == "squared" else np.int32
    data = {"rows": ones(features), "targets": labels.astype(kind), "valid_rows": ones(clean)}
    data |= {"valid_targets": right.astype(kind), "groups": codes.astype(np.int32)}
    sizes = np.bincount(codes, minlength=G)
    data |= {"by_size": 1 / sizes, "shares": sizes / sizes.sum(), "penalty": np.asarray(penalty)}
    squared = loss == "squared"
    upper = _CLEAN_UPPER[squared]
    y_set, y = (None, None) if groups is None else (around(data["shares"], protection), data["shares"])
    constants = _clean_constants(data, loss, y_set)
    problem = Problem(upper, _CLEAN_LOWER[squared], Box(0.0, 1.0), y_set, jax.device_put(data), constants=constants)
    shape = (data["rows"].shape[1], count)
    return problem, Point(x=np.full(len(features), 0.5), theta=np.zeros(shape), y=y)


def kinds(penalties, width: int, intercept: bool) -> np.ndarray:
    """(columns, penalties) of 0 and 1: which penalty each column has; the intercept has none."""
    if isinstance(penalties, str):
        if penalties not in ("one", "each"):
            raise ValueError(f'penalties must be "one", "each" or a list of numbers, given {penalties!r}')
        numbers = np.zeros(width, int) if penalties == "one" else np.arange(width)
    else:
        numbers = np.asarray(penalties)
        if (
            numbers.shape != (width,)
            or numbers.dtype.kind not in "iu"
            or sorted({*numbers}) != [*range(max(numbers) + 1)]
        ):
            raise ValueError(
                f"penalties must give each of the {width} columns a number from 0 on, with none left out, "
                f"given {penalties!r}"
            )
    return np.concatenate([np.zeros((int(intercept), numbers.max() + 1)), np.eye(numbers.max() + 1)[numbers]])


def around(shares: np.ndarray, protection: Number | str) -> ConvexSet:
    """The KL ball of this radius around the shares; "worst": the simplex."""
    if isinstance(protection, str):
        if protection != "worst":
            raise ValueError(f'protection must be a number > 0 or "worst", given {protection!r}')
        return Simplex()
    return KLBall(shares, require_size("protection", protection, why=' or "worst" (against="mean" has none)'))


# --- f and g ----------------------------------------------------------------------------------------------------------


def _penalties(x: Any, data: Any) -> Array:
    return data["kind"] @ jnp.exp(x["penalty"]) + data["fixed"]


def _down(column: Array, theta: Array) -> Array:
    """A number for each column, to be multiplied with theta of shape (K, d) or (K, d, C)."""
    return column if theta.ndim == 2 else column[:, None]


def _by_groups(y, rows):
    return jnp.broadcast_to(y, rows.left_out.shape)


def _by_folds(y, rows):
    return (y / (rows.left_out @ rows.shares))[:, None] * rows.shares


def _by_mean(y, rows):
    return jnp.broadcast_to(rows.shares, rows.left_out.shape)


_SPREAD = {"groups": _by_groups, "folds": _by_folds, "mean": _by_mean}


def _upper(x, theta, y, data, against):
    return jnp.sum(_SPREAD[against](y, data["rows"]) * data["rows"].held_losses(theta[:, None]))


def _lower(x, theta, data):
    ridge = 0.5 * jnp.sum(_down(_penalties(x, data), theta) * jnp.square(theta))
    return jnp.sum(x["weights"] * data["rows"].train_losses(theta[:, None])) + ridge


def _f_x(x, theta, y, data):
    return jax.tree.map(jnp.zeros_like, x)


def _f_theta(x, theta, y, data, against):
    rows = data["rows"]
    weight, theta = _SPREAD[against](y, rows), theta[:-1]
    inside = weight * (1 - rows.left_out)
    every = jnp.einsum("kg,gij,kj->ki", weight, rows.gram[-1], theta) - weight @ rows.cross[-1]
    outside = jnp.einsum("kg,kgij,kj->ki", inside, rows.gram[:-1], theta)
    outside = outside - jnp.einsum("kg,kgi->ki", inside, rows.cross[:-1])
    return jnp.concatenate([every - outside, jnp.zeros_like(theta[:1])])


def _f_y(x, theta, y, data, against):
    rows = data["rows"]
    return jax.vjp(lambda y: _SPREAD[against](y, rows), y)[1](rows.held_losses(theta[:, None]))[0]


def _slopes(theta, rows):
    """H_kg theta_k - c_kg, of every block and group"""
    return jnp.einsum("kgij,kj->kgi", rows.gram, theta) - rows.cross


def _g_theta(x, theta, data):
    return jnp.einsum("g,kgi->ki", x["weights"], _slopes(theta, data["rows"])) + _penalties(x, data) * theta


def _g_theta_theta(x, theta, w, data):
    weighted = jnp.einsum("g,kgij->kij", x["weights"], data["rows"].gram)  # first: under vmap it is made once
    return jnp.einsum("kij,kj->ki", weighted, w) + _penalties(x, data) * w


def _g_theta_x(x, theta, w, data):
    along = jnp.einsum("kgi,ki->g", _slopes(theta, data["rows"]), w)
    return {"penalty": jnp.exp(x["penalty"]) * (jnp.sum(theta * w, axis=0) @ data["kind"]), "weights": along}


def _rows_f_theta(x, theta, y, data, against):
    return data["rows"].held_slopes(theta[:, None], _SPREAD[against](y, data["rows"]))[:, 0]


def _rows_g_theta(x, theta, data):
    return data["rows"].train_slopes(theta[:, None], x["weights"])[:, 0] + _penalties(x, data)[:, None] * theta


def _rows_g_theta_theta(x, theta, w, data):
    product = data["rows"].train_products(theta[:, None], w[:, None], x["weights"])[:, 0]
    return product + _penalties(x, data)[:, None] * w


def _rows_g_theta_x(x, theta, w, data):
    along = jnp.sum(data["rows"].train_along(theta[:, None], w[:, None]), axis=0)
    return {"penalty": jnp.exp(x["penalty"]) * (jnp.sum(theta * w, axis=(0, 2)) @ data["kind"]), "weights": along}


# made once, so that they are compiled once
_UPPER, _F_Y, _MOMENTS_F_THETA, _ROWS_F_THETA = (
    {name: partial(function, against=name) for name in AGAINST} for function in (_upper, _f_y, _f_theta, _rows_f_theta)
)
# by whether they are for moments
_F_THETA = {True: _MOMENTS_F_THETA, False: _ROWS_F_THETA}
_BY_HAND = {
    True: {"g_theta": _g_theta, "g_theta_theta": _g_theta_theta, "g_theta_x": _g_theta_x},
    False: {"g_theta": _rows_g_theta, "g_theta_theta": _rows_g_theta_theta, "g_theta_x": _rows_g_theta_x},
}


def _clean_losses(theta, rows, targets, squared):
    scores = rows @ theta
    return 0.5 * jnp.square(scores[:, 0] - targets) if squared else label_losses(scores, targets)


def _clean_upper(x, theta, y, data, squared):
    losses = _clean_losses(theta, data["valid_rows"], data["valid_targets"], squared)
    weights = (data["shares"] if y is None else y) * data["by_size"]
    return jnp.sum(weights[data["groups"]] * losses)


def _clean_lower(x, theta, data, squared):
    losses = _clean_losses(theta, data["rows"], data["targets"], squared)
    return jnp.mean(x * losses) + 0.5 * data["penalty"] * jnp.sum(jnp.square(theta))


_CLEAN_UPPER, _CLEAN_LOWER = (
    {squared: partial(function, squared=squared) for squared in (True, False)}
    for function in (_clean_upper, _clean_lower)
)


# --- constants and checks ---------------------------------------------------------------------------------------------


def _constants(problem: Problem, columns: int, against: str) -> Constants:
    """Exact diameters and zeros; of the others bounds by norms, block by block.

    With z = (1, u), |mean u| <= m in every group and block and a penalty of at least p on u:
        v' H v + p |u part|^2 >= (a + m'u)^2 + p |u|^2,     whose least eigenvalue is that of [[1, m], [m, m^2 + p]]
    r = max |c_kg| / mu_g, or the largest slope by the least penalty:
        |theta_k| <= r goes on to hold after a step of theta with alpha <= 2 / (mu_g + L_g)
    """
    data, norm = problem.data, np.linalg.norm
    rows, fixed, kind = data["rows"], np.asarray(data["fixed"]), np.asarray(data["kind"])
    box: Any = cast(Product, problem.x_set).blocks[0]
    low, high = np.exp(float(box.lower)), np.exp(float(box.upper))
    least, most = float(np.min(kind @ np.full(kind.shape[1], low) + fixed)), float(np.max(high + fixed))
    K, G = rows.left_out.shape
    if columns:
        found = of_rows(rows, columns)
        r = float(np.max(found.slope)) / least
    else:
        if least == 0:  # the intercept
            m2 = float(np.max(np.sum(np.asarray(rows.gram)[:, :, 0, 1:] ** 2, axis=-1)))
            trace = 1 + m2 + low
            least = float(2 * low / (trace + np.sqrt(trace**2 - 4 * low)))
        r = float(np.max(norm(np.asarray(rows.cross), axis=-1))) / least
        found = of_moments(rows, r)
    sizes = {"D_X": float(np.hypot(np.log(high / low) * kind.shape[1] ** 0.5, 2**0.5 if G > 1 else 0.0))}
    if problem.y_set is not None:
        sizes |= {"D_Y": diameter(problem.y_set, (G if against == "groups" else K,))}
    scaled = (K + 1) ** 0.5 * high * r
    spread = float(np.hypot(np.max(norm(found.curvature, axis=1)), high))
    sizes |= {"mu_g": least, "L_g": float(np.max(found.curvature)) + most} | upper_constants(found, rows, against)
    sizes |= {"C_thetax": float(np.hypot(norm(found.slope), scaled)), "L_g_thetax": max(spread, scaled)}
    return exactly(sizes | {"L_g_thetatheta": max(spread, float(np.max(found.bend)))})


def _clean_constants(data: dict, loss: str, y_set: ConvexSet | None) -> Constants:
    """Exact mu_g and diameters, zeros, and of the others bounds by norms.

        n g_theta_x has the column l_i'(theta),     n d(g_theta_theta) = sum_i dx_i l_i'' + x_i dl_i''
    Squares: |theta| <= r = mean of |z_i t_i| / penalty goes on to hold after a step of theta.
    """
    rows, valid, n, penalty = data["rows"], data["valid_rows"], len(data["rows"]), float(data["penalty"])
    length, valid_length = np.linalg.norm(rows, axis=1), np.linalg.norm(valid, axis=1)
    if loss == "squared":
        curved, bent, r = 1.0, 0.0, float(np.mean(length * np.abs(data["targets"]))) / penalty
        steep, valid_steep = (
            size**2 * r + size * np.abs(targets)
            for size, targets in ((length, data["targets"]), (valid_length, data["valid_targets"]))
        )
    else:
        slope, curved, bent = BOUNDS[loss]
        steep, valid_steep = slope * length, slope * valid_length
    known = ZEROS | {"mu_g": penalty, "L_g": curved * _top(rows.T @ rows) / n + penalty, "D_X": n**0.5}
    mine = [data["groups"] == g for g in range(len(data["shares"]))]
    slopes = np.array([np.mean(valid_steep[own]) for own in mine])
    bends = curved * np.array([_top(valid[own].T @ valid[own]) / np.sum(own) for own in mine])
    mixed = np.max if y_set is not None else (lambda values: data["shares"] @ values)
    twist = float(np.linalg.norm(length**2)) * curved / n
    known |= {"C_thetax": float(np.linalg.norm(steep)) / n, "L_g_thetax": twist}
    known |= {"L_g_thetatheta": max(twist, bent * float(np.mean(length**3)))}
    known |= {"L_thetatheta": float(mixed(bends)), "C_theta": float(mixed(slopes))}
    known |= {"L_thetay": float(np.linalg.norm(slopes)), "L_ytheta": float(np.linalg.norm(slopes))}
    return exactly(known if y_set is None else known | {"D_Y": diameter(y_set, slopes.shape)})


def _top(matrix: np.ndarray) -> float:
    return float(np.linalg.eigvalsh(matrix)[-1])


def check_choices(loss: str, against: str, bounds) -> None:
    require_word("loss", loss, LOSSES)
    require_word("against", against, AGAINST)
    if np.shape(bounds) != (2,) or not np.all(np.isfinite(bounds)) or not bounds[0] < bounds[1]:
        raise ValueError(f"bounds must be two finite logarithms of penalties, the lower one first, given {bounds}")
