"""Sets of matrices: what the common laws do not ask of them."""

import warnings

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment, linprog

from bisaddle import sets
from bisaddle.sets.krylov import leading_symmetric


def _frames(rng, *shape):
    u, _, vt = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    return u, vt


def _with_singular_values(rng, rows, columns, values):
    u, vt = _frames(rng, rows, columns)
    s = np.zeros(min(rows, columns))
    s[: len(values)] = values
    return (u * s) @ vt


def _spectra():
    rng = np.random.default_rng(0)
    falling = np.linspace(0.9, 0.0, 97)
    return {
        "gaussian": rng.normal(size=(150, 100)),
        "wide": rng.normal(size=(60, 200)),
        "clustered": _with_singular_values(rng, 120, 100, [1, 1 - 1e-7, 1 - 2e-7, *falling]),
        "repeated": _with_singular_values(rng, 120, 100, [1, 1, 1, *falling]),
        "orthogonal": _with_singular_values(rng, 100, 100, np.ones(100)),
        "rank one": _with_singular_values(rng, 120, 100, [2.0]),
        "one entry": np.eye(80)[:, :1] @ np.eye(70)[:1],
        "geometric": _with_singular_values(rng, 120, 100, 10.0 ** -np.arange(0.0, 12, 0.5)),
        "zero": np.zeros((80, 70)),
        "small": rng.normal(size=(7, 4)),
        "tiny numbers": 1e-200 * rng.normal(size=(90, 80)),
        "huge numbers": 1e200 * rng.normal(size=(90, 80)),
    }


def _some_quick(names, quick):
    return [pytest.param(n, marks=[] if n in quick else [pytest.mark.slow]) for n in names]


@pytest.mark.parametrize("count", _some_quick([1, 3], [1]))
@pytest.mark.parametrize("name", _some_quick(_spectra(), ["wide", "clustered"]))
def test_leading_singular_triples_and_their_residuals(name, count):
    a = _spectra()[name]
    u, s, v, residual = map(np.asarray, jax.jit(lambda a: sets.NuclearBall(1.0).leading(a, count))(a))
    scale = max(np.abs(a).max(), 1e-300)
    a, s, residual = a / scale, s / scale, residual / scale  # no squares of 1e200
    expected = np.linalg.svd(a, compute_uv=False)[:count]
    largest = max(expected[0], 1e-300)
    np.testing.assert_allclose(s, expected, atol=1e-12 * largest)
    np.testing.assert_allclose(u.T @ u, np.eye(count), atol=1e-12)
    np.testing.assert_allclose(v.T @ v, np.eye(count), atol=1e-12)
    true_residual = np.maximum(np.linalg.norm(a @ v - u * s, axis=0), np.linalg.norm(a.T @ u - v * s, axis=0))
    assert np.all(true_residual <= 2e-12 * largest)
    np.testing.assert_allclose(residual, true_residual, atol=1e-13 * largest)


@pytest.mark.parametrize("count", _some_quick([1, 2], [2]))
@pytest.mark.parametrize(
    "kind", _some_quick(["gaussian", "negative definite", "repeated", "zero", "indefinite rank one"], ["repeated"])
)
def test_leading_eigenpairs_and_their_residuals(kind, count):
    rng = np.random.default_rng(1)
    g = rng.normal(size=(90, 90))
    q, _ = np.linalg.qr(g)
    a = {
        "gaussian": g,
        "negative definite": -g @ g.T,  # the largest eigenvalues are close together, compared with the smallest
        "repeated": (q * np.r_[1, 1, np.linspace(0.8, -1, 88)]) @ q.T,
        "zero": np.zeros((90, 90)),
        "indefinite rank one": -np.outer(q[0], q[0]),
    }[kind]
    a = (a + a.T) / 2
    vectors, values, residual = map(np.asarray, jax.jit(lambda a: leading_symmetric(a, count))(a))
    scale = max(np.linalg.norm(a, 2), 1e-300)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(a)[::-1][:count], atol=1e-12 * scale)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(count), atol=1e-12)
    np.testing.assert_allclose(residual, np.linalg.norm(a @ vectors - vectors * values, axis=0), atol=1e-13 * scale)
    assert np.all(residual <= 2e-12 * scale)


