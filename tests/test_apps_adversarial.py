"""Adversarial learning: both forms, both attacks, both models, against closed forms and brute force."""

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize

import bisaddle as bs
from bisaddle.apps import adversarial
from tests.app_checks import (
    assert_both_methods_improve,
    assert_certified,
    assert_constants_hold,
    assert_derivatives_agree,
    assert_one_program,
)

N = 10
SCALES = np.array([1.0, 0.0, 0.5])


def rows(seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(N, 3))
    b = np.where(A @ [1.0, 0.5, 0.0] + 0.5 * rng.normal(size=N) > 0, 1.0, -1.0)
    b[0], b[1] = 1.0, -1.0
    return A, b


A, B = rows()
FORMS = {
    "ball": {"weights": ("chi2", 0.5)},
    "lagrangian": {"weights": ("chi2", 0.5), "form": "lagrangian"},
    "linearised": {"weights": ("kl", 0.2), "attack": "linearised"},
    "network": {"weights": ("chi2", 0.5), "model": "network", "hidden": 2, "scales": SCALES},
    "network, loss": {"weights": ("cvar", 0.5), "model": "network", "hidden": 2, "radius": 1.2, "attack": "loss"},
}


@pytest.mark.parametrize("name", FORMS)
def test_constants_hold_and_derivatives_agree(name):
    problem, start = adversarial.bilevel(A, B, **FORMS[name])
    used = assert_constants_hold(problem, start, spread=1.0)
    assert used["L_g"] > 0.2
    if name in ("lagrangian", "network"):  # all automatic, so that two tell enough
        assert_derivatives_agree(problem, start)


@pytest.mark.parametrize("model", ["linear", "network"])
def test_derivatives_of_a_score_are_within_their_bounds(model, record):
    """Each bound by itself, at weights as long as they may be: in a constant a large one hides the others."""
    R, moved, steepest = 1.5, 0.4, float(np.max(SCALES))
    made = adversarial._model(model, A, np.asarray(SCALES), R, 2, 0)
    bounds = adversarial._score(made, A, steepest * moved, steepest, R)
    at, unflatten = jax.flatten_util.ravel_pytree(jax.tree.map(jnp.asarray, made.start))
    score = lambda x, t, i: made.kind.score(unflatten(x), (A[i] + SCALES * t)[None])[0]
    x_, t_ = (lambda f: jax.jacfwd(f, 0)), (lambda f: jax.jacfwd(f, 1))
    names = {"xx": x_(x_(score)), "xt": x_(t_(score)), "tt": t_(t_(score)), "xxt": t_(x_(x_(score)))}
    names |= {"x": x_(score), "t": t_(score), "xtt": t_(t_(x_(score))), "ttt": t_(t_(t_(score)))}
    rng, share = np.random.default_rng(0), dict.fromkeys(names, 0.0)
    for i in range(N):
        x = {name: rng.normal(size=np.shape(leaf)) for name, leaf in made.start.items()}
        x |= {name: R * x[name] / np.linalg.norm(x[name]) for name in {"hidden", "weights"} & set(x)}
        x, t = jax.flatten_util.ravel_pytree(x)[0], rng.normal(size=3)
        for name, derivative in names.items():
            found = np.asarray(derivative(x, moved * t / np.linalg.norm(t), i))
            # of a tensor: along a unit vector, here the leading one of its unfolding, it is no longer than its norm
            while found.ndim > 2:
                found = np.tensordot(np.linalg.svd(found.reshape(len(found), -1))[0][:, 0], found, 1)
            bound = float(np.broadcast_to(getattr(bounds, name), N)[i])
            assert np.linalg.norm(found, 2) <= bound * (1 + 1e-12), name
            share[name] = max(share[name], np.linalg.norm(found, 2) / bound if bound else 0.0)
    for name in names:
        record(f"derivatives of a {model} score by their bound, {name}", share[name])


@pytest.mark.parametrize(
    "name", [*(name for name in FORMS if name != "network"), pytest.param("network", marks=pytest.mark.slow)]
)
def test_solved_to_a_certificate(name):
    result = assert_certified(*adversarial.bilevel(A, B, **FORMS[name]))
    assert float(jnp.max(jnp.abs(result.theta))) > 1e-3  # there is an attack


