"""What cannot be a set, and what does not fit one: the messages of the constructors and of misfit."""

import jax.numpy as jnp
import numpy as np
import pytest

from bisaddle import sets
from tests.set_cases.all_cases import CASES


@pytest.mark.parametrize("kind", [sets.L1Ball, sets.L2Ball, sets.LinfBall, sets.Simplex])
@pytest.mark.parametrize(
    ("radius", "message"),
    [
        (0.0, "must be finite and > 0, given 0.0"),
        (-1.0, "must be finite and > 0, given -1.0"),
        (np.nan, "must be finite and > 0, given nan"),
        (np.inf, "must be finite and > 0, given inf"),
        ([1.0, 2.0], r"must be a number, given shape \(2,\)"),
        ("wide", "must be a number or an array of numbers, given 'wide'"),
        (None, "must be"),
        (1j, "must be a number or an array of numbers, given 1j"),
    ],
)
def test_a_radius_that_is_no_positive_number_is_refused(kind, radius, message):
    with pytest.raises(ValueError, match=f"{kind.__name__} radius {message}"):
        kind(radius)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ((1.0, 0.0), "Box is empty: a lower bound exceeds its upper bound; exchange them"),
        ((np.zeros(2), np.array([1.0, -1.0])), "Box is empty"),
        ((0.0, np.inf), "Box bounds must be finite .* given infinity or NaN; use a large finite bound"),
        ((np.nan, 1.0), "Box bounds must be finite"),
        ((np.zeros(2), np.ones(3)), r"Box bounds must broadcast, given shapes \(2,\) and \(3,\)"),
        (("low", 1.0), "Box lower must be a number or an array of numbers, given 'low'"),
    ],
)
def test_bounds_that_make_no_box_are_refused(bounds, message):
    with pytest.raises(ValueError, match=message):
        sets.Box(*bounds)


def test_a_box_of_one_point_projects_everything_there():
    np.testing.assert_array_equal(sets.Box(0.5, 0.5).project(jnp.asarray([-1.0, 9.0])), [0.5, 0.5])


@pytest.mark.parametrize(
    ("blocks", "kinds"), [({}, r"\[\]"), ({"a": 1.0}, "float"), ([sets.Simplex(), None, "x"], "str")]
)
def test_a_product_of_anything_but_sets_is_refused(blocks, kinds):
    with pytest.raises(ValueError, match=f"Product takes a nonempty pytree whose leaves are sets, given .*{kinds}"):
        sets.Product(blocks)


@pytest.mark.parametrize(
    ("convex_set", "value", "message"),
    [
        (sets.Simplex(), {"a": np.zeros(2)}, "Simplex holds one array, given a pytree .* use sets.Product"),
        (sets.L1Ball(1.0), np.zeros(0), r"L1Ball holds a nonempty array, given shape \(0,\)"),
        (sets.Box(np.zeros(2), 1.0), np.zeros(3), r"Box bounds have shape \(2,\) and do not .*\(3,\)"),
        (sets.Box(np.zeros((1, 2)), 1.0), np.zeros(2), r"Box bounds have shape \(1, 2\)"),
        (sets.Product({"a": sets.Simplex()}), {"b": np.zeros(2)}, "Product has structure .* use the same keys"),
        (sets.Product((sets.Simplex(),)), np.zeros(2), "Product has structure .* given .*; use the same keys"),
        (
            sets.Product({"a": (sets.Simplex(),)}),
            {"a": (np.zeros(0),)},
            r"\['a'\]\[0\]: Simplex holds a nonempty array",
        ),
    ],
)
def test_misfit_names_the_leaf_and_the_reason(convex_set, value, message):
    assert pytest.raises(ValueError, _raise_misfit, convex_set, value).match(message)


def _raise_misfit(convex_set, value):
    reason = convex_set.misfit(value)
    if reason is not None:
        raise ValueError(reason)


def test_a_product_can_do_what_all_its_blocks_can():
    class OnlyLmo(sets.ConvexSet):
        capabilities = frozenset({"lmo"})

    assert sets.Product((sets.Simplex(), OnlyLmo())).capabilities == {"lmo"}
    with pytest.raises(ValueError, match=r"OnlyLmo has no project \(it has: lmo\)"):
        OnlyLmo().project(jnp.zeros(2))


@pytest.mark.parametrize("name", CASES)
def test_an_oracle_refuses_a_shape_that_does_not_fit(name):
    """Every oracle says what misfit says, before anything compiles."""
    case = CASES[name]
    convex_set = case.make(np.random.default_rng(0), 2)
    shape = case.shape(2)
    for wrong in (jnp.zeros(0), jnp.ones((*shape[:-1], shape[-1] + 3))):
        reason = convex_set.misfit(wrong)
        for oracle in sorted(convex_set.capabilities & {"project", "lmo"}) if reason else ():
            with pytest.raises(ValueError, match="given|empty"):
                getattr(convex_set, oracle)(wrong)


@pytest.mark.parametrize(
    ("convex_set", "v", "message"),
    [
        (sets.CappedSimplex(0.1), jnp.ones(3), "the caps sum to 0.3"),
        (sets.HyperSimplex(5), jnp.ones(3), "k = 5"),
        (sets.Permutahedron([1.0, 2.0]), jnp.ones(3), "given vectors of size 3"),
        (sets.Ellipsoid([1.0, 2.0]), jnp.ones(3), "given vectors of size 3"),
        (sets.Box(np.zeros(2), np.ones(2)), jnp.ones(3), "do not fit the given shape"),
        (sets.Simplex(axis=1), jnp.ones(3), "axis 1"),
        (sets.HyperplaneBox(1.0, 9.0, 0.0, 1.0), jnp.ones(3), "misses the offset 9"),
    ],
)
def test_sets_that_are_empty_or_too_small_for_a_vector_say_so(convex_set, v, message):
    for oracle in (convex_set.project, convex_set.lmo, convex_set.diameter, convex_set.violation):
        with pytest.raises(ValueError, match=message):
            oracle(v)
