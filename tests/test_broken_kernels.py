"""What a method computes with may be wrong: a certificate finds out, since it takes nothing from it but a guess."""

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.oracle import implicit
from bisaddle.oracle.kernels import Kernels, Solve

SOLVE, COLUMNS = Kernels.solve, Kernels.columns


def ridge_problem(theta_size):
    """A saddle problem over a strongly convex quadratic, far from solved at its start."""
    rng = np.random.default_rng(theta_size)
    A = rng.normal(size=(theta_size, 3))
    data = {"A": A, "b": rng.normal(size=theta_size), "h": np.linspace(1.0, 3.0, theta_size)}

    def upper(x, theta, y, data):
        return jnp.mean((theta - 1) ** 2) + y @ (theta[:2] + x[:2]) + 0.5 * jnp.sum(x**2) - 0.5 * jnp.sum(y**2)

    def lower(x, theta, data):
        return 0.5 * jnp.sum(data["h"] * theta**2) - theta @ (data["A"] @ x + data["b"])

    problem = bs.Problem(upper, lower, bs.sets.L2Ball(5.0), bs.sets.Box(-2.0, 2.0), data=data)
    return problem, bs.Point(x=np.ones(3), theta=np.zeros(theta_size), y=np.zeros(2))


def noise(like):
    return np.random.default_rng(0).normal(size=like.shape)


def random_solve(self, x, theta, right=None, *args, **options):
    found = SOLVE(self, x, theta, right, *args, **options)
    return Solve(noise(found.w), 0 * found.r, found.right, noise(found.cross), found.products, found.least)


def no_solve(self, x, theta, right=None, *args, **options):
    found = SOLVE(self, x, theta, right, *args, **options)
    return Solve(0 * found.w, 0 * found.r, 0 * found.right, 0 * found.cross, 0, np.inf)


def nearly_right_solve(self, x, theta, right=None, *args, **options):
    found = SOLVE(self, x, theta, right, *args, **options)
    return found._replace(w=1.01 * found.w, r=0 * found.r, cross=1.01 * found.cross)


def random_columns(self, x, theta, blocks=1):
    return tuple(noise(rows) for rows in COLUMNS(self, x, theta, blocks))


def stiff_columns(self, x, theta, blocks=1):
    """As if nothing in theta could move: the smallest of error bounds."""
    return tuple(1e10 * rows for rows in COLUMNS(self, x, theta, blocks))


def nearly_right_columns(self, x, theta, blocks=1):
    return tuple(1.01 * rows for rows in COLUMNS(self, x, theta, blocks))


BROKEN = {
    "solve": (random_solve, no_solve, nearly_right_solve),
    "columns": (random_columns, stiff_columns, nearly_right_columns),
}
CASES = [(name, function) for name, functions in BROKEN.items() for function in functions]


@pytest.mark.parametrize(("name", "broken"), CASES, ids=[function.__name__ for _, function in CASES])
@pytest.mark.parametrize("form", ["a matrix", "products only"])
def test_a_broken_kernel_yields_no_certified_result(name, broken, form, monkeypatch):
    if form == "products only":
        monkeypatch.setattr(implicit, "FEW_DENSE_LIMIT", 0)
    problem, start = ridge_problem(20)
    options = {"tol": 1e-6, "max_steps": 60, "progress": False}
    honest = bs.solve(problem, start, **options)
    assert honest.status is bs.Status.CERTIFIED
    monkeypatch.setattr(Kernels, name, broken)
    used = form == "a matrix" if name == "columns" else True
    try:
        result = bs.solve(problem, start, **options)
    except ValueError as error:  # the start's Hessian seems not to be positive definite
        assert "strongly convex" in str(error)
        return
    if used and broken is not nearly_right_solve:
        assert result.status is not bs.Status.CERTIFIED, str(result)
    # a point that passes all the same is one that an honest certificate passes
    monkeypatch.setattr(Kernels, name, {"solve": SOLVE, "columns": COLUMNS}[name])
    if result.status is bs.Status.CERTIFIED:
        assert bs.certify(problem, result.point).within(1e-6)


@pytest.mark.parametrize(("name", "broken"), CASES, ids=[function.__name__ for _, function in CASES])
@pytest.mark.parametrize("size", [20, 300])
def test_a_certificate_with_a_broken_kernel_passes_no_point_that_it_should_not(name, broken, size, monkeypatch):
    problem, start = ridge_problem(size)
    solved = bs.solve(problem, start, tol=1e-6, progress=False).point
    for point in (start, bs.Point(solved.x + 1e-3, solved.theta, solved.y)):
        assert not bs.certify(problem, point).within(1e-4)
        monkeypatch.setattr(Kernels, name, broken)
        found = bs.certify(problem, point)
        monkeypatch.undo()
        assert not found.within(1e-4), str(found)


def test_stiff_columns_do_not_hide_a_lower_level_that_is_not_solved(monkeypatch):
    """x = theta makes every upper gradient 0, but theta is not theta*(x): only the error bound can tell."""
    problem = bs.Problem(
        lambda x, theta, y, data: 0.5 * jnp.sum((x - theta) ** 2),
        lambda x, theta, data: 0.5 * jnp.sum((theta - 0.5 * x - 1) ** 2),
        bs.sets.Box(-5.0, 5.0),
        None,
    )
    point = bs.Point(x=np.zeros(3), theta=np.zeros(3))
    assert not bs.certify(problem, point).within(1e-2)
    monkeypatch.setattr(Kernels, "columns", stiff_columns)
    assert not bs.certify(problem, point).within(1e-2)