@pytest.mark.parametrize("name", ["ball", "lagrangian", "network"])
def test_the_papers_methods_lower_the_worst_loss(name):
    problem, start = adversarial.bilevel(A, B, **FORMS[name])
    assert_both_methods_improve(problem, start, count=400, gamma=0.02, sigma=0.002)


def test_the_attack_on_a_linear_score_solves_one_equation_per_row():
    problem, start = adversarial.bilevel(A, B, weights="mean", scales=SCALES, strength=1.5)
    w, c = np.array([1.2, -0.7, 0.4]), 0.3
    point = bs.Point(x={"weights": w, "bias": np.array(c)}, theta=start.theta, y=start.y)
    found, s_w = bs.certify(problem, point).theta, SCALES * w
    for i in range(N):  # theta_i = -b_i t s w,  1.5 t = sigmoid(-m_i + t |s w|^2)
        slack = lambda t, m=B[i] * (A[i] @ w + c): 1.5 * t - 1 / (1 + np.exp(m - t * s_w @ s_w))
        np.testing.assert_allclose(found[i], -B[i] * brentq(slack, 0, 1, xtol=1e-14) * s_w, atol=1e-8)


def test_the_linearised_attack_is_a_step_along_the_gradient():
    problem, start = adversarial.bilevel(A, B, weights="mean", model="network", hidden=2, scales=SCALES, strength=0.7)
    x = {name: np.asarray(value) for name, value in start.x.items()}

    def loss(a, b):
        return np.logaddexp(0, -b * (np.tanh(x["hidden"] @ a + x["shifts"]) @ x["weights"] + x["bias"]))

    found = bs.certify(problem, start).theta
    for a, b, theta in zip(A, B, found, strict=True):
        slope = [(loss(a + h, b) - loss(a - h, b)) / 2e-5 for h in 1e-5 * np.eye(3)]
        np.testing.assert_allclose(theta, SCALES * slope / 0.7, atol=1e-7)


@pytest.mark.parametrize("options", [{}, pytest.param({"model": "network", "hidden": 2}, marks=pytest.mark.slow)])
def test_the_two_forms_are_one_problem(options):
    make = lambda form: adversarial.bilevel(A, B, weights=("chi2", 0.5), form=form, **options)
    ball, relaxed = (assert_certified(*make(form), tol=1e-5) for form in ("ball", "lagrangian"))
    np.testing.assert_allclose(ball.certificate.worst_value, relaxed.certificate.worst_value, atol=1e-6)
    np.testing.assert_allclose(ball.y, relaxed.y, atol=1e-3)
    divergence = N * np.sum((np.asarray(relaxed.y) - 1 / N) ** 2)
    np.testing.assert_allclose(divergence, 0.5, atol=1e-3)  # the constraint binds, and lam is inside its bounds
    assert 1e-3 < float(relaxed.x["lam"]) < 0.9 * float(make("lagrangian")[0].x_set.sets["lam"].upper)


def test_the_lagrangian_is_written_as_printed():
    problem, start = adversarial.bilevel(A, B, **FORMS["lagrangian"])
    rng = np.random.default_rng(1)
    w, p, theta = rng.normal(size=3), rng.dirichlet(np.ones(N)), rng.normal(size=(N, 3))
    x = {"weights": jnp.asarray(w), "bias": jnp.asarray(0.2), "lam": jnp.asarray(0.7)}
    losses = np.log1p(np.exp(-B * ((A + theta) @ w + 0.2)))
    wanted = p @ losses - 0.7 * (np.sum((p - 1 / N) ** 2 / (1 / N)) - 0.5)
    given = problem.upper(x, jnp.asarray(theta), jnp.asarray(p), problem.data)
    np.testing.assert_allclose(float(given), wanted, rtol=1e-12)
    assert start.x["lam"] <= problem.x_set.sets["lam"].upper


@pytest.mark.parametrize("options", [{"scales": SCALES}, {"model": "network", "hidden": 2, "reach": 0.3}])
def test_the_classical_form_is_a_saddle_problem_that_is_solved(options):
    problem, start = adversarial.saddle(A, B, **options)
    assert problem.lower is None
    assert_constants_hold(problem, start)
    result = assert_certified(problem, start)
    assert np.max(np.linalg.norm(result.y, axis=1)) <= options.get("reach", 0.5) + 1e-9
    assert_both_methods_improve(problem, start, count=400, gamma=0.02, sigma=0.5)


