"""The Hessian of g at a place, and the lower level with its linear system solved as accurately as rounding allows."""

from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jaxtyping import PyTree

from bisaddle.oracle.conjugate import norm
from bisaddle.oracle.kernels import LARGE, MOST_PRODUCTS, Kernels, Products, Upper, Vector
from bisaddle.oracle.validate import check_problem_at, require_accuracy, require_concrete
from bisaddle.problem import Point, Problem
from bisaddle.programs import on_device
from bisaddle.trees import Number, aligned, drawn, stepped

# up to this many lower variables the Hessian is formed and factorised, up to the second number with few data and an x
# of at most SHORT_X entries; beyond, conjugate gradients
DENSE_LIMIT, FEW_DENSE_LIMIT, SHORT_X = 128, 256, 1024
NEWTON_STEPS = 100
# a Newton step shorter than this that does not shorten the gradient has met rounding
SHORTEST_STEP = 1e-6
# a gradient so many times longer, or none at all, means that the step went where g is another function: cut it by more
AWRY, SHARP_CUT = 1e3, 0.1


class Hessian:
    """g_theta_theta and g_theta_x at (x, theta): products, solves up to a residual, the smallest eigenvalue.

    A small one is a matrix, factorised once; a large one, or one whose every column is a pass over much data, is only
    ever multiplied with, and solved with by conjugate gradients. A Hessian that is not positive definite has an inverse
    of NaN, never a quiet wrong one. stopped: the right side at which conjugate gradients met a direction without
    curvature, and after how many products; or that direction and 0.
    """

    def __init__(self, kernels: Kernels, x: Vector, theta: Vector):
        self.kernels, self.x, self.theta = kernels, x, theta
        # of rows that are streamed, all columns come from one pass
        self.dense = small_lower(kernels) and (kernels.streamed or not kernels.heavy)
        self.stopped: tuple[Vector, int] | None = None
        self._lowest: tuple[int, Vector] | None = None

    @cached_property
    def _columns(self) -> tuple[Vector, Vector]:
        """(g_theta_theta, g_theta_x) as matrices, row i the image of e_i."""
        hessian, cross = self.kernels.columns(self.x, self.theta)
        return 0.5 * (hessian + hessian.T), cross

    @property
    def matrix(self) -> Vector:
        return self._columns[0]

    @property
    def cross(self) -> Vector:
        return self._columns[1]

    def agrees(self, v: Vector, image: Vector, cross_image: Vector) -> bool:
        """Whether the matrices give these products with v, up to rounding."""
        rounding = self.kernels.eps**0.5
        return all(
            norm(v @ rows - wanted) <= rounding * (norm(wanted) + np.max(np.abs(rows), initial=0.0))
            for rows, wanted in ((self.matrix, image), (self.cross, cross_image))
        )

    @cached_property
    def inverse(self) -> Vector:
        try:
            np.linalg.cholesky(self.matrix)
            return np.linalg.inv(self.matrix)
        except np.linalg.LinAlgError:
            return np.full_like(self.matrix, np.nan)

    def product(self, v: Vector) -> Vector:
        """g_theta_theta v"""
        return v @ self.matrix if self.dense else self.kernels.hessian_product(self.x, self.theta, v)

    def solve(self, right: Vector, residual: float, spend: bool = False) -> Vector:
        """g_theta_theta^-1 right, by the matrix, or up to the residual by conjugate gradients; spend: as there."""
        if self.dense:
            return right @ self.inverse
        found = self.kernels.solve(self.x, self.theta, right, residual, spend=spend)
        if norm(found.r) > residual and found.products < MOST_PRODUCTS * right.size:
            self.stopped = (right, found.products) if found.flat is None else (found.flat, 0)
        return found.w

    @cached_property
    def least(self) -> float:
        """The smallest eigenvalue, or an estimate of it; NaN if it is not positive, or lost in rounding.

        From the matrix where there is one. Else by inverse iteration: Lanczos would look past a single tiny eigenvalue
        of a large Hessian; solving with it does not.
        """
        if self.dense:
            if not np.all(np.isfinite(self.matrix)):
                return np.nan
            values = np.linalg.eigvalsh(self.matrix)
            return self._above_rounding(float(values[0]), float(values[-1]))
        v, top = self.lowest(3 if self.kernels.heavy else 4), unit(normal(self.theta, 6))
        for _ in range(2):  # its order of magnitude is enough
            top = unit(self.product(top))
        return self._above_rounding(float(v @ self.product(v)), norm(self.product(top)))

    def lowest(self, passes: int, last: bool = False) -> Vector:
        """A unit vector along which it is small, by inverse iteration; what was found with more passes is kept.

        A solve up to a residual below the part that the right side has of an eigenvector cannot end without having met
        its eigenvalue: one that is not positive sets `stopped`. last: it is not asked for again.
        """
        if self._lowest is None or self._lowest[0] < passes:
            v, residual = unit(normal(self.theta, 2)), 1e-2 if self.kernels.heavy else 1e-3
            for _ in range(passes):
                found = self.solve(v, residual, spend=True)
                del v
                v = unit(found)
                del found
            self._lowest = passes, v
        found = self._lowest[1]
        self._lowest = None if last else self._lowest
        return found

    def _above_rounding(self, least: float, largest: float) -> float:
        rounding = 100 * self.theta.size * self.kernels.eps * largest
        return least if least > rounding else np.nan


