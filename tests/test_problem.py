"""Problem: which functions it takes, and what it makes of those that leave out arguments."""

from dataclasses import replace

import jax
import pytest

import bisaddle as bs


def _answers(problem, *start):
    return problem.upper(*start, problem.data)


@pytest.mark.parametrize(
    "upper",
    [
        lambda x, theta, y, data: x + 10 * y,
        lambda x, y: x + 10 * y,
        lambda u, v: u + 10 * v,
        lambda *all_of_them: all_of_them[0] + 10 * all_of_them[2],
        jax.tree_util.Partial(lambda scale, x, y: scale * x + 10 * y, 1.0),
        lambda x, y, scale=1.0: scale * x + 10 * y,
    ],
)
def test_a_function_may_leave_out_what_it_has_no_use_for(upper):
    problem = bs.Problem(upper, x_set=bs.sets.Box(0.0, 1.0), y_set=bs.sets.Box(0.0, 1.0))
    assert _answers(problem, 2.0, None, 3.0) == 32.0
    assert _answers(replace(problem, y_set=bs.sets.Box(0.0, 2.0)), 2.0, None, 3.0) == 32.0


def test_names_come_before_numbers_of_arguments():
    box = bs.sets.Box(0.0, 1.0)
    problem = bs.Problem(lambda x, data: x + data, lambda x, theta: x * theta, box, box, data=5.0)
    assert _answers(problem, 2.0, 7.0, 3.0) == 7.0 and problem.lower(2.0, 7.0, 5.0) == 14.0


@pytest.mark.parametrize("upper", [lambda y, x: x, lambda a, b, c: a, lambda theta, b: b])
def test_arguments_in_another_order_or_number_are_refused(upper):
    box = bs.sets.Box(0.0, 1.0)
    with pytest.raises(ValueError, match="Problem: upper takes x, theta, y, data, or those of them that it needs"):
        bs.Problem(upper, x_set=box, y_set=box)


def test_a_problem_needs_a_set_for_x():
    with pytest.raises(ValueError, match="x_set is missing; give the set of x"):
        bs.Problem(lambda x: x)
