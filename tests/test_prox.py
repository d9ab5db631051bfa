"""Penalties in place of a y-set: each prox against solvers nobody here wrote."""

import warnings

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import wrightomega

from bisaddle import sets
from bisaddle.sets import divergences, prox
from bisaddle.sets.roots import wright_omega

N = 6
GROUPS = np.array([0, 1, 0, 2, 1, 2])
LOW, HIGH = -np.linspace(0.2, 1.2, N), np.linspace(0.1, 1.6, N)
CENTER = np.linspace(-1, 1, N)


def _groups(u):
    return sum(cp.norm2(u[np.flatnonzero(GROUPS == g)]) for g in range(3))


# name: (penalty, h in CVXPY's words, its domain in CVXPY's words)
PENALTIES = {
    "Entropy": (sets.Entropy(0.4, 1.5), lambda u: -0.4 * cp.sum(cp.entr(u)), lambda u: [cp.sum(u) == 1.5]),
    "SquaredL2": (
        sets.SquaredL2(0.7, sets.Simplex(), CENTER),
        lambda u: 0.35 * cp.sum_squares(u - CENTER),
        lambda u: [u >= 0, cp.sum(u) == 1],
    ),
    "L1Penalty on a box": (
        sets.L1Penalty(0.6, sets.Box(LOW, HIGH)),
        lambda u: 0.6 * cp.norm1(u),
        lambda u: [u >= LOW, u <= HIGH],
    ),
    "L1Penalty on a box without 0": (
        sets.L1Penalty(0.6, sets.Box(0.3, 1.0)),
        lambda u: 0.6 * cp.norm1(u),
        lambda u: [u >= 0.3, u <= 1],
    ),
    "L1Penalty on LinfBall": (
        sets.L1Penalty(0.6, sets.LinfBall(0.8)),
        lambda u: 0.6 * cp.norm1(u),
        lambda u: [cp.norm_inf(u) <= 0.8],
    ),
    "L1Penalty on L2Ball": (
        sets.L1Penalty(0.6, sets.L2Ball(1.1)),
        lambda u: 0.6 * cp.norm1(u),
        lambda u: [cp.norm2(u) <= 1.1],
    ),
    "GroupL1": (
        sets.GroupL1(0.5, GROUPS, sets.L2Ball(1.3)),
        lambda u: 0.5 * _groups(u),
        lambda u: [cp.norm2(u) <= 1.3],
    ),
    "ElasticNet": (
        sets.ElasticNet(0.3, 0.8, sets.Box(LOW, HIGH)),
        lambda u: 0.3 * cp.norm1(u) + 0.4 * cp.sum_squares(u),
        lambda u: [u >= LOW, u <= HIGH],
    ),
    "ElasticNet on L2Ball": (
        sets.ElasticNet(0.3, 0.8, sets.L2Ball(0.9)),
        lambda u: 0.3 * cp.norm1(u) + 0.4 * cp.sum_squares(u),
        lambda u: [cp.norm2(u) <= 0.9],
    ),
    "Prox": (
        sets.Prox(
            lambda v: 0.35 * jnp.sum(v**2),
            lambda v, step: jnp.clip(v / (1 + 0.7 * step), LOW, HIGH),
            sets.Box(LOW, HIGH),
            maximiser=lambda g: jnp.clip(g / 0.7, LOW, HIGH),
        ),
        lambda u: 0.35 * cp.sum_squares(u),
        lambda u: [u >= LOW, u <= HIGH],
    ),
    "Indicator": (sets.Indicator(sets.L1Ball(1.2)), lambda u: 0, lambda u: [cp.norm1(u) <= 1.2]),
}
each = pytest.mark.parametrize("name", PENALTIES)


def _points(count, scale=2.0):
    return scale * np.random.default_rng(1).normal(size=(count, N))


def compiled(penalty, oracle):
    """The oracle of the penalty as one program of NumPy arrays; called as it is, every operation would be one."""
    run = jax.jit(getattr(penalty, oracle))
    return lambda *arguments: jax.tree.map(np.asarray, run(*arguments))


def _solve(objective, constraints):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # CVXPY's own remarks on its compilation, and on the last digits
        cp.Problem(objective, constraints).solve(
            solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11
        )


@each
def test_the_prox_is_that_of_clarabel(name):
    penalty, h, domain = PENALTIES[name]
    step = 0.9
    ours = jax.jit(jax.vmap(lambda v: penalty.prox(v, step)))(_points(15))
    h_of, project = compiled(penalty, "penalty"), compiled(penalty, "project")
    u = cp.Variable(N)
    for v, mine in zip(_points(15), np.asarray(ours), strict=True):
        _solve(cp.Minimize(step * h(u) + 0.5 * cp.sum_squares(u - v)), domain(u))
        np.testing.assert_allclose(mine, u.value, atol=2e-5)
        # Clarabel's answer on cones is good to about 1e-6; its value, which ours may not exceed, to far more
        value = lambda w, v=v: step * float(h_of(w)) + 0.5 * np.sum((w - v) ** 2)
        assert value(mine) <= value(project(u.value)) + 1e-10


