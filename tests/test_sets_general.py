"""Polytopes and sets made from other sets: against closed forms, against solvers nobody here wrote, and in a run."""

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog

import bisaddle as bs
from bisaddle import sets, trees

RNG = np.random.default_rng(0)


def _points(count, n, seed=0):
    return jnp.asarray(2 * np.random.default_rng(seed).normal(size=(count, n)))


def _same_set(mine, other, n=6, atol=1e-12):
    """Projections and linear minima agree (minima by value: ties may fall differently)."""
    points = _points(20, n)

    @jax.jit
    def answers(convex_set):
        minimum = lambda d: jnp.vdot(d, convex_set.lmo(d))
        each = (convex_set.project, convex_set.violation, minimum, convex_set.support)
        return [jax.vmap(oracle)(points) for oracle in each]

    for a, b in zip(answers(mine), answers(other), strict=True):
        np.testing.assert_allclose(a, b, atol=10 * atol)


def _clarabel(n, constraints):
    u, target = cp.Variable(n), cp.Parameter(n)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(u - target)), constraints(u))

    def project(v):
        target.value = np.asarray(v)
        problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
        return u.value

    return project


# wrappers -------------------------------------------------------------------------------------------------------------


def test_a_scaled_ball_is_the_ball_of_another_radius():
    _same_set(sets.Scaled(sets.L1Ball(1.5), 2.0), sets.L1Ball(3.0))
    _same_set(sets.Scaled(sets.L1Ball(1.5), -2.0), sets.L1Ball(3.0))
    v = jnp.zeros(6)
    np.testing.assert_allclose(sets.Scaled(sets.L1Ball(1.5), -2.0).diameter(v), 6.0)


def test_a_translated_box_is_a_box():
    low, high, offset = RNG.uniform(-2, 0, 6), RNG.uniform(0, 2, 6), RNG.normal(size=6)
    _same_set(sets.Translated(sets.Box(low, high), offset), sets.Box(low + offset, high + offset))


def test_a_rotated_l2_ball_is_itself_and_a_rotated_simplex_is_a_hull():
    Q = np.linalg.qr(np.random.default_rng(5).normal(size=(6, 6)))[0]
    _same_set(sets.Rotated(sets.L2Ball(1.3), Q), sets.L2Ball(1.3))
    _same_set(sets.Rotated(sets.Simplex(1.3), Q), sets.ConvexHull(1.3 * Q.T), atol=1e-10)


def test_wrappers_keep_what_the_inner_set_can_do_and_work_inside_each_other():
    inner = sets.Intersection([sets.Box(0.0, 0.5), sets.Simplex()])
    for wrapped in (sets.Scaled(inner, 2.0), sets.Translated(inner, 1.0), sets.Rotated(inner, np.eye(4))):
        assert wrapped.capabilities == {"project"} and wrapped.tolerance == inner.tolerance
        with pytest.raises(ValueError, match="FullyProjected"):
            wrapped.lmo(jnp.ones(4))
    both = sets.Translated(sets.Scaled(sets.LinfBall(1.0), 2.0), 1.0)
    _same_set(both, sets.Box(-1.0, 3.0))


def test_wrappers_take_products_and_pytrees():
    product = sets.Product({"a": sets.L2Ball(1.0), "b": [sets.Box(-1.0, 1.0)]})
    v = {"a": jnp.asarray([3.0, 4.0]), "b": [jnp.asarray([5.0])]}
    doubled = sets.Scaled(product, 2.0).project(v)
    np.testing.assert_allclose(doubled["a"], [1.2, 1.6])
    np.testing.assert_allclose(doubled["b"][0], [2.0])
    shifted = sets.Translated(product, {"a": np.array([1.0, 0.0]), "b": [np.array(2.0)]})
    assert shifted.misfit(v) is None and "same keys and nesting" in str(shifted.misfit({"a": v["a"]}))
    np.testing.assert_allclose(shifted.project(v)["b"][0], [3.0])


