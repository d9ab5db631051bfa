"""Networks in x: how they are known, how far their weights move in a step, and that nothing else is touched."""

import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle.methods.adaptive import constants as const
from bisaddle.methods.adaptive.inner import Solver
from bisaddle.methods.adaptive.method import Search
from bisaddle.methods.adaptive.parts import growth_share, reach_share
from bisaddle.oracle.depends import has_hidden_layer
from bisaddle.oracle.kernels import Kernels

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import adaptive_networks  # noqa: E402
import adaptive_steep  # noqa: E402

A, W, THETA = jnp.ones((5, 3)), jnp.ones((3, 4)), jnp.ones(4)


def scanned(W, theta):
    """Three layers by one loop."""
    return jnp.sum(jax.lax.scan(lambda u, _: (jnp.tanh(u @ W @ W.T), None), A, None, 3)[0]) + jnp.sum(theta)


def branched(W, theta):
    return jax.lax.cond(jnp.sum(theta) > 0, lambda: jnp.sum(jnp.cos(A @ W) @ theta), lambda: 0.0)


def looped(W, theta):
    return jnp.sum(jax.lax.fori_loop(0, 3, lambda i, u: jax.nn.relu(u @ W @ W.T), A)) + jnp.sum(theta)


def closed(W, theta):
    """Heads in closed form."""
    phi = jnp.tanh(A @ W)
    return jnp.sum(jnp.linalg.solve(phi.T @ phi + jnp.eye(4), phi.T @ A))


LAYERS = {
    "tanh, head in theta": lambda W, theta: jnp.sum(jnp.tanh(A @ W) @ theta),
    "relu": lambda W, theta: jnp.sum(jax.nn.relu(A @ W) @ theta),
    "softplus, head in x": lambda W, theta: jnp.sum(jax.nn.softplus(A @ W) @ W.T),
    "inside jit": jax.jit(lambda W, theta: jnp.sum(jax.nn.gelu(A @ W) @ theta)),
    "scan": scanned,
    "fori_loop": looped,
    "cond": branched,
    "closed heads": closed,
}
OTHERS = {
    "linear": lambda W, theta: jnp.sum(A @ W @ theta),
    "least squares": lambda W, theta: jnp.mean((A @ W @ theta - 1.0) ** 2),
    "logistic loss": lambda W, theta: jnp.mean(jax.nn.softplus(A @ W @ theta)) + jnp.sum(theta**2),
    "exponential of entries": lambda W, theta: jnp.sum(jnp.exp(W) @ theta),
    "softmax weights": lambda W, theta: jax.nn.softmax(W, axis=0)[0] @ theta**2,
    "a layer in theta alone": lambda W, theta: jnp.sum(jnp.tanh(W[0] * theta)) + jnp.sum(W),
    "a loss in a loop": lambda W, theta: jax.lax.fori_loop(0, 3, lambda i, u: u + jnp.sum((A @ W) ** 2), 0.0),
}


@pytest.mark.parametrize("name", [*LAYERS, *OTHERS])
def test_hidden_layers_are_known_by_their_program(name):
    assert has_hidden_layer((LAYERS | OTHERS)[name], W, THETA) == (name in LAYERS)


@pytest.mark.parametrize("kind", ["sinusoid", "deep", "patches"])
def test_the_networks_of_the_benchmark_are_networks(kind):
    problem, start, _ = adaptive_networks.make(kind, 0)
    assert Kernels(problem, start).has_hidden_layer


@pytest.mark.parametrize("step", [1e-9, 0.1, 7.0])
@pytest.mark.parametrize("x", [0.0, 1e-6, 2.0, 1e9])
@pytest.mark.parametrize("units", [1e-3, 1.0, 1e3])
def test_the_share_of_a_step(step, x, units):
    share = reach_share(units * step, units * x)
    np.testing.assert_allclose(share, min(1.0, const.LAYER_REACH * x / step) if x else 1.0, rtol=1e-12)


@pytest.mark.parametrize("end", [1e-9, 1.0, 1.005, 7.0])
@pytest.mark.parametrize("x", [0.0, 1e-6, 1.0, 1e9])
@pytest.mark.parametrize("units", [1e-3, 1.0, 1e3])
def test_the_share_that_is_left_of_weights_that_grew(end, x, units):
    share = growth_share(units * end, units * x)
    np.testing.assert_allclose(share, min(1.0, (1 + const.LAYER_GROWTH) * x / end) if x else 1.0, rtol=1e-12)


def upper(x, theta, y, data):
    features = jnp.tanh(data["valid"] @ x[0][0] + x[0][1])
    return y @ jnp.mean((jnp.einsum("tnh,th->tn", features, theta) - data["goals"]) ** 2, axis=1)


def lower(x, theta, data):
    features = jnp.tanh(data["train"] @ x[0][0] + x[0][1])
    away = jnp.einsum("tnh,th->tn", features, theta) - data["targets"]
    return jnp.sum(jnp.mean(away**2, axis=1)) / 2 + 0.05 * jnp.sum(theta**2)


def sines():
    """Three sines, one layer of four, in one ball over the tree of layers."""
    rng = np.random.default_rng(0)
    train, valid = rng.uniform(-2, 2, (2, 3, 12, 1))
    phase = np.array([[0.0], [0.7], [1.4]])
    goals = lambda points: np.sin(points[..., 0] + phase)
    data = {"train": train, "targets": goals(train), "valid": valid, "goals": goals(valid)}
    layers = [(rng.normal(size=(1, 4)), np.zeros(4))]
    problem = bs.Problem(upper, lower, bs.sets.L2Ball(10.0), bs.sets.Simplex(), data, bs.Constants(mu_g=0.1))
    return problem, bs.Point(layers, np.zeros((3, 4)), np.full(3, 1 / 3))


