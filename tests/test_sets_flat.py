"""Sets over flat NumPy vectors: the answers of the JAX forms, whether written in NumPy or compiled."""

import zlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from bisaddle import sets
from bisaddle.programs import Program, Watch, watched
from bisaddle.sets.flat import FORMS, FlatSet, flat_set
from bisaddle.trees import Shape
from tests.set_cases.all_cases import CASES
from tests.test_prox import PENALTIES

# programs of forms that are not NumPy's take their time: these stand for them in `make test`
QUICK = {"Custom", "CVaRSet", "NuclearBall", "Translated", "Entropy"}
# the searches for the divergences take JAX seconds to compile
SLOW = {
    "KLBall of columns",
    "KLBall, tiny",
    "ChiSquareBall of rows",
    "ChiSquareBall that allows vertices",
}
COUNT = 24
STEP = 0.3


def _reference(fixed, points, directions, tangents):
    """What the JAX forms say of points and directions, with the derivative of the projection along tangents."""
    convex_set, shape = fixed
    project = lambda v: shape.join(convex_set.project(shape.traced(v)))

    def one(v, d, u):
        tree, direction = shape.traced(v), shape.traced(d)
        answers = {
            "violation": convex_set.violation(tree),
            "diameter": convex_set.diameter(tree),
            "penalty": convex_set.penalty(tree),
            "best_response": convex_set.best_response(tree, direction)[0],
        }
        if "project" in convex_set.capabilities:
            answers["project"], answers["derivative"] = jax.jvp(project, (v,), (u,))
            answers["prox"] = shape.join(convex_set.prox(tree, STEP))
        if "lmo" in convex_set.capabilities:
            answers["lmo"] = shape.join(convex_set.lmo(direction))
        return answers

    return jax.vmap(one)(points, directions, tangents)


def _each(form, points, directions, tangents):
    """The same, of the flat form."""
    answers = []
    for v, d, u in zip(points, directions, tangents, strict=True):
        answer = {
            "violation": form.violation(v),
            "diameter": form.diameter(),
            "penalty": form.penalty(v),
            "best_response": form.best_response(v, d)[0],
        }
        assert all(type(number) is float for number in answer.values())
        if "project" in form.capabilities:
            point, inside = form.linearised(v)
            answer |= {"project": form.project(v), "derivative": inside(u), "prox": form.prox(v, STEP)}
            np.testing.assert_array_equal(point, answer["project"])
        if "lmo" in form.capabilities:
            answer["lmo"] = form.lmo(d)
        answers.append(answer)
    return {what: np.stack([answer[what] for answer in answers]) for what in answers[0]}


def _compare(convex_set, like, rng, scales=(1e-3, 1.0, 1e3), derivatives=True):
    """Hold the flat form to the JAX form, on points at several scales and on points in and at the set."""
    shape = Shape.of(like)
    form = flat_set(convex_set, like)
    assert isinstance(form, FlatSet) and form.of is convex_set and form.size == shape.size
    assert form.capabilities == convex_set.capabilities
    reference = Program(_reference, "the reference", (convex_set, shape))
    wide = np.resize(scales, COUNT)
    points = rng.normal(size=(COUNT, shape.size)) * wide[:, None]
    directions, tangents = rng.normal(size=(2, COUNT, shape.size))
    directions[:3] = np.array([[0.0], [1.0], [-1.0]])  # ties
    theirs = reference(points, directions, tangents)
    size = 1 + theirs["diameter"][0]
    extremes = [theirs[oracle] for oracle in ("project", "lmo") if oracle in theirs]
    inside = np.where(rng.random((COUNT, 1)) < 0.5, extremes[0], 0.5 * (extremes[-1] + extremes[-1][::-1]))
    for at, scale in ((points, wide), (inside, np.ones(COUNT))):
        theirs, ours = reference(at, directions, tangents), _each(form, at, directions, tangents)
        assert set(theirs) == set(ours)
        allowed = 10 * convex_set.tolerance * (size + scale)
        steep = 1 + np.linalg.norm(directions, axis=1)
        if "lmo" in theirs:  # where nearly tied the minimiser may be another one
            value = lambda answers: np.sum(directions * answers["lmo"], axis=1)
            np.testing.assert_array_less(np.abs(value(ours) - value(theirs)), allowed * steep, "lmo")
            assert max(map(form.violation, ours["lmo"])) <= allowed.max()
        for what in ("project", "prox"):
            if what in theirs:
                off = np.linalg.norm(ours[what] - theirs[what], axis=1)
                np.testing.assert_array_less(off, allowed, what)
        for what, times in (("violation", 1), ("diameter", 1), ("penalty", steep), ("best_response", steep)):
            np.testing.assert_array_less(np.abs(ours[what] - theirs[what]), allowed * times, what)
        if derivatives and at is points and "derivative" in theirs:
            np.testing.assert_allclose(ours["derivative"], theirs["derivative"], rtol=1e-7, atol=1e-7)
    return form


