"""Likely mistakes of a new user, in Python: each is refused before anything compiles, by a message that has the fix."""

import re
import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs

S = bs.sets
OUTSIDE = np.ones((1100, 1000))


def upper(x, theta, y):
    return jnp.sum(theta**2) + y @ x


def lower(x, theta):
    return jnp.sum((theta - x) ** 2)


def solved(point=(), method=None, **changes):
    """bs.solve of a problem that is right but for these changes, from a start that is right but for those."""
    options = {name: changes.pop(name) for name in ("tol", "max_steps") if name in changes}
    start = {"x": np.zeros(3), "theta": np.zeros(3), "y": np.full(3, 1 / 3)} | dict(point)
    problem = bs.Problem(**{"upper": upper, "lower": lower, "x_set": S.Box(-1.0, 1.0), "y_set": S.Simplex()} | changes)
    return bs.solve(problem, bs.Point(**start), method, **options)


def with_numpy(x, theta, y):
    return np.sum(np.asarray(theta)) + y @ x


def with_if(x, theta, y):
    return y @ x if x[0] > 0 else y @ theta


def with_float(x, theta, y):
    return float(theta[0]) + y @ x


# what was done, and what the message must say
MISTAKES = {
    "the dimension for the radius": (lambda: solved(y_set=S.Simplex(3)), "for 3 weights that sum to 1 use Simplex()"),
    "y that does not sum to 1": (
        lambda: solved({"y": np.ones(3)}),
        "y_set.project(y), which is [0.3333 0.3333 0.3333]",
    ),
    "a list of numbers": (lambda: solved({"y": [0.2, 0.3, 0.5]}), "use y=np.array(y)"),
    "whole numbers": (lambda: solved({"x": np.zeros(3, int)}), "given int64; use .astype(float)"),
    "complex numbers": (lambda: solved({"x": np.zeros(3, complex)}), "given complex128; use .real"),
    "theta of another length": (lambda: solved({"theta": np.zeros(4)}), "return jnp.sum((theta - x) ** 2))"),
    "no theta": (lambda: solved({"theta": None}), "the point needs a theta, given None; use a starting array"),
    "no entries": (lambda: solved({"x": np.zeros(0)}), "use at least one entry"),
    "f of several values": (lambda: solved(upper=lambda x, theta, y: x * y), "given float64[3]; use jnp.sum"),
    "g without theta": (lambda: solved(lower=lambda x: jnp.sum(x)), "use g(x, theta), or lower=None"),
    "arguments in another order": (
        lambda: solved(upper=lambda theta, x, y: y @ x),
        "in this order; given a function of",
    ),
    "NumPy in f": (lambda: solved(upper=with_numpy), "use jax.numpy (jnp.) (test_mistakes.py, line"),
    "if in f": (lambda: solved(upper=with_if), "use jnp.where (test_mistakes.py, line"),
    "float in f": (lambda: solved(upper=with_float), "leave that out (test_mistakes.py, line"),
    "no x_set": (
        lambda: solved(x_set=None),
        "x_set is missing; give the set of x, such as x_set=bs.sets.Box(-1.0, 1.0)",
    ),
    "no y_set": (lambda: solved(y_set=None), "use y=None, or give the problem its y_set, such as bs.sets.Simplex()"),
    "sets by their place": (
        lambda: bs.Problem(upper, S.Box(0.0, 1.0), S.Simplex()),
        "Problem(f, x_set=..., y_set=...)",
    ),
    "a dict for a set": (lambda: solved(x_set={"a": S.Box(0.0, 1.0)}), "use bs.sets.Product({...})"),
    "a class for a set": (
        lambda: solved(y_set=S.Simplex),
        "given the class Simplex, not an instance: write Simplex(...)",
    ),
    "a class in a Product": (lambda: S.Product({"a": S.Box}), "given the class Box, not an instance: write Box(...)"),
    "another key": (
        lambda: solved({"x": {"b": np.zeros(3)}}, x_set=S.Product({"a": S.Box(0.0, 1.0)})),
        "use the same keys",
    ),
    "a class for a method": (lambda: solved(method=bs.methods.Adaptive), "write Adaptive(...)"),
    "a name for a method": (lambda: solved(method="Adaptive"), "given str; use bs.methods.Adaptive()"),
    "a number for step sizes": (lambda: bs.methods.FullyProjected(0.1), "FullyProjected.default(problem)"),
    "a negative tolerance": (lambda: solved(tol=-1e-3), "tol must be > 0, given -0.001; use tol=None"),
    "no steps": (lambda: solved(max_steps=0), "max_steps must be a whole number from 1"),
    "1e4 steps": (lambda: solved(max_steps=1e4), "given 10000.0; use 10000"),
    "a table as data": (lambda: solved(data={"rows": Table()}), "given Table; use .to_numpy()"),
    "bounds exchanged": (lambda: S.Box(1.0, 0.0), "exchange them"),
}


class Table:
    def to_numpy(self):
        raise AssertionError("nobody asked")


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_message_has_the_fix(mistake, unchecked_types):
    attempt, words = MISTAKES[mistake]
    with pytest.raises(ValueError, match=re.escape(words)):
        attempt()


def test_what_is_given_in_place_of_a_point_is_told(unchecked_types):
    problem = bs.Problem(upper, lower, S.Box(-1.0, 1.0), S.Simplex())
    start = bs.Point(np.zeros(3), np.zeros(3), np.full(3, 1 / 3))
    with pytest.raises(ValueError, match="given Problem; solve.problem, start. takes the problem first"):
        bs.solve(start, problem)
    with pytest.raises(ValueError, match=r"given dict; use bs.Point\(x=..., theta=..., y=...\)"):
        bs.solve(problem, {"x": np.zeros(3)})
    with pytest.raises(ValueError, match="given Result; use its .point"):
        bs.certify(problem, bs.solve(problem, start))


def test_nan_in_the_data_is_told_with_its_place():
    rows = np.array([1.0, np.nan, 2.0])
    result = solved(upper=lambda x, theta, y, data: jnp.sum(theta**2) + y @ (data["rows"] * x), data={"rows": rows})
    assert str(result.status) == "NONFINITE" and "data['rows'] holds 1 NaN" in result.reason and "[1]" in result.reason


def test_large_arrays_from_outside_are_told_where_to_go():
    with pytest.warns(UserWarning, match=r"array of shape \(1100, 1000\) from outside .* Problem\(..., data=...\)"):
        solved(upper=lambda x, theta, y: jnp.sum(theta**2) + y @ x + 1e-9 * jnp.sum(x) * jnp.sum(OUTSIDE))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        solved(upper=lambda x, theta, y: jnp.sum(theta**2) + y @ x + jnp.sum(x) * jnp.sum(OUTSIDE[0]))


def test_the_functions_may_leave_out_what_they_have_no_use_for_and_sets_have_defaults():
    plain = bs.Problem(lambda x, y: y @ x, x_set=S.Box(-1.0, 1.0), y_set=S.Simplex())
    assert plain.lower is None and plain.data is None
    assert float(plain.upper(jnp.ones(3), None, jnp.ones(3), None)) == 3.0
    bilevel = bs.Problem(lambda x, theta: jnp.sum(theta), lambda x, theta: jnp.sum((theta - x) ** 2), S.Box(-1.0, 1.0))
    assert bilevel.y_set is None and float(bilevel.upper(None, jnp.ones(3), None, None)) == 3.0
