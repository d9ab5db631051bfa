"""Published problems once more: systems of equations in the maximum norm, and nonsmooth problems not yet written down.

    python benchmarks/adaptive_published_systems.py [--steps 10000] [name ...]

From More, Garbow and Hillstrom, Testing unconstrained optimization software (1981), each as min_x max_i |f_i(x)|; from
Luksan and Vlcek (2000), problems 2 and 3; and chained problems of Haarala, Miettinen and Makela (2004) in 50 variables;
written down anew. Solved with default settings to 1e-6, over FreeBall(), a ball of 50 and a box of +-1e3 (problems with
constraints of their own: over these). value: as published where it is (0 for systems with a solution), else the least
that SLSQP finds from the start and twenty others for the epigraph, `reference`. A nonconvex problem may be certified
at another stationary point, which the column found shows.
"""

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from adaptive_published_more import absolute
from scipy.optimize import minimize

import bisaddle as bs

jax.config.update("jax_enable_x64", True)
SETS: dict[str, Any] = {"free": bs.sets.FreeBall(), "ball 50": bs.sets.L2Ball(50.0), "box 1e3": bs.sets.Box(-1e3, 1e3)}


class Published(NamedTuple):
    """functions(x): a vector, of which the largest counts, or rows whose largest entries are added up."""

    functions: Callable
    start: np.ndarray
    value: float | None
    x_set: Any = None


def of(functions: Callable, start: Any, value: float | None = 0.0, x_set: Any = None, signs: bool = True) -> Published:
    f = (lambda x: absolute(functions(x))) if signs else functions
    return Published(f, np.asarray(start, float), value, x_set)


def freudenstein_roth(x):
    a, b = x
    return jnp.stack([-13 + a + ((5 - b) * b - 2) * b, -29 + a + ((b + 1) * b - 14) * b])


def beale(x):
    return jnp.stack([c - x[0] * (1 - x[1] ** i) for i, c in ((1, 1.5), (2, 2.25), (3, 2.625))])


def jennrich_sampson(x):
    i = np.arange(1, 11)
    return 2 + 2 * i - jnp.exp(i * x[0]) - jnp.exp(i * x[1])


def helical_valley(x):
    angle = jnp.arctan2(x[1], x[0]) / (2 * np.pi)
    return jnp.stack([10 * (x[2] - 10 * angle), 10 * (jnp.sqrt(x[0] ** 2 + x[1] ** 2) - 1), x[2]])


def box3(x):
    t = 0.1 * np.arange(1, 11)
    return jnp.exp(-t * x[0]) - jnp.exp(-t * x[1]) - x[2] * (np.exp(-t) - np.exp(-10 * t))


def gaussian(x):
    t = (8 - np.arange(1, 16)) / 2
    y = np.array([0.0009, 0.0044, 0.0175, 0.0540, 0.1295, 0.2420, 0.3521, 0.3989])
    return x[0] * jnp.exp(-x[1] * (t - x[2]) ** 2 / 2) - np.r_[y, y[-2::-1]]


def powell_singular(x):
    a, b, c, d = x
    return jnp.stack([a + 10 * b, 5**0.5 * (c - d), (b - 2 * c) ** 2, 10**0.5 * (a - d) ** 2])


def wood(x):
    a, b, c, d = x
    rest = [10**0.5 * (b + d - 2), 10**-0.5 * (b - d)]
    return jnp.stack([10 * (b - a**2), 1 - a, 90**0.5 * (d - c**2), 1 - c, *rest])


