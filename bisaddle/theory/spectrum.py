"""The ends of the spectra of g_theta_theta and -f_yy at places, and those of g_theta_theta over all of X."""

import dataclasses
from functools import partial

import jax
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.oracle.implicit import norm
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.oracle.spectra import Extremes, extreme_eigenvalues, lanczos
from bisaddle.problem import Point
from bisaddle.programs import Program, on_device
from bisaddle.theory.sampling import Samples

# products with which sampled points are compared before one is looked at closely
SCREENING = 24


def lower_ends(kernels: Kernels, x: Vector, theta: Vector, products: int = 32) -> tuple[float, float]:
    """Estimates of the smallest and largest eigenvalue of g_theta_theta(x, theta)."""
    product = partial(kernels.hessian_product, x, theta)
    return extreme_eigenvalues(product, theta.size, kernels.dtype, products)


def upper_ends(kernels: Kernels, x: Vector, theta: Vector, y: Vector) -> tuple[float, float]:
    """Estimates of the smallest and largest eigenvalue of -f_yy(x, theta, y)."""
    program = Program(_minus_f_yy, "the Hessian of f in y", kernels.part)
    return extreme_eigenvalues(lambda e: program(np.concatenate([x, theta, y, e])), y.size, kernels.dtype)


def _minus_f_yy(part, packed: Array) -> Array:
    x, theta, y, e = part.split(packed, "x", "theta", "y", "y")
    f_y = lambda y: oracle.upper_gradients(part, x, theta, y)[2]
    return -part.y.join(jax.jvp(f_y, (y,), (e,))[1])


def _slope(part, packed: Array) -> Array:
    """The gradient in x of <w, g_theta_theta(x, theta) w>."""
    x, theta, w = part.split(packed, "x", "theta", "theta")
    return part.x.join(jax.grad(lambda x: trees.dot(w, oracle.hessian_product(part, x, theta, w)))(x))


@dataclasses.dataclass(frozen=True)
class LowerSpectrum:
    """mu_g and L_g over the points tried, where mu_g was met and along which direction, residuals, HVPs spent."""

    mu_g: float
    L_g: float
    mu_residual: float
    L_residual: float
    mu_point: Point
    mu_direction: PyTree
    hvps: int
    tried: int


class _Climb:
    """Close looks at places, from each to better ones; hvps and tried count all of them."""

    def __init__(self, taken: Samples, tolerance: float, most: int):
        self.taken, self.kernels, self.tolerance, self.most = taken, taken.kernels, tolerance, most
        self.slope = Program(_slope, "how the Hessian of g depends on x", taken.kernels.part)
        self.hvps = self.tried = 0
        self.looked: dict[int, Extremes] = {}

    def look(self, x: Vector, theta: Vector) -> Extremes:
        product = partial(self.kernels.hessian_product, x, theta)
        found = lanczos(product, theta.size, self.kernels.dtype, self.tolerance)
        self.hvps += found.products
        return found

    def corner(self, x: Vector, theta: Vector, w: Vector, sign: float) -> Vector:
        """The extreme point of X where the linear model of <w, g_theta_theta w> in x is largest (sign > 0)."""
        slope = self.slope(np.concatenate([x, theta, w.astype(x.dtype)]))
        return self.kernels.x_set.lmo(-sign * slope) if norm(slope) > 0 else x

    def __call__(self, index: int, sign: float) -> tuple[Extremes, Vector]:
        """The largest eigenvalue (sign > 0), or the least, from sample `index` on; and the x where it was met."""
        x, theta, _ = self.taken.places[index]
        if index not in self.looked:
            self.looked[index] = self.look(x, theta)
        best = self.looked[index]
        value = lambda found: found.most if sign > 0 else found.least
        for _ in range(self.most if "lmo" in self.kernels.x_set.capabilities else 0):
            corner = self.corner(x, theta, best.most_vector if sign > 0 else best.least_vector, sign)
            if np.array_equal(corner, x):
                break
            found = self.look(corner, theta)
            self.tried += 1
            if not sign * (value(found) - value(best)) > self.tolerance * abs(value(best)):
                break
            best, x = found, corner
        return best, x


def lower_spectrum(taken: Samples, *, tolerance: float = 2e-3, climbs: int = 3) -> LowerSpectrum:
    """The least and the largest eigenvalue of g_theta_theta over sampled points and over corners of X found from them.

    Every point is screened with a few products; the extreme one is resolved to the tolerance; then x moves to the
    corner of X towards which the eigenvalue grows (falls), as long as it does: L_g is often convex in x.
    """
    kernels, count = taken.kernels, len(taken.places)
    lows, highs = np.array([lower_ends(kernels, x, theta, SCREENING) for x, theta, _ in taken.places]).T
    at_most, at_least = int(np.argmax(highs)), int(np.argmin(lows))
    if lows[at_most] <= lows[at_least] + 1e-3 * abs(lows[at_least]):
        at_least = at_most  # one close look serves both ends
    climb = _Climb(taken, tolerance, climbs)
    top, _ = climb(at_most, 1.0)
    bottom, x = climb(at_least, -1.0)
    _, theta, y = taken.places[at_least]
    where = on_device(kernels.point(x, theta, y))
    direction = on_device(kernels.theta.tree(bottom.least_vector.astype(theta.dtype)))
    hvps = count * min(SCREENING, theta.size) + climb.hvps
    return LowerSpectrum(
        mu_g=bottom.least,
        L_g=top.most,
        mu_residual=bottom.least_residual,
        L_residual=top.most_residual,
        mu_point=where,
        mu_direction=direction,
        hvps=hvps,
        tried=count + climb.tried,
    )
