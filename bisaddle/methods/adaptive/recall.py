"""Where the inner solves of Adaptive begin: theta and w extrapolated from the places looked at last."""

import numpy as np

from bisaddle.oracle.kernels import Vector

PLACES = 10
ENTRIES = 2**25  # of all rows together; beyond, a solve begins where the last one ended


class Recall:
    """The last evaluations, the newest first, each a flat row: the places (x, y), and theta and w there."""

    def __init__(self) -> None:
        self.filled = 0

    @staticmethod
    def fits(*parts: Vector) -> bool:
        """Whether all places together take little enough memory."""
        return PLACES * sum(part.size for part in parts) <= ENTRIES

    def add(self, x: Vector, y: Vector, theta: Vector, w: Vector) -> None:
        place = np.concatenate([x, y])
        if not self.filled:
            empty = lambda row: np.zeros((PLACES, row.size), row.dtype)
            self.places, self.theta, self.w = empty(place), empty(theta), empty(w)
        for rows, new in ((self.places, place), (self.theta, theta), (self.w, w)):
            rows[1:] = rows[:-1]
            rows[0] = new
        self.filled = min(self.filled + 1, PLACES)

    def theta_at(self, x: Vector) -> Vector:
        """theta*(x) as an affine combination of places that comes closest to x has it."""
        return self._combined(x, self.theta)

    def w_at(self, x: Vector, y: Vector) -> Vector:
        """The same for w, which depends on x and on y."""
        return self._combined(np.concatenate([x, y]), self.w)

    def _combined(self, here: Vector, answers: Vector) -> Vector:
        known, answers = self.places[: self.filled, : here.size], answers[: self.filled]
        if self.filled == 1:
            return answers[0].copy()
        weights = affine_weights(known[1:] - known[0], here - known[0])
        return answers[0] + weights @ (answers[1:] - answers[0])


def affine_weights(steps: Vector, step: Vector) -> Vector:
    """c with step = steps' c nearly, by least squares; steps of every size count alike."""
    length = np.sqrt(np.einsum("ij,ij->i", steps, steps))
    length[length == 0] = 1  # its row of zeros gets no weight
    unit = steps / length[:, None]
    normal = unit @ unit.T
    normal.flat[:: len(normal) + 1] += 1e4 * np.finfo(steps.dtype).eps
    weights = np.linalg.solve(normal, unit @ step) / length
    return weights if np.isfinite(weights @ weights) else np.zeros_like(weights)
