"""Sets over flat NumPy vectors: the answers of the JAX forms, whether written in NumPy or compiled."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from bisaddle import sets
from bisaddle.programs import Watch, watched
from bisaddle.sets.flat import FORMS, flat_set
from bisaddle.trees import Shape
from tests.set_cases.all_cases import CASES
from tests.set_cases.flat import STEP, compare, rng_of
from tests.test_prox import PENALTIES

# programs of forms that are not NumPy's take their time: these stand for them in `make test`
QUICK = {"Custom", "CVaRSet", "NuclearBall", "Translated", "Entropy"}


def _cases():
    for name, case in CASES.items():
        kind = type(case.make(np.random.default_rng(0), 2))
        quick = name in QUICK or (kind in FORMS and not name.startswith(("KL", "Chi")))  # in test_sets_flat_numpy.py
        yield pytest.param(name, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize("name", list(_cases()))
def test_the_flat_form_answers_as_the_set(name):
    case, rng = CASES[name], rng_of(name)
    convex_set = case.make(rng, case.quick_size)
    compare(convex_set, np.zeros(case.shape(case.quick_size)), rng, derivatives=case.differentiable)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "Indicator" else [pytest.mark.slow]) for name in PENALTIES]
)
def test_the_flat_form_of_a_penalty_answers_as_the_penalty(name):
    penalty = PENALTIES[name][0]
    compare(penalty, np.zeros(6), rng_of(name))


@pytest.mark.parametrize(
    "make",
    [
        lambda size: sets.LpBall(3, size),
        lambda size: sets.Entropy(size, size),
        lambda size: sets.Translated(sets.L1Ball(size), size),
    ],
)
def test_equal_shapes_share_few_compiled_programs_whatever_the_sizes(make):
    v = np.random.default_rng(0).normal(size=(2, 4))

    def ask(convex_set):
        form = flat_set(convex_set, v)
        with watched(Watch()) as watch:
            form.project(v.ravel())
            form.prox(v.ravel(), STEP)
            form.violation(v.ravel())
            form.best_response(v.ravel(), v.ravel())
        return watch.programs

    assert 1 <= ask(make(2.0)) <= 2 and ask(make(5.0)) == 0


def test_a_product_is_its_blocks_in_the_order_of_the_tree():
    product = sets.Product(
        {
            "b": (sets.Simplex(axis=-1), sets.Product({"z": sets.Box(-1.0, 2.0), "y": sets.L2Ball(0.5)})),
            "a": [sets.CVaRSet(0.5), sets.LinfBall(0.3)],
        }
    )
    like = {"a": [np.zeros(4), np.zeros((2, 2))], "b": (np.zeros((2, 3)), {"y": np.zeros(5), "z": np.zeros(2)})}
    form = compare(product, like, np.random.default_rng(0))
    kinds = [(type(block.of).__name__, place.start, place.stop) for block, place in form.blocks]
    assert kinds == [("CVaRSet", 0, 4), ("LinfBall", 4, 8), ("Simplex", 8, 14), ("L2Ball", 14, 19), ("Box", 19, 21)]


def test_a_product_with_a_penalty_has_its_prox_its_penalty_and_its_best_response():
    product = sets.Product((sets.L1Penalty(0.6, sets.LinfBall(0.8)), sets.Simplex()))
    compare(product, (np.zeros(3), np.zeros(4)), np.random.default_rng(1))


def test_a_missing_oracle_and_a_value_that_does_not_fit_are_refused_as_by_the_set():
    only_lmo = sets.Custom(lmo=lambda d: -jnp.sign(d), diameter=2.0, name="Corners")
    form = flat_set(only_lmo, np.zeros(3))
    for ask in (form.project, form.face, lambda v: form.prox(v, 1.0)):
        with pytest.raises(ValueError, match="Corners has no project .*give Custom project="):
            ask(np.ones(3))
    both = flat_set(
        sets.Product([only_lmo, sets.Intersection([sets.L1Ball(1.0), sets.LinfBall(0.5)])]), [np.zeros(2)] * 2
    )
    assert both.capabilities == frozenset()
    with pytest.raises(ValueError, match="Product has no lmo: .*Intersection"):
        both.lmo(np.ones(4))
    with pytest.raises(ValueError, match="Product has no project: .*Corners"):
        both.project(np.ones(4))
    with pytest.raises(ValueError, match="KLBall has reference with 3 entries, given vectors of size 4"):
        flat_set(sets.KLBall(np.full(3, 1 / 3), 0.1), np.zeros(4))
    with pytest.raises(ValueError, match="use the same keys and nesting"):
        flat_set(sets.Product({"a": sets.Simplex()}), {"b": np.zeros(3)})


def test_a_violation_of_its_own_is_asked_and_not_replaced_by_the_projection():
    given = sets.Custom(project=lambda v: jnp.clip(v, -1, 2), diameter=3.0, violation=lambda v: 7.0 * jnp.max(v))
    both = flat_set(sets.Intersection([sets.L1Ball(1.0), sets.LinfBall(0.5)]), np.zeros(2))
    assert flat_set(given, np.zeros(2)).violation(np.array([1.0, 3.0])) == 21.0
    assert np.isclose(both.violation(np.array([3.0, 0.0])), np.hypot(2.0, 2.5))


def test_a_subclass_that_changes_the_set_does_not_get_the_form_of_its_parent():
    class Shifted(sets.L2Ball):
        def vector_project(self, v):
            return 1.0 + super().vector_project(v - 1.0)

    v = np.array([3.0, 1.0])
    form = flat_set(Shifted(1.0), v)
    np.testing.assert_allclose(form.project(v), [2.0, 1.0])
    assert form.violation(v) == 1.0


def test_answers_are_new_arrays_that_may_be_changed():
    for convex_set in (sets.L1Ball(9.0), sets.L2Ball(9.0), sets.Box(-9.0, 9.0), sets.LpBall(3, 9.0)):
        v = np.array([0.5, -1.0])
        form = flat_set(convex_set, v)
        p, inside, *_ = form.face(v)
        rows = np.eye(2)
        derivative = inside(rows)
        for answer in (p, form.project(v), form.lmo(v), form.prox(v, STEP), derivative):
            answer += 1.0
        np.testing.assert_array_equal(v, [0.5, -1.0])
        np.testing.assert_array_equal(rows, np.eye(2))


def test_a_shape_lays_a_tree_out_and_brings_it_back():
    tree = {"b": np.arange(6.0).reshape(2, 3), "a": (np.float64(7.0), None, jnp.arange(8.0, 10.0))}
    shape = Shape.of(tree)
    v = shape.ravel(tree)
    np.testing.assert_array_equal(v, [7, 8, 9, 0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(v, ravel_pytree(tree)[0])
    v[:] += 1  # it is a copy
    for back in (shape.tree(v), jax.jit(shape.traced)(v)):
        assert jax.tree.structure(back) == jax.tree.structure(tree)
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, np.asarray(b) + 1), back, tree)
    np.testing.assert_array_equal(jax.jit(lambda v: shape.join(shape.traced(v)))(v), v)
    assert shape == Shape.of(shape.structs) and hash(shape) == hash(Shape.of(tree)) and not jax.tree.leaves(shape)
    assert shape.size == 9 and shape.dtype == np.float64 and shape != Shape.of(tree["b"])


def test_a_shape_of_nothing_of_mixed_dtypes_and_without_double_precision():
    nothing = Shape.of(None)
    assert nothing.size == 0 and nothing.ravel(None).shape == (0,) and nothing.tree(np.zeros(0)) is None
    assert jax.jit(lambda v: nothing.join(nothing.traced(v)))(np.zeros(0)).shape == (0,)
    mixed = {"a": np.zeros(2, np.float32), "b": np.arange(2)}
    shape = Shape.of(mixed)
    assert shape.dtype == np.float64 and shape.ravel(mixed).dtype == np.float64
    assert [leaf.dtype for leaf in jax.tree.leaves(shape.tree(np.ones(4)))] == [np.float32, np.float64]
    single = Shape.of(np.zeros(3, np.float32))
    assert single.ravel(np.ones(3)).dtype == np.float32 and single.tree(np.ones(3)).dtype == np.float64
    with jax.enable_x64(False):
        assert Shape.of(np.zeros(3)).dtype == np.float32 and Shape.of(1).dtype == np.float32
