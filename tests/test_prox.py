"""Penalties in place of a y-set: each prox against solvers nobody here wrote, and a saddle with a known answer."""

import warnings

import cvxpy as cp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp, wrightomega

import bisaddle as bs
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


# the saddle problem: max_y <c(x), y> - w sum y log y = w logsumexp(c(x) / w) ------------------------------------------

W = 0.3
A = np.random.default_rng(3).normal(size=(4, N))
B = np.random.default_rng(4).normal(size=N)
STEPS = dict(gamma=0.3, tau=0.2, sigma=0.5, mu=0.0)


def _upper(x, theta, y, data):
    return (x @ data["A"] + data["B"]) @ y + 0.5 * jnp.sum(x**2)


def _problem(y_set, x_set=None):
    data = {"A": jnp.asarray(A), "B": jnp.asarray(B)}
    return bs.Problem(_upper, None, x_set=x_set or sets.L2Ball(5.0), y_set=y_set, data=data)


START = bs.Point(jnp.ones(4), None, jnp.full(N, 1 / N))


def _worst(x):
    return W * logsumexp((np.asarray(x) @ A + B) / W) + 0.5 * np.sum(np.asarray(x) ** 2)


def _closed_form():
    """Newton's method on the smooth, strongly convex x -> w logsumexp(c(x) / w) + |x|^2 / 2."""
    x = np.zeros(4)
    for k in range(50):
        y = np.exp((x @ A + B) / W - logsumexp((x @ A + B) / W))
        hessian = A @ (np.diag(y) - np.outer(y, y)) @ A.T / W + np.eye(4)
        x = x - (0.5 if k < 20 else 1) * np.linalg.solve(hessian, A @ y + x)
    return x, y


def test_an_entropy_penalised_saddle_problem_is_solved_and_certified():
    method = bs.methods.FullyProjected(bs.StepSizes(**STEPS))
    result = bs.solve(_problem(sets.Entropy(W)), START, method, tol=1e-9, max_steps=20_000)
    assert result.status is bs.Status.CERTIFIED
    x, y = _closed_form()
    np.testing.assert_allclose(result.x, x, atol=1e-7)
    np.testing.assert_allclose(result.y, y, atol=1e-7)
    np.testing.assert_allclose(result.certificate.value, _worst(x), atol=1e-8)
    np.testing.assert_allclose(result.certificate.worst_value, _worst(result.x), atol=1e-12)


def test_the_certificate_of_a_penalised_problem_away_from_its_solution():
    certificate = bs.certify(_problem(sets.Entropy(W)), START, sigma=0.7)
    y = np.asarray(START.y)
    np.testing.assert_allclose(certificate.worst_value, _worst(START.x), rtol=1e-13)
    c = np.asarray(START.x) @ A + B
    np.testing.assert_allclose(certificate.value, c @ y + 2 - W * np.sum(y * np.log(y)), rtol=1e-13)
    moved = sets.Entropy(W).prox(START.y + 0.7 * jnp.asarray(c), 0.7)
    np.testing.assert_allclose(certificate.y_gap, np.linalg.norm(y - moved) / 0.7, rtol=1e-12)


def test_the_trajectory_is_that_of_a_numpy_loop():
    def prox(v, step):  # by bisection on the multiplier, elementwise with scipy's Wright omega function
        a = step * W
        low, high = v.max() - 2, v.max() + a * np.log(N) + 1
        for _ in range(200):
            t = 0.5 * (low + high)
            low, high = (t, high) if np.sum(a * wrightomega((v - t) / a - np.log(a))) > 1 else (low, t)
        p = a * wrightomega((v - t) / a - np.log(a))
        return p / p.sum()

    steps = {**STEPS, "mu": 0.05}
    method = bs.methods.FullyProjected(bs.StepSizes(**steps))
    seen = []
    bs.solve(
        _problem(sets.Entropy(W)),
        START,
        method,
        tol=None,
        max_steps=200,
        every=1,
        callback=lambda r: seen.append(r.point),
    )
    x, y = np.ones(4), np.full(N, 1 / N)
    y0 = y
    for point in seen:
        np.testing.assert_allclose(point.x, x, atol=1e-10)
        np.testing.assert_allclose(point.y, y, atol=1e-10)
        f_x, f_y = A @ y + x, x @ A + B
        s = x - steps["tau"] * f_x
        s = s * min(1, 5 / np.linalg.norm(s))
        x, y = (
            0.3 * s + 0.7 * x,
            prox(y + steps["sigma"] * (f_y - steps["mu"] * (y - y0)), steps["sigma"]),
        )
    assert len(seen) == 201


