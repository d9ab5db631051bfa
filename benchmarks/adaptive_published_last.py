"""Published problems that no rule was chosen on: minimax with linear constraints, sums of maxima, filters.

    python benchmarks/adaptive_published_last.py [name ...]

From Luksan and Vlcek (2000), its problems 2 and 3 with and without linear constraints, Hock and Schittkowski (86, 117),
CUTE (OET2, OET4, OET7) and Haarala's chained problems, written down anew; max_i |f_i| is the maximum of f_i and -f_i.
Run with the default settings of solve but for tol, 1e-4 and 1e-6. The column found shows where the run ended: a
nonconvex problem may be certified at another stationary point.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from adaptive_published_more import absolute

import bisaddle as bs

jax.config.update("jax_enable_x64", True)
TOLS = (1e-4, 1e-6)


class Published(NamedTuple):
    """f(x, y), X, Y, the start in x and in y, the published value."""

    upper: Callable
    x_set: Any
    y_set: Any
    x: np.ndarray
    y: np.ndarray
    value: float


def finite(functions: Callable, x: Any, value: float, x_set: Any = None) -> Published:
    """The maximum of finitely many functions, over a large ball if there are no constraints."""
    x = np.asarray(x, float)
    count = functions(jnp.asarray(x)).size
    upper = lambda x, y: y @ functions(x)
    return Published(upper, x_set or bs.sets.FreeBall(), bs.sets.Simplex(), x, np.full(count, 1 / count), value)


def summed(functions: Callable, x: Any, value: float) -> Published:
    """A sum of maxima: the rows of functions(x) have one each."""
    x = np.asarray(x, float)
    shape = functions(jnp.asarray(x)).shape
    upper = lambda x, y: jnp.sum(y * functions(x))
    y = np.full(shape, 1 / shape[1])
    return Published(upper, bs.sets.FreeBall(), bs.sets.Simplex(axis=-1), x, y, value)


def pbc3(x):
    t = 0.5 * np.arange(21)
    target = 3 / 20 * np.exp(-t) + np.exp(-5 * t) / 52
    target = target - np.exp(-2 * t) / 65 * (3 * np.sin(2 * t) + 11 * np.cos(2 * t))
    return absolute(x[2] / x[1] * jnp.exp(-x[0] * t) * jnp.sin(x[1] * t) - target)


def oet2(x):
    t = np.linspace(-0.5, 0.5, 501)
    return absolute(1 / (1 + t) - x[0] * jnp.exp(t * x[1]))


def oet4(x):
    t = np.linspace(0, 1, 501)
    return absolute(np.exp(t) - (x[0] + t * x[1]) / (1 + t * x[2]))


def oet7(x):
    t = np.linspace(-0.5, 0.5, 501)
    return absolute(1 / (1 + t) - sum(x[k] * jnp.exp(t * x[k + 3]) for k in range(3)))


def transformer(x):
    """Reflection of a transformer from 1 to 10 by three sections of lines, each of a length and an impedance."""
    wave = 0.5 * np.pi * np.array([0.5, 0.6, 0.7, 0.77, 0.9, 1.0, 1.1, 1.23, 1.3, 1.4, 1.5])
    a, b = jnp.ones(11, complex), jnp.full(11, 0.1 + 0j)  # voltage and current at the end of 10
    for length, impedance in ((x[4], x[5]), (x[2], x[3]), (x[0], x[1])):
        c, s = jnp.cos(wave * length), 1j * jnp.sin(wave * length)
        a, b = a * c + b * s * impedance, a * s / impedance + b * c
    return jnp.sqrt(jnp.abs(a - b) ** 2 / jnp.abs(a + b) ** 2)


def filtered(x):
    i = np.arange(1, 42)
    edges = [i <= 6, i <= 20, i == 21, i <= 35]
    t = np.select(edges, [0.01 * (i - 1), 0.07 + 0.03 * (i - 7), 0.5, 0.54 + 0.03 * (i - 22)], 0.95 + 0.01 * (i - 36))
    c, s = np.cos(np.pi * t), np.sin(np.pi * t)
    part = lambda k: (x[k] + (1 + x[k + 1]) * c) ** 2 + ((1 - x[k + 1]) * s) ** 2
    return absolute(x[8] * jnp.sqrt(part(0) * part(4) / (part(2) * part(6))) - np.abs(1 - 2 * t))


def watson(x):
    t = np.arange(1, 30)[:, None] / 29
    j = np.arange(20)
    rows = (j * t ** np.maximum(j - 1, 0)) @ x - (t**j @ x) ** 2 - 1
    return absolute(jnp.concatenate([rows, jnp.stack([x[0], x[1] - x[0] ** 2 - 1])]))


def wong3(x):
    (a, b, c, d, e, f, g, h, i, j), (k, l, m, n, o, p, q, r, s, t) = x[:10], x[10:]
    value = a**2 + b**2 + a * b - 14 * a - 16 * b + (c - 10) ** 2 + 4 * (d - 5) ** 2 + (e - 3) ** 2 + 2 * (f - 1) ** 2
    value += 5 * g**2 + 7 * (h - 11) ** 2 + 2 * (i - 10) ** 2 + (j - 7) ** 2 + (k - 9) ** 2 + 10 * (l - 1) ** 2
    value += 5 * (m - 7) ** 2 + 4 * (n - 14) ** 2 + 27 * (o - 1) ** 2 + p**4 + (q - 2) ** 2 + 13 * (r - 2) ** 2
    value += (s - 3) ** 2 + t**2 + 95
    limits = [
        3 * (a - 2) ** 2 + 4 * (b - 3) ** 2 + 2 * c**2 - 7 * d - 120,
        5 * a**2 + 8 * b + (c - 6) ** 2 - 2 * d - 40,
        0.5 * (a - 8) ** 2 + 2 * (b - 4) ** 2 + 3 * e**2 - f - 30,
        a**2 + 2 * (b - 2) ** 2 - 2 * a * b + 14 * e - 6 * f,
        4 * a + 5 * b - 3 * g + 9 * h - 105,
        10 * a - 8 * b - 17 * g + 2 * h,
        -3 * a + 6 * b + 12 * (i - 8) ** 2 - 7 * j,
        -8 * a + 2 * b + 5 * i - 2 * j - 12,
        a + b + 4 * k - 21 * l,
        a**2 + 15 * k - 8 * l - 28,
        4 * a + 9 * b + 5 * m**2 - 9 * n - 87,
        3 * a + 4 * b + 3 * (m - 6) ** 2 - 14 * n - 10,
        14 * a**2 + 35 * o - 79 * p - 92,
        15 * b**2 + 11 * o - 61 * p - 54,
        5 * a**2 + 2 * b + 9 * q**4 - r - 68,
        a**2 - b + 19 * s - 20 * t + 19,
        7 * a**2 + 5 * b**2 + s**2 - 30 * t,
    ]
    return jnp.stack([value, *(value + 10 * limit for limit in limits)])


def mad(x):
    return jnp.stack([x[0] ** 2 + x[1] ** 2 + x[0] * x[1] - 1, jnp.sin(x[0]), -jnp.cos(x[1])])


def mad6(x):
    """Side lobes of an antenna whose elements are placed."""
    angle = np.pi * (8.5 + 0.5 * np.arange(1, 164)) / 180
    return absolute(1 / 15 + 2 / 15 * jnp.sum(jnp.cos(2 * np.pi * np.sin(angle)[:, None] * x), axis=1))


def pentagon(x):
    p = x.reshape(3, 2)
    return jnp.stack([-jnp.sqrt(jnp.sum((p[i] - p[j]) ** 2)) for i, j in ((0, 1), (1, 2), (2, 0))])


def halfplane(a: float, b: float, c: float) -> Any:
    """a x1 + b x2 + c >= 0, in a large box"""
    return bs.sets.HalfspaceBox(np.array([-a, -b]), c, -1e3, 1e3)


def antenna_places() -> Any:
    """Apart by 0.4 and more, the sixth 1 beyond the fourth, the last at 3.5"""
    A = np.eye(7, k=-1) - np.eye(7)
    return bs.sets.Polyhedron(A, np.full(7, -0.4), np.array([[0, 0, 0, -1, 0, 1, 0], [0] * 6 + [1.0]]), [1.0, 3.5])


def corners() -> Any:
    """Three points of a pentagon"""
    angle = 2 * np.pi * np.arange(5) / 5
    return bs.sets.Polyhedron(np.kron(np.eye(3), np.stack([np.cos(angle), np.sin(angle)], 1)), np.ones(15))


E = np.array([-15.0, -27, -36, -18, -12])
D = np.array([4.0, 8, 10, 6, 2])
C = np.array(
    [[30.0, -20, -10, 32, -10], [-20, 39, -6, -31, 32], [-10, -6, 10, -6, -10], [32, -31, -6, 39, -20]]
    + [[-10, 32, -10, -20, 30]]
)
B = np.array([-40, -2, -0.25, -4, -4, -1, -40, -60, 5, 1])
A = np.array(
    [[-16, 2, 0, 1, 0], [0, -2, 0, 0.4, 2], [-3.5, 0, 2, 0, 0], [0, -2, 0, -4, -1], [0, -9, -2, 1, -2.8]]
    + [[2, 0, -4, 0, 0], [-1, -1, -1, -1, -1], [-1, -2, -3, -2, -1], [1, 2, 3, 4, 5], [1, 1, 1, 1, 1]]
)


def colville1(x):
    value = D @ x**3 + x @ C @ x + E @ x
    return value + jnp.concatenate([jnp.zeros(1), 50 * (B - A @ x)])


def shell_dual(x, y):
    """Hock and Schittkowski's 117, each limit with weight 100"""
    u, v = x[:10], x[10:]
    limits = A.T @ u - 2 * C @ v - 3 * D * v**2 - E
    return 2 * D @ v**3 + v @ C @ v - B @ u + 100 * y @ limits


