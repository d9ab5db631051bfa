"""The ends of a symmetric map's spectrum on the host, from products alone, by Lanczos's method."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from bisaddle.oracle.kernels import LARGE
from bisaddle.trees import add_to, aligned, drawn

Product = Callable[[np.ndarray], np.ndarray]
Begin = Callable[[], np.ndarray]

# the basis is kept in memory
BASIS_BYTES = 2**29


class Krylov(NamedTuple):
    """A symmetric map in an orthonormal basis (rows) of its Krylov space, where it is tridiagonal.

    off: beside the diagonal, and last the length of what the map adds to the space; exhausted: it adds only rounding.
    """

    basis: np.ndarray
    diagonal: np.ndarray
    off: np.ndarray
    exhausted: bool


class Extremes(NamedTuple):
    """Ritz values from inside the spectrum, their residuals (an eigenvalue lies that near), their vectors, the cost."""

    least: float
    most: float
    least_residual: float
    most_residual: float
    least_vector: np.ndarray
    most_vector: np.ndarray
    products: int


def krylov(
    product: Product, size: int, dtype: np.dtype, limit: int, start: np.ndarray | None = None
) -> Iterator[Krylov]:
    """The space after each product, until it is exhausted or has `limit` dimensions; start: None is a random vector."""
    eps = np.finfo(dtype).eps
    basis = np.zeros((min(limit, 64), size))
    diagonal, off = np.zeros(limit), np.zeros(limit)
    v = np.random.default_rng(0).normal(size=size) if start is None else start
    basis[0] = v / np.linalg.norm(v)
    for i in range(limit):
        used = basis[: i + 1]
        image = np.asarray(product(used[i].astype(dtype)), float)
        diagonal[i] = used[i] @ image
        for _ in range(2):  # twice is enough to keep the basis orthogonal
            image = image - (used @ image) @ used
        off[i] = np.linalg.norm(image)
        exhausted = not off[i] > 100 * eps * max(abs(diagonal[i]), abs(diagonal[0]))  # or NaN
        yield Krylov(used, diagonal[: i + 1], off[: i + 1], exhausted)
        if exhausted or i + 1 == limit:
            return
        if i + 1 == len(basis):
            basis = np.concatenate([basis, np.zeros((min(i + 1, limit - i - 1), size))])
        basis[i + 1] = image / off[i]


def recurrence(product: Product, begin: Begin, limit: int) -> Iterator[tuple[np.ndarray, float, float]]:
    """(unit vector, diagonal, beside it) of Lanczos's method with three vectors and no basis; begin: gives the first.

    A value that has converged may come again, which changes neither end of the spectrum.
    """
    v = begin()
    v = aligned(np.divide, v, v.dtype.type(np.linalg.norm(v)))
    eps, before, beside, first = np.finfo(v.dtype).eps, None, 0.0, None
    for _ in range(limit):
        image = aligned(np.positive, product(v))
        diagonal = float(v @ image)
        first = abs(diagonal) if first is None else first
        add_to(image, -diagonal, v)
        if before is not None:
            add_to(image, -beside, before)
            del before
        beside = float(np.linalg.norm(image))
        yield v, diagonal, beside
        if not beside > 100 * eps * max(abs(diagonal), first):  # exhausted, or NaN
            return
        image /= v.dtype.type(beside)
        before, v = v, image
        del image


def least_vector(
    product: Product, begin: Begin, limit: int, below: Callable[[float], float] = lambda most: np.inf
) -> tuple[np.ndarray | None, float]:
    """A unit vector along which the map is small, and its largest value, by going through the recurrence twice.

    Once, and no vector, where its least value is not below what is asked for beside the largest.
    """
    rows = np.array([row[1:] for row in recurrence(product, begin, limit)])
    if not np.all(np.isfinite(rows)):
        return None, np.nan
    values, vectors = np.linalg.eigh(tridiagonal(rows[:, 0], rows[:-1, 1]))
    if values[0] > below(float(values[-1])):
        return None, float(values[-1])
    found = None
    for weight, (v, _, _) in zip(vectors[:, 0], recurrence(product, begin, len(rows)), strict=True):
        if found is None:
            found = aligned(np.multiply, v, v.dtype.type(weight))
        else:
            add_to(found, weight, v)
    return found, float(values[-1])


def tridiagonal(diagonal: np.ndarray, off: np.ndarray) -> np.ndarray:
    return np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)


def extreme_eigenvalues(product: Product, size: int, dtype: np.dtype, products: int = 32) -> tuple[float, float]:
    """Smallest and largest eigenvalue of a symmetric map on vectors of this size, from inside; NaN where it gives NaN.

    products: how many may be taken; a few dozen, since a matrix of that order is formed.
    """
    if size > LARGE:
        rows = recurrence(product, lambda: drawn(size, dtype, 0), products)
        _, diagonal, off = map(np.array, zip(*((0, *row[1:]) for row in rows), strict=True))
    else:
        *_, (_, diagonal, off, _) = krylov(product, size, dtype, min(products, size))
    if not np.all(np.isfinite([diagonal, off])):
        return np.nan, np.nan
    # so small a matrix takes NumPy less time than SciPy's routines take to import, and a solve begins here
    ritz = np.linalg.eigvalsh(tridiagonal(diagonal, off[:-1]))
    return float(ritz[0]), float(ritz[-1])


def lanczos(product: Product, size: int, dtype: np.dtype, tolerance: float) -> Extremes:
    """Both ends of a symmetric map's spectrum, until each residual is at most tolerance times its value.

    The residual of the least value is compared with that value, so that mu_g is resolved however small it is beside
    L_g: at most `size` products, about sqrt(L_g / mu_g) times a few for a well-spread spectrum.
    """
    limit, check = min(size, max(32, BASIS_BYTES // (8 * size))), 16
    for basis, diagonal, off, exhausted in krylov(product, size, dtype, limit):
        count = len(diagonal)
        last = exhausted or count == limit
        if count < check and not last:
            continue
        check = int(1.3 * check) + 1
        (least, first), (most, final) = tridiagonal_ends(diagonal, off[:-1])
        left = 0.0 if exhausted or count == size else off[-1]
        low, high = float(left * abs(first[-1])), float(left * abs(final[-1]))
        if last or (low <= tolerance * abs(least) and high <= tolerance * abs(most)):
            return Extremes(least, most, low, high, first @ basis, final @ basis, count)
    raise AssertionError("the last pass returns")


def tridiagonal_ends(diagonal: np.ndarray, off: np.ndarray) -> list[tuple[float, np.ndarray]]:
    """(value, unit vector) of both ends of a symmetric tridiagonal matrix's spectrum, in time linear in its size."""
    from scipy.linalg import eigh_tridiagonal  # here, not above: it takes its time to import

    if not np.all(np.isfinite(diagonal)) or not np.all(np.isfinite(off)):
        return [(np.nan, np.full_like(diagonal, np.nan))] * 2
    ends = []
    for i in (0, len(diagonal) - 1):
        values, vectors = eigh_tridiagonal(diagonal, off, select="i", select_range=(i, i))
        ends.append((float(values[0]), vectors[:, 0]))
    return ends
