"""Bilevel problems in few variables, with and without a max player, each checked by brute force on the reduced problem.

    python benchmarks/adaptive_bilevel.py [name ...]

After problems of collections of bilevel optimisation (BOLIB: Zhou, Zemkoho and Tin 2018; SMD: Sinha, Malo and Deb
2014), with lower levels that are strongly convex and without constraints: where there were some, another term stands
here, so that published values do not apply. Solved with default settings to 1e-6. Independent of the library are
theta*(x), by SciPy from the functions in NumPy, and the least of max_y f(x, theta*(x), y) over x, by SLSQP from several
starts. "found" may be a stationary point with another value: "slope" tells how fast the reduced problem falls from
there along any coordinate or a random direction, into X, by differences of 1e-5.
"""

import sys
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize

import bisaddle as bs

jax.config.update("jax_enable_x64", True)


class Bilevel(NamedTuple):
    """f(x, theta, m) is a value, or a vector whose largest entry counts; g(x, theta, m); m: NumPy or jax.numpy."""

    f: Callable
    g: Callable
    lower: tuple
    upper: tuple
    x: tuple
    theta: tuple


def lower_linear_response(x, t, m):
    return 0.5 * m.sum(t**2) + 500 * t[0] - 50 * x[0] * t[0]


C2 = np.array([[2.0, 0.5], [0.5, 1.0]])
A3 = np.array([[1.0, 2.0, -1.0], [0.0, 1.0, 1.0]])
PROBLEMS = {
    # after Bard (1998), 8.1.3, and Shimizu, Ishizuka and Bard (1997)
    "Bard": Bilevel(
        lambda x, t, m: (x[0] - 1) ** 2 + (t[0] - 1) ** 2, lower_linear_response, (-100,), (100,), (0,), (0,)
    ),
    "Shimizu": Bilevel(
        lambda x, t, m: (x[0] - 30) ** 2 + (x[1] - 20) ** 2 - 20 * t[0] + 20 * t[1],
        lambda x, t, m: (x[0] - t[0]) ** 2 + (x[1] - t[1]) ** 2 + 0.1 * (t[0] - 10) ** 4 + 0.1 * (t[1] - 5) ** 4,
        (0, 0),
        (50, 50),
        (10, 10),
        (0, 0),
    ),
    # after Dempe and Franke, Dempe and Dutta, Colson, Mitsos and Barton, Outrata, Yezza, Lampariello and Sagratella
    "Dempe": Bilevel(
        lambda x, t, m: t[0] * x[0] + (t[0] - 1) ** 2,
        lambda x, t, m: 0.5 * t[0] ** 2 - x[0] * t[0] + 0.25 * t[0] ** 4,
        (-1,),
        (1,),
        (0.9,),
        (0,),
    ),
    "Dempe-Dutta": Bilevel(
        lambda x, t, m: x[0] ** 2 + (t[0] + t[1]) ** 2 + t[2],
        lambda x, t, m: (
            m.exp(t[0] - x[0]) - t[0] + m.exp(t[1] + x[0]) - t[1] + 0.5 * (t[2] - x[0]) ** 2 + 0.05 * m.sum(t**2)
        ),
        (-3,),
        (3,),
        (2,),
        (0, 0, 0),
    ),
    "Colson": Bilevel(
        lambda x, t, m: -8 * x[0] - 4 * x[1] + 4 * t[0] - 40 * t[1] + 4 * t[2] + 2 * m.sum(x**2),
        lambda x, t, m: (
            x[0]
            + 2 * x[1]
            + t[0]
            + t[1]
            + 2 * t[2]
            + 0.5 * (t[0] - x[0]) ** 2
            + t[1] ** 2
            + (t[2] - x[1]) ** 2
            + 0.1 * m.exp(-t[1] + x[0])
        ),
        (0, 0),
        (10, 10),
        (1, 1),
        (0, 0, 0),
    ),
    "Mitsos-Barton": Bilevel(
        lambda x, t, m: x[0] - t[0] + 0.3 * m.sin(3 * x[0]),
        lambda x, t, m: 0.25 * t[0] ** 4 + 0.5 * t[0] ** 2 * (1.2 + x[0]) - 0.5 * x[0] * t[0],
        (-1,),
        (1,),
        (0.3,),
        (1,),
    ),
    "Outrata": Bilevel(
        lambda x, t, m: 0.5 * ((t[0] - 3) ** 2 + (t[1] - 4) ** 2) + 0.01 * x[0] ** 2,
        lambda x, t, m: 0.5 * t @ (C2 * (1 + 0.2 * x[0])) @ t - (3 + 1.333 * x[0]) * t[0] - x[0] * t[1],
        (0,),
        (10,),
        (5,),
        (0, 0),
    ),
    "Yezza": Bilevel(
        lambda x, t, m: -((4 * x[0] - 3) * t[0] + 2 * x[0] + 1) / 4 + 0.1 * t[0] ** 4,
        lambda x, t, m: (t[0] - 1 + 4 * x[0]) ** 2 + 0.1 * m.cosh(t[0]),
        (0,),
        (1,),
        (0.25,),
        (0,),
    ),
    "Lampariello": Bilevel(
        lambda x, t, m: x[0] ** 2 + (t[0] + t[1]) ** 2,
        lambda x, t, m: (t[0] - x[0]) ** 2 + (t[1] + x[0] + 1) ** 2 + m.log(m.exp(3 * t[0]) + m.exp(3 * t[1])),
        (-1,),
        (3,),
        (2,),
        (0, 0),
    ),
    "Allende-Still": Bilevel(
        lambda x, t, m: x[0] ** 2 - 2 * x[0] + x[1] ** 2 - 2 * x[1] + t[0] ** 2 + t[1] ** 2,
        lambda x, t, m: t[0] ** 2 - 2 * x[0] * t[0] + t[1] ** 2 - 2 * x[1] * t[1] + 0.1 * m.log(1 + m.exp(-t[1])),
        (0, 0),
        (2, 2),
        (0.1, 0.2),
        (1, 1),
    ),
    "Morgan-Patrone": Bilevel(
        lambda x, t, m: -x[0] - t[0],
        lambda x, t, m: 0.5 * (1 + x[0] ** 2) * t[0] ** 2 - m.tanh(4 * x[0]) * t[0],
        (-0.5,),
        (0.5,),
        (0,),
        (0,),
    ),
    # after SMD: three parts of x and theta each, with lower parts that are strongly convex
    "SMD1": Bilevel(
        lambda x, t, m: (
            m.sum(x[:3] ** 2) + m.sum(t[:3] ** 2) + m.sum(x[3:] ** 2) + m.sum((x[3:] - m.arctan(t[3:]) - 1) ** 2)
        ),
        lambda x, t, m: m.sum((t[:3] - x[:3]) ** 2) + m.sum((t[3:] - x[3:]) ** 2 + m.log(m.cosh(t[3:]))),
        (-5,) * 5,
        (10,) * 5,
        (4,) * 5,
        (1,) * 5,
    ),
    "SMD3": Bilevel(
        lambda x, t, m: m.sum(x[:3] ** 2) + m.sum(t[:3] ** 2) + m.sum((x[3:] ** 2 - t[3:] - 2) ** 2),
        lambda x, t, m: (
            m.sum((1 + 0.5 * m.cos(t[:3])) + t[:3] ** 2 - x[:3] * t[:3])
            + m.sum((x[3:] ** 2 - t[3:]) ** 2 + 0.1 * t[3:] ** 4)
        ),
        (-5,) * 5,
        (10,) * 5,
        (2,) * 5,
        (1,) * 5,
    ),
    "SMD7": Bilevel(
        lambda x, t, m: (
            1 + m.sum(x[:3] ** 2) / 400 - m.prod(m.cos(x[:3])) - m.sum(t[:3] ** 2) + m.sum((x[3:] - t[3:]) ** 2)
        ),
        lambda x, t, m: (
            m.sum((t[:3] - 0.1 * x[:3]) ** 2) + m.sum((x[3:] - m.log(1 + m.exp(t[3:]))) ** 2 * 0.05 + t[3:] ** 2)
        ),
        (-5,) * 5,
        (10,) * 5,
        (0.5,) * 5,
        (1,) * 5,
    ),
    # toll prices against travellers who mix routes by an entropy, as logits
    "Tolls": Bilevel(
        lambda x, t, m: -x @ (m.exp(t) / m.sum(m.exp(t))) + 0.05 * m.sum(x**2),
        lambda x, t, m: m.log(m.sum(m.exp(t))) + (np.array([1.0, 1.5, 2.0, 2.2]) + x) @ t / 4 + 0.1 * m.sum(t**2),
        (0,) * 4,
        (6,) * 4,
        (1,) * 4,
        (0,) * 4,
    ),
    "Ten by ten": Bilevel(
        lambda x, t, m: m.sum((t - m.sin(np.arange(10.0))) ** 2) + 0.1 * m.sum(x**2),
        lambda x, t, m: 0.5 * m.sum((t - x) ** 2) + 0.25 * m.sum((t[1:] - t[:-1]) ** 2) + 0.1 * m.sum(t**4),
        (-2,) * 10,
        (2,) * 10,
        (1,) * 10,
        (0,) * 10,
    ),
    # with a max player: the worst of several
    "Worst of Bard": Bilevel(
        lambda x, t, m: m.stack([(x[0] - 1) ** 2 + (t[0] - 1) ** 2, 80 + 2 * t[0] ** 2, 90 - x[0]]),
        lower_linear_response,
        (-100,),
        (100,),
        (0,),
        (0,),
    ),
    "Worst of three": Bilevel(
        lambda x, t, m: (
            m.stack([m.sum((t - c) ** 2) for c in (np.array([1.0, 2]), np.array([-1.0, 1]), np.array([0.0, -2]))])
            + 0.1 * m.sum(x**2)
        ),
        lambda x, t, m: 0.5 * t @ C2 @ t - (A3 @ x) @ t + 0.1 * m.exp(t[0] - t[1]),
        (-1,) * 3,
        (1,) * 3,
        (0.5,) * 3,
        (0, 0),
    ),
    "Worst price": Bilevel(
        lambda x, t, m: m.stack([-x[0] * t[0], -x[1] * t[1], -0.5 * (x[0] * t[0] + x[1] * t[1])]) + 0.01 * m.sum(x**2),
        lambda x, t, m: (
            0.5 * m.sum(t**2) + 0.25 * (t[0] + t[1]) ** 2 - (3 - x[0]) * t[0] - (2 - x[1]) * t[1] + 0.1 * m.exp(-t[0])
        ),
        (0, 0),
        (3, 3),
        (1, 1),
        (0, 0),
    ),
    "Worst fit": Bilevel(
        lambda x, t, m: (t[0] + t[1] * np.linspace(-1, 1, 5) - np.array([0.9, 0.2, 0.1, 0.4, 1.2])) ** 2,
        lambda x, t, m: (
            x @ (t[0] + t[1] * np.linspace(-1, 1, 5) - np.array([1.0, 0.3, 0, 0.2, 1.1])) ** 2 + 0.05 * m.sum(t**2)
        ),
        (0.1,) * 5,
        (2,) * 5,
        (1,) * 5,
        (0, 0),
    ),
    "Worst of SMD": Bilevel(
        lambda x, t, m: m.stack(
            [m.sum(x**2) + m.sum(t[:2] ** 2), m.sum((t - 1) ** 2), m.sum((x - m.tanh(t)) ** 2) + m.sum(x) / 4]
        ),
        lambda x, t, m: m.sum((t - x) ** 2) + m.sum(m.log(m.cosh(2 * t))) + 0.5 * (t[0] - t[1] + t[2] - t[3]) ** 2,
        (-5,) * 4,
        (10,) * 4,
        (3,) * 4,
        (0,) * 4,
    ),
}