def _rng(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def _cases():
    for name, case in CASES.items():
        kind = type(case.make(np.random.default_rng(0), 2))
        quick = name in QUICK or (kind in FORMS and not name.startswith(("KL", "Chi")))  # these are in WRITTEN too
        yield pytest.param(name, marks=[] if quick else [pytest.mark.slow])


@pytest.mark.parametrize("name", list(_cases()))
def test_the_flat_form_answers_as_the_set(name):
    case, rng = CASES[name], _rng(name)
    n = max(size for size in case.sizes if size <= 5)
    convex_set = case.make(rng, n)
    _compare(convex_set, np.zeros(case.shape(n)), rng, derivatives=case.differentiable)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name == "Indicator" else [pytest.mark.slow]) for name in PENALTIES]
)
def test_the_flat_form_of_a_penalty_answers_as_the_penalty(name):
    penalty = PENALTIES[name][0]
    _compare(penalty, np.zeros(6), _rng(name))


# sets with a form in NumPy, for an array of the shape given
WRITTEN = {
    "Simplex": (sets.Simplex(1.3), (7,)),
    "Simplex by a sort": (sets.Simplex(0.7), (60,)),
    "Simplex by Newton's method": (sets.Simplex(2.0), (700,)),
    "Simplex of rows": (sets.Simplex(0.5, axis=-1), (3, 4)),
    "Simplex of columns": (sets.Simplex(axis=0), (4, 3)),
    "Simplex of slices": (sets.Simplex(1.5, axis=(0, 2)), (2, 3, 4)),
    "Simplex of one entry": (sets.Simplex(2.5), ()),
    "UnitSimplex": (sets.UnitSimplex(1.4), (6,)),
    "UnitSimplex of columns": (sets.UnitSimplex(1.4, axis=0), (6, 2)),
    "L1Ball": (sets.L1Ball(1.2), (2, 4)),
    "L1Ball of columns": (sets.L1Ball(1.2, axis=0), (5, 3)),
    "L2Ball": (sets.L2Ball(1.2), (6,)),
    "L2Ball of slices": (sets.L2Ball(1.2, axis=(2, 0)), (2, 3, 2)),
    "FreeBall": (sets.FreeBall(), (5,)),
    "LinfBall": (sets.LinfBall(0.8), (5,)),
    "LinfBall of rows": (sets.LinfBall(0.8, axis=1), (2, 3)),
    "Box": (sets.Box(-np.arange(4.0), 0.5), (3, 4)),
    "Box with a side of length 0": (sets.Box(np.array([0.0, 1.0]), 1.0), (2,)),
    "KLBall": (sets.KLBall(np.array([0.1, 0.2, 0.3, 0.4]), 0.1), (4,)),
    "KLBall of columns": (sets.KLBall(np.array([0.5, 0.2, 0.3]), 0.3, axis=0), (3, 2)),
    "KLBall, tiny": (sets.KLBall(np.array([0.5, 0.2, 0.3]), 1e-4), (3,)),
    "ChiSquareBall": (sets.ChiSquareBall(np.array([0.1, 0.2, 0.3, 0.4]), 0.2), (2, 2)),
    "ChiSquareBall of rows": (sets.ChiSquareBall(np.array([0.5, 0.2, 0.3]), 0.3, axis=1), (2, 3)),
    "ChiSquareBall that allows vertices": (sets.ChiSquareBall(np.array([0.5, 0.2, 0.3]), 1.5), (3,)),
}
written = pytest.mark.parametrize("name", WRITTEN)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in WRITTEN]
)
def test_a_form_in_numpy_answers_as_the_set_at_every_scale(name):
    convex_set, shape = WRITTEN[name]
    # JAX's searches for the divergences, its sums of squares and its clips are not made for more
    _compare(convex_set, np.zeros(shape), _rng(name), scales=(1e-8, 1e-3, 0.3, 1.0, 1e4, 1e16))


@written
@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e160, 1e300])
def test_a_form_in_numpy_projects_and_minimises_at_extreme_scales(name, scale):
    convex_set, shape = WRITTEN[name]
    form = flat_set(convex_set, np.zeros(shape))
    rng = _rng(name)
    some = [form.lmo(rng.normal(size=form.size)) for _ in range(5)]
    for _ in range(3):
        v = rng.normal(size=form.size) * scale
        p = form.project(v)
        # <v - p, u - p> <= 0 for u in the set
        away = (v - p) / max(1, scale)
        assert form.violation(p) <= 1e-12 * (1 + form.diameter())
        assert all(away @ (u - p) <= 1e-12 * (1 + form.diameter()) ** 2 for u in some)
        assert np.isclose(form.violation(v) / max(1, scale), np.linalg.norm(away), rtol=1e-12, atol=1e-12)
        vertex, d = form.lmo(v), v / scale
        assert form.violation(vertex) <= 1e-12 * (1 + form.diameter())
        assert all(d @ (vertex - u) <= 1e-12 * (1 + form.diameter()) * np.linalg.norm(d) for u in some)
        bound, point = form.best_response(p, v)
        assert np.isclose(bound / scale, d @ (point - p), rtol=1e-12) and bound >= -1e-12 * scale * form.diameter()


