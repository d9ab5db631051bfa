"""A small network of tanh layers as a shared representation: its start, its set, its features."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.apps.tasks import require_size
from bisaddle.sets import Box, L2Ball, Product
from bisaddle.trees import Number

Layers = tuple[dict[str, Array], ...]


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
