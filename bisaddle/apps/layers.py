"""A small network of tanh layers as a shared representation: its start, its set, its features."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps.tasks import require_size
from bisaddle.sets import Box, L2Ball, Product
from bisaddle.trees import Number

Layers = tuple[dict[str, Array], ...]
# the largest |tanh''|
TANH_BEND = 4 / (3 * 3**0.5)


def make(
    width: int, hidden: Sequence[int], radius: Number, seed: int
) -> tuple[tuple[dict[str, np.ndarray], ...], Product]:
    """(random layers, their set): |W|_F <= radius and |shifts| <= radius for every layer.

    Weights have the usual size 1 / sqrt(columns), or less where the ball is smaller.
    """
    radius, rng = require_size("radius", radius), np.random.default_rng(seed)
    if (
        not isinstance(hidden, Sequence)
        or not hidden
        or not all(isinstance(units, int | np.integer) and units >= 1 for units in hidden)
    ):
        raise ValueError(f"hidden must list the units of each layer, whole numbers >= 1, given {hidden!r}")
    layers, sets = [], []
    for columns, units in zip((width, *hidden), hidden, strict=False):
        W = rng.normal(size=(units, columns)) / columns**0.5
        W *= min(1.0, 0.9 * radius / float(np.linalg.norm(W)))
        layers.append({"weights": W, "shifts": rng.uniform(-0.5, 0.5, size=units) * min(1.0, radius)})
        sets.append({"weights": L2Ball(radius), "shifts": Box(-radius, radius)})
    return tuple(layers), Product(tuple(sets))


def diameter(layers: Sequence[dict[str, np.ndarray]], radius: Number) -> float:
    """Of the set of `make`: a ball for the weights and a box for the shifts of every layer."""
    return float(2 * radius * sum(1 + layer["shifts"].size for layer in layers) ** 0.5)


def derivatives(
    layers: Sequence[dict[str, np.ndarray]], radius: Number, lengths: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the first and second derivatives of the features in the layers, for rows of these lengths.

    With z = W h + u, |h| <= b and |dh|, |d^2 h| <= J, S of the layer below, and dx its own part and theirs:
        |dz|^2 <= (b^2 + 1 + radius^2 J^2) |dx|^2,   |d^2 z| <= J + radius S,   |d^2 tanh(z)| <= BEND |dz|^2 + |d^2 z|
    """
    b, J, S = np.asarray(lengths, float), np.zeros(len(lengths)), np.zeros(len(lengths))
    for layer in layers:
        bent = J + radius * S
        J = np.sqrt(b**2 + 1 + radius**2 * J**2)
        S = TANH_BEND * J**2 + bent
        b = np.full(len(lengths), layer["shifts"].size ** 0.5)
    return J, S


class Head(NamedTuple):
    """Of every task, over its rows or pairs of rows: p bounds their features, J and S the derivatives of these.

    slope, curvature, bend: of the loss in the score; r: |theta_i| at most.
    """

    p: float
    J: list[np.ndarray]
    S: list[np.ndarray]
    slope: list[np.ndarray | float]
    curvature: float
    bend: float
    r: float

    def means(self, of) -> np.ndarray:
        """The mean over rows of of(J, S, slope), for every task."""
        return np.array([np.mean(of(*task)) for task in zip(self.J, self.S, self.slope, strict=True)])

    def cross(self) -> np.ndarray:
        """|d^2 l_i / dtheta_i dx|,  z = <theta_i, features>"""
        return self.means(lambda J, S, slope: self.curvature * self.p * self.r * J + slope * J)

    def upper_constants(self) -> dict[str, float]:
        """Of f = sum_i y_i l_i in x, for weights y of sum 1."""
        c, r = self.curvature, self.r
        bent = self.means(lambda J, S, slope: c * r**2 * J**2 + slope * r * S)
        across = float(np.linalg.norm(self.means(lambda J, S, slope: slope * r * J)))
        cross = float(np.max(self.cross()))
        return {"L_xx": float(np.max(bent)), "L_xy": across, "L_yx": across, "L_xtheta": cross, "L_thetax": cross}

    def lower_constants(self) -> dict[str, float]:
        """Of g = sum_i l_i, with a ridge of theta."""
        p, c, b, r = self.p, self.curvature, self.bend, self.r
        along_x = self.means(lambda J, S, slope: b * p * r**2 * J**2 + 2 * c * r * J**2 + c * p * r * S + slope * S)
        twist = float(np.max(self.means(lambda J, S, slope: b * p**2 * r * J + 2 * c * p * J)))
        return {
            "C_thetax": float(np.linalg.norm(self.cross())),
            "L_g_thetax": max(float(np.linalg.norm(along_x)), twist),
            "L_g_thetatheta": max(twist, b * p**3),
        }


def features(layers: Layers, rows: Array) -> Array:
    """The outputs of the last layer, each in (-1, 1)."""
    for layer in layers:
        rows = jnp.tanh(rows @ layer["weights"].T + layer["shifts"])
    return rows


def host_features(layers: Sequence[Mapping[str, Array | np.ndarray]], rows: np.ndarray) -> np.ndarray:
    """The same in NumPy, where a compilation would take longer."""
    for layer in layers:
        rows = np.tanh(rows @ np.asarray(layer["weights"]).T + np.asarray(layer["shifts"]))
    return rows
