"""The forms of sets in NumPy: at every scale, at ties, with NaN, in single precision; and that nothing compiles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bisaddle import sets
from bisaddle.sets.flat import flat_set
from tests.set_cases.flat import STEP, compare, derived, rng_of

# the searches for the divergences take JAX seconds to compile
SLOW = {
    "KLBall of columns",
    "KLBall, tiny",
    "ChiSquareBall of rows",
    "ChiSquareBall that allows vertices",
}
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
    compare(convex_set, np.zeros(shape), rng_of(name), scales=(1e-8, 1e-3, 0.3, 1.0, 1e4, 1e16))


@written
@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e160, 1e300])
def test_a_form_in_numpy_projects_and_minimises_at_extreme_scales(name, scale):
    convex_set, shape = WRITTEN[name]
    form = flat_set(convex_set, np.zeros(shape))
    rng = rng_of(name)
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
    rng = rng_of(name)
    hits = 0
    for scale in np.resize((0.1, 1.0, 3.0), 12):
        v, (u, w) = rng.normal(size=form.size) * scale, rng.normal(size=(2, form.size))
        p, inside = derived(form, v)
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
    p, inside = derived(flat_set(convex_set, v), v)
    theirs, tangents = _along(convex_set, v, eye)
    np.testing.assert_allclose(p, theirs[0], rtol=1e-15)
    np.testing.assert_allclose(inside(eye), tangents, atol=1e-15)


@written
def test_nan_in_nan_out_and_infinities_do_not_warn(name):
    convex_set, shape = WRITTEN[name]
    form = flat_set(convex_set, np.zeros(shape))
    rows = "of" in name and form.size > 1
    for at in (0, form.size - 1):
        v = rng_of(name).normal(size=form.size)
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
    rng = rng_of(name)
    for scale in (1e-3, 1.0, 30.0):
        v, d = (rng.normal(size=(2, single.size)) * scale).astype(np.float32)
        p, inside = derived(single, v)
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
        p, inside, *_ = form.face(v)
        np.testing.assert_array_equal(p, form.project(v))
        assert inside(np.stack([v, p])).shape == (2, v.size) and len(form.blocks) == 9
        assert form.violation(v) > form.violation(form.prox(v, STEP)) and form.diameter() > 0
        assert form.penalty(p) == 0 and form.best_response(p, v)[0] > 0

    assert _compiled(everything) == 0
    assert _compiled(lambda: jnp.arange(37 * 31) + 1.5) > 0  # it would have been seen


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