@each
def test_the_prox_meets_its_optimality_condition_and_is_firmly_nonexpansive(name):
    penalty, _, _ = PENALTIES[name]
    step = 0.9
    points = _points(200)

    @jax.jit
    def asked(keys):
        prox = jax.vmap(lambda v: penalty.prox(v, step))(points)
        inside = jax.vmap(lambda k: penalty.sample(k, (N,)))(keys)
        h = jax.vmap(penalty.penalty)
        return prox, inside, h(prox), h(inside), jax.vmap(penalty.violation)(prox)

    prox, inside, at_prox, at_inside, violations = map(np.asarray, asked(jax.random.split(jax.random.key(0), 200)))
    # step h(u) + <u - p, p - v> >= step h(p) for u in the domain
    surplus = step * (at_inside - at_prox) + np.sum((inside - prox) * (prox - points), axis=1)
    assert np.min(surplus) >= -1e-12
    moved, apart = prox - np.roll(prox, 1, 0), points - np.roll(points, 1, 0)
    assert np.max(np.sum(moved * moved, 1) - np.sum(moved * apart, 1)) <= 1e-12
    assert np.max(violations) <= 1e-12


@each
def test_the_best_response_is_the_maximum_of_the_linear_function_less_h(name):
    penalty, h, domain = PENALTIES[name]
    y = np.asarray(jax.jit(lambda key: penalty.sample(key, (N,)))(jax.random.key(2)))
    respond, violation = compiled(penalty, "best_response"), compiled(penalty, "violation")
    h_of_y = float(compiled(penalty, "penalty")(y))
    u = cp.Variable(N)
    for g in _points(8, 1.5):
        bound, s = respond(y, g)
        problem = cp.Problem(cp.Maximize(g @ u - h(u)), domain(u))
        _solve(problem.objective, problem.constraints)
        expected = problem.objective.value - (float(g @ y) - h_of_y)
        np.testing.assert_allclose(bound, expected, atol=1e-6)
        assert float(violation(s)) <= 1e-12


@each
def test_the_prox_is_safe_at_every_scale_and_step(name):
    penalty, _, _ = PENALTIES[name]
    steps = np.array([1e-12, 1.0, 1e12])
    points = np.concatenate([_points(20, scale) for scale in (1e-8, 1e8, 1e16)])
    each_step = jax.vmap(lambda v, step: penalty.prox(v, step), in_axes=(None, 0))

    @jax.jit
    def asked(points, steps):
        answers = jax.vmap(each_step, in_axes=(0, None))(points, steps).reshape(-1, N)
        return answers, jax.vmap(penalty.violation)(answers)

    answers, violations = asked(points, steps)
    assert np.all(np.isfinite(answers))
    assert np.max(violations) <= 1e-12


