"""What an inner solver of Adaptive is asked for, and what it gives: records, and nothing else."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bisaddle.methods.base import Counts
from bisaddle.oracle.kernels import Upper, Vector


class Inner(NamedTuple):
    """The inner variables at some x, with g_theta, f and its gradients there; the next solve starts from them.

    upper: see Solver._kept.
    L_y: the curvature of f in y along the last step; mu_g: the least curvature of g met so far; slope: |f_x| and
    |g_theta_x w| together, the scale of the gradient in x; left: see Lower.
    """

    theta: Vector
    y: Vector
    w: Vector
    g_theta: Vector
    upper: Upper
    L_y: float
    mu_g: float
    slope: float = 0.0
    left: float = np.inf


class Lower(NamedTuple):
    """What a solve for theta has found: g_theta there, the products it took, the least curvature met.

    left: the share of the gradient that one product left, with an inverse of the right Hessian; infinite if not known.
    """

    theta: Vector
    g_theta: Vector
    products: int = 0
    least: float = np.inf
    left: float = np.inf


class Residuals(NamedTuple):
    """What the inner solves may leave: |g_theta|, |g_theta_theta w - f_theta|, and the residual of y."""

    theta: float
    w: float
    y: float


class Evaluation(NamedTuple):
    """f_mu(x) = max_y f(x, theta*(x), y) - h(y) - mu/2 |y - y0|^2 and its gradient Gx, up to the accuracy asked for.

    solved: theta and w have met their accuracy, or are as accurate as rounding allows; else nothing here has a meaning.
    """

    inner: Inner
    value: float
    Gx: Vector
    solved: bool


@dataclass
class Cost:
    """Oracle calls so far, as in Counts, to be added to."""

    gradients: int = 0
    hvps: int = 0
    cross_products: int = 0
    projections: int = 0
    lmos: int = 0

    def counts(self) -> Counts:
        return Counts(**vars(self))
