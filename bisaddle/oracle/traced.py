"""The lower level solved accurately: theta*(x), the linear system behind the hypergradient, the Hessian's spectrum."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import lineax as lx
from jax import lax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PyTree

from bisaddle import oracle, trees
from bisaddle.oracle.implicit import DENSE_LIMIT
from bisaddle.oracle.validate import check_problem_at
from bisaddle.problem import Point, Problem
from bisaddle.trees import Number


class Implicit(NamedTuple):
    """The implicit function at (x, y) and what is left of its equations, all at the refined theta.

    lower_residual = |g_theta|,     linear_residual = |g_theta_theta w - f_theta|,     Gx = f_x - g_theta_x w
    """

    theta: PyTree
    w: PyTree
    Gx: PyTree
    f_x: PyTree
    f_theta: PyTree
    f_y: PyTree
    lower_residual: Array
    linear_residual: Array


def hypergradient(problem: Problem, x: PyTree, y: PyTree, theta: PyTree = None, *, accuracy: Number = 0.0) -> PyTree:
    """grad_x of f(x, theta*(x), y), by an accurate lower solve from `theta` and a linear solve.

        f_x - g_theta_x v,     g_theta_theta v = f_theta,     at theta*(x)

    theta: where the lower solve starts; it fixes the shape, any value will do. accuracy: the residual norm to reach in
    both solves; 0 goes on until rounding stops it.
    """
    if problem.lower is not None and theta is None:
        raise ValueError(
            "hypergradient needs a theta to start the lower solve from, given None; use zeros of its shape"
        )
    point = Point(x, theta, y)
    check_problem_at(problem, point, feasible=False)
    return _implicit(problem, point, accuracy).Gx


@jax.jit
def _implicit(problem: Problem, point: Point, accuracy) -> Implicit:
    return implicit(problem, point.x, point.theta, point.y, accuracy)


def implicit(problem: Problem, x: PyTree, theta: PyTree, y: PyTree, accuracy: Number = 0.0) -> Implicit:
    """Both solves, warm from theta, and the gradients at the solution."""
    theta, lower_residual = solve_lower(problem, x, theta, accuracy)
    f_x, f_theta, f_y = oracle.upper_gradients(problem, x, theta, y)
    if problem.lower is None:
        return Implicit(theta, None, f_x, f_x, f_theta, f_y, lower_residual, jnp.zeros_like(lower_residual))
    w, linear_residual = solve_adjoint(problem, x, theta, f_theta, accuracy)
    Gx = trees.subtract(f_x, oracle.cross_product(problem, x, theta, w))
    return Implicit(theta, w, Gx, f_x, f_theta, f_y, lower_residual, linear_residual)


def solve_lower(problem: Problem, x: PyTree, theta: PyTree, accuracy: Number = 0.0) -> tuple[PyTree, Array]:
    """theta with |g_theta(x, theta)| <= accuracy, or as small as rounding lets it be, and that norm.

    Newton's method on the gradient norm: strong convexity makes -Hess^-1 g_theta a descent direction for it, so that
    halving the step is a safeguard that needs no function values.
    """
    if problem.lower is None:
        return theta, jnp.zeros((), trees.dtype_of(x))
    epsilon = jnp.finfo(trees.dtype_of(theta)).eps

    def gradient(theta):
        return oracle.lower_gradient(problem, x, theta)

    def newton(carry):
        theta, g, residual, target, _, count = carry
        direction = linear_solver(problem, x, theta)(g, jnp.maximum(0.3 * target, 1e-3 * residual))

        def trial(step):
            candidate = trees.add_scaled(theta, -step, direction)
            candidate_g = gradient(candidate)
            return step, candidate, candidate_g, trees.norm(candidate_g)

        untried = (jnp.full_like(residual, 2), theta, g, jnp.full_like(residual, jnp.inf))
        step, candidate, candidate_g, candidate_residual = lax.while_loop(
            lambda t: ~(t[3] <= (1 - 0.1 * t[0]) * residual) & (t[0] > 1e-6), lambda t: trial(0.5 * t[0]), untried
        )
        better = candidate_residual < residual
        theta, g = jax.tree.map(lambda new, old: jnp.where(better, new, old), (candidate, candidate_g), (theta, g))
        # cancellation in g_theta = Hess theta - ... leaves about this much
        floor = 2 * epsilon * trees.norm(oracle.hessian_product(problem, x, theta, theta))
        target = jnp.maximum(accuracy, floor)
        # near that floor, a full Newton step that does not even halve the gradient has met it
        slow = (step == 1) & (candidate_residual > 0.5 * residual)
        stalled = ~better | (slow & (candidate_residual <= 1e3 * floor))
        residual = jnp.where(better, candidate_residual, residual)
        return theta, g, residual, target, stalled | (residual <= target), count + 1

    g = gradient(theta)
    residual = trees.norm(g)
    target = jnp.asarray(accuracy, residual.dtype)
    theta, _, residual, *_ = lax.while_loop(
        lambda carry: ~carry[4] & (carry[5] < 100), newton, (theta, g, residual, target, residual <= target, 0)
    )
    return theta, residual


def solve_adjoint(
    problem: Problem, x: PyTree, theta: PyTree, rhs: PyTree, accuracy: Number = 0.0
) -> tuple[PyTree, Array]:
    """w with g_theta_theta w = rhs, refined twice, and the norm of the residual that is left."""
    solve = linear_solver(problem, x, theta)
    root = jnp.sqrt(jnp.finfo(trees.dtype_of(theta)).eps)

    def residual_of(w):
        return trees.subtract(rhs, oracle.hessian_product(problem, x, theta, w))

    def refine(_, carry):  # half the digits each time, which conjugate gradients can always deliver
        w, r = carry
        w = trees.add_scaled(w, 1.0, solve(r, jnp.maximum(0.5 * accuracy, root * trees.norm(r))))
        return w, residual_of(w)

    w, r = lax.fori_loop(0, 3, refine, (trees.zeros_like(rhs), rhs))
    return w, trees.norm(r)


def linear_solver(problem: Problem, x: PyTree, theta: PyTree) -> Callable[[PyTree, Array], PyTree]:
    """solve(rhs, residual) for the lower Hessian at (x, theta): Cholesky when small, conjugate gradients else.

    A Hessian that is not positive definite gives NaN under Cholesky, never a quiet wrong answer.
    """

    def product(w):
        return oracle.hessian_product(problem, x, theta, w)

    size = trees.size(theta)
    if size <= DENSE_LIMIT:
        flat, unravel = ravel_pytree(theta)
        columns = jax.vmap(lambda e: ravel_pytree(product(unravel(e)))[0])(jnp.eye(size, dtype=flat.dtype))
        factor = jax.scipy.linalg.cho_factor(0.5 * (columns + columns.T))
        return lambda rhs, residual: unravel(jax.scipy.linalg.cho_solve(factor, ravel_pytree(rhs)[0]))
    structure = jax.eval_shape(lambda: theta)
    operator = lx.FunctionLinearOperator(product, structure, lx.positive_semidefinite_tag)

    def conjugate_gradients(rhs, residual):
        solver = lx.CG(rtol=0.0, atol=residual / size**0.5, max_steps=10 * size)
        return lx.linear_solve(operator, rhs, solver, throw=False).value

    return conjugate_gradients


def spectrum(problem: Problem, x: PyTree, theta: PyTree, products: int = 32) -> tuple[Array, Array]:
    """Estimates of the smallest and largest eigenvalue of g_theta_theta(x, theta)."""
    return extreme_eigenvalues(lambda w: oracle.hessian_product(problem, x, theta, w), theta, products)


def extreme_eigenvalues(product: Callable[[PyTree], PyTree], like: PyTree, products: int = 32) -> tuple[Array, Array]:
    """Smallest and largest eigenvalue of a symmetric map on trees shaped like `like`, from inside, by Lanczos."""
    flat, unravel = ravel_pytree(like)
    steps = min(products, flat.size)
    first = jax.random.normal(jax.random.key(0), flat.shape, flat.dtype)
    basis = jnp.zeros((steps + 1, flat.size), flat.dtype).at[0].set(first / jnp.linalg.norm(first))

    def lanczos(i, carry):
        basis, diagonal, off_diagonal = carry
        image = ravel_pytree(product(unravel(basis[i])))[0]
        alpha = basis[i] @ image
        for _ in range(2):  # twice is enough to keep the basis orthogonal
            image = image - basis.T @ (basis @ image)
        beta = jnp.linalg.norm(image)
        found = beta > 100 * jnp.finfo(flat.dtype).eps * jnp.maximum(jnp.abs(alpha), jnp.abs(diagonal[0]))
        basis = basis.at[i + 1].set(jnp.where(found, image / jnp.where(found, beta, 1), 0))
        # once the Krylov space is exhausted the rest is padding: a value inside the spectrum, uncoupled
        alive = jnp.any(basis[i] != 0)
        diagonal = diagonal.at[i].set(jnp.where(alive, alpha, diagonal[0]))
        return basis, diagonal, off_diagonal.at[i].set(jnp.where(found, beta, 0))

    zeros = jnp.zeros(steps, flat.dtype)
    _, diagonal, off_diagonal = lax.fori_loop(0, steps, lanczos, (basis, zeros, zeros))
    off = off_diagonal[: steps - 1]
    ritz = jnp.linalg.eigvalsh(jnp.diag(diagonal) + jnp.diag(off, 1) + jnp.diag(off, -1))
    return ritz[0], ritz[-1]


def operator_norm(linear: Callable[[PyTree], PyTree], like: PyTree, iterations: int = 12) -> Array:
    """|A| of a linear map on trees shaped like `like`, from below, by power iteration on A'A; 0 for the zero map."""
    _, transpose = jax.vjp(linear, like)

    def unit(v):
        length = trees.norm(v)
        return trees.scale(1 / jnp.where(length > 0, length, 1), v)

    start = unit(trees.random_like(jax.random.key(1), like))
    v = lax.fori_loop(0, iterations, lambda _, v: unit(transpose(linear(v))[0]), start)
    return trees.norm(linear(v))