def small_lower(kernels: Kernels) -> bool:
    """Whether second derivatives by theta may be matrices: so many products, and rows as long as x."""
    few = not kernels.heavy and kernels.x.size <= SHORT_X
    return kernels.theta.size <= (FEW_DENSE_LIMIT if few else DENSE_LIMIT)


class Implicit:
    """theta*(x) and v(x, y) = g_theta_theta^-1 f_theta, and what is left of their equations, all at the refined theta.

        lower_residual = |g_theta|,     linear_residual = |g_theta_theta w - f_theta|,     Gx = f_x - g_theta_x w

    accuracy: the residual norm to reach in both solves; 0 goes on until rounding stops it. w: where the linear solve
    starts, if anything is known. Without a lower level theta and w have no entries. However theta and w were found,
    what is said of them comes from products taken at the end. f_x_size, cross_size: |f_x| and |g_theta_x w|; of a large
    x with a lower level these two vectors are not kept. f_theta_size: |f_theta|; of a large theta neither this vector
    nor the products are kept.
    """

    def __init__(
        self, kernels: Kernels, x: Vector, theta: Vector, y: Vector, accuracy: float = 0.0, w: Vector | None = None
    ):
        self.kernels, self.x, self.y = kernels, x, y
        self.theta = theta
        self.w: Any = w if kernels.has_lower else theta  # None until it is solved for
        self.lower_residual = self.linear_residual = 0.0
        del theta, w
        self.solve(accuracy)

    def solve(self, accuracy: float) -> None:
        """From theta and w as they are up to this accuracy: another one than before, say."""
        kernels, x, self.accuracy = self.kernels, self.x, accuracy
        for name in ("upper", "Gx", "_products"):  # of the last time: these ones need their memory
            self.__dict__.pop(name, None)
        self.hessian = Hessian(kernels, x, self.theta)
        if kernels.has_lower:
            self._solve_lower()
        self.upper: Upper = kernels.upper(x, self.theta, self.y)
        self.Gx = self.upper.f_x
        self.f_x_size, self.f_theta_size, self.cross_size = norm(self.upper.f_x), norm(self.upper.f_theta), 0.0
        if kernels.has_lower:
            self._solve_adjoint()
            self._take_products()

    def _solve_lower(self) -> None:
        """theta with |g_theta| <= accuracy, or as small as rounding lets it be, by Newton's method."""
        kernels, x, target = self.kernels, self.x, self.accuracy
        g = kernels.lower_gradient(x, self.theta)
        length, moved = norm(g), False
        for _ in range(NEWTON_STEPS):
            if length <= target:
                break
            right = aligned(np.negative, g)
            del g
            direction = self.hessian.solve(right, max(0.3 * target, 1e-3 * length), spend=True)
            del right
            theta, g, step, _ = newton_step(kernels, x, self.theta, direction, length)
            del direction
            new_length = norm(g)
            better = new_length < length
            # near the rounding floor, a full Newton step that does not even halve the gradient has met it
            slow = step == 1 and new_length > 0.5 * length
            if better:
                self.theta, length, moved = theta, new_length, True
                if not kernels.quadratic:
                    self.hessian = Hessian(kernels, x, theta)
            # cancellation in g_theta = Hess theta - ... leaves about this much
            floor = 2 * kernels.eps * norm(self.hessian.product(self.theta))
            target = max(self.accuracy, floor)
            if not better or (slow and new_length <= 1e3 * floor):
                break
        if moved:  # g_theta_x has changed, even where g_theta_theta has not
            self.hessian = Hessian(kernels, x, self.theta)

    def _solve_adjoint(self) -> None:
        """w with g_theta_theta w = f_theta, refined twice."""
        f_theta, root = self.upper.f_theta, self.kernels.eps**0.5
        r = f_theta if self.w is None else aligned(np.subtract, f_theta, self.hessian.product(self.w))
        for _ in range(3):  # half the digits each time, which conjugate gradients can always deliver
            if norm(r) <= self.accuracy:
                break
            found = self.hessian.solve(r, max(0.5 * self.accuracy, root * norm(r)), spend=r is not f_theta)
            self.w = found if self.w is None else np.add(self.w, found, out=found if found.flags.writeable else None)
            del found
            r = aligned(np.subtract, f_theta, self.hessian.product(self.w))
        self.w = np.zeros_like(f_theta) if self.w is None else self.w

    def _take_products(self) -> None:
        """What is left of both equations, and Gx; for a matrix one more product, which it must give too."""
        vectors = [self.w, _probe(self.theta)] if self.hessian.dense else [self.w]
        found = self.kernels.products(self.x, self.theta, *vectors)
        self.Gx = self.upper.f_x - found.cross[0]
        self.cross_size, self.lower_residual = norm(found.cross[0]), norm(found.g_theta)
        self.linear_residual = norm(self.upper.f_theta - found.hessian[0])
        self._rows, self._products = len(vectors), found
        if self.kernels.wide:
            self.upper = self.upper._replace(f_x=np.zeros(0))
            self._products = found._replace(cross=np.zeros((len(vectors), 0)))
        if self.theta.size > LARGE:
            self.upper, self._products = self.upper._replace(f_theta=np.zeros(0)), None

    @property
    def products(self) -> Products:
        """With w, and the probe where the Hessian is a matrix, at this place; of a large theta they are taken again."""
        return self.products_of(self.w) if self._products is None else self._products

    def products_of(self, v: Vector, x: Vector | None = None, theta: Vector | None = None) -> Products:
        """Products with v at another x and theta, or here, by the program that has been compiled for this place."""
        x, theta = self.x if x is None else x, self.theta if theta is None else theta
        return self.kernels.products(x, theta, *[v] * self._rows)

    def matrices_agree(self) -> bool:
        """Whether the matrices give a product that is no part of them: what rests on them may certify a point."""
        probe = _probe(self.theta)
        products = self.products if self.hessian.dense else self.kernels.products(self.x, self.theta, probe)
        return self.hessian.agrees(probe, products.hessian[-1], products.cross[-1])


