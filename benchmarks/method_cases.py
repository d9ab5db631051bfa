"""Problems and step rules of benchmarks/methods.py: make(seed) -> (problem, start), rule(problem, nu) -> method."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import bisaddle as bs
from bisaddle.apps import multitask

K = 10_000  # steps of a run, and the horizon of the schedules that need one
ROWS = 16  # of a mini-batch


class Case(NamedTuple):
    kind: str
    words: str
    make: Callable
    sampled: bool = False


# --- bilevel saddle ---------------------------------------------------------------------------------------------------


def experiment_1(seed):
    tasks = multitask.synthetic(rows=1000, width=20, tasks=5, noise=0.1, seed=seed)
    return multitask.regression(tasks, radius=5.0, ridge=0.1)


def _task_losses(gram, cross, square, theta):
    return 0.5 * (jnp.einsum("ti,tij,tj->t", theta, gram, theta) - 2 * jnp.sum(cross * theta, axis=1) + square)


def _worst_task(x, theta, y, d):
    losses = _task_losses(*d["valid"], theta)
    return y @ losses - 0.5 * d["divergence"] * jnp.mean((len(y) * y - 1) ** 2)


def _around_x(x, theta, d):
    return jnp.sum(_task_losses(*d["train"], theta)) + 0.5 * d["ridge"] * jnp.sum((theta - x) ** 2)


def worst_task(seed, divergence=0.0, ridge=1.0):
    """Ridge regressions around a shared x, the worst of their validation losses."""
    tasks = multitask.synthetic(rows=1000, width=20, tasks=5, noise=0.5, seed=seed)
    gram = lambda A, b: (A.T @ A / len(A), A.T @ b / len(A), b @ b / len(A))
    stacked = lambda parts: tuple(jnp.asarray(np.stack(part)) for part in zip(*parts, strict=True))
    train, valid = stacked(gram(*t[:2]) for t in tasks), stacked(gram(*t[2:]) for t in tasks)
    data = {"train": train, "valid": valid, "ridge": jnp.asarray(ridge), "divergence": jnp.asarray(divergence)}
    curvatures = np.linalg.eigvalsh(np.asarray(train[0]))
    T, width = train[1].shape
    known = bs.Constants(mu_g=float(curvatures.min() + ridge), L_g=float(curvatures.max() + ridge), L_yy=divergence * T)
    problem = bs.Problem(_worst_task, _around_x, bs.sets.L2Ball(5.0), bs.sets.Simplex(), data, known)
    return problem, bs.Point(x=jnp.zeros(width), theta=jnp.zeros((T, width)), y=jnp.full(T, 1 / T))


def _bilevel_saddle_upper(x, theta, y, d):
    convex = 0.5 * x @ d["Q"] @ x + 0.5 * theta @ d["S"] @ theta + d["c"] @ x
    return convex + x @ d["M"] @ y + theta @ d["P"] @ y + d["b"] @ y - 0.5 * y @ d["N"] @ y


def _linear_quadratic_lower(x, theta, d):
    return 0.5 * theta @ d["A"] @ theta - theta @ (d["B"] @ x + d["e"])


def _quadratic_data(seed, n, m, p):
    rng = np.random.default_rng(seed)

    def definite(size, most):
        basis = np.linalg.qr(rng.normal(size=(size, size)))[0]
        return (basis * np.geomspace(1, most, size)) @ basis.T

    draw = lambda *shape: rng.normal(size=shape) / shape[0] ** 0.5
    data = {"Q": definite(n, 10), "S": definite(p, 4), "N": definite(m, 4), "A": definite(p, 10)}
    data |= {"M": draw(n, m), "P": draw(p, m), "B": draw(p, n)}
    data |= {"b": rng.normal(size=m), "c": rng.normal(size=n), "e": rng.normal(size=p)}
    return {name: jnp.asarray(value) for name, value in data.items()}


def bilevel_saddle_quadratic(seed, n=20, m=10, p=15):
    d = _quadratic_data(seed, n, m, p)
    constants = bs.Constants(mu_g=1.0, L_g=10.0, L_yy=4.0, mu_y=1.0)
    sets = bs.sets.L2Ball(1.0), bs.sets.Box(-1.0, 1.0)
    problem = bs.Problem(_bilevel_saddle_upper, _linear_quadratic_lower, *sets, data=d, constants=constants)
    return problem, bs.Point(x=jnp.zeros(n), theta=jnp.zeros(p), y=jnp.zeros(m))


# --- saddle -----------------------------------------------------------------------------------------------------------


def _game(x, theta, y, d):
    return x @ d["M"] @ y


def matrix_game(seed, n=20, m=15):
    M = np.random.default_rng(seed).normal(size=(n, m))
    strength = float(np.linalg.norm(M, 2))
    constants = bs.Constants(L_xx=0.0, L_yy=0.0, mu_y=0.0, L_xy=strength, L_yx=strength)
    simplex = bs.sets.Simplex()
    problem = bs.Problem(_game, None, simplex, simplex, {"M": jnp.asarray(M)}, constants)
    return problem, bs.Point(x=jnp.full(n, 1 / n), y=jnp.full(m, 1 / m))


def _saddle_upper(x, theta, y, d):
    return 0.5 * x @ d["Q"] @ x + d["c"] @ x + x @ d["M"] @ y + d["b"] @ y - 0.5 * y @ d["N"] @ y


def saddle_quadratic(seed, n=20, m=10):
    d = _quadratic_data(seed, n, m, 2)
    strength = float(np.linalg.norm(d["M"], 2))
    constants = bs.Constants(L_xx=10.0, L_yy=4.0, mu_y=1.0, L_xy=strength, L_yx=strength)
    box = bs.sets.Box(-1.0, 1.0)
    problem = bs.Problem(_saddle_upper, None, box, box, d, constants)
    return problem, bs.Point(x=jnp.zeros(n), y=jnp.zeros(m))


def _bounded_losses(x, theta, y, d):
    residuals = jnp.einsum("gnd,d->gn", d["rows"], x) - d["targets"]
    return y @ jnp.mean(1 - jnp.exp(-0.5 * residuals**2), axis=1)


def worst_group(seed, groups=5, n=40, width=10):
    """Robust regression, a loss that is bounded and not convex; a fifth of the targets are wrong."""
    rng = np.random.default_rng(seed)
    rows, truth = rng.normal(size=(groups, n, width)), rng.normal(size=width) / width**0.5
    truths = truth + 0.3 * rng.normal(size=(groups, width)) / width**0.5
    targets = np.einsum("gnd,gd->gn", rows, truths) + 0.1 * rng.normal(size=(groups, n))
    targets = np.where(rng.uniform(size=targets.shape) < 0.2, 5 * rng.normal(size=targets.shape), targets)
    data = {"rows": jnp.asarray(rows), "targets": jnp.asarray(targets)}
    problem = bs.Problem(_bounded_losses, None, bs.sets.L2Ball(3.0), bs.sets.Simplex(), data, bs.Constants(L_yy=0.0))
    return problem, bs.Point(x=jnp.zeros(width), y=jnp.full(groups, 1 / groups))


# --- bilevel ----------------------------------------------------------------------------------------------------------


def _bilevel_upper(x, theta, y, d):
    return 0.5 * x @ d["Q"] @ x + 0.5 * theta @ d["S"] @ theta + d["c"] @ x + x @ d["B"].T @ theta


def bilevel_quadratic(seed, n=20, p=15):
    d = _quadratic_data(seed, n, 2, p)
    constants = bs.Constants(mu_g=1.0, L_g=10.0)
    problem = bs.Problem(
        _bilevel_upper, _linear_quadratic_lower, bs.sets.L2Ball(0.5), None, data=d, constants=constants
    )
    return problem, bs.Point(x=jnp.zeros(n), theta=jnp.zeros(p))


def _loss(rows, targets, theta):
    return 0.5 * jnp.mean((rows @ theta - targets) ** 2)


def _validation(x, theta, y, d):
    return _loss(d["valid"], d["valid_targets"], theta)


def _weighted_ridge(x, theta, d):
    return _loss(d["train"], d["train_targets"], theta) + 0.5 * jnp.sum(jnp.exp(x) * theta**2)


def ridge_weights(seed, sampled=False, n=160, width=20):
    """A ridge weight e^x_j of its own for every coordinate, chosen on validation rows: not convex in x."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=width) * (np.arange(width) < 6)
    data = {}
    for name in ("train", "valid"):
        data[name] = rng.normal(size=(n, width))
        data[f"{name}_targets"] = data[name] @ truth + rng.normal(size=n)
    gram = np.linalg.eigvalsh(data["train"].T @ data["train"] / n)
    # a batch has at most n / ROWS times the curvature of all rows, and about half of that when it is drawn at random
    most = gram[-1] * (0.5 * n / ROWS if sampled else 1)
    constants = bs.Constants(mu_g=float(gram[0] + np.exp(-4)), L_g=float(most + np.exp(1)))
    data = {name: jnp.asarray(value) for name, value in data.items()}
    box = bs.sets.Box(-4.0, 1.0)
    problem = bs.Problem(_validation, _weighted_ridge, box, None, data=data, constants=constants)
    return problem, bs.Point(x=jnp.full(width, -1.0), theta=jnp.zeros(width))