@pytest.mark.parametrize(
    "y_set",
    [
        sets.SquaredL2(0.5, sets.Simplex()),
        sets.ElasticNet(0.2, 0.5, sets.Box(0.0, 1.0)),
        sets.L1Penalty(0.2, sets.Box(-1.0, 1.0)),
        sets.Scaled(sets.Entropy(W), 2.0),
        sets.Prox(
            lambda v: 0.25 * jnp.sum(v**2), lambda v, t: sets.SquaredL2(0.5, sets.Simplex()).prox(v, t), sets.Simplex()
        ),
    ],
    ids=["SquaredL2", "ElasticNet", "L1Penalty", "Scaled Entropy", "Prox"],
)
def test_the_worst_value_is_a_maximum_with_a_valid_bound(y_set):
    x = np.array([0.3, -0.2, 0.5, 0.1])
    c = x @ A + B

    @jax.jit
    def looked_for(keys):
        samples = jax.vmap(lambda k: y_set.sample(k, (N,)))(keys)
        values = samples @ c - jax.vmap(y_set.penalty)(samples)
        # another way to the maximum: the proximal point method on the linear function less h
        y = jax.lax.fori_loop(0, 100, lambda _, y: y_set.prox(y + 20 * jnp.asarray(c), 20.0), samples[0])
        return samples[0], jnp.max(values), c @ y - y_set.penalty(y)

    y, best, there = map(np.asarray, looked_for(jax.random.split(jax.random.key(1), 2000)))
    certificate = bs.certify(_problem(y_set), bs.Point(x, None, y))
    best, there = float(best) + 0.5 * x @ x, float(there) + 0.5 * x @ x
    assert float(certificate.worst_value) + float(certificate.worst_value_error) >= max(best, there) - 1e-12
    assert float(certificate.worst_value_error) <= 1e-9
    np.testing.assert_allclose(certificate.worst_value, there, atol=1e-8)


def test_an_indicator_and_a_product_with_a_penalty_behave_as_their_parts():
    plain, indicator = (
        bs.solve(
            _problem(y), START, bs.methods.FullyProjected(bs.StepSizes(**STEPS)), tol=None, max_steps=300, every=50
        )
        for y in (sets.Simplex(), sets.Indicator(sets.Simplex()))
    )
    for column in plain.trace.to_dict():
        if column != "seconds":
            np.testing.assert_array_equal(getattr(plain.trace, column), getattr(indicator.trace, column))
    product = sets.Product({"a": sets.Entropy(W), "b": sets.Box(-1.0, 1.0)})
    v = {"a": jnp.asarray(_points(1)[0]), "b": jnp.asarray([3.0])}
    entropy = sets.Entropy(W)
    moved = compiled(product, "prox")(v, 0.5)
    np.testing.assert_allclose(moved["a"], compiled(entropy, "prox")(v["a"], 0.5))
    np.testing.assert_allclose(moved["b"], [1.0])
    np.testing.assert_allclose(compiled(product, "penalty")(moved), compiled(entropy, "penalty")(moved["a"]))
    bound, point = compiled(product, "best_response")(moved, v)
    np.testing.assert_allclose(bound, compiled(entropy, "best_response")(moved["a"], v["a"])[0], rtol=1e-12)
    np.testing.assert_allclose(point["b"], [1.0])


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
        (lambda: _problem(sets.Simplex(), x_set=sets.Entropy(1.0)), "add the penalty of x to upper"),
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
