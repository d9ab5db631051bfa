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
