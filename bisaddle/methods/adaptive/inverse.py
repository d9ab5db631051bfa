"""An inverse Hessian of g as preconditioner of the inner solves of Adaptive, bought when it pays."""

from typing import Any

import numpy as np

from bisaddle.methods.adaptive import constants as const
from bisaddle.oracle.kernels import Kernels, Vector
from bisaddle.oracle.theta_blocks import block_order


class Inverse:
    """g_theta_theta^-1 as it was at some earlier x, computed once the solves without it have cost as much.

    matrices: one for all of theta, or, where that is too large, one for each entry along the first axis of its leaves
    (the tasks of a problem whose lower levels do not touch each other, which is checked); none where theta is too large
    for either. The identity at first. excess: products that a good preconditioner would have saved since the last one.
    apart: how many such entries there are, each with a Hessian of its own as far as is known; products for one are
    products for all. 1 where there is none, or they were found to touch.
    """

    def __init__(self, kernels: Kernels):
        self.kernels, self.blocks = kernels, kernels.blocks
        self.excess = 0.0
        self.matrices: Any = kernels.identity  # on the device, where the solves want them
        entries = kernels.theta.first_axis
        # the entries of a short vector are single numbers, which rarely stand apart
        self.apart = self.blocks if self.blocks != 1 else entries if entries < kernels.theta.size else 1

    def after(self, products: int) -> None:
        """Count a solve that took so many products."""
        self.excess += max(products - const.FREE_PRODUCTS, 0)

    @property
    def price(self) -> int:
        """A product for each variable of an entry, and one to see that the entries do not touch."""
        return self.kernels.theta.size // max(self.apart, 1) + (self.apart > 1)

    def renew(self, x: Vector, theta: Vector) -> int:
        """Compute it at (x, theta) if the excess has reached its price; the products this took.

        So no more is ever spent on inverses than was wasted before.
        """
        price = self.price
        if not self.blocks or self.excess < price:
            return 0
        hessians = self._hessians(x, theta)
        if self.apart > 1 and not self._separate(x, theta, hessians):
            # one matrix for all of theta is left, where there is room for it
            self.apart = 1
            self.excess = self.excess - price if self.blocks == 1 else -np.inf
            return price
        self.excess = 0.0
        try:
            np.linalg.cholesky(hessians)  # raises where one is not positive definite, which an inverse would hide
            inverses = np.linalg.inv(hessians)
        except np.linalg.LinAlgError:
            return price
        if np.all(np.isfinite(inverses)):
            inverses = 0.5 * (inverses + inverses.transpose(0, 2, 1))
            self.matrices = self.kernels.put(np.ascontiguousarray(self._arranged(inverses)))
        return price

    def _hessians(self, x: Vector, theta: Vector) -> Vector:
        """One matrix for each entry along the first axis that stands apart."""
        columns = self.kernels.hessian_columns(x, theta, self.apart)
        size, order = theta.size // self.apart, block_order(self.kernels.theta, self.apart)
        hessians = columns[:, order].reshape(size, self.apart, size).transpose(1, 0, 2)
        return 0.5 * (hessians + hessians.transpose(0, 2, 1))

    def _arranged(self, inverses: Vector) -> Vector:
        """The inverses as the solves want them: as they are, or all on the diagonal of one matrix."""
        if self.blocks == len(inverses):
            return inverses
        order = block_order(self.kernels.theta, self.apart).reshape(self.apart, -1)
        whole = np.zeros(self.kernels.identity.shape, inverses.dtype)
        for entries, inverse in zip(order, inverses, strict=True):
            whole[0][np.ix_(entries, entries)] = inverse
        return whole

    def _separate(self, x: Vector, theta: Vector, hessians: Vector) -> bool:
        """Whether the entries do not touch: their Hessians give the product with a random vector."""
        v = np.random.default_rng(0).normal(size=theta.size).astype(theta.dtype)
        Hv = self.kernels.hessian_product(x, theta, v)
        order = block_order(self.kernels.theta, self.apart)
        found = np.einsum("bj,bji->bi", v[order].reshape(self.apart, -1), hessians).ravel() - Hv[order]
        return bool(np.linalg.norm(found) <= np.sqrt(self.kernels.eps) * np.linalg.norm(Hv))
