"""The instance families of benchmarks/adaptive.py: instance(family, settings, seed) -> problem, start, dense check.

Functions live at module level and all numbers are data, so instances of one family and shape share a compilation.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import adaptive_data as data_sets
import adaptive_matrices
import adaptive_networks
import adaptive_nuclear
import adaptive_published
import adaptive_steep
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from adaptive_dense import Dense, onto_kl, onto_l1, onto_l2, onto_simplex, onto_simplices
from adaptive_minimax import MINIMAX, LiftedUpper, PlainUpper, lift_lower

import bisaddle as bs
from bisaddle.apps import multitask


class Settings(NamedTuple):
    """rho: ridge of the lower level; beta: divergence; Q: radius of the l1 ball; frozen: lam = 1/2, x alone.

    kind, y_set: of the families "minimax", "lifted" and "concave"; kind "LMO" of nuclear balls, "matrix" of
    other sets of matrices.
    """

    rho: float = 0.1
    beta: float = 0.0
    Q: float = 5.0
    frozen: bool = False
    kind: str = ""
    y_set: str = ""


class Instance(NamedTuple):
    """check: the gap of a point in the measure, by dense solves in NumPy."""

    problem: bs.Problem
    start: bs.Point
    check: Callable[[bs.Point], float]
    measure: str = "projection"


class Case(NamedTuple):
    """An instance by name; made when it is needed."""

    family: str
    settings: Settings
    seed: int

    def __str__(self) -> str:
        s = self.settings
        if s.kind:
            rho = f"rho{s.rho:g}" if s.kind in ("LMO", "matrix") else ""
            return " ".join(filter(None, (self.family, s.kind, s.y_set, rho, f"s{self.seed}")))
        return f"{self.family} b{s.beta:g} rho{s.rho:g} Q{s.Q:g} fr{int(s.frozen)} s{self.seed}"

    def make(self) -> Instance:
        return instance(self.family, self.settings, self.seed)

    @property
    def structure(self) -> tuple:
        """Instances with the same one are compiled together."""
        return self.family, self.settings.kind, self.settings.y_set, self.settings.frozen

    @property
    def tols(self) -> tuple[float, ...]:
        """The gaps to reach, the last one closely recorded; a network is trained to a moderate one."""
        return (1e-3,) if self.family.startswith("network") else (1e-6, 1e-8)


def instance(family: str, settings: Settings, seed: int) -> Instance:
    return FAMILIES[family](settings, seed)


# --- worst-task regression, lam free or frozen ------------------------------------------------------------------------


class Frozen(eqx.Module):
    """A function of ({"x": x, "lam": lam}, ..., data) as one of (x, ..., (data, lam))."""

    function: Callable
    only_x: bool = eqx.field(static=True, default=False)

    def __call__(self, x, *rest):
        data, lam = rest[-1]
        found = self.function({"x": x, "lam": lam}, *rest[:-1], data)
        return found["x"] if self.only_x else found


def frozen(problem: bs.Problem, start: bs.Point) -> tuple[bs.Problem, bs.Point]:
    """lam stays where it starts."""
    by_hand = {
        name: None if function is None else Frozen(function, name in ("f_x", "g_theta_x"))
        for name, function in vars(problem.derivatives).items()
    }
    x_set: Any = problem.x_set
    assert problem.lower is not None
    fixed = bs.Problem(
        Frozen(problem.upper),
        Frozen(problem.lower),
        x_set.sets["x"],
        problem.y_set,
        (problem.data, start.x["lam"]),
        bs.Constants(mu_g=problem.constants.mu_g),
        bs.Derivatives(**by_hand),
    )
    return fixed, bs.Point(x=start.x["x"], theta=start.theta, y=start.y)


def _task_check(losses: Callable, slopes: Callable, T: int, d: int, s: Settings) -> Dense:
    """losses(theta) on validation rows, slopes(v) the gradients on training rows; x joined as (lam, x)."""

    def split(x):
        return (np.full(T, 0.5), x) if s.frozen else (x[:T], x[T:])

    def upper(x, theta, y):
        return y @ losses(theta.reshape(T, d)) - s.beta / T * 0.5 * np.sum((T * y - 1) ** 2)

    def lower_gradient(x, theta):
        (lam, common), theta = split(x), theta.reshape(T, d)
        lam = lam[:, None]
        return (lam * slopes(lam * theta + (1 - lam) * common) + s.rho * theta).ravel()

    def project_x(x):
        lam, common = split(x)
        common = onto_l1(common, s.Q)
        return common if s.frozen else np.concatenate([np.clip(lam, 0, 1), common])

    return Dense(upper, lower_gradient, project_x, onto_simplex)


def regression(tasks: Callable, s: Settings, seed: int) -> Instance:
    made = tasks(seed)
    problem, start = multitask.regression(made, radius=s.Q, ridge=s.rho, divergence=s.beta, form="gram")
    if s.frozen:
        problem, start = frozen(problem, start)
    H, c = (np.stack(part) for part in zip(*((A.T @ A / len(A), A.T @ b / len(A)) for A, b, _, _ in made), strict=True))

    def losses(theta):
        return np.stack([np.sum((A @ t - b) ** 2) / (2 * len(b)) for (_, _, A, b), t in zip(made, theta, strict=True)])

    slopes = lambda v: np.einsum("tij,tj->ti", H, v) - c
    return Instance(problem, start, _task_check(losses, slopes, c.shape[0], c.shape[1], s))


@cache
def synthetic(seed: int) -> list[tuple]:
    return multitask.synthetic(seed=seed)


# --- worst-task classification: a lower level that is not quadratic ---------------------------------------------------


def _logistic_upper(x, theta, y, data):
    losses = jnp.mean(jax.nn.softplus(-jnp.einsum("tnd,td->tn", data["valid"], theta)), axis=1)
    return y @ losses - data["beta"] / y.size * 0.5 * jnp.sum(jnp.square(y.size * y - 1))


def _logistic_lower(x, theta, data):
    lam = x["lam"][:, None]
    margins = jnp.einsum("tnd,td->tn", data["train"], lam * theta + (1 - lam) * x["x"])
    return jnp.sum(jnp.mean(jax.nn.softplus(-margins), axis=1)) + 0.5 * data["rho"] * jnp.sum(jnp.square(theta))


def logistic(s: Settings, seed: int) -> Instance:
    train, valid = (np.stack(part) for part in zip(*data_sets.labelled(seed), strict=True))
    T, rows, d = train.shape
    data = {"train": jnp.asarray(train), "valid": jnp.asarray(valid)}
    data |= {"rho": jnp.asarray(s.rho), "beta": jnp.asarray(s.beta)}
    x_set = bs.sets.Product({"x": bs.sets.L1Ball(s.Q), "lam": bs.sets.Box(0.0, 1.0)})
    constants = bs.Constants(mu_g=s.rho)
    problem = bs.Problem(_logistic_upper, _logistic_lower, x_set, bs.sets.Simplex(), data, constants)
    x = {"x": jnp.zeros(d), "lam": jnp.full(T, 0.5)}
    start = bs.Point(x=x, theta=jnp.zeros((T, d)), y=jnp.full(T, 1 / T))
    if s.frozen:
        problem, start = frozen(problem, start)

    def losses(theta):
        return np.mean(np.log1p(np.exp(-np.einsum("tnd,td->tn", valid, theta))), axis=1)

    def slopes(v):
        return np.einsum("tnd,tn->td", train, -1 / (1 + np.exp(np.einsum("tnd,td->tn", train, v)))) / rows

    return Instance(problem, start, _task_check(losses, slopes, T, d, s))


# --- finite minimax from random starts, plain and lifted --------------------------------------------------------------


def minimax(s: Settings, seed: int, lifted: bool, at: tuple[float, ...] | None = None) -> Instance:
    """x starts anywhere in the middle nine tenths of the box, or at the place given."""
    functions, n, T, size = MINIMAX[s.kind]
    rng = np.random.default_rng(seed)
    x = np.asarray(at) if at is not None else 0.9 * size * rng.uniform(-1, 1, n)
    box, y = bs.sets.Box(-size, size), jnp.full(T, 1 / T)
    onto_box = lambda v: np.clip(v, -size, size)
    if not lifted:
        problem = bs.Problem(PlainUpper(s.kind), None, box, bs.sets.Simplex())
        check = Dense(lambda x, theta, y: y @ functions(x, np), None, onto_box, onto_simplex)
        return Instance(problem, bs.Point(x=x, y=y), check)
    bases = [np.linalg.qr(rng.normal(size=(n, n)))[0] for _ in range(T)]
    A = np.stack([(Q * rng.uniform(1, 3, n)) @ Q.T for Q in bases])
    A = 0.5 * (A + A.transpose(0, 2, 1))
    mu_g = np.linalg.eigvalsh(A).min() * (1 - 1e-12)
    problem = bs.Problem(
        LiftedUpper(s.kind), lift_lower, box, bs.sets.Simplex(), jnp.asarray(A), bs.Constants(mu_g=mu_g)
    )

    def upper(x, theta, y):
        return y @ np.stack([functions(t, np)[i] for i, t in enumerate(theta.reshape(T, n))])

    def lower_gradient(x, theta):
        return np.einsum("tij,tj->ti", A, theta.reshape(T, n) - x).ravel()

    start = bs.Point(x=x, theta=np.tile(x, (T, 1)) + 0.1, y=y)
    return Instance(problem, start, Dense(upper, lower_gradient, onto_box, onto_simplex))


# --- f concave in y, not linear, and Y not a simplex ------------------------------------------------------------------

SIZES = (8, 10, 6)  # of x, theta, y


def _joined(y):
    return jnp.concatenate(jax.tree.leaves(y))


def _smooth_part(x, theta, y, d, m):
    bowl = 0.5 * d["r"] * m.sum(x**2) + 0.3 * m.sum(m.sin(2 * x)) + 0.25 * m.sum((theta - d["goal"]) ** 2)
    return bowl + theta @ d["P"] @ y + x @ d["R"] @ y + d["b"] @ y


def _quadratic(theta, y, d, m):
    return 0.5 * y @ d["N"] @ y


def _entropy(theta, y, d, m):
    shifted = y + d["shift"]  # positive on all of Y
    return d["nu"] * m.sum(shifted * m.log(shifted))


def _log_sum_exp(theta, y, d, m):
    z = d["E"] @ y + d["F"] @ theta
    top = m.max(z.real)
    return m.log(m.sum(m.exp(z - top))) + top


CONCAVE = {"entropy": _entropy, "log-sum-exp": _log_sum_exp, "quadratic": _quadratic}


class ConcaveUpper(eqx.Module):
    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        y = _joined(y)
        return _smooth_part(x, theta, y, data, jnp) - CONCAVE[self.kind](theta, y, data, jnp)


def _bent_lower(x, theta, d):
    drive = d["B"] @ jnp.tanh(x) + d["c"]
    return 0.5 * theta @ d["A"] @ theta - theta @ drive + d["bend"] * jnp.sum(jnp.sqrt(1 + jnp.square(theta)))


def _concave_data(seed: int, shift: float) -> dict[str, np.ndarray]:
    """Every other seed has a quadratic lower level; N has rank 3 of 6."""
    n, p, m = SIZES
    rng = np.random.default_rng(seed)
    draw = lambda *shape: rng.normal(size=shape)
    Q, factor = np.linalg.qr(draw(p, p))[0], draw(m, m // 2)
    A = (Q * np.geomspace(0.1, 5, p)) @ Q.T
    data = {"A": 0.5 * (A + A.T), "B": draw(p, n), "c": draw(p), "bend": np.array(float(seed % 2))}
    data |= {"r": np.array(0.2), "goal": draw(p), "P": draw(p, m), "R": draw(n, m), "b": draw(m)}
    data |= {"N": factor @ factor.T, "E": draw(7, m), "F": 0.3 * draw(7, p), "nu": np.array(0.3)}
    return data | {"shift": np.array(shift)}


def concave(s: Settings, seed: int) -> Instance:
    n, p, m = SIZES
    reference = np.random.default_rng([seed, 1]).dirichlet(np.full(m, 5.0))
    y_set, y, onto_y, shift = {
        "box": (bs.sets.Box(-1.0, 1.0), np.zeros(m), lambda v: np.clip(v, -1, 1), 1.1),
        "ball": (bs.sets.L2Ball(1.0), np.zeros(m), partial(onto_l2, radius=1.0), 1.1),
        "simplices": (
            bs.sets.Product({"a": bs.sets.Simplex(), "b": bs.sets.Simplex()}),
            {"a": np.full(m // 2, 2 / m), "b": np.full(m // 2, 2 / m)},
            partial(onto_simplices, count=2),
            0.01,
        ),
        "KL ball": (bs.sets.KLBall(reference, 0.2), reference, partial(onto_kl, reference=reference, radius=0.2), 0.01),
    }[s.y_set]
    d = _concave_data(seed, shift)
    traced = {name: jnp.asarray(value) for name, value in d.items()}
    problem = bs.Problem(ConcaveUpper(s.kind), _bent_lower, bs.sets.Box(-1.0, 1.0), y_set, traced)  # mu_g unknown
    x = np.random.default_rng([seed, 2]).uniform(-1, 1, n)

    def upper(x, theta, y):
        return _smooth_part(x, theta, y, d, np) - CONCAVE[s.kind](theta, y, d, np)

    def lower_gradient(x, theta):
        return d["A"] @ theta - d["B"] @ np.tanh(x) - d["c"] + d["bend"] * theta / np.sqrt(1 + theta**2)

    check = Dense(upper, lower_gradient, lambda v: np.clip(v, -1, 1), onto_y)
    return Instance(problem, bs.Point(x=x, theta=np.zeros(p), y=y), check)


# --- x a matrix in a nuclear ball, by its linear minimisation oracle -------------------------------------------------


def nuclear(size: str, s: Settings, seed: int) -> Instance:
    problem, start, check = adaptive_nuclear.make(size, s.rho, seed)
    return Instance(problem, start, check.lmo_gap, "lmo")


def matrices(kind: str, size: str, s: Settings, seed: int) -> Instance:
    made = adaptive_matrices.make(kind, size, s.rho, seed)
    return Instance(*made, "lmo" if kind == "Birkhoff" else "projection")


# --- lower levels that are smooth only locally, and published minimax problems in balls of any size -------------------


def steep(s: Settings, seed: int) -> Instance:
    return Instance(*adaptive_steep.make(s.kind, seed))


def published(s: Settings, seed: int) -> Instance:
    return Instance(*adaptive_published.make(s.kind, s.Q, seed))


def network(s: Settings, seed: int) -> Instance:
    return Instance(*adaptive_networks.make(s.kind, seed))


# --- the lists --------------------------------------------------------------------------------------------------------

MULTITASK = {"synthetic": synthetic, "NLSY": data_sets.nlsy, "even": data_sets.even, "natural": data_sets.natural}
FAMILIES: dict[str, Callable[[Settings, int], Instance]] = {
    **{name: partial(regression, tasks) for name, tasks in MULTITASK.items()},
    "logistic": logistic,
    "lifted": partial(minimax, lifted=True),
    "minimax": partial(minimax, lifted=False),
    "concave": concave,
    "steep": steep,
    "radius 1e3": published,
    "radius 1e6": published,
    **{f"nuclear {size}": partial(nuclear, size) for size in adaptive_nuclear.SIZES},
    **{f"{kind} {size}": partial(matrices, kind, size) for kind, size in adaptive_matrices.FAMILIES},
    **{f"network {kind}": network for kind in adaptive_networks.NETWORKS},
}
FAMILIES["mifflin1 from (.8, .6)"] = partial(minimax, lifted=True, at=(0.8, 0.6))