def brown_dennis(x):
    t = np.arange(1, 21) / 5
    return (x[0] + t * x[1] - np.exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


def osborne1(x):
    y = "844 908 932 936 925 908 881 850 818 784 751 718 685 658 628 603 580 558 538 522 506 490 478 467 457 448 438 "
    y += "431 424 420 414 411 406"
    t = 10 * np.arange(33)
    model = x[0] + x[1] * jnp.exp(-t * x[3]) + x[2] * jnp.exp(-t * x[4])
    return np.array(y.split(), float) / 1000 - model


def biggs6(x):
    t = 0.1 * np.arange(1, 14)
    y = np.exp(-t) - 5 * np.exp(-10 * t) + 3 * np.exp(-4 * t)
    return x[2] * jnp.exp(-t * x[0]) - x[3] * jnp.exp(-t * x[1]) + x[5] * jnp.exp(-t * x[4]) - y


def gulf(x):
    t = np.arange(1, 31) / 100
    y = 25 + (-50 * np.log(t)) ** (2 / 3)
    return jnp.exp(-(jnp.abs(y - x[1]) ** x[2]) / x[0]) - t


def trigonometric(x):
    n, i = x.size, np.arange(1, x.size + 1)
    return n - jnp.sum(jnp.cos(x)) + i * (1 - jnp.cos(x)) - jnp.sin(x)


def brown_almost_linear(x):
    return jnp.concatenate([x[:-1] + jnp.sum(x) - (x.size + 1), jnp.prod(x)[None] - 1])


def discrete_boundary(x):
    h = 1 / (x.size + 1)
    t, ends = h * np.arange(1, x.size + 1), jnp.pad(x, 1)
    return 2 * x - ends[:-2] - ends[2:] + h**2 * (x + t + 1) ** 3 / 2


def discrete_integral(x):
    h = 1 / (x.size + 1)
    t = h * np.arange(1, x.size + 1)
    green = np.where(t[:, None] >= t, (1 - t[:, None]) * t, t[:, None] * (1 - t))
    return x + h * green @ (x + t + 1) ** 3 / 2


def broyden_tridiagonal(x):
    ends = jnp.pad(x, 1)
    return (3 - 2 * x) * x - ends[:-2] - 2 * ends[2:] + 1


def broyden_banded(x):
    i = np.arange(x.size)
    near = (i <= i[:, None] + 1) & (i >= i[:, None] - 5) & (i != i[:, None])
    return x * (2 + 5 * x**2) + 1 - near.astype(float) @ (x * (1 + x))


def chebyquad(x):
    now, before, found = 2 * x - 1, jnp.ones_like(x), []
    for i in range(1, x.size + 1):
        found.append(jnp.mean(now) + (1 / (i**2 - 1) if i % 2 == 0 else 0.0))
        now, before = 2 * (2 * x - 1) * now - before, now
    return jnp.stack(found)


def penalty1(x):
    return jnp.concatenate([1e-5**0.5 * (x - 1), (x @ x - 0.25)[None]])


def variably_dimensioned(x):
    sum_ = jnp.arange(1, x.size + 1) @ (x - 1)
    return jnp.concatenate([x - 1, jnp.stack([sum_, sum_**2])])


def extended_rosenbrock(x):
    a, b = x[::2], x[1::2]
    return jnp.concatenate([10 * (b - a**2), 1 - a])


def mad4(x):
    return jnp.stack([-jnp.exp(x[0] - x[1]), jnp.sinh(x[0] - 1) - 1, -jnp.log(x[1]) - 1])


def gill(x):
    i, j = np.arange(2, 31)[:, None], np.arange(10)
    t = (i - 1) / 29
    rows = (j * t ** np.maximum(j - 1, 0)) @ x - (t**j @ x) ** 2 - 1
    third = jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[1:]) ** 2)
    second = rows @ rows + x[0] ** 2 + (x[1] - x[0] ** 2 - 1) ** 2
    return jnp.stack([jnp.sum((x - 1) ** 2) + 1e-3 * jnp.sum((x**2 - 0.25) ** 2), second, third])


def el_attar(x):
    t = 0.1 * np.arange(51)
    target = 0.5 * np.exp(-t) - np.exp(-2 * t) + 0.5 * np.exp(-3 * t)
    target += 1.5 * np.exp(-1.5 * t) * np.sin(7 * t) + np.exp(-2.5 * t) * np.sin(5 * t)
    off = x[0] * jnp.exp(-x[1] * t) * jnp.cos(x[2] * t + x[3]) + x[4] * jnp.exp(-x[5] * t) - target
    return jnp.stack([off, -off], axis=1)


def l1hilb(x):
    i = np.arange(x.size)
    off = (1 / (1 + np.add.outer(i, i))) @ x
    return jnp.stack([off, -off], axis=1)


