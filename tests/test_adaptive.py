"""Adaptive: certified answers with nothing tuned, its parts against independent formulas, and what it promises."""

from itertools import pairwise
from math import frexp

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import oracle, trees
from bisaddle.methods.adaptive.constants import FIRST_C_LOW, PAIRS, STEP_BITS, TAU_GROWTH, Y_FAR, Y_SHARE
from bisaddle.methods.adaptive.coordinates import Space, face_direction, outward, rounded, two_loops
from bisaddle.methods.adaptive.inner import Inner, Residuals, Solver
from bisaddle.methods.adaptive.parts import Aim, Descent, Gaps, Place
from bisaddle.oracle.kernels import Kernels, Upper
from bisaddle.sets.flat import flat_set
from tests.registry import PROBLEMS

LINEAR_QUADRATICS = [name for name in PROBLEMS if name.startswith("linear-quadratic")]


def solver_of(problem, start):
    """A solver that knows nothing yet, and recalls nothing."""
    solver = Solver(Kernels(problem, start))
    solver.recall = None
    return solver


def unsolved(kernels, start, mu_g=1.0):
    """Inner variables to begin with; f and its gradients are not used elsewhere."""
    x, theta, y = kernels.flat(start)
    return Inner(theta, y, np.zeros_like(theta), theta, Upper(0.0, x, theta, y), 0.0, mu_g)


def solved(problem, start, tol, **options):
    options = {"max_steps": 4000, "every": 10, "progress": False} | options
    return bs.solve(problem, start, bs.methods.Adaptive(tol), tol=tol, **options)


@pytest.mark.parametrize(
    "name", [*LINEAR_QUADRATICS, "generator", "generator, ball active", "logistic", "CB2", "QL", "CB2 lifted"]
)
def test_problems_are_certified_without_tuning(name):
    for seed in range(2):
        problem, start, answer = PROBLEMS[name](seed)
        result = solved(problem, start, 1e-8)
        assert result.status is bs.Status.CERTIFIED, f"{name}: {result.certificate}"
        if answer is not None:
            np.testing.assert_allclose(result.x, answer.x, atol=1e-5)


def multitask(seed=0, divergence=0.0):
    tasks = bs.apps.multitask.synthetic(rows=300, width=8, tasks=3, noise=0.1, seed=seed)
    return bs.apps.multitask.regression(tasks, radius=5.0, ridge=0.1, divergence=divergence)


@pytest.mark.parametrize("divergence", [0.0, 0.1])
def test_the_paper_s_experiments_are_certified_to_1e_8(divergence):
    problem, start = multitask(divergence=divergence)
    result = solved(problem, start, 1e-8)
    assert result.status is bs.Status.CERTIFIED
    check = bs.certify(problem, result.point)
    assert check.gap + check.error_bound <= 1e-8 and check.violation <= 1e-12


def test_y_is_solved_for_in_float32_however_large_f_y_is():
    """Far out in the ball f_y is 1e13, and its rounding more than any y could leave: x got stuck there, y = (1, 0)."""

    def mifflin1(x, y):
        return -x[0] + 20 * y[1] * (x @ x - 1)

    problem = bs.Problem(mifflin1, None, bs.sets.L2Ball(1e6), bs.sets.Simplex())
    start = bs.Point(x=np.array([0.8, 0.6], np.float32), y=np.full(2, 0.5, np.float32))
    result = bs.solve(problem, start, tol=1e-4, progress=False)
    assert result.status is bs.Status.CERTIFIED
    np.testing.assert_allclose(result.x, [1.0, 0.0], atol=1e-3)


@pytest.mark.parametrize("name", ["multitask", "logistic", "CB2 lifted", "QL", "generator, ball active"])
def test_float32_is_certified_to_1e_4_and_stays_float32(name):
    """Float64 agrees with the gap."""
    problem, start = multitask() if name == "multitask" else PROBLEMS[name](0)[:2]
    single = jax.tree.map(lambda a: jnp.asarray(a).astype(jnp.float32), (problem, start))
    result = solved(*single, 1e-4)
    assert {leaf.dtype for leaf in jax.tree.leaves(result.point)} == {jnp.dtype(jnp.float32)}
    assert result.status is bs.Status.CERTIFIED
    found = result.point
    double = bs.Point(*jax.tree.map(lambda a: jnp.asarray(a, jnp.float64), (found.x, found.theta, found.y)))
    assert float(bs.certify(problem, double).gap) <= 1e-4


