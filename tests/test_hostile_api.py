"""Malformed calls of the API are refused by name, before anything compiles; the user's own errors keep their lines."""

import logging
import re
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from tests import hostile_api
from tests.hostile_api import START, point, problem, verdict
from tests.hostile_values import BALL, CERTIFY, CHECK, GAP, NO_ARRAY, NO_DATA, NO_KEY, NO_POINT, NO_WHOLE, SOLVE


def test_malformed_calls_are_refused_by_name():
    said = []
    assert hostile_api.main(60, show=said.append) == 0, "\n".join(said)


@pytest.mark.parametrize("name", SOLVE)
def test_no_wrong_argument_of_solve_is_taken(name, unchecked_types):
    for value in SOLVE[name]:
        with pytest.raises(ValueError, match=name):
            bs.solve(problem(), point(), **{name: value})


@pytest.mark.parametrize(
    ("call", "table"), [(bs.certify, CERTIFY), (bs.check_derivatives, CHECK)], ids=["certify", "check_derivatives"]
)
def test_no_wrong_argument_of_certify_and_check_derivatives_is_taken(call, table, unchecked_types):
    for name, values in table.items():
        for value in values:
            with pytest.raises(ValueError, match=name):
                call(problem(), point(), **{name: value})


@pytest.mark.parametrize("part", ["x", "theta", "y"])
def test_what_is_no_finite_float_array_is_refused_and_nothing_compiles(part, unchecked_types, caplog):
    """float16, texts, dates, objects, masked arrays, columns of tables, NaN, nothing at all."""
    made, starts = problem(), [point(**{part: value}) for value in NO_ARRAY]
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        for start in starts:
            with pytest.raises(ValueError, match=rf"\b{part}\b"):
                bs.solve(made, start)
    assert "Compiling" not in caplog.text


def test_data_that_are_no_numbers_are_refused_by_their_place(unchecked_types):
    for value in NO_DATA:
        with pytest.raises(ValueError, match=r"data\['d'\]\[1\]"):
            bs.solve(problem(data={"c": 1.0, "d": [np.ones(2), value]}), point())


def test_a_key_is_a_key(unchecked_types):
    for value in NO_KEY:
        with pytest.raises(ValueError, match=r"key must be one key of jax.random, given .*jax.random.key\(0\)"):
            bs.start_points(problem(), point(), 3, value)
    for key in (jax.random.key(0), jax.random.PRNGKey(0), np.zeros(2, np.uint32)):
        assert len(bs.start_points(problem(), point(), 3, key)) == 3


def test_several_starts_are_several_points_of_the_same_shapes(unchecked_types):
    for value in (*NO_WHOLE, 0, True):
        with pytest.raises(ValueError, match="count must be a whole number >= 1"):
            bs.start_points(problem(), point(), value, jax.random.key(0))
    for start in NO_POINT:
        with pytest.raises(ValueError, match="start must be a bisaddle.Point, or a list of them, given"):
            bs.solve(problem(), [point(), start])
    with pytest.raises(ValueError, match="the shapes and dtypes of the first one; start 1 has others"):
        bs.solve(problem(), [point(), point(**{name: np.float32(part) for name, part in START.items()})])


def test_a_gap_is_refused_where_it_is_made(unchecked_types):
    for name, values in GAP.items():
        for value in values:
            with pytest.raises(ValueError, match=f"{name} of the gap must be"):
                bs.Gap(**{name: value})
    assert bs.Gap(sigma=np.float32(2)) == bs.Gap(None, 2.0, np.asarray(1)) and type(bs.Gap(tau=2).tau) is float


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("x", {"a": np.array([[0.0, 1.0], [np.nan, np.inf]])}, r"2 of 4 entries of start.x\['a'\], first at \[1, 0\]"),
        ("theta", (np.zeros(1), np.array(np.nan)), r"1 of 1 entries of start.theta\[1\], first at \[\]"),
        ("y", np.array([0.0, -np.inf]), r"1 of 2 entries of start.y, first at \[1\]"),
    ],
)
def test_what_is_not_finite_in_a_start_is_counted_and_placed(part, value, words):
    total = lambda tree: sum(jnp.sum(leaf) for leaf in jax.tree.leaves(tree))
    made = bs.Problem(
        lambda x, theta, y, data: total((x, theta, y)),
        lambda x, theta, data: total(jax.tree.map(jnp.square, theta)),
        bs.sets.Product({"a": BALL}),
        BALL,
    )
    start = {"x": {"a": np.zeros((2, 2))}, "theta": (np.zeros(1), np.zeros(())), "y": np.zeros(2)} | {part: value}
    with pytest.raises(ValueError, match=f"^{part} must be finite at the start, given NaN or infinity in {words}"):
        bs.solve(made, bs.Point(**start))