def transport_dual(x):
    """Of the kind of TR48: 12 cities drawn once, sum_j d_j max_i (x_i - a_ij) - s'x, and x bound by its length."""
    rng = np.random.default_rng(48)
    places = rng.uniform(0, 10, (12, 2))
    costs = np.linalg.norm(places[:, None] - places, axis=2)
    demand, supply = rng.uniform(1, 3, 12), rng.uniform(1, 3, 12)
    supply *= demand.sum() / supply.sum()
    return demand[:, None] * (x - costs) - supply @ x / 12 + 1e-3 * x @ x / 12


def chained(parts: Callable, summed: bool) -> Callable:
    """Of pairs of neighbours: the largest sum, or the sum of the largest."""
    return lambda x: (
        jnp.stack(parts(x[:-1], x[1:]), axis=1) if not summed else jnp.sum(jnp.stack(parts(x[:-1], x[1:])), axis=1)
    )


LQ = lambda a, b: (-a - b, -a - b + a**2 + b**2 - 1)
CB3 = lambda a, b: (a**4 + b**2, (2 - a) ** 2 + (2 - b) ** 2, 2 * jnp.exp(b - a))
CRESCENT = lambda a, b: (a**2 + (b - 1) ** 2 + b - 1, -(a**2) - (b - 1) ** 2 + b + 1)
MIFFLIN1 = lambda a, b: (-a, -a + 20 * (a**2 + b**2 - 1))


def halfplane(a: float, b: float, c: float, lower: Any = -1e3) -> Any:
    """a x1 + b x2 + c >= 0 in a large box"""
    return bs.sets.HalfspaceBox(np.array([-a, -b]), c, lower, 1e3)


n10 = np.arange(1, 11)
PROBLEMS = {
    "Freudenstein-Roth": of(freudenstein_roth, [0.5, -2], 0.0),
    "Beale": of(beale, [1.0, 1]),
    "Jennrich-Sampson": of(jennrich_sampson, [0.3, 0.4], None),
    "Helical valley": of(helical_valley, [-1.0, 0, 0]),
    "Box 3": of(box3, [0.0, 10, 20]),
    "Gaussian": of(gaussian, [0.4, 1, 0], None),
    "Powell singular": of(powell_singular, [3.0, -1, 0, 1]),
    "Wood": of(wood, [-3.0, -1, -3, -1]),
    "Brown-Dennis": of(brown_dennis, [25.0, 5, -5, -1], 115.70644, signs=False),
    "Osborne 1": of(osborne1, [0.5, 1.5, -1, 0.01, 0.02], None),
    "Biggs 6": of(biggs6, [1.0, 2, 1, 1, 1, 1]),
    "Gulf": of(gulf, [5.0, 2.5, 0.15]),
    "Trigonometric 10": of(trigonometric, np.full(10, 0.1)),
    "Brown almost linear 10": of(brown_almost_linear, np.full(10, 0.5)),
    "Discrete boundary 10": of(discrete_boundary, n10 / 11 * (n10 / 11 - 1)),
    "Discrete integral 10": of(discrete_integral, n10 / 11 * (n10 / 11 - 1)),
    "Broyden tridiagonal 20": of(broyden_tridiagonal, np.full(20, -1.0)),
    "Broyden banded 20": of(broyden_banded, np.full(20, -1.0)),
    "Chebyquad 8": of(chebyquad, n10[:8] / 9, None),
    "Penalty I 10": of(penalty1, n10, None),
    "Variably dimensioned 10": of(variably_dimensioned, 1 - n10 / 10),
    "Extended Rosenbrock 10": of(extended_rosenbrock, np.tile([-1.2, 1.0], 5)),
    "MAD4": of(mad4, [-1.0, 0.01], -0.44891079, halfplane(0.05, -1, 0.5, np.array([-1e3, 1e-9])), signs=False),
    "MAD5": of(mad4, [-1.0, 3], -0.42928061, halfplane(-0.9, 1, -1, np.array([-1e3, 1e-9])), signs=False),
    "Gill": of(gill, np.full(10, -0.1), None, signs=False),
    "El-Attar": of(el_attar, [2.0, 2, 7, 0, -2, 1], 0.5598131, signs=False),
    "L1HILB 20": of(l1hilb, np.ones(20), signs=False),
    "Transport dual 12": of(transport_dual, np.zeros(12), None, signs=False),
    "Chained LQ 50": of(chained(LQ, False), np.full(50, -0.5), -49 * 2**0.5, signs=False),
    "Chained CB3 I 50": of(chained(CB3, False), np.full(50, 2.0), 98.0, signs=False),
    "Chained CB3 II 50": of(chained(CB3, True), np.full(50, 2.0), 98.0, signs=False),
    "Chained Crescent I 50": of(chained(CRESCENT, True), np.tile([-1.5, 2.0], 25), 0.0, signs=False),
    "Chained Crescent II 50": of(chained(CRESCENT, False), np.tile([-1.5, 2.0], 25), 0.0, signs=False),
    "Chained Mifflin 1 20": of(chained(MIFFLIN1, False), np.tile([0.8, 0.6], 10), None, signs=False),
    "Maxq 50": of(lambda x: x**2, np.where(np.arange(1, 51) <= 25, 1.0, -1.0) * np.arange(1, 51), signs=False),
}