def test_a_step_of_one_s_own_is_refused_and_solve_is_named():
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](0)
    method = bs.methods.Adaptive()
    with pytest.raises(ValueError, match="Adaptive is driven from the host.*use bs.solve.*FullyProjected"):
        method.init(problem, start)
    state = bs.methods.FullyProjected(bs.StepSizes(0.5, 0.5, 0.5, 0.5, 0.5, 0.0)).init(problem, start)
    for step in (method.step, jax.jit(method.step), jax.vmap(method.step, (None, 0))):
        with pytest.raises(ValueError, match="use bs.solve"):
            step(problem, jax.tree.map(lambda leaf: leaf[None], state))


def test_the_value_is_that_of_the_regularised_maximum_and_gx_its_gradient():
    """Against central differences of max_y f - mu/2 |y - y0|^2, with both inner problems solved to rounding."""
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](1)

    def at(x):
        solver = solver_of(problem, start)
        warm = unsolved(solver.kernels, start)
        found = solver.evaluate(x, warm, False, warm.y, mu=0.7, residuals=Residuals(1e-13, 1e-13, 1e-14))
        return found.value, found.Gx

    x = np.asarray(start.x)
    direction = np.random.default_rng(0).normal(size=x.shape)
    h = 1e-5
    slope = (at(x + h * direction)[0] - at(x - h * direction)[0]) / (2 * h)
    np.testing.assert_allclose(slope, at(x)[1] @ direction, rtol=1e-7)


def test_an_inexact_lower_solution_spoils_the_value_only_to_second_order():
    problem, start, _ = PROBLEMS["linear-quadratic, nu > 0"](2)

    def at(accuracy):
        solver = solver_of(problem, start)
        warm = unsolved(solver.kernels, start)
        return solver.evaluate(
            np.asarray(start.x), warm, False, warm.y, mu=1.0, residuals=Residuals(accuracy, accuracy, 0.1 * accuracy)
        )

    exact, rough = at(1e-13), at(1e-3)
    off = np.linalg.norm(rough.inner.theta - exact.inner.theta)
    assert off > 0
    assert abs(rough.value - exact.value) <= 100 * (off**2 + 1e-12)


def test_conjugate_gradients_and_newton_against_dense_solves():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(9, 9))
    H, b = A @ A.T + np.eye(9), rng.normal(size=9)
    lower = lambda x, theta, data: 0.5 * theta @ data @ theta
    plain = bs.Problem(lambda x, theta, y, data: jnp.sum(theta), lower, bs.sets.Box(0.0, 1.0), None, jnp.asarray(H))
    kernels = Kernels(plain, bs.Point(jnp.zeros(1), jnp.zeros(9), None))
    found = kernels.solve(np.zeros(1), np.zeros(9), b, 1e-12)
    np.testing.assert_allclose(found.w, np.linalg.solve(H, b), atol=1e-10)
    np.testing.assert_allclose(b - H @ found.w, found.r, atol=1e-10)
    assert found.products <= 20 and found.least >= np.linalg.eigvalsh(H)[0] * (1 - 1e-9)
    problem, start, _ = PROBLEMS["logistic"](0)
    solver = solver_of(problem, start)
    x, theta, _ = solver.kernels.flat(start)
    theta, g, products, least, _ = solver.solve_lower(x, theta, 1e-11)
    there = oracle.lower_gradient(problem, start.x, jnp.asarray(theta))
    assert float(trees.norm(there)) <= 1e-11
    np.testing.assert_allclose(g, there, atol=1e-15)
    assert solver.cost.gradients >= 1 and solver.cost.hvps == products >= 1
    assert least >= 0.1  # mu_g


def test_the_two_loops_are_the_bfgs_formula():
    """B built densely from the same pairs, oldest first, from the scale of the newest."""
    rng = np.random.default_rng(4)
    n = 6
    A = rng.normal(size=(n, n))
    H = A @ A.T + np.eye(n)
    s = rng.normal(size=(3, n))
    q = s @ H
    curvature = np.sum(s * q, axis=1)
    v = rng.normal(size=n)
    B = curvature[0] / (q[0] @ q[0]) * np.eye(n)
    for i in (2, 1, 0):
        rho = 1 / curvature[i]
        left = np.eye(n) - rho * np.outer(s[i], q[i])
        B = left @ B @ left.T + rho * np.outer(s[i], s[i])
    np.testing.assert_allclose(two_loops(v, s, q, curvature), B @ v, rtol=1e-10)


def test_the_face_step_stays_in_the_set_and_is_the_projected_step_without_pairs():
    x, G = np.array([0.0, 0.5, 1.0]), np.array([1.0, -0.2, -3.0])
    box = flat_set(bs.sets.Box(0.0, 1.0), x)
    d0, d = face_direction(box, x, G, 0.5, [])
    np.testing.assert_array_equal(d, d0)
    np.testing.assert_allclose(d0, np.clip(x - 0.5 * G, 0, 1) - x)
    _, d = face_direction(box, x, G, 0.5, [(np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.8, 0.3]))])
    np.testing.assert_allclose(d, [0.0, 0.2 * 0.2 / 0.8, 0.0], atol=1e-15)  # only the middle coordinate is free


