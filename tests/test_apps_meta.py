"""Shared representations with ridge and logistic heads, adaptation to new tasks, and the sinusoids."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import bisaddle as bs
from bisaddle.apps import layers, meta
from tests.app_checks import (
    assert_both_methods_improve,
    assert_certified,
    assert_constants_hold,
    assert_derivatives_agree,
    assert_one_program,
)

OPTIONS = {"hidden": (2,), "ridge": 0.1, "divergence": 0.05}


def made(head, seed=0):
    tasks = meta.sinusoids(3, 6, seed, queries=8)
    tasks[1] = (tasks[1][0][:4], tasks[1][1][:4], *tasks[1][2:])  # tasks of different sizes
    if head == "logistic":
        tasks = [(A, (b > np.median(b)) * 1.0, query, (c > 0) * 1.0) for A, b, query, c in tasks]
    return tasks


def loss(head, z, b):
    return np.mean((z - b) ** 2) / 2 if head == "ridge" else np.mean(np.log1p(np.exp(-np.where(b > 0, z, -z))))


def network(x, rows):
    """The features and a 1, written out."""
    for layer in x:
        W, shifts = np.asarray(layer["weights"]), np.asarray(layer["shifts"])
        rows = np.array([[np.tanh(w @ row + c) for w, c in zip(W, shifts, strict=True)] for row in rows])
    return np.c_[rows, np.ones(len(rows))]


@pytest.mark.parametrize("head", ["ridge", "logistic"])
def test_values_are_those_of_the_formula(head):
    tasks, rng = made(head), np.random.default_rng(0)
    problem, start = meta.learn(tasks, head, hidden=(3, 2), ridge=0.1, divergence=0.2)
    theta, y = rng.normal(size=(3, 3)), rng.dirichlet(np.ones(3))
    upper = sum(y[i] * loss(head, network(start.x, A) @ theta[i], b) for i, (_, _, A, b) in enumerate(tasks))
    upper -= 0.2 / 3 * np.sum((3 * y - 1) ** 2) / 2
    lower = sum(loss(head, network(start.x, A) @ v, b) for (A, b, _, _), v in zip(tasks, theta, strict=True))
    lower += 0.05 * np.sum(theta**2)
    theta, y = jnp.asarray(theta), jnp.asarray(y)
    np.testing.assert_allclose(float(problem.upper(start.x, theta, y, problem.data)), upper, rtol=1e-12)
    np.testing.assert_allclose(float(problem.lower(start.x, theta, problem.data)), lower, rtol=1e-12)


@pytest.mark.parametrize("head", ["ridge", "logistic"])
def test_constants_hold_and_derivatives_agree(head):
    problem, start = meta.learn(made(head), head, **OPTIONS)
    used = assert_constants_hold(problem, start)
    assert used["L_g"] > 0.1
    if head == "logistic":  # the loss is all that differs
        assert_derivatives_agree(problem, start)


def test_derivatives_of_the_features_are_bounded():
    rng, radius = np.random.default_rng(0), 2.0
    start, X = layers.make(3, (3, 2), radius, 0)
    row = np.array([1.0, -2.0, 0.5])
    J, S = (float(bound[0]) for bound in layers.derivatives(start, radius, np.array([np.linalg.norm(row)])))
    flat, unravel = jax.flatten_util.ravel_pytree(start)
    features = jax.jit(lambda v: layers.features(unravel(v), jnp.asarray(row)[None])[0])
    slopes, bends = jax.jit(jax.jacfwd(features)), jax.jit(jax.jacfwd(jax.jacfwd(features)))
    steepest, most = 0.0, 0.0
    for size in rng.choice([0.3, 1.0, 3.0], 40):
        at, _ = jax.flatten_util.ravel_pytree(X.project(unravel(size * rng.normal(size=flat.size))))
        steepest = max(steepest, np.linalg.norm(slopes(at), 2))
        for u in np.linalg.eigh(np.einsum("ijk,ilk->jl", bends(at), bends(at)))[1].T:
            most = max(most, np.linalg.norm(np.einsum("ijk,j,k->i", bends(at), u, u)))
    assert 0.3 * J < steepest <= J and 0.05 * S < most <= S


@pytest.mark.parametrize("head", ["ridge", "logistic"])
def test_solved_to_a_certificate_and_both_methods_run(head):
    problem, start = meta.learn(made(head), head, **OPTIONS)
    assert_certified(problem, start)
    assert_both_methods_improve(problem, start, gamma=0.02)


@pytest.mark.parametrize("head", ["ridge", "logistic"])
def test_a_task_seen_in_training_adapts_to_its_own_head(head):
    tasks = made(head)
    problem, start = meta.learn(tasks, head, **OPTIONS)
    theta = bs.certify(problem, start).theta
    for (A, b, query, _), wanted in zip(tasks, theta, strict=True):
        predictor = meta.adapt(start.x, (A, b), head=head, ridge=0.1)
        np.testing.assert_allclose(predictor.theta, wanted, atol=1e-7)
        z = network(start.x, query) @ predictor.theta
        np.testing.assert_allclose(predictor(query), z if head == "ridge" else 1 / (1 + np.exp(-z)), rtol=1e-9)


def test_adaptation_with_separable_labels_is_the_minimum():
    _, start = meta.learn(made("ridge"), **OPTIONS)
    A, b = np.linspace(-5, 5, 8)[:, None], np.repeat([-1.0, 1.0], 4)
    rows = network(start.x, A)
    objective = lambda v: loss("logistic", rows @ v, b) + 5e-6 * v @ v
    found = meta.adapt(start.x, (A, b), head="logistic", ridge=1e-5).theta
    assert objective(found) <= minimize(objective, np.zeros(3)).fun + 1e-9


def test_layers_are_the_same_on_the_host():
    _, start = meta.learn(made("ridge"), hidden=(3, 2))
    rows = np.random.default_rng(0).normal(size=(5, 1))
    np.testing.assert_allclose(layers.features(start.x, jnp.asarray(rows)), network(start.x, rows)[:, :-1], rtol=1e-12)
    np.testing.assert_allclose(layers.host_features(start.x, rows), network(start.x, rows)[:, :-1], rtol=1e-12)


def test_the_start_is_in_the_set_and_fixed_by_the_seed():
    for radius in (0.5, 10.0):
        (problem, one), (_, two), (_, other) = (meta.learn(made("ridge"), radius=radius, seed=s) for s in (1, 1, 2))
        assert float(problem.x_set.violation(one.x)) == 0
        jax.tree.map(np.testing.assert_array_equal, one.x, two.x)
        assert not np.array_equal(one.x[0]["weights"], other.x[0]["weights"])


def test_sinusoids_are_sinusoids():
    made = meta.sinusoids(4, 7, seed=3, queries=9)
    assert [tuple(map(len, task)) for task in made] == [(7, 7, 9, 9)] * 4
    for A, b, query, c in made:  # a sin(w t - p) solves b'' = -w^2 b: fitted by its two phases, for the best w
        t, v = np.r_[A, query][:, 0], np.r_[b, c]
        assert np.max(np.abs(t)) <= 5 and np.max(np.abs(v)) <= 5

        def misfit(w, t=t, v=v):
            waves = np.c_[np.sin(w * t), np.cos(w * t)]
            return np.linalg.norm(waves @ np.linalg.lstsq(waves, v, rcond=None)[0] - v)

        best = min(np.linspace(1, 3, 401), key=misfit)
        refined = minimize(
            lambda w: misfit(w[0]), [best], method="Nelder-Mead", options={"xatol": 1e-12, "fatol": 1e-12}
        )
        assert refined.fun <= 1e-6
    np.testing.assert_array_equal(made[2][1], meta.sinusoids(4, 7, seed=3, queries=9)[2][1])


def test_another_instance_of_the_same_shapes_compiles_nothing():
    for head in ("ridge", "logistic"):
        one, two = (meta.learn(made(head, s), head, hidden=(2,), ridge=0.1 * (s + 1), seed=s)[0] for s in (0, 1))
        assert_one_program(one, two)


def test_bad_input_is_named():
    A, b, query, c = made("logistic")[0]
    for arguments, options, message in (
        (([],), {}, "meta.learn needs at least one task"),
        (([(A, 0 * b, query, c)], "logistic"), {}, "task 0: b_train has one class only"),
        ((made("ridge"), "logistic"), {}, "task 0: b_train must hold 0 and 1"),
        ((made("ridge"), "tree"), {}, 'head must be "ridge" or "logistic", given \'tree\''),
        ((made("ridge"),), {"hidden": (4, 0)}, r"hidden must list the units of each layer.*given \(4, 0\)"),
        ((made("ridge"),), {"radius": 0.0}, "radius must be finite and > 0"),
        (([(A, b * np.nan, query, c)],), {}, "must be finite"),
    ):
        with pytest.raises(ValueError, match=message):
            meta.learn(*arguments, **options)
    _, start = meta.learn(made("ridge"), **OPTIONS)
    with pytest.raises(ValueError, match="A needs 1 columns as the tasks had, given 2"):
        meta.adapt(start.x, (np.ones((3, 2)), np.ones(3)))
    with pytest.raises(ValueError, match=r"A \(n, d\) and b \(n,\) are needed"):
        meta.adapt(start.x, (np.ones((3, 1)), np.ones(2)))
    with pytest.raises(ValueError, match="sinusoids: shots must be a whole number >= 1, given 0"):
        meta.sinusoids(3, 0)
        meta.sinusoids(3, 0)
    with pytest.raises(ValueError, match=r"rows must be \(n, 1\), as the tasks had them, given \(3, 2\)"):
        meta.adapt(start.x, (np.ones((3, 1)), np.ones(3)))(np.ones((3, 2)))
