"""The derivatives at flat vectors and what is solved with them, against NumPy loops, dense algebra and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.bounds import worst_value
from bisaddle.oracle import implicit as accurate, kernels as kernels_module
from bisaddle.oracle.implicit import Hessian, Implicit
from bisaddle.oracle.kernels import Kernels
from bisaddle.oracle.theta_blocks import block_order, unit_rows
from tests import reference
from tests.registry import PROBLEMS, TWINS
from tests.test_certificate import feasible_point
from tests.test_oracle import mixed

# derivatives written by hand: Experiments; automatic: the others
LOWER = ("logistic", "Experiment 1", "Experiment 2, rows", "generator, ball active", "linear-quadratic, nu > 0")


class Place:
    """Kernels at a random feasible point, the same problem in NumPy, and flat vectors."""

    def __init__(self, name, seed=0, dtype=float):
        self.problem, start, _ = PROBLEMS[name](seed)
        self.rng = np.random.default_rng(seed)
        self.point = feasible_point(self.problem, start, self.rng)
        self.kernels = Kernels(self.problem, self.point)
        self.x, self.theta, self.y = self.kernels.flat(self.point)
        self.twin = TWINS[name](seed, dtype)
        if self.theta.size:
            self.H = np.asarray(self.twin.g_tt(self.x, self.theta), float)
            self.C = np.asarray(self.twin.g_tx(self.x, self.theta), float)

    @property
    def at(self):
        """As the twin wants them: what is absent is None."""
        return [v if v.size else None for v in (self.x, self.theta, self.y)]

    def draw(self, like):
        return self.rng.normal(size=like.shape)


# --- derivatives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LOWER, "wavy saddle"])
def test_derivatives_at_flat_vectors_equal_those_written_out_in_numpy(name):
    for seed in range(2):
        place = Place(name, seed)
        kernels, twin, x, theta = place.kernels, place.twin, place.x, place.theta
        found = kernels.upper(x, theta, place.y)
        assert isinstance(found.value, float)
        np.testing.assert_allclose(found.value, twin.f(*place.at), rtol=1e-12)
        for given, wanted in ((found.f_x, twin.f_x), (found.f_theta, twin.f_theta), (found.f_y, twin.f_y)):
            assert isinstance(given, np.ndarray)
            np.testing.assert_allclose(given, np.zeros(0) if wanted is None else wanted(*place.at), atol=1e-12)
        if name == "wavy saddle":
            assert not kernels.has_lower and not kernels.quadratic and found.f_theta.size == 0
            continue
        v = place.draw(theta)
        np.testing.assert_allclose(kernels.lower_gradient(x, theta), twin.g_theta(x, theta), atol=1e-12)
        np.testing.assert_allclose(kernels.hessian_product(x, theta, v), place.H @ v, atol=1e-12)
        np.testing.assert_allclose(kernels.cross_product(x, theta, v), place.C.T @ v, atol=1e-12)
        assert kernels.quadratic is (name != "logistic")


def test_derivatives_of_pytrees_lie_in_tree_order():
    """x a tuple, theta and y dicts, against finite differences of f and of g_theta."""
    problem, point = mixed()
    kernels = Kernels(problem, point)
    x, theta, y = kernels.flat(point)
    np.testing.assert_array_equal(theta, np.concatenate([np.ravel(point.theta["a"]), np.ravel(point.theta["b"])]))
    back = kernels.point(x, theta, y)
    jax.tree.map(np.testing.assert_array_equal, back, point)
    assert jax.tree.structure(back) == jax.tree.structure(point)
    found, h = kernels.upper(x, theta, y), 1e-6
    f = lambda *at: kernels.upper(*at).value
    parts = [x, theta, y]
    for i, given in enumerate((found.f_x, found.f_theta, found.f_y)):
        moved = lambda v, i=i: [*parts[:i], v, *parts[i + 1 :]]
        units = h * np.eye(parts[i].size)
        slopes = [(f(*moved(parts[i] + e)) - f(*moved(parts[i] - e))) / (2 * h) for e in units]
        np.testing.assert_allclose(given, slopes, atol=1e-7)
    H, C = kernels.columns(x, theta)
    g = kernels.lower_gradient
    np.testing.assert_allclose(
        H, [(g(x, theta + e) - g(x, theta - e)) / (2 * h) for e in h * np.eye(theta.size)], atol=1e-6
    )
    np.testing.assert_allclose(
        C.T, [(g(x + e, theta) - g(x - e, theta)) / (2 * h) for e in h * np.eye(x.size)], atol=1e-6
    )
    v = np.cos(theta)
    np.testing.assert_allclose(kernels.hessian_product(x, theta, v), v @ H, atol=1e-12)
    np.testing.assert_allclose(kernels.cross_product(x, theta, v), v @ C, atol=1e-12)


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("name", ["logistic", "Experiment 1"])
def test_columns_are_the_hessian_and_the_cross_derivative(name, heavy, monkeypatch):
    if heavy:  # with much data: one column after the other
        monkeypatch.setattr(kernels_module, "LIGHT_BYTES", 0)
    place = Place(name)
    assert place.kernels.heavy is heavy
    H, C = place.kernels.columns(place.x, place.theta)
    np.testing.assert_allclose(H, place.H, atol=1e-12)
    np.testing.assert_allclose(C, place.C, atol=1e-12)
    np.testing.assert_allclose(place.kernels.hessian_columns(place.x, place.theta, 1), place.H, atol=1e-12)


@pytest.mark.parametrize("name", LOWER)
def test_bends_are_the_derivatives_of_the_equations(name):
    """d/dtheta of (f_x - g_theta_x w, f_theta - g_theta_theta w, f_y) by central differences in extended precision."""
    place = Place(name, dtype=reference.EXTENDED)
    x, theta, y, twin = place.x, place.theta, place.y, place.twin
    w = place.draw(theta)
    ends = np.stack([theta, theta + 0.1 * place.draw(theta)])
    found = place.kernels.bends(x, theta, y, w, ends)
    assert found.shape == (2, theta.size, x.size + theta.size + y.size)

    def equations(t):
        at = (x.astype(reference.EXTENDED), t, None if not y.size else y.astype(reference.EXTENDED))
        Gx = twin.f_x(*at) - twin.g_tx(*at[:2]).T @ w
        residual = twin.f_theta(*at) - twin.g_tt(*at[:2]) @ w
        return np.concatenate([Gx, residual, *([] if not y.size else [twin.f_y(*at)])])

    h = reference.EXTENDED(1e-6)
    for end, J in zip(ends, found, strict=True):
        units = h * np.eye(theta.size, dtype=reference.EXTENDED)
        slopes = [(equations(end + e) - equations(end - e)) / (2 * h) for e in units]
        np.testing.assert_allclose(J, np.array(slopes, float), atol=1e-8)


@pytest.mark.parametrize("name", LOWER)
def test_norms_are_from_below_and_twice_them_are_bounds(name):
    for seed in range(2):
        place = Place(name, seed)
        x, theta, y, w = place.x, place.theta, place.y, place.draw(place.theta)
        ends = np.stack([theta, theta + 0.1 * place.draw(theta)])
        cross, bend = place.kernels.norms(x, theta, y, w, ends)
        J = np.concatenate(list(place.kernels.bends(x, theta, y, w, ends)), axis=1)
        for found, exact in ((cross, np.linalg.norm(place.C, 2)), (bend, np.linalg.norm(J, 2))):
            assert isinstance(found, float)
            assert exact / 2 <= found <= exact * (1 + 1e-12)


def _sum(x, theta, y, data):
    return jnp.sum(theta)


def _diagonal(x, theta, data):
    return jnp.sum(data["curvature"] * theta**2) / 2 - jnp.sum(data["coupling"] * x * theta)


def diagonal_problem(curvature, coupling):
    """g_theta_theta is diag(curvature), g_theta_x is -diag(coupling)."""
    data = {"curvature": jnp.asarray(curvature), "coupling": jnp.asarray(coupling)}
    problem = bs.Problem(_sum, _diagonal, bs.sets.Box(-1.0, 1.0), None, data)
    return problem, bs.Point(jnp.zeros(len(coupling)), jnp.zeros(len(curvature)), None)


@pytest.mark.parametrize(("size", "largest"), [(50, 5.0), (1000, 5.0), (1000, 2.2), (10_000, 3.0)])
def test_a_norm_sees_one_large_singular_value_among_many_small_ones(size, largest):
    """Or an error bound made of twice the norm is none."""
    coupling = np.ones(size)
    coupling[7] = largest
    problem, start = diagonal_problem(np.ones(size), coupling)
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    cross, bend = kernels.norms(x, theta, y, np.ones(size), theta[None])
    assert largest / 2 <= cross <= largest * (1 + 1e-12)
    assert bend == 0  # nothing depends on theta here


# --- solves ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOWER)
def test_solves_against_dense_ones(name):
    place = Place(name)
    solve, x, theta, H = place.kernels.solve, place.x, place.theta, place.H
    right, size = place.draw(theta), theta.size
    exact = np.linalg.solve(H, right)
    found = solve(x, theta, right, 1e-11)
    np.testing.assert_allclose(found.w, exact, atol=1e-9)
    np.testing.assert_allclose(found.r, right - H @ found.w, atol=1e-10)
    assert np.linalg.norm(found.r) <= 1e-11 and 1 <= found.products <= 3 * size
    eigenvalues = np.linalg.eigvalsh(H)
    assert eigenvalues[0] * (1 - 1e-9) <= found.least <= eigenvalues[-1] * (1 + 1e-9)
    # from where the answer is known but for a little
    near = solve(x, theta, right, 1e-4, start=exact + 1e-6 * place.draw(theta))
    assert near.products == 0 and np.isinf(near.least)
    np.testing.assert_allclose(near.r, right - H @ near.w, atol=1e-12)
    warm = solve(x, theta, right, 1e-11, start=exact + 1e-6 * place.draw(theta))
    assert 1 <= warm.products <= found.products
    np.testing.assert_allclose(warm.w, exact, atol=1e-9)
    # no more products than allowed
    few = solve(x, theta, right, 0.0, limit=2)
    assert few.products == 2
    np.testing.assert_allclose(few.r, right - H @ few.w, atol=1e-12)
    none = solve(x, theta, right, 0.0, start=exact, limit=0)
    assert none.products == 0
    np.testing.assert_array_equal(none.w, exact)
    # with the inverse it takes one product, or one more for rounding
    inverse = np.linalg.inv(H)[None]
    best = solve(x, theta, right, 1e-11, inverse=0.5 * (inverse + inverse.transpose(0, 2, 1)))
    assert best.products <= 2
    np.testing.assert_allclose(best.w, exact, atol=1e-9)


@pytest.mark.parametrize("name", ["logistic", "Experiment 1"])
def test_a_solve_with_the_gradient_and_with_the_cross_product(name):
    place = Place(name)
    solve, x, theta, H = place.kernels.solve, place.x, place.theta, place.H
    g = place.twin.g_theta(x, theta)
    found = solve(x, theta, None, 1e-11, cross=True)
    np.testing.assert_allclose(found.right, -g, atol=1e-12)
    np.testing.assert_allclose(found.w, -np.linalg.solve(H, g), atol=1e-9)
    np.testing.assert_allclose(found.cross, place.C.T @ found.w, atol=1e-12)
    length = np.linalg.norm(g)
    part = solve(x, theta, None, 0.0, 0.3)
    assert 0 < np.linalg.norm(part.r) <= 0.3 * length and 1 <= part.products < found.products
    # a gradient that is small enough is left alone
    left = solve(x, theta, None, 0.0, enough=1.01 * length)
    assert left.products == 0 and not np.any(left.w)
    assert solve(x, theta, None, 0.0, 0.5, enough=0.99 * length).products > 0


def test_a_direction_without_curvature_ends_a_solve():
    problem, start = diagonal_problem(np.array([1.0, -2.0, 3.0]), np.ones(3))
    kernels = Kernels(problem, start)
    x, theta, _ = kernels.flat(start)
    found = kernels.solve(x, theta, np.array([0.0, 1.0, 0.0]), 1e-10)
    assert found.products == 1 and np.all(np.isfinite(found.w)) and np.isinf(found.least)
    np.testing.assert_array_equal(found.w, np.zeros(3))


def blocks_problem(T=40):
    """theta a dict: task t has a[t] and b[t], in a quadratic of their own."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(T, 7, 7))

    def lower_level(x, theta, data):
        each = jnp.concatenate([theta["a"].reshape(T, 4), theta["b"]], axis=1)
        return 0.5 * jnp.einsum("ti,tij,tj->", each, data, each) - x @ jnp.sum(each, axis=0)

    H = jnp.asarray(A @ A.transpose(0, 2, 1) + 0.1 * np.eye(7))
    upper = lambda x, theta, y, data: jnp.sum(theta["b"])
    problem = bs.Problem(upper, lower_level, bs.sets.Box(-1.0, 1.0), None, H)
    return problem, bs.Point(jnp.zeros(7), {"a": jnp.zeros((T, 2, 2)), "b": jnp.zeros((T, 3))}, None)


