"""More published minimax problems, with their published values: from their starts, in balls of four sizes.

    python benchmarks/adaptive_published_more.py [--held-out]

From Luksan and Vlcek (2000), problems 2 and 3 and the papers that they cite, and from later collections (OET1, OET3,
Polak 5, chained problems), written down anew. Every other problem is
for training, the rest held out. max_i |f_i| is the maximum of f_i and -f_i. A nonconvex problem may be certified at a
stationary point with another value, which the table shows.
"""

import argparse
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import bisaddle as bs

jax.config.update("jax_enable_x64", True)
RADII = (10.0, 50.0, 1e3, 1e6)
STEPS = 2000


class Published(NamedTuple):
    """The functions f_i at x, the start, the published minimum of their maximum."""

    functions: Callable
    start: np.ndarray
    value: float


def absolute(f):
    return jnp.concatenate([f, -f])


def spiral(x):
    r = jnp.sqrt(x @ x)
    return jnp.stack([(x[0] - r * jnp.cos(r)) ** 2, (x[1] - r * jnp.sin(r)) ** 2]) + 0.005 * x @ x


def davidon2(x):
    t = 0.2 * np.arange(1, 21)
    return (x[0] + x[1] * t - np.exp(t)) ** 2 + (x[2] + x[3] * np.sin(t) - np.cos(t)) ** 2


def oet5(x):
    t = 0.25 + 0.75 * np.arange(21) / 20
    return absolute(x[3] - (x[0] * t**2 + x[1] * t + x[2]) ** 2 - np.sqrt(t))


def oet6(x):
    t = -0.5 + np.arange(21) / 20
    return absolute(x[0] * jnp.exp(x[2] * t) + x[1] * jnp.exp(x[3] * t) - 1 / (1 + t))


def exp(x):
    t = -1 + np.arange(21) / 10
    return absolute((x[0] + x[1] * t) / (1 + x[2] * t + x[3] * t**2 + x[4] * t**3) - np.exp(t))


def pbc1(x):
    t = -1 + 2 * np.arange(30) / 29
    target = np.sqrt((8 * t - 1) ** 2 + 1) * np.arctan(8 * t) / (8 * t)
    return absolute((x[0] + x[1] * t + x[2] * t**2) / (1 + x[3] * t + x[4] * t**2) - target)


def evd61(x):
    t = 0.1 * np.arange(51)
    target = 0.5 * np.exp(-t) - np.exp(-2 * t) + 0.5 * np.exp(-3 * t)
    target += 1.5 * np.exp(-1.5 * t) * np.sin(7 * t) + np.exp(-2.5 * t) * np.sin(5 * t)
    return absolute(x[0] * jnp.exp(-x[1] * t) * jnp.cos(x[2] * t + x[3]) + x[4] * jnp.exp(-x[5] * t) - target)


def bard(x):
    u = np.arange(1.0, 16)
    v = 16 - u
    y = [0.14, 0.18, 0.22, 0.25, 0.29, 0.32, 0.35, 0.39, 0.37, 0.58, 0.73, 0.96, 1.34, 2.10, 4.39]
    return absolute(x[0] + u / (v * x[1] + np.minimum(u, v) * x[2]) - np.array(y))


def kowalik_osborne(x):
    u = np.array([4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625])
    y = [0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246]
    return absolute(x[0] * (u**2 + x[1] * u) / (u**2 + x[2] * u + x[3]) - np.array(y))


def hs78(x):
    limits = jnp.stack([x @ x - 10, x[1] * x[2] - 5 * x[3] * x[4], x[0] ** 3 + x[1] ** 3 + 1])
    signs = np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
    return jnp.prod(x) + 10 * signs @ limits