def chained_lq(x):
    a, b = x[:-1], x[1:]
    return jnp.stack([-a - b, -a - b + a**2 + b**2 - 1], axis=1)


def chained_cb3(x):
    a, b = x[:-1], x[1:]
    return jnp.stack([a**4 + b**2, (2 - a) ** 2 + (2 - b) ** 2, 2 * jnp.exp(b - a)], axis=1)


def chained_crescent(x):
    r, b = x[:-1] ** 2 + (x[1:] - 1) ** 2, x[1:]
    return jnp.stack([r + b - 1, -r + b + 1], axis=1)


def chained_mifflin(x):
    r = x[:-1] ** 2 + x[1:] ** 2 - 1
    return jnp.stack([-x[:-1] + 3.75 * r, -x[:-1] + 0.25 * r], axis=1)


HS86 = bs.sets.Polyhedron(-A, -B, lower=np.zeros(5), upper=np.full(5, 100.0))
HS117 = np.where(np.arange(15) == 6, 60.0, 0.001)
WONG3 = [2.0, 3, 5, 5, 1, 2, 7, 3, 6, 10, 2, 2, 6, 15, 1, 2, 1, 2, 1, 3]
PROBLEMS = {
    "PBC3": finite(pbc3, np.ones(3), 0.0042021427),
    "OET2": finite(oet2, np.ones(2), 0.0871596),
    "OET4": finite(oet4, np.ones(3), 0.0042954),
    "OET7": finite(oet7, [1.0, 1, 1, -7, -3, -1], 4.45e-5),
    "Transformer": finite(transformer, [0.8, 1.5, 1.2, 3.0, 0.8, 6.0], 0.19729063),
    "Filter": finite(filtered, [0.0, 1, 0, -0.15, 0, -0.68, 0, -0.72, 0.37], 0.0061852848),
    "Watson": finite(watson, np.zeros(20), 1.4743027e-8),
    "Wong 3": finite(wong3, WONG3, 133.72828),
    "MAD1": finite(mad, [1.0, 2.0], -0.38965952, halfplane(1, 1, -0.5)),
    "MAD2": finite(mad, [-2.0, -1.0], -0.33035714, halfplane(-3, -1, -2.5)),
    "MAD6": finite(mad6, 0.5 * np.arange(1, 8), 0.10183089, antenna_places()),
    "Pentagon": finite(pentagon, [-1.0, 0, 0, -1, 1, 1], -1.85961870, corners()),
    "Colville 1": finite(colville1, [0.0, 0, 0, 0, 1], -32.348679, bs.sets.Box(np.zeros(5), np.full(5, 100.0))),
    "HS86": Published(lambda x, y: colville1(x)[0], HS86, None, np.array([0, 0, 0, 0, 1.0]), np.zeros(0), -32.348679),
    "Shell Dual": Published(
        shell_dual, bs.sets.Box(0.0, 1e3), bs.sets.Box(0.0, 1.0), HS117, np.full(5, 0.5), 32.348679
    ),
    "Chained LQ": summed(chained_lq, np.full(20, -0.5), -19 * 2**0.5),
    "Chained CB3 I": summed(chained_cb3, np.full(20, 2.0), 38.0),
    "Chained Crescent II": summed(chained_crescent, np.tile([-1.5, 2.0], 10), 0.0),
    "Chained Mifflin 2": summed(chained_mifflin, np.full(50, -1.0), -34.795),
}


class Upper(eqx.Module):
    name: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        return PROBLEMS[self.name].upper(x, y)


def main() -> None:
    print("| problem | value | found | " + " | ".join(f"steps to {tol:g}" for tol in TOLS) + " |")
    print("|---" * (3 + len(TOLS)) + "|")
    for name in sys.argv[1:] or PROBLEMS:
        given, cells, worst = PROBLEMS[name], [], np.nan
        problem = bs.Problem(Upper(name), None, given.x_set, given.y_set)
        start = bs.Point(
            x=np.asarray(given.x_set.project(jnp.asarray(given.x))), y=None if given.y_set is None else given.y
        )
        for tol in TOLS:
            result = bs.solve(problem, start, tol=tol, progress=False)
            certified = result.status is bs.Status.CERTIFIED
            bound = result.certificate.error_bound
            cells.append(
                f"{result.steps}" if certified else f"{result.status} {result.gap:.0e} +- {bound:.0e}, {result.steps}"
            )
            worst = result.certificate.worst_value
        print(f"| {name} | {given.value:.8g} | {worst:.8g} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