def test_leading_of_a_spectrahedron_gives_the_smallest_eigenvalues_of_the_symmetric_part():
    d = np.random.default_rng(2).normal(size=(3, 50, 50))
    vectors, values, residual = jax.jit(lambda d: sets.Spectrahedron(1.0).leading(d, 2))(d)
    assert vectors.shape == (3, 50, 2) and residual.shape == (3, 2)
    expected = np.linalg.eigvalsh((d + d.transpose(0, 2, 1)) / 2)[:, :2]
    np.testing.assert_allclose(values, expected, atol=1e-11)


def test_every_matrix_of_a_stack_is_projected_from_its_own_leading_triples():
    stack = np.random.default_rng(3).normal(size=(2, 40, 36))
    project = jax.jit(lambda v: sets.NuclearBall(5.0).project_leading(v, 2))
    np.testing.assert_allclose(project(stack), [project(v) for v in stack], atol=1e-12)


@pytest.mark.slow
def test_single_precision_is_residual_controlled_too():
    a = np.random.default_rng(3).normal(size=(200, 150)).astype(np.float32)
    u, s, _, residual = sets.NuclearBall(1.0).leading(jnp.asarray(a), 2)
    assert u.dtype == jnp.float32
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False)[:2], rtol=1e-5)
    assert np.all(np.asarray(residual) <= 2e-5 * float(s[0]))


