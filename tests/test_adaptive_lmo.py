"""Adaptive on sets with only an LMO: coordinates, atoms, the low-rank forms, mixed products."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.methods.adaptive.coordinates import Atoms, LowRank, Space, movable
from bisaddle.methods.base import able
from bisaddle.sets.flat import flat_set

L1 = bs.sets.L1Ball(2.0)


def only_lmo(a_set, diameter):
    return bs.sets.Custom(lmo=a_set.lmo, diameter=diameter, violation=a_set.violation)


def only_project(a_set, diameter):
    return bs.sets.Custom(project=a_set.project, diameter=diameter, violation=a_set.violation)


# --- coordinates ------------------------------------------------------------------------------------------------------


def ravel(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def test_pull_is_the_transpose_of_x_of():
    rng = np.random.default_rng(0)
    x_set = bs.sets.Product({"a": only_lmo(L1, 4.0), "b": (bs.sets.Box(0.0, 1.0), only_lmo(L1, 4.0))})
    x = {"a": jnp.zeros(3), "b": (jnp.full(2, 0.5), jnp.zeros((2, 2)))}
    space = Space(flat_set(x_set, x), ravel(x))
    atoms = [block.part for block in space.blocks if isinstance(block.part, Atoms)]
    assert len(atoms) == space.lmos == 2
    for part in atoms:
        part.rows = rng.normal(size=part.rows.shape)
    z, G = rng.normal(size=space.first(ravel(x)).shape), rng.normal(size=9)
    np.testing.assert_allclose(space.pull(G) @ z, G @ space.x_of(z), rtol=1e-13)
    np.testing.assert_array_equal(space.pull(G)[space.blocks[1].in_z], G[3:5])  # the box moves by itself


def test_the_first_chart_holds_the_start():
    x_set = bs.sets.Product({"a": only_lmo(L1, 4.0), "b": bs.sets.Box(0.0, 1.0)})
    x = ravel({"a": jnp.array([0.3, -0.5]), "b": jnp.array([0.2])})
    space = Space(flat_set(x_set, {"a": jnp.zeros(2), "b": jnp.zeros(1)}), x)
    z = space.first(x)
    np.testing.assert_array_equal(space.x_of(z), x)
    np.testing.assert_array_equal(space.project(z), z)


@pytest.mark.parametrize("weights", [[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.2, 0.5, 0.3]])
@pytest.mark.parametrize("used", [[True, True, False], [True, True, True]])
def test_a_new_vertex_leaves_x_where_it_is(weights, used):
    """A free slot, a slot without weight, or the two lightest joined."""
    rng = np.random.default_rng(1)
    c = np.array(weights) * np.array(used)
    c = c / np.sum(c)
    atoms, vertex = Atoms(np.zeros(4)), np.arange(4.0)
    atoms.rows, atoms.used = rng.normal(size=(3, 4)), np.array(used)
    x = c @ atoms.rows
    new = atoms.add(vertex, c)
    np.testing.assert_allclose(new @ atoms.rows, x, rtol=1e-14)
    np.testing.assert_allclose(np.sum(new), 1, rtol=1e-15)
    slot = int(np.flatnonzero(np.all(atoms.rows == np.arange(4.0), axis=1))[0])
    assert atoms.used[slot] and new[slot] == 0
    assert np.all(atoms.used[new > 0])


def test_slots_not_in_use_get_no_weight():
    """The projection is that on the simplex over the others, and so is its derivative."""
    rng = np.random.default_rng(7)
    atoms = Atoms(np.zeros(6))
    atoms.used = np.array([True, False, True, True, False, True, True, False])
    simplex, used, c = flat_set(bs.sets.Simplex(), np.zeros(5)), atoms.used, rng.normal(size=8)
    wanted = np.zeros(8)
    wanted[used] = simplex.project(c[used])
    np.testing.assert_allclose(atoms.project(c), wanted, atol=1e-15)
    ahead, inside, bend, _ = atoms.face(c)
    assert bend is None
    np.testing.assert_allclose(ahead, wanted, atol=1e-15)
    rows = rng.normal(size=(3, 8))
    moved = np.zeros((3, 8))
    moved[:, used] = simplex.face(c[used]).along(rows[:, used])
    np.testing.assert_allclose(inside(rows), moved, atol=1e-14)


def test_a_vertex_is_added_only_where_it_promises_more_than_the_atoms():
    x = np.array([0.5, 0.0])
    space = Space(flat_set(only_lmo(L1, 4.0), x), x)
    z, G = space.first(x), np.array([1.0, 0.0])
    vertices = space.vertices(G)
    np.testing.assert_allclose(vertices[0], [-2.0, 0.0])
    gap, size, beyond = space.gap(x, G, vertices, np.zeros_like(z), 0.1)
    np.testing.assert_allclose([gap, size, beyond], [2.5, 2.5 / 4.0, 2.5])
    grown = space.grow(z, x, G, vertices)
    np.testing.assert_allclose(space.x_of(grown), x)
    np.testing.assert_allclose(space.pull(G) @ np.eye(len(grown))[1], -2.0)  # the vertex is at hand now
    assert space.grow(grown, x, G, vertices) is None


# --- low rank ---------------------------------------------------------------------------------------------------------


def low_rank(rng, m, n, rank, noise, symmetric=False):
    U, V = (np.linalg.qr(rng.normal(size=(k, rank)))[0] for k in (m, n))
    E = noise * rng.normal(size=(m, n)) / np.sqrt(n)
    made = (U * np.linspace(3, 1, rank)) @ (U if symmetric else V).T + (0.5 * (E + E.T) if symmetric else E)
    return jnp.asarray(made)


SPECTRAL = [bs.sets.NuclearBall(4.0), bs.sets.Spectrahedron(4.0)]


@pytest.mark.parametrize("a_set", [SPECTRAL[0], pytest.param(SPECTRAL[1], marks=pytest.mark.slow)])
def test_the_projection_from_the_leading_part_is_the_projection(a_set):
    symmetric = isinstance(a_set, bs.sets.Spectrahedron)
    v = low_rank(np.random.default_rng(2), 70, 70 if symmetric else 50, 5, 0.05, symmetric)
    found = np.asarray(jax.jit(lambda v: a_set.project_leading(v, 12))(v))
    np.testing.assert_allclose(found, a_set.project(v), atol=1e-12)
    with pytest.raises(ValueError, match="project_leading finds between 1 and"):
        a_set.project_leading(v, 0)


@pytest.mark.slow
def test_a_low_rank_projection_of_a_full_matrix_is_feasible_and_nearest_of_its_rank():
    rng = np.random.default_rng(3)
    v, ball = jnp.asarray(rng.normal(size=(80, 50))), bs.sets.NuclearBall(150.0)
    found = np.asarray(ball.project_leading(v, 8))
    u, s, w = np.linalg.svd(v, full_matrices=False)
    assert s[:8].sum() <= 150 < s.sum()
    np.testing.assert_allclose(found, (u[:, :8] * s[:8]) @ w[:8], atol=1e-11)
    inside = 1e-3 * v
    np.testing.assert_array_equal(ball.project_leading(inside, 8), inside)


@pytest.mark.slow
@pytest.mark.parametrize("a_set", SPECTRAL)
def test_the_derivative_of_a_low_rank_projection_projects_on_its_manifold(a_set):
    """Symmetric, idempotent, and 0 out of the ball."""
    rng, symmetric = np.random.default_rng(4), isinstance(a_set, bs.sets.Spectrahedron)
    v = low_rank(rng, 60, 60, 4, 1e-3, symmetric)
    D = lambda h: jax.jvp(lambda v: a_set.project_leading(v, 6), (v,), (h,))[1]
    a, b = (jnp.asarray(rng.normal(size=(60, 60))) for _ in range(2))
    if symmetric:
        a, b = a + a.T, b + b.T
    np.testing.assert_allclose(jnp.sum(D(a) * b), jnp.sum(a * D(b)), rtol=1e-9)
    np.testing.assert_allclose(D(D(a)), D(a), atol=1e-10)
    U, _, W = np.linalg.svd(np.asarray(a_set.project(v)))
    np.testing.assert_allclose(np.sum((U[:, :4] @ W[:4]) * np.asarray(D(a))), 0, atol=1e-10)


def test_large_spectral_sets_move_by_their_leading_part():
    ball = bs.sets.NuclearBall(4.0)
    small, large = (movable(flat_set(ball, jnp.zeros(shape))) for shape in ((300, 256), (300, 257)))
    assert small.of is ball and isinstance(large.of, LowRank) and large.of.count == 32
    assert large.of.of is ball and large.size == 300 * 257
    box = flat_set(bs.sets.Box(0.0, 1.0), jnp.zeros((300, 257)))
    assert movable(box) is box


# --- solving ----------------------------------------------------------------------------------------------------------


def fitting(x_set, like):
    """A saddle problem, strongly convex in x and linear in y: one saddle point."""
    rng = np.random.default_rng(5)
    n = sum(leaf.size for leaf in jax.tree.leaves(like))
    data = {"A": jnp.asarray(rng.normal(size=(4, 6, n))), "b": jnp.asarray(rng.normal(size=(4, 6)))}
    problem = bs.Problem(_losses, None, x_set, bs.sets.Simplex(), data)
    return problem, bs.Point(like, None, jnp.full(4, 0.25))


def _losses(x, theta, y, data):
    v = jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(x)])
    return y @ jnp.sum((data["A"] @ v - data["b"]) ** 2, axis=1) / 12 + 0.1 * v @ v


@pytest.fixture(scope="module")
def projected():
    x_set = bs.sets.Product({"a": L1, "b": bs.sets.Box(-0.2, 0.2)})
    problem, start = fitting(x_set, {"a": jnp.zeros(4), "b": jnp.zeros(3)})
    result = bs.solve(problem, start, tol=1e-8)
    assert result.status is bs.Status.CERTIFIED
    return result


@pytest.mark.parametrize("lam_set", ["project", "lmo", "both"])
def test_atoms_find_the_point_that_projections_find(projected, lam_set):
    box = bs.sets.Box(-0.2, 0.2)
    box = {"lmo": only_lmo(box, 1.0), "project": only_project(box, 1.0), "both": box}[lam_set]
    x_set = bs.sets.Product({"a": only_lmo(L1, 4.0), "b": box})
    problem, start = fitting(x_set, {"a": jnp.zeros(4), "b": jnp.zeros(3)})
    result = bs.solve(problem, start, tol=1e-7)
    assert result.status is bs.Status.CERTIFIED
    assert result.certificate.measure == ("mixed" if lam_set == "project" else "lmo")
    np.testing.assert_allclose(result.certificate.worst_value, projected.certificate.worst_value, atol=1e-6)
    np.testing.assert_allclose(result.x["a"], projected.x["a"], atol=1e-3)
    assert result.trace.lmos[-1] > 0
    assert float(jnp.sum(jnp.abs(result.x["a"]))) <= 2 + 1e-12


def test_the_mixed_measure_is_the_sum_of_its_parts(projected):
    """At a point that is not stationary: the residual of the box and the Frank-Wolfe gap of the l1 ball, by hand."""
    x_set = bs.sets.Product({"a": only_lmo(L1, 4.0), "b": only_project(bs.sets.Box(-0.2, 0.2), 1.0)})
    problem, start = fitting(x_set, {"a": jnp.zeros(4), "b": jnp.zeros(3)})
    found = bs.certify(problem, start, measure="mixed")
    G = {name: np.asarray(part) for name, part in found.x_gradient.items()}
    by_hand = 2 * np.max(np.abs(G["a"])) + np.linalg.norm(np.clip(-G["b"], -0.2, 0.2))
    np.testing.assert_allclose(found.x_gap, by_hand, rtol=1e-12)
    with pytest.raises(ValueError, match='measure="lmo" needs lmo on x_set.*use measure="mixed"'):
        bs.certify(problem, start, measure="lmo")


def test_adaptive_is_named_where_a_projection_is_missing():
    problem, start = fitting(only_lmo(L1, 4.0), jnp.zeros(7))
    assert "Adaptive" in able(problem)
    with pytest.raises(ValueError, match="FullyProjected needs project on x_set.*use Adaptive"):
        bs.methods.FullyProjected(bs.StepSizes(gamma=1.0, tau=1.0, sigma=1.0, mu=1.0)).init(problem, start)


@pytest.mark.slow
def test_a_large_nuclear_ball_is_solved_by_its_leading_part():
    """Rank 2 in 200 x 150, least squares with a lower level that is the identity: the answer is a projection."""
    rng = np.random.default_rng(6)
    goal = low_rank(rng, 200, 150, 3, 0.02)
    problem = bs.Problem(
        lambda x, theta, y, data: 0.5 * jnp.sum((theta - data) ** 2),
        lambda x, theta, data: 0.5 * jnp.sum((theta - x) ** 2),
        bs.sets.NuclearBall(4.0),
        None,
        goal,
        bs.Constants(mu_g=1.0),
    )
    result = bs.solve(problem, bs.Point(jnp.zeros((200, 150)), jnp.zeros((200, 150)), None), tol=1e-6, measure="lmo")
    assert result.status is bs.Status.CERTIFIED
    u, s, w = np.linalg.svd(goal, full_matrices=False)
    expected = (u * np.asarray(bs.sets.L1Ball(4.0).project(jnp.asarray(s)))) @ w
    np.testing.assert_allclose(result.x, expected, atol=1e-5)