def test_blocks_run_along_the_first_axis_of_every_leaf():
    problem, start = blocks_problem()
    kernels = Kernels(problem, start)
    x, theta, _ = kernels.flat(start)
    assert kernels.blocks == 40 and kernels.identity.shape == (40, 7, 7)
    order = block_order(kernels.theta, 40)
    a, b = np.arange(160).reshape(40, 4), 160 + np.arange(120).reshape(40, 3)
    np.testing.assert_array_equal(order, np.concatenate([a, b], axis=1).ravel())
    units = unit_rows(kernels.theta, 40, 7)
    np.testing.assert_array_equal(units[:, order], np.tile(np.eye(7), 40))
    columns, cross = kernels.columns(x, theta, 40)
    hessians = columns[:, order].reshape(7, 40, 7).transpose(1, 0, 2)
    np.testing.assert_allclose(hessians, problem.data, atol=1e-12)
    np.testing.assert_allclose(cross, -40 * np.eye(7), atol=1e-12)
    right = np.random.default_rng(4).normal(size=theta.size)
    found = kernels.solve(x, theta, right, 1e-9, inverse=np.linalg.inv(hessians))
    plain = kernels.solve(x, theta, right, 1e-9)
    assert found.products <= 2 < plain.products
    exact = np.linalg.solve(problem.data, right[order].reshape(40, 7, 1)).ravel()
    np.testing.assert_allclose(found.w[order], exact, atol=1e-8)
    np.testing.assert_allclose(plain.w[order], exact, atol=1e-6)


