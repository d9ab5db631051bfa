"""Faces of flat sets: the range and the inverse of a projection's derivative."""

import jax
import numpy as np
import pytest

from bisaddle import sets
from bisaddle.sets.flat import flat_set

CURVED = {
    "a ball": (sets.L2Ball(0.7), np.zeros(6)),
    "a ball of every row": (sets.L2Ball(0.7, axis=-1), np.zeros((3, 4))),
    "a tall nuclear ball": (sets.NuclearBall(2.5), np.zeros((7, 4))),
    "a wide nuclear ball": (sets.NuclearBall(2.5), np.zeros((4, 6))),
    "a square nuclear ball": (sets.NuclearBall(1.5), np.zeros((5, 5))),
    "a spectrahedron": (sets.Spectrahedron(1.5), np.zeros((6, 6))),
    "a product": (
        sets.Product((sets.Box(-0.5, 0.5), sets.Spectrahedron(1.0), sets.L2Ball(0.5))),
        (np.zeros(3), np.zeros((4, 4)), np.zeros(3)),
    ),
    "a ball in float32": (sets.L2Ball(0.7), np.zeros(6, np.float32)),
}


def jacobian(convex_set, like, v):
    """The derivative of the projection by JAX, which knows nothing of faces."""
    leaves, form = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def project(v):
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jax.numpy.split(v, ends), leaves, strict=True)]
        return jax.numpy.concatenate([p.ravel() for p in jax.tree.leaves(convex_set.project(form.unflatten(parts)))])

    return np.asarray(jax.jit(jax.jacfwd(project))(v), np.float64)


@pytest.mark.parametrize("name", CURVED)
def test_a_face_has_the_range_and_the_inverse_of_the_derivative(name):
    convex_set, like = CURVED[name]
    dtype = jax.tree.leaves(like)[0].dtype
    v = np.random.default_rng(1).normal(size=sum(leaf.size for leaf in jax.tree.leaves(like))).astype(dtype)
    form = flat_set(convex_set, like)
    face = form.face(v)
    np.testing.assert_array_equal(face.point, form.project(v))
    D = jacobian(convex_set, like, v)
    values, vectors = np.linalg.eigh(0.5 * (D + D.T))
    held = values > 1e-5
    within, weights = vectors[:, held], 1 / values[held] - 1
    assert np.any(weights > 0.1)  # curved it is
    rows = np.eye(v.size, dtype=dtype)
    tolerance = 1e-11 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(face.along(rows), within @ within.T, atol=tolerance)
    np.testing.assert_allclose(face.bend(face.along(rows)), (within * weights) @ within.T, atol=10 * tolerance)


@pytest.mark.parametrize("name", ["a ball", "a square nuclear ball", "a product"])
def test_inside_a_set_a_face_is_everything(name):
    convex_set, like = CURVED[name]
    if name == "a product":
        convex_set, like = convex_set.sets[2], like[2]
    form = flat_set(convex_set, like)
    v = 1e-2 * np.random.default_rng(2).normal(size=form.size)
    face = form.face(v)
    np.testing.assert_array_equal(face.point, v)
    rows = np.random.default_rng(3).normal(size=(2, form.size))
    np.testing.assert_array_equal(face.along(rows), rows)
    assert face.bend is None or not np.any(face.bend(rows))


def test_numbers_that_are_none_stay_so():
    form = flat_set(sets.Spectrahedron(1.0), np.zeros((3, 3)))
    assert np.all(np.isnan(form.project(np.full(9, np.nan))))


FREE = {
    "a ball": (sets.L2Ball(2.0), np.zeros(4)),
    "a box": (sets.Box(-1.0, np.array([1.0, 2.0, 3.0, 4.0])), np.zeros(4)),
    "a nuclear ball": (sets.NuclearBall(9.0), np.zeros((2, 2))),
    "a product": (sets.Product((sets.Box(-1.0, 1.0), sets.L2Ball(1.5))), (np.zeros(2), np.zeros(2))),
}


@pytest.mark.parametrize("name", FREE)
@pytest.mark.parametrize("size", [0.1, 1.0, 5.0])
def test_a_face_is_free_only_where_the_projection_moves_nothing(name, size):
    """By JAX's derivative: where it is the identity, and only there, a point counts as free in all directions."""
    convex_set, like = FREE[name]
    form, kinds = flat_set(convex_set, like), set()
    for seed in range(10):
        v = size * np.random.default_rng(seed).normal(size=4)
        face = form.face(v)
        kinds.add(face.free)
        identity = np.allclose(jacobian(convex_set, like, v), np.eye(4), rtol=0, atol=1e-12)
        assert face.free == identity
        if face.free:
            np.testing.assert_array_equal(face.along(np.eye(4)), np.eye(4))
            assert face.bend is None or not face.bend(np.eye(4)).any()
    assert kinds >= ({True} if size == 0.1 else {False} if size == 5.0 else set())


def test_no_face_is_free_on_the_border():
    for convex_set, v in [(sets.Box(-1.0, 1.0), np.ones(3)), (sets.Simplex(), np.full(3, 1 / 3))]:
        assert not flat_set(convex_set, v).face(v).free
