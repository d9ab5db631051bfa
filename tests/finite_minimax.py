"""Published finite minimax problems, min_x max_i f_i(x), with their solutions."""

import jax.numpy as jnp


def _cb2(x):
    return jnp.stack([x[0] ** 2 + x[1] ** 4, (2 - x[0]) ** 2 + (2 - x[1]) ** 2, 2 * jnp.exp(x[1] - x[0])])


def _dem(x):
    return jnp.stack([5 * x[0] + x[1], -5 * x[0] + x[1], x[0] ** 2 + x[1] ** 2 + 4 * x[1]])


def _ql(x):
    q = x[0] ** 2 + x[1] ** 2
    return jnp.stack([q, q + 10 * (4 - 4 * x[0] - x[1]), q + 10 * (6 - x[0] - 2 * x[1])])


def _mifflin1(x):
    return jnp.stack([-x[0], -x[0] + 20 * (x[0] ** 2 + x[1] ** 2 - 1)])


def _crescent(x):
    r = x[0] ** 2 + (x[1] - 1) ** 2
    return jnp.stack([r + x[1] - 1, -r + x[1] + 1])


# name: (functions, x*, lambda*, value, half width of the box)
MINIMAX = {
    "CB2": (_cb2, (1.139038, 0.899560), (0.43048, 0.56952, 0.0), 1.95222449, 3.0),
    "DEM": (_dem, (0.0, -3.0), (1 / 3, 1 / 3, 1 / 3), -3.0, 5.0),
    "QL": (_ql, (1.2, 2.4), (0.76, 0.0, 0.24), 7.2, 5.0),
    "Mifflin1": (_mifflin1, (1.0, 0.0), (0.975, 0.025), -1.0, 5.0),
    "Crescent": (_crescent, (0.0, 0.0), (0.75, 0.25), 0.0, 5.0),
}
