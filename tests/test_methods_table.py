"""bs.methods.table(), and the rule that a method refuses what it cannot solve and names the methods that can."""

import re

import jax.numpy as jnp
import pytest

import bisaddle as bs
from bisaddle.methods.base import EITHER, About, able, kind_of, public_methods
from tests.registry import METHODS, PROBLEMS

EXAMPLES = {"bilevel saddle": "logistic", "saddle": "wavy saddle", "bilevel": "generator"}
FITTING = {kind: PROBLEMS[name](0)[0] for kind, name in EXAMPLES.items()}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_declares_what_it_is_for(name):
    about = public_methods()[name].about
    assert isinstance(about, About)
    assert about.problems and set(about.problems) <= set(EXAMPLES)
    assert about.x_oracle in ("project", "lmo", EITHER) and about.loops in ("single", "double")
    for words in (about.second_order, about.complexity, about.steps):
        assert words and len(words) < 90
    assert re.fullmatch(r"[A-Z][A-Za-z]*\d\d[a-z]?", about.reference)
    assert public_methods()[name].name == name


def test_the_table_has_a_row_for_every_method_and_prints_as_one():
    table = bs.methods.table()
    assert [row[0] for row in table.rows] == list(public_methods())
    lines = str(table).splitlines()
    assert repr(table) == str(table) and len(lines) == 2 + len(table.rows)
    assert lines[0].startswith("method") and set(lines[1]) == {"-", " "}
    for row, line in zip(table.rows, lines[2:], strict=True):
        assert all(cell in line for cell in row)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_table_of_a_problem_has_the_methods_that_take_it(kind):
    problem, _, _ = PROBLEMS[EXAMPLES[kind]](0)
    assert kind_of(problem) == kind
    shown = [row[0] for row in bs.methods.table(problem).rows]
    assert shown == able(problem) == [name for name, cls in public_methods().items() if kind in cls.about.problems]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_refuses_the_kinds_it_is_not_for_and_names_those_that_are(name):
    about = public_methods()[name].about
    fitting, _, _ = PROBLEMS[EXAMPLES[about.problems[0]]](0)
    method = METHODS[name](fitting)
    method.check(fitting)
    for kind in set(EXAMPLES) - set(about.problems):
        problem, start, _ = PROBLEMS[EXAMPLES[kind]](0)
        with pytest.raises(ValueError, match=f"{name} is for .* problems, given a {kind} problem; use ") as caught:
            method.init(problem, start)
        named = str(caught.value).split("; use ")[1].split(", ")
        assert named == able(problem) and name not in named


@pytest.mark.parametrize("problem_name", PROBLEMS)
def test_every_problem_is_refused_by_the_methods_that_cannot_solve_it(problem_name):
    """METHODS x PROBLEMS; tests/test_registry.py runs the pairs left out here. What PDHG's init refuses besides is in
    tests/test_methods_saddle_use.py."""
    problem, _, _ = PROBLEMS[problem_name](0)
    names = able(problem)
    assert names
    for name in METHODS:
        if name in names:
            continue
        method = METHODS[name](FITTING[public_methods()[name].about.problems[0]])
        with pytest.raises(ValueError, match=f"^{name} .*; use ") as caught:
            method.check(problem)
        named = str(caught.value).split("; use ")[1].split(", ")
        assert named == names


class OnlyLmo(bs.sets.ConvexSet):
    capabilities = frozenset({"lmo"})

    def lmo(self, direction):
        return -jnp.sign(direction)

    def diameter(self, v):
        return 2 * jnp.sqrt(v.size)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_set_without_a_projection_leaves_the_methods_with_an_lmo(kind):
    problem, start, _ = PROBLEMS[EXAMPLES[kind]](0)
    problem = bs.Problem(problem.upper, problem.lower, OnlyLmo(), problem.y_set, problem.data)
    assert able(problem)
    for name in METHODS:
        about = public_methods()[name].about
        if kind in about.problems:
            assert (name in able(problem)) == (about.x_oracle in ("lmo", EITHER))


def test_a_problem_of_neither_kind_is_for_methods_that_take_both():
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(x**2), None, bs.sets.L2Ball(1.0), None)
    assert kind_of(problem) == "minimisation"
    assert able(problem) == [
        name for name, cls in public_methods().items() if {"saddle", "bilevel"} <= set(cls.about.problems)
    ]


def test_a_method_of_the_users_own_needs_no_about():
    class Still(bs.methods.Method):
        def init(self, problem, start):
            self.check(problem)
            return bs.methods.State(jnp.zeros((), jnp.int32), start.x, start.theta, start.y, None)

    problem, start, _ = PROBLEMS["logistic"](0)
    assert Still().init(problem, start).k == 0