def wong2(x):
    """Hock and Schittkowski's problem 113, its limits with weight 10"""
    a, b, c, d, e, f, g, h, i, j = x
    value = a**2 + b**2 + a * b - 14 * a - 16 * b + (c - 10) ** 2 + 4 * (d - 5) ** 2 + (e - 3) ** 2 + 2 * (f - 1) ** 2
    value += 5 * g**2 + 7 * (h - 11) ** 2 + 2 * (i - 10) ** 2 + (j - 7) ** 2 + 45
    limits = [
        4 * a + 5 * b - 3 * g + 9 * h - 105,
        10 * a - 8 * b - 17 * g + 2 * h,
        -8 * a + 2 * b + 5 * i - 2 * j - 12,
        3 * (a - 2) ** 2 + 4 * (b - 3) ** 2 + 2 * c**2 - 7 * d - 120,
        5 * a**2 + 8 * b + (c - 6) ** 2 - 2 * d - 40,
        0.5 * (a - 8) ** 2 + 2 * (b - 4) ** 2 + 3 * e**2 - f - 30,
        a**2 + 2 * (b - 2) ** 2 - 2 * a * b + 14 * e - 6 * f,
        -3 * a + 6 * b + 12 * (i - 8) ** 2 - 7 * j,
    ]
    return jnp.stack([value, *(value + 10 * limit for limit in limits)])


def maxquad(x):
    i = np.arange(1, 11)
    small, large = np.minimum.outer(i, i), np.maximum.outer(i, i)
    found = []
    for k in range(1, 6):
        A = np.exp(small / large) * np.cos(np.outer(i, i)) * np.sin(k)
        np.fill_diagonal(A, 0.0)
        A += np.diag(i * abs(np.sin(k)) / 10 + np.abs(A).sum(axis=1))
        found.append(x @ A @ x - (np.exp(i / k) * np.sin(i * k)) @ x)
    return jnp.stack(found)


def mxhilb(x):
    i = np.arange(x.size)
    return absolute((1 / (1 + np.add.outer(i, i))) @ x)


def wf(x):
    a, b = x
    return 0.5 * jnp.stack([a + 10 * a / (a + 0.1), -a + 10 * a / (a + 0.1), a - 10 * a / (a + 0.1)]) + b**2


def madsen(x):
    return absolute(jnp.stack([x[0] ** 2 + x[1] ** 2 + x[0] * x[1], jnp.sin(x[0]), jnp.cos(x[1])]))


def rosenbrock(x):
    """Hald and Madsen's first"""
    return absolute(jnp.stack([10 * (x[1] - x[0] ** 2), 1 - x[0]]))


def polak5(x):
    return 3 * x[0] ** 2 + 50 * (x[0] - x[1] ** 4 + np.array([-1.0, 1.0])) ** 2


def shor(x):
    b = np.array([1, 5, 10, 2, 4, 3, 1.7, 2.5, 6, 3.5])
    rows = "00000 21113 12112 14122 32101 02101 11111 10121 00210 11200".split()
    return b * jnp.sum((x - np.array([[float(digit) for digit in row] for row in rows])) ** 2, axis=1)


def osborne2(x):
    y = """1366 1191 1112 1013 991 885 831 847 786 725 746 679 608 655 616 606 602 626 651 724 649 649 694 644 624 661
    612 558 533 495 500 423 395 375 372 391 396 405 428 429 523 562 607 653 672 708 633 668 645 632 591 559 597 625 739
    710 729 720 636 581 428 292 162 98 54"""
    t = 0.1 * np.arange(65)
    hills = sum(x[k] * jnp.exp(-((t - x[k + 7]) ** 2) * x[k + 4]) for k in (1, 2, 3))
    return absolute(x[0] * jnp.exp(-t * x[4]) + hills - np.array(y.split(), float) / 1000)


def oet1(x):
    t = np.linspace(0, 2, 501)
    return absolute(t**2 - t * x[0] - np.exp(t) * x[1])


def oet3(x):
    t = np.linspace(0, 1, 501)
    return absolute(np.sin(t) - x[0] - x[1] * t - x[2] * t**2)


def chained_cb3(x):
    a, b = x[:-1], x[1:]
    parts = a**4 + b**2, (2 - a) ** 2 + (2 - b) ** 2, 2 * jnp.exp(b - a)
    return jnp.stack([jnp.sum(part) for part in parts])


def chained_crescent(x):
    r, b = x[:-1] ** 2 + (x[1:] - 1) ** 2, x[1:]
    return jnp.stack([jnp.sum(r + b - 1), jnp.sum(-r + b + 1)])


