"""Every inequality of the analysis along real runs, with exact constants: docs/theory.md, as corrected there."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bisaddle as bs
from bisaddle import theory
from tests import theory_family as family

CLASSES = {"opf": "OneSidedProjectionFree", "fp": "FullyProjected"}
ROUNDING = 1e-9


def filtered(ratio, inputs):
    """out_k = sum_{i<=k} ratio^(k-i) inputs_i"""
    out, total = [], 0.0
    for value in inputs:
        total = ratio * total + value
        out.append(total)
    return np.array(out)


def delayed(inputs):
    return np.concatenate([[0.0], inputs[:-1]])


def sides(method, known, steps, seen):
    """name -> (left, right) of each lemma, arrays over k for the pointwise ones."""
    smooth, t = theory.smoothness(known), theory.tracking(known, bs.StepSizes(**steps))
    c = {name: float(value) for name, value in known.items()}
    gamma, sigma, mu = steps["gamma"], steps["sigma"], steps["mu"]
    A, K = seen["A"], len(seen["A"])
    k = np.arange(K)
    start = theory.Start(seen["theta"][0], seen["w_old"][0], seen["y"][0], seen["value"][0] - seen["last_value"])
    s = theory.sums(known, bs.StepSizes(**steps), start)

    theta = t.beta**k * start.theta_error + gamma * smooth.L_theta * t.beta * delayed(filtered(t.beta, A))
    drift_w = t.rho * filtered(t.rho, delayed(gamma * smooth.C_v1 * A + smooth.C_v2 * seen["y_step"]))
    start_w = t.rho ** (k + 1) * start.w_error + t.C_tilde * (k + 1) * t.rho**k * start.theta_error
    lag = gamma * smooth.L_theta * t.beta * delayed(filtered(t.beta, A))
    w = start_w + drift_w + t.C_tilde * filtered(t.rho, lag)
    y_input = t.y_drift * gamma * A + sigma * c["L_ytheta"] * theta
    y = t.rho_D**k * start.y_error + filtered(t.rho_D, delayed(y_input))
    y_step = (1 + t.rho_D) * y + sigma * c["L_ytheta"] * theta
    Gx_error = t.C_tilde_2 * theta + c["C_thetax"] * w
    theta_step = (1 + t.beta) * t.beta**k * start.theta_error + gamma * steps["alpha"] * c["C_thetax"] * filtered(
        t.beta, A
    )
    squares = np.sum(A**2)
    y_constant = 2 * t.rho / (1 - t.rho) * s.Gamma_1
    Gx_constant = s.Gamma_4 + c["C_thetax"] * smooth.C_v2 * y_constant
    Gx_slope = c["C_thetax"] * smooth.C_v2 * s.Gamma_3 + s.Gamma_5
    history = t.rho * delayed(filtered(t.rho, seen["y_step"]))
    found = {
        "4.1 theta": (seen["theta"], theta),
        "4.2 w": (seen["w"], w),
        "4.5 y, one step": (
            seen["y_after"][:-1],
            t.rho_D * seen["y"][:-1] + y_input[:-1],
        ),
        "4.6 y": (seen["y"], y),
        "4.6 sum": (np.sum(A * seen["y"]), s.Gamma_1 + s.Gamma_2 * squares),
        "4.7 step of y": (seen["y_step"], y_step),
        "4.7 sum": (np.sum(A * history), y_constant + s.Gamma_3 * squares),
        "4.8 Gx": (seen["Gx_error"], Gx_error),
        "4.8 sum": (np.sum(A * seen["Gx_error"]), Gx_constant + Gx_slope * squares),
        "4.9 Gy": (seen["Gy_error"], c["L_ytheta"] * theta + mu * c["D_Y"]),
        "5.4 step of theta": (seen["theta_step"], theta_step),
        "5.4 errors": (np.sum(seen["Gx_error"]), s.Gamma_6 + gamma * s.B_4 * np.sum(A)),
        "5.1 y": (
            np.mean(seen["y_gap"]),
            2 * start.y_error / (sigma * (1 - t.rho_D) * K)
            + gamma * s.B_3 * c["D_X"]
            + (1 + 2 / (1 - t.rho_D)) * c["L_ytheta"] * start.theta_error / ((1 - t.beta) * K)
            + mu * c["D_Y"],
        ),
    }
    # the proofs reach the start through f_mu(x_0) - f_mu(x_K) <= drop + mu D_Y^2 / 2: the left one is the sharper test
    if method == "opf":
        right = start.drop / (gamma * K) + s.B_1 / K + gamma * s.B_2 * c["D_X"] ** 2
        found["5.1 x"] = (np.mean(seen["lmo_gap"]), right)
    else:
        tau, M = steps["tau"], np.max(seen["M"])
        excess = max(0.0, 2 * smooth.L_L2 * s.Gamma_2 + t.L_fmu * gamma - 1 / tau)
        right = 2 * start.drop / (tau * gamma * K) + 2 * smooth.L_L2 * s.Gamma_1 / (tau * K)
        right += 4 * M * s.Gamma_6 / K + 4 * tau * gamma * M**2 * s.B_4 + excess * tau * M**2
        found["5.4 x"] = (np.mean(seen["x_gap"] ** 2), right)
    return found


def check(method, kind, seeds, count, record):
    rng = np.random.default_rng(7)
    problems = [family.draw(seed, kind) for seed in seeds]
    known = [family.constants(*problem) for problem in problems]
    steps = [family.random_steps(rng, c, method) for c in known]
    seen = family.runs(CLASSES[method], problems, steps, count)
    for i, seed in enumerate(seeds):
        one = {name: value[i] for name, value in seen.items()}
        for name, (left, right) in sides(method, known[i], steps[i], one).items():
            ratio = np.max(np.where(np.asarray(right) > ROUNDING, left, 0) / np.maximum(right, ROUNDING))
            slack = np.max(np.asarray(left) - np.asarray(right) * (1 + ROUNDING))
            record(f"left / right of {name}", ratio)
            assert slack <= ROUNDING, f"Lemma {name} fails on seed {seed}, {kind}, {method}: left / right = {ratio}"


@pytest.mark.parametrize("kind", family.KINDS)
@pytest.mark.parametrize("method", CLASSES)
def test_lemmas_and_theorems_along_runs(method, kind, record):
    check(method, kind, range(6), 60, record)


@pytest.mark.slow
@pytest.mark.parametrize("kind", family.KINDS)
@pytest.mark.parametrize("method", CLASSES)
def test_lemmas_and_theorems_along_long_runs_of_thirty_problems(method, kind, record):
    check(method, kind, range(100, 130), 3000, record)


@jax.jit
def _pairs(data, half, mu, y0, x, y):
    """theta*, v, grad_x L, grad_y L, y*_mu and its gradient of f_mu at many (x, y)."""
    both = jax.vmap(lambda x, y: family.exact(data, x, y))(x, y)
    best = jax.vmap(lambda x: family.best_y(data, x, mu, y0))(x)
    slope = jax.vmap(lambda x, y: family.exact(data, x, y)[2])(x, best)
    return (*both, best, slope)


@pytest.mark.parametrize("kind", family.KINDS)
def test_the_implicit_functions_are_as_smooth_as_the_lemmas_say(kind, record):
    rng = np.random.default_rng(3)
    for seed in range(30):
        data, start, half = family.draw(seed, kind)
        known = family.constants(data, start, half)
        mu = 10.0 ** rng.uniform(-2, 0.5)
        sigma = 2 / (float(known.L_yy) + 2 * mu)
        limit = 2 / float(known.mu_g + known.L_g)
        smooth = theory.smoothness(known)
        t = theory.tracking(known, bs.StepSizes(alpha=limit, eta=limit, gamma=0.1, sigma=sigma, mu=mu))
        # half of the pairs far apart, half close: the quotients must hold for both
        x, y = half * rng.uniform(-1, 1, (2, 200, family.N)), rng.uniform(-1, 1, (2, 200, family.Q))
        x[1, 100:] = np.clip(x[0, 100:] + 1e-4 * rng.normal(size=(100, family.N)), -half, half)
        y[1, 100:] = np.clip(y[0, 100:] + 1e-4 * rng.normal(size=(100, family.Q)), -1, 1)
        y0 = jnp.asarray(start["y"])
        first, second = (_pairs(_traced(data), half, mu, y0, jnp.asarray(x[i]), jnp.asarray(y[i])) for i in (0, 1))
        change = [np.linalg.norm(a - b, axis=1) for a, b in zip(first, second, strict=True)]
        dx, dy = np.linalg.norm(x[0] - x[1], axis=1), np.linalg.norm(y[0] - y[1], axis=1)
        for name, left, right in (
            ("2.2 (I) theta*", change[0], smooth.L_theta * dx),
            ("2.1 v", change[1], smooth.C_v1 * dx + smooth.C_v2 * dy),
            ("2.2 (II) grad_x L", change[2], smooth.L_L1 * dx + smooth.L_L2 * dy),
            ("2.2 (III) grad_y L", change[3], smooth.L_ymu * dx + float(known.L_yy) * dy),
            ("4.3 y*_mu", change[4], t.y_drift * dx),
            ("4.4 grad f_mu", change[5], t.L_fmu * dx),
        ):
            record(f"left / right of {name}", np.max(left / right))
            assert np.all(left <= right * (1 + ROUNDING) + 1e-12), (name, seed)


def _traced(data):
    return {name: jnp.asarray(value) for name, value in data.items()}


def test_the_closed_forms_of_the_family_are_those_of_the_package():
    data, start, half = family.draw(5, "concave")
    problem, point = family.problem_of(data, half), family.point_of(start)
    theta, v, grad_x, grad_y = family.exact(_traced(data), point.x, point.y)
    certificate = bs.certify(problem, point)
    np.testing.assert_allclose(theta, certificate.theta, rtol=1e-10)
    np.testing.assert_allclose(v, certificate.w, rtol=1e-10)
    np.testing.assert_allclose(grad_x, bs.hypergradient(problem, point.x, point.y, point.theta), rtol=1e-9)
    moved = jnp.clip(point.y + grad_y, -1, 1)
    np.testing.assert_allclose(jnp.linalg.norm(point.y - moved), certificate.y_gap, rtol=1e-10)


def test_bound_is_above_the_average_gap_of_the_run():
    for kind, method in (("linear", "opf"), ("concave", "fp"), ("strongly-concave", "fp")):
        data, start, half = family.draw(2, kind)
        known = family.constants(data, start, half)
        problem, point = family.problem_of(data, half, known), family.point_of(start)
        plan = theory.steps_for(problem, method, K=60)
        bound = theory.bound(problem, plan, 60, point)
        numbers = {name: float(value) for name, value in plan.steps.at(jnp.asarray(0)).items()}
        if numbers["mu"] == 0:
            assert kind == "strongly-concave"
        seen = family.runs(CLASSES[method], [(data, start, half)] * 6, [numbers] * 6, 60)  # compiled above already
        x_gap = np.mean(seen["lmo_gap"]) if method == "opf" else np.sqrt(np.mean(seen["x_gap"] ** 2))
        assert x_gap <= bound.x
        assert np.mean(seen["y_gap"]) <= bound.y
        assert bound.dominant in str(bound)
        np.testing.assert_allclose(bound.total, bound.x + bound.y)


def test_sums_without_max_player_or_lower_level_lose_their_terms():
    data, start, half = family.draw(1, "concave")
    known = dataclasses.replace(family.constants(data, start, half), D_X=None, D_Y=None)
    problem = family.problem_of(data, half, known)
    bilevel = bs.Problem(
        lambda x, theta, y, d: upper_without_y(x, theta, d), family.lower, problem.x_set, None, problem.data, known
    )
    point = bs.Point(x=start["x"], theta=start["theta"])
    plan = theory.steps_for(bilevel, "opf", K=100)
    assert plan.steps.mu is None and plan.steps.sigma is None
    bound = theory.bound(bilevel, plan, 100, point)
    assert bound.y == 0 and bound.y_terms == {} and np.isfinite(bound.x)


def upper_without_y(x, theta, d):
    return family.upper(x, theta, jnp.zeros(family.Q), d)


def responses(known, steps, start, A):
    """The recursions of the lemmas, equality for inequality: t, a, |y_{k+1} - y_k| in two ways, and the error of Gx."""
    smooth, t = theory.smoothness(known), theory.tracking(known, bs.StepSizes(**steps))
    c = {name: float(value) for name, value in known.items()}
    gamma, sigma, alpha = steps["gamma"], steps["sigma"], steps["alpha"]
    theta, y, w = start.theta_error, start.y_error, t.rho * start.w_error + t.C_tilde * start.theta_error
    theta_step = (1 + t.beta) * theta + alpha * c["C_thetax"] * gamma * A[0]
    y_step = (1 + t.rho_D) * y + sigma * c["L_ytheta"] * theta
    still, direct, rows = w, w, []
    for k in range(len(A)):
        through_y = (1 + t.rho_D) * y + sigma * c["L_ytheta"] * theta
        error = lambda w, theta=theta: t.C_tilde_2 * theta + c["C_thetax"] * w
        rows.append((theta, y, through_y, error(still), error(direct)))
        y = t.rho_D * y + t.y_drift * gamma * A[k] + sigma * c["L_ytheta"] * theta
        theta = t.beta * (theta + smooth.L_theta * gamma * A[k])
        still = t.rho * (still + smooth.C_v1 * gamma * A[k]) + t.C_tilde * theta
        direct = t.rho * (direct + smooth.C_v1 * gamma * A[k] + smooth.C_v2 * y_step) + t.C_tilde * theta
        y_step = t.rho_D * y_step + sigma * (c["L_yx"] * gamma * A[k] + c["L_ytheta"] * theta_step)
        theta_step = t.beta * theta_step + alpha * c["C_thetax"] * gamma * (A[k + 1] if k + 1 < len(A) else 0)
    return np.array(rows).T


def test_the_sums_are_those_of_the_recursions():
    """Gamma and B against the recursions run for long, from the start errors alone and from one step of x alone."""
    for seed, kind in enumerate(family.KINDS):
        data, start, half = family.draw(seed + 20, kind, kappa=3.0)
        known = family.constants(data, start, half)
        limit = 2 / float(known.mu_g + known.L_g)
        steps = {"alpha": limit, "eta": limit, "gamma": 0.3, "mu": 0.5, "sigma": 1.5 / (float(known.L_yy) + 1)}
        smooth, t = theory.smoothness(known), theory.tracking(known, bs.StepSizes(**steps))
        D_X, C_thetax, sigma = float(known.D_X), float(known.C_thetax), steps["sigma"]
        begin, nothing, K = theory.Start(2.0, 3.0, 0.7, 0.0), theory.Start(0.0, 0.0, 0.0, 0.0), 1000
        s = theory.sums(known, bs.StepSizes(**steps), begin)
        close = lambda found, expected: np.testing.assert_allclose(found, expected, rtol=1e-9)
        theta, y, y_step, still, direct = (row.sum() for row in responses(known, steps, begin, np.zeros(K)))
        close(s.Gamma_1, D_X * y)
        close(s.Gamma_4, D_X * still)
        close(s.Gamma_6, direct)
        assert y_step <= 2 * s.Gamma_1 / D_X
        theta_i, y_i, y_step_i, still_i, direct_i = (
            row.sum() for row in responses(known, steps, nothing, np.r_[1.0, np.zeros(K)])
        )
        close(s.Gamma_2, y_i)
        close(s.Gamma_5, still_i)
        close(s.B_4 * steps["gamma"], direct_i)
        close(s.B_3 * steps["gamma"], y_step_i / sigma + float(known.L_ytheta) * theta_i)
        assert y_step_i * t.rho / (1 - t.rho) <= s.Gamma_3
        y_constant = 2 * s.Gamma_1 * t.rho / (1 - t.rho)
        close(s.B_1, smooth.L_L2 * D_X * y + D_X * still + C_thetax * smooth.C_v2 * y_constant)
        slope = smooth.L_L2 * y_i + C_thetax * smooth.C_v2 * s.Gamma_3 + still_i
        close(s.B_2, smooth.L_L1 + smooth.L_L2 * t.y_drift + slope / steps["gamma"])
        # the theorem's bound of the y gap at the start: 2 >= 1 + rho_D, and the factor of theta exactly
        theta_part = responses(known, steps, theory.Start(2.0, 0.0, 0.0, 0.0), np.zeros(K)).sum(axis=1)
        factor = (1 + 2 / (1 - t.rho_D)) * float(known.L_ytheta) * 2.0 / (1 - t.beta)
        close(factor, theta_part[2] / sigma + float(known.L_ytheta) * theta_part[0])
