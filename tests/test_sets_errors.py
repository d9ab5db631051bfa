"""What cannot be a set, and what does not fit one: the messages of the constructors and of misfit."""

import re

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
    ("blocks", "kinds"), [({}, "nothing"), ({"a": 1.0}, "float"), ([sets.Simplex(), None, "x"], "str")]
)
def test_a_product_of_anything_but_sets_is_refused(blocks, kinds):
    with pytest.raises(
        ValueError, match=f"Product takes a dict, tuple or list with a set .* for every part, given {kinds}"
    ):
        sets.Product(blocks)


@pytest.mark.parametrize(
    ("convex_set", "value", "message"),
    [
        (sets.Simplex(), {"a": np.zeros(2)}, "Simplex holds one array, given a pytree .* use sets.Product"),
        (sets.L1Ball(1.0), np.zeros(0), r"L1Ball holds a nonempty array, given shape \(0,\)"),
        (sets.Box(np.zeros(2), 1.0), np.zeros(3), r"Box bounds have shape \(2,\) and do not .*\(3,\)"),
        (sets.Box(np.zeros((1, 2)), 1.0), np.zeros(2), r"Box bounds have shape \(1, 2\)"),
        (sets.Product({"a": sets.Simplex()}), {"b": np.zeros(2)}, "Product has the parts .* use the same keys"),
        (sets.Product((sets.Simplex(),)), np.zeros(2), "Product has the parts .* given .*; use the same keys"),
        (
            sets.Product({"a": (sets.Simplex(),)}),
            {"a": (np.zeros(0),)},
            r"\['a'\]\[0\]: Simplex holds a nonempty array",
        ),
    ],
)
def test_misfit_names_the_leaf_and_the_reason(convex_set, value, message):
    assert re.search(message, convex_set.misfit(value))


def test_a_product_can_do_what_all_its_blocks_can():
    class OnlyLmo(sets.ConvexSet):
        capabilities = frozenset({"lmo"})

    assert sets.Product((sets.Simplex(), OnlyLmo())).capabilities == {"lmo"}
    with pytest.raises(ValueError, match=r"OnlyLmo has no project \(it has: lmo\)"):
        OnlyLmo().project(jnp.zeros(2))


def test_an_oracle_that_a_set_claims_but_does_not_write_is_not_among_those_it_has():
    class Claims(sets.ConvexSet):
        def project(self, v):
            return v

    message = r"Claims has no lmo \(it has: project\)"
    with pytest.raises(ValueError, match=message):
        Claims().lmo(jnp.zeros(2))
    assert sets.Product((sets.Simplex(), Claims())).missing("lmo") == "Product has no lmo (it has: project)"


def test_a_product_splits_a_value_among_its_blocks_and_joins_the_parts():
    box, simplex = sets.Box(0.0, 1.0), sets.Simplex()
    product = sets.Product({"b": (box, sets.Product([simplex])), "a": simplex})
    value = {"b": (1, [2]), "a": 3}
    (first, three), (second, one), (third, two) = product.split(value)
    assert (first, second, third) == (simplex, box, product.sets["b"][1]) and (three, one, two) == (3, 1, [2])
    assert product.join([three, one, two]) == value
    assert [parts[1:] for parts in product.split(value, value)] == [(3, 3), (1, 1), ([2], [2])]


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


