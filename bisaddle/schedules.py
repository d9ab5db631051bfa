"""Step sizes as functions of the step counter k. Their numbers are array leaves, so that a sweep compiles once."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from bisaddle.sets.base import Leaf, as_callable, as_leaf, traced
from bisaddle.showing import Shown


class Schedule(Shown):
    """A step size at step k = 0, 1, 2, ...: schedule(k) -> number."""

    def __call__(self, k: Array) -> Array:
        raise NotImplementedError


class Constant(Schedule):
    """value"""

    value: Leaf = eqx.field(converter=lambda v: as_leaf(v, "Constant value"))

    def __call__(self, k: Array) -> Array:
        return jnp.asarray(self.value)


class Power(Schedule):
    """scale (k + 1 + offset)^exponent"""

    scale: Leaf = eqx.field(converter=lambda v: as_leaf(v, "Power scale"))
    exponent: Leaf = eqx.field(converter=lambda v: as_leaf(v, "Power exponent"))
    offset: Leaf = eqx.field(converter=lambda v: as_leaf(v, "Power offset"), default=0.0)

    def __call__(self, k: Array) -> Array:
        return jnp.asarray(self.scale) * (k + 1 + jnp.asarray(self.offset)) ** jnp.asarray(self.exponent)


class FromFunction(Schedule):
    """function(k), any JAX function of the integer array k"""

    function: Callable = eqx.field(converter=as_callable)

    def __call__(self, k: Array) -> Array:
        return jnp.asarray(self.function(k))


# name: (smallest allowed, whether the smallest is allowed itself, largest allowed)
_RANGES = {
    "alpha": (0.0, False, np.inf),
    "eta": (0.0, False, np.inf),
    "gamma": (0.0, True, 1.0),
    "tau": (0.0, False, np.inf),
    "sigma": (0.0, False, np.inf),
    "mu": (0.0, True, np.inf),
}
NAMES = tuple(_RANGES)


def as_schedule(value) -> Schedule | None:
    if value is None or isinstance(value, Schedule):
        return value
    return FromFunction(value) if callable(value) else Constant(value)


def _step_size(name: str) -> Callable:
    def convert(value) -> Schedule | None:
        try:
            return as_schedule(value)
        except ValueError as error:
            raise ValueError(f"StepSizes: {name} must be a number, a Schedule or a function of k: {error}") from error

    return convert


class StepSizes(Shown):
    """The step sizes of the methods; a method takes those it uses. Each is a number, a Schedule or a function of k.

    alpha   lower step            theta+ = theta - alpha g_theta(x+, theta)
    eta     linear-system step    w+ = w - eta (g_theta_theta w - f_theta)
    gamma   averaging step        x+ = gamma s + (1 - gamma) x,   0 <= gamma <= 1
    tau     projection step       s = P_X(x - tau Gx)
    sigma   ascent step           y+ = P_Y(y + sigma (f_y - mu (y - y0)))
    mu      regularisation        towards y0
    """

    alpha: Schedule | None = eqx.field(converter=_step_size("alpha"), default=None)
    eta: Schedule | None = eqx.field(converter=_step_size("eta"), default=None)
    gamma: Schedule | None = eqx.field(converter=_step_size("gamma"), default=None)
    tau: Schedule | None = eqx.field(converter=_step_size("tau"), default=None)
    sigma: Schedule | None = eqx.field(converter=_step_size("sigma"), default=None)
    mu: Schedule | None = eqx.field(converter=_step_size("mu"), default=None)

    def __check_init__(self):
        for name, schedule in self.given.items():
            least, inclusive, most = _RANGES[name]
            try:
                shape = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), jnp.int32)).shape
            except Exception as error:
                raise ValueError(
                    f"StepSizes: {name} must be a JAX function of k, given one that fails with {type(error).__name__}: "
                    f"{error}; use jnp.where instead of if"
                ) from error
            if shape != () and not isinstance(schedule, Constant | Power):
                raise ValueError(f"StepSizes: {name} must be a number at each k, given shape {shape}")
            if any(traced(leaf) for leaf in jax.tree.leaves(schedule)):
                continue
            if isinstance(schedule, Constant):
                first = schedule.value
            else:
                with jax.ensure_compile_time_eval():  # also when constructed inside the user's own jit
                    first = schedule(jax.device_put(np.zeros((), np.int32)))
            if traced(first):  # a function that closes over a traced value
                continue
            first = np.asarray(first)
            allowed = np.isfinite(first) & (first <= most) & ((first >= least) if inclusive else (first > least))
            if not np.all(allowed):
                bracket = "[" if inclusive else "("
                ceiling = "infinity)" if most == np.inf else f"{most:g}]"
                raise ValueError(f"StepSizes: {name} must lie in {bracket}{least:g}, {ceiling}, given {first} at k = 0")

    def shown_fields(self) -> dict[str, Any]:
        return {name: size.value if isinstance(size, Constant) else size for name, size in self.given.items()}

    @property
    def given(self) -> dict[str, Schedule]:
        """The step sizes that are there, by name."""
        return {name: schedule for name, schedule in vars(self).items() if schedule is not None}

    def at(self, k: Array) -> dict[str, Array]:
        """The numbers in force at step k, by name."""
        return {name: schedule(k) for name, schedule in self.given.items()}