def walked(problem, start, steps):
    """The places along a run."""
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    search, places = Search(kernels, x), []
    for look in search.from_start(x, theta, y, problem.constants.mu_g, 1e-6):
        places.append(look.x)
        if look.k >= steps:
            return places
    raise AssertionError


def lengths(problem, start):
    """Of every step and of what it adds to |x|, both relative to |x|."""
    places = walked(problem, start, 60)
    pairs = [(a, b) for a, b in zip(places[:-1], places[1:], strict=True) if np.any(a != b)]
    size = np.array([np.linalg.norm(a) for a, _ in pairs])
    steps, ends = (
        np.array([np.linalg.norm(v) for v in vs]) for vs in ([b - a for a, b in pairs], [b for _, b in pairs])
    )
    return steps / size, ends / size - 1


def test_no_step_of_a_network_is_longer_than_its_reach_or_grows_too_much(monkeypatch):
    problem, start = sines()
    steps, growth = lengths(problem, start)
    np.testing.assert_allclose(max(steps), const.LAYER_REACH, rtol=1e-9)  # and some are as long
    np.testing.assert_allclose(max(growth), const.LAYER_GROWTH, rtol=1e-9)
    monkeypatch.setattr(const, "LAYER_GROWTH", np.inf)
    steps, growth = lengths(problem, start)
    np.testing.assert_allclose(max(steps), const.LAYER_REACH, rtol=1e-9)
    assert max(growth) > 0.02
    monkeypatch.setattr(const, "LAYER_REACH", np.inf)
    assert max(lengths(problem, start)[0]) > 0.1


AWAY = bs.sets.Product([(bs.sets.Box(1.0, 3.0), bs.sets.Box(1.0, 3.0))])


def searching(x_set=None):
    """A search at its start, in another set if one is given."""
    problem, start = sines()
    if x_set is not None:
        problem = eqx.tree_at(lambda p: p.x_set, problem, x_set)
    kernels = Kernels(problem, start)
    x, theta, y = kernels.flat(start)
    x = kernels.x_set.project(x)
    search = Search(kernels, x)
    next(search.from_start(x, theta, y, 0.1, 1e-6))
    return search, search.here.x


def test_a_step_that_grows_ends_at_the_nearest_weights_that_are_short_enough():
    """Against what tells a projection onto a ball: no point of the ball lies beyond it."""
    search, x = searching()
    rng = np.random.default_rng(1)
    for _ in range(20):
        d = -search.here.Gx + rng.uniform(0, 3) * x  # outwards, and down
        slope = float(search.here.Gx @ d)
        if slope >= 0:
            continue
        step, new = search._within_reach(d, slope)
        most = (1 + const.LAYER_GROWTH) * np.linalg.norm(x)
        short = const.LAYER_REACH * np.linalg.norm(x) / np.linalg.norm(d) * d
        others = rng.normal(size=(200, x.size))
        others *= most / np.linalg.norm(others, axis=1)[:, None]
        assert np.linalg.norm(x + step) <= most * (1 + 1e-12)
        assert np.all((others - x - step) @ (short - step) <= 1e-9 * most)
        np.testing.assert_allclose(new, search.here.Gx @ step, rtol=1e-12)


def test_a_step_is_shortened_as_a_whole_where_the_other_way_leads_up_or_nowhere():
    rest = const.LAYER_GROWTH / const.LAYER_REACH
    search, x = searching()
    across = np.ones_like(x) - x * (np.sum(x) / (x @ x))
    d = 0.03 * x + 0.03 * np.linalg.norm(x) / np.linalg.norm(across) * across  # down by its part along x alone
    search.here = search.here._replace(Gz=0.5 * across / np.linalg.norm(across) - x / np.linalg.norm(x))
    step, slope = search._within_reach(d, float(search.here.Gz @ d))
    assert slope < 0
    np.testing.assert_allclose(step, rest * d, rtol=1e-12)
    search, x = searching(AWAY)  # weights cannot be pulled back towards 0 there
    d = np.where(np.arange(x.size) == np.argmax(x), 0.04 * np.linalg.norm(x), 0.0)  # the others are at their limit
    search.here = search.here._replace(Gz=-d)
    step, _ = search._within_reach(d, -float(d @ d))
    np.testing.assert_allclose(step, rest * d, rtol=1e-12)


def test_steps_of_anything_else_are_not_limited(monkeypatch):
    problem, start, _ = adaptive_steep.make("exponential", 0)
    places = walked(problem, start, 30)
    monkeypatch.setattr(const, "LAYER_REACH", 1e-6)
    monkeypatch.setattr(const, "LAYER_GROWTH", 1e-7)
    np.testing.assert_array_equal(places, walked(problem, start, 30))


def test_solves_of_a_network_begin_where_the_last_ones_ended():
    problem, start = sines()
    solver = Solver(Kernels(problem, start))
    assert solver.recall is None and solver.slopes is None
    problem, start, _ = adaptive_steep.make("exponential", 0)
    assert Solver(Kernels(problem, start)).recall is not None


def test_a_small_network_is_certified():
    problem, start = sines()
    result = bs.solve(problem, start, tol=1e-3, max_steps=2000)
    assert result.status is bs.Status.CERTIFIED
    assert result.certificate.worst_value < 0.02


@pytest.mark.slow
def test_the_digits_are_certified():
    problem, start, check = adaptive_networks.make("digits", 0)
    result = bs.solve(problem, start, tol=1e-3, max_steps=5000)
    assert result.status is bs.Status.CERTIFIED
    assert check(result.point) <= 1e-3
    assert result.certificate.worst_value < 0.04