WRONG = {
    "caps too small": (lambda: sets.CappedSimplex([0.1, 0.2, 0.3]), "caps sum to 0.6, less than the radius 1"),
    "negative cap": (lambda: sets.CappedSimplex([-0.1, 2.0]), "cap must be >= 0, given -0.1"),
    "cap not a number": (lambda: sets.CappedSimplex([np.nan, 2.0]), "cap must be finite"),
    "radius 0": (lambda: sets.UnitSimplex(0.0), "radius must be finite and > 0, given 0"),
    "k below 1": (lambda: sets.HyperSimplex(0.5), "k must be at least 1, given 0.5"),
    "k an array": (lambda: sets.KSparsePolytope([1, 2], 1.0), "k must be a number"),
    "weight 0": (lambda: sets.WeightedL1Ball([1.0, 0.0], 1.0), "weights must be > 0, given 0"),
    "p below 1": (lambda: sets.LpBall(0.5, 1.0), "p must be at least 1, given 0.5"),
    "p not a number": (lambda: sets.LpBall(np.nan, 1.0), "p must be at least 1, given nan"),
    "axis 0": (lambda: sets.Ellipsoid([1.0, 0.0]), "axes must be > 0"),
    "center of another size": (lambda: sets.Ellipsoid([1.0, 1.0], np.zeros(3)), "given 2 and 3 entries"),
    "groups that skip": (lambda: sets.GroupBall([0, 2], 1.0), r"every label from 0 to the largest, given \[0, 2\]"),
    "groups of floats": (lambda: sets.GroupBall([0.5, 1.0], 1.0), "one integer label per coordinate"),
    "weights that grow": (lambda: sets.OrderedWeightedL1Ball([1.0, 2.0], 1.0), "must be nonincreasing"),
    "weights all 0": (lambda: sets.OrderedWeightedL1Ball([0.0, 0.0], 1.0), "the first > 0"),
    "one weight": (lambda: sets.OrderedWeightedL1Ball(1.0, 1.0), "must be an array"),
    "one value": (lambda: sets.Permutahedron(1.0), "must be an array"),
    "value not a number": (lambda: sets.Singleton([np.nan]), "value must be finite"),
    "plane misses the box": (
        lambda: sets.HyperplaneBox(np.ones(3), 4.0, np.zeros(3), np.ones(3)),
        r"lies in \[0, 3\] over the box, which misses the offset 4",
    ),
    "halfspace misses the box": (
        lambda: sets.HalfspaceBox(np.ones(3), -1.0, np.zeros(3), np.ones(3)),
        "at least 0 over the box, which exceeds the offset -1",
    ),
    "bounds exchanged": (lambda: sets.HalfspaceBox(1.0, 1.0, 2.0, 1.0), "lower bound exceeds its upper bound"),
    "normal 0": (lambda: sets.HyperplaneBox([0.0, 0.0], 0.0, 0.0, 1.0), "entry other than 0"),
    "sizes differ": (lambda: sets.HyperplaneBox(np.ones(2), 0.0, np.zeros(3), 1.0), r"one size, given \[2, 3\]"),
    "offset an array": (lambda: sets.HalfspaceBox(np.ones(2), np.ones(2), 0.0, 1.0), "offset must be a number"),
    "reference 0": (lambda: sets.KLBall([0.0, 1.0], 1.0), "reference must be > 0 everywhere, given an entry 0"),
    "reference negative": (lambda: sets.TVBall([-0.5, 1.5], 1.0), "reference must be >= 0 everywhere"),
    "reference off": (lambda: sets.ChiSquareBall([0.5, 0.6], 1.0), "must sum to 1, given a sum of 1.1"),
    "reference a number": (lambda: sets.KLBall(0.5, 1.0), "one probability per coordinate"),
    "level 1": (lambda: sets.CVaRSet(1.0), "0 <= level < 1, given 1.0"),
    "level not a number": (lambda: sets.CVaRSet(np.nan), "0 <= level < 1, given nan"),
    "mean out of reach": (
        lambda: sets.MeanConstrainedSimplex([0.0, 1.0], 2.0, 3.0),
        r"means lie in \[0, 1\], which misses \[lower, upper\] = \[2, 3\]",
    ),
    "mean bounds exchanged": (lambda: sets.MeanConstrainedSimplex([0.0, 1.0], 0.7, 0.3), "lower 0.7 exceeds upper 0.3"),
    "one mean value": (lambda: sets.MeanConstrainedSimplex(1.0, 0.0, 1.0), "takes an array of values"),
}


@pytest.mark.parametrize("name", WRONG)
def test_bad_input_is_named(name):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make()


MISFITS = {
    "scalar caps too small": (sets.CappedSimplex(0.2), "caps sum to 0.8, less than the radius 1"),
    "caps for others": (sets.CappedSimplex([0.5, 0.5, 0.5]), "cap with 3 entries, given vectors of size 4"),
    "k too large": (sets.HyperSimplex(5), "k = 5 entries of at most 1 do not fit in vectors of size 4"),
    "groups for others": (sets.GroupBall((0, 1, 1), 1.0), "groups for 3 coordinates, given vectors of size 4"),
    "one weight for others": (sets.OrderedWeightedL1Ball([1.0], 1.0), "weights with 1 entries"),
    "plane out of reach": (sets.HyperplaneBox(1.0, 5.0, 0.0, 1.0), "misses the offset 5"),
    "reference for others": (sets.KLBall([0.5, 0.5], 1.0), "reference with 2 entries"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_vectors_that_do_not_fit_are_named(name):
    convex_set, message = MISFITS[name]
    assert message in convex_set.misfit(jnp.zeros(4))
