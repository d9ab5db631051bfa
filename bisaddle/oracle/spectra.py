"""The ends of a symmetric map's spectrum on the host, from products alone."""

from collections.abc import Callable

import numpy as np


def extreme_eigenvalues(
    product: Callable[[np.ndarray], np.ndarray], size: int, dtype: np.dtype, products: int = 32
) -> tuple[float, float]:
    """Smallest and largest eigenvalue of a symmetric map on vectors of this size, from inside, by Lanczos; NaN: NaN."""
    steps = min(products, size)
    eps = np.finfo(dtype).eps
    v = np.random.default_rng(0).normal(size=size)
    basis = [v / np.linalg.norm(v)]
    diagonal: list[float] = []
    off: list[float] = []
    for _ in range(steps):
        image = np.asarray(product(basis[-1].astype(dtype)), float)
        diagonal.append(float(basis[-1] @ image))
        rows = np.array(basis)
        for _ in range(2):  # twice is enough to keep the basis orthogonal
            image = image - (rows @ image) @ rows
        beta = float(np.linalg.norm(image))
        # the Krylov space is exhausted
        if not beta > 100 * eps * max(abs(diagonal[-1]), abs(diagonal[0])):
            break
        off.append(beta)
        basis.append(image / beta)
    if not np.all(np.isfinite(diagonal + off)):
        return np.nan, np.nan
    count = len(diagonal)
    beside = np.array(off[: count - 1])
    ritz = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return float(ritz[0]), float(ritz[-1])