@pytest.mark.parametrize("slope", [-2.0, -0.005])  # along the normal; by little of it the last sign does turn
def test_a_long_step_in_a_flat_face_takes_the_normal_along(slope):
    """A Newton step, with a Hessian of 0.05, that would leave the face of positive entries of an l1 ball."""
    x, along, tau = np.array([0.5, 0.3, 0.2]), np.array([-0.1, 0.0, 0.1]), 0.5
    ball, s = flat_set(bs.sets.L1Ball(1.0), x), np.array([0.1, 0.0, -0.1])
    d0, d = face_direction(ball, x, slope + along, tau, [(s, 0.05 * s)])
    np.testing.assert_allclose(d0, -tau * along, atol=1e-15)
    newton = x - along / 0.05
    longer = 1 / (0.05 * tau)  # than the projected gradient step
    np.testing.assert_allclose(x + d, ball.project(newton - longer * tau * slope), atol=1e-14)
    in_face = flat_set(bs.sets.Simplex(), x).project(newton)
    assert np.allclose(x + d, in_face, atol=1e-14) == (slope == -2.0)
    # the nearest point of the ball is in another face, and not as low
    nearest = ball.project(newton)
    assert nearest[2] < -0.1 and (slope + along) @ nearest > (slope + along) @ (x + d) + 1e-3


def test_only_flat_faces_take_the_normal_along():
    v, d0 = np.array([0.9, 0.5, -2.0, 0.3]), np.array([0.1, 0.3, -0.2, 0.0])
    sets = [(bs.sets.Simplex(), True), (bs.sets.Box(0.0, 1.0), True), (bs.sets.KLBall([0.25] * 4, 0.1), False)]
    for a_set, flat in sets:
        in_face = flat_set(a_set, v).face(v).along(d0[None])[0]
        assert outward(10 * in_face, in_face, d0) == (pytest.approx(10.0) if flat else 0.0)
        assert outward(0.1 * in_face, in_face, d0) == (1.0 if flat else 0.0)


def test_pairs_without_curvature_in_the_face_are_left_out():
    x, G = np.array([0.0, 0.5, 1.0]), np.array([1.0, -0.2, -3.0])
    box = flat_set(bs.sets.Box(0.0, 1.0), x)
    useful = np.array([0.1, 0.2, 0.3]), np.array([0.1, 0.8, 0.3])
    useless = np.array([0.3, 0.2, 0.3]), np.array([9.0, -0.1, 9.0])  # <s, q> > 0, but not in the middle
    d0, d = face_direction(box, x, G, 0.5, [useless, useful])
    np.testing.assert_allclose(d, [0.0, 0.2 * 0.2 / 0.8, 0.0], atol=1e-15)
    np.testing.assert_array_equal(face_direction(box, x, G, 0.5, [useless])[1], d0)


@pytest.mark.parametrize("units", [1.0, 0.3, 1e-7])
def test_a_step_is_rounded_to_few_bits_in_its_units(units):
    v = np.random.default_rng(5).normal(size=200) * 10.0 ** np.arange(-100, 100)
    v[:3] = 0.0, 1.0, -0.375
    for given, found in zip(v, rounded(units * v, units) / units, strict=True):
        mantissa, exponent = frexp(given)
        nearest = round(mantissa * 2**STEP_BITS) * 2.0 ** (exponent - STEP_BITS)
        np.testing.assert_allclose(found, nearest, rtol=1e-15)
    assert rounded(np.float32(v[3:9]), units).tolist() == np.float32(v[3:9]).tolist()


def test_digits_at_rounding_change_no_quasi_newton_step():
    """Two blocks, whose units are no powers of two; the border is met exactly."""
    x = np.array([0.1, 0.5, 1.0, 200.0])
    given = bs.sets.Product({"a": bs.sets.Box(0.0, 1.0), "b": bs.sets.Box(0.0, 1e3)})
    space = Space(flat_set(given, {"a": x[:3], "b": x[3:]}), x)
    np.testing.assert_allclose(space.units, [3**0.5] * 3 + [1e3])
    s, G = np.array([0.1, 0.2, 0.3, 3.0]), np.array([1.0, -0.2, -3.0, 7.0])
    q = np.array([0.1, 0.9, 0.3, 0.7])
    d0, d = face_direction(space, x, G, 0.5, [(s, q)], space.units)
    _, exact = face_direction(space, x, G, 0.5, [(s, q)])
    np.testing.assert_allclose(d, exact, rtol=2.0**-STEP_BITS)
    assert np.any(d != exact) and d[0] == d0[0] == -0.1 and d[2] == 0.0
    for digits in (1e-14, -1e-14):
        _, other = face_direction(space, x, G * (1 + digits), 0.5, [(s, q * (1 - digits))], space.units)
        np.testing.assert_array_equal(other, d)