@written
def test_the_derivative_of_a_form_in_numpy_is_symmetric_and_that_of_central_differences(name):
    convex_set, shape = WRITTEN[name]
    form = flat_set(convex_set, np.zeros(shape))
    rng = _rng(name)
    hits = 0
    for scale in np.resize((0.1, 1.0, 3.0), 12):
        v, (u, w) = rng.normal(size=form.size) * scale, rng.normal(size=(2, form.size))
        p, inside = form.linearised(v)
        one, two = inside(np.stack([u, w]))
        np.testing.assert_array_equal(p, form.project(v))
        np.testing.assert_allclose(inside(u), one, rtol=1e-13, atol=1e-13)
        assert abs(one @ w - two @ u) <= 1e-9 * np.linalg.norm(u) * np.linalg.norm(w)
        first, second = ((form.project(v + h * u) - form.project(v - h * u)) / (2 * h) for h in (1e-5, 3e-6))
        if np.allclose(first, second, atol=1e-7):  # near a kink they disagree
            np.testing.assert_allclose(one, second, atol=1e-6)
            hits += 1
    assert hits >= 6


@jax.jit
def _along(convex_set, v, tangents):
    return jax.vmap(lambda u: jax.jvp(convex_set.project, (v,), (u,)))(tangents)


@pytest.mark.parametrize(
    ("convex_set", "v"),
    [
        (sets.Box(-1.0, 2.0), [-2.0, -1.0, 0.0, 2.0, 3.0]),
        (sets.Box(1.0, 1.0), [0.0, 1.0, 2.0, 1.0, 1.0]),
        (sets.LinfBall(1.0), [-1.0, 1.0, 0.5, -2.0, 2.0]),
        (sets.L1Ball(1.0), [0.5, -0.25, 0.25, 0.0, 0.0]),
        (sets.L1Ball(1.0), [2.0, -2.0, 1.0, 0.0, 0.5]),
        (sets.L2Ball(5.0), [3.0, 4.0, 0.0, 0.0, 0.0]),
        (sets.L2Ball(5.0), [0.0, 0.0, 0.0, 0.0, 0.0]),
        (sets.Simplex(1.0), [1.0, 1.0, 1.0, 0.0, 0.0]),
        (sets.Simplex(1.0), [0.5, 0.5, 0.0, 0.0, -1.0]),
        (sets.UnitSimplex(1.0), [0.5, 0.5, 0.0, 0.0, -1.0]),
        (sets.UnitSimplex(1.0), [0.0, 0.0, 0.25, 0.0, -1.0]),
        (sets.UnitSimplex(1.0), [2.0, 2.0, 0.0, 0.0, 1.5]),
        (sets.L1Ball(1.0, axis=()), [0.5, 1.0, -1.0, 0.0, 3.0]),
    ],
)
def test_at_ties_a_form_in_numpy_has_the_derivative_that_jax_has(convex_set, v):
    v, eye = np.asarray(v), np.eye(5)
    p, inside = flat_set(convex_set, v).linearised(v)
    theirs, tangents = _along(convex_set, v, eye)
    np.testing.assert_allclose(p, theirs[0], rtol=1e-15)
    np.testing.assert_allclose(inside(eye), tangents, atol=1e-15)


@written
def test_nan_in_nan_out_and_infinities_do_not_warn(name):
    convex_set, shape = WRITTEN[name]
    form = flat_set(convex_set, np.zeros(shape))
    rows = "of" in name and form.size > 1
    for at in (0, form.size - 1):
        v = _rng(name).normal(size=form.size)
        v[at] = np.nan
        for answer in (form.project(v), form.lmo(v), form.prox(v, STEP)):
            assert np.isnan(answer[at])
            entrywise = isinstance(convex_set, sets.Box | sets.LinfBall)
            assert np.all(np.isnan(answer)) or rows or (entrywise and np.sum(np.isnan(answer)) == 1)
        assert np.isnan(form.violation(v)) and np.isnan(form.best_response(v, v)[0])
        for bad in (np.inf, -np.inf):
            v[at] = bad
            assert form.project(v).shape == v.shape and form.lmo(v).shape == v.shape


