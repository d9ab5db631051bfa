"""Where the inner solves of Adaptive begin: theta and w extrapolated from the places looked at last."""

import numpy as np

from bisaddle.kernels import Vector

PLACES = 10
ENTRIES = 2**25  # of all rows together; beyond, a solve begins where the last one ended


class Recall:
    """The last evaluations, the newest first, each a flat row."""

    def __init__(self) -> None:
        self.places: list[tuple[Vector, Vector, Vector, Vector]] = []

    @staticmethod
    def fits(*parts: Vector) -> bool:
        """Whether all places together take little enough memory."""
        return PLACES * sum(part.size for part in parts) <= ENTRIES

    def add(self, x: Vector, y: Vector, theta: Vector, w: Vector) -> None:
        self.places = [(x, y, theta, w), *self.places[: PLACES - 1]]

    def theta_at(self, x: Vector) -> Vector:
        """theta*(x) as an affine combination of places that comes closest to x has it."""
        return self._combined([place[0] for place in self.places], x, 2)

    def w_at(self, x: Vector, y: Vector) -> Vector:
        """The same for w, which depends on x and on y."""
        return self._combined([np.concatenate(place[:2]) for place in self.places], np.concatenate([x, y]), 3)

    def _combined(self, known: list[Vector], here: Vector, part: int) -> Vector:
        first = self.places[0][part]
        if len(known) == 1:
            return first
        known_rows = np.array(known)
        weights = affine_weights(known_rows[1:] - known_rows[0], here - known_rows[0])
        answers = np.array([place[part] for place in self.places[1:]])
        return first + weights @ (answers - first)


def affine_weights(steps: Vector, step: Vector) -> Vector:
    """c with step = steps' c nearly, by least squares; steps of every size count alike."""
    length = np.sqrt(np.einsum("ij,ij->i", steps, steps))
    usable = length > 0
    length = np.where(usable, length, 1)
    unit = steps / length[:, None]
    normal = unit @ unit.T
    ridge = 1e4 * np.finfo(steps.dtype).eps
    np.fill_diagonal(normal, normal.diagonal() + np.where(usable, ridge, 1))
    try:
        weights = np.linalg.solve(normal, unit @ step) / length
    except np.linalg.LinAlgError:
        weights = np.full_like(length, np.nan)
    return weights if np.all(np.isfinite(weights)) else np.zeros_like(weights)