def test_all_that_comes_out_is_in_the_dtype_of_the_point():
    for name in ("logistic", "generator, ball active", "wavy saddle"):
        single = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), PROBLEMS[name](0)[:2])
        kernels = Kernels(*single)
        x, theta, y = kernels.flat(single[1])
        found = [*kernels.upper(x, theta, y)[1:]]
        if kernels.has_lower:
            ends = np.stack([theta, theta])
            found += [kernels.lower_gradient(x, theta), kernels.cross_product(x, theta, theta)]
            found += [kernels.solve(x, theta, theta, 1e-3).w, *kernels.columns(x, theta)]
            found += [kernels.bends(x, theta, y, theta, ends)]
        assert {v.dtype for v in (x, theta, y, *found)} == {np.dtype(np.float32)}, name


# --- the accurate solves ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["dense", "conjugate gradients"])
@pytest.mark.parametrize("name", [*LOWER, "wavy saddle"])
def test_the_accurate_solves_equal_those_written_out_in_numpy(name, path, monkeypatch):
    if path != "dense":
        monkeypatch.setattr(accurate, "FEW_DENSE_LIMIT", 0)
    place = Place(name)
    solved = Implicit(place.kernels, place.x, place.theta, place.y)
    if name == "wavy saddle":
        assert solved.lower_residual == solved.linear_residual == 0 and solved.theta.size == solved.w.size == 0
        np.testing.assert_allclose(solved.Gx, place.twin.f_x(*place.at), rtol=1e-9, atol=1e-10)
        return
    assert solved.hessian.dense is (path == "dense")
    exact = reference.solve_lower(TWINS[name](0, reference.EXTENDED), place.x, place.theta)
    np.testing.assert_allclose(solved.theta, exact.astype(float), atol=1e-11)
    g, H = place.twin.g_theta(place.x, solved.theta), place.twin.g_tt(place.x, solved.theta)
    C = place.twin.g_tx(place.x, solved.theta)
    at = (place.x, solved.theta, place.at[2])
    w = np.linalg.solve(H, place.twin.f_theta(*at))
    np.testing.assert_allclose(solved.w, w, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(solved.Gx, place.twin.f_x(*at) - C.T @ w, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(solved.products.g_theta, g, atol=1e-12)
    assert solved.lower_residual <= 1e-11 and solved.linear_residual <= 1e-11
    np.testing.assert_allclose(np.linalg.norm(g), solved.lower_residual, atol=1e-12)
    least = np.linalg.eigvalsh(H)[0]
    np.testing.assert_allclose(solved.hessian.least, least, rtol=1e-8 if path == "dense" else 0.2)
    v = place.draw(solved.theta)
    np.testing.assert_allclose(solved.hessian.product(v), H @ v, atol=1e-11)
    products = place.kernels.products(place.x, solved.theta, v, w)
    np.testing.assert_allclose(products.g_theta, g, atol=1e-12)
    np.testing.assert_allclose(products.hessian, [H @ v, H @ w], atol=1e-11)
    np.testing.assert_allclose(products.cross, [C.T @ v, C.T @ w], atol=1e-11)
    assert solved.matrices_agree()


@pytest.mark.parametrize("path", ["dense", "conjugate gradients"])
def test_the_accurate_solves_stop_at_the_accuracy_asked_for(path, monkeypatch):
    if path != "dense":
        monkeypatch.setattr(accurate, "FEW_DENSE_LIMIT", 0)
    place = Place("logistic")
    exact = Implicit(place.kernels, place.x, place.theta, place.y)
    for accuracy in (1e-2, 1e-5, 1e-8):
        solved = Implicit(place.kernels, place.x, place.theta, place.y, accuracy)
        assert solved.lower_residual <= accuracy and solved.linear_residual <= accuracy
        # mu_g = 0.1
        assert np.linalg.norm(solved.theta - exact.theta) <= 10 * solved.lower_residual + 1e-12
    warm = Implicit(place.kernels, place.x, exact.theta, place.y, 1e-8, exact.w)
    np.testing.assert_array_equal(warm.w, exact.w)


def test_a_hessian_without_an_inverse_gives_nan_and_never_a_quiet_number():
    for curvature in ([1.0, -2.0, 3.0], [1.0, 1e-17, 1.0]):
        problem, start = diagonal_problem(np.array(curvature), np.ones(3))
        kernels = Kernels(problem, start)
        hessian = Hessian(kernels, np.zeros(3), np.zeros(3))
        np.testing.assert_array_equal(hessian.matrix, np.diag(curvature))
        assert np.isnan(hessian.least)
        assert min(curvature) > 0 or np.all(np.isnan(hessian.inverse))
    certificate = bs.certify(problem, start)
    assert np.isnan(certificate.error_bound) and not certificate.within(1e10)


# --- worst values ----------------------------------------------------------------------------------------------------


def simplex_grid(steps):
    """All points of the simplex in three dimensions with coordinates that are multiples of 1 / steps."""
    i, j = np.meshgrid(np.arange(steps + 1), np.arange(steps + 1))
    keep = i + j <= steps
    return np.stack([i[keep], j[keep], steps - i[keep] - j[keep]], axis=1) / steps


@pytest.mark.parametrize("name", ["logistic", "Experiment 2", "linear-quadratic on the simplex, nu = 0"])
def test_the_worst_value_against_a_grid(name):
    for seed in range(2):
        place = Place(name, seed)
        kernels, x, theta, y = place.kernels, place.x, place.theta, place.y
        found, rest, _ = worst_value(kernels, kernels.y_set, x, theta, y, kernels.upper(x, theta, y))
        values = np.array([place.twin.f(x, theta, point) for point in simplex_grid(200)])
        assert values.max() <= found + rest + 1e-12 and rest <= 1e-12 * (1 + abs(found))
        assert found - values.max() <= 1e-3 * (1 + np.ptp(values))  # as near as a grid comes
        rough, lacking, _ = worst_value(kernels, kernels.y_set, x, theta, y, kernels.upper(x, theta, y), 1e-2)
        assert lacking <= 1e-2 and rough <= found + 1e-12 <= rough + lacking + 2e-12


def test_the_worst_value_with_a_penalty_and_from_outside_the_set():
    """max over the simplex of <b, y> - weight sum y log y = weight log sum exp(b / weight)."""
    b, weight = np.array([0.3, -1.0, 0.7, 0.1]), 0.2
    upper = lambda x, theta, y, data: jnp.sum(x) + data @ y
    problem = bs.Problem(upper, None, bs.sets.Box(-1.0, 1.0), bs.sets.Entropy(weight), jnp.asarray(b))
    for y in (np.full(4, 0.25), np.array([1.0, 0.0, 0.0, 0.0]), np.array([3.0, -1.0, 0.5, 0.5])):
        kernels = Kernels(problem, bs.Point(jnp.zeros(1), None, jnp.asarray(y)))
        x, theta, y = np.zeros(1), np.zeros(0), np.asarray(y)
        found, rest, _ = worst_value(kernels, kernels.y_set, x, theta, y, kernels.upper(x, theta, y))
        wanted = weight * np.log(np.sum(np.exp(b / weight)))
        np.testing.assert_allclose(found, wanted, rtol=1e-10)
        assert found - 1e-12 <= wanted <= found + rest + 1e-12