def _probe(like: Vector) -> Vector:
    return unit(normal(like, 3))


def hypergradient(problem: Problem, x: PyTree, y: PyTree, theta: PyTree = None, *, accuracy: Number = 0.0) -> PyTree:
    """grad_x of f(x, theta*(x), y), by an accurate lower solve from `theta` and a linear solve.

        f_x - g_theta_x v,     g_theta_theta v = f_theta,     at theta*(x)

    theta: where the lower solve starts; any values of the right shape will do. accuracy: the residual norm to reach in
    both solves; 0: as far as rounding allows. The solves are driven from the host, so this does not work inside jit.
    """
    point = Point(x, theta, y)
    require_concrete("hypergradient", problem, point)
    if problem.lower is not None and theta is None:
        raise ValueError(
            "hypergradient needs a theta to start the lower solve from, given None; use zeros of its shape"
        )
    accuracy = require_accuracy(accuracy)
    check_problem_at(problem, point, feasible=False)
    kernels = Kernels(problem, point)
    return on_device(kernels.x.tree(Implicit(kernels, *kernels.flat(point), accuracy=accuracy).Gx))


def newton_step(
    kernels: Kernels, x: Vector, theta: Vector, direction: Vector, length: float
) -> tuple[Vector, Vector, float, int]:
    """(theta, g_theta there, the step, gradients taken): the step is cut until it shortens the gradient enough.

    Strong convexity makes -Hess^-1 g_theta a direction of descent for |g_theta|, so that this safeguard needs no values
    of g. length: |g_theta| before it.
    """
    step, count = 1.0, 0
    while True:
        candidate = stepped(theta, step, direction)
        g = None  # of the longer step
        g = kernels.lower_gradient(x, candidate)
        count += 1
        if norm(g) <= (1 - 0.1 * step) * length or step <= SHORTEST_STEP:
            return candidate, g, step, count
        step *= 0.5 if norm(g) <= AWRY * length else SHARP_CUT


def normal(like: Vector, seed: int) -> Vector:
    """Independent normal numbers, as many as there are in `like`, and the same ones every time."""
    # a generator takes longer to make than small vectors to compute with
    if like.size > 2**14:
        return drawn(like.size, like.dtype, seed)
    return _kept_draw(like.size, np.dtype(np.float64), seed).astype(like.dtype)


_kept_draw = lru_cache(maxsize=64)(drawn)


def unit(v: Vector) -> Vector:
    length = norm(v)
    return aligned(np.divide, v, v.dtype.type(length)) if length > 0 else v