@each
def test_not_a_number_dtype_and_derivatives(name):
    penalty, _, _ = PENALTIES[name]
    prox = compiled(penalty, "prox")
    assert np.any(np.isnan(prox(np.array([np.nan, *np.ones(N - 1)]), 0.5)))
    single = jax.ShapeDtypeStruct((N,), jnp.float32)
    assert jax.eval_shape(lambda v: penalty.prox(v, 0.5), single).dtype == jnp.float32
    assert jax.eval_shape(penalty.penalty, single).dtype == jnp.float32
    v, u, weights = _points(3)
    value = jax.jit(lambda v, step: weights @ penalty.prox(v, step))
    slope, in_step = jax.jit(jax.grad(value, argnums=(0, 1)))(v, 0.8)
    h = 1e-6
    off = dict(rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(np.asarray(slope) @ u, (value(v + h * u, 0.8) - value(v - h * u, 0.8)) / (2 * h), **off)
    np.testing.assert_allclose(in_step, (value(v, 0.8 + h) - value(v, 0.8 - h)) / (2 * h), **off)


def test_the_entropy_prox_to_rounding_over_sizes_and_weights(record):
    rng = np.random.default_rng(0)
    run = jax.jit(lambda a, v: sets.Entropy(a).prox(v, 1.0))
    for n in (1, 2, 5, 50, 1000):
        for a in (1e-9, 1e-3, 0.1, 1.0, 1e3, 1e9):
            v = rng.normal(size=n)
            p = np.asarray(run(a, v))
            positive = p > 1e-290
            level = a * np.log(p[positive]) + p[positive] - v[positive]  # one number, off by rounding
            record("entropy prox: spread of its optimality condition", np.ptp(level) / (1 + a))
            assert np.ptp(level) <= 1e-12 * (1 + a) and abs(p.sum() - 1) <= 1e-14
    z = np.concatenate([np.linspace(-50, 50, 5001), 10.0 ** np.linspace(-8, 18, 200)])
    for guess in (prox._omega_guess, divergences._omega_guess):
        found = jax.jit(lambda z, guess=guess: wright_omega(z, guess))(z)
        np.testing.assert_allclose(found, wrightomega(z), rtol=2e-14)


def test_entropy_takes_an_axis():
    rows = sets.Entropy(0.4, 1.5, axis=-1)
    one = sets.Entropy(0.4, 1.5)
    v = _points(3)
    prox, penalty, respond = (compiled(one, oracle) for oracle in ("prox", "penalty", "best_response"))
    np.testing.assert_allclose(compiled(rows, "prox")(v, 0.5), np.stack([prox(r, 0.5) for r in v]), atol=1e-14)
    y = np.asarray(jax.jit(lambda key: rows.sample(key, (3, N)))(jax.random.key(0)))
    np.testing.assert_allclose(compiled(rows, "penalty")(y), sum(penalty(r) for r in y), rtol=1e-13)
    expected = sum(respond(r, g)[0] for r, g in zip(y, v, strict=True))
    np.testing.assert_allclose(compiled(rows, "best_response")(y, v)[0], expected, rtol=1e-12)


def test_wrapped_penalties_are_penalties_of_the_wrapped_set():
    v, step = jnp.asarray(_points(1)[0]), 0.7
    inner = sets.SquaredL2(0.6, sets.L2Ball(1.0), CENTER)
    offset = np.linspace(0, 1, N)
    moved = sets.SquaredL2(0.6, sets.Translated(sets.L2Ball(1.0), offset), CENTER + offset)
    at = lambda penalty: compiled(penalty, "prox")(v, step)
    np.testing.assert_allclose(at(sets.Translated(inner, offset)), at(moved), atol=1e-14)
    larger = sets.SquaredL2(0.6 / 4, sets.L2Ball(2.0), 2 * CENTER)
    np.testing.assert_allclose(at(sets.Scaled(inner, 2.0)), at(larger), atol=1e-14)
    np.testing.assert_allclose(sets.Scaled(inner, 2.0).penalty(v), larger.penalty(v), rtol=1e-13)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: sets.Entropy(0.0), "Entropy weight"),
        (lambda: sets.Entropy(1.0, -1.0), "Entropy radius"),
        (lambda: sets.SquaredL2(-1.0, sets.Simplex()), "SquaredL2 weight"),
        (lambda: sets.SquaredL2(1.0, sets.Image(np.eye(2), sets.Simplex())), "needs a projection"),
        (lambda: sets.SquaredL2(1.0, sets.Entropy(1.0)), "without a penalty"),
        (lambda: sets.L1Penalty(1.0, sets.Simplex()), "no closed form"),
        (lambda: sets.L1Penalty(1.0, sets.L2Ball(1.0, axis=0)), "without axis"),
        (lambda: sets.L1Penalty(-1.0, sets.Box(0.0, 1.0)), ">= 0"),
        (lambda: sets.ElasticNet(1.0, np.ones(2), sets.Box(0.0, 1.0)), "must be a number"),
        (lambda: sets.GroupL1(1.0, [0.5], sets.L2Ball(1.0)), "integers"),
        (lambda: sets.GroupL1(1.0, [0, 1], sets.Box(0.0, 1.0)), "L2Ball"),
        (lambda: sets.Prox(1.0, lambda v, t: v, sets.Simplex()), "must be a function"),
    ],
)
def test_bad_arguments_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_a_misfit_is_named():
    assert "groups" in sets.GroupL1(1.0, GROUPS, sets.L2Ball(1.0)).misfit(jnp.ones(3))
    assert "array" in sets.Entropy(1.0).misfit({"a": jnp.ones(3)})


@each
def test_prox_of_a_penalty_is_that_penalty(name):
    penalty, _, _ = PENALTIES[name]
    wrapped = sets.Prox(penalty)
    v = _points(1)[0]
    answers = []
    for each in (wrapped, penalty):
        y = compiled(each, "project")(v)
        answers.append((compiled(each, "prox")(v, 0.7), y, *compiled(each, "best_response")(y, v)))
    for mine, other in zip(*answers, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)
    for mine, other in zip(answers[0][:2], answers[1][:2], strict=True):
        np.testing.assert_array_equal(mine, other)