def test_the_laws_hold_for_a_product_over_a_nested_pytree():
    product = sets.Product({"p": sets.Simplex(axis=-1), "q": (sets.L2Ball(1.5), sets.Box(-1.0, 2.0))})
    shapes = {"p": (3, 4), "q": ((5,), (2, 2))}
    dot, minus = trees.dot, trees.subtract

    @jax.jit
    @jax.vmap
    def laws(key):
        inside = product.sample(key, shapes)
        v = jax.tree.map(lambda a: 3 * jax.random.normal(key, a.shape), inside)
        p, s = product.project(v), product.lmo(v)
        bound, best = product.best_response(inside, v)
        return {
            "feasible": product.violation(p) + product.violation(s) + product.violation(inside),
            "variational": dot(minus(v, p), minus(inside, p)),
            "optimal": dot(v, minus(s, inside)),
            "best": jnp.abs(bound - dot(v, minus(best, inside))) + jnp.abs(bound - product.support(v) + dot(v, inside)),
            "diameter": trees.norm(minus(p, inside)) - product.diameter(v),
        }

    for law, worst in laws(jax.random.split(jax.random.key(0), 200)).items():
        assert float(jnp.max(worst)) <= 1e-12, law


# polytopes ------------------------------------------------------------------------------------------------------------


def test_the_hull_of_the_simplex_vertices_is_the_simplex():
    _same_set(sets.ConvexHull(1.5 * np.eye(6)), sets.Simplex(1.5))
    corners = np.array(np.meshgrid(*[[-1.0, 1.0]] * 4)).reshape(4, -1).T
    _same_set(sets.ConvexHull(corners), sets.LinfBall(1.0), n=4, atol=1e-11)


@pytest.mark.slow
def test_a_hull_holds_matrices_and_differentiates_in_its_vertices():
    vertices = RNG.normal(size=(7, 2, 3))
    v = jnp.asarray(3 * RNG.normal(size=(2, 3)))
    hull = sets.ConvexHull(vertices)
    assert hull.project(v).shape == (2, 3) and hull.misfit(v) is None and "shape" in hull.misfit(v.ravel())
    value = lambda a: jnp.sum(jnp.square(sets.ConvexHull(a).project(v)))
    move = jnp.asarray(RNG.normal(size=vertices.shape))
    slope = jnp.vdot(jax.grad(value)(jnp.asarray(vertices)), move)
    h = 1e-6
    np.testing.assert_allclose(slope, (value(vertices + h * move) - value(vertices - h * move)) / (2 * h), rtol=1e-5)


def _random_polyhedron(n, seed):
    rng = np.random.default_rng(seed)
    A, E = rng.normal(size=(3 * n, n)), rng.normal(size=(2, n))
    return A, A @ np.full(n, 0.2) + rng.uniform(0.1, 1, 3 * n), E, E @ np.full(n, 0.2)


