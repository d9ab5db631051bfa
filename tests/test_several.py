"""Several starts, paths, degenerate corners."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.run.starts import moved_into
from tests.registry import PROBLEMS


def two_valleys():
    """min over x in [-2, 2] of max over the simplex of (h(x), -1), h with two local minima, h(-1) = -0.2 and h(1) = 0.

    h = (x^2 - 1)^2 + 0.1 (x - 1): the worst value at a local minimum is h there.
    """

    def upper(x, theta, y, data):
        h = (x[0] ** 2 - 1) ** 2 + data * (x[0] - 1)
        return y[0] * h + y[1] * (-1.0)

    problem = bs.Problem(upper, None, bs.sets.Box(-2.0, 2.0), bs.sets.Simplex(), jnp.asarray(0.1))
    return problem, bs.Point(x=jnp.array([0.8]), theta=None, y=jnp.array([0.5, 0.5]))


def valley(side):
    """The local minimum of h near side, by its cubic equation."""
    roots = np.roots([4.0, 0.0, -4.0, 0.1]).real
    x = roots[np.argmin(np.abs(roots - side))]
    return (x**2 - 1) ** 2 + 0.1 * (x - 1)


def test_the_lowest_worst_value_of_several_starts_is_returned_with_all_the_others():
    problem, start = two_valleys()
    alone = bs.solve(problem, start, tol=1e-8)
    result = bs.solve(problem, bs.start_points(problem, start, 6, jax.random.key(1)), tol=1e-8)
    assert alone.status is result.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(alone.certificate.worst_value, valley(1.0), atol=1e-7)
    np.testing.assert_allclose(result.certificate.worst_value, valley(-1.0), atol=1e-7)
    values = [float(each.certificate.worst_value) for each in result.starts]
    assert len(values) == 6 and min(values) == float(result.certificate.worst_value)
    np.testing.assert_allclose(values[0], valley(1.0), atol=1e-7)
    assert "start 5: CERTIFIED" in str(result)


def test_a_start_among_several_goes_the_way_it_goes_alone():
    problem, start = two_valleys()
    alone = bs.solve(problem, start, tol=1e-8)
    together = bs.solve(problem, bs.start_points(problem, start, 3, jax.random.key(0)), tol=1e-8).starts[0]
    assert together.steps == alone.steps
    np.testing.assert_allclose(together.x, alone.x, rtol=1e-12)


def test_starts_run_side_by_side_for_methods_with_even_steps():
    problem, start = two_valleys()
    method = bs.methods.FullyProjected(bs.StepSizes(gamma=1.0, tau=0.05, sigma=10.0, mu=0.1))
    alone = bs.solve(problem, start, method, tol=None, max_steps=50)
    starts = bs.start_points(problem, start, 2, jax.random.key(0))
    result = bs.solve(problem, starts, method, tol=None, max_steps=50)
    assert result.starts[0].status is bs.Status.MAX_STEPS
    np.testing.assert_allclose(result.starts[0].last.x, alone.last.x, rtol=1e-12)
    np.testing.assert_array_equal(result.starts[0].trace.k, alone.trace.k)


def test_the_starts_of_a_multi_task_problem_hold_lambda_a_half_and_nine_tenths():
    tasks = bs.apps.multitask.synthetic(rows=100, width=3, tasks=3, seed=0)
    problem, start = bs.apps.multitask.regression(tasks)
    points = bs.start_points(problem, start, 4, jax.random.key(0))
    np.testing.assert_array_equal(points[0].x["lam"], np.full(3, 0.5))
    np.testing.assert_allclose(points[1].x["lam"], np.full(3, 0.9), rtol=1e-15)
    np.testing.assert_array_equal(points[1].x["x"], points[0].x["x"])
    for point in points:
        assert bool(problem.x_set.contains(point.x)) and bool(problem.y_set.contains(point.y))
    assert not np.allclose(points[2].x["lam"], points[3].x["lam"])
    again = bs.start_points(problem, start, 4, jax.random.key(0))
    assert [p.x["lam"][0] for p in again] == [p.x["lam"][0] for p in points]


def test_wrong_starts_are_refused():
    problem, start = two_valleys()
    outside = bs.Point(jnp.array([3.0]), None, start.y)
    with pytest.raises(ValueError, match="x is not in x_set"):
        bs.solve(problem, [start, outside])
    with pytest.raises(ValueError, match="start must be a bisaddle.Point, or a list of them"):
        bs.solve(problem, [])
    with pytest.raises(ValueError, match="start 1 has others"):
        bs.solve(problem, [start, bs.Point(jnp.array([0.0, 0.1]), None, start.y)])
    with pytest.raises(ValueError, match="count must be a whole number >= 1, given 0"):
        bs.start_points(problem, start, 0, jax.random.key(0))


def test_starts_of_the_users_own_are_run_in_their_order():
    problem, start = two_valleys()
    starts = [bs.Point(jnp.array([x]), None, start.y) for x in (1.2, -0.7)]
    result = bs.solve(problem, starts, tol=1e-8)
    values = [float(each.certificate.worst_value) for each in result.starts]
    np.testing.assert_allclose(values, [valley(1.0), valley(-1.0)], atol=1e-7)
    assert len(bs.solve(problem, starts[:1], tol=1e-8).starts) == 1


def test_a_path_from_several_starts_follows_each_of_them():
    problem, start = two_valleys()
    starts = [bs.Point(jnp.array([x]), None, start.y) for x in (1.2, -0.7)]
    results = bs.solve_path([problem, replace(problem, data=jnp.asarray(0.2))], starts, tol=1e-8)
    for side in (0, 1):  # the second problem has its valleys near those of the first
        first, second = (result.starts[side] for result in results)
        assert abs(first.x[0] - second.x[0]) < 0.1 and second.status is bs.Status.CERTIFIED


def ridge_path(ridge, radius=5.0):
    tasks = bs.apps.multitask.synthetic(rows=200, width=4, tasks=3, seed=3)
    return bs.apps.multitask.regression(tasks, radius=radius, ridge=ridge)


@pytest.mark.slow
def test_a_path_costs_less_than_its_problems_one_by_one():
    ridges = [0.1, 0.09, 0.081, 0.073]
    problems = [ridge_path(ridge)[0] for ridge in ridges]
    start = ridge_path(0.1)[1]
    along = bs.solve_path(problems, start, tol=1e-7)
    apart = [bs.solve(problem, start, tol=1e-7) for problem in problems]
    assert all(result.status is bs.Status.CERTIFIED for result in along + apart)
    hvps = lambda results: sum(int(result.trace.hvps[-1]) for result in results[1:])
    assert hvps(along) < hvps(apart)
    for result, problem in zip(along, problems, strict=True):
        assert float(bs.certify(problem, result.point).gap) <= 1e-7


def test_a_path_moves_points_into_smaller_sets():
    start = ridge_path(0.1)[1]
    results = bs.solve_path([ridge_path(0.1, radius)[0] for radius in (2.0, 0.5, 0.1)], start, tol=1e-6)
    for result, radius in zip(results, (2.0, 0.5, 0.1), strict=True):
        assert result.status is bs.Status.CERTIFIED
        assert float(jnp.sum(jnp.abs(result.x["x"]))) <= radius + 1e-12


def test_a_set_without_projection_takes_a_vertex():
    lmo_only = bs.sets.Custom(lmo=bs.sets.L1Ball(1.0).lmo, diameter=2.0, violation=bs.sets.L1Ball(1.0).violation)
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(x**2), None, lmo_only, None)
    moved = moved_into(problem, bs.Point(jnp.array([3.0, -4.0]), None, None))
    np.testing.assert_array_equal(moved.x, [0.0, -1.0])


def corner(worst_lambda=1.0):
    """METHODS 1.j: y = e_j for the worst task j, lambda_j = 1, whatever x is; the other tasks know their best x."""
    tasks = bs.apps.multitask.synthetic(rows=200, width=4, tasks=3, seed=3)
    A, b, V, c = tasks[1]
    tasks[1] = (A, 10 * b, V, 10 * c)
    problem, start = bs.apps.multitask.regression(tasks, radius=5.0, ridge=0.1)
    x = {"x": jnp.array([0.3, -0.2, 0.1, 0.0]), "lam": jnp.array([0.5, worst_lambda, 0.5])}
    return problem, bs.Point(x, start.theta, jnp.eye(3)[1])


def test_a_corner_of_the_multi_task_problem_is_called_degenerate():
    problem, point = corner()
    certificate = bs.certify(problem, point)
    np.testing.assert_array_equal(certificate.x_gradient["x"], np.zeros(4))
    assert certificate.degenerate and certificate.free_parts == ("['x']",)
    assert "degenerate: y is in a corner where the gradient in ['x'] is 0 for every x" in str(certificate)


@pytest.mark.parametrize("worst_lambda", [0.7, 0.999])
def test_a_corner_in_y_alone_is_not_degenerate(worst_lambda):
    problem, point = corner(worst_lambda)
    certificate = bs.certify(problem, point)
    assert bool(certificate.y_in_corner) and not certificate.degenerate
    assert "degenerate" not in str(certificate)


def test_an_interior_solution_and_a_part_that_f_ignores_are_not_degenerate():
    def upper(x, theta, y, data):
        return y[0] * jnp.sum(x["a"] ** 2) - y[1]

    # nor a part that no y says anything about
    sets = bs.sets.Product({"a": bs.sets.L2Ball(1.0), "unused": bs.sets.L2Ball(1.0)})
    problem = bs.Problem(upper, None, sets, bs.sets.Simplex())
    point = bs.Point({"a": jnp.zeros(2), "unused": jnp.zeros(2)}, None, jnp.array([1.0, 0.0]))
    certificate = bs.certify(problem, point)
    assert float(certificate.gap) == 0 and bool(certificate.y_in_corner) and not certificate.degenerate


def test_a_multiplier_on_a_constant_frees_x():
    problem, start = two_valleys()
    certificate = bs.certify(problem, bs.Point(jnp.array([1.0]), None, jnp.array([0.0, 1.0])))
    assert not certificate.degenerate  # y is not the best response there
    shifted = bs.Problem(lambda x, theta, y, data: y[0] * (x[0] - 3) + y[1], None, problem.x_set, problem.y_set)
    certificate = bs.certify(shifted, bs.Point(jnp.array([1.0]), None, jnp.array([0.0, 1.0])))
    assert float(certificate.gap) == 0 and certificate.degenerate and certificate.free_parts == ("x",)


def test_short_words_for_starts_and_for_the_step_sizes_of_the_gap():
    problem, start, _ = PROBLEMS["CB2"](0)
    key = jax.random.key(0)
    short = bs.solve(problem, start, max_steps=3, starts=3, key=key, sigma=0.5, tau=2.0, measure="lmo")
    written = bs.solve(problem, bs.start_points(problem, start, 3, key), max_steps=3, measure=bs.Gap("lmo", 0.5, 2.0))
    assert len(short.starts) == 3 and [r.gap for r in short.starts] == [r.gap for r in written.starts]
    assert bs.solve(problem, start, max_steps=3, starts=1).starts[0].gap > 0  # one start needs no key
    with pytest.raises(TypeError, match="solve.. got an unexpected keyword argument 'max_step'"):
        bs.solve(problem, start, max_step=3)
    for wrong, words in (
        ({"starts": 3}, "starts=3 needs a key"),
        ({"key": key}, "starts must be a whole number"),
        ({"measure": bs.Gap(), "sigma": 2.0}, "a Gap with step sizes of its own, given sigma"),
    ):
        with pytest.raises(ValueError, match=words):
            bs.solve(problem, start, **wrong)
    with pytest.raises(ValueError, match="drawn around one start, given 2"):
        bs.solve(problem, [start, start], starts=3, key=key)