class Upper(eqx.Module):
    name: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        return jnp.sum(y * PROBLEMS[self.name].functions(x))


def make(name: str, x_set: Any) -> tuple[bs.Problem, bs.Point]:
    given = PROBLEMS[name]
    shape = given.functions(jnp.asarray(given.start)).shape
    chosen = x_set if given.x_set is None else given.x_set
    start = np.asarray(chosen.project(jnp.asarray(given.start)))
    y_set = bs.sets.Simplex(axis=-1) if len(shape) == 2 else bs.sets.Simplex()
    return bs.Problem(Upper(name), None, chosen, y_set), bs.Point(start, None, np.full(shape, 1 / shape[-1]))


def reference(name: str) -> float:
    """The least value that SLSQP finds for the epigraph, from the start and places around it."""
    given, rng = PROBLEMS[name], np.random.default_rng(0)
    rows = jax.jit(lambda x: jnp.atleast_2d(given.functions(x)))
    slopes, (count, each) = jax.jit(jax.jacobian(rows)), rows(given.start).shape
    size, rising = given.start.size, np.repeat(np.eye(rows(given.start).shape[0]), each, axis=0)
    up = np.r_[np.zeros(size), np.ones(count)]
    above = lambda v: (v[size:, None] - np.asarray(rows(v[:size]))).ravel()
    above_slopes = lambda v: np.concatenate([-np.asarray(slopes(v[:size])).reshape(-1, size), rising], axis=1)
    limits = {"type": "ineq", "fun": above, "jac": above_slopes}
    value = lambda x: np.max(np.asarray(rows(x)), axis=1)
    found = np.inf
    for i in range(21):
        x = given.start * (1.0 if i == 0 else rng.uniform(0.7, 1.3, size))
        goal = lambda v: float(up @ v)
        options: Any = {"jac": lambda v: up, "constraints": [limits], "method": "SLSQP", "options": {"maxiter": 1000}}
        last = float(np.sum(value(minimize(goal, np.r_[x, value(x)], **options).x[:size])))
        found = min(found, last) if np.isfinite(last) else found
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--steps", type=int, default=10_000)
    given = parser.parse_args()
    print("| problem | value | " + " | ".join(SETS) + " | found |\n" + "|---" * (3 + len(SETS)) + "|")
    for name in given.names:
        value, cells, worst = PROBLEMS[name].value, [], np.nan
        value = reference(name) if value is None else value
        for x_set in SETS.values() if PROBLEMS[name].x_set is None else [None]:
            problem, start = make(name, x_set)
            result = bs.solve(problem, start, tol=1e-6, max_steps=given.steps, progress=False)
            certified = result.status is bs.Status.CERTIFIED
            cells.append(f"{result.steps}" if certified else f"{result.status} {result.gap:.0e}")
            worst = result.certificate.worst_value
        cells = cells * len(SETS) if len(cells) == 1 else cells
        print(f"| {name} | {value:.8g} | " + " | ".join(cells) + f" | {worst:.8g} |", flush=True)


if __name__ == "__main__":
    main()
