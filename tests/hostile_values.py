"""Values that no argument of a kind may have, and a small problem to try them on."""

import datetime
from typing import Any

import jax.numpy as jnp
import numpy as np

import bisaddle as bs


class Looks(list):
    """What has a dtype and a shape and is no array, as a column of a table."""

    dtype, shape, ndim, size = np.dtype(float), (2,), 1, 2


def upper(x, theta, y, data):
    return jnp.sum(x * y) + jnp.sum(theta * theta) - jnp.sum(y**2) + data["c"] * jnp.sum(x**2)


def lower(x, theta, data):
    return jnp.sum((theta - x) ** 2)


BALL = bs.sets.L2Ball(1.0)


# values that are no number, whole number, array, function, whatever the argument; None where it means something
NO_NUMBER = ("1", b"1", np.ones(2), [1.0], {}, upper, 1j, 10**400, datetime.date(2020, 1, 1), float("nan"), -1.0, {1})
NO_WHOLE = (*NO_NUMBER, 0.5, None, -(10**30))
NO_ARRAY: tuple[Any, ...] = (
    "a",
    np.array(["a", "b"]),
    np.array([0.5, "b"], object),
    np.array(["2020-01-01", "2020-01-02"], "M8[D]"),
    np.ma.masked_array([0.5, 0.5], [True, False]),
    np.ones(2) * 0.5j,
    np.zeros(2, int),
    np.ones(2, bool),
    np.full(2, 0.5, np.float16),
    jnp.full(2, 0.5, jnp.bfloat16),
    np.full(2, 0.5, np.longdouble),
    np.full(2, 0.5, np.float32),
    np.zeros(0),
    np.full(2, np.nan),
    np.array([0.5, -np.inf]),
    Looks([0.5, 0.5]),
    upper,
    {0.5},
    datetime.date(2020, 1, 1),
    10**400,
)
NO_DATA = (
    "a",
    np.array(["a"]),
    np.array([{}], object),
    np.datetime64("2020"),
    upper,
    Looks([1.0]),
    {1},
    1j,
    np.ma.masked_array([1.0], [True]),
)
NO_SET = ("ball", 3, None, [BALL], {"x": BALL}, bs.sets.Box, bs.sets.Simplex, np.ones(2), upper, bs.methods.Adaptive())
NO_PROBLEM = (None, "problem", 3, {}, (upper, lower), upper, bs.Problem, BALL, np.ones(2), [1])
NO_POINT = (None, "start", 3.0, {"x": np.ones(2)}, (np.ones(2), None, np.ones(2)), np.ones(2), bs.Point, [])
NO_FUNCTION = ("f", 3, np.ones(2), [upper], {}, float("nan"))
NO_KEY = (5, "key", np.ones(2), [0, 1], 1.5, np.zeros((3, 2), np.uint32), {}, upper, True)
NO_CHOICE = ("other", 3, None, [], np.ones(2), {}, float("nan"), upper)
NO_FLAG = ("no", 3, [], np.ones(2), {}, float("nan"), upper)

SOLVE = {
    "tol": (*NO_NUMBER, 0.0, True),
    "max_steps": (*NO_WHOLE, 0, True, 2**31),
    "max_seconds": (*NO_NUMBER, 0, True),
    "every": (*(value for value in NO_WHOLE if value is not None), 0, True),
    "measure": tuple(value for value in NO_CHOICE if value is not None),
    "sigma": (*NO_NUMBER, None, 0, float("inf")),
    "tau": (*NO_NUMBER, None, 0, float("inf")),
    "callback": NO_FUNCTION,
    "progress": NO_FLAG,
    "check": (*NO_FLAG, None),
    "starts": (*(value for value in NO_WHOLE if value is not None), 0, True),
    "method": (*NO_FUNCTION, bs.methods.GDA, BALL),
}
GAP = {name: SOLVE[name] for name in ("sigma", "tau", "measure")}
CERTIFY = GAP | {"accuracy": (*NO_NUMBER, float("inf"))}
CHECK = {"directions": (*NO_WHOLE, 0, True), "seed": (*NO_WHOLE, True), "tolerance": (*NO_NUMBER, True)}
# what a function returns that is no floating scalar, and functions that cannot be called so
NO_SCALAR = {
    "a vector": lambda *a: a[0],
    "a pair": lambda *a: (a[0][0], a[0][1]),
    "nothing": lambda *a: None,
    "a complex number": lambda *a: jnp.sum(a[0]) * 1j,
    "a text": lambda *a: "1",
    "a whole number": lambda *a: 1,
    "a truth value": lambda *a: jnp.sum(a[0]) > 0,
    "too few arguments": lambda x: jnp.sum(x),
    "no arguments": lambda: 0.0,
    "its own error": lambda *a: {}["the user's own key"],
    "a branch": lambda *a: 1.0 if a[0][0] > 0 else 2.0,
    "NumPy": lambda *a: np.linalg.norm(np.asarray(a[0])),
    "other shapes": lambda *a: jnp.dot(a[0], jnp.ones(7)),
}
CONSTANT = (*NO_NUMBER, float("inf"))
