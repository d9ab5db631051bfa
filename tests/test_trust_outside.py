"""Attacks that once succeeded: steps without slopes, random values, sets that are none, numbers that were changed."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.certificate.consistency import drift
from bisaddle.certificate.noise import along_a_line
from bisaddle.oracle.implicit import Implicit
from bisaddle.oracle.kernels import Kernels
from bisaddle.sets.flat import flat_set

BOX = bs.sets.Box(-1.0, 1.0)
HERE = np.array([0.12345, 0.23456])
LIMITS = {"tol": 1e-6, "max_steps": 300, "progress": False}


# -- values that go elsewhere than their slopes -----------------------------------------------------------------------

STAIRS = {
    "floor": lambda x: jnp.sum(jnp.floor(1e3 * x) / 1e3),
    "round": lambda x: jnp.sum(jnp.round(x, 2)),
    "int": lambda x: jnp.sum((100 * x).astype(int) * 0.01) + 1e-9 * jnp.sum(x**2),
}


@pytest.mark.parametrize("size", [2, 70_000])
def test_stairs_with_much_data_are_not_certified(size):
    """Where a pass over the data, or a copy of x, is dear."""
    x = np.resize(HERE, size)
    data = np.random.default_rng(0).normal(size=(40_000, size)) if size == 2 else np.zeros(1)
    upper = (lambda x, data: jnp.mean(jnp.round(data @ x, 2))) if size == 2 else (lambda x: jnp.mean(jnp.round(x, 3)))
    certificate = bs.certify(bs.Problem(upper, None, BOX, None, data), bs.Point(x))
    assert certificate.gap == 0 and not certificate.within(1e3) and "steps (round, floor, int)" in certificate.mismatch


@pytest.mark.parametrize("noise", [None, 1e-13], ids=["noise estimated", "noise given"])
@pytest.mark.parametrize("name", STAIRS)
def test_stairs_wider_than_a_short_move_are_not_certified(name, noise):
    stairs = STAIRS[name]
    problem = bs.Problem(lambda x: stairs(x), None, BOX, None, noise=noise)
    certificate = bs.certify(problem, bs.Point(HERE))
    assert (
        certificate.gap < 1e-8 and not certificate.within(1e3) and "steps (round, floor, int)" in certificate.mismatch
    )


def test_stairs_in_g_are_not_certified():
    """theta*(x) follows x in steps, and the slope of every step is 0."""
    upper, lower = (
        lambda theta: jnp.sum((theta - 0.5) ** 2),
        lambda x, theta: 0.5 * jnp.sum((theta - jnp.round(x, 2)) ** 2),
    )
    certificate = bs.certify(bs.Problem(upper, lower, BOX, None), bs.Point(HERE, HERE))
    assert certificate.gap == 0 and not certificate.within(1e3) and "<g_theta, w>" in certificate.mismatch


@pytest.mark.parametrize("noise", [None, 1e-13], ids=["noise estimated", "noise given"])
def test_wide_steps_and_smooth_ones_are_not_doubted(noise):
    """A step further away than any move, and ones that only look like jumps from afar, on whichever side they are."""
    steps = lambda x, away: jnp.tanh(1e4 * (x[0] - away)) + jnp.tanh(1e4 * (x[0] + away))
    smooth = lambda x, data: jnp.sum(x**2) + steps(x, data)
    wide = lambda x, data: jnp.sum(x**2) + jnp.round(x[0])
    for function, away in ((wide, 0.0), *((smooth, away) for away in np.linspace(0.01, 0.04, 9))):
        problem = bs.Problem(function, None, BOX, None, np.array(away), noise=noise)
        assert bs.certify(problem, bs.Point(np.zeros(2))).mismatch == ""


def test_the_drift_of_values_from_their_slopes():
    t = 0.1 * np.arange(7)
    for off in (0.0, 0.02, -0.02, 0.04, -0.3, 2.0):
        found = drift(np.sin(t) + off * t, np.cos(t), 0.1, 1e-12)
        assert (found is not None) is (abs(off) > 0.03)  # the slope changes by 0.175, over six steps
    np.testing.assert_allclose(drift(3 * t, 0 * t, 0.1, 0.0), (3.0, 0.0))
    assert drift(3 * t, 0 * t, 0.1, 1.0) is None  # as values of that rounding tell
    beyond = np.where(t > 0.45, np.nan, 3 * t)
    np.testing.assert_allclose(drift(beyond, 0 * t, 0.1, 0.0), (3.0, 0.0))
    assert drift(np.where(t > 0.15, np.nan, 3 * t), 0 * t, 0.1, 0.0) is None  # two points are no line


def _digits(x):
    """A number between 0 and 1 that the last digits of x decide."""
    bits = jax.lax.bitcast_convert_type(jax.lax.stop_gradient(x).astype(jnp.float64), jnp.uint64)
    mixed = (bits * jnp.uint64(6364136223846793005) + jnp.uint64(1442695040888963407)) >> jnp.uint64(33)
    return jnp.sum(mixed.astype(float)) / 2.0**31


def test_values_that_the_digits_of_x_decide_are_not_certified():
    problem = bs.Problem(lambda x: 0.5 * jnp.sum((x - 0.3) ** 2) + 1e-3 * _digits(x), None, BOX, None)
    certificate = bs.certify(problem, bs.Point(np.full(2, 0.3)))
    assert certificate.gap < 1e-12 and not certificate.within(1e3) and "f jumps by" in certificate.mismatch
    # 1e12 in f costs digits of its values, and is no randomness
    plain = bs.Problem(lambda x: 0.5 * jnp.sum((x - 0.3) ** 2) + 1e12, None, BOX, None)
    assert bs.certify(plain, bs.Point(np.full(2, 0.3))).mismatch == ""


# -- sets of the user's own -------------------------------------------------------------------------------------------


class Sticky(bs.sets.ConvexSet):
    """A box whose projection gives 0.3 for whatever is not far away."""

    capabilities = frozenset({"project"})

    def project(self, v):
        return jnp.where(jnp.max(jnp.abs(v)) < 3, 0.3, jnp.clip(v, -1, 1))

    def diameter(self, v):
        return jnp.asarray(2.0 * v.size**0.5)


class Stuck(bs.sets.Box):
    def project(self, v):
        return jnp.full_like(v, 0.3)


circle = lambda v: v / jnp.sqrt(jnp.sum(v**2) + 1e-300)
NO_SETS = {
    "a class": Sticky(),
    "a subclass": Stuck(-1.0, 1.0),
    "inside another": bs.sets.Product((Sticky(),)),
    "scaled": bs.sets.Scaled(Sticky(), 1.0),
    "a circle": bs.sets.Custom(project=circle, diameter=2.0),
}


@pytest.mark.parametrize("name", NO_SETS)
def test_a_set_that_is_none_of_its_kind_is_not_certified(name):
    x = np.full(2, -(0.5**0.5)) if name == "a circle" else np.full(2, 0.3)
    point = (x,) if name == "inside another" else x
    problem = bs.Problem(lambda x: jnp.sum(jnp.stack(jax.tree.leaves(x))), None, NO_SETS[name], None)
    result = bs.solve(problem, bs.Point(point), **LIMITS)
    assert result.gap < 1e-6 and result.status is bs.Status.STALLED and "x_set: its projection or prox" in result.reason
    assert not result.certificate.error_is_bound


HALF_SQUARE = lambda y: 0.5 * jnp.sum(y**2)
NO_PROX = {
    "a point": bs.sets.Prox(HALF_SQUARE, lambda v, step: 0 * v + 0.2, BOX),
    "of another penalty": bs.sets.Prox(
        lambda y: HALF_SQUARE(y - 0.3), lambda v, step: jnp.clip(v / (1 + step), -1, 1), BOX
    ),
    "not convex": bs.sets.Prox(lambda y: -HALF_SQUARE(y), lambda v, step: jnp.clip(v / (1 - 0.5 * step), -1, 1), BOX),
}


@pytest.mark.parametrize("name", NO_PROX)
def test_a_prox_that_is_none_is_not_certified(name):
    x, y = {"a point": (-0.1, 0.2), "of another penalty": (0.0, 0.0), "not convex": (0.0, 0.0)}[name]
    problem = bs.Problem(lambda x, y: jnp.sum(x * y) + jnp.sum(x**2), None, BOX, NO_PROX[name])
    certificate = bs.certify(problem, bs.Point(np.full(2, x), None, np.full(2, y)))
    assert certificate.gap < 1e-12 and not certificate.within(1e-3)


def test_a_prox_of_the_users_own_that_is_right_states_its_tolerance():
    """Against h = |y|_1 / 2 by soft thresholds, at random places and steps."""
    soft = lambda v, step: jnp.clip(jnp.sign(v) * jnp.maximum(jnp.abs(v) - 0.5 * step, 0), -1, 1)
    form = flat_set(bs.sets.Prox(lambda y: 0.5 * jnp.sum(jnp.abs(y)), soft, BOX), np.zeros(3))
    rng = np.random.default_rng(0)
    for step in (0.1, 1.0, 10.0):
        v = 2 * rng.normal(size=3)
        p = form.prox(v, step)
        assert form.prox_error(v, p, step) <= 1e-11
        assert form.prox_error(v, p * 0.99 + 0.005, step) > 1e-4


def test_a_set_of_the_users_own_that_is_right_is_certified():
    class Ball(bs.sets.ConvexSet):
        capabilities = frozenset({"project"})

        def project(self, v):
            return v / jnp.maximum(1.0, jnp.sqrt(jnp.sum(v**2)))

        def diameter(self, v):
            return jnp.asarray(2.0)

    result = bs.solve(bs.Problem(lambda x: jnp.sum(x), None, Ball(), None), bs.Point(np.zeros(3)), **LIMITS)
    assert result.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(result.x, -(3**-0.5), atol=1e-6)
    assert flat_set(Ball(), np.zeros(3)).estimates == {"project"}


# -- what functions take from outside ---------------------------------------------------------------------------------

target = 0.5


def _from_globals(x):
    return jnp.sum((x - target) ** 2)


def _helper(x):
    return jnp.sum(x**2)


HELPERS = {0.5: lambda x: jnp.sum((x - 0.5) ** 2), -0.25: lambda x: jnp.sum((x + 0.25) ** 2)}


def _with_helper(x):
    return _helper(x)


class Held:
    value = 0.0


def _problem_and_change(kind):
    """A problem whose solution is at a value, and how to change that from outside."""
    array, held, nested, named = np.zeros(2), Held(), [{"value": 0.0}], types.SimpleNamespace(value=0.0)

    def redefine(value):
        globals()["_helper"] = HELPERS[value]

    inner = lambda x: jnp.sum((x - array) ** 2)
    function, change = {
        "an array": (lambda x: jnp.sum((x - array) ** 2), lambda value: array.fill(value)),
        "an attribute": (lambda x: jnp.sum((x - held.value) ** 2), lambda value: setattr(held, "value", value)),
        "a namespace": (lambda x: jnp.sum((x - named.value) ** 2), lambda value: setattr(named, "value", value)),
        "a list": (lambda x: jnp.sum((x - nested[0]["value"]) ** 2), lambda value: nested[0].update(value=value)),
        "an inner function": (lambda x: inner(x), lambda value: array.fill(value)),
        "a global": (_from_globals, lambda value: globals().update(target=value)),
        "a helper": (_with_helper, redefine),
    }[kind]
    return bs.Problem(function, None, BOX, None), change


KINDS = ["an array", "an attribute", "a namespace", "a list", "an inner function", "a global", "a helper"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_function_takes_from_outside_may_change(kind):
    """Compiled programs hold it as it was: a point of the old problem was certified for the new one."""
    problem, change = _problem_and_change(kind)
    found = []
    for value in (0.5, -0.25, 0.5):
        change(value)
        found.append(bs.solve(problem, bs.Point(np.zeros(2)), **LIMITS))
        np.testing.assert_allclose(found[-1].x, value, atol=1e-6)
    assert not bs.certify(problem, found[1].point).within(1e-3)
    assert bs.certify(problem, found[0].point).within(1e-6)


def test_what_the_functions_of_a_set_take_from_outside_may_change():
    radius = np.ones(1)
    box = bs.sets.Custom(project=lambda v: jnp.clip(v, -radius, radius), diameter=4.0)
    problem = bs.Problem(lambda x: jnp.sum(x), None, box, None)
    for value in (1.0, 0.5):
        radius[0] = value
        np.testing.assert_allclose(bs.solve(problem, bs.Point(np.zeros(2)), **LIMITS).x, -value)


def test_a_key_of_jax_random_in_the_data_is_named():
    problem = bs.Problem(lambda x, data: jnp.sum(x**2), None, BOX, None, {"seed": jax.random.key(0)})
    with pytest.raises(ValueError, match=r"data\['seed'\] must hold numbers, given a key of jax.random"):
        bs.solve(problem, bs.Point(np.zeros(2)), **LIMITS)


def test_x_and_y_of_one_shape_go_different_ways():
    """Along one way for both, f would cancel to nothing but rounding, and errors of f_x and f_y as well."""
    ball = bs.sets.L2Ball(1.0)
    problem = bs.Problem(lambda x, theta, y, data: jnp.sum(x * y) - jnp.sum(y**2), None, ball, ball)
    kernels = Kernels(problem, point := bs.Point(x=np.full(2, 1e-21), y=np.full(2, 2e-21)))
    assert bs.certify(problem, point).mismatch == ""
    x, theta, y = kernels.flat(point)
    ways = along_a_line(Implicit(kernels, x, theta, y)).direction
    assert np.linalg.norm(ways[:2] - ways[2:]) > 0.1


def test_terms_that_cancel_along_the_whole_line_are_no_jumps():
    ball = bs.sets.L2Ball(1.0)
    cancels = bs.Problem(lambda x, theta, y, data: jnp.sum((x + y) ** 2 - x**2 - 2 * x * y - y**2), None, ball, ball)
    assert bs.certify(cancels, bs.Point(x=np.full(2, 1e-21), y=np.full(2, 2e-21))).mismatch == ""
