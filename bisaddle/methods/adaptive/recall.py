"""Where the inner solves of Adaptive begin: what earlier ones have found, extrapolated."""

from dataclasses import dataclass, field

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Vector


@dataclass
class Recall:
    """The last evaluations, the newest first, a row each: inputs (x, y), and theta and w found for them."""

    filled: int = 0
    inputs: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    theta: Vector = field(default_factory=lambda: np.zeros((0, 0)))
    w: Vector = field(default_factory=lambda: np.zeros((0, 0)))

    def add(self, x: Vector, y: Vector, theta: Vector, w: Vector) -> None:
        given = np.concatenate([x, y])
        if not self.filled:
            most = most_recalled(given.size, theta.size + w.size)
            empty = lambda row: np.zeros((most, row.size), row.dtype)
            self.inputs, self.theta, self.w = empty(given), empty(theta), empty(w)
        for rows, new in ((self.inputs, given), (self.theta, theta), (self.w, w)):
            rows[1:] = rows[:-1]
            rows[0] = new
        self.filled = min(self.filled + 1, len(self.inputs))

    def theta_at(self, x: Vector) -> Vector:
        """The affine combination of the known theta whose weights bring the known x closest to this one."""
        return self._combined([x], self.theta)

    def w_at(self, x: Vector, y: Vector) -> Vector:
        """The same for w, which depends on x and on y, each in units of how far it has moved."""
        return self._combined([x, y], self.w)

    def _combined(self, parts: list[Vector], answers: Vector) -> Vector:
        given = np.concatenate(parts)
        known, answers = self.inputs[: self.filled, : given.size], answers[: self.filled]
        if self.filled == 1:
            return answers[0].copy()
        steps, step, end = known[1:] - known[0], given - known[0], 0
        for part in parts if len(parts) > 1 else ():
            place = slice(end, end := end + part.size)
            moved = norm(steps[:, place].ravel()) or 1.0
            steps[:, place] /= moved
            step[place] /= moved
        weights = affine_weights(steps, step)
        return answers[0] + weights @ (answers[1:] - answers[0])


def most_recalled(inputs: int, answers: int) -> int:
    """How many evaluations are remembered, by the entries of what each was given and of what it found."""
    fitting = const.RECALLED_ENTRIES // (inputs + answers)
    return min(const.RECALLED, fitting, max(2, const.RECALLED_INPUTS // inputs))


def affine_weights(steps: Vector, step: Vector) -> Vector:
    """c with step = sum_i c_i steps_i nearly, by least squares in which long and short steps count alike.

    There may be more steps than dimensions, and answers are as rough as the solves that found them: what two steps
    nearly the same way differ by is left out, else it would be rounding that weighs the answers.
    """
    length = np.sqrt(np.einsum("ij,ij->i", steps, steps))
    length[length == 0] = 1  # its row of zeros gets no weight
    unit = steps / length[:, None]
    normal = unit @ unit.T
    least = max(const.RECALL_LEAST, const.RECALL_ROUNDING * float(np.finfo(steps.dtype).eps))
    normal.flat[:: len(normal) + 1] += least
    weights = np.linalg.solve(normal, unit @ step)
    weights += least * np.linalg.solve(normal, weights)  # what was added holds directions that count back no more
    weights /= length
    return weights if np.isfinite(weights @ weights) else np.zeros_like(weights)