def _valid_rows(d):
    return d["valid"], d["valid_targets"]


def _train_rows(d):
    return d["train"], d["train_targets"]


BATCHES = bs.methods.Sampler(bs.methods.Batch(_valid_rows, ROWS), bs.methods.Batch(_train_rows, ROWS))

CASES = {
    "Experiment 1": Case("bilevel saddle", "the paper's, synthetic tasks, f linear in y, lam free", experiment_1),
    "worst task": Case("bilevel saddle", "ridge regressions around a shared x, f linear in y", worst_task),
    "penalised": Case("bilevel saddle", "the same, divergence penalty 0.1", lambda seed: worst_task(seed, 0.1)),
    "quadratic": Case("bilevel saddle", "strongly convex-concave, kappa_g = 10", bilevel_saddle_quadratic),
    "matrix game": Case("saddle", "bilinear on simplices", matrix_game),
    "saddle quadratic": Case("saddle", "strongly convex-concave on boxes", saddle_quadratic),
    "worst group": Case("saddle", "bounded losses, not convex in x, linear in y", worst_group),
    "bilevel quadratic": Case("bilevel", "strongly convex, ball active, kappa_g = 10", bilevel_quadratic),
    "ridge weights": Case("bilevel", "a ridge weight per coordinate, not convex in x", ridge_weights),
    "ridge weights, sampled": Case(
        "bilevel", f"the same with batches of {ROWS} of 160 rows", lambda seed: ridge_weights(seed, True), True
    ),
}