half = np.where(np.arange(1, 21) <= 10, 1.0, -1.0) * np.arange(1, 21)
PROBLEMS = {
    "SPIRAL": Published(spiral, np.array([1.41831, -4.79462]), 0.0),
    "Davidon 2": Published(davidon2, np.array([25.0, 5.0, -5.0, -1.0]), 115.70644),
    "OET5": Published(oet5, np.ones(4), 0.0026359735),
    "OET6": Published(oet6, np.array([1.0, 1.0, -3.0, -1.0]), 0.0020160753),
    "EXP": Published(exp, np.array([0.5, 0, 0, 0, 0]), 0.00012237125),
    "PBC1": Published(pbc1, np.array([0.0, -1, 10, 1, 10]), 0.022340496),
    "EVD61": Published(evd61, np.array([2.0, 2, 7, 0, -2, 1]), 0.034904926),
    "Bard": Published(bard, np.ones(3), 0.050816327),
    "Kowalik-Osborne": Published(kowalik_osborne, np.array([0.25, 0.39, 0.415, 0.39]), 0.0080843684),
    "HS78": Published(hs78, np.array([-2.0, 1.5, 2, -1, -1]), -2.9197004),
    "Wong 2": Published(wong2, np.array([2.0, 3, 5, 5, 1, 2, 7, 3, 6, 10]), 24.306209),
    "Maxquad": Published(maxquad, np.ones(10), -0.8414083),
    "Maxq": Published(lambda x: x**2, half, 0.0),
    "Maxl": Published(absolute, half, 0.0),
    "MXHILB": Published(mxhilb, np.ones(50), 0.0),
    "Goffin": Published(lambda x: 50 * x - jnp.sum(x), np.arange(1, 51) - 25.5, 0.0),
    "WF": Published(wf, np.array([3.0, 1.0]), 0.0),
    "Madsen": Published(madsen, np.array([3.0, 1.0]), 0.61643244),
    "Rosenbrock": Published(rosenbrock, np.array([-1.2, 1.0]), 0.0),
    "Polak 5": Published(polak5, np.array([0.1, 0.1]), 50.0),
    "Shor": Published(shor, np.array([0.0, 0, 0, 0, 1]), 22.600162),
    "Osborne 2": Published(osborne2, np.array([1.3, 0.65, 0.65, 0.7, 0.6, 3, 5, 7, 2, 4.5, 5.5]), 0.048027401),
    "OET1": Published(oet1, np.ones(2), 0.53824312),
    "OET3": Published(oet3, np.ones(3), 0.0045048),
    "Chained CB3 II": Published(chained_cb3, np.full(20, 2.0), 38.0),
    "Chained Crescent I": Published(chained_crescent, np.tile([-1.5, 2.0], 10), 0.0),
}


class Upper(eqx.Module):
    name: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        return y @ PROBLEMS[self.name].functions(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--held-out", action="store_true", help="the problems that nothing was chosen on")
    names = list(PROBLEMS)[parser.parse_args().held_out :: 2]
    print("| problem | value | " + " | ".join(f"radius {radius:g}" for radius in RADII) + " | found |")
    print("|---" * (3 + len(RADII)) + "|")
    for name in names:
        problem, cells, worst = PROBLEMS[name], [], np.nan
        count = problem.functions(jnp.asarray(problem.start)).size
        start = bs.Point(x=problem.start, y=np.full(count, 1 / count))
        for radius in RADII:
            if np.linalg.norm(problem.start) > radius:
                cells.append("starts outside")
                continue
            given = bs.Problem(Upper(name), None, bs.sets.L2Ball(radius), bs.sets.Simplex())
            result = bs.solve(given, start, tol=1e-6, max_steps=STEPS, progress=False)
            certified = result.status is bs.Status.CERTIFIED
            cells.append(f"{result.steps}" if certified else f"{result.status} {result.gap:.0e}")
            worst = result.certificate.worst_value
        print(f"| {name} | {problem.value:.8g} | " + " | ".join(cells) + f" | {worst:.8g} |", flush=True)


if __name__ == "__main__":
    main()