@written
def test_single_precision_stays_and_is_as_exact_as_it_can_be(name):
    convex_set, shape = WRITTEN[name]
    single = flat_set(convex_set, np.zeros(shape, np.float32))
    double = flat_set(convex_set, np.zeros(shape))
    rng = _rng(name)
    for scale in (1e-3, 1.0, 30.0):
        v, d = (rng.normal(size=(2, single.size)) * scale).astype(np.float32)
        p, inside = single.linearised(v)
        bound, point = single.best_response(p, d)
        for answer in (p, single.project(v), single.lmo(d), single.prox(v, STEP), inside(d), inside(d[None]), point):
            assert answer.dtype == np.float32
        off = np.linalg.norm(p - double.project(v.astype(np.float64)))
        assert off <= 1e-6 * (np.linalg.norm(v) + single.diameter())
        assert abs(single.violation(v) - double.violation(v.astype(np.float64))) <= 1e-6 * (1 + np.linalg.norm(v))
        assert type(bound) is float and np.isclose(single.diameter(), double.diameter())


def _compiled(function):
    """How many programs were compiled in a call."""
    seen = []
    listener = lambda event, duration, **_: seen.append(event) if event.endswith("backend_compile_duration") else None
    jax.monitoring.register_event_duration_secs_listener(listener)
    try:
        function()
    finally:
        jax.monitoring.unregister_event_duration_listener(listener)
    return len(seen)


def test_forms_in_numpy_compile_nothing():
    q = jnp.asarray(np.full(31, 1 / 31))  # sizes on the device, and shapes that no other test has compiled for
    radius = jnp.asarray(0.3)
    blocks = {
        "a": (sets.Simplex(radius), sets.UnitSimplex(radius), sets.L1Ball(radius, axis=1)),
        "b": sets.Product([sets.L2Ball(radius), sets.FreeBall(), sets.LinfBall(radius), sets.Box(-q, q)]),
        "c": {"d": sets.KLBall(q, radius), "e": sets.ChiSquareBall(q, radius, axis=0)},
    }
    vector, matrix = jax.ShapeDtypeStruct((31,), np.float64), jax.ShapeDtypeStruct((31, 37), np.float64)
    like = {"a": (vector, vector, matrix), "b": [vector] * 4, "c": {"d": vector, "e": matrix}}
    product = sets.Product(blocks)
    v = np.random.default_rng(0).normal(size=7 * 31 + 2 * 31 * 37)

    def everything():
        form = flat_set(product, like)
        p, inside = form.linearised(v)
        np.testing.assert_array_equal(p, form.project(v))
        assert inside(np.stack([v, p])).shape == (2, v.size) and len(form.blocks) == 9
        assert form.violation(v) > form.violation(form.prox(v, STEP)) and form.diameter() > 0
        assert form.penalty(p) == 0 and form.best_response(p, v)[0] > 0

    assert _compiled(everything) == 0
    assert _compiled(lambda: jnp.arange(37 * 31) + 1.5) > 0  # it would have been seen


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
    form = _compare(product, like, np.random.default_rng(0))
    kinds = [(type(block.of).__name__, place.start, place.stop) for block, place in form.blocks]
    assert kinds == [("CVaRSet", 0, 4), ("LinfBall", 4, 8), ("Simplex", 8, 14), ("L2Ball", 14, 19), ("Box", 19, 21)]


def test_a_product_with_a_penalty_has_its_prox_its_penalty_and_its_best_response():
    product = sets.Product((sets.L1Penalty(0.6, sets.LinfBall(0.8)), sets.Simplex()))
    _compare(product, (np.zeros(3), np.zeros(4)), np.random.default_rng(1))


def test_a_missing_oracle_and_a_value_that_does_not_fit_are_refused_as_by_the_set():
    only_lmo = sets.Custom(lmo=lambda d: -jnp.sign(d), diameter=2.0, name="Corners")
    form = flat_set(only_lmo, np.zeros(3))
    for ask in (form.project, form.linearised, lambda v: form.prox(v, 1.0)):
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


@pytest.mark.parametrize(
    ("convex_set", "divergence"),
    [
        (sets.KLBall(np.array([0.2, 0.3, 0.5]), 1.0), lambda p, q: np.sum(p * np.log(p / q))),
        (sets.ChiSquareBall(np.array([0.2, 0.3, 0.5]), 2.0), lambda p, q: np.sum((p - q) ** 2 / q) + 0.5),
    ],
)
def test_of_tied_coordinates_the_first_gets_what_a_divergence_allows(convex_set, divergence):
    """The tied ones alone are within the radius, the first alone is not; what the third lost counts 0.5, or 0."""
    p = flat_set(convex_set, np.zeros(3)).lmo(np.array([-1.0, -1.0, 3.0]))
    assert p[2] == 0 and p[0] > p[1] > 0 and np.isclose(p.sum(), 1)
    assert np.isclose(divergence(p[:2], convex_set.reference[:2]), convex_set.radius)


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
        p, inside = form.linearised(v)
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
