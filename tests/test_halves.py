"""f in two programs: against one program, and against values of f alone."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import programs
from bisaddle.methods.adaptive.method import Search
from bisaddle.oracle.kernels import Kernels

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import adaptive_networks  # noqa: E402


def losses(x, theta, data):
    return jnp.mean((jnp.tanh(data["rows"] @ x["W"]) @ theta - data["targets"]) ** 2, axis=0)


def upper(x, theta, y, data):
    """Linear in y, with a term without y, and one that is no loss."""
    return y @ losses(x, theta, data) + 0.1 * jnp.sum(x["W"] ** 2) + jnp.sum(y) * jnp.sin(theta[0, 0])


def squared(x, theta, y, data):
    return upper(x, theta, y, data) - jnp.sum(y**2)


def plain(x, theta, y, data):
    return y @ jnp.mean((data["rows"] @ x["W"] @ theta - data["targets"]) ** 2, axis=0)


def lower(x, theta, data):
    return jnp.sum(losses(x, theta, data)) + 0.5 * jnp.sum(theta**2)


def network(f=upper, y_set=True, **more):
    rng = np.random.default_rng(0)
    data = {"rows": rng.normal(size=(30, 4)), "targets": rng.normal(size=(30, 3))}
    start = bs.Point({"W": rng.normal(size=(4, 5))}, rng.normal(size=(5, 3)), np.full(3, 1 / 3) if y_set else None)
    g = plain_lower if f is plain else lower
    return bs.Problem(f, g, bs.sets.L2Ball(9.0), bs.sets.Simplex() if y_set else None, data, **more), start


def plain_lower(x, theta, data):
    return jnp.sum((data["rows"] @ x["W"] @ theta) ** 2) + 0.5 * jnp.sum(theta**2)


def test_both_halves_give_what_values_of_f_give():
    problem, start = network()
    kernels = Kernels(problem, start)
    assert kernels.halves is not None
    x, theta, y = kernels.flat(start)
    rng, rows, targets = np.random.default_rng(1), problem.data["rows"], problem.data["targets"]

    def f(x, theta, y):
        W, heads = x.reshape(4, 5), theta.reshape(5, 3)
        each = np.mean((np.tanh(rows @ W) @ heads - targets) ** 2, axis=0)
        return y @ each + 0.1 * np.sum(W**2) + np.sum(y) * np.sin(heads[0, 0])

    slopes = kernels.slopes(x, theta)
    for place in (y, rng.dirichlet(np.ones(3)), rng.normal(size=3)):
        found = kernels.upper_by(slopes, place)
        np.testing.assert_allclose(found.value, f(x, theta, place), rtol=1e-14)
        h, at = 1e-6, (x, theta, place)
        for i, given in enumerate((found.f_x, found.f_theta, found.f_y)):
            moved = lambda e, i=i, at=at: f(*(part + e if j == i else part for j, part in enumerate(at)))
            slope = [(moved(e) - moved(-e)) / (2 * h) for e in h * np.eye(at[i].size)]
            np.testing.assert_allclose(given, slope, atol=1e-8)
    np.testing.assert_array_equal(slopes.f_y, found.f_y)


@pytest.mark.parametrize("kind", ["sinusoid", "deep", "patches"])
def test_the_halves_of_a_network_are_the_whole(kind):
    problem, start, _ = adaptive_networks.make(kind, 0)
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    theta = np.random.default_rng(0).normal(size=theta.size)
    packed = np.concatenate([x, theta, y])
    whole, halves = kernels._upper(packed), kernels.packed_upper(packed)
    np.testing.assert_allclose(halves, whole, rtol=1e-13, atol=1e-14)
    # data are arguments of both programs, and nothing of them is kept in between
    kept = kernels.slopes(x, theta).kept
    assert not any(np.array_equal(one, leaf) for one in kept for leaf in jax.tree.leaves(problem.data))


def by_hand(x, theta, y, data):
    return losses(x, theta, data) + jnp.sin(theta[0, 0])


@pytest.mark.parametrize(
    "problem, start",
    [network(squared), network(plain), network(y_set=False), network(derivatives=bs.Derivatives(f_y=by_hand))],
    ids=["not linear in y", "no network", "no y", "by hand"],
)
def test_what_is_not_in_halves(problem, start):
    kernels = Kernels(problem, start)
    assert kernels.halves is None
    if kernels.y_set is not None:
        assert kernels.slopes(*kernels.flat(start)[:2]) is None


def test_an_evaluation_is_one_gradient_of_f_and_takes_the_same_steps(monkeypatch):
    problem, start, _ = adaptive_networks.make("sinusoid", 0)

    def walked(count=12):
        programs.clear()
        kernels = Kernels(problem, start)
        x, theta, y = kernels.flat(start)
        for look in Search(kernels, x).from_start(x, theta, y, problem.constants.mu_g, 1e-3):
            if look.k >= count:
                return look

    with_halves = walked()
    monkeypatch.setattr(Kernels, "halves", None)
    in_one = walked()
    np.testing.assert_allclose(with_halves.x, in_one.x, rtol=1e-9, atol=1e-12)
    assert with_halves.counts.gradients < in_one.counts.gradients - 8