def _factorised_sizes(jaxpr, found):
    """The shortest side of everything handed to a dense factorisation."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("svd", "eigh", "geqrf", "qr", "lu", "cholesky"):
            found.append((equation.primitive.name, min(equation.invars[0].aval.shape[-2:])))
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda p: hasattr(p, "eqns") or hasattr(p, "jaxpr")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                _factorised_sizes(inner, found)
    return found


def test_linear_minimisation_over_nuclear_ball_and_spectrahedron_never_factorises_the_whole_matrix():
    d = jnp.zeros((500, 400))
    found = _factorised_sizes(jax.make_jaxpr(sets.NuclearBall(1.0).lmo)(d).jaxpr, [])
    assert "eigh" in dict(found) and max(size for _, size in found) <= 100
    found = _factorised_sizes(jax.make_jaxpr(sets.Spectrahedron(1.0).lmo)(d[:400]).jaxpr, [])
    assert "eigh" in dict(found) and max(size for _, size in found) <= 100
    # and the inspection does see a full one
    assert max(size for _, size in _factorised_sizes(jax.make_jaxpr(sets.NuclearBall(1.0).project)(d).jaxpr, [])) == 400


@pytest.mark.parametrize("oracle", ["project", "lmo"])
def test_schatten_balls_with_p_one_two_and_infinity_are_sets_known_by_other_names(oracle):
    v = jnp.asarray(np.random.default_rng(4).normal(size=(6, 4)))
    known = {1: sets.NuclearBall(1.3), 2: sets.L2Ball(1.3), float("inf"): sets.SpectralBall(1.3)}
    for p, other in known.items():
        ball = sets.SchattenBall(p, 1.3)
        np.testing.assert_allclose(getattr(ball, oracle)(v), getattr(other, oracle)(v), atol=1e-12)
        assert float(ball.diameter(v)) == pytest.approx(float(other.diameter(v)))


def _degenerate(rng, rows, columns, values):
    return jnp.asarray(_with_singular_values(rng, rows, columns, values))


# away from kinks: no value at a threshold of a set below
DEGENERATE = [(2.0, 2.0, 1.1), (2.0, 0.0, 0.0), (1.7, 1.7, 0.0)]


@pytest.mark.parametrize("shape", _some_quick([(5, 3), (3, 5), (4, 4)], [(3, 5)]), ids=str)
@pytest.mark.parametrize(
    "ball",
    [
        sets.NuclearBall(1.5),
        *(
            pytest.param(s, marks=pytest.mark.slow)
            for s in (sets.SpectralBall(0.8), sets.SchattenBall(3, 1.0), sets.SchattenBall(3, 50.0))
        ),
    ],
    ids=["nuclear", "spectral", "schatten", "inside"],
)
def test_derivatives_of_projections_at_repeated_and_zero_singular_values(ball, shape):
    rng = np.random.default_rng(5)
    points = [jnp.asarray(_with_singular_values(rng, *shape, values)) for values in DEGENERATE]
    _check_derivatives(lambda v: ball.project(v), points, rng)


@pytest.mark.parametrize("convex_set", [sets.Spectrahedron(2.5), sets.Fantope(2)], ids=["spectrahedron", "fantope"])
def test_derivatives_of_projections_at_repeated_eigenvalues(convex_set):
    rng = np.random.default_rng(6)
    q, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    spectra = [1.2, 1.2, 1.2, -1.0, -1.0], [0.9, 0.9, 0.7, 0.7, -3.0], [5.0, 5.0, 0.0, 0.0, 0.0]
    points = [jnp.asarray((q * np.array(values)) @ q.T) for values in spectra]
    _check_derivatives(lambda v: convex_set.project(v), points, rng)


def _check_derivatives(project, points, rng):
    value = jax.jit(lambda v, w: jnp.sum(w * project(v)))
    gradient = jax.jit(jax.grad(value))
    tangent = jax.jit(lambda v, w, u: jax.jvp(lambda v: value(v, w), (v,), (u,))[1])
    for v in points:
        u, w = (jnp.asarray(rng.normal(size=v.shape)) for _ in range(2))
        forward = float(tangent(v, w, u))
        assert forward == pytest.approx(float(jnp.sum(gradient(v, w) * u)), rel=1e-9, abs=1e-9)
        h = 1e-7  # short: second derivatives jump at 0 for the Schatten balls
        difference = float(value(v + h * u, w) - value(v - h * u, w)) / (2 * h)
        assert forward == pytest.approx(difference, rel=1e-5, abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [sets.NuclearBall, sets.SpectralBall, sets.Spectrahedron], ids=lambda k: k.__name__)
def test_derivatives_with_respect_to_the_radius(kind):
    rng = np.random.default_rng(7)
    v, w = (jnp.asarray(3 * rng.normal(size=(4, 4))) for _ in range(2))
    value = lambda radius: jnp.sum(w * kind(radius).project(v))
    difference = (value(1.2 + 1e-5) - value(1.2 - 1e-5)) / 2e-5
    assert float(jax.grad(value)(1.2)) == pytest.approx(float(difference), rel=1e-6)
    support = lambda radius: kind(radius).support(v)
    assert float(jax.grad(support)(1.2)) == pytest.approx(float(support(1.0)), rel=1e-10)


@pytest.mark.slow
def test_the_derivative_of_the_support_function_is_the_maximiser():
    d = jnp.asarray(np.random.default_rng(8).normal(size=(45, 45)))
    for convex_set in (sets.NuclearBall(2.0), sets.Spectrahedron(2.0)):
        maximiser = convex_set.lmo(-d)
        np.testing.assert_allclose(jax.grad(convex_set.support)(d), maximiser, atol=1e-10)


def _solved(objective, constraints):
    problem = cp.Problem(objective, constraints)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CVXPY's own remarks, on accuracy among others
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return problem.value


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_spectral_ball_against_clarabel(count):
    """As for the other sets; but Clarabel stops short of 1e-6 for some projections. There, CVXPY must find ours
    feasible and nearer: the objective is strongly convex, so the nearer of two feasible points is the more accurate."""
    rng = np.random.default_rng(12)
    missed = 0
    for v in 2 * rng.normal(size=(count, 5, 3)):
        ball = sets.SpectralBall(rng.uniform(0.5, 3))
        mine = np.asarray(ball.project(jnp.asarray(v)))
        u = cp.Variable((5, 3))
        constraint = cp.sigma_max(u) <= float(ball.radius)
        value = _solved(cp.Minimize(cp.sum_squares(u - v)), [constraint])
        if np.abs(mine - u.value).max() > 1e-6:
            missed += 1
            assert np.sum((mine - v) ** 2) < value and np.abs(mine - u.value).max() <= 1e-3
            u.value = mine
            assert np.max(constraint.violation()) <= 1e-12
        best = _solved(cp.Minimize(cp.sum(cp.multiply(v, u))), [constraint])
        assert np.sum(v * np.asarray(ball.lmo(jnp.asarray(v)))) == pytest.approx(best, rel=1e-6)
    assert missed <= count / 10


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_assignments_are_those_of_scipy(n):
    rng = np.random.default_rng(n)
    lmo = jax.jit(lambda d: sets.BirkhoffPolytope().lmo(d))
    for scale in (1e-8, 1.0, 1e8, 1e16):
        for d in (rng.normal(size=(n, n)) * scale, rng.integers(0, 3, size=(n, n)) * scale):
            p = np.asarray(lmo(jnp.asarray(d)))
            assert set(np.unique(p)) <= {0.0, 1.0} and np.all(p.sum(0) == 1) and np.all(p.sum(1) == 1)
            best = d[linear_sum_assignment(d)].sum()
            assert np.sum(p * d) == pytest.approx(best, rel=1e-12, abs=1e-12 * scale)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (1, 4), (6, 4), (4, 6), (25, 20)])
def test_transport_programs_are_solved_at_a_vertex(rows, columns):
    rng = np.random.default_rng([rows, columns])
    r, c = rng.uniform(0.1, 2, rows), rng.uniform(0.1, 2, columns)
    c *= r.sum() / c.sum()
    polytope = sets.TransportPolytope(r, c)
    lmo = jax.jit(lambda d: polytope.lmo(d))
    equations = np.vstack([np.kron(np.eye(rows), np.ones(columns)), np.kron(np.ones(rows), np.eye(columns))])
    costs = [rng.normal(size=(rows, columns)) * scale for scale in (1e-8, 1.0, 1e16)]
    costs += [rng.integers(0, 2, size=(rows, columns)) * 1.0, np.zeros((rows, columns)), np.ones((rows, columns))]
    for d in costs:
        p = np.asarray(lmo(jnp.asarray(d)))
        np.testing.assert_allclose(p.sum(1), r, atol=1e-13)
        np.testing.assert_allclose(p.sum(0), c, atol=1e-13)
        assert p.min() >= 0 and np.sum(p > 0) <= rows + columns - 1  # no more than a basis holds
        size = max(np.abs(d).max(), 1e-300)
        best = linprog(d.ravel() / size, A_eq=equations, b_eq=np.r_[r, c], method="highs").fun
        assert np.sum(p * d) / size == pytest.approx(best, rel=1e-9, abs=1e-9)


@pytest.mark.slow
def test_transport_projection_is_differentiable_in_its_margins():
    rng = np.random.default_rng(9)
    v, w = (jnp.asarray(rng.normal(size=(4, 3))) for _ in range(2))
    rows, columns = np.array([1.0, 0.7, 1.3, 0.5]), np.array([1.5, 1.1, 0.9])
    shift = np.array([0.2, -0.1, 0.1, -0.2])
    value = lambda t: jnp.sum(w * sets.TransportPolytope(rows + t * shift, columns).project(v))
    difference = (value(jnp.asarray(1e-5)) - value(jnp.asarray(-1e-5))) / 2e-5
    assert float(jax.grad(value)(0.0)) == pytest.approx(float(difference), rel=1e-6, abs=1e-8)


def test_both_margin_polytopes_agree_where_they_are_the_same():
    v = np.random.default_rng(10).normal(size=(6, 6))
    both = sets.TransportPolytope(np.ones(6), np.ones(6)), sets.BirkhoffPolytope()
    for oracle in ("project", "lmo"):
        np.testing.assert_allclose(*(jax.jit(getattr(one, oracle))(v) for one in both), atol=1e-13)


ALL = [
    sets.NuclearBall(1.5),
    sets.SpectralBall(0.7),
    sets.SchattenBall(3, 1.2),
    sets.Spectrahedron(2.0),
    sets.Fantope(2),
    sets.BirkhoffPolytope(),
    sets.TransportPolytope([1.0, 2.0, 1.0, 2.0], [1.5, 1.5, 1.5, 1.5]),
]


@pytest.mark.parametrize(
    "convex_set",
    [pytest.param(s, marks=[] if type(s) in (sets.NuclearBall, sets.Fantope) else [pytest.mark.slow]) for s in ALL],
    ids=lambda s: type(s).__name__,
)
def test_leading_axes_make_a_stack_of_matrices(convex_set):
    stack = np.random.default_rng(11).normal(size=(2, 3, 4, 4))
    for oracle in ("project", "lmo"):
        ask = jax.jit(getattr(convex_set, oracle))
        answer = np.asarray(ask(stack))
        for i in range(2):
            for j in range(3):
                np.testing.assert_allclose(answer[i, j], ask(stack[i, j]), atol=1e-12)
    support = jax.jit(convex_set.support)
    parts = [float(support(stack[i, j])) for i in range(2) for j in range(3)]
    assert float(support(stack)) == pytest.approx(sum(parts))
    diameter = jax.jit(convex_set.diameter)
    assert float(diameter(stack)) == pytest.approx(6**0.5 * float(diameter(stack[0, 0])))
    sample = jax.jit(lambda key: convex_set.sample(key, (2, 3, 4, 4)))(jax.random.key(0))
    assert sample.shape == (2, 3, 4, 4) and float(jax.jit(convex_set.violation)(sample)) <= 1e-12
    assert convex_set.misfit(jnp.asarray(stack)) is None


@pytest.mark.parametrize("convex_set", ALL, ids=lambda s: type(s).__name__)
def test_shapes_that_do_not_fit_are_named(convex_set):
    assert "matrices" in convex_set.misfit(jnp.zeros(4))
    with pytest.raises(ValueError, match="matrices"):
        convex_set.project(jnp.zeros(4))
    if convex_set.square:
        assert "4 x 3" in convex_set.misfit(jnp.zeros((4, 3)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sets.NuclearBall(-1), "NuclearBall radius must be finite and > 0, given -1"),
        (lambda: sets.SpectralBall(float("nan")), "SpectralBall radius"),
        (lambda: sets.SchattenBall(0.5, 1), "p must be at least 1, given 0.5"),
        (lambda: sets.SchattenBall(2, 0), "SchattenBall radius"),
        (lambda: sets.Spectrahedron([1, 2]), "must be a number, given shape"),
        (lambda: sets.Fantope(0), "integer >= 1, given 0"),
        (lambda: sets.Fantope(1.5), "integer >= 1, given 1.5"),
        (lambda: sets.TransportPolytope([1, 2], [1, 1]), "rows sum to 3.0, columns to 2.0"),
        (lambda: sets.TransportPolytope([1, 0], [0.5, 0.5]), "rows must be > 0"),
        (lambda: sets.TransportPolytope([[1]], [1]), "rows must be a nonempty vector"),
        (lambda: sets.TransportPolytope([1], [float("inf")]), "columns must be finite"),
        (lambda: sets.NuclearBall(1).leading(jnp.zeros((4, 3)), 4), "between 1 and 3"),
        (lambda: sets.Fantope(3).project(jnp.zeros((2, 2))), "is empty for 2 x 2"),
        (lambda: sets.TransportPolytope([1], [1]).project(jnp.zeros((2, 2))), "1 x 1 margins, given matrices 2 x 2"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_transport_polytope_is_built_inside_jit_from_arrays_that_are_not_traced():
    rows, columns = jnp.array([0.5, 0.5]), jnp.array([0.2, 0.3, 0.5])
    plan = jax.jit(lambda v: sets.TransportPolytope(rows, columns).project(v))(jnp.zeros((2, 3)))
    np.testing.assert_allclose(plan, np.outer([0.5, 0.5], [0.2, 0.3, 0.5]), atol=1e-14)
