"""Published finite minimax problems, min_x max_i f_i(x), without constraints: from their starts, in balls of any size.

From Luksan and Vlcek, Test problems for nonsmooth unconstrained and linearly constrained optimization (2000), and the
papers that it cites. Functions for NumPy and JAX alike.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from adaptive_dense import Dense, onto_l2, onto_simplex
from adaptive_minimax import cb2, crescent, dem, mifflin1, ql, rosen_suzuki

import bisaddle as bs


def cb3(x, m):
    return m.stack([x[0] ** 4 + x[1] ** 2, (2 - x[0]) ** 2 + (2 - x[1]) ** 2, 2 * m.exp(x[1] - x[0])])


def lq(x, m):
    return m.stack([-x[0] - x[1], -x[0] - x[1] + x[0] ** 2 + x[1] ** 2 - 1])


def mifflin2(x, m):
    r = x[0] ** 2 + x[1] ** 2 - 1
    return m.stack([-x[0] + 3.75 * r, -x[0] + 0.25 * r])


def polak1(x, m):
    first = x[0] ** 2 / 1000
    return m.stack([m.exp(first + (x[1] - 1) ** 2), m.exp(first + (x[1] + 1) ** 2)])


def polak2(x, m):
    def at(shift):
        rest = sum(x[i] ** 2 for i in (2, 4, 5, 6, 7, 8, 9))
        return m.exp(1e-8 * x[0] ** 2 + (x[1] + shift) ** 2 + rest + 4 * x[3] ** 2)

    return m.stack([at(2.0), at(-2.0)])


def polak3(x, m):
    def at(i):
        return sum(m.exp((x[j] - np.sin(i - 1 + 2 * j)) ** 2) / (i + j) for j in range(11))

    return m.stack([at(i) for i in range(1, 11)])


def polak6(x, m):
    """Rosen and Suzuki's functions in bent coordinates; value -44"""
    a = x[0] - (x[3] + 1) ** 4
    return rosen_suzuki(m.stack([a, x[1] - a**4, x[2], x[3]]), m)


def wong1(x, m):
    a, b, c, d, e, u, v = (x[i] for i in range(7))
    f = (a - 10) ** 2 + 5 * (b - 12) ** 2 + c**4 + 3 * (d - 11) ** 2 + 10 * e**6 + 7 * u**2 + v**4
    f = f - 4 * u * v - 10 * u - 8 * v
    limits = (
        2 * a**2 + 3 * b**4 + c + 4 * d**2 + 5 * e - 127,
        7 * a + 3 * b + 10 * c**2 + d - e - 282,
        23 * a + b**2 + 6 * u**2 - 8 * v - 196,
        4 * a**2 + b**2 - 3 * a * b + 2 * c**2 + 5 * u - 11 * v,
    )
    return m.stack([f, *(f + 10 * limit for limit in limits)])


def evd52(x, m):
    a, b, c = x[0], x[1], x[2]
    q = a**2 + b**2
    bowl = 2 * a**3 + 6 * b**2 + 2 * (5 * c - a + 1) ** 2
    return m.stack([q + c**2 - 1, q + (c - 2) ** 2, a + b + c - 1, a + b - c + 1, bowl, a**2 - 9 * c])


# name: functions, how many, start
PUBLISHED = {
    "CB2": (cb2, 3, (1.0, -0.1)),
    "CB3": (cb3, 3, (2.0, 2.0)),
    "DEM": (dem, 3, (1.0, 1.0)),
    "QL": (ql, 3, (-1.0, 5.0)),
    "LQ": (lq, 2, (-0.5, -0.5)),
    "Mifflin1": (mifflin1, 2, (0.8, 0.6)),
    "Mifflin2": (mifflin2, 2, (-1.0, -1.0)),
    "Crescent": (crescent, 2, (-1.5, 2.0)),
    "EVD52": (evd52, 6, (1.0, 1.0, 1.0)),
    "RosenSuzuki": (rosen_suzuki, 4, (0.0, 0.0, 0.0, 0.0)),
    "Polak1": (polak1, 2, (50.0, 0.05)),
    "Polak2": (polak2, 2, (100.0, *[0.1] * 9)),
    "Polak3": (polak3, 10, (1.0,) * 11),
    "Polak6": (polak6, 4, (0.0, 0.0, 0.0, 0.0)),
    "Wong1": (wong1, 5, (1.0, 2.0, 0.0, 4.0, 0.0, 1.0, 1.0)),
}


class Upper(eqx.Module):
    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        return y @ PUBLISHED[self.kind][0](x, jnp)


def make(kind: str, radius: float, seed: int) -> tuple[bs.Problem, bs.Point, Dense]:
    """Seed 0: the published start; any other: a start near it, as all numbers times factors of 0.8 to 1.2."""
    functions, count, at = PUBLISHED[kind]
    x = np.array(at) if seed == 0 else np.array(at) * np.random.default_rng(seed).uniform(0.8, 1.2, len(at))
    problem = bs.Problem(Upper(kind), None, bs.sets.L2Ball(radius), bs.sets.Simplex())
    check = Dense(lambda x, theta, y: y @ functions(x, np), None, lambda v: onto_l2(v, radius), onto_simplex)
    return problem, bs.Point(x=jnp.asarray(x), y=jnp.full(count, 1 / count)), check