# --- step sizes -------------------------------------------------------------------------------------------------------


def _lower(problem):
    """alpha = eta = 2 / (mu_g + L_g), for the L_g that the problem states"""
    if problem.lower is None:
        return {}
    best = 2 / (float(problem.constants.mu_g) + float(problem.constants.L_g))
    return {"alpha": best, "eta": best}


def _both(problem, nu):
    """tau = nu, and sigma = nu with a max player"""
    return {"tau": nu} | ({} if problem.y_set is None else {"sigma": nu})


def _regularised(problem, nu, exponent):
    if problem.y_set is None:
        return {}
    mu = nu * K**exponent
    return {"mu": mu, "sigma": 2 / (float(problem.constants.L_yy) + 2 * mu)}


def full(problem, nu, **options):
    sizes = {"gamma": min(1.0, nu * K ** (-1 / 2)), "tau": 0.7} | _regularised(problem, nu, -1 / 4)
    return bs.methods.FullyProjected(bs.StepSizes(**sizes, **_lower(problem)), **options)


def full_apart(problem, nu, **options):
    sizes = {"gamma": 1.0, **_both(problem, nu)} | ({} if problem.y_set is None else {"mu": 1e-4})
    return bs.methods.FullyProjected(bs.StepSizes(**sizes, **_lower(problem)), **options)


def free(problem, nu, **options):
    sizes = {"gamma": min(1.0, nu * K ** (-2 / 3))} | _regularised(problem, nu, -1 / 3)
    return bs.methods.OneSidedProjectionFree(bs.StepSizes(**sizes, **_lower(problem)), **options)


