"""Holding the form of a set over flat NumPy vectors to the set itself."""

import zlib

import jax
import numpy as np

from bisaddle.programs import Program
from bisaddle.sets.flat import FlatSet, flat_set
from bisaddle.trees import Shape

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


def derived(form, v):
    """project(v), and its derivative along rows, from the face: the D with D^+ = I + bend on its range."""
    point, along, bend, _ = form.face(v)
    if bend is None:
        return point, along
    held, vectors = np.linalg.eigh(along(np.eye(form.size, dtype=v.dtype)))
    basis = vectors.T[held > 0.5]
    D = basis.T @ np.linalg.inv(np.eye(len(basis)) + bend(basis) @ basis.T) @ basis
    return point, lambda rows: rows @ D.astype(v.dtype)


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
            point, inside = derived(form, v)
            answer |= {"project": form.project(v), "derivative": inside(u), "prox": form.prox(v, STEP)}
            np.testing.assert_array_equal(point, answer["project"])
        if "lmo" in form.capabilities:
            answer["lmo"] = form.lmo(d)
        answers.append(answer)
    return {what: np.stack([answer[what] for answer in answers]) for what in answers[0]}


def compare(convex_set, like, rng, scales=(1e-3, 1.0, 1e3), derivatives=True):
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


def rng_of(name):
    return np.random.default_rng(zlib.crc32(name.encode()))