class Upper(eqx.Module):
    name: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        value = PROBLEMS[self.name].f(x, theta, jnp)
        return value if y is None else y @ value


class Lower(eqx.Module):
    name: str = eqx.field(static=True)

    def __call__(self, x, theta, data):
        return PROBLEMS[self.name].g(x, theta, jnp)


def make(name: str) -> tuple[bs.Problem, bs.Point]:
    given = PROBLEMS[name]
    x, theta, low, high = (np.array(v, float) for v in (given.x, given.theta, given.lower, given.upper))
    count = np.size(given.f(x, theta, np))
    y = None if count == 1 else np.full(count, 1 / count)
    y_set = None if y is None else bs.sets.Simplex()
    return bs.Problem(Upper(name), Lower(name), bs.sets.Box(low, high), y_set), bs.Point(x, theta, y)


def reduced(name: str, x: np.ndarray, near: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """f(x, theta*(x)), one value or several, and theta*(x), by BFGS and then Newton's steps with differences of g."""
    given = PROBLEMS[name]
    g = lambda t: float(given.g(x, t, np))
    theta = minimize(g, near, method="BFGS", options={"gtol": 1e-9}).x
    for _ in range(2):
        slope, bend = differences(g, theta)
        theta = theta - np.linalg.solve(bend, slope)
    return np.atleast_1d(given.f(x, theta, np)), theta


def differences(g: Callable, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian by central differences."""
    h, e = 1e-3, np.eye(theta.size)
    at = lambda d: g(theta + h * d)
    fine = lambda d: (8 * (at(d) - at(-d)) - at(2 * d) + at(-2 * d)) / (12 * h)
    cross = lambda a, b: (at(a + b) - at(a - b) - at(b - a) + at(-a - b)) / (4 * h**2)
    return np.array([fine(d) for d in e]), np.array([[cross(a, b) for b in e] for a in e])


def least(name: str) -> float:
    """The least largest value, by SLSQP for the epigraph over x from several starts, with differences."""
    given = PROBLEMS[name]
    low, high, rng = np.array(given.lower, float), np.array(given.upper, float), np.random.default_rng(0)
    near, size = np.array(given.theta, float), len(given.x)
    value = lambda x: reduced(name, np.clip(x, low, high), near)[0]
    limits = {"type": "ineq", "fun": lambda v: v[size] - value(v[:size])}
    bounds = [*zip(low, high, strict=True), (None, None)]
    found = np.inf
    for i in range(8 if size <= 3 else 3):
        start = np.array(given.x, float) if i == 0 else rng.uniform(low, high)
        first = np.append(start, np.max(value(start)))
        options = {"maxiter": 200, "ftol": 1e-13}
        last = lambda v: v[size]
        answer = minimize(last, first, method="SLSQP", bounds=bounds, constraints=[limits], options=options)
        found = min(found, float(np.max(value(answer.x[:size]))))
    return found


def steepest(name: str, x: np.ndarray, theta: np.ndarray) -> float:
    """How fast the reduced problem falls along a coordinate or a random direction, into X; at most 0: not at all."""
    given, rng = PROBLEMS[name], np.random.default_rng(1)
    low, high = np.array(given.lower, float), np.array(given.upper, float)
    here, h = np.max(reduced(name, x, theta)[0]), 1e-5
    ways = [*np.eye(x.size), *-np.eye(x.size), *rng.normal(size=(20, x.size))]
    falls = []
    for d in ways:
        to = np.clip(x + h * d / np.linalg.norm(d), low, high)
        if (length := np.linalg.norm(to - x)) > 0.1 * h:
            falls.append((here - np.max(reduced(name, to, theta)[0])) / length)
    return max(falls)


def main() -> None:
    print("| problem | least | found | slope | steps |\n|---|---|---|---|---|")
    for name in sys.argv[1:] or PROBLEMS:
        problem, start = make(name)
        result = bs.solve(problem, start, tol=1e-6, progress=False)
        x, theta = np.asarray(result.x), np.asarray(result.certificate.theta)
        told = f"{result.steps}" if result.status is bs.Status.CERTIFIED else f"{result.status} {result.gap:.0e}"
        slope = steepest(name, x, theta)
        print(
            f"| {name} | {least(name):.8g} | {np.max(reduced(name, x, theta)[0]):.8g} | {slope:.0e} | {told} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