@pytest.mark.parametrize("n", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_a_polyhedron_agrees_with_clarabel_and_highs_under_jit_and_vmap(n):
    A, b, E, e = _random_polyhedron(n, n)
    polyhedron = sets.Polyhedron(A, b, E, e, lower=-2.0)
    points = _points(25, n, seed=n)
    projected = jax.jit(jax.vmap(lambda v: polyhedron.project(v)))(points)
    vertices = jax.jit(jax.vmap(lambda d: polyhedron.lmo(d)))(points)
    project = _clarabel(n, lambda u: [A @ u <= b, E @ u == e, u >= -2])
    for v, p, s in zip(np.asarray(points), np.asarray(projected), np.asarray(vertices), strict=True):
        np.testing.assert_allclose(p, project(v), atol=1e-7)
        assert max(np.max(A @ p - b), np.max(np.abs(E @ p - e)), np.max(-2 - p)) <= 1e-13
        best = linprog(v, A_ub=A, b_ub=b, A_eq=E, b_eq=e, bounds=(-2, None))
        np.testing.assert_allclose(v @ s, best.fun, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(polyhedron.project(jnp.asarray(v)), p, atol=1e-13)
    assert float(polyhedron.diameter(points[0])) >= np.max(np.linalg.norm(vertices[:, None] - vertices[None], axis=-1))


def test_a_polyhedron_differentiates_in_its_levels():
    A, b, E, e = _random_polyhedron(4, 1)
    v = _points(1, 4, seed=3)[0]
    value = jax.jit(lambda b: jnp.sum(jnp.arange(4.0) * sets.Polyhedron(A, b, E, e).project(v)))
    move = jnp.asarray(RNG.normal(size=b.shape))
    h = 1e-6
    numeric = (value(b + h * move) - value(b - h * move)) / (2 * h)
    np.testing.assert_allclose(jnp.vdot(jax.grad(value)(jnp.asarray(b)), move), numeric, rtol=1e-5, atol=1e-8)
    np.testing.assert_array_equal(jax.grad(lambda d: jnp.sum(sets.Polyhedron(A, b, E, e).lmo(d)))(v), np.zeros(4))


def test_a_polyhedron_with_redundant_rows_and_equations():
    E = np.array([[1.0, 1, 1, 1], [2, 2, 2, 2]])
    polyhedron = sets.Polyhedron(np.vstack([np.eye(4)] * 3), np.ones(12), E, np.array([1.0, 2.0]), lower=np.zeros(4))
    _same_set(polyhedron, sets.Simplex(), n=4)
    empty_when_traced = jax.jit(lambda b: sets.Polyhedron(np.eye(2), b, lower=np.zeros(2)).project(jnp.ones(2)))
    assert np.all(np.isnan(empty_when_traced(-jnp.ones(2))))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(A=np.eye(2), b=-np.ones(2), lower=np.zeros(2)), "empty"),
        (dict(E=np.ones((2, 3)), e=np.array([1.0, 2.0]), lower=0.0, upper=1.0), "contradict"),
        (dict(A=np.eye(2), b=np.ones(2)), "unbounded in coordinate 0"),
        (dict(lower=np.ones(2), upper=np.zeros(2)), "empty"),
        (dict(A=np.eye(2)), "A and b together"),
        (dict(A=np.eye(2), b=np.ones(3)), "one entry per row"),
        (dict(A=np.eye(2), b=np.ones(2), E=np.ones((1, 3)), e=np.ones(1)), "agree"),
        (dict(A=np.full((1, 2), np.nan), b=np.ones(1)), "finite"),
        (dict(lower=np.array([np.nan, 0]), upper=1.0), "NaN"),
        (dict(lower=0.0, upper=1.0), "given none"),
    ],
)
def test_a_bad_polyhedron_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        sets.Polyhedron(**arguments)


# Intersection, Image, Custom ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_intersection_of_a_box_and_the_simplex_is_that_of_clarabel():
    cut = sets.Intersection([sets.Box(0.05, 0.3), sets.Simplex()])
    project = _clarabel(6, lambda u: [u >= 0.05, u <= 0.3, cp.sum(u) == 1])
    points = _points(30, 6)
    for v, p in zip(points, jax.jit(jax.vmap(lambda v: cut.project(v)))(points), strict=True):
        np.testing.assert_allclose(p, project(v), atol=1e-7)
        assert float(cut.violation(p)) <= 1e-9


@pytest.mark.slow
def test_an_intersection_of_curved_sets_meets_the_optimality_conditions():
    parts = [sets.L2Ball(1.0), sets.Translated(sets.L2Ball(1.2), np.array([0.9, 0.0, 0.0]))]
    lens = sets.Intersection(parts)
    samples = jax.vmap(lambda k: lens.sample(k, (3,)))(jax.random.split(jax.random.key(1), 200))
    for v in _points(20, 3, seed=1):
        p = lens.project(v)
        assert float(lens.violation(p)) <= 1e-9
        assert float(jnp.max((samples - p) @ (v - p))) <= 1e-8 * float(jnp.linalg.norm(v - p) + 1)