def test_an_error_of_the_user_is_shown_with_its_own_line():
    def upper(x, theta, y, data):
        return jnp.sum(x) + data["absent"]  # the line

    with pytest.raises(ValueError, match=r"upper\(x, theta, y, data\) failed on .*KeyError: 'absent'") as caught:
        bs.solve(problem(upper=upper), point())
    assert isinstance(caught.value.__cause__, KeyError)
    assert "# the line" in "".join(traceback.format_exception(caught.value))


def test_an_exit_of_the_user_is_left_to_them():
    def leave(*_):
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        bs.solve(problem(upper=leave), point())


@pytest.mark.parametrize("call", [bs.solve, bs.certify, bs.check_derivatives, bs.hypergradient])
def test_inside_a_transformation_the_step_of_a_method_is_named_instead(call):
    """In words, and before anything is computed; a method's own init and step are for use inside jit."""
    here = point()
    at = lambda x: call(problem(), x, here.y, here.theta) if call is bs.hypergradient else call(problem(), point(x=x))
    x = jnp.full(2, 0.5)
    for way in (lambda: jax.jit(at)(x), lambda: jax.vmap(at)(x[None]), lambda: jax.grad(at)(x)):
        with pytest.raises(ValueError, match=f"{call.__name__} needs concrete arrays.*init and step of a method"):
            way()
    with pytest.raises(ValueError, match="tau of the gap must be a number, given a traced array"):
        jax.jit(lambda tau: bs.certify(problem(), point(), tau=tau).gap)(1.0)


def test_classes_in_the_place_of_instances_are_named(unchecked_types):
    with pytest.raises(ValueError, match="x_set must be a set .*, given the class Box, not an instance"):
        problem(x_set=bs.sets.Box)
    with pytest.raises(ValueError, match="given the class GDA, not an instance"):
        bs.solve(problem(), point(), bs.methods.GDA)  # pyright: ignore[reportArgumentType]


def test_what_is_unusual_and_right_is_taken():
    """Numbers as NumPy and JAX have them, no limit of time as infinity, a list of numbers where a pytree is one."""
    gap = bs.Gap(sigma=jnp.asarray(1.0), tau=np.asarray(1))
    numbers = {"tol": np.float32(1e-3), "measure": gap, "max_seconds": float("inf")}
    assert bs.solve(problem(), point(), max_steps=np.int64(2), **numbers).steps <= 2
    result = bs.solve(problem(), point(), max_steps=2, check=False, progress=False, callback=lambda record: None)
    assert re.match("MAX_STEPS|CERTIFIED", str(result.status))
    assert bs.Constants(mu_g=1.0, origin=[["mu_g", "exact"]]).origin_of("mu_g") == "exact"
    assert hash(bs.Constants(mu_g=1.0, origin=[("mu_g", "exact")]).origin)


def test_a_verdict_tells_what_is_taken_and_what_is_not_named():
    fail = lambda: (_ for _ in ()).throw(ValueError("nothing"))
    assert verdict(hostile_api.Case(lambda: 3, ("x",), "")) == "was taken: 3"
    assert "does not name x" in verdict(hostile_api.Case(lambda: list(fail()), ("x",), ""))
    assert "KeyError" in verdict(hostile_api.Case(lambda: {}["x"], ("x",), ""))