def test_an_attack_inside_the_ball_is_the_best_one_there():
    problem, start = adversarial.saddle(A, B, reach=0.4)
    result = assert_certified(problem, start, tol=1e-6)
    w, c = np.asarray(result.x["weights"]), float(result.x["bias"])
    for a, b, y in zip(A, B, result.y, strict=True):  # along -b w, by a line search
        unit = -b * w / np.linalg.norm(w)
        gain = lambda t, a=a, b=b, unit=unit: np.logaddexp(0, -b * ((a + t * unit) @ w + c)) - 0.5 * t**2
        best = max(np.linspace(0, 0.4, 4001), key=gain)
        np.testing.assert_allclose(y, best * unit, atol=2e-3)


def test_margins_are_those_after_the_worst_attack():
    linear = {"weights": np.array([1.0, -2.0, 0.5]), "bias": np.array(0.1)}
    score = lambda a: a @ linear["weights"] + 0.1
    for a, b, found in zip(A, B, adversarial.margins(linear, A, B, 0.6, SCALES), strict=True):
        inside = {"type": "ineq", "fun": lambda d: 0.36 - d @ d}
        best = minimize(lambda d, a=a, b=b: b * score(a + SCALES * d), np.full(3, 0.1), constraints=inside)
        np.testing.assert_allclose(found, best.fun, atol=1e-5)
    _, start = adversarial.bilevel(A, B, **FORMS["network"])
    clean, attacked = (adversarial.margins(start.x, A, B, reach) for reach in (0.0, 0.6))
    score = lambda a: float(adversarial.Network.score(start.x, jnp.asarray(a)))
    rng = np.random.default_rng(0)
    for i in range(3):
        np.testing.assert_allclose(clean[i], B[i] * score(A[i]), rtol=1e-12)
        tries = rng.normal(size=(2000, 3))
        tries *= 0.6 / np.linalg.norm(tries, axis=1, keepdims=True)
        assert (
            attacked[i] <= min(B[i] * np.asarray(adversarial.Network.score(start.x, jnp.asarray(A[i] + tries)))) + 1e-3
        )


def test_another_instance_of_the_same_shapes_compiles_nothing():
    other = rows(1)
    for options in (FORMS["lagrangian"], FORMS["network"]):
        assert_one_program(adversarial.bilevel(A, B, **options)[0], adversarial.bilevel(*other, **options)[0])


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((A, np.ones(N)), {}, "labels has one class only, 1"),
        ((A, B[:4]), {}, r"features \(n, d\) and labels \(n,\) are needed, given \(10, 3\) and \(4,\)"),
        ((np.where(A == A[0, 0], np.nan, A), B), {}, "must be finite, given NaN or infinity; drop such rows"),
        ((A, ["a"] * N), {}, "adversarial: labels must be an array of numbers"),
        ((A, 3 * B), {}, "must hold 0 and 1"),
        ((A[:0], B[:0]), {}, "are needed, given"),
        (
            (A, B),
            {"strength": 0.5},
            r"strength must be > 1, .*strongly convex problem, given 0.5; use a smaller radius",
        ),
        ((A, B), {"form": "lagrangian", "weights": ("kl", 1.0)}, "Lipschitz gradient.*given .'kl', 1.0.; use form"),
        ((A, B), {"form": "dual"}, 'form must be "ball" or "lagrangian"'),
        ((A, B), {"attack": "fgsm"}, 'attack must be "auto", "loss" or "linearised"'),
        ((A, B), {"model": "tree"}, 'model must be "linear" or "network"'),
        ((A, B), {"model": "network", "hidden": 0}, "hidden must be a whole number >= 1"),
        ((A, B), {"scales": np.ones(2)}, r"scales must be 3 finite numbers >= 0.*given shape \(2,\)"),
        ((A, B), {"scales": np.zeros(3)}, "not all 0"),
        ((A, B), {"radius": -1.0}, "radius must be finite and > 0"),
    ],
)
def test_bad_input_is_named(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        adversarial.bilevel(*arguments, **options)
    with pytest.raises(ValueError, match="strength must be >= 1, .*concave problem"):
        adversarial.saddle(A, B, strength=0.9)


def test_a_constant_feature_is_no_trouble():
    assert_certified(*adversarial.bilevel(np.c_[A[:, :2], np.ones(N)], B, **FORMS["ball"]))