def test_an_intersection_with_a_part_without_derivatives_still_projects():
    def host(v):
        return jax.pure_callback(lambda a: np.clip(a, 0, 0.3), jax.ShapeDtypeStruct(v.shape, v.dtype), v)

    cut = sets.Intersection([sets.Custom(project=host, diameter=1.0), sets.Simplex()])
    with_box = sets.Intersection([sets.Box(0.0, 0.3), sets.Simplex()])
    v = _points(1, 5)[0]
    np.testing.assert_allclose(cut.project(v), with_box.project(v), atol=1e-9)


@pytest.mark.slow
def test_derivatives_of_an_intersection_reach_the_sizes_of_its_parts():
    v = jnp.asarray([0.9, 0.5, 0.2, -0.4])
    weights = jnp.asarray([1.0, -2.0, 3.0, 0.5])
    value = lambda cap: weights @ sets.Intersection([sets.Box(0.0, cap), sets.Simplex()]).project(v)
    h = 1e-6
    cap = jnp.asarray(0.45)
    np.testing.assert_allclose(jax.grad(value)(cap), (value(cap + h) - value(cap - h)) / (2 * h), atol=1e-6)


def test_the_lmo_of_an_image_is_the_best_of_the_images_of_the_vertices():
    A = RNG.normal(size=(4, 7))
    image = sets.Image(A, sets.Simplex(2.0))
    hull = sets.ConvexHull(2 * A.T)
    for d in _points(20, 4):
        np.testing.assert_allclose(jnp.vdot(d, image.lmo(d)), np.min(2 * np.asarray(d) @ A), atol=1e-12)
        np.testing.assert_allclose(image.violation(d), hull.violation(d), atol=1e-10)
    of_matrices = sets.Image(np.ones((1, 6)), sets.Box(0.0, 1.0), shape=(2, 3))
    np.testing.assert_allclose(of_matrices.lmo(jnp.asarray([-1.0])), [6.0])
    np.testing.assert_allclose(of_matrices.violation(jnp.asarray([7.0])), 1.0)


def _saddle(x_set, y_set):
    upper = lambda x, theta, y, data: x @ data @ y + 0.5 * jnp.sum(x**2) - 0.5 * jnp.sum(y**2)
    M = jnp.asarray(0.3 * np.random.default_rng(2).normal(size=(3, 3)))
    return bs.Problem(upper, None, x_set=x_set, y_set=y_set, data=M)


def _solve(problem, **steps):
    start = bs.Point(0.3 * jnp.ones(3), None, jnp.full(3, 1 / 3))
    method = bs.methods.FullyProjected(bs.StepSizes(gamma=0.5, tau=0.3, sigma=0.3, mu=0.0))
    return bs.solve(problem, start, method, tol=1e-8, max_steps=5000)


def test_custom_sets_and_sets_with_a_projection_only_solve_and_certify():
    plain = _solve(_saddle(sets.Box(-0.4, 1.0), sets.Simplex()))
    custom = sets.Custom(project=lambda v: jnp.clip(v, -0.4, 1.0), diameter=1.4 * 3**0.5, name="Mine")
    part = sets.Intersection([sets.Box(0.0, 1.0), sets.Simplex()])  # no LMO
    ours = _solve(_saddle(custom, part))
    assert ours.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(ours.x, plain.x, atol=1e-7)
    np.testing.assert_allclose(ours.certificate.worst_value, plain.certificate.worst_value, atol=1e-7)
    # the bound from projections alone is valid, and small at the saddle point
    lacking = plain.certificate.worst_value - ours.certificate.worst_value
    assert float(lacking) <= float(ours.certificate.worst_value_error) + 1e-12 <= 1e-5


def test_an_image_as_x_set_runs_projection_free_and_names_its_distance():
    image = sets.Image(np.eye(3), sets.LinfBall(0.4))
    problem = _saddle(image, sets.Simplex())
    method = bs.methods.OneSidedProjectionFree(bs.StepSizes(gamma=0.01, sigma=0.3, mu=0.0))
    start = bs.Point(0.3 * jnp.ones(3), None, jnp.full(3, 1 / 3))
    result = bs.solve(problem, start, method, tol=None, max_steps=200, measure="lmo")
    assert float(result.certificate.x_violation) <= 1e-10
    with pytest.raises(ValueError, match="distance 1.04"):
        bs.solve(problem, bs.Point(jnp.ones(3), None, start.y), method, measure="lmo")
    with pytest.raises(ValueError, match="OneSidedProjectionFree"):
        _solve(problem)


