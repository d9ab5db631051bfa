"""One norm ball over a whole pytree: the same as over its entries in one vector, in every oracle and method."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import bisaddle as bs
from bisaddle import sets
from bisaddle.auditing.regions import region_of
from bisaddle.sets.flat import flat_set

BALLS = [sets.L1Ball(1.5), sets.L2Ball(1.5), sets.LinfBall(0.4), sets.FreeBall(1.5)]
RNG = np.random.default_rng(0)
TREE = [(RNG.normal(size=(2, 3)), RNG.normal(size=3)), (RNG.normal(size=(3, 1)), RNG.normal(size=()))]
FLAT, back = ravel_pytree(TREE)
SHAPES = jax.tree.map(np.shape, TREE)


def same(tree, flat):
    assert jax.tree.structure(tree) == jax.tree.structure(TREE)
    assert jax.tree.map(np.shape, tree) == SHAPES
    np.testing.assert_allclose(ravel_pytree(tree)[0], flat, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("ball", BALLS, ids=lambda ball: type(ball).__name__)
def test_a_ball_of_trees_is_the_ball_of_their_entries(ball):
    assert ball.misfit(TREE) is None
    same(ball.project(TREE), ball.project(FLAT))
    same(ball.lmo(TREE), ball.lmo(FLAT))
    same(ball.prox(TREE, 0.3), ball.project(FLAT))
    for oracle in ("support", "violation", "diameter"):
        np.testing.assert_allclose(getattr(ball, oracle)(TREE), getattr(ball, oracle)(FLAT), rtol=1e-14)
    assert ball.violation(ball.sample(jax.random.key(0), SHAPES)) <= 1e-12
    form, alone = flat_set(ball, TREE), flat_set(ball, FLAT)
    np.testing.assert_array_equal(form.project(np.asarray(FLAT)), alone.project(np.asarray(FLAT)))
    np.testing.assert_array_equal(form.lmo(np.asarray(FLAT)), alone.lmo(np.asarray(FLAT)))
    region = region_of(ball, TREE)
    np.testing.assert_allclose(region.project(np.asarray(FLAT)), ball.project(FLAT), atol=1e-14)


def test_a_moved_ball_of_trees_and_one_inside_a_product():
    offset = jax.tree.map(lambda leaf: 0.1 * jnp.ones_like(leaf), TREE)
    moved = sets.Translated(sets.L2Ball(1.0), offset)
    same(moved.project(TREE), 0.1 + sets.L2Ball(1.0).project(FLAT - 0.1))
    both = sets.Product({"layers": sets.L2Ball(1.0), "weights": sets.Simplex()})
    found = both.project({"layers": TREE, "weights": np.ones(3)})
    same(found["layers"], sets.L2Ball(1.0).project(FLAT))
    assert flat_set(both, {"layers": TREE, "weights": np.ones(3)}).size == FLAT.size + 3


def test_binds_looks_at_the_whole_tree():
    ball = sets.FreeBall(float(jnp.linalg.norm(FLAT)))
    assert ball.binds(TREE) and not ball.binds(jax.tree.map(lambda leaf: 0.9 * leaf, TREE))


@pytest.mark.parametrize(
    ("convex_set", "value"),
    [
        (sets.L2Ball(1.0, axis=0), TREE),
        (sets.L2Ball(1.0), [np.zeros(0), np.zeros(0)]),
        (sets.Simplex(), TREE),
        (sets.L1Penalty(1.0, sets.L2Ball(1.0)), TREE),
        (sets.GroupL1(1.0, [0, 1], sets.L2Ball(1.0)), TREE),
    ],
)
def test_other_sets_still_hold_one_array(convex_set, value):
    assert "holds one array, given a pytree" in convex_set.misfit(value)


def upper(x, theta, y, data):
    return jnp.sum((x["a"] - data) ** 2) + y @ theta + 0.1 * x["b"] * jnp.sum(y) - 0.5 * jnp.sum(y**2)


def lower(x, theta, data):
    return 0.5 * jnp.sum((theta - x["a"][0] * x["b"]) ** 2)


def joined(function):
    """The same function of x = (a, b) as one vector."""
    return lambda x, *rest: function({"a": x[:4].reshape(2, 2), "b": x[4]}, *rest)


STEPS = bs.StepSizes(alpha=0.5, eta=0.5, gamma=0.1, tau=0.1, sigma=0.3, mu=0.0)
METHODS = [
    bs.methods.FullyProjected(STEPS),
    pytest.param(bs.methods.OneSidedProjectionFree(STEPS), marks=pytest.mark.slow),
    bs.methods.Adaptive(np.asarray(1e-7)),
]


@pytest.mark.parametrize("method", METHODS, ids=["FullyProjected", "OneSidedProjectionFree", "Adaptive"])
def test_methods_and_certificates_see_one_ball(method):
    data, y_set = np.array([[1.0, -2.0], [0.5, 1.0]]), sets.Box(-1.0, 1.0)
    tree = bs.Problem(upper, lower, sets.L2Ball(1.0), y_set, data)
    flat = bs.Problem(joined(upper), joined(lower), sets.L2Ball(1.0), y_set, data)
    start = bs.Point({"a": np.zeros((2, 2)), "b": np.array(0.5)}, np.zeros(2), np.zeros(2))
    flat_start = bs.Point(np.array([0.0, 0.0, 0.0, 0.0, 0.5]), np.zeros(2), np.zeros(2))
    measure = "lmo" if isinstance(method, bs.methods.OneSidedProjectionFree) else "projection"
    one, other = (
        bs.solve(problem, at, method, tol=1e-7, max_steps=60, measure=measure)
        for problem, at in ((tree, start), (flat, flat_start))
    )
    np.testing.assert_allclose(ravel_pytree(one.x)[0], other.x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(other.x), 1.0, atol=0.3)  # the ball binds
    for kind in ("projection", "lmo"):
        certificates = [bs.certify(tree, one.point, measure=kind), bs.certify(flat, other.point, measure=kind)]
        np.testing.assert_allclose(certificates[0].gap, certificates[1].gap, rtol=1e-6, atol=1e-12)
