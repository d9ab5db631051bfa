"""Finite minimax problems, min_x max_i f_i(x), for NumPy and JAX alike, and the same with a lower level added."""

import equinox as eqx
import jax
import jax.numpy as jnp


def cb2(x, m):
    return m.stack([x[0] ** 2 + x[1] ** 4, (2 - x[0]) ** 2 + (2 - x[1]) ** 2, 2 * m.exp(x[1] - x[0])])


def dem(x, m):
    return m.stack([5 * x[0] + x[1], -5 * x[0] + x[1], x[0] ** 2 + x[1] ** 2 + 4 * x[1]])


def ql(x, m):
    q = x[0] ** 2 + x[1] ** 2
    return m.stack([q, q + 10 * (4 - 4 * x[0] - x[1]), q + 10 * (6 - x[0] - 2 * x[1])])


def mifflin1(x, m):
    return m.stack([-x[0], -x[0] + 20 * (x[0] ** 2 + x[1] ** 2 - 1)])


def crescent(x, m):
    r = x[0] ** 2 + (x[1] - 1) ** 2
    return m.stack([r + x[1] - 1, -r + x[1] + 1])


def rosen_suzuki(x, m):
    """x* = (0, 1, 2, -1), value -44"""
    a, b, c, d = x[0], x[1], x[2], x[3]
    f = a**2 + b**2 + 2 * c**2 + d**2 - 5 * a - 5 * b - 21 * c + 7 * d
    first = a**2 + b**2 + c**2 + d**2 + a - b + c - d - 8
    second = a**2 + 2 * b**2 + c**2 + 2 * d**2 - a - d - 10
    third = a**2 + b**2 + c**2 + 2 * a - b - d - 5
    return m.stack([f, f + 10 * first, f + 10 * second, f + 10 * third])


# name: functions, size of x, number of functions, half width of the box
MINIMAX = {
    "CB2": (cb2, 2, 3, 3.0),
    "DEM": (dem, 2, 3, 5.0),
    "QL": (ql, 2, 3, 5.0),
    "Mifflin1": (mifflin1, 2, 2, 5.0),
    "Crescent": (crescent, 2, 2, 5.0),
    "RosenSuzuki": (rosen_suzuki, 4, 4, 5.0),
}


class PlainUpper(eqx.Module):
    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        return y @ MINIMAX[self.kind][0](x, jnp)


class LiftedUpper(eqx.Module):
    """sum_t y_t f_t(theta_t), theta_t(x) = x"""

    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        return y @ jnp.diagonal(jax.vmap(lambda t: MINIMAX[self.kind][0](t, jnp))(theta))


def lift_lower(x, theta, data):
    """sum_t (theta_t - x)' A_t (theta_t - x) / 2"""
    return 0.5 * jnp.einsum("ti,tij,tj->", theta - x, data, theta - x)