def test_a_custom_set_can_do_what_it_was_given():
    v = jnp.asarray([3.0, 4.0])
    ball = sets.Custom(lmo=sets.L2Ball(1.0).lmo, name="Ball")
    assert ball.capabilities == {"lmo"}
    np.testing.assert_allclose(ball.violation(v), 4.0, atol=1e-9)
    assert float(ball.violation(ball.sample(jax.random.key(0), (2,)))) <= 1e-9
    with pytest.raises(ValueError, match="Ball has no project.*project="):
        ball.project(v)
    with pytest.raises(ValueError, match="diameter="):
        ball.diameter(v)
    given = sets.Custom(lambda v: v, diameter=lambda v: v.size, violation=lambda v: 7, sample=lambda k, s: jnp.ones(s))
    assert float(given.diameter(v)) == 2 and float(given.violation(v)) == 7
    assert given.sample(jax.random.key(0), (3,)).shape == (3,)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sets.Scaled(sets.Simplex(), 0.0), "must not be 0"),
        (lambda: sets.Scaled(sets.Simplex(), np.ones(2)), "must be a number"),
        (lambda: sets.Translated(sets.Simplex(), np.nan), "finite"),
        (lambda: sets.Rotated(sets.Simplex(), np.ones((2, 2))), "orthogonal"),
        (lambda: sets.Rotated(sets.Simplex(), np.ones((2, 3))), "square"),
        (lambda: sets.Image(np.ones(3), sets.Simplex()), "matrix"),
        (lambda: sets.Image(np.ones((2, 3)), sets.Box(np.zeros(4), np.ones(4))), "3 columns"),
        (lambda: sets.Image(np.ones((2, 3)), sets.Intersection([sets.Simplex()])), "needs an LMO"),
        (lambda: sets.Image(np.ones((2, 3)), sets.Simplex(), shape=(2, 2)), "3 entries"),
        (lambda: sets.Intersection([]), "nonempty"),
        (lambda: sets.Intersection(sets.Simplex()), "list of sets"),
        (lambda: sets.Intersection([sets.Image(np.eye(2), sets.Simplex())]), "projection onto every set"),
        (lambda: sets.Intersection([sets.Simplex()], tolerance=0.0), "between 0 and 1"),
        (lambda: sets.ConvexHull(np.ones(3)), "count"),
        (lambda: sets.ConvexHull(np.array([[np.nan]])), "finite"),
        (lambda: sets.Custom(), "neither"),
        (lambda: sets.Custom(project=3), "must be a function"),
        (lambda: sets.Custom(project=jnp.sin, diameter=-1.0), "diameter"),
    ],
)
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("convex_set", "message"),
    [
        (sets.Translated(sets.Simplex(), np.ones(3)), "broadcast"),
        (sets.Rotated(sets.Simplex(), np.eye(3)), "3 entries"),
        (sets.Image(np.eye(3), sets.Simplex()), "3 rows"),
        (sets.Intersection([sets.Simplex(), sets.Box(np.zeros(3), np.ones(3))]), "do not fit"),
        (sets.Polyhedron(lower=np.zeros(3), upper=1.0), "size 3"),
    ],
)
def test_a_misfit_is_named(convex_set, message):
    assert message in convex_set.misfit(jnp.ones(4))


def test_an_intersection_is_found_from_everywhere():
    """A Newton step along a direction without curvature once led so far away that no round came back."""
    simplex = sets.Simplex(0.765475)
    both = sets.Intersection([sets.Box(0.0, 1.25), simplex])  # all of the simplex is in the box
    away = -np.abs(np.random.default_rng(0).normal(size=(400, 2)))
    for scale in (10.0, 100.0):
        v = jnp.asarray(scale * away)
        np.testing.assert_allclose(jax.vmap(both.project)(v), jax.vmap(simplex.project)(v), atol=1e-8)