def rule(name, *lower, **fixed):
    """tau = sigma = nu; `lower`: which of alpha and eta it takes"""

    def make(problem, nu, **options):
        own = {key: value for key, value in _lower(problem).items() if key in lower}
        return getattr(bs.methods, name)(bs.StepSizes(**_both(problem, nu), **own), **fixed, **options)

    return make


def averaged(name, *lower, **fixed):
    """gamma = min(1, nu K^(-1/2))"""

    def make(problem, nu, **options):
        own = {key: value for key, value in _lower(problem).items() if key in lower}
        steps = bs.StepSizes(gamma=min(1.0, nu * K ** (-1 / 2)), **own)
        return getattr(bs.methods, name)(steps, **fixed, **options)

    return make


def penalised(name, penalty=100.0):
    """tau = sigma = nu / 10, alpha = eta c: its step is on c times the lower level"""

    def make(problem, nu, **options):
        alpha = _lower(problem)["alpha"] / 2
        steps = bs.StepSizes(alpha=alpha, eta=alpha / penalty, **_both(problem, nu / 10))
        return getattr(bs.methods, name)(steps, penalty, **options)

    return make


def agp(problem, nu):
    fading = bs.schedules.Power(0.1, -1 / 4)
    return bs.methods.AGP(bs.StepSizes(tau=nu, sigma=nu, mu=fading))


def cgrpga(problem, nu):
    return bs.methods.CGRPGA(bs.StepSizes(gamma=min(1.0, nu * K ** (-2 / 3)), **_regularised(problem, nu, -1 / 3)))


def spfw(problem, nu):
    return bs.methods.SPFW(curvature=1 / nu)


def adaptive(problem, nu):
    """Nothing to choose"""
    return bs.methods.Adaptive(1e-8)


def spfw_fading(problem, nu):
    """2 / (2 + m): nothing to choose"""
    return bs.methods.SPFW()


RULES = {
    "Adaptive": adaptive,
    "FullyProjected": full,
    "FullyProjected, gamma 1, mu 1e-4": full_apart,
    "OneSidedProjectionFree": free,
    "MORBiT": rule("MORBiT", "alpha"),
    "MORBiT, N = 20": rule("MORBiT", "alpha", neumann_terms=20),
    "MultiBlockV1": rule("MultiBlockV1", "alpha", momentum=0.5, averaging=0.5),
    "MultiBlockV2": rule("MultiBlockV2", "alpha", "eta", momentum=0.5),
    "FirstOrderPenalty": penalised("FirstOrderPenalty"),
    "DoubleLoop": rule("DoubleLoop", "alpha"),
    "GDA": rule("GDA"),
    "AlternatingGDA": rule("AlternatingGDA"),
    "AGP": agp,
    "SmoothedGDA": rule("SmoothedGDA", p=2.0, beta=0.2),
    "Extragradient": rule("Extragradient"),
    "OptimisticGDA": rule("OptimisticGDA"),
    "MirrorProx": rule("MirrorProx"),
    "MirrorProx, last iterate": rule("MirrorProx", average=False),
    "PDHG": rule("PDHG"),
    "CGRPGA": cgrpga,
    "SPFW": spfw,
    "SPFW, 2/(2+m)": spfw_fading,
    "AID": rule("AID", "alpha"),
    "AmIGO": rule("AmIGO", "alpha", "eta"),
    "BA": rule("BA", "alpha"),
    "BSA": rule("BSA", "alpha"),
    "F2SA": penalised("F2SA"),
    "FSLA": rule("FSLA", "alpha", "eta", momentum=0.5),
    "IBCG": averaged("IBCG", "alpha", "eta"),
    "ITD": rule("ITD", "alpha"),
    "SABA": rule("SABA", "alpha", "eta"),
    "SBFW": averaged("SBFW", "alpha", momentum=0.5),
    "SOBA": rule("SOBA", "alpha", "eta"),
    "SUSTAIN": rule("SUSTAIN", "alpha", momentum=0.5),
    "TTSA": rule("TTSA", "alpha"),
}
# these sample: with batches they run as published
SAMPLED = ("FullyProjected", "OneSidedProjectionFree", "AmIGO", "BSA", "F2SA", "FSLA", "SABA", "SBFW", "SOBA")
SAMPLED += ("SUSTAIN", "TTSA")
