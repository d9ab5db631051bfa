"""A preconditioner for small lower levels: the inverse of a Hessian met before, bought when it has earned its price."""

from typing import Any

import jax
import numpy as np

from bisaddle.oracle.kernels import Kernels, Vector, block_order

FREE = 2  # iterations that a solve may take with the best preconditioner
NEVER = -(2**30)


class Inverse:
    """matrices: g_theta_theta^-1 at some earlier place, the identity at first; excess: what solves have taken since.

    One matrix for all of theta, or, where that is too large, one for each entry along the first axis of its leaves: the
    tasks of a problem whose lower levels do not touch each other. Whether that is so is tried. Where theta is too large
    for either there are no blocks and no matrices.
    """

    def __init__(self, kernels: Kernels):
        self.kernels, self.blocks = kernels, kernels.blocks
        self.excess = 0
        self.matrices: Any = kernels.identity  # on the device, where the solves want them
        self.order = block_order(kernels.theta, self.blocks)

    def after(self, products: int) -> None:
        """One solve later: the products beyond those that are always needed count."""
        self.excess += max(products - FREE, 0)

    def renew(self, x: Vector, theta: Vector) -> int:
        """At (x, theta), if the excess has reached the price of a product for each variable of a block; what was paid.

        So never more than as much again is spent on inverses as the solves have taken too much.
        """
        if not self.blocks:
            return 0
        blocks, size = self.blocks, theta.size // self.blocks
        price = size + (blocks > 1)
        if self.excess < price:
            return 0
        columns, _ = self.kernels.columns(x, theta, blocks)
        hessians = columns[:, self.order].reshape(size, blocks, size).transpose(1, 0, 2)
        hessians = 0.5 * (hessians + hessians.transpose(0, 2, 1))
        self.excess = 0
        if blocks > 1 and not self._separate(x, theta, hessians):
            self.excess = NEVER
            return price
        try:
            np.linalg.cholesky(hessians)  # or it is not positive definite
            inverses = np.linalg.inv(hessians)
        except np.linalg.LinAlgError:
            return price
        if np.all(np.isfinite(inverses)):
            self.matrices = jax.device_put(np.ascontiguousarray(0.5 * (inverses + inverses.transpose(0, 2, 1))))
        return price

    def _separate(self, x: Vector, theta: Vector, hessians: Vector) -> bool:
        v = np.random.default_rng(0).normal(size=theta.size).astype(theta.dtype)
        Hv = self.kernels.hessian_product(x, theta, v)
        rows = v[self.order].reshape(self.blocks, -1)
        apart = np.einsum("bj,bji->bi", rows, hessians).ravel() - Hv[self.order]
        return bool(np.linalg.norm(apart) <= np.sqrt(self.kernels.eps) * np.linalg.norm(Hv))