def test_only_the_newest_pairs_are_kept():
    """Every step has curvature here: a new pair is the first, and the oldest is gone."""
    descent = Descent(tau=1.0)
    places = [Place(z, z, None, 0.0, z, z) for z in np.arange(PAIRS + 4.0)[:, None] ** 2]
    for before, after in pairwise(places):
        descent.accept(before, after, after.z - before.z, 1.0, quasi_newton=False)
    lengths = [2.0 * i + 1 for i in reversed(range(3, PAIRS + 3))]
    assert [float(s[0]) for s, _ in descent.pairs] == lengths == [float(q[0]) for _, q in descent.pairs]


def test_a_step_without_curvature_drops_the_pairs_and_tau_grows_by_its_length():
    descent, slope = Descent(tau=2.0), np.array([1.0, 0.0])
    descent.pairs.append((slope, slope))
    here, there = (Place(z, z, None, 0.0, slope, slope) for z in (np.zeros(2), np.array([-0.1, 0.0])))
    descent.accept(here, there, there.z, 0.25, quasi_newton=True)
    assert not descent.pairs and descent.tau == TAU_GROWTH * 0.25 * 2.0


def test_y_is_solved_for_however_much_x_promises():
    problem, start, _ = PROBLEMS["CB2"](0)
    solver, mu = solver_of(problem, start), 3.0
    for asked in (1e-9, 1e9):
        least_of_both = min(asked, Y_FAR * mu * 2**0.5)  # the simplex is as wide as two of its vertices are apart
        np.testing.assert_allclose(solver._y_target(asked, np.ones(3), mu), least_of_both, rtol=1e-12)


def test_y_moves_the_gradient_by_a_tenth_of_what_x_has_to_gain():
    """f = |x|^2 / 2 + <y, A x>: f_mu has the Hessian H = I + A'A / mu, in which a gradient G promises <G, H^-1 G>.

    A y that is off by v moves G by A'v; without a lower level nothing else does.
    """
    rng, mu = np.random.default_rng(0), 0.1
    A, G = rng.normal(size=(4, 6)), rng.normal(size=6)
    inverse = np.linalg.inv(np.eye(6) + A.T @ A / mu)
    gain, nothing = float(G @ inverse @ G), np.zeros(0)
    aim = Aim(target=0.0)
    aim.follow(Gaps(1.0, 1.0, 1.0, decrease=gain, lag=0.0), mu)
    inner = lambda theta: Inner(theta, np.zeros(4), theta, theta, Upper(0.0, G, theta, np.zeros(4)), 0.0, 1.0)
    left = aim.residuals(inner(nothing)).y
    # the direction in which it moves G most, in the norm that counts
    v = np.linalg.eigh(A @ inverse @ A.T)[1][:, -1] * left / mu
    share = (A.T @ v) @ inverse @ (A.T @ v) / gain
    assert 0.8 * FIRST_C_LOW**2 < share <= FIRST_C_LOW**2
    np.testing.assert_allclose(aim.residuals(inner(np.ones(2))).y, Y_SHARE * left)


def test_one_step_of_y_is_exact_where_f_is_linear_in_it():
    problem, start, _ = PROBLEMS["CB2"](0)
    solver, x, mu = solver_of(problem, start), np.asarray(start.x), 0.3
    warm = unsolved(solver.kernels, start)
    upper = solver.kernels.upper(x, warm.theta, warm.y)
    y, found, L_y = solver.ascend(x, warm.theta, warm, upper, warm.y, mu, 1e-12)
    wanted = flat_set(bs.sets.Simplex(), warm.y).project(warm.y + upper.f_y / mu)
    assert L_y == 0 and solver.cost.gradients == solver.cost.projections == 1 and np.linalg.norm(y - warm.y) > 0.1
    np.testing.assert_allclose(y, wanted, atol=1e-14)
    np.testing.assert_allclose(found.value, y @ upper.f_y, rtol=1e-12)
    near, same, _ = solver.ascend(x, warm.theta, warm._replace(y=y), found, warm.y, mu, 1e-12)
    assert near is y and same is found and solver.cost.gradients == 1


def test_bad_tolerances_are_named():
    with pytest.raises(ValueError, match="tol must be finite and > 0, given -1"):
        bs.methods.Adaptive(-1)
